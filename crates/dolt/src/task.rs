//! Work on other threads.

use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use crate::Error;

/// Work that blocks or takes long, on a thread that may. It is not done only when the runtime ends.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    spawn_blocking(work).await.map_err(ended)
}

/// A task that ends when nobody waits for it.
pub(crate) struct Owned<T>(JoinHandle<T>);

impl<T> Owned<T> {
    pub fn new(task: JoinHandle<T>) -> Self {
        Self(task)
    }

    /// What it comes to; an error only if the runtime ends before it.
    pub async fn join(mut self) -> Result<T, Error> {
        (&mut self.0).await.map_err(ended)
    }
}

impl<T> Drop for Owned<T> {
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
