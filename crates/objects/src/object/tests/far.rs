//! Objects of a store that is far: a connection brings a window per round trip, which is less than
//! the link, so that several ranges side by side come sooner.

use futures_util::StreamExt;

use super::*;
use crate::StreamOptions;

const SIZE: u64 = 32 * MIB;
/// Bytes per second of one connection: 16 KiB in 50 ms.
const OF_ONE: u64 = (16 << 10) * 20;

async fn far(disk: Option<DiskOptions>) -> Bench {
    let bench = Bench::over(SIZE, disk).await;
    bench.fake.pace(Duration::from_millis(200), 16 << 10, Duration::from_millis(50));
    bench
}

/// Downloads all of the object, and returns the time that it took.
async fn download(bench: &Bench) -> Duration {
    let began = Instant::now();
    let options = StreamOptions { hint: AccessHint::Sequential, timeout: Duration::from_secs(10) };
    let (mut stream, mut next) = (bench.object.stream(0..SIZE, options), 0);
    while let Some(piece) = stream.next().await {
        let piece = piece.unwrap();
        let end = next + piece.len() as u64;
        assert!(piece == bench.expected(&(next..end)), "other bytes for {next}..{end}");
        next = end;
    }
    assert_eq!(next, SIZE, "it ended early");
    began.elapsed()
}

fn alone() -> Duration {
    Duration::from_secs(SIZE / OF_ONE)
}

/// A connection slowed by round trips was taken for a slow link: one range came after the other.
#[tokio::test(start_paused = true)]
async fn a_download_from_a_far_store_opens_several_ranges_side_by_side() {
    for disk in [None, Some(AMPLE)] {
        let bench = far(disk).await;
        let took = download(&bench).await;
        let bodies = bench.fake.bodies_most();
        assert!((3..=12).contains(&bodies), "{bodies} ranges at once");
        assert!(took < alone() / 2, "{took:?}, {:?} alone", alone());
        assert_eq!(bench.remote.stats().bytes, SIZE);
        assert!(bench.remote.gains_side_by_side());
    }
}

#[tokio::test(start_paused = true)]
async fn the_fill_of_a_file_of_a_far_store_comes_in_several_parts_side_by_side() {
    let bench = far(Some(AMPLE)).await;
    bench.reads_well(0..100).await;
    let began = Instant::now();
    bench.settled().await;
    assert!(bench.object.is_local(0..SIZE));
    let bodies = bench.fake.bodies_most();
    // Three in four of the window are for fills.
    assert!((4..=48).contains(&bodies), "{bodies} parts at once");
    assert!(began.elapsed() < alone() / 2, "{:?}", began.elapsed());
}

/// A link that is slow and far gets no more ranges than fill it, but for a try now and then.
#[tokio::test(start_paused = true)]
async fn a_slow_link_to_a_far_store_is_not_divided_for_nothing() {
    for disk in [None, Some(AMPLE)] {
        let bench = far(disk).await;
        bench.fake.pace(Duration::from_millis(200), 4 << 10, Duration::ZERO);
        bench.fake.link(OF_ONE);
        let took = download(&bench).await;
        assert!(took < alone().mul_f64(1.15), "{took:?}, {:?} at best", alone());
        assert!(bench.fake.bodies_most() <= 4, "{} ranges at once", bench.fake.bodies_most());
        assert_eq!(bench.remote.stats().bytes, SIZE);
        assert!(!bench.remote.gains_side_by_side());
    }
}
