//! A service that answers entries one by one, and whose batches end with their last caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use busload_batch::{
    BatchError, Batcher, BatcherSettings, DispatchPolicy, EarlyAnswers, Loaded, LoadedAll,
    NoWrites, QueueSettings, Service, StoredAll,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::gate::settle;

/// Answers of one batch, in any order; the batch ends when the sender is dropped.
type Answers = mpsc::UnboundedSender<(usize, u32)>;

/// A store whose tests answer the entries of a batch.
struct Stream {
    batches: mpsc::UnboundedSender<(Vec<u32>, Answers)>,
    dropped: Arc<AtomicUsize>,
}

/// Counts batches whose future was dropped before its end.
struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Service for Stream {
    type Key = u32;
    type Value = u32;
    type Write = NoWrites;
    type Outcome = ();
    type Error = &'static str;

    async fn load(&self, _keys: Vec<u32>) -> LoadedAll<Self> {
        Err("the batcher calls load_each")
    }

    async fn load_each(&self, keys: Vec<u32>, early: EarlyAnswers<'_, Self>) -> LoadedAll<Self> {
        let count_drop = CountDrop(Arc::clone(&self.dropped));
        let (sender, mut answers) = mpsc::unbounded_channel();
        self.batches.send((keys, sender)).map_err(|_| "the test is over")?;
        while let Some((entry, value)) = answers.recv().await {
            early.give(&mut vec![(entry, Ok(Some(value)))]);
        }
        std::mem::forget(count_drop);
        Ok(Vec::new())
    }

    async fn store(&self, _entries: Vec<(u32, NoWrites)>) -> StoredAll<Self> {
        Ok(Vec::new())
    }

    fn drops_abandoned_loads(&self) -> bool {
        true
    }
}

struct Fixture {
    batcher: Batcher<Stream>,
    batches: mpsc::UnboundedReceiver<(Vec<u32>, Answers)>,
    dropped: Arc<AtomicUsize>,
}

impl Fixture {
    fn new() -> Self {
        let (sender, batches) = mpsc::unbounded_channel();
        let dropped = Arc::new(AtomicUsize::new(0));
        let service = Stream { batches: sender, dropped: Arc::clone(&dropped) };
        let queue =
            QueueSettings { dispatch: DispatchPolicy::Immediate, ..QueueSettings::default() };
        let settings = BatcherSettings { queue, timeout: None };
        Self { batcher: Batcher::from_service(service, settings).unwrap(), batches, dropped }
    }

    fn load(&self, key: u32) -> JoinHandle<Loaded<Stream>> {
        let batcher = self.batcher.clone();
        tokio::spawn(async move { batcher.load(key).await })
    }

    async fn batch(&mut self) -> (Vec<u32>, Answers) {
        self.batches.recv().await.expect("the batcher runs")
    }
}

#[tokio::test]
async fn an_entry_is_answered_before_its_batch_ends() {
    let mut fixture = Fixture::new();
    let loads = [1, 2, 2].map(|key| fixture.load(key));
    let (keys, answers) = fixture.batch().await;
    assert_eq!(keys, [1, 2]);
    let [first, second, third] = loads;
    answers.send((1, 20)).unwrap();
    assert_eq!((second.await.unwrap(), third.await.unwrap()), (Ok(Some(20)), Ok(Some(20))));
    assert!(!first.is_finished());
    assert_eq!(fixture.batcher.waiting(), 1, "only the first counts as pending now");
    // A second answer to an entry is dropped.
    answers.send((1, 21)).unwrap();
    answers.send((0, 10)).unwrap();
    assert_eq!(first.await.unwrap(), Ok(Some(10)));
    drop(answers);
    fixture.batcher.close().await;
}

#[tokio::test]
async fn an_entry_that_the_batch_did_not_answer_gets_an_error() {
    let mut fixture = Fixture::new();
    let [first, second] = [1, 2].map(|key| fixture.load(key));
    let (_, answers) = fixture.batch().await;
    answers.send((0, 10)).unwrap();
    drop(answers);
    assert_eq!(first.await.unwrap(), Ok(Some(10)));
    assert_eq!(second.await.unwrap(), Err(BatchError::Miscounted { asked: 2, given: 1 }));
}

#[tokio::test]
async fn a_batch_is_dropped_when_its_last_caller_has_gone() {
    let mut fixture = Fixture::new();
    let [first, second, third] = [1, 2, 3].map(|key| fixture.load(key));
    let (_, answers) = fixture.batch().await;
    first.abort();
    settle().await;
    answers.send((1, 20)).unwrap();
    assert_eq!(second.await.unwrap(), Ok(Some(20)));
    assert_eq!(fixture.dropped.load(Ordering::Relaxed), 0, "the third waits");
    third.abort();
    settle().await;
    assert_eq!(fixture.dropped.load(Ordering::Relaxed), 1);
    assert!(answers.is_closed());
    assert_eq!((fixture.batcher.waiting(), fixture.batcher.stats().reads.batches_ended), (0, 1));
    let again = fixture.load(1);
    let (keys, answers) = fixture.batch().await;
    answers.send((0, 11)).unwrap();
    assert_eq!((keys, again.await.unwrap()), (vec![1], Ok(Some(11))));
}
