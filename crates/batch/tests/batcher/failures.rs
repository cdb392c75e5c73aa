//! A failure in a batch or before it affects only the requests concerned, and they get its error.

use std::convert::Infallible;

use busload_batch::{
    BatchError, Batcher, BatcherSettings, Loaded, LoadedAll, NoWrites, QueueSettings, Service,
    Stored, StoredAll,
};
use tokio::task::JoinHandle;

use crate::gate::{BAD, BAD_KEY, Change, Gate, Pass, gate, in_flight};

fn load(batcher: &Batcher<Gate>, key: u32) -> JoinHandle<Loaded<Gate>> {
    let batcher = batcher.clone();
    tokio::spawn(async move { batcher.load(key).await })
}

fn store(batcher: &Batcher<Gate>, key: u32) -> JoinHandle<Stored<Gate>> {
    let batcher = batcher.clone();
    tokio::spawn(async move { batcher.store(key, Change::Set(1)).await })
}

#[tokio::test]
async fn a_batch_that_goes_wrong_fails_its_own_callers_and_nobody_after_them() {
    let miscounted = BatchError::Miscounted { asked: 2, given: 1 };
    let cases = [
        (Pass::Fail("no connection"), BatchError::Failed("no connection")),
        (Pass::Panic, BatchError::Panicked),
        (Pass::Short, miscounted),
    ];
    for (pass, error) in cases {
        let (batcher, mut batches) = gate(in_flight(1));
        let loads = [load(&batcher, 1), load(&batcher, 2)];
        let batch = batches.next().await;
        let after = [load(&batcher, 1), load(&batcher, 3)];
        batch.end(pass);
        batches.next().await.end(Pass::Done);
        for load in loads {
            assert_eq!(load.await.unwrap(), Err(error), "{pass:?}");
        }
        for load in after {
            assert_eq!(load.await.unwrap(), Ok(None), "{pass:?}");
        }

        let stores = [store(&batcher, 1), store(&batcher, 1), store(&batcher, BAD_KEY)];
        while let Some(batch) = batches.arrived().await {
            batch.end(pass);
        }
        for store in stores {
            let outcome = store.await.unwrap();
            assert!(outcome.is_err(), "{pass:?}");
            assert_eq!(outcome.unwrap_err().outcome_unknown(), pass != Pass::Fail("no connection"));
        }
    }
}

#[tokio::test]
async fn a_panic_before_the_first_await_is_a_panic_of_the_batch() {
    let load = |keys: Vec<u32>| {
        assert_ne!(keys, [1], "the test wants a panic");
        async move { keys.into_iter().map(Some).collect::<Vec<_>>() }
    };
    let batcher = Batcher::from_load(load, BatcherSettings::default()).unwrap();
    assert_eq!(batcher.load(1).await, Err(BatchError::Panicked));
    assert_eq!(batcher.load(2).await, Ok(Some(2)));
}

/// The queue calls `merge` under its lock, where a panic must not take down the other requests.
#[tokio::test]
async fn a_write_that_panics_when_it_is_merged_harms_its_own_caller_only() {
    let (batcher, mut batches) = gate(BatcherSettings::default());
    let store = |sum| {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.store(1, Change::Add(sum)).await })
    };
    let (good, overflows, also_good) = (store(5), store(u32::MAX), store(7));
    batches.next().await.end(Pass::Done);
    assert_eq!(good.await.unwrap(), Ok(0));
    assert!(overflows.await.unwrap_err().is_panic());
    assert_eq!(also_good.await.unwrap(), Ok(0));
    let read = load(&batcher, 1);
    batches.next().await.end(Pass::Done);
    assert_eq!(read.await.unwrap(), Ok(Some(12.into())));
    batcher.close().await;
}

#[tokio::test]
async fn a_bad_entry_fails_alone() {
    let (batcher, mut batches) = gate(BatcherSettings::default());
    let (good, bad) = (load(&batcher, 1), load(&batcher, BAD_KEY));
    batches.next().await.end(Pass::Done);
    assert_eq!(good.await.unwrap(), Ok(None));
    assert_eq!(bad.await.unwrap(), Err(BatchError::Failed(BAD)));
}

#[tokio::test]
async fn a_full_line_refuses_at_once_and_takes_again_when_some_have_left() {
    let queue =
        QueueSettings { requests_max: 3, batches_in_flight_max: 1, ..QueueSettings::default() };
    let (batcher, mut batches) = gate(BatcherSettings { queue, timeout: None });
    let under_way = load(&batcher, 0);
    let batch = batches.next().await;
    let waiting = [1, 2, 3].map(|key| load(&batcher, key));
    assert!(batches.arrived().await.is_none());
    assert_eq!(batcher.load(4).await, Err(BatchError::Full));
    assert_eq!(batcher.store(4, Change::Set(1)).await, Err(BatchError::Full));
    batch.end(Pass::Done);
    let next = batches.next().await;
    let again = load(&batcher, 4);
    next.end(Pass::Done);
    batches.pass_all(&batcher).await;
    for load in waiting.into_iter().chain([under_way, again]) {
        assert_eq!(load.await.unwrap(), Ok(None));
    }
    assert_eq!(batcher.stats().refused, 2);
}

#[tokio::test]
async fn a_request_larger_than_the_line_says_so() {
    let load =
        |keys: Vec<[u8; 1000]>| async move { keys.into_iter().map(Some).collect::<Vec<_>>() };
    let queue = QueueSettings { bytes_max: 512, ..QueueSettings::default() };
    let batcher = Batcher::from_load(load, BatcherSettings { queue, timeout: None }).unwrap();
    let outcome = batcher.load([0; 1000]).await;
    assert!(matches!(outcome, Err(BatchError::TooLarge { bytes_max: 512, .. })), "{outcome:?}");
}

#[test]
fn an_error_says_what_happened_and_whether_a_write_may_have() {
    let cases: [(BatchError<&str>, &str, bool); 9] = [
        (BatchError::Full, "the request queue is full", false),
        (
            BatchError::TooLarge { bytes: 900, bytes_max: 512 },
            "the request counts 900 bytes, and at most 512 bytes may wait",
            false,
        ),
        (
            BatchError::TooLate { sent: false },
            "the deadline passed in the request queue; nothing was sent",
            false,
        ),
        (
            BatchError::TooLate { sent: true },
            "no answer before the deadline; a write may have been done",
            true,
        ),
        (BatchError::Closed, "the batcher is closed; nothing was sent", false),
        (BatchError::Failed("no such table"), "no such table", false),
        (BatchError::Panicked, "the batch function panicked; a write may have been done", true),
        (
            BatchError::Stopped,
            "the batch was stopped before it had an answer; a write may have been done",
            true,
        ),
        (
            BatchError::Miscounted { asked: 3, given: 2 },
            "the batch function gave 2 answers for 3 entries; a write may have been done",
            true,
        ),
    ];
    for (error, text, outcome_unknown) in cases {
        assert_eq!(error.to_string(), text);
        assert_eq!(error.outcome_unknown(), outcome_unknown, "{error:?}");
    }
}

/// A service that panics before it returns a future.
struct Eager;

impl Service for Eager {
    type Key = u32;
    type Value = u32;
    type Write = NoWrites;
    type Outcome = ();
    type Error = Infallible;

    #[allow(clippy::manual_async_fn, reason = "an async function would panic in its future")]
    fn load(&self, keys: Vec<u32>) -> impl Future<Output = LoadedAll<Self>> + Send {
        assert!(keys != [BAD_KEY], "the test wants a panic");
        async move { Ok(keys.into_iter().map(|key| Ok(Some(key))).collect()) }
    }

    async fn store(&self, _entries: Vec<(u32, NoWrites)>) -> StoredAll<Self> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_panic_before_the_service_returns_its_future_is_one_of_the_batch() {
    let batcher = Batcher::from_service(Eager, BatcherSettings::default()).unwrap();
    assert_eq!(batcher.load(BAD_KEY).await, Err(BatchError::Panicked));
    assert_eq!(batcher.load(1).await, Ok(Some(1)));
}
