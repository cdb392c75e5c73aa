//! Tables that are not in memory: a thread with a runtime of its own for each, and an adapter that makes it a
//! [`Source`](busload_pipeline::source::Source) of the pipeline.
//!
//! ```text
//!  pipeline: submit, flush --> waiting line --> thread of the table: batches --> Postgres
//!     ^                                           |
//!     +--- woken once per batch <--- finished <---+
//! ```
//!
//! **Start.** All connect at the same time; the start waits for the outcome of the first attempts and then serves, whatever it
//! was. **Overload.** A full line refuses at once. **Shutdown.** When the pipeline has ended, what
//! is under way may end too, for [`STOP_GRACE`] at most.

mod answer;
mod finished;
mod postgres;

use std::{
    sync::{Arc, mpsc},
    task::Waker,
    thread,
    time::{Duration, Instant},
};

use busload_io::{Clock, RealClock};
use busload_pipeline::tx::Tx;
use busload_postgres::{Error, Settings, TableStats};
use tokio::{runtime::Runtime, sync::oneshot, time::timeout};

use crate::failure::Failure;
use finished::Finished;
use postgres::{PostgresSource, Waiter};
pub use postgres::{batches_in_flight, state_of};

/// What is under way at the end may take so long.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// So much longer than one attempt to connect the start waits for its outcome.
const FIRST_ATTEMPT_MARGIN: Duration = Duration::from_millis(500);

type Table = busload_postgres::Table<Waiter>;

/// All of them.
#[derive(Debug)]
pub struct Sources {
    tables: Vec<Running>,
    /// When the pipeline's clock began.
    origin: Instant,
}

/// One table and its thread.
#[derive(Debug)]
struct Running {
    name: String,
    settings: Settings,
    table: Table,
    finished: Arc<Finished>,
    /// The outcome of the first attempt to connect.
    first_attempt: mpsc::Receiver<Result<(), Error>>,
    stop: oneshot::Sender<()>,
    /// Ends when the thread has done what it could.
    stopped: mpsc::Receiver<()>,
}

/// For whoever shows figures.
#[derive(Debug)]
pub struct Watched {
    /// The table's name.
    pub name: String,
    table: Table,
}

impl Watched {
    /// The figures now.
    pub fn stats(&self) -> TableStats {
        self.table.stats()
    }
}

impl Sources {
    /// Starts a thread for each; `pipeline` wakes who polls the sources.
    pub fn start(settings: &[Settings], clock: &RealClock, pipeline: &Waker) -> Result<Self, Failure> {
        let tables = settings.iter().map(|settings| Running::start(settings.clone(), pipeline.clone()));
        Ok(Self { tables: tables.collect::<Result<_, _>>()?, origin: origin_of(clock) })
    }

    /// Waits until it is known of every table whether Postgres can be reached. The tables themselves log what it is.
    pub fn wait_for_first_attempts(&self) {
        for running in &self.tables {
            let patience = running.settings.server.connect_timeout + FIRST_ATTEMPT_MARGIN;
            if running.first_attempt.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
                log::warn!(
                    "table {}: no connection yet; its requests wait for one or time out",
                    running.name
                );
            }
        }
    }

    /// Gives the pipeline its sources.
    pub fn attach(&self, tx: &mut Tx) {
        for running in &self.tables {
            let finished = Arc::clone(&running.finished);
            let source = PostgresSource::new(&running.settings, running.table.clone(), finished, self.origin);
            tx.add_source(&running.name, Box::new(source));
        }
    }

    /// For whoever shows figures.
    pub fn watched(&self) -> Vec<Watched> {
        let watched =
            |running: &Running| Watched { name: running.name.clone(), table: running.table.clone() };
        self.tables.iter().map(watched).collect()
    }

    /// Lets what is under way end, all tables at the same time, and closes the connections.
    pub fn stop(self) {
        let stopping: Vec<_> = self.tables.into_iter().map(Running::stop).collect();
        for (name, stopped) in stopping {
            // The sender is dropped without a word: that is the end of the thread.
            if stopped.recv_timeout(STOP_GRACE + FIRST_ATTEMPT_MARGIN) == Err(mpsc::RecvTimeoutError::Timeout)
            {
                log::warn!("table {name}: its thread does not end and is left behind");
            }
        }
    }
}

impl Running {
    fn start(settings: Settings, pipeline: Waker) -> Result<Self, Failure> {
        let name = settings.name.clone();
        log::info!("table {name}: {}", settings.describe());
        let failed = |error: std::io::Error| Failure::run(format!("cannot start table {name}: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(failed)?;
        let finished = Arc::new(Finished::new(pipeline));
        let table = {
            let _entered = runtime.enter();
            Table::start(settings.clone())
        };
        let (first, first_attempt) = mpsc::channel();
        let (stop, stopping) = oneshot::channel();
        let (ended, stopped) = mpsc::channel();
        let work = serve(table.clone(), Arc::clone(&finished), first, stopping);
        let body = move || run(runtime, work, ended);
        thread::Builder::new().name(format!("pg:{name}")).spawn(body).map_err(failed)?;
        Ok(Self { name: settings.name.clone(), settings, table, finished, first_attempt, stop, stopped })
    }

    fn stop(self) -> (String, mpsc::Receiver<()>) {
        // Its thread may have ended already.
        let _ = self.stop.send(());
        (self.name, self.stopped)
    }
}

/// The thread of a table. Dropping `ended` says that it is over.
fn run(runtime: Runtime, work: impl Future<Output = ()>, ended: mpsc::Sender<()>) {
    runtime.block_on(work);
    // A lookup of a name may be stuck in the system: nobody waits for it.
    runtime.shutdown_background();
    drop(ended);
}

async fn serve(
    table: Table,
    finished: Arc<Finished>,
    first_attempt: mpsc::Sender<Result<(), Error>>,
    stopping: oneshot::Receiver<()>,
) {
    let bell = tokio::spawn(async move { finished.ring().await });
    let connecting = tokio::spawn({
        let table = table.clone();
        // The start may have stopped waiting.
        async move { _ = first_attempt.send(table.connected().await) }
    });
    // An error is the end of the process's main thread: that is a reason to stop, too.
    let _ = stopping.await;
    if timeout(STOP_GRACE, table.close()).await.is_err() {
        log::warn!("batches under way at the end were given up");
    }
    connecting.abort();
    bell.abort();
}

/// When the clock's time was zero, so that its times can be given to others.
#[allow(clippy::disallowed_methods, reason = "this is the edge")]
fn origin_of(clock: &RealClock) -> Instant {
    let (now, since) = (Instant::now(), clock.now());
    now.checked_sub(since).unwrap_or(now)
}
