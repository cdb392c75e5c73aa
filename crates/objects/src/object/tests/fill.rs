//! Fills: which extents come to disk in the background, and when.

use futures_util::future::join_all;

use super::*;
use crate::remote::fake::FakeRequest;

#[tokio::test(start_paused = true)]
async fn the_first_touch_brings_the_whole_object() {
    let size = 20 * MIB + 12_345;
    let bench = Bench::new(size, AMPLE).await;
    bench.reads_well(10 * MIB..10 * MIB + 100).await;
    bench.settled().await;
    assert!(bench.object.is_local(0..size));
    let stats = bench.remote.stats();
    assert_eq!(stats.foreground_reads, 1);
    assert!(
        stats.bytes <= size + 8_192,
        "every byte once, but for the foreground's: {}",
        stats.bytes
    );
    assert_eq!(bench.object.read(0..size, LOCAL()).await.unwrap(), bench.bytes);
    assert_eq!(
        bench.fake.requests()[0].range.as_ref().unwrap().start / MIB,
        9,
        "the foreground went first"
    );
    let all_pinned = bench
        .fake
        .requests()
        .iter()
        .all(|asked| asked.if_match.as_ref() == Some(&bench.object.meta().etag));
    assert!(all_pinned);
    assert!(bench.cache.stats().hits >= 1);
}

#[tokio::test(start_paused = true)]
async fn of_a_large_object_only_the_extents_touched_come() {
    let bench = Bench::new(20 * MIB, DiskOptions { fill_whole_max: 10 * MIB, ..AMPLE }).await;
    bench.reads_well(5 * EXTENT_DATA_BYTES + 10..5 * EXTENT_DATA_BYTES + 20).await;
    bench.reads_well(8 * EXTENT_DATA_BYTES - 10..8 * EXTENT_DATA_BYTES + 10).await;
    bench.settled().await;
    let file = bench.object.core.disk.clone().unwrap();
    let present: Vec<_> = (0..20).filter(|extent| file.has_extent(*extent)).collect();
    assert_eq!(present, [5, 7, 8]);
}

#[tokio::test(start_paused = true)]
async fn only_local_answers_at_once_and_still_causes_the_fill() {
    let bench = Bench::new(3 * MIB, AMPLE).await;
    let began = Instant::now();
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    assert_eq!(began.elapsed(), Duration::ZERO);
    bench.settled().await;
    assert_eq!(bench.object.read(0..10, LOCAL()).await.unwrap(), bench.expected(&(0..10)));
    assert_eq!(bench.foreground_reads(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_miss_joins_a_part_only_if_its_bytes_are_due_sooner() {
    let bench = Bench::new(8 * MIB, AMPLE).await;
    // The pace is learned: 30 ms, 64 KiB a millisecond.
    for _ in 0..3 {
        bench.object.invalidate(0..8 * MIB);
        bench.object.core.fetches().queue.forget();
        bench.reads_well(0..2 * MIB).await;
        bench.settled().await;
    }
    bench.object.forget();
    bench.object.invalidate(0..8 * MIB);
    let before = bench.foreground_reads();
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let began = Instant::now();
    let near = bench.read(100_000..100_100);
    let far = bench.read(7 * MIB..7 * MIB + 100);
    near.await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(15), "{:?}", began.elapsed());
    assert_eq!(
        bench.foreground_reads() - before,
        1,
        "the part's beginning was due in 12 ms, its end in 120"
    );
    far.await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(40), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn fills_never_hold_more_than_their_budget() {
    let disk = DiskOptions { fill_bytes_max: 5 * EXTENT_DATA_BYTES + 17, ..AMPLE };
    let bench = Bench::new(30 * MIB, disk).await;
    let mut most = 0;
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    while !bench.object.is_local(0..30 * MIB) {
        most = most.max(bench.cache.stats().fill_bytes);
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    assert!(most <= disk.fill_bytes_max, "{most}");
    assert!(4 * EXTENT_DATA_BYTES <= most, "the budget is used: {most}");
    bench.settled().await;
    assert_eq!(bench.cache.stats().fill_bytes, 0, "all is given back");
}

#[tokio::test(start_paused = true)]
async fn a_budget_below_one_extent_still_fills() {
    let bench = Bench::new(3 * MIB, DiskOptions { fill_bytes_max: 1, ..AMPLE }).await;
    bench.reads_well(0..10).await;
    bench.settled().await;
    assert!(bench.object.is_local(0..3 * MIB));
}

#[tokio::test(start_paused = true)]
async fn warming_fetches_everything_once_and_reports_its_progress() {
    let size = 20 * MIB + 5;
    let bench = Bench::new(size, DiskOptions { fill_whole_max: 0, ..AMPLE }).await;
    // One extent is on disk, another under way.
    bench.reads_well(3 * EXTENT_DATA_BYTES..3 * EXTENT_DATA_BYTES + 1).await;
    bench.settled().await;
    bench.reads_well(9 * EXTENT_DATA_BYTES..9 * EXTENT_DATA_BYTES + 1).await;
    let mut reports = Vec::new();
    let progress = bench.object.warm(&mut |progress| reports.push(progress)).await.unwrap();
    assert_eq!(progress, Progress { done: size, total: size, corrupt: 0 });
    assert_eq!(reports.last(), Some(&progress));
    assert!(reports.windows(2).all(|pair| pair[0].done <= pair[1].done), "{reports:?}");
    assert!(5 < reports.len());
    assert!(bench.object.is_local(0..size));
    assert!(bench.remote.stats().bytes <= size + 2 * 4_092, "no byte came twice");
    let again = bench.remote.stats().requests;
    bench.object.warm(&mut |_| ()).await.unwrap();
    assert_eq!(bench.remote.stats().requests, again, "all was there");
}

#[tokio::test(start_paused = true)]
async fn warmings_at_once_share_their_parts() {
    let bench = Bench::new(20 * MIB, AMPLE).await;
    let (mut one, mut other) = (|_| (), |_| ());
    let (first, second) = tokio::join!(bench.object.warm(&mut one), bench.object.warm(&mut other));
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(bench.remote.stats().bytes, 20 * MIB);
}

#[tokio::test(start_paused = true)]
async fn warming_returns_the_error_of_the_store() {
    let bench = Bench::new(3 * MIB, AMPLE).await;
    bench.fake.answer_always(Answer::Status(403));
    assert!(matches!(bench.object.warm(&mut |_| ()).await, Err(Error::Denied(_))));
}

#[tokio::test(start_paused = true)]
async fn warming_more_than_the_disk_takes_says_how_much_is_there() {
    let bench = Bench::new(20 * MIB, DiskOptions { bytes_max: 8 * MIB, ..AMPLE }).await;
    let progress = bench.object.warm(&mut |_| ()).await.unwrap();
    assert!(MIB < progress.done && progress.done <= 8 * MIB, "{progress:?}");
    assert_eq!(progress.total, 20 * MIB);
}

#[tokio::test(start_paused = true)]
async fn a_fill_that_failed_is_tried_again_later_but_not_at_once() {
    let bench = Bench::new(3 * MIB, AMPLE).await;
    bench.fake.answer_always(Answer::Status(500));
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    bench.settled().await;
    let tried = bench.remote.stats().fill_reads;
    assert_eq!(tried, 4);
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    bench.settled().await;
    assert_eq!(bench.remote.stats().fill_reads, tried);
    bench.fake.answer_always(Answer::Good);
    tokio::time::sleep(limits::FILL_PAUSE).await;
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    bench.settled().await;
    assert!(bench.object.is_local(0..3 * MIB));
}

#[tokio::test(start_paused = true)]
async fn closing_ends_fills_and_not_reads() {
    let bench = Bench::new(30 * MIB, AMPLE).await;
    bench.fake.pace(Duration::from_millis(30), 64 << 10, Duration::from_millis(100));
    let joined = bench.read(0..MIB);
    tokio::time::sleep(Duration::from_millis(10)).await;
    bench.cache.close().await;
    assert_eq!(bench.cache.stats().fill_bytes, 0);
    let asked = bench.fake.requests().len();
    assert_eq!(joined.await.unwrap(), bench.expected(&(0..MIB)));
    bench.reads_well(20 * MIB..20 * MIB + 10).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.fake.requests().len(), asked + 1, "no fill went on or started");
    assert!(matches!(bench.object.warm(&mut |_| ()).await, Err(Error::Unreachable(_))));
}

#[tokio::test(start_paused = true)]
async fn the_last_handles_end_ends_the_fill() {
    let bench = Bench::new(60 * MIB, DiskOptions { fill_bytes_max: 4 * MIB, ..AMPLE }).await;
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    tokio::time::sleep(Duration::from_millis(40)).await;
    let Bench { fake, object, cache, .. } = bench;
    drop(object);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(fake.requests().len() < 10, "{}", fake.requests().len());
    assert_eq!(cache.stats().fill_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn invalidated_bytes_under_way_are_not_written() {
    let bench = Bench::new(3 * MIB, AMPLE).await;
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    tokio::time::sleep(Duration::from_millis(35)).await;
    bench.object.invalidate(0..1);
    bench.settled().await;
    assert!(!bench.object.is_local(0..1));
    bench.reads_well(0..1).await;
    bench.settled().await;
    assert!(bench.object.is_local(0..1), "the next touch brings it");
}

#[tokio::test(start_paused = true)]
async fn an_object_dropped_from_disk_does_not_come_back_by_itself() {
    let bench = Bench::new(20 * MIB, DiskOptions { fill_bytes_max: 8 * MIB, ..AMPLE }).await;
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    tokio::time::sleep(Duration::from_millis(80)).await;
    bench.cache.drop_object("memory://", "a").await;
    bench.settled().await;
    assert!(!bench.object.is_local(0..1), "{:?}", bench.cache.stats());
    bench.reads_well(0..10).await;
    bench.settled().await;
    assert!(bench.object.is_local(0..20 * MIB));
}

#[tokio::test(start_paused = true)]
async fn memory_of_received_bytes_is_given_back_when_their_extent_is_on_disk() {
    let bench = Bench::new(8 * MIB, AMPLE).await;
    bench.reads_well(MIB..MIB + 100_000).await;
    assert!(0 < bench.object.core.fetches().received_bytes());
    bench.settled().await;
    assert_eq!(bench.object.core.fetches().received_bytes(), 0);
}

/// 64 cold reads started a fill of a megabyte each, which took processor, disk and link from the
/// reads.
#[tokio::test(start_paused = true)]
async fn cold_reads_of_many_callers_come_before_the_fills_they_start() {
    let bench = Bench::new(64 * MIB, DiskOptions { fill_whole_max: 0, ..AMPLE }).await;
    let ranges = || {
        (0..60).map(|extent| extent * EXTENT_DATA_BYTES + 5_000..extent * EXTENT_DATA_BYTES + 9_000)
    };
    join_all(ranges().map(|range| bench.reads_well(range))).await;
    assert_eq!(bench.foreground_reads(), 60);
    let fills = bench.fake.requests().iter().filter(|asked| is_fill(asked)).count();
    assert!(fills <= 1, "{fills} fills beside 60 reads");
    bench.settled().await;
    assert!(
        ranges().all(|range| bench.object.is_local(range)),
        "what was touched is on disk afterwards"
    );
}

fn is_fill(asked: &FakeRequest) -> bool {
    asked.range.as_ref().is_some_and(|range| EXTENT_DATA_BYTES <= range.end - range.start)
}

/// Readers that never pause must not keep fills from ending.
#[tokio::test(start_paused = true)]
async fn a_fill_ends_beside_reads_that_never_pause() {
    let bench = Bench::new(24 * MIB, AMPLE).await;
    bench.fake.store("busy", bench.bytes.clone()).await;
    let meta = bench.remote.head("busy").await.unwrap().unwrap();
    let cache = Cache::none(MIB, Handle::current());
    let busy = cache.object(&bench.remote, &meta);
    let reads = (0..200u64).map(|reader| {
        let busy = Arc::clone(&busy);
        tokio::spawn(async move {
            // Each read is elsewhere, so that none joins another.
            for turn in 0.. {
                let start = (reader * 7_919 + turn * 1_000_003) * 4_096 % (20 * MIB);
                busy.read(start..start + 100, within(Duration::from_secs(100))).await.unwrap();
            }
        })
    });
    let reads: Vec<_> = reads.collect();
    bench.reads_well(0..10).await;
    bench.settled().await;
    assert!(bench.object.is_local(0..24 * MIB));
    assert!(reads.iter().all(|read| !read.is_finished()));
    reads.iter().for_each(|read| read.abort());
}

/// Until a fill had brought 256 KiB, readers took it to be as fast as an unknown store, and joined
/// it although many fetches shared its slow link.
#[tokio::test(start_paused = true)]
async fn reads_do_not_wait_for_a_fill_that_a_slow_link_holds_up() {
    let bench = Bench::new(24 * MIB, AMPLE).await;
    bench.fake.pace(Duration::from_millis(30), 4 << 10, Duration::ZERO);
    bench.fake.link(60_000);
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.foreground_reads(), 0);
    let began = Instant::now();
    let read = bench.object.read(400_000..400_100, within(Duration::from_secs(60)));
    assert_eq!(read.await.unwrap(), bench.expected(&(400_000..400_100)));
    assert_eq!(bench.foreground_reads(), 1);
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}: it is 5 s away by the fill",
        began.elapsed()
    );
}

/// Fetches whose readers had left went on to their end, and slowed those of readers that were
/// there.
#[tokio::test(start_paused = true)]
async fn a_fetch_without_waiters_frees_the_link() {
    let bench = Bench::diskless(4 * MIB).await;
    bench.fake.pace(Duration::from_millis(30), 4 << 10, Duration::ZERO);
    bench.fake.link(100_000);
    let left = bench.object.read(0..2 * MIB, within(Duration::from_secs(2))).await;
    assert!(matches!(left, Err(Error::DeadlineExceeded(_))), "{left:?}");
    let began = Instant::now();
    let read = bench.object.read(3 * MIB..3 * MIB + 400_000, within(Duration::from_secs(60)));
    assert_eq!(read.await.unwrap(), bench.expected(&(3 * MIB..3 * MIB + 400_000)));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(7), "{took:?}: 4 s alone, and 2 s beside what was left");
}

/// A caller that asks where chunks are gives up its reads; the downloads that follow find them.
#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_back_soon_finds_the_fetch_under_way() {
    let bench = Bench::diskless(4 * MIB).await;
    bench.fake.pace(Duration::from_millis(30), 4 << 10, Duration::ZERO);
    bench.fake.link(100_000);
    for _ in 0..3 {
        let left = bench.object.read(0..500_000, within(Duration::from_millis(900))).await;
        assert!(matches!(left, Err(Error::DeadlineExceeded(_))), "{left:?}");
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    bench.object.read(0..500_000, within(Duration::from_secs(60))).await.unwrap();
    assert_eq!(bench.foreground_reads(), 1);
}
