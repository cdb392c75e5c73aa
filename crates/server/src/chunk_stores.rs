//! The chunk stores of the configuration, and the runtime that they share.
//!
//! ```text
//!  sources (RESP), gRPC, HTTP, status --> ChunkStores --> busload_dolt::Store, one per table
//!                                             +--> runtime `chunks`: opens, reads, fills, polls
//! ```
//!
//! Only the runtime's threads wait for stores, never those of the pipeline or of HTTP.
//!
//! **Start.** All stores open at the same time; the start waits for the first attempts, at most
//! [`FIRST_ATTEMPT_TIMEOUT`], and then serves, whatever their outcome. **Shutdown.** Each store
//! fails the requests that wait for it and writes to disk what is not there yet, within
//! [`STOP_GRACE`].

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use busload_calls::CallTimes;
use busload_dolt::{DynamoStats, DynamoTables, Store};
use futures_util::future::join_all;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::timeout,
};

use crate::{
    config::ChunksSettings,
    failure::Failure,
    sources::{self, ChunkQueue},
};

/// Async threads: they wait for stores, decode and verify.
const WORKER_THREADS: usize = 2;
/// Threads that block on the disks of all stores; idle ones end. One disk occupies at most eight,
/// so that three disks that hang leave a fourth its eight.
const BLOCKING_THREADS_MAX: usize = 32;
/// Time for work in flight to end at a shutdown.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Longest time that the start waits for a store; a shorter request timeout of its table applies
/// instead.
const FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Message for a store that can be reached but is empty, as after a typing error in its URL.
pub const NO_MANIFEST: &str = "there is no manifest: an empty store, or not the one that was meant";

/// The chunk stores of the configuration.
pub struct ChunkStores {
    tables: Vec<ChunkTable>,
    /// Tables of DynamoDB with the manifests of some stores.
    dynamo: DynamoTables,
    /// None if there are no stores, or after [`ChunkStores::stop`].
    runtime: Mutex<Option<Runtime>>,
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
}

impl ChunkStores {
    /// Starts to open all stores. Fails on a setting that makes no sense, or when another process
    /// uses a cache's directory.
    pub fn start(settings: &[ChunksSettings]) -> Result<Self, Failure> {
        if settings.is_empty() {
            let (tables, dynamo) = Default::default();
            return Ok(Self { tables, dynamo, runtime: Mutex::new(None) });
        }
        let runtime = runtime()?;
        let dynamo = DynamoTables::default();
        let mut tables = Vec::with_capacity(settings.len());
        for settings in settings {
            log::info!("table {}: {}", settings.name, settings.describe());
            let store = start_store(settings, &runtime, dynamo.clone())?;
            tables.push(ChunkTable::start(settings, store, &runtime)?);
        }
        Ok(Self { tables, dynamo, runtime: Mutex::new(Some(runtime)) })
    }

    /// Returns the store of this name.
    pub fn get(&self, name: &str) -> Option<&Store> {
        self.tables.iter().find(|table| table.settings.name == name).map(|table| &table.store)
    }

    /// Returns the stores in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Store> {
        self.tables.iter().map(|table| &table.store)
    }

    /// Returns the stores with their settings and queues.
    pub fn tables(&self) -> &[ChunkTable] {
        &self.tables
    }

    /// Returns the metrics of DynamoDB's tables, each of which several stores may share.
    pub fn dynamo_stats(&self) -> Vec<DynamoStats> {
        self.dynamo.stats()
    }

    /// Returns a handle of the runtime, unless there are no stores or they have stopped.
    pub fn handle(&self) -> Option<Handle> {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.as_ref().map(|runtime| runtime.handle().clone())
    }

    /// Waits until every store has tried to open once, or its time is over. Blocks, so it must not
    /// be called on a runtime's thread.
    pub fn wait_for_first_attempts(&self) {
        let Some(handle) = self.handle() else { return };
        handle.block_on(join_all(self.tables.iter().map(ChunkTable::wait_for_first_attempt)));
    }

    /// Closes all stores at the same time, each within [`STOP_GRACE`]; later requests fail. Blocks,
    /// so it must not be called on a runtime's thread.
    pub fn stop(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(runtime) = runtime else { return };
        let closing: Vec<_> =
            self.iter().cloned().map(|store| runtime.spawn(close(store))).collect();
        runtime.block_on(async {
            for closing in closing {
                // A task that panicked has reported it already.
                let _ = closing.await;
            }
        });
        // A disk read or a DNS lookup may be stuck in the system, so do not wait for it.
        runtime.shutdown_background();
    }
}

impl ChunkTable {
    fn start(settings: &ChunksSettings, store: Store, runtime: &Runtime) -> Result<Self, Failure> {
        let _entered = runtime.enter();
        let ChunksSettings { name, timeout, queue_requests, .. } = settings;
        let form = sources::form_of(settings);
        let queue = sources::start_queue(store.clone(), form, *timeout, *queue_requests);
        let queue = queue.map_err(|error| Failure::usage(format!("table {name}: {error}")))?;
        Ok(Self { settings: settings.clone(), store, queue, times: Arc::default() })
    }

    async fn wait_for_first_attempt(&self) {
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
        f.debug_list().entries(self.tables.iter().map(|table| &table.settings.name)).finish()
    }
}

/// Starts to open one store. Reports a URL that makes no sense as a mistake in the configuration.
/// Stores with the same `dynamo` share their requests to DynamoDB.
pub fn start_store(
    settings: &ChunksSettings,
    runtime: &Runtime,
    dynamo: DynamoTables,
) -> Result<Store, Failure> {
    let name = &settings.name;
    let checked = settings.check_url(runtime.handle().clone());
    checked.map_err(|error| Failure::usage(format!("table {name}: {error}")))?;
    let started = Store::start(settings.of_store(runtime.handle().clone(), dynamo));
    started.map_err(|error| Failure::run(format!("cannot start table {name}: {error}")))
}

async fn close(store: Store) {
    if timeout(STOP_GRACE, store.close()).await.is_err() {
        log::warn!("table {}: work in flight at the shutdown was cancelled", store.name());
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
