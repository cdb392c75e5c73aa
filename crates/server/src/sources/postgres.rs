//! The Postgres tables of the server: the threads or the runtime that run them, and the adapter
//! that makes each a source of the pipeline.
//!
//! **Threads.** If sockets and transactions share one thread (`--net-threads 0`), all Postgres
//! tables run on it, too ([`EmbeddedRuntime`]); otherwise each table has a thread of its own.
//!
//! **Start.** All tables connect at the same time. The start waits until each first attempt has
//! succeeded or failed, and then serves either way. A reload starts and stops single tables; where
//! there was none at the start, new ones have threads of their own. **Overload.** A full queue
//! refuses requests at once. **Shutdown.** After the pipeline has ended, batches in flight have
//! [`STOP_GRACE`] to end.

mod answer;
mod embedded_runtime;
mod source;
mod thread;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    task::Waker,
    time::{Duration, Instant},
};

use busload_batch::QueueLatencies;
use busload_io::{Clock, RealClock};
use busload_pipeline::{source::Source, tx::Tx};
use busload_postgres::{Settings, TableStats};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::timeout,
};

use super::{
    Pipeline,
    finished::{FinishedAnswers, NotifyTask},
};
use crate::{config::POSTGRES, failure::Failure};
pub use embedded_runtime::{EmbeddedRuntime, Notifier};
pub use source::state_of;
use source::{PostgresSource, PostgresWaiter};
use thread::TableThread;

/// Time that batches in flight get to finish at shutdown.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The start waits for the first attempt to connect this much longer than the attempt may take.
const FIRST_ATTEMPT_MARGIN: Duration = Duration::from_millis(500);

/// Longest time that a table's thread takes to end.
const THREAD_STOP_MAX: Duration = STOP_GRACE.saturating_add(FIRST_ATTEMPT_MARGIN);

type Table = busload_postgres::Table<PostgresWaiter>;

/// Placement of the Postgres tables on threads.
#[derive(Clone, Debug)]
pub enum RuntimePlacement {
    /// Each table has a thread of its own, which wakes the thread that polls the sources.
    Threads,
    /// All tables run in a runtime embedded in the thread that polls them; the notifier ends its
    /// wait.
    Embedded(Arc<Notifier>),
}

/// The Postgres tables of the configuration.
#[derive(Debug)]
pub struct PostgresTables {
    /// Tables that are served, in the order in which they came. A reload changes them.
    tables: Mutex<Vec<RunningTable>>,
    /// Runtime embedded in the pipeline's thread; none after the end.
    embedded: Mutex<Option<Embedded>>,
    pipeline: Pipeline,
    /// Instant at which the pipeline's clock was zero.
    origin: Instant,
}

/// Runtime that the pipeline's thread runs while it waits.
type Embedded = (Arc<Runtime>, Arc<Notifier>);

/// A Postgres table that has been started.
#[derive(Debug)]
pub struct RunningTable {
    settings: Settings,
    table: Table,
    finished: Arc<FinishedAnswers>,
    _notify_task: NotifyTask,
    host: TableHost,
}

/// Thread or runtime that runs a table.
#[derive(Debug)]
enum TableHost {
    Thread(TableThread),
    /// The runtime that is embedded in the pipeline's thread.
    Embedded(Handle),
}

/// Access to the metrics of a Postgres table.
#[derive(Debug)]
pub struct PostgresTableMetrics {
    pub name: String,
    table: Table,
}

impl PostgresTableMetrics {
    /// Returns the current metrics.
    pub fn stats(&self) -> TableStats {
        self.table.stats()
    }

    /// Returns how long requests waited in the queue and statements took.
    pub fn latencies(&self) -> Arc<QueueLatencies> {
        self.table.latencies()
    }
}

impl PostgresTables {
    /// Starts all tables and begins to connect.
    pub fn start(
        settings: &[Settings],
        clock: &RealClock,
        placement: RuntimePlacement,
        pipeline: Pipeline,
    ) -> Result<Self, Failure> {
        let embedded = match placement {
            RuntimePlacement::Embedded(notifier) if !settings.is_empty() => {
                Some((Arc::new(runtime()?), notifier))
            }
            _ => None,
        };
        let tables = Mutex::new(Vec::with_capacity(settings.len()));
        let (embedded, origin) = (Mutex::new(embedded), origin_of(clock));
        let started = Self { tables, embedded, pipeline, origin };
        for settings in settings {
            started.add(started.begin(settings)?);
        }
        Ok(started)
    }

    /// Starts a table, which begins to connect; [`PostgresTables::add`] then serves it.
    pub fn begin(&self, settings: &Settings) -> Result<RunningTable, Failure> {
        match &*self.embedded() {
            None => {
                let waker = self.pipeline.waker.clone();
                RunningTable::start_thread(settings, runtime()?, waker)
            }
            Some((runtime, notifier)) => {
                let handle = runtime.handle().clone();
                let (table, finished, notify_task) =
                    RunningTable::start(settings, &handle, notifier.waker());
                Ok(RunningTable {
                    settings: settings.clone(),
                    table,
                    finished,
                    _notify_task: notify_task,
                    host: TableHost::Embedded(handle),
                })
            }
        }
    }

    /// Serves a table from now on.
    pub fn add(&self, table: RunningTable) {
        self.tables().push(table);
    }

    /// Serves the table of this name no longer, and returns it.
    pub fn remove(&self, name: &str) -> Option<RunningTable> {
        let mut tables = self.tables();
        let position = tables.iter().position(|running| running.settings.name == name)?;
        Some(tables.remove(position))
    }

    /// Returns the runtime that runs the tables while the pipeline waits, if they are placed there
    /// and there are any.
    pub fn embedded_runtime(&self) -> Option<EmbeddedRuntime> {
        let (runtime, notifier) = self.embedded().clone()?;
        Some(EmbeddedRuntime::new(runtime, notifier))
    }

    /// Waits until every table knows whether Postgres can be reached, within bounds. The tables
    /// themselves log the outcome. For the start, where nothing else runs the embedded runtime.
    pub fn wait_for_first_attempts(&self) {
        let tables = self.tables();
        match &*self.embedded() {
            None => tables.iter().for_each(RunningTable::wait_for_first_attempt),
            Some((runtime, _)) => runtime.block_on(async {
                // All connect at the same time, so the order of the waits does not matter.
                for running in &*tables {
                    running.warn_if_unknown(running.connected().await);
                }
            }),
        }
    }

    /// Registers the tables as sources of the pipeline.
    pub fn attach(&self, tx: &mut Tx) {
        for running in &*self.tables() {
            tx.add_source(&running.settings.name, self.source(running));
        }
    }

    /// Makes a table a source of the pipeline.
    pub fn source(&self, running: &RunningTable) -> Box<dyn Source> {
        let RunningTable { settings, table, finished, .. } = running;
        let tracer = self.pipeline.tracer.of_table(&settings.name, POSTGRES);
        let (table, finished) = (table.clone(), Arc::clone(finished));
        Box::new(PostgresSource::new(settings, table, finished, self.origin, tracer))
    }

    /// Returns access to the metrics of all tables.
    pub fn metrics(&self) -> Vec<PostgresTableMetrics> {
        let metrics = |running: &RunningTable| PostgresTableMetrics {
            name: running.settings.name.clone(),
            table: running.table.clone(),
        };
        self.tables().iter().map(metrics).collect()
    }

    /// Lets the batches in flight of all tables finish at the same time, and closes connections.
    /// Called when the pipeline has ended.
    pub fn stop(&self) {
        let tables = std::mem::take(&mut *self.tables());
        let mut stopping = Vec::new();
        let mut closing = Vec::new();
        for RunningTable { table, host, .. } in tables {
            match host {
                TableHost::Thread(thread) => stopping.push(thread.stop()),
                TableHost::Embedded(runtime) => closing.push(runtime.spawn(close(table))),
            }
        }
        if let Some((runtime, _)) = self.embedded().take() {
            runtime.block_on(async {
                for closing in closing {
                    // The panic hook has reported a panic already.
                    let _ = closing.await;
                }
            });
            if let Some(runtime) = Arc::into_inner(runtime) {
                // Does not wait for a DNS lookup that may be stuck in the system.
                runtime.shutdown_background();
            }
        }
        stopping.into_iter().for_each(|stopping| stopping.wait(THREAD_STOP_MAX));
    }

    fn embedded(&self) -> MutexGuard<'_, Option<Embedded>> {
        self.embedded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tables(&self) -> MutexGuard<'_, Vec<RunningTable>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningTable {
    fn start(
        settings: &Settings,
        runtime: &Handle,
        pipeline: Waker,
    ) -> (Table, Arc<FinishedAnswers>, NotifyTask) {
        log::info!("table {}: {}", settings.name, settings.describe());
        let (finished, notify_task) = FinishedAnswers::start(&settings.name, pipeline, runtime);
        let _entered = runtime.enter();
        (Table::start(settings.clone()), finished, notify_task)
    }

    fn start_thread(
        settings: &Settings,
        runtime: Runtime,
        pipeline: Waker,
    ) -> Result<Self, Failure> {
        let (table, finished, notify_task) = Self::start(settings, runtime.handle(), pipeline);
        let thread = TableThread::start(&settings.name, runtime, table.clone())?;
        let (settings, host) = (settings.clone(), TableHost::Thread(thread));
        Ok(Self { settings, table, finished, _notify_task: notify_task, host })
    }

    /// Waits until the table knows whether Postgres can be reached, within bounds. Blocks while
    /// other threads run the table.
    pub fn wait_for_first_attempt(&self) {
        let known = match &self.host {
            TableHost::Thread(thread) => thread.wait_for_first_attempt(self.timeout()),
            TableHost::Embedded(runtime) => {
                let (sender, known) = mpsc::channel();
                let connected = self.connected();
                // This thread may have stopped to wait.
                runtime.spawn(async move { _ = sender.send(connected.await) });
                known.recv().unwrap_or(false)
            }
        };
        self.warn_if_unknown(known);
    }

    /// Lets the batches in flight finish, and closes the connections. Blocks while other threads
    /// run the table.
    pub fn stop(self) {
        match self.host {
            TableHost::Thread(thread) => thread.stop().wait(THREAD_STOP_MAX),
            TableHost::Embedded(runtime) => {
                let (sender, closed) = mpsc::channel();
                let table = self.table;
                runtime.spawn(async move {
                    close(table).await;
                    let _ = sender.send(());
                });
                // At a shutdown nobody runs the table any more, and the sender is dropped.
                let _ = closed.recv();
            }
        }
    }

    /// Waits until the table knows whether Postgres can be reached; returns false after a time.
    fn connected(&self) -> impl Future<Output = bool> + Send + use<> {
        let (table, wait_max) = (self.table.clone(), self.timeout());
        async move { timeout(wait_max, table.connected()).await.is_ok() }
    }

    /// Returns how long to wait for the outcome of the first attempt.
    fn timeout(&self) -> Duration {
        self.settings.server.connect_timeout + FIRST_ATTEMPT_MARGIN
    }

    fn warn_if_unknown(&self, known: bool) {
        if !known {
            let name = &self.settings.name;
            log::warn!("table {name}: no connection yet; its requests wait for one or time out");
        }
    }
}

/// Finishes the batches in flight and closes the connections, within [`STOP_GRACE`].
async fn close(table: Table) {
    if timeout(STOP_GRACE, table.close()).await.is_err() {
        log::warn!("batches in flight at shutdown were aborted");
    }
}

fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build();
    runtime.map_err(|error| Failure::run(format!("cannot start a runtime for the tables: {error}")))
}

/// Returns the instant at which the clock was zero, to convert its times to instants.
#[allow(clippy::disallowed_methods, reason = "this is the edge")]
fn origin_of(clock: &RealClock) -> Instant {
    let (now, since) = (Instant::now(), clock.now());
    now.checked_sub(since).unwrap_or(now)
}
