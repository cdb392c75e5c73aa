//! All chunk stores, and the runtime they share.
//!
//! ```text
//!  sources (RESP), gRPC, HTTP, status --> ChunkStores --> busload_dolt::Store, one per table
//!                                             +--> runtime `chunks`: opening, reads, fills, polls
//! ```
//!
//! Whatever waits for a store waits on the runtime's threads: neither the pipeline nor HTTP has any
//! of it on theirs.
//!
//! **Start.** All open at the same time; the start waits for the outcome of the first attempts,
//! within bounds, and then serves, whatever it was. **Shutdown.** What waits is answered with an
//! error and what is not on disk yet is written, for [`STOP_GRACE`] at most.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use busload_dolt::Store;
use futures_util::future::join_all;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::timeout,
};

use crate::{config::ChunksSettings, failure::Failure, sources::Line};

/// Threads that wait for stores, decode and check.
const WORKER_THREADS: usize = 2;
/// Threads that wait for disks, of all stores; those that have nothing to do end. One disk holds
/// eight at most, so that three that hang leave a fourth what it may have.
const BLOCKING_THREADS_MAX: usize = 32;
/// What is under way at the end may take so long.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The start waits no longer than this for a store, and never longer than for one of its requests.
const FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// A store is there, but there is nothing in it: a typing error looks like that.
pub const NO_MANIFEST: &str = "there is no manifest: an empty store, or not the one that was meant";

/// All chunk stores of the configuration.
pub struct ChunkStores {
    tables: Vec<ChunkTable>,
    /// None when there are no stores, and after the end.
    runtime: Mutex<Option<Runtime>>,
}

/// One store, as a table.
#[derive(Debug)]
pub struct ChunkTable {
    /// As it was configured.
    pub settings: ChunksSettings,
    /// What answers.
    pub store: Store,
    /// Requests of RESP clients that wait for it.
    pub line: Arc<Line>,
}

impl ChunkStores {
    /// Starts to open all of them. An error is a setting that makes no sense, or another process in
    /// a cache's directory.
    pub fn start(settings: &[ChunksSettings]) -> Result<Self, Failure> {
        if settings.is_empty() {
            return Ok(Self { tables: Vec::new(), runtime: Mutex::new(None) });
        }
        let runtime = runtime()?;
        let mut tables = Vec::with_capacity(settings.len());
        for settings in settings {
            log::info!("table {}: {}", settings.name, settings.describe());
            let store = start_store(settings, &runtime)?;
            tables.push(ChunkTable { settings: settings.clone(), store, line: Arc::default() });
        }
        Ok(Self { tables, runtime: Mutex::new(Some(runtime)) })
    }

    /// The store of this name.
    pub fn get(&self, name: &str) -> Option<&Store> {
        self.tables.iter().find(|table| table.settings.name == name).map(|table| &table.store)
    }

    /// All of them, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Store> {
        self.tables.iter().map(|table| &table.store)
    }

    /// All of them, with what belongs to them as tables.
    pub fn tables(&self) -> &[ChunkTable] {
        &self.tables
    }

    /// Where their work runs, while there is any.
    pub fn handle(&self) -> Option<Handle> {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.as_ref().map(|runtime| runtime.handle().clone())
    }

    /// Waits until it is known of every store whether it can be opened, or for a while. Not for
    /// threads of a runtime.
    pub fn wait_for_first_attempts(&self) {
        let Some(handle) = self.handle() else { return };
        handle.block_on(join_all(self.tables.iter().map(ChunkTable::wait_for_first_attempt)));
    }

    /// Ends them all at the same time, within bounds. What is asked afterwards is answered with an
    /// error. Not for threads of a runtime.
    pub fn stop(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(runtime) = runtime else { return };
        let closing: Vec<_> =
            self.iter().cloned().map(|store| runtime.spawn(close(store))).collect();
        runtime.block_on(async {
            for closing in closing {
                // A panic has been reported by itself.
                let _ = closing.await;
            }
        });
        // A read of a disk or a lookup of a name may be stuck in the system: nobody waits for it.
        runtime.shutdown_background();
    }
}

impl ChunkTable {
    async fn wait_for_first_attempt(&self) {
        let timeout = FIRST_ATTEMPT_TIMEOUT.min(self.settings.timeout);
        // Why a store is not open the store itself says.
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

/// Starts to open one store. A URL that makes no sense is a mistake in the configuration.
pub fn start_store(settings: &ChunksSettings, runtime: &Runtime) -> Result<Store, Failure> {
    let name = &settings.name;
    let checked = settings.check_url(runtime.handle().clone());
    checked.map_err(|error| Failure::usage(format!("table {name}: {error}")))?;
    let started = Store::start(settings.of_store(runtime.handle().clone()));
    started.map_err(|error| Failure::run(format!("cannot start table {name}: {error}")))
}

async fn close(store: Store) {
    if timeout(STOP_GRACE, store.close()).await.is_err() {
        log::warn!("table {}: what was under way at the end was given up", store.name());
    }
}

/// What stores run on.
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
