//! Single-flight fetches: one per missing range, and every waiter gets an answer.

use futures_util::future::join_all;

use super::*;

#[tokio::test(start_paused = true)]
async fn many_callers_of_one_cold_range_cause_one_read() {
    let bench = Bench::diskless(MIB).await;
    let readings: Vec<_> = (0..256).map(|_| bench.read(5_000..9_000)).collect();
    for reading in readings {
        assert_eq!(reading.await.unwrap(), bench.expected(&(5_000..9_000)));
    }
    assert_eq!(bench.foreground_reads(), 1);
    let stats = bench.cache.stats();
    assert_eq!((stats.misses, stats.joined, stats.hits), (256, 255, 0));
}

#[tokio::test(start_paused = true)]
async fn callers_of_overlapping_ranges_share_the_fetch_that_covers_them() {
    let bench = Bench::diskless(MIB).await;
    let whole = bench.read(0..500_000);
    let inner: Vec<_> = (0..100u64)
        .map(|index| (index * 4_000, bench.read(index * 4_000..index * 4_000 + 3_000)))
        .collect();
    for (start, reading) in inner {
        assert_eq!(reading.await.unwrap(), bench.expected(&(start..start + 3_000)));
    }
    assert_eq!(whole.await.unwrap(), bench.expected(&(0..500_000)));
    assert_eq!(bench.foreground_reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_survives_its_first_waiter_and_answers_later_ones() {
    let bench = Bench::diskless(MIB).await;
    let first = bench.read(0..4_000);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let second = bench.read(0..4_000);
    drop(first);
    assert_eq!(second.await.unwrap(), bench.expected(&(0..4_000)));

    let stopped = bench.read(100_000..104_000);
    tokio::time::sleep(Duration::from_millis(10)).await;
    drop(stopped);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    bench.reads_well(100_000..104_000).await;
    assert_eq!(began.elapsed(), Duration::ZERO, "it had received");
    assert_eq!(bench.foreground_reads(), 2);
}

/// A store hung and all callers left. When it recovered it was asked for all of their reads before
/// any new one.
#[tokio::test(start_paused = true)]
async fn a_fetch_without_waiters_is_not_sent() {
    let bench = Bench::diskless(8 * MIB).await;
    bench.fake.answer_always(Answer::Silence);
    let soon = || within(Duration::from_millis(500));
    let stopped =
        (0..500u64).map(|index| bench.object.read(index * 10_000..index * 10_000 + 100, soon()));
    assert!(
        join_all(stopped).await.iter().all(|read| matches!(read, Err(Error::DeadlineExceeded(_))))
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    let sent = bench.remote.stats().requests;
    assert!(sent <= 65, "a listing, and what the window let go at once: {sent}");
    assert_eq!(bench.remote.stats().in_flight, 0);

    bench.fake.forget_answers();
    bench.reads_well(0..100).await;
    assert_eq!(bench.remote.stats().requests, sent + 1);
}

#[tokio::test(start_paused = true)]
async fn waiters_wake_when_their_bytes_are_there_and_not_at_the_end() {
    let bench = Bench::diskless(4 * MIB).await;
    // 64 KiB every 10 ms: the whole takes 640 ms.
    bench.fake.pace(Duration::from_millis(30), 64 << 10, Duration::from_millis(10));
    let began = Instant::now();
    let whole = bench.read(0..4 * MIB);
    let early = bench.read(0..10_000);
    let middle = bench.read(2 * MIB..2 * MIB + 1);
    early.await.unwrap();
    assert_eq!(began.elapsed().as_millis() / 10, 4);
    middle.await.unwrap();
    assert_eq!(began.elapsed().as_millis() / 10, 3 + 33);
    whole.await.unwrap();
    assert_eq!(began.elapsed().as_millis() / 10, 3 + 64);
    assert_eq!(bench.foreground_reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn near_ranges_of_one_call_share_a_read() {
    let bench = Bench::diskless(32 * MIB).await;
    let ranges = [20_000..24_000, 0..4_000, 10_000..14_000, 20 * MIB..20 * MIB + 10, 0..1];
    let readings = bench.object.read_many(&ranges, within(Duration::from_secs(9)));
    for (range, answer) in ranges.iter().zip(join_all(readings).await) {
        assert_eq!(answer.unwrap(), bench.expected(range));
    }
    let asked: Vec<_> =
        bench.fake.requests().into_iter().map(|asked| asked.range.unwrap()).collect();
    let block = BLOCK as u64;
    let far = 20 * MIB / block * block;
    assert_eq!(asked, [0..6 * block, far..(20 * MIB + 10).next_multiple_of(block)]);
}

const BLOCK: usize = crate::disk::BLOCK_DATA_BYTES;

/// Over a slow link the end of a fetch under way was a minute away, and readers that joined it gave
/// up before.
#[tokio::test(start_paused = true)]
async fn a_read_of_the_end_of_a_slow_fetch_does_not_wait_for_all_of_it() {
    let bench = Bench::diskless(8 * MIB).await;
    bench.fake.pace(Duration::from_millis(30), 4 << 10, Duration::ZERO);
    bench.fake.link(100_000);
    let long = bench.read(0..4 * MIB);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let began = Instant::now();
    bench.reads_well(3 * MIB..3 * MIB + 4_000).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    // Bytes that are due soon are not fetched twice.
    bench.reads_well(MIB / 2 + 100_000..MIB / 2 + 110_000).await;
    assert_eq!(bench.foreground_reads(), 2);
    assert_eq!(long.await.unwrap(), bench.expected(&(0..4 * MIB)));
}

#[tokio::test(start_paused = true)]
async fn each_waiter_has_a_deadline_of_its_own() {
    let bench = Bench::diskless(MIB).await;
    bench.fake.answer([Answer::Reset, Answer::Silence]);
    let began = Instant::now();
    let short = bench.object.read(0..100, within(Duration::from_millis(200)));
    let long = bench.object.read(0..100, within(Duration::from_secs(60)));
    let error = short.await.unwrap_err();
    assert_eq!(began.elapsed().as_millis(), 200);
    assert!(matches!(&error, Error::DeadlineExceeded(text) if text.contains("reset")), "{error:?}");
    assert_eq!(long.await.unwrap(), bench.expected(&(0..100)));
    assert_eq!(bench.foreground_reads(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failure_reaches_all_waiters_and_the_next_read_starts_anew() {
    let bench = Bench::diskless(MIB).await;
    bench.fake.answer_always(Answer::Status(500));
    let readings: Vec<_> = (0..20).map(|_| bench.read(0..100)).collect();
    for reading in readings {
        assert!(matches!(reading.await, Err(Error::Unreachable(_))));
    }
    assert_eq!(bench.foreground_reads(), 8, "attempts of one read");
    bench.fake.answer_always(Answer::Good);
    bench.reads_well(0..100).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_replaced_is_gone() {
    let bench = Bench::diskless(MIB).await;
    bench.reads_well(0..100).await;
    bench.fake.store("a", contents(77)).await;
    assert!(matches!(bench.read(500_000..500_001).await, Err(Error::Gone(_))));
}

#[tokio::test(start_paused = true)]
async fn a_panic_leaves_nobody_waiting() {
    let bench = Bench::diskless(MIB).await;
    bench.fake.answer([Answer::Panic]);
    let readings: Vec<_> = (0..3).map(|_| bench.read(0..100)).collect();
    for reading in readings {
        assert!(matches!(reading.await, Err(Error::Unreachable(text)) if text.contains("stopped")));
    }
    bench.reads_well(0..100).await;
}

#[test]
fn the_end_of_the_runtime_leaves_nobody_waiting() {
    let theirs =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ours = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bench = theirs.block_on(Bench::diskless(MIB));
    bench.fake.answer_always(Answer::Silence);
    let (before, local) = (bench.read(0..100), bench.read(500_000..500_100));
    theirs.shutdown_background();
    let after = bench.read(200_000..200_100);
    for reading in [before, local, after] {
        let answer =
            ours.block_on(async { timeout(Duration::from_secs(60), reading).await.unwrap() });
        assert!(matches!(answer, Err(Error::Unreachable(text)) if text.contains("stopped")));
    }
}

#[test]
fn readings_can_be_waited_for_without_a_runtime() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let bench = runtime.block_on(Bench::diskless(MIB));
    let waiting = std::thread::spawn(move || {
        let answers = [
            bench.read(0..100),
            bench.object.read(0..100, ReadOptions { deadline: ago(), local_only: false }),
        ];
        let [good, late] = answers.map(wait_for);
        (good.unwrap() == bench.expected(&(0..100)), late)
    });
    let (is_good, late) = waiting.join().unwrap();
    assert!(is_good);
    assert!(matches!(late, Ok(_) | Err(Error::DeadlineExceeded(_))));
}

fn ago() -> std::time::Instant {
    Instant::now().into_std() - Duration::from_secs(1)
}

/// The least executor: polls with a waker that unparks the thread.
pub(super) fn wait_for<F: Future + Unpin>(mut future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        match std::pin::Pin::new(&mut future).poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park_timeout(Duration::from_secs(60)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn received_bytes_are_forgotten_when_newer_ones_need_the_room() {
    let bench = Bench::diskless(48 * MIB).await;
    for index in 0..48 {
        bench.reads_well(index * MIB..index * MIB + MIB).await;
    }
    let bytes = bench.object.core.fetches().received_bytes();
    assert!((14 * MIB..=limits::RECEIVED_BYTES_MAX).contains(&bytes), "{bytes}");
    bench.reads_well(47 * MIB..48 * MIB).await;
    assert_eq!(bench.foreground_reads(), 48, "the last one is still there");
    bench.reads_well(0..MIB).await;
    assert_eq!(bench.foreground_reads(), 49);
}

#[tokio::test(start_paused = true)]
async fn invalidated_bytes_make_the_next_reader_ask_the_store() {
    let bench = Bench::diskless(MIB).await;
    bench.reads_well(0..100).await;
    bench.object.invalidate(50..60);
    bench.reads_well(0..100).await;
    assert_eq!(bench.foreground_reads(), 2);

    let under_way = bench.read(500_000..500_100);
    tokio::time::sleep(Duration::from_millis(5)).await;
    bench.object.invalidate(500_000..500_001);
    bench.reads_well(500_000..500_100).await;
    assert_eq!(
        bench.foreground_reads(),
        4,
        "a read after the invalidation joins no fetch from before it"
    );
    under_way.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ranges_outside_of_the_object_are_refused_and_empty_ones_answered() {
    let bench = Bench::diskless(1_000).await;
    for range in [999..1_001, 2_000..2_001, Range { start: 5, end: 4 }] {
        let error = bench.read(range).await.unwrap_err();
        assert!(matches!(error, Error::Settings(text) if text.contains("within 0..1000")));
    }
    assert_eq!(bench.read(1_000..1_000).await.unwrap(), Bytes::new());
    assert_eq!(bench.foreground_reads(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_disk_nothing_is_local_and_nothing_is_filled() {
    let bench = Bench::diskless(MIB).await;
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    bench.reads_well(0..10).await;
    assert_eq!(bench.object.read(0..10, LOCAL()).await, Err(Error::NotLocal));
    assert!(!bench.object.is_local(0..10) && bench.object.try_read(0..10).is_none());
    assert!(matches!(bench.object.warm(&mut |_| ()).await, Err(Error::Settings(_))));
    assert_eq!(bench.remote.stats().fill_reads, 0);
}
