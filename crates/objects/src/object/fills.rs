//! What all objects of a cache share: the budget of fills, the bytes that arrived lately, metrics,
//! the tasks that fill.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, OwnedRwLockReadGuard, OwnedSemaphorePermit, RwLock, Semaphore},
    task::JoinSet,
};

use super::{
    Shared,
    fetch::Fetch,
    limits::{FILL_AHEAD_TIME, PART_EXTENTS_MAX, PARTS_AT_ONCE_MIN, RECEIVED_BYTES_MAX},
    readahead_limiter::ReadaheadLimiter,
};
use crate::{CacheStats, disk::EXTENT_DATA_BYTES};

/// Shared by all objects of a cache.
#[derive(Debug)]
pub struct Fills {
    /// Files are read and written here.
    pub(super) runtime: Handle,
    /// Objects up to this size are filled whole.
    pub(super) whole_max: u64,
    /// Bytes of parts that are under way or being written.
    budget: Arc<Semaphore>,
    budget_bytes: u64,
    /// The parts that drivers have under way; held by the one that starts the next.
    pub(super) limiter: AsyncMutex<ReadaheadLimiter>,
    received: Mutex<Received>,
    tasks: Mutex<JoinSet<()>>,
    /// Held shared by writes of extents, so that closing can wait for them.
    writing: Arc<RwLock<()>>,
    is_closed: AtomicBool,
    /// Objects with streams that read past the disk.
    pub(super) passing: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) joined: AtomicU64,
}

/// Foreground fetches whose bytes are still in memory, oldest first.
#[derive(Debug, Default)]
struct Received {
    fetches: VecDeque<(Weak<Shared>, Weak<Fetch>, u64)>,
    bytes: u64,
}

impl Fills {
    /// With the settings of [`crate::CacheOptions`] of the same names. `fill_whole_max` must not be
    /// larger than what the disk may hold. The budget is at least one extent: less would never let
    /// a fill begin.
    pub fn new(fill_bytes_max: u64, fill_whole_max: u64, runtime: Handle) -> Arc<Self> {
        let most = u64::try_from(Semaphore::MAX_PERMITS).unwrap_or(u64::MAX);
        let budget_bytes = fill_bytes_max.clamp(EXTENT_DATA_BYTES, most);
        let permits =
            usize::try_from(budget_bytes).expect("not more than the permits of a semaphore");
        Arc::new(Self {
            runtime,
            whole_max: fill_whole_max,
            budget: Arc::new(Semaphore::new(permits)),
            budget_bytes,
            limiter: AsyncMutex::new(ReadaheadLimiter::new(FILL_AHEAD_TIME)),
            received: Mutex::default(),
            tasks: Mutex::new(JoinSet::new()),
            writing: Arc::default(),
            is_closed: AtomicBool::new(false),
            passing: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            joined: AtomicU64::new(0),
        })
    }

    /// Sets `hits`, `misses`, `joined` and `fill_bytes`.
    pub fn add_stats(&self, stats: &mut CacheStats) {
        stats.hits = self.hits.load(Relaxed);
        stats.misses = self.misses.load(Relaxed);
        stats.joined = self.joined.load(Relaxed);
        stats.fill_bytes = self.budget_bytes - self.budget.available_permits() as u64;
    }

    /// Gives up the fills and starts no more; returns when no fill writes to disk any more. Reads
    /// go on.
    pub async fn close(&self) {
        self.is_closed.store(true, Relaxed);
        let mut tasks = std::mem::take(&mut *self.tasks());
        tasks.shutdown().await;
        drop(self.writing.write().await);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Extents of one part.
    pub(super) fn part_extents(&self) -> u64 {
        (self.budget_bytes / EXTENT_DATA_BYTES / PARTS_AT_ONCE_MIN).clamp(1, PART_EXTENTS_MAX)
    }

    /// Waits until so many bytes fit into the budget.
    pub(super) async fn reserve(&self, bytes: u64) -> OwnedSemaphorePermit {
        let bytes = u32::try_from(bytes).expect("a part is some MiB");
        let permit = Arc::clone(&self.budget).acquire_many_owned(bytes).await;
        permit.expect("the budget is never closed")
    }

    /// Held while an extent is written. None once the cache closes.
    pub(super) fn may_write(&self) -> Option<OwnedRwLockReadGuard<()>> {
        let guard = Arc::clone(&self.writing).try_read_owned().ok()?;
        (!self.is_closed()).then_some(guard)
    }

    /// Runs a task that ends when the cache closes.
    pub(super) fn spawn(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        if !self.is_closed() {
            tasks.spawn_on(task, runtime);
        }
    }

    /// A foreground fetch has arrived: its bytes stay until newer ones need the room.
    pub(super) fn keep_received(&self, object: &Arc<Shared>, fetch: &Arc<Fetch>) {
        let bytes = fetch.range.end - fetch.range.start;
        let mut received = self.received();
        received.bytes += bytes;
        received.fetches.push_back((Arc::downgrade(object), Arc::downgrade(fetch), bytes));
        let mut old = Vec::new();
        while RECEIVED_BYTES_MAX < received.bytes
            && let Some((object, fetch, bytes)) = received.fetches.pop_front()
        {
            received.bytes -= bytes;
            old.push((object, fetch));
        }
        drop(received);
        for (object, fetch) in old {
            if let (Some(object), Some(fetch)) = (object.upgrade(), fetch.upgrade()) {
                object.table().remove_foreground(&fetch);
            }
        }
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
