//! Work on other threads.

use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use crate::Error;

/// Runs work that blocks or takes long on a thread for such work. Fails only when the runtime ends
/// first.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    spawn_blocking(work).await.map_err(ended)
}

/// Task that is aborted when its handle is dropped.
pub(crate) struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    pub fn new(task: JoinHandle<T>) -> Self {
        Self(task)
    }

    /// Waits for the task's result; fails only if the runtime ends first.
    pub async fn join(mut self) -> Result<T, Error> {
        (&mut self.0).await.map_err(ended)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn ended(error: JoinError) -> Error {
    if error.is_panic() {
        std::panic::resume_unwind(error.into_panic());
    }
    Error::Closed
}
