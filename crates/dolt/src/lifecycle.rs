//! Status and end of a store, and the runtime that does its work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use tokio::{runtime::Handle, sync::watch, task::JoinHandle, time::timeout_at};

use crate::{Error, task::AbortOnDrop};

/// State of a store: served, or why it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreStatus {
    /// The first attempt to open the store has not ended.
    Opening,
    /// The store is served.
    Open,
    /// The last refresh failed, for this reason; the refresher tries again every
    /// `poll`. If the store was open before, its last version is still served.
    Failed(Error),
}

/// Name, status and end of a store. Every other part of the store holds it to run work until a
/// deadline or until the store is closed.
pub(crate) struct Lifecycle {
    name: String,
    url: String,
    runtime: Handle,
    status: watch::Sender<StoreStatus>,
    is_closed: AtomicBool,
    closed: watch::Sender<()>,
}

impl Lifecycle {
    pub fn new(name: String, url: &str, runtime: Handle) -> Self {
        Self {
            name,
            url: url.to_owned(),
            runtime,
            status: watch::Sender::new(StoreStatus::Opening),
            is_closed: AtomicBool::new(false),
            closed: watch::Sender::new(()),
        }
    }

    /// Name of the table, for log lines.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// URL of the object store, for messages.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Runs work on the store's runtime, called from any thread, until its deadline or until the
    /// store is closed. Dropping the returned future aborts the work.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        deadline: Instant,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let lifecycle = self.clone();
        let task = self.spawn(async move { lifecycle.within_deadline(deadline, work).await });
        AbortOnDrop::new(task).join().await?
    }

    /// Polls work that already runs on the store's runtime, until its deadline or until the store
    /// is closed.
    pub async fn within_deadline<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let in_time = timeout_at(deadline.into(), work);
        self.until_closed(async { in_time.await.unwrap_or_else(|_| Err(self.deadline_exceeded())) })
            .await
    }

    /// Polls work until the store is closed.
    pub async fn until_closed<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.closed() => Err(Error::Closed),
            done = work => done,
        }
    }

    /// Returns the error of a request whose deadline passed, with what is known of the cause.
    pub fn deadline_exceeded(&self) -> Error {
        let url = &self.url;
        Error::DeadlineExceeded(match &*self.status.borrow() {
            StoreStatus::Open => format!("{url} did not answer within the time given"),
            StoreStatus::Opening => format!("{url} could not be opened within the time given"),
            StoreStatus::Failed(error) => {
                format!("{url} did not answer within the time given; before that: {error}")
            }
        })
    }

    pub fn status(&self) -> StoreStatus {
        self.status.borrow().clone()
    }

    /// Sets the status and returns the previous one.
    pub fn replace_status(&self, next: StoreStatus) -> StoreStatus {
        self.status.send_replace(next)
    }

    /// Returns why the last refresh failed, if it did.
    pub fn failure(&self) -> Option<Error> {
        match &*self.status.borrow() {
            StoreStatus::Failed(error) => Some(error.clone()),
            StoreStatus::Opening | StoreStatus::Open => None,
        }
    }

    /// Waits until the first attempt to open the store has ended.
    pub async fn first_attempt(&self) {
        let mut status = self.status.subscribe();
        // Waiting cannot fail: the sender is a field of this struct.
        let _ = status.wait_for(|status| *status != StoreStatus::Opening).await;
    }

    /// Closes the store: waiting and later requests fail with [`Error::Closed`].
    pub fn close(&self) {
        self.is_closed.store(true, Relaxed);
        self.closed.send_replace(());
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Waits until the store is closed.
    pub async fn closed(&self) {
        let mut closed = self.closed.subscribe();
        // The subscription precedes the check of the flag, so no close between them is missed.
        while !self.is_closed() && closed.changed().await.is_ok() {}
    }
}
