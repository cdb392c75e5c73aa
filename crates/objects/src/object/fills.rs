//! What all objects of a cache share: the budget of fills, the bytes that landed lately, figures, the tasks that fill.

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
    flight::Flight,
    lane::Lane,
    limits::{FILL_AHEAD_TIME, LANDED_BYTES_MAX, PART_EXTENTS_MAX, PARTS_AT_ONCE_MIN},
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
    pub(super) limiter: AsyncMutex<Lane>,
    landed: Mutex<Landed>,
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

/// Foreground flights whose bytes are still in memory, oldest first.
#[derive(Debug, Default)]
struct Landed {
    flights: VecDeque<(Weak<Shared>, Weak<Flight>, u64)>,
    bytes: u64,
}

impl Fills {
    /// With the settings of [`crate::CacheOptions`] of the same names. `fill_whole_max` must not be larger than what the disk may hold.
    /// The budget is at least one extent: less would never let a fill begin.
    pub fn new(fill_bytes_max: u64, fill_whole_max: u64, runtime: Handle) -> Arc<Self> {
        let most = u64::try_from(Semaphore::MAX_PERMITS).unwrap_or(u64::MAX);
        let budget_bytes = fill_bytes_max.clamp(EXTENT_DATA_BYTES, most);
        let permits = usize::try_from(budget_bytes).expect("not more than the permits of a semaphore");
        Arc::new(Self {
            runtime,
            whole_max: fill_whole_max,
            budget: Arc::new(Semaphore::new(permits)),
            budget_bytes,
            limiter: AsyncMutex::new(Lane::new(FILL_AHEAD_TIME)),
            landed: Mutex::default(),
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

    /// Gives up the fills and starts no more; returns when no fill writes to disk any more. Reads go on.
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

    /// A foreground flight has landed: its bytes stay until newer ones need the room.
    pub(super) fn keep_landed(&self, object: &Arc<Shared>, flight: &Arc<Flight>) {
        let bytes = flight.range.end - flight.range.start;
        let mut landed = self.landed();
        landed.bytes += bytes;
        landed.flights.push_back((Arc::downgrade(object), Arc::downgrade(flight), bytes));
        let mut old = Vec::new();
        while LANDED_BYTES_MAX < landed.bytes
            && let Some((object, flight, bytes)) = landed.flights.pop_front()
        {
            landed.bytes -= bytes;
            old.push((object, flight));
        }
        drop(landed);
        for (object, flight) in old {
            if let (Some(object), Some(flight)) = (object.upgrade(), flight.upgrade()) {
                object.table().remove_foreground(&flight);
            }
        }
    }

    fn landed(&self) -> MutexGuard<'_, Landed> {
        self.landed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
