//! Streams: right bytes in order, each fetched once, whatever else reads.

use futures_util::{StreamExt, future::join_all};

use super::*;
use crate::FillFilter;
use std::sync::atomic::Ordering::Relaxed;

use crate::{ObjectStream, StreamOptions};

mod faults;
mod model;
mod pace;
mod sharing;

const RANDOM: StreamOptions =
    StreamOptions { hint: AccessHint::Random, timeout: Duration::from_secs(60) };
const SEQUENTIAL: StreamOptions =
    StreamOptions { hint: AccessHint::Sequential, timeout: Duration::from_secs(60) };

/// Takes all of a stream and checks its bytes. Returns the error that ended it, if one did.
async fn take(bench: &Bench, stream: &mut ObjectStream, range: Range<u64>) -> Result<(), Error> {
    let mut next = range.start;
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        assert!(
            !piece.is_empty() && piece.len() as u64 <= limits::SMALL_RANGE_BYTES,
            "{}",
            piece.len()
        );
        let end = next + piece.len() as u64;
        assert!(
            end <= range.end && piece == bench.expected(&(next..end)),
            "other bytes for {next}..{end}"
        );
        next = end;
    }
    assert_eq!(next, range.end, "it ended early");
    Ok(())
}

impl Bench {
    async fn streams_well(&self, range: Range<u64>, options: StreamOptions) {
        let mut stream = self.object.stream(range.clone(), options);
        take(self, &mut stream, range).await.unwrap();
        assert!(stream.next().await.is_none(), "nothing comes after the end");
    }

    /// Takes so many pieces and checks their bytes.
    async fn takes(&self, stream: &mut ObjectStream, pieces: usize, from: u64) -> u64 {
        let mut next = from;
        for _ in 0..pieces {
            let piece = stream.next().await.expect("there is more").unwrap();
            assert!(
                piece == self.expected(&(next..next + piece.len() as u64)),
                "other bytes at {next}"
            );
            next += piece.len() as u64;
        }
        next
    }
}

#[tokio::test(start_paused = true)]
async fn streams_give_every_byte_in_order_cold_and_warm() {
    for hint in [RANDOM, SEQUENTIAL] {
        for disk in [None, Some(AMPLE)] {
            let size = 40 * MIB + 12_345;
            let bench = Bench::over(size, disk).await;
            for range in [5..6, 3 * MIB - 7..3 * MIB + 100_000, 0..size, 7..size - 7, size..size] {
                bench.streams_well(range, hint).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_range_that_is_none_of_the_object_is_refused_once() {
    let bench = Bench::diskless(1_000).await;
    for hint in [RANDOM, SEQUENTIAL] {
        for range in [999..1_001, Range { start: 5, end: 4 }] {
            let mut stream = bench.object.stream(range, hint);
            let error = stream.next().await.unwrap().unwrap_err();
            assert!(matches!(error, Error::Settings(text) if text.contains("within 0..1000")));
            assert!(stream.next().await.is_none());
        }
    }
    assert!(bench.fake.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_before_the_first_poll() {
    let bench = Bench::new(20 * MIB, AMPLE).await;
    let streams = [RANDOM, SEQUENTIAL].map(|hint| bench.object.stream(0..20 * MIB, hint));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(bench.fake.requests().is_empty());
    drop(streams);
}

#[tokio::test(start_paused = true)]
async fn a_small_cold_range_is_one_piece_and_one_request() {
    let bench = Bench::diskless(8 * MIB).await;
    // It begins in one piece of a long stream and ends in another one.
    let range = limits::PIECE_BYTES - 1_000..limits::PIECE_BYTES - 1_000 + (256 << 10);
    let mut stream = bench.object.stream(range.clone(), RANDOM);
    assert_eq!(stream.next().await.unwrap().unwrap(), bench.expected(&range));
    assert!(stream.next().await.is_none());
    assert_eq!(bench.fake.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_cold_range_is_a_few_requests_that_overlap() {
    let bench = Bench::diskless(64 * MIB).await;
    // 1 MiB in 16 ms, 30 ms to the first byte.
    let began = Instant::now();
    bench.streams_well(MIB..9 * MIB, RANDOM).await;
    let requests = bench.fake.requests().len();
    assert!(requests <= 9, "{requests}");
    assert!(
        began.elapsed() < Duration::from_millis(220),
        "one after the other is more: {:?}",
        began.elapsed()
    );
    assert_eq!(bench.cache.stats().joined, 0);
}

#[tokio::test(start_paused = true)]
async fn reading_again_counts_as_use_and_fills() {
    let bench = Bench::new(20 * MIB, AMPLE).await;
    bench.streams_well(5 * MIB..5 * MIB + 100_000, RANDOM).await;
    bench.settled().await;
    assert!(bench.object.is_local(0..20 * MIB), "the usual fill");
    let hits = bench.cache.stats().hits;
    bench.streams_well(0..MIB, RANDOM).await;
    assert!(hits < bench.cache.stats().hits);
}

#[tokio::test(start_paused = true)]
async fn a_copy_comes_in_parts_and_is_then_on_disk() {
    let size = 60 * MIB + 1;
    let bench = Bench::new(size, DiskOptions { fill_whole_max: 0, ..AMPLE }).await;
    bench.streams_well(0..size, SEQUENTIAL).await;
    bench.settled().await;
    let stats = bench.remote.stats();
    assert_eq!((stats.bytes, stats.foreground_reads), (size, 0));
    assert!(bench.object.is_local(0..size));
    bench.streams_well(0..size, SEQUENTIAL).await;
    assert_eq!(bench.remote.stats().bytes, size);
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_as_fast_as_a_parallel_download() {
    // 8 MiB in 128 ms, 30 ms to the first byte: one after the other that is 158 ms for each, and 30
    // parts.
    let size = 240 * MIB;
    let download = Duration::from_millis(30 * 158);
    for (disk, share) in [(Some(AMPLE), 0.35), (None, 1.0)] {
        let bench = Bench::over(size, disk).await;
        let began = Instant::now();
        bench.streams_well(0..size, SEQUENTIAL).await;
        let took = began.elapsed();
        assert!(
            took < download.mul_f64(share),
            "{took:?} of {download:?}, with a disk: {}",
            disk.is_some()
        );
    }
}

/// State that a dropped stream leaves behind.
/// As of several caches that share the objects: those of others are read and not kept.
#[tokio::test(start_paused = true)]
async fn what_the_filter_leaves_out_is_read_and_not_brought_to_disk() {
    let size = 20 * MIB;
    for is_wanted in [true, false] {
        let filter = FillFilter::new(move |_| is_wanted);
        let bench = Bench::new(size, AMPLE).await.filtered(&filter);
        assert_eq!(bench.object.is_filled(), is_wanted);
        bench.reads_well(10 * MIB..10 * MIB + 100).await;
        bench.streams_well(0..size, SEQUENTIAL).await;
        bench.streams_well(MIB..2 * MIB, RANDOM).await;
        bench.settled().await;
        assert_eq!(bench.object.is_local(0..size), is_wanted);
        assert_eq!(bench.cache.stats().extents != 0, is_wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_leaves_nothing_held_and_asks_for_nothing_more() {
    for hint in [RANDOM, SEQUENTIAL] {
        for disk in [None, Some(DiskOptions { fill_whole_max: 0, ..AMPLE })] {
            let bench = Bench::over(60 * MIB, disk).await;
            let mut stream = bench.object.stream(0..60 * MIB, hint);
            bench.takes(&mut stream, 3, 0).await;
            drop(stream);
            let asked = bench.fake.requests().len();
            bench.settled().await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            // The fill that a read caused is its own.
            let fill = if hint.hint == AccessHint::Random { 3 } else { 0 };
            assert!(bench.fake.requests().len() <= asked + fill, "{:?}", bench.fake.requests());
            assert_eq!((bench.cache.stats().fill_bytes, bench.remote.stats().in_flight), (0, 0));
            assert_eq!(bench.object.core.cache.bypassing.load(Relaxed), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_stream_that_is_dropped_before_their_turn_are_not_sent() {
    // A part of the other object holds the whole budget, and hangs.
    let bench =
        Bench::new(8 * MIB, DiskOptions { fill_bytes_max: 4 * EXTENT_DATA_BYTES, ..AMPLE }).await;
    let permit = bench.object.core.cache.fills.reserve(4 * EXTENT_DATA_BYTES).await;
    let mut stream = bench.object.stream(0..8 * MIB, SEQUENTIAL);
    let waiting = tokio::time::timeout(Duration::from_secs(5), stream.next()).await;
    assert!(waiting.is_err(), "it waits for its part of the budget");
    drop(stream);
    drop(permit);
    bench.settled().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(bench.fake.requests().is_empty());
    // Fetches that nobody wanted are no failure of the store.
    bench.streams_well(0..8 * MIB, SEQUENTIAL).await;
    assert_eq!(bench.foreground_reads(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stands_still_holds_its_pieces_and_nothing_else() {
    for disk in [None, Some(AMPLE)] {
        let bench = Bench::over(200 * MIB, disk).await;
        let mut stream = bench.object.stream(0..200 * MIB, SEQUENTIAL);
        let next = bench.takes(&mut stream, 1, 0).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let stats = bench.cache.stats();
        assert_eq!(
            stats.fill_bytes, 0,
            "what it has started is on disk, or among what received lately"
        );
        assert!(bench.object.core.fetches().received_bytes() <= limits::RECEIVED_BYTES_MAX);
        assert!(
            bench.remote.stats().bytes <= 33 * MIB,
            "it does not run away: {:?}",
            bench.remote.stats()
        );
        assert!(stream.held_bytes() <= 2 * MIB, "{}", stream.held_bytes());
        // Others go on beside it, those behind it, too.
        bench.streams_well(0..200 * MIB, SEQUENTIAL).await;
        take(&bench, &mut stream, next..200 * MIB).await.unwrap();
    }
}

#[test]
fn a_stream_can_be_polled_without_a_runtime_and_from_several_threads() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for hint in [RANDOM, SEQUENTIAL] {
        let bench = runtime.block_on(Bench::new(5 * MIB, AMPLE));
        let mut stream = bench.object.stream(0..5 * MIB, hint);
        let mut next = 0;
        while next < 5 * MIB {
            let polling = std::thread::spawn(move || {
                let piece = futures_util::FutureExt::now_or_never(stream.next())
                    .unwrap_or_else(|| fetch::wait_for(stream.next()));
                (piece, stream)
            });
            let (piece, again) = polling.join().unwrap();
            stream = again;
            let piece = piece.unwrap().unwrap();
            assert!(piece == bench.expected(&(next..next + piece.len() as u64)));
            next += piece.len() as u64;
        }
        assert!(fetch::wait_for(stream.next()).is_none());
    }
}
