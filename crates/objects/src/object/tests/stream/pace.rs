//! Stores behind a slow link: readahead does not delay the piece that a stream waits for, and
//! nothing is fetched twice.

use super::*;

const SIZE: u64 = 20 * MIB + 777;
const LONG_TIMEOUT: StreamOptions =
    StreamOptions { hint: AccessHint::Sequential, timeout: Duration::from_secs(10) };

impl Bench {
    /// Slows the store to a link of this pace, in pieces so small that all bodies move all the
    /// time.
    fn slow_link(&self, bytes_per_second: u64) {
        self.fake.pace(Duration::from_millis(30), 4 << 10, Duration::ZERO);
        self.fake.link(bytes_per_second);
    }
}

/// Makes so many copies at the same time, each of an object of its own with the same bytes. Returns
/// the longest time without a piece.
async fn copies_of_as_many(bench: &Bench, count: usize) -> Duration {
    let copies = (0..count).map(|index| async move {
        let name = format!("copy{index}");
        bench.fake.store(&name, bench.bytes.clone()).await;
        let meta = bench.remote.head(&name).await.unwrap().unwrap();
        let object = bench.cache.object(&bench.remote, &meta);
        let mut stream = object.stream(0..SIZE, LONG_TIMEOUT);
        let (mut next, mut last, mut longest) = (0, Instant::now(), Duration::ZERO);
        while let Some(piece) = stream.next().await {
            let piece = piece.unwrap();
            let end = next + piece.len() as u64;
            assert!(piece == bench.expected(&(next..end)), "other bytes for {next}..{end}");
            (next, longest, last) = (end, longest.max(last.elapsed()), Instant::now());
        }
        assert_eq!(next, SIZE, "it ended early");
        longest
    });
    join_all(copies).await.into_iter().max().unwrap_or_default()
}

/// Four parts of each of three files were under way at once over a link of 200 KB/s: the awaited
/// piece exceeded its timeout, was fetched again, and then the copy was cut off.
#[tokio::test(start_paused = true)]
async fn copies_over_a_slow_link_run_at_its_pace_and_fetch_every_byte_once() {
    for disk in [None, Some(AMPLE)] {
        for (count, bytes_per_second) in
            [(1, 50_000), (1, 200_000), (3, 50_000), (3, 200_000), (3, 400_000)]
        {
            let bench = Bench::over(SIZE, disk).await;
            bench.slow_link(bytes_per_second);
            let began = Instant::now();
            let longest = copies_of_as_many(&bench, count).await;
            let stats = bench.remote.stats();
            let all = SIZE * count as u64;
            assert_eq!(
                (stats.bytes, stats.foreground_reads),
                (all, 0),
                "{count} at {bytes_per_second}"
            );
            let at_best = Duration::from_secs(all / bytes_per_second);
            assert!(began.elapsed() < at_best.mul_f64(1.1), "{:?} of {at_best:?}", began.elapsed());
            // A piece of each copy, and the sent requests of the next parts.
            let pieces = Duration::from_secs_f64(
                (limits::PIECE_BYTES * count as u64) as f64 / bytes_per_second as f64,
            );
            assert!(
                longest < pieces * 3,
                "{longest:?} without a piece, {count} at {bytes_per_second}"
            );
        }
    }
}

/// All four parts of each copy are under way when the link gets slow.
#[tokio::test(start_paused = true)]
async fn a_link_that_gets_slow_under_copies_makes_them_slow_and_nothing_else() {
    let bench = Bench::new(SIZE, AMPLE).await;
    bench.slow_link(12_000_000);
    let thin = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.fake.link(100_000);
    };
    tokio::join!(copies_of_as_many(&bench, 3), thin);
    assert_eq!((bench.remote.stats().bytes, bench.foreground_reads()), (3 * SIZE, 0));
}

#[tokio::test(start_paused = true)]
async fn a_slow_link_that_falls_silent_exceeds_the_timeout() {
    for hint in [AccessHint::Random, AccessHint::Sequential] {
        for disk in [None, Some(AMPLE)] {
            let bench = Bench::over(SIZE, disk).await;
            bench.slow_link(200_000);
            let mut stream = bench.object.stream(0..SIZE, StreamOptions { hint, ..LONG_TIMEOUT });
            let next = bench.takes(&mut stream, 9, 0).await;
            bench.fake.link(0);
            let began = Instant::now();
            let error = take(&bench, &mut stream, next..SIZE).await.unwrap_err();
            assert!(matches!(error, Error::DeadlineExceeded(_)), "{error:?}");
            // Some bytes may have been on the link.
            assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
        }
    }
}
