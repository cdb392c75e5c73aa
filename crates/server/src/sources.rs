//! Tables that are not in memory: the runtimes that serve them, and adapters that make each a
//! [`Source`](busload_pipeline::source::Source) of the pipeline.
//!
//! ```text
//!  pipeline: submit, flush --> request queue --> runtime: batches --> Postgres, chunk stores
//!     ^                                            |
//!     +--- woken once per batch <--- finished <----+
//! ```
//!
//! **Threads.** If sockets and transactions share one thread, all Postgres tables run on it, too
//! ([`EmbeddedRuntime`]); otherwise each has a thread of its own. Chunk stores have a runtime of
//! their own ([`ChunkStores`]) in both cases.
//!
//! **Start.** All tables connect at the same time. The start waits until each first attempt has
//! succeeded or failed, and then serves either way. **Overload.** A full queue refuses requests at
//! once. **Shutdown.** After the pipeline has ended, batches in flight have [`STOP_GRACE`] to end.

mod answer;
mod chunks;
mod embedded_runtime;
mod finished;
mod postgres;
mod requests;
mod thread;

use std::{
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

use busload_io::{Clock, RealClock};
use busload_pipeline::tx::{Signals, Tx};
use busload_postgres::{Settings, TableStats};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use crate::{
    chunk_stores::{ChunkStores, ChunkTable},
    failure::Failure,
};
use chunks::ChunksSource;
pub use chunks::{ChunkQueue, form_of, start_queue, state_of as store_state};
pub use embedded_runtime::{EmbeddedRuntime, Notifier};
use finished::Finished;
pub use postgres::state_of;
use postgres::{PostgresSource, Waiter};
use thread::TableThread;

/// Time that batches in flight get to finish at shutdown.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The start waits for the first attempt to connect this much longer than the attempt may take.
const FIRST_ATTEMPT_MARGIN: Duration = Duration::from_millis(500);

type Table = busload_postgres::Table<Waiter>;

/// Placement of the tables on threads.
#[derive(Clone, Debug)]
pub enum RuntimePlacement {
    /// Each table has a thread of its own; the waker wakes the thread that polls the sources.
    Threads(Waker),
    /// All tables run in a runtime embedded in the thread that polls them; the notifier ends its
    /// wait.
    Embedded(Arc<Notifier>),
}

/// All tables in Postgres, running.
#[derive(Debug)]
pub struct Sources {
    tables: Vec<Running>,
    hosts: Hosts,
    /// Instant at which the pipeline's clock was zero.
    origin: Instant,
}

/// Threads or runtime that run the tables.
#[derive(Debug)]
enum Hosts {
    Threads(Vec<TableThread>),
    Embedded { runtime: Arc<Runtime>, notifier: Arc<Notifier> },
}

/// A table that has been started.
#[derive(Debug)]
struct Running {
    settings: Settings,
    table: Table,
    finished: Arc<Finished>,
}

/// Access to the metrics of a table.
#[derive(Debug)]
pub struct TableMetrics {
    pub name: String,
    table: Table,
}

impl TableMetrics {
    /// Returns the current metrics.
    pub fn stats(&self) -> TableStats {
        self.table.stats()
    }
}

impl Sources {
    /// Starts all tables and begins to connect.
    pub fn start(
        settings: &[Settings],
        clock: &RealClock,
        place: RuntimePlacement,
    ) -> Result<Self, Failure> {
        let mut tables = Vec::with_capacity(settings.len());
        let hosts = match place {
            RuntimePlacement::Threads(pipeline) => {
                let mut threads = Vec::with_capacity(settings.len());
                for settings in settings {
                    let runtime = runtime()?;
                    let running = Running::start(settings, &runtime, pipeline.clone());
                    threads.push(TableThread::start(
                        &settings.name,
                        runtime,
                        running.table.clone(),
                    )?);
                    tables.push(running);
                }
                Hosts::Threads(threads)
            }
            RuntimePlacement::Embedded(notifier) => {
                let runtime = Arc::new(runtime()?);
                tables.extend(
                    settings.iter().map(|table| Running::start(table, &runtime, notifier.waker())),
                );
                Hosts::Embedded { runtime, notifier }
            }
        };
        Ok(Self { tables, hosts, origin: origin_of(clock) })
    }

    /// Returns the runtime that runs the tables while the pipeline waits, if they are placed there
    /// and there are any.
    pub fn embedded_runtime(&self) -> Option<EmbeddedRuntime> {
        match &self.hosts {
            Hosts::Embedded { runtime, notifier } if !self.tables.is_empty() => {
                Some(EmbeddedRuntime::new(Arc::clone(runtime), Arc::clone(notifier)))
            }
            _ => None,
        }
    }

    /// Waits until every table knows whether Postgres can be reached, within bounds. The tables
    /// themselves log the outcome.
    pub fn wait_for_first_attempts(&self) {
        match &self.hosts {
            Hosts::Threads(threads) => {
                for (running, thread) in self.tables.iter().zip(threads) {
                    running.warn_if_unknown(thread.wait_for_first_attempt(running.timeout()));
                }
            }
            Hosts::Embedded { runtime, .. } => runtime.block_on(async {
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
    pub fn attach(&self, tx: &mut Tx) {
        for Running { settings, table, finished } in &self.tables {
            let source =
                PostgresSource::new(settings, table.clone(), Arc::clone(finished), self.origin);
            tx.add_source(&settings.name, Box::new(source));
        }
    }

    /// Returns access to the metrics of all tables.
    pub fn watched(&self) -> Vec<TableMetrics> {
        let watched = |running: &Running| TableMetrics {
            name: running.settings.name.clone(),
            table: running.table.clone(),
        };
        self.tables.iter().map(watched).collect()
    }

    /// Lets the batches in flight of all tables finish at the same time, and closes connections.
    pub fn stop(self) {
        match self.hosts {
            Hosts::Threads(threads) => {
                let stopping: Vec<_> = threads.into_iter().map(TableThread::stop).collect();
                stopping
                    .into_iter()
                    .for_each(|stopping| stopping.wait(STOP_GRACE + FIRST_ATTEMPT_MARGIN));
            }
            Hosts::Embedded { runtime, .. } => {
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

impl Running {
    fn start(settings: &Settings, runtime: &Runtime, pipeline: Waker) -> Self {
        log::info!("table {}: {}", settings.name, settings.describe());
        let finished = Arc::new(Finished::new(&settings.name, pipeline));
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

/// Registers the chunk stores as sources of the pipeline; `pipeline` wakes the thread that polls
/// them.
pub fn attach_chunks(stores: &ChunkStores, tx: &mut Tx, signals: &Arc<Signals>, pipeline: &Waker) {
    let Some(runtime) = stores.handle() else { return };
    for ChunkTable { settings, store, queue } in stores.tables() {
        let finished = Arc::new(Finished::new(&settings.name, pipeline.clone()));
        let notifier = Arc::clone(&finished);
        runtime.spawn(async move { notifier.notify().await });
        let (queue, signals) = (queue.clone(), Arc::clone(signals));
        let source = ChunksSource::new(settings, store.clone(), queue, finished, signals);
        tx.add_source(&settings.name, Box::new(source));
    }
}

/// Returns the instant at which the clock was zero, to convert its times to instants.
#[allow(clippy::disallowed_methods, reason = "this is the edge")]
fn origin_of(clock: &RealClock) -> Instant {
    let (now, since) = (Instant::now(), clock.now());
    now.checked_sub(since).unwrap_or(now)
}
