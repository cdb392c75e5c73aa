//! The budget of a cache's fills and the tasks that run them.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, OwnedRwLockReadGuard, OwnedSemaphorePermit, RwLock, Semaphore},
    task::JoinSet,
};

use crate::{
    disk::EXTENT_DATA_BYTES,
    fetch::ReadaheadLimiter,
    limits::{FILL_AHEAD_TIME, PART_EXTENTS_MAX, PARTS_AT_ONCE_MIN},
    readahead,
    remote::StorePace,
};

/// Budget and tasks of the fills of a cache.
#[derive(Debug)]
pub(crate) struct FillScheduler {
    /// Runtime on whose threads the cache reads and writes files.
    pub(crate) runtime: Handle,
    /// Objects up to this size are filled whole.
    whole_max: AtomicU64,
    /// Bytes of parts that are under way or being written.
    budget: Arc<Semaphore>,
    budget_bytes: u64,
    /// Parts that drivers have under way; locked by the driver that starts the next.
    pub(crate) limiter: AsyncMutex<ReadaheadLimiter>,
    tasks: Mutex<JoinSet<()>>,
    /// Read-locked by writes of extents, so that closing can wait for them.
    writing: Arc<RwLock<()>>,
    is_closed: AtomicBool,
}

impl FillScheduler {
    /// Makes a budget of at least one extent: with less no fill could ever begin.
    pub(crate) fn new(fill_bytes_max: u64, fill_whole_max: u64, runtime: Handle) -> Self {
        let most = u64::try_from(Semaphore::MAX_PERMITS).unwrap_or(u64::MAX);
        let budget_bytes = fill_bytes_max.clamp(EXTENT_DATA_BYTES, most);
        let permits =
            usize::try_from(budget_bytes).expect("not more than the permits of a semaphore");
        Self {
            runtime,
            whole_max: AtomicU64::new(fill_whole_max),
            budget: Arc::new(Semaphore::new(permits)),
            budget_bytes,
            limiter: AsyncMutex::new(ReadaheadLimiter::new(FILL_AHEAD_TIME)),
            tasks: Mutex::new(JoinSet::new()),
            writing: Arc::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns whether objects of this size are filled whole.
    pub(crate) fn is_whole(&self, bytes: u64) -> bool {
        bytes <= self.whole_max.load(Relaxed)
    }

    /// Changes the size up to which objects are filled whole.
    pub(crate) fn set_whole_max(&self, bytes: u64) {
        self.whole_max.store(bytes, Relaxed);
    }

    /// Bytes of the budget that fills hold now.
    pub(crate) fn bytes(&self) -> u64 {
        self.budget_bytes - self.budget.available_permits() as u64
    }

    /// Aborts the fills and starts no more; returns when no fill writes to disk any more. Reads go
    /// on.
    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Relaxed);
        let mut tasks = std::mem::take(&mut *self.tasks());
        tasks.shutdown().await;
        drop(self.writing.write().await);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Extents of one part of a fill from a store of this pace.
    pub(crate) fn part_extents(&self, pace: StorePace) -> u64 {
        let most = self.budget_bytes / EXTENT_DATA_BYTES / PARTS_AT_ONCE_MIN;
        readahead::part_extents(pace.bandwidth, most.clamp(1, PART_EXTENTS_MAX))
    }

    /// Waits until this many bytes fit into the budget.
    pub(crate) async fn reserve(&self, bytes: u64) -> OwnedSemaphorePermit {
        let bytes = u32::try_from(bytes).expect("a part is some MiB");
        let permit = Arc::clone(&self.budget).acquire_many_owned(bytes).await;
        permit.expect("the budget is never closed")
    }

    /// Returns a guard to hold while an extent is written, or none once the cache closes.
    pub(crate) fn may_write(&self) -> Option<OwnedRwLockReadGuard<()>> {
        let guard = Arc::clone(&self.writing).try_read_owned().ok()?;
        (!self.is_closed()).then_some(guard)
    }

    /// Runs a task that ends when the cache closes.
    pub(crate) fn spawn(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        if !self.is_closed() {
            tasks.spawn_on(task, runtime);
        }
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
