//! A thread of its own for one table.

use std::{sync::mpsc, thread, time::Duration};

use busload_postgres::Error;
use tokio::{runtime::Runtime, sync::oneshot};

use super::{Table, close};
use crate::failure::Failure;

/// The thread that runs a table.
#[derive(Debug)]
pub struct TableThread {
    name: String,
    /// The outcome of the first attempt to connect.
    first_attempt: mpsc::Receiver<Result<(), Error>>,
    stop: oneshot::Sender<()>,
    /// Ends when the thread has done what it could.
    stopped: mpsc::Receiver<()>,
}

/// A thread that has been told to end.
pub struct Stopping {
    name: String,
    stopped: mpsc::Receiver<()>,
}

impl TableThread {
    /// Starts it; `runtime` is the table's.
    pub fn start(name: &str, runtime: Runtime, table: Table) -> Result<Self, Failure> {
        let (first, first_attempt) = mpsc::channel();
        let (stop, stopping) = oneshot::channel();
        let (ended, stopped) = mpsc::channel();
        let work = serve(table, first, stopping);
        let spawned = thread::Builder::new()
            .name(format!("pg:{name}"))
            .spawn(move || run(runtime, work, ended));
        spawned.map_err(|error| Failure::run(format!("cannot start table {name}: {error}")))?;
        Ok(Self { name: name.to_owned(), first_attempt, stop, stopped })
    }

    /// Whether the outcome of the first attempt to connect was known in time.
    pub fn wait_for_first_attempt(&self, timeout: Duration) -> bool {
        self.first_attempt.recv_timeout(timeout) != Err(mpsc::RecvTimeoutError::Timeout)
    }

    /// Tells it to end.
    pub fn stop(self) -> Stopping {
        // It may have ended already.
        let _ = self.stop.send(());
        Stopping { name: self.name, stopped: self.stopped }
    }
}

impl Stopping {
    /// Waits until it has ended.
    pub fn wait(self, timeout: Duration) {
        // The sender is dropped without a word: that is the end of the thread.
        if self.stopped.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
            log::warn!("table {}: its thread does not end and is left behind", self.name);
        }
    }
}

/// The thread. Dropping `ended` says that it is over.
fn run(runtime: Runtime, work: impl Future<Output = ()>, ended: mpsc::Sender<()>) {
    runtime.block_on(work);
    // A lookup of a name may be stuck in the system: nobody waits for it.
    runtime.shutdown_background();
    drop(ended);
}

async fn serve(
    table: Table,
    first_attempt: mpsc::Sender<Result<(), Error>>,
    stopping: oneshot::Receiver<()>,
) {
    let connecting = tokio::spawn({
        let table = table.clone();
        // The start may have stopped waiting.
        async move { _ = first_attempt.send(table.connected().await) }
    });
    // An error is the end of the process's main thread: that is a reason to stop, too.
    let _ = stopping.await;
    close(table).await;
    connecting.abort();
}
