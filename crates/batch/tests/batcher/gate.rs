//! A store in memory whose batches wait at a gate until the test ends them, one way or another.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use busload_batch::{
    Batcher, BatcherSettings, DispatchPolicy, LoadedAll, LoadedOne, Oneshot, QueueSettings, Reply,
    Service, StoredAll, Write,
};
use tokio::sync::{mpsc, oneshot};

/// A key whose reads and writes fail, without affecting those beside it.
pub const BAD_KEY: u32 = 666;

/// Error that [`BAD_KEY`] gets.
pub const BAD: &str = "bad key";

pub struct Gate {
    batches: mpsc::UnboundedSender<Batch>,
    values: Mutex<HashMap<u32, u32>>,
}

/// A batch that has arrived at the gate.
pub struct Batch {
    pub content: Content,
    pass: oneshot::Sender<Pass>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Load(Vec<u32>),
    Store(BTreeMap<u32, Change>),
}

/// Ways for a batch to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Done,
    Fail(&'static str),
    Panic,
    /// Returns one answer too few.
    Short,
}

/// Sets of a key merge to the last, additions to their sum; the two neither mix nor share a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Set(u32),
    Add(u32),
}

impl Write for Change {
    type Kind = std::mem::Discriminant<Self>;
    /// Sum of an addition and of those merged before it.
    type Receipt = u32;

    fn kind(&self) -> Self::Kind {
        std::mem::discriminant(self)
    }

    fn receipt(&self) -> u32 {
        match *self {
            Self::Set(_) => 0,
            Self::Add(sum) => sum,
        }
    }

    fn merge(&mut self, later: Self) -> Result<u32, Self> {
        match (&mut *self, later) {
            (Self::Set(value), Self::Set(later)) => *value = later,
            (Self::Add(sum), Self::Add(later)) => {
                *sum = sum.checked_add(later).expect("the test adds up")
            }
            _ => return Err(later),
        }
        Ok(self.receipt())
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

impl Gate {
    async fn pass(&self, content: Content) -> Result<Pass, &'static str> {
        let (pass, passed) = oneshot::channel();
        self.batches
            .send(Batch { content, pass })
            .expect("the test listens as long as there are batches");
        match passed.await.expect("the test lets every batch pass") {
            Pass::Panic => panic!("the test wants a panic"),
            Pass::Fail(error) => Err(error),
            pass => Ok(pass),
        }
    }

    fn get(&self, key: u32) -> LoadedOne<Self> {
        let values = self.values.lock().unwrap();
        if key == BAD_KEY { Err(BAD) } else { Ok(values.get(&key).map(|value| Arc::new(*value))) }
    }

    fn change(&self, key: u32, change: Change) -> Result<u32, &'static str> {
        if key == BAD_KEY {
            return Err(BAD);
        }
        let mut values = self.values.lock().unwrap();
        let value = values.entry(key).or_default();
        let before = *value;
        *value = match change {
            Change::Set(value) => value,
            Change::Add(sum) => before + sum,
        };
        Ok(before)
    }
}

impl Service for Gate {
    type Key = u32;
    type Value = Arc<u32>;
    type Write = Change;
    /// Value before the write.
    type Outcome = u32;
    type Error = &'static str;

    async fn load(&self, keys: Vec<u32>) -> LoadedAll<Self> {
        assert!(keys.is_sorted_by(|a, b| a < b), "sorted and unique: {keys:?}");
        let pass = self.pass(Content::Load(keys.clone())).await?;
        let answers = keys.into_iter().skip(usize::from(pass == Pass::Short));
        Ok(answers.map(|key| self.get(key)).collect())
    }

    async fn store(&self, entries: Vec<(u32, Change)>) -> StoredAll<Self> {
        assert!(entries.is_sorted_by(|(a, _), (b, _)| a < b), "sorted and unique: {entries:?}");
        let pass = self.pass(Content::Store(entries.iter().copied().collect())).await?;
        let answers = entries.into_iter().skip(usize::from(pass == Pass::Short));
        Ok(answers.map(|(key, change)| self.change(key, change)).collect())
    }
}

/// The test's side of the gate.
pub struct Batches(mpsc::UnboundedReceiver<Batch>);

impl Batches {
    /// Returns a batch that has arrived once every runnable task has run; all must be on this
    /// thread.
    pub async fn arrived(&mut self) -> Option<Batch> {
        settle().await;
        self.0.try_recv().ok()
    }

    /// Returns the next batch, which was sent after every runnable task has run, if all are on this
    /// thread.
    pub async fn next(&mut self) -> Batch {
        settle().await;
        soon(self.0.recv()).await.expect("the service is there")
    }

    /// Lets everything pass until nothing waits any more.
    pub async fn pass_all<R: Reply<Gate>>(&mut self, batcher: &Batcher<Gate, R>) {
        settle().await;
        while let Some(batch) = self.arrived_unless_empty(batcher).await {
            batch.end(Pass::Done);
        }
    }

    /// Returns the next batch, or `None` if there will be none because nothing is pending.
    pub async fn arrived_unless_empty<R: Reply<Gate>>(
        &mut self,
        batcher: &Batcher<Gate, R>,
    ) -> Option<Batch> {
        match self.arrived().await {
            None if 0 < batcher.waiting() => Some(self.next().await),
            arrived => arrived,
        }
    }
}

impl Batch {
    pub fn end(self, how: Pass) {
        // A batch whose runtime is gone waits for nothing.
        let _ = self.pass.send(how);
    }

    pub fn keys(&self) -> Vec<u32> {
        match &self.content {
            Content::Load(keys) => keys.clone(),
            Content::Store(entries) => entries.keys().copied().collect(),
        }
    }
}

/// Waits for another thread, with a timeout.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(std::time::Duration::from_secs(60), future)
        .await
        .expect("it does not hang")
}

/// Runs every runnable task; all must be on this thread.
pub async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Returns a batcher at the gate whose callers await.
pub fn gate(settings: BatcherSettings) -> (Batcher<Gate>, Batches) {
    gate_with::<Oneshot<Gate>>(settings)
}

/// Returns a batcher at the gate with other replies.
pub fn gate_with<R: Reply<Gate>>(settings: BatcherSettings) -> (Batcher<Gate, R>, Batches) {
    let (batches, receiver) = mpsc::unbounded_channel();
    let service = Gate { batches, values: Mutex::default() };
    (Batcher::start(service, settings).expect("settings make sense"), Batches(receiver))
}

/// Returns the default settings with this many batches in flight.
pub fn in_flight(batches_in_flight_max: usize) -> BatcherSettings {
    BatcherSettings {
        queue: QueueSettings { batches_in_flight_max, ..QueueSettings::default() },
        timeout: None,
    }
}

/// Returns small limits, so that a short schedule meets every one.
pub fn small() -> BatcherSettings {
    let queue = QueueSettings {
        requests_max: 12,
        batch_entries_max: 3,
        batches_in_flight_max: 2,
        dispatch: DispatchPolicy::Eager,
        ..QueueSettings::default()
    };
    BatcherSettings { queue, timeout: None }
}
