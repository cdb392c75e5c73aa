//! Streams: right bytes in order, each asked for once, whoever runs along.

use futures_util::{StreamExt, future::join_all};

use super::{super::stream::*, *};

const AGAIN: StreamOptions = StreamOptions { purpose: Use::Again, patience: Duration::from_secs(60) };
const ONCE: StreamOptions = StreamOptions { purpose: Use::Once, patience: Duration::from_secs(60) };

/// All that comes, which has to be right up to where it ends.
async fn take(bench: &Bench, stream: &mut ObjectStream, range: Range<u64>) -> Result<(), Error> {
    let mut next = range.start;
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        assert!(!piece.is_empty() && piece.len() as u64 <= limits::SMALL_RANGE_BYTES, "{}", piece.len());
        let end = next + piece.len() as u64;
        assert!(end <= range.end && piece == bench.expected(&(next..end)), "other bytes for {next}..{end}");
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
}

#[tokio::test(start_paused = true)]
async fn streams_give_every_byte_in_order_cold_and_warm() {
    for purpose in [AGAIN, ONCE] {
        for disk in [None, Some(AMPLE)] {
            let size = 40 * MIB + 12_345;
            let bench = Bench::over(size, disk).await;
            for range in [5..6, 3 * MIB - 7..3 * MIB + 100_000, 0..size, 7..size - 7, size..size] {
                bench.streams_well(range, purpose).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_comes_in_parts_and_is_then_on_disk() {
    let size = 60 * MIB + 1;
    let bench = Bench::new(size, Disked { fill_whole_max: 0, ..AMPLE }).await;
    bench.streams_well(0..size, ONCE).await;
    bench.settled().await;
    let stats = bench.remote.stats();
    assert_eq!((stats.bytes, stats.foreground_reads), (size, 0));
    assert!(bench.object.is_local(0..size));
    bench.streams_well(0..size, ONCE).await;
    assert_eq!(bench.remote.stats().bytes, size);
}

#[tokio::test(start_paused = true)]
async fn twenty_copies_at_once_ask_for_every_byte_once() {
    let size = 60 * MIB + 1;
    let bench = Bench::new(size, AMPLE).await;
    let copies = (0..20u64).map(|index| {
        let bench = &bench;
        async move {
            tokio::time::sleep(Duration::from_millis(index * 7)).await;
            bench.streams_well(0..size, ONCE).await;
        }
    });
    join_all(copies).await;
    let stats = bench.remote.stats();
    assert_eq!((stats.bytes, stats.foreground_reads), (size, 0));
    bench.settled().await;
}
