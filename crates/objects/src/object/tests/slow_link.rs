//! Objects behind a slow link: the bytes that somebody waits for come before speculation, and
//! nothing fails while bytes come.

use futures_util::FutureExt;

use super::*;

const LINK: u64 = 200_000;

impl Bench {
    /// An object with a cache on disk behind a link of this pace, all bodies of which move all the
    /// time.
    async fn behind_link(size: u64, bytes_per_second: u64) -> Self {
        let bench = Self::new(size, AMPLE).await;
        bench.fake.pace(Duration::from_millis(30), 4 << 10, Duration::ZERO);
        bench.fake.link(bytes_per_second);
        bench
    }

    /// Returns the time of a read as a client makes it: it fails after ten seconds.
    async fn read_time(&self, range: Range<u64>) -> Duration {
        let began = Instant::now();
        let bytes = self.object.read(range.clone(), within(Duration::from_secs(10))).await;
        assert!(bytes.unwrap() == self.expected(&range), "other bytes came for {range:?}");
        began.elapsed()
    }
}

/// Time that a range takes if it has the link to itself.
fn alone(range: &Range<u64>) -> Duration {
    Duration::from_secs_f64((range.end - range.start) as f64 / LINK as f64)
}

/// The part of a fill took half of the link from a chunk of a megabyte, which then exceeded its
/// deadline.
#[tokio::test(start_paused = true)]
async fn a_large_cold_read_has_the_link_although_a_fill_is_under_way() {
    let bench = Bench::behind_link(64 * MIB, LINK).await;
    bench.read_time(0..4_000).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(0 < bench.cache.stats().fill_bytes, "no fill is under way");
    let large = 40 * MIB..40 * MIB + 1_300_000;
    let took = bench.read_time(large.clone()).await;
    assert!(took < alone(&large).mul_f64(1.25), "{took:?}");
}

/// A warming sends as many parts as its memory takes, and each had as much of the link as a chunk
/// that somebody waited for.
#[tokio::test(start_paused = true)]
async fn cold_reads_have_the_link_although_a_file_is_warmed() {
    let bench = Bench::behind_link(64 * MIB, LINK).await;
    let object = Arc::clone(&bench.object);
    let warming = tokio::spawn(async move { object.warm(&mut |_| {}).await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    for index in 0..20 {
        let range = 63 * MIB - index * 200_000..63 * MIB - index * 200_000 + 100_000;
        let took = bench.read_time(range.clone()).await;
        assert!(took < alone(&range) * 3, "{took:?} for {index}");
    }
    assert!(!warming.is_finished());
    warming.abort();
}

/// Many small reads one after the other, as a walk through a tree makes them, leave a fill little;
/// but it gets somewhere.
#[tokio::test(start_paused = true)]
async fn a_fill_gets_to_its_end_although_reads_never_pause() {
    let bench = Bench::behind_link(8 * MIB, LINK).await;
    let walk = async {
        let object = bench.cache.object(&bench.remote, bench.object.meta());
        for index in 0u64.. {
            let start = index.wrapping_mul(7_919_003) % (8 * MIB - 4_000);
            drop(object.read(start..start + 4_000, within(Duration::from_secs(10))).await);
            if object.is_local(0..8 * MIB) {
                return index;
            }
            // A read from disk takes no time on the paused clock.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        0
    };
    let reads = timeout(Duration::from_secs(600), walk).await.expect("the fill starves");
    assert!(100 < reads, "{reads}");
}

/// A part was 8 MiB whatever the link: 42 s until the disk had the first byte of it, and a restart
/// began anew.
#[tokio::test(start_paused = true)]
async fn a_fill_over_a_slow_link_comes_to_disk_in_small_parts() {
    let bench = Bench::behind_link(24 * MIB, LINK).await;
    bench.read_time(0..4_000).await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(bench.object.is_local(0..1_000_000), "nothing is on disk after 12 s");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(bench.object.is_local(0..5 * MIB), "less is on disk than has come");
    let lengths: Vec<_> = bench
        .fake
        .requests()
        .iter()
        .filter_map(|request| request.range.as_ref())
        .map(|range| range.end - range.start)
        .collect();
    assert!(lengths.iter().all(|length| *length <= 2 * MIB), "{lengths:?}");
}

/// The pace of a link was known when the first body had ended.
#[tokio::test(start_paused = true)]
async fn the_pace_of_a_slow_link_is_known_while_a_body_comes() {
    let bench = Bench::behind_link(24 * MIB, LINK).await;
    let mut read = std::pin::pin!(bench.read(0..4 * MIB));
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!((&mut read).now_or_never().is_none());
    // In the first second the read and the fill that it started shared the link.
    let bandwidth = bench.remote.bandwidth().expect("nothing was measured");
    assert!((0.7..=1.2).contains(&(bandwidth / LINK as f64)), "{bandwidth}");
}

/// The head of an answer may be behind megabytes of others that share a slow link. The client sent
/// the request again and again, and gave up.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_late_behind_others_on_a_slow_link_is_waited_for() {
    let bench = Bench::behind_link(24 * MIB, LINK).await;
    let long = bench.read(0..8 * MIB);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = bench.remote.stats().requests;
    bench.fake.pace(Duration::from_secs(5), 4 << 10, Duration::ZERO);
    let late = bench.object.read(20 * MIB..20 * MIB + 4_000, within(Duration::from_secs(60)));
    assert!(late.await.unwrap() == bench.expected(&(20 * MIB..20 * MIB + 4_000)));
    let stats = bench.remote.stats();
    assert_eq!((stats.retries, stats.foreground_reads), (0, 2), "{}", stats.requests - before);
    drop(long);
}

/// Two chunks with 36 KB between them shared a request, because 64 KiB cost no time over most
/// links; over this one they cost 300 ms.
#[tokio::test(start_paused = true)]
async fn cold_chunks_bring_little_beside_them_over_a_slow_link() {
    let bench = Bench::behind_link(24 * MIB, LINK).await;
    bench.read_time(20 * MIB..20 * MIB + 4_000).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let ranges: Vec<_> = (0..400).map(|index| index * 40_000..index * 40_000 + 4_000).collect();
    let began = Instant::now();
    let readings = bench.object.read_many(&ranges, within(Duration::from_secs(60)));
    for (range, reading) in ranges.iter().zip(readings) {
        assert!(reading.await.unwrap() == bench.expected(range), "other bytes for {range:?}");
    }
    // Whole blocks, and the time of the fill's share.
    let blocks = Duration::from_secs_f64(400.0 * 3.0 * 4_096.0 / LINK as f64);
    assert!(began.elapsed() < blocks, "{:?}", began.elapsed());
}
