//! The Postgres tables of the server: the threads or the runtime that run them, and the adapter
//! that makes each a source of the pipeline.
//!
//! **Threads.** If sockets and transactions share one thread (`--net-threads 0`), all Postgres
//! tables run on it, too ([`EmbeddedRuntime`]); otherwise each table has a thread of its own.
//!
//! **Start.** All tables connect at the same time. The start waits until each first attempt has
//! succeeded or failed, and then serves either way. **Overload.** A full queue refuses requests at
//! once. **Shutdown.** After the pipeline has ended, batches in flight have [`STOP_GRACE`] to end.

mod answer;
mod embedded_runtime;
mod source;
mod thread;

use std::{
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

use busload_batch::QueueLatencies;
use busload_io::{Clock, RealClock};
use busload_pipeline::tx::Tx;
use busload_postgres::{Settings, TableStats};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use super::finished::FinishedAnswers;
use crate::{config::POSTGRES, failure::Failure, traces::Tracer};
pub use embedded_runtime::{EmbeddedRuntime, Notifier};
pub use source::state_of;
use source::{PostgresSource, PostgresWaiter};
use thread::TableThread;

/// Time that batches in flight get to finish at shutdown.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The start waits for the first attempt to connect this much longer than the attempt may take.
const FIRST_ATTEMPT_MARGIN: Duration = Duration::from_millis(500);

type Table = busload_postgres::Table<PostgresWaiter>;

/// Placement of the Postgres tables on threads.
#[derive(Clone, Debug)]
pub enum RuntimePlacement {
    /// Each table has a thread of its own; the waker wakes the thread that polls the sources.
    Threads(Waker),
    /// All tables run in a runtime embedded in the thread that polls them; the notifier ends its
    /// wait.
    Embedded(Arc<Notifier>),
}

/// All Postgres tables, started.
#[derive(Debug)]
pub struct PostgresTables {
    tables: Vec<RunningTable>,
    hosts: TableHosts,
    /// Instant at which the pipeline's clock was zero.
    origin: Instant,
}

/// Threads or runtime that run the tables.
#[derive(Debug)]
enum TableHosts {
    Threads(Vec<TableThread>),
    Embedded { runtime: Arc<Runtime>, notifier: Arc<Notifier> },
}

/// A Postgres table that has been started.
#[derive(Debug)]
struct RunningTable {
    settings: Settings,
    table: Table,
    finished: Arc<FinishedAnswers>,
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
    ) -> Result<Self, Failure> {
        let mut tables = Vec::with_capacity(settings.len());
        let hosts = match placement {
            RuntimePlacement::Threads(pipeline) => {
                let mut threads = Vec::with_capacity(settings.len());
                for settings in settings {
                    let runtime = runtime()?;
                    let running = RunningTable::start(settings, &runtime, pipeline.clone());
                    threads.push(TableThread::start(
                        &settings.name,
                        runtime,
                        running.table.clone(),
                    )?);
                    tables.push(running);
                }
                TableHosts::Threads(threads)
            }
            RuntimePlacement::Embedded(notifier) => {
                let runtime = Arc::new(runtime()?);
                tables.extend(
                    settings
                        .iter()
                        .map(|table| RunningTable::start(table, &runtime, notifier.waker())),
                );
                TableHosts::Embedded { runtime, notifier }
            }
        };
        Ok(Self { tables, hosts, origin: origin_of(clock) })
    }

    /// Returns the runtime that runs the tables while the pipeline waits, if they are placed there
    /// and there are any.
    pub fn embedded_runtime(&self) -> Option<EmbeddedRuntime> {
        match &self.hosts {
            TableHosts::Embedded { runtime, notifier } if !self.tables.is_empty() => {
                Some(EmbeddedRuntime::new(Arc::clone(runtime), Arc::clone(notifier)))
            }
            _ => None,
        }
    }

    /// Waits until every table knows whether Postgres can be reached, within bounds. The tables
    /// themselves log the outcome.
    pub fn wait_for_first_attempts(&self) {
        match &self.hosts {
            TableHosts::Threads(threads) => {
                for (running, thread) in self.tables.iter().zip(threads) {
                    running.warn_if_unknown(thread.wait_for_first_attempt(running.timeout()));
                }
            }
            TableHosts::Embedded { runtime, .. } => runtime.block_on(async {
                // All connect at the same time, so the order of the waits does not matter.
                for running in &self.tables {
                    running.warn_if_unknown(
                        timeout(running.timeout(), running.table.connected()).await.is_ok(),
                    );
                }
            }),
        }
    }

    /// Registers the tables as sources of the pipeline.
    pub fn attach(&self, tx: &mut Tx, tracer: &Tracer) {
        for RunningTable { settings, table, finished } in &self.tables {
            let (finished, origin) = (Arc::clone(finished), self.origin);
            let tracer = tracer.of_table(&settings.name, POSTGRES);
            let source = PostgresSource::new(settings, table.clone(), finished, origin, tracer);
            tx.add_source(&settings.name, Box::new(source));
        }
    }

    /// Returns access to the metrics of all tables.
    pub fn metrics(&self) -> Vec<PostgresTableMetrics> {
        let metrics = |running: &RunningTable| PostgresTableMetrics {
            name: running.settings.name.clone(),
            table: running.table.clone(),
        };
        self.tables.iter().map(metrics).collect()
    }

    /// Lets the batches in flight of all tables finish at the same time, and closes connections.
    pub fn stop(self) {
        match self.hosts {
            TableHosts::Threads(threads) => {
                let stopping: Vec<_> = threads.into_iter().map(TableThread::stop).collect();
                stopping
                    .into_iter()
                    .for_each(|stopping| stopping.wait(STOP_GRACE + FIRST_ATTEMPT_MARGIN));
            }
            TableHosts::Embedded { runtime, .. } => {
                runtime.block_on(async {
                    let tables = self.tables.into_iter();
                    let closing: Vec<_> =
                        tables.map(|running| tokio::spawn(close(running.table))).collect();
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
        }
    }
}

impl RunningTable {
    fn start(settings: &Settings, runtime: &Runtime, pipeline: Waker) -> Self {
        log::info!("table {}: {}", settings.name, settings.describe());
        let finished = Arc::new(FinishedAnswers::new(&settings.name, pipeline));
        let _entered = runtime.enter();
        let table = Table::start(settings.clone());
        let notifier = Arc::clone(&finished);
        tokio::spawn(async move { notifier.notify().await });
        Self { settings: settings.clone(), table, finished }
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
