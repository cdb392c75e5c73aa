//! Tables that are not in memory: a runtime for them, and an adapter that makes each a
//! [`Source`](busload_pipeline::source::Source) of the pipeline.
//!
//! ```text
//!  pipeline: submit, flush --> waiting line --> runtime: batches --> Postgres, chunk stores
//!     ^                                           |
//!     +--- woken once per batch <--- finished <---+
//! ```
//!
//! **Threads.** Where sockets and transactions share a thread, the tables share it, too
//! ([`EmbeddedRuntime`]); otherwise each table has a thread of its own. Chunk stores have a runtime
//! of theirs ([`ChunkStores`]) in both cases.
//!
//! **Start.** All connect at the same time; the start waits for the outcome of the first attempts
//! and then serves, whatever it was. **Overload.** A full line refuses at once. **Shutdown.** When
//! the pipeline has ended, what is under way may end too, for [`STOP_GRACE`] at most.

mod answer;
mod chunks;
mod embedded_runtime;
mod finished;
mod postgres;
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
use chunks::{About, ChunksSource};
pub use chunks::{Line, state_of as store_state};
pub use embedded_runtime::{EmbeddedRuntime, Notifier};
use finished::Finished;
use postgres::{PostgresSource, Waiter};
pub use postgres::{batches_in_flight, state_of};
use thread::TableThread;

/// What is under way at the end may take so long.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// So much longer than one attempt to connect the start waits for its outcome.
const FIRST_ATTEMPT_MARGIN: Duration = Duration::from_millis(500);

type Table = busload_postgres::Table<Waiter>;

/// Where tables run.
#[derive(Clone, Debug)]
pub enum Place {
    /// Each on a thread of its own; the waker wakes who polls sources.
    Threads(Waker),
    /// As guests of the thread that polls them; it comes back when the notifier rings.
    Guests(Arc<Notifier>),
}

/// All of them.
#[derive(Debug)]
pub struct Sources {
    tables: Vec<Running>,
    hosts: Hosts,
    /// When the pipeline's clock began.
    origin: Instant,
}

/// Who runs the tables.
#[derive(Debug)]
enum Hosts {
    Threads(Vec<TableThread>),
    Guests { runtime: Arc<Runtime>, notifier: Arc<Notifier> },
}

/// One table.
#[derive(Debug)]
struct Running {
    settings: Settings,
    table: Table,
    finished: Arc<Finished>,
}

/// For whoever shows metrics.
#[derive(Debug)]
pub struct Watched {
    /// The table's name.
    pub name: String,
    table: Table,
}

impl Watched {
    /// The metrics now.
    pub fn stats(&self) -> TableStats {
        self.table.stats()
    }
}

impl Sources {
    /// Starts all tables.
    pub fn start(settings: &[Settings], clock: &RealClock, place: Place) -> Result<Self, Failure> {
        let mut tables = Vec::with_capacity(settings.len());
        let hosts = match place {
            Place::Threads(pipeline) => {
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
            Place::Guests(notifier) => {
                let runtime = Arc::new(runtime()?);
                tables.extend(
                    settings.iter().map(|table| Running::start(table, &runtime, notifier.waker())),
                );
                Hosts::Guests { runtime, notifier }
            }
        };
        Ok(Self { tables, hosts, origin: origin_of(clock) })
    }

    /// What runs the tables while the pipeline waits, if that is where they run and there are any.
    pub fn embedded_runtime(&self) -> Option<EmbeddedRuntime> {
        match &self.hosts {
            Hosts::Guests { runtime, notifier } if !self.tables.is_empty() => {
                Some(EmbeddedRuntime::new(Arc::clone(runtime), Arc::clone(notifier)))
            }
            _ => None,
        }
    }

    /// Waits until it is known of every table whether Postgres can be reached. The tables
    /// themselves log what it is.
    pub fn wait_for_first_attempts(&self) {
        match &self.hosts {
            Hosts::Threads(threads) => {
                for (running, thread) in self.tables.iter().zip(threads) {
                    running.say_if_unknown(thread.wait_for_first_attempt(running.timeout()));
                }
            }
            Hosts::Guests { runtime, .. } => runtime.block_on(async {
                // They connect at the same time, whoever is waited for.
                for running in &self.tables {
                    running.say_if_unknown(
                        timeout(running.timeout(), running.table.connected()).await.is_ok(),
                    );
                }
            }),
        }
    }

    /// Gives the pipeline its sources.
    pub fn attach(&self, tx: &mut Tx) {
        for Running { settings, table, finished } in &self.tables {
            let source =
                PostgresSource::new(settings, table.clone(), Arc::clone(finished), self.origin);
            tx.add_source(&settings.name, Box::new(source));
        }
    }

    /// For whoever shows metrics.
    pub fn watched(&self) -> Vec<Watched> {
        let watched = |running: &Running| Watched {
            name: running.settings.name.clone(),
            table: running.table.clone(),
        };
        self.tables.iter().map(watched).collect()
    }

    /// Lets what is under way end, all tables at the same time, and closes the connections.
    pub fn stop(self) {
        match self.hosts {
            Hosts::Threads(threads) => {
                let stopping: Vec<_> = threads.into_iter().map(TableThread::stop).collect();
                stopping
                    .into_iter()
                    .for_each(|stopping| stopping.wait(STOP_GRACE + FIRST_ATTEMPT_MARGIN));
            }
            Hosts::Guests { runtime, .. } => {
                runtime.block_on(async {
                    let tables = self.tables.into_iter();
                    let closing: Vec<_> =
                        tables.map(|running| tokio::spawn(close(running.table))).collect();
                    for closing in closing {
                        // A panic has been reported by itself.
                        let _ = closing.await;
                    }
                });
                if let Some(runtime) = Arc::into_inner(runtime) {
                    // A lookup of a name may be stuck in the system: nobody waits for it.
                    runtime.shutdown_background();
                }
            }
        }
    }
}

impl Running {
    fn start(settings: &Settings, runtime: &Runtime, pipeline: Waker) -> Self {
        log::info!("table {}: {}", settings.name, settings.describe());
        let finished = Arc::new(Finished::new(pipeline));
        let _entered = runtime.enter();
        let table = Table::start(settings.clone());
        let notifier = Arc::clone(&finished);
        tokio::spawn(async move { notifier.notify().await });
        Self { settings: settings.clone(), table, finished }
    }

    /// For how long the outcome of the first attempt is worth waiting for.
    fn timeout(&self) -> Duration {
        self.settings.server.connect_timeout + FIRST_ATTEMPT_MARGIN
    }

    fn say_if_unknown(&self, known: bool) {
        if !known {
            let name = &self.settings.name;
            log::warn!("table {name}: no connection yet; its requests wait for one or time out");
        }
    }
}

/// Serves what is under way and closes the connections, within bounds.
async fn close(table: Table) {
    if timeout(STOP_GRACE, table.close()).await.is_err() {
        log::warn!("batches under way at the end were given up");
    }
}

fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build();
    runtime.map_err(|error| Failure::run(format!("cannot start a runtime for the tables: {error}")))
}

/// Gives the pipeline its chunk stores; `pipeline` wakes who polls them.
pub fn attach_chunks(
    stores: &ChunkStores,
    tx: &mut Tx,
    signals: &Arc<Signals>,
    clock: &RealClock,
    pipeline: &Waker,
) {
    let Some(runtime) = stores.handle() else { return };
    let origin = origin_of(clock);
    for ChunkTable { settings, store, line } in stores.tables() {
        let finished = Arc::new(Finished::new(pipeline.clone()));
        let notifier = Arc::clone(&finished);
        runtime.spawn(async move { notifier.notify().await });
        let about = About { settings, line, signals, origin, runtime: runtime.clone() };
        tx.add_source(&settings.name, Box::new(ChunksSource::new(about, store.clone(), finished)));
    }
}

/// When the clock's time was zero, so that its times can be given to others.
#[allow(clippy::disallowed_methods, reason = "this is the edge")]
fn origin_of(clock: &RealClock) -> Instant {
    let (now, since) = (Instant::now(), clock.now());
    now.checked_sub(since).unwrap_or(now)
}
