//! The chunk stores of the configuration, and the runtime that they share.
//!
//! ```text
//!  sources (RESP), gRPC, HTTP, status --> ChunkStores --> busload_dolt::Store, one per table
//!                                             +--> runtime `chunks`: opens, reads, fills, polls
//! ```
//!
//! Only the runtime's threads wait for stores, never those of the pipeline or of HTTP. A reload
//! adds and removes tables and patterns; who reads a list keeps what was there.
//!
//! **Start.** All stores open at the same time; the start waits for the first attempts, at most
//! [`FIRST_ATTEMPT_TIMEOUT`], and then serves, whatever their outcome. **Shutdown.** Each store
//! fails the requests that wait for it and writes to disk what is not there yet, within
//! [`STOP_GRACE`].

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use busload_calls::CallTimes;
use busload_dolt::{DynamoStats, DynamoTables, Store};
use futures_util::future::join_all;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::{sleep, timeout},
};

use crate::{
    chunk_sets::{ChunkSet, NotServed, ServedStore},
    config::{ChunksSettings, StoresSettings},
    failure::Failure,
    peers::Peers,
    sources::{self, ChunkQueue},
};

/// Async threads: they wait for stores, decode and verify.
const WORKER_THREADS: usize = 2;
/// Threads that block on the disks of all stores; idle ones end. One disk occupies at most eight,
/// so that three disks that hang leave a fourth its eight.
const BLOCKING_THREADS_MAX: usize = 32;
/// Time for work in flight to end at a shutdown.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Longest time that stores by pattern which go by a reload wait for calls and downloads under way.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Interval at which they look whether these have ended.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Longest time that the start waits for a store; a shorter request timeout of its table applies
/// instead.
const FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Message for a store that can be reached but is empty, as after a typing error in its URL.
pub const NO_MANIFEST: &str = "there is no manifest: an empty store, or not the one that was meant";

/// The chunk stores of the configuration.
pub struct ChunkStores {
    /// Tables in the order in which they came. A reload replaces the list.
    tables: RwLock<Tables>,
    /// Stores by pattern, the most specific pattern first. A reload replaces the list.
    sets: RwLock<Sets>,
    /// Tables of DynamoDB with the manifests of some stores.
    dynamo: DynamoTables,
    runtime: Mutex<StoresRuntime>,
    /// Peers that cache the same stores.
    peers: Option<Arc<Peers>>,
}

/// Chunk tables at some moment.
pub type Tables = Arc<[Arc<ChunkTable>]>;

/// Stores by pattern at some moment, the most specific pattern first.
pub type Sets = Arc<[Arc<ChunkSet>]>;

/// The runtime of all stores.
enum StoresRuntime {
    /// There has been no store yet.
    Unneeded,
    Running(Runtime),
    Stopped,
}

/// A chunk store that is served as a table.
#[derive(Debug)]
pub struct ChunkTable {
    pub settings: ChunksSettings,
    pub store: Store,
    /// Queue of RESP clients' requests that wait for the store.
    pub queue: ChunkQueue,
    /// Times of gRPC calls and downloads.
    pub times: Arc<CallTimes>,
    /// Number that no other table has, not even one of the same name at another time.
    pub number: usize,
}

/// Number of the next table.
static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);

impl ChunkStores {
    /// Starts to open all stores. Fails on a setting that makes no sense, or when another process
    /// uses a cache's directory.
    /// With peers the files of others are not brought to this disk, and their chunks are asked of
    /// their owners.
    pub fn start(
        settings: &[ChunksSettings],
        by_pattern: &[StoresSettings],
        peers: Option<Arc<Peers>>,
    ) -> Result<Self, Failure> {
        let runtime = Mutex::new(StoresRuntime::Unneeded);
        let (tables, dynamo) = (RwLock::new(Arc::default()), DynamoTables::default());
        let stores = Self { tables, sets: RwLock::new(Arc::default()), dynamo, runtime, peers };
        for settings in settings {
            stores.add(stores.open_table(settings)?);
        }
        for settings in by_pattern {
            stores.add_set(stores.start_set(settings)?);
        }
        Ok(stores)
    }

    /// Makes stores by pattern, which [`ChunkStores::add_set`] then serves. Fails as
    /// [`ChunkStores::start`] does.
    pub fn start_set(&self, settings: &StoresSettings) -> Result<Arc<ChunkSet>, Failure> {
        let runtime = self.start_runtime()?;
        let set = ChunkSet::start(settings, &runtime, self.dynamo.clone(), self.peers())?;
        Ok(Arc::new(set))
    }

    /// Serves the stores of a pattern from now on, in the place of those of an equal one.
    pub fn add_set(&self, set: Arc<ChunkSet>) {
        let mut sets = self.sets.write().unwrap_or_else(PoisonError::into_inner);
        let others = sets.iter().filter(|other| other.pattern() != set.pattern());
        let mut changed: Vec<_> = others.cloned().collect();
        changed.push(set);
        changed
            .sort_by(|one, other| one.settings.pattern.rank().cmp(&other.settings.pattern.rank()));
        *sets = changed.into();
    }

    /// Serves the stores of this pattern no longer, and returns them.
    pub fn remove_set(&self, pattern: &str) -> Option<Arc<ChunkSet>> {
        let mut sets = self.sets.write().unwrap_or_else(PoisonError::into_inner);
        let removed = sets.iter().find(|set| set.pattern() == pattern).cloned()?;
        *sets = sets.iter().filter(|set| set.pattern() != pattern).cloned().collect();
        Some(removed)
    }

    /// Returns the stores of this pattern.
    pub fn set(&self, pattern: &str) -> Option<Arc<ChunkSet>> {
        self.sets().iter().find(|set| set.pattern() == pattern).cloned()
    }

    /// Starts to open the store of a table, which [`ChunkStores::add`] then serves. Fails as
    /// [`ChunkStores::start`] does.
    pub fn open_table(&self, settings: &ChunksSettings) -> Result<Arc<ChunkTable>, Failure> {
        log::info!("table {}: {}", settings.name, settings.describe());
        let runtime = self.start_runtime()?;
        let store = start_store(settings, &runtime, self.dynamo.clone(), self.peers())?;
        ChunkTable::start(settings, store, &runtime).map(Arc::new)
    }

    fn peers(&self) -> Option<Arc<dyn busload_dolt::Peers>> {
        Some(self.peers.clone()?)
    }

    /// Serves a table from now on, in the place of the one of its name if there is one.
    pub fn add(&self, table: Arc<ChunkTable>) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = tables.to_vec();
        match changed.iter_mut().find(|other| other.settings.name == table.settings.name) {
            Some(other) => *other = table,
            None => changed.push(table),
        }
        *tables = changed.into();
    }

    /// Serves the table of this name no longer, and returns it.
    pub fn remove(&self, name: &str) -> Option<Arc<ChunkTable>> {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = tables.to_vec();
        let position = changed.iter().position(|table| table.settings.name == name)?;
        let removed = changed.remove(position);
        *tables = changed.into();
        Some(removed)
    }

    /// Returns the table of this name.
    pub fn get(&self, name: &str) -> Option<Arc<ChunkTable>> {
        self.tables().iter().find(|table| table.settings.name == name).cloned()
    }

    /// Returns the store of this name: that of a table, or of a pattern, which is opened if nobody
    /// has done so.
    pub fn serve(&self, name: &str) -> Result<ServedStore, NotServed> {
        if let Some(table) = self.get(name) {
            return Ok(ServedStore::Table(table));
        }
        let set = self.set_of(name).ok_or(NotServed::Unknown)?;
        let open = set.set.get(name).map_err(NotServed::Failed)?;
        Ok(ServedStore::OfSet(set, open))
    }

    /// Returns the stores of all tables, and those of patterns that are open.
    pub fn open_stores(&self) -> Vec<ServedStore> {
        let (tables, sets) = (self.tables(), self.sets());
        let of_tables = tables.iter().cloned().map(ServedStore::Table);
        let of_set = |set: &Arc<ChunkSet>| {
            let open = set.set.open_stores().into_iter();
            let set = Arc::clone(set);
            open.map(move |open| ServedStore::OfSet(Arc::clone(&set), open))
        };
        of_tables.chain(sets.iter().flat_map(of_set)).collect()
    }

    /// Returns whether a table has this name, or a pattern matches it.
    pub fn knows(&self, name: &str) -> bool {
        self.get(name).is_some() || self.set_of(name).is_some()
    }

    /// Returns the stores by pattern.
    pub fn sets(&self) -> Sets {
        self.sets.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the stores of the first pattern that matches a name.
    pub fn set_of(&self, name: &str) -> Option<Arc<ChunkSet>> {
        let sets = self.sets();
        sets.iter().find(|set| set.settings.pattern.matches(name.as_bytes())).cloned()
    }

    /// Returns the tables that are served now.
    pub fn tables(&self) -> Tables {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the metrics of DynamoDB's tables, each of which several stores may share.
    pub fn dynamo_stats(&self) -> Vec<DynamoStats> {
        self.dynamo.stats()
    }

    /// Returns a handle of the runtime, unless there was no store yet or they have stopped.
    pub fn handle(&self) -> Option<Handle> {
        match &*self.runtime() {
            StoresRuntime::Running(runtime) => Some(runtime.handle().clone()),
            StoresRuntime::Unneeded | StoresRuntime::Stopped => None,
        }
    }

    /// Starts the runtime unless it runs.
    fn start_runtime(&self) -> Result<Handle, Failure> {
        let mut state = self.runtime();
        if matches!(*state, StoresRuntime::Unneeded) {
            *state = StoresRuntime::Running(runtime()?);
        }
        match &*state {
            StoresRuntime::Running(runtime) => Ok(runtime.handle().clone()),
            StoresRuntime::Unneeded | StoresRuntime::Stopped => {
                Err(Failure::run("the chunk stores have stopped"))
            }
        }
    }

    fn runtime(&self) -> MutexGuard<'_, StoresRuntime> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every store has tried to open once, or its time is over. Blocks, so it must not
    /// be called on a runtime's thread.
    pub fn wait_for_first_attempts(&self) {
        let Some(handle) = self.handle() else { return };
        let tables = self.tables();
        handle.block_on(join_all(tables.iter().map(|table| table.wait_for_first_attempt())));
    }

    /// Closes the store of a table that was removed. Blocks, so it must not be called on a
    /// runtime's thread.
    pub fn close(&self, table: &ChunkTable) {
        if let Some(handle) = self.handle() {
            handle.block_on(close(table.store.clone()));
        }
    }

    /// Closes the stores of a pattern that was removed, when calls and downloads under way have
    /// ended, or after [`DRAIN_MAX`]. Blocks, so it must not be called on a runtime's thread.
    pub fn close_set(&self, set: Arc<ChunkSet>) {
        let Some(handle) = self.handle() else { return };
        let drained = async {
            while 0 < set.set.in_use() {
                sleep(DRAIN_POLL_INTERVAL).await;
            }
        };
        handle.block_on(async {
            if timeout(DRAIN_MAX, drained).await.is_err() {
                log::warn!("stores {}: requests in flight are cancelled", set.pattern());
            }
            close_set(Arc::clone(&set)).await;
        });
    }

    /// Closes all stores at the same time, each within [`STOP_GRACE`]; later requests fail. Blocks,
    /// so it must not be called on a runtime's thread.
    pub fn stop(&self) {
        let state = std::mem::replace(&mut *self.runtime(), StoresRuntime::Stopped);
        let StoresRuntime::Running(runtime) = state else { return };
        let tables = self.tables();
        let closing: Vec<_> =
            tables.iter().map(|table| runtime.spawn(close(table.store.clone()))).collect();
        let sets: Vec<_> =
            self.sets().iter().map(|set| runtime.spawn(close_set(Arc::clone(set)))).collect();
        runtime.block_on(async {
            for closing in closing.into_iter().chain(sets) {
                // A task that panicked has reported it already.
                let _ = closing.await;
            }
        });
        // A disk read or a DNS lookup may be stuck in the system, so do not wait for it.
        runtime.shutdown_background();
    }
}

impl ChunkTable {
    fn start(settings: &ChunksSettings, store: Store, runtime: &Handle) -> Result<Self, Failure> {
        let _entered = runtime.enter();
        let ChunksSettings { name, timeout, queue_requests, .. } = settings;
        let form = sources::form_of(settings);
        let queue = sources::start_queue(store.clone(), form, *timeout, *queue_requests);
        let queue = queue.map_err(|error| Failure::usage(format!("table {name}: {error}")))?;
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Self { settings: settings.clone(), store, queue, times: Arc::default(), number })
    }

    /// Makes a table with other settings of the same store, and with the times of this one. Fails
    /// on a setting that makes no sense.
    pub fn with_settings(
        &self,
        settings: &ChunksSettings,
        runtime: &Handle,
    ) -> Result<Self, Failure> {
        let times = Arc::clone(&self.times);
        Ok(Self { times, ..Self::start(settings, self.store.clone(), runtime)? })
    }

    /// Waits until the store has tried to open once, or its time is over.
    pub async fn wait_for_first_attempt(&self) {
        let timeout = FIRST_ATTEMPT_TIMEOUT.min(self.settings.timeout);
        // The store itself reports why it could not be opened.
        if tokio::time::timeout(timeout, self.store.opened()).await.is_err() {
            let name = &self.settings.name;
            log::warn!(
                "table {name}: the store is not open yet; its requests wait for it or time out"
            );
        }
    }
}

impl fmt::Debug for ChunkStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.tables();
        f.debug_list().entries(tables.iter().map(|table| &table.settings.name)).finish()
    }
}

/// Starts to open one store. Reports a URL that makes no sense as a mistake in the configuration.
/// Stores with the same `dynamo` share their requests to DynamoDB.
pub fn start_store(
    settings: &ChunksSettings,
    runtime: &Handle,
    dynamo: DynamoTables,
    peers: Option<Arc<dyn busload_dolt::Peers>>,
) -> Result<Store, Failure> {
    let name = &settings.name;
    let checked = settings.check_url(runtime.clone());
    checked.map_err(|error| Failure::usage(format!("table {name}: {error}")))?;
    let settings = settings.of_store(runtime.clone(), dynamo);
    let started = Store::start(busload_dolt::Settings { peers, ..settings });
    started.map_err(|error| Failure::run(format!("cannot start table {name}: {error}")))
}

async fn close(store: Store) {
    if timeout(STOP_GRACE, store.close()).await.is_err() {
        log::warn!("table {}: work in flight at the shutdown was cancelled", store.name());
    }
}

async fn close_set(set: Arc<ChunkSet>) {
    if timeout(STOP_GRACE, set.set.close()).await.is_err() {
        log::warn!("stores {}: work in flight at the shutdown was cancelled", set.pattern());
    }
}

/// Makes the runtime for chunk stores.
pub fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("chunks")
        .enable_io()
        .enable_time()
        .build();
    runtime
        .map_err(|error| Failure::run(format!("cannot start a runtime for chunk stores: {error}")))
}
