//! The batcher's timing, on a clock that stands still until the test moves it.

use std::convert::Infallible;
use std::task::{Context, Poll, Waker};

use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::clock::{instant, manual};
use crate::{DispatchPolicy, LastWins, LoadedAll, Operation, StoredAll};

/// Reports each batch to the test and ends it when the test says so.
struct Gate {
    batches: mpsc::UnboundedSender<Batch>,
    drops_abandoned: bool,
}

struct Batch {
    operation: Operation,
    keys: Vec<u32>,
    done: oneshot::Sender<()>,
}

impl Gate {
    async fn pass(&self, operation: Operation, keys: Vec<u32>) {
        let (done, wait) = oneshot::channel();
        self.batches.send(Batch { operation, keys, done }).unwrap();
        wait.await.unwrap();
    }
}

impl Service for Gate {
    type Key = u32;
    type Value = u32;
    type Write = LastWins<u32>;
    type Outcome = ();
    type Error = Infallible;

    async fn load(&self, keys: Vec<u32>) -> LoadedAll<Self> {
        self.pass(Operation::Read, keys.clone()).await;
        Ok(keys.into_iter().map(|key| Ok(Some(key))).collect())
    }

    async fn store(&self, entries: Vec<(u32, LastWins<u32>)>) -> StoredAll<Self> {
        self.pass(Operation::Write, entries.iter().map(|(key, _)| *key).collect()).await;
        Ok(entries.iter().map(|_| Ok(())).collect())
    }

    fn drops_abandoned_loads(&self) -> bool {
        self.drops_abandoned
    }
}

struct Test<F> {
    batcher: Batcher<Gate>,
    batches: mpsc::UnboundedReceiver<Batch>,
    advance: F,
}

fn start(settings: BatcherSettings) -> Test<impl Fn(u64)> {
    start_with(settings, false)
}

fn start_with(settings: BatcherSettings, drops_abandoned: bool) -> Test<impl Fn(u64)> {
    let (clock, advance) = manual();
    let (sender, batches) = mpsc::unbounded_channel();
    let gate = Gate { batches: sender, drops_abandoned };
    let batcher = Batcher::start_by(clock, gate, settings).unwrap();
    Test { batcher, batches, advance }
}

impl<F: Fn(u64)> Test<F> {
    /// Runs every runnable task. They are all on the one thread of the test.
    async fn settle(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// Moves the clock, and notifies the driver as the timer would.
    async fn pass(&self, us: u64) {
        (self.advance)(us);
        self.batcher.core().wake.notify_one();
        self.settle().await;
    }

    async fn batch(&mut self) -> Option<Batch> {
        self.settle().await;
        self.batches.try_recv().ok()
    }
}

fn window(entries: usize, us: u64) -> BatcherSettings {
    let dispatch = DispatchPolicy::Window { entries, wait: Duration::from_micros(us) };
    BatcherSettings { queue: QueueSettings { dispatch, ..QueueSettings::default() }, timeout: None }
}

fn timeout(us: u64) -> BatcherSettings {
    BatcherSettings { timeout: Some(Duration::from_micros(us)), ..BatcherSettings::default() }
}

/// Polls a call's future once, so that its request is made.
macro_rules! asked {
    ($call:expr) => {{
        let mut call = Box::pin($call);
        let first = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(first.is_pending());
        call
    }};
}

#[tokio::test]
async fn a_window_of_half_a_millisecond_leaves_when_that_has_passed_and_not_before() {
    let mut test = start(window(16, 500));
    let batcher = test.batcher.clone();
    let load = asked!(batcher.load(1));
    test.pass(499).await;
    assert!(test.batch().await.is_none(), "0.499 ms");
    test.pass(1).await;
    let batch = test.batch().await.expect("0.500 ms");
    batch.done.send(()).unwrap();
    assert_eq!(load.await, Ok(Some(1)));
}

#[tokio::test]
async fn a_serial_caller_never_waits_for_company() {
    let mut test = start(BatcherSettings::default());
    let batcher = test.batcher.clone();
    for key in 0..100 {
        let load = asked!(batcher.load(key));
        let batch = test.batch().await.expect("it leaves while the clock stands still");
        assert_eq!(batch.keys, [key]);
        batch.done.send(()).unwrap();
        assert_eq!(load.await, Ok(Some(key)));
        let store = asked!(batcher.store(key, key));
        test.batch().await.expect("it leaves while the clock stands still").done.send(()).unwrap();
        assert_eq!(store.await, Ok(()));
    }
}

#[tokio::test]
async fn a_request_that_waits_is_late_when_its_timeout_has_passed_and_is_never_sent() {
    let mut test = start(BatcherSettings { timeout: timeout(1000).timeout, ..window(16, 5000) });
    let batcher = test.batcher.clone();
    let mut load = asked!(batcher.load(1));
    test.pass(999).await;
    assert!(load.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    test.pass(1).await;
    assert_eq!(load.await, Err(BatchError::TooLate { sent: false }));
    test.pass(10_000).await;
    assert!(test.batch().await.is_none());
    assert_eq!(batcher.stats().expired, 1);
}

#[tokio::test]
async fn a_request_under_way_is_late_at_its_deadline_and_its_batch_keeps_the_order_of_its_key() {
    let mut test = start(timeout(1000));
    let batcher = test.batcher.clone();
    let store = asked!(batcher.store(1, 1));
    let first = test.batch().await.expect("the write leaves");
    test.pass(900).await;
    let load = asked!(batcher.load(1));
    test.pass(100).await;
    assert_eq!(store.await, Err(BatchError::TooLate { sent: true }));
    assert!(
        test.batch().await.is_none(),
        "the read waits for the end of the batch, not for its callers"
    );
    first.done.send(()).unwrap();
    let second = test.batch().await.expect("the read leaves");
    assert_eq!((second.operation, &second.keys[..]), (Operation::Read, &[1][..]));
    second.done.send(()).unwrap();
    assert_eq!(load.await, Ok(Some(1)));
}

#[tokio::test]
async fn a_late_write_that_was_merged_with_another_says_that_it_may_be_made() {
    let mut test = start(window(16, 5000));
    let batcher = test.batcher.clone();
    let submit = |deadline| {
        let (reply, answer) = Oneshot::store();
        batcher.submit_store(1, LastWins(1), reply, deadline).unwrap();
        answer
    };
    let (late, patient) = (submit(Some(instant())), submit(None));
    test.pass(1).await;
    assert_eq!(late.await.unwrap(), Err(BatchError::TooLate { sent: true }));
    test.pass(5000).await;
    test.batch().await.expect("the other's").done.send(()).unwrap();
    assert_eq!(patient.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn a_deadline_of_ones_own_takes_the_place_of_the_timeout() {
    let test = start(timeout(1000));
    let batcher = test.batcher.clone();
    let (reply, answer) = Oneshot::load();
    let deadline = instant() + Duration::from_secs(1000);
    batcher.submit_load(1, reply, Some(deadline)).unwrap();
    batcher.flush();
    test.pass(900_000_000).await;
    assert_eq!(batcher.stats().expired, 0, "900 s");
    test.pass(200_000_000).await;
    assert_eq!(answer.await.unwrap(), Err(BatchError::TooLate { sent: true }), "1100 s");
}

#[tokio::test]
async fn what_waited_for_a_request_that_was_given_up_leaves_at_once() {
    let dispatch = DispatchPolicy::Eager;
    let queue = QueueSettings { dispatch, ..QueueSettings::default() };
    let mut test = start(BatcherSettings { queue, timeout: None });
    let batcher = test.batcher.clone();
    let _first = asked!(batcher.load(1));
    let _hangs = test.batch().await.expect("the first read leaves");
    let write = asked!(batcher.store(1, 1));
    let _second = asked!(batcher.load(1));
    assert!(
        test.batch().await.is_none(),
        "the write waits for the first read, the second read for the write"
    );
    drop(write);
    let batch = test.batch().await.expect("the second read leaves beside the first");
    assert_eq!((batch.operation, &batch.keys[..]), (Operation::Read, &[1][..]));
}

#[tokio::test]
async fn closing_takes_no_longer_than_the_timeout_when_the_service_hangs() {
    let mut test = start(timeout(1000));
    let batcher = test.batcher.clone();
    let load = asked!(batcher.load(1));
    let _hangs = test.batch().await.expect("it leaves");
    let mut close = asked!(batcher.close());
    let mut refused = Box::pin(batcher.load(2));
    let refused = refused.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(refused, Poll::Ready(Err(BatchError::Closed)));
    test.pass(999).await;
    assert_eq!(close.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
    test.pass(1).await;
    assert_eq!(load.await, Err(BatchError::TooLate { sent: true }));
    close.await;
}

#[tokio::test]
async fn a_batch_whose_last_request_is_late_is_dropped_if_the_service_wants_that() {
    for drops_abandoned in [true, false] {
        let mut test = start_with(timeout(1000), drops_abandoned);
        let batcher = test.batcher.clone();
        let load = asked!(batcher.load(1));
        let batch = test.batch().await.expect("the read leaves");
        test.pass(999).await;
        assert!(!batch.done.is_closed());
        test.pass(1).await;
        assert_eq!(load.await, Err(BatchError::TooLate { sent: true }));
        assert_eq!(batch.done.is_closed(), drops_abandoned);
        assert_eq!(batcher.stats().reads.batches_ended, u64::from(drops_abandoned));
    }
}
