//! Many tasks on several threads: a read made after a write was acknowledged sees it, and limits
//! hold.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use busload_batch::{
    Batcher, BatcherSettings, LoadedAll, LoadedOne, QueueSettings, Service, StoredAll,
};
use busload_batch::{LastWins, Sharing};
use tokio::task::JoinSet;

use crate::gate::soon;

const KEYS: u32 = 16;
const ROUNDS: u64 = 150;
const BATCHES_IN_FLIGHT: usize = 4;

/// A store that takes its time (any number of runtime turns) and checks which batches are in it at
/// the same time.
#[derive(Default)]
struct Store {
    values: Mutex<HashMap<u32, u64>>,
    /// Number of batches that read each key; `usize::MAX` if one writes it.
    inside: Mutex<HashMap<u32, usize>>,
    batches: AtomicUsize,
    turn: AtomicU64,
}

impl Store {
    fn enter(&self) {
        let others = self.batches.fetch_add(1, Ordering::SeqCst);
        assert!(others < BATCHES_IN_FLIGHT, "{} at the same time", others + 1);
    }

    async fn take_time(&self) {
        for _ in 0..self.turn.fetch_add(1, Ordering::SeqCst) % 7 {
            tokio::task::yield_now().await;
        }
    }

    fn inside(&self, keys: impl Iterator<Item = u32>, change: impl Fn(&mut usize)) {
        let mut inside = self.inside.lock().unwrap();
        keys.for_each(|key| change(inside.entry(key).or_default()));
    }

    fn get(&self, key: u32) -> LoadedOne<Self> {
        Ok(self.values.lock().unwrap().get(&key).copied())
    }
}

impl Service for Store {
    type Key = u32;
    type Value = u64;
    type Write = LastWins<u64>;
    type Outcome = ();
    type Error = Infallible;

    async fn load(&self, keys: Vec<u32>) -> LoadedAll<Self> {
        self.enter();
        self.inside(keys.iter().copied(), |readers| {
            assert_ne!(*readers, usize::MAX, "read while it is written");
            *readers += 1;
        });
        self.take_time().await;
        let values = keys.iter().map(|key| self.get(*key)).collect();
        self.take_time().await;
        self.inside(keys.into_iter(), |readers| *readers -= 1);
        self.batches.fetch_sub(1, Ordering::SeqCst);
        Ok(values)
    }

    async fn store(&self, entries: Vec<(u32, LastWins<u64>)>) -> StoredAll<Self> {
        self.enter();
        let keys = || entries.iter().map(|(key, _)| *key);
        self.inside(keys(), |others| {
            assert_eq!(*others, 0, "written while another batch has the key");
            *others = usize::MAX;
        });
        self.take_time().await;
        for (key, LastWins(value)) in &entries {
            let before = self.values.lock().unwrap().insert(*key, *value);
            assert!(
                before < Some(*value),
                "writes of a key in their order: {value} after {before:?}"
            );
        }
        self.take_time().await;
        self.inside(keys(), |others| *others = 0);
        self.batches.fetch_sub(1, Ordering::SeqCst);
        Ok(entries.iter().map(|_| Ok(())).collect())
    }
}

/// Writes 1, 2, 3... under one key, and reports which are acknowledged.
async fn write(batcher: Batcher<Store>, key: u32, acknowledged: Arc<AtomicU64>) {
    for value in 1..=ROUNDS {
        if value % 3 == 0 {
            // Made after the write without waiting for it, so the read must see that write and no
            // later one.
            let (stored, seen) = tokio::join!(batcher.store(key, value), batcher.load(key));
            stored.unwrap();
            assert_eq!(seen, Ok(Some(value)));
        } else {
            batcher.store(key, value).await.unwrap();
        }
        acknowledged.store(value, Ordering::SeqCst);
        assert_eq!(batcher.load(key).await, Ok(Some(value)), "it reads its own write");
    }
}

/// Reads one key until its last value; each read sees all writes acknowledged before it was made.
async fn read(batcher: Batcher<Store>, key: u32, acknowledged: Arc<AtomicU64>) {
    let mut seen = 0;
    while seen < ROUNDS {
        let oldest = acknowledged.load(Ordering::SeqCst).max(seen);
        seen = batcher.load(key).await.unwrap().unwrap_or(0);
        assert!(oldest <= seen, "{oldest} was acknowledged or seen, and then {seen} was read");
    }
}

async fn stress(sharing: Sharing) {
    let queue = QueueSettings {
        batches_in_flight_max: BATCHES_IN_FLIGHT,
        batch_entries_max: 8,
        sharing,
        ..QueueSettings::default()
    };
    let batcher =
        Batcher::from_service(Store::default(), BatcherSettings { queue, timeout: None }).unwrap();
    let mut tasks = JoinSet::new();
    for key in 0..KEYS {
        let acknowledged = Arc::new(AtomicU64::new(0));
        tasks.spawn(write(batcher.clone(), key, Arc::clone(&acknowledged)));
        for _ in 0..3 {
            tasks.spawn(read(batcher.clone(), key, Arc::clone(&acknowledged)));
        }
    }
    soon(tasks.join_all()).await;
    let stats = batcher.stats();
    assert!(stats.writes.batches < stats.writes.entries, "{stats:?}");
    assert!(stats.reads.batches < stats.reads.entries, "{stats:?}");
    soon(batcher.close()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_see_every_write_acknowledged_before_they_were_asked() {
    stress(Sharing::Waiting).await;
}

/// The relaxation concerns only writes that do not pass through the batcher.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_that_join_those_in_flight_see_the_batchers_own_writes_too() {
    stress(Sharing::InFlight).await;
}
