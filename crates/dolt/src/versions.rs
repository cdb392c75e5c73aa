//! Versions of a store: a manifest and the open table files that it names.
//!
//! ```text
//!  Refresher (a task): every poll, or when a request asks
//!     | Opener: manifests (objects, or an item) --> listing --> indexes of new table files
//!     v
//!  Versions: current Version (ArcSwap) = Snapshot + files within their grace period
//!     | a file closes whose dictionaries were advertised, or a client asks for an older file
//!     v
//!  DroppedFiles: known by name only
//! ```

pub(crate) mod dropped_files;
pub(crate) mod object_names;
pub(crate) mod opener;
pub(crate) mod refresh_coalescer;
pub(crate) mod refresher;
pub(crate) mod table_file;
pub(crate) mod version;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use arc_swap::{ArcSwapOption, Guard};
use busload_chunks::ChunkAddress;

use self::{dropped_files::DroppedFiles, refresh_coalescer::RefreshCoalescer, version::Version};
use crate::{Error, lifecycle::Lifecycle};

/// The current version of a store, and the requests to refresh it.
pub(crate) struct Versions {
    lifecycle: Arc<Lifecycle>,
    /// None until the store was opened for the first time.
    current: ArcSwapOption<Version>,
    pub refreshes: RefreshCoalescer,
    pub dropped_files: DroppedFiles,
    count: AtomicU64,
    /// Set by requests, cleared by the refresher.
    is_used: AtomicBool,
}

impl Versions {
    pub fn new(lifecycle: Arc<Lifecycle>) -> Self {
        Self {
            lifecycle,
            current: ArcSwapOption::empty(),
            refreshes: RefreshCoalescer::new(),
            dropped_files: DroppedFiles::default(),
            count: AtomicU64::new(0),
            is_used: AtomicBool::new(true),
        }
    }

    /// Borrows the current version, without touching its reference count.
    pub fn load(&self) -> Guard<Option<Arc<Version>>> {
        self.current.load()
    }

    /// Returns the current version.
    pub fn current(&self) -> Option<Arc<Version>> {
        self.current.load_full()
    }

    /// Returns the current version; waits for it while the store is being opened.
    pub async fn opened(&self) -> Result<Arc<Version>, Error> {
        if let Some(version) = self.current() {
            return Ok(version);
        }
        self.lifecycle.first_attempt().await;
        self.current().ok_or_else(|| self.lifecycle.failure().unwrap_or(Error::Closed))
    }

    /// Like [`Versions::opened`], but a read from local disk only does not wait.
    pub async fn opened_for(&self, local_only: bool) -> Result<Arc<Version>, Error> {
        match self.current() {
            Some(version) => Ok(version),
            None if local_only => Err(self.lifecycle.failure().unwrap_or(Error::NotLocal)),
            None => self.opened().await,
        }
    }

    /// Like [`Versions::opened_for`], from any thread and until a deadline. Starts no task if the
    /// store is open.
    pub async fn opened_by(
        self: &Arc<Self>,
        deadline: Instant,
        local_only: bool,
    ) -> Result<Arc<Version>, Error> {
        match self.current() {
            Some(version) => Ok(version),
            None if local_only => Err(self.lifecycle.failure().unwrap_or(Error::NotLocal)),
            None => {
                let versions = self.clone();
                self.lifecycle.run(deadline, async move { versions.opened().await }).await
            }
        }
    }

    /// Returns the version after a refresh that begins now. A failure's text says that whether the
    /// chunk exists is not known.
    pub async fn refreshed(&self, address: &ChunkAddress) -> Result<Arc<Version>, Error> {
        let unknown = |text| format!("whether chunk {address} exists is not known: {text}");
        self.refreshes.refresh().await.map_err(|error| match error {
            Error::Unreachable(text) => Error::Unreachable(unknown(text)),
            Error::DeadlineExceeded(text) => Error::DeadlineExceeded(unknown(text)),
            other => other,
        })?;
        self.opened().await
    }

    /// Like [`Versions::refreshed`], from any thread and until a deadline.
    pub async fn refreshed_by(
        self: &Arc<Self>,
        deadline: Instant,
        address: ChunkAddress,
    ) -> Result<Arc<Version>, Error> {
        let versions = self.clone();
        self.lifecycle.run(deadline, async move { versions.refreshed(&address).await }).await
    }

    /// Makes a version the current one. What was advertised of files that it does not have is
    /// remembered first.
    pub fn publish(&self, version: &Arc<Version>, previous: Option<&Version>) {
        if let Some(previous) = previous {
            self.dropped_files.remember_closed(previous, version);
        }
        self.current.store(Some(version.clone()));
    }

    /// Notes that there are requests, for which the version has to be kept current.
    pub fn note_used(&self) {
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
    }

    /// Returns whether there were requests since the last call.
    pub fn take_used(&self) -> bool {
        self.is_used.swap(false, Relaxed)
    }

    /// Counts a version with a new manifest.
    pub fn count_new(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    /// Number of manifests seen.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }
}
