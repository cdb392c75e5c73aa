//! The thread that runs one Postgres table.

use std::{sync::mpsc, thread, time::Duration};

use busload_postgres::Error;
use tokio::{runtime::Runtime, sync::oneshot};

use super::{Table, close};
use crate::failure::Failure;

/// Handle of a table's thread.
#[derive(Debug)]
pub struct TableThread {
    name: String,
    /// Receives the outcome of the first attempt to connect.
    first_attempt: mpsc::Receiver<Result<(), Error>>,
    stop: oneshot::Sender<()>,
    /// Disconnects when the thread has ended.
    stopped: mpsc::Receiver<()>,
}

/// Handle of a thread that has been told to end.
pub struct Stopping {
    name: String,
    stopped: mpsc::Receiver<()>,
}

impl TableThread {
    /// Starts the thread, which drives the table's `runtime`.
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

    /// Waits for the first attempt to connect, and returns whether it ended within `timeout`.
    pub fn wait_for_first_attempt(&self, timeout: Duration) -> bool {
        self.first_attempt.recv_timeout(timeout) != Err(mpsc::RecvTimeoutError::Timeout)
    }

    /// Tells the thread to end.
    pub fn stop(self) -> Stopping {
        // The thread may have ended already.
        let _ = self.stop.send(());
        Stopping { name: self.name, stopped: self.stopped }
    }
}

impl Stopping {
    /// Waits until the thread has ended.
    pub fn wait(self, timeout: Duration) {
        // The thread sends nothing; it drops the sender at its end.
        if self.stopped.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
            log::warn!("table {}: its thread does not end and is left behind", self.name);
        }
    }
}

/// Body of the thread, which drops `ended` at its end.
fn run(runtime: Runtime, work: impl Future<Output = ()>, ended: mpsc::Sender<()>) {
    runtime.block_on(work);
    // Does not wait for a DNS lookup that may be stuck in the system.
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
    // An error means that the main thread has ended, which is a reason to stop, too.
    let _ = stopping.await;
    close(table).await;
    connecting.abort();
}
