//! Whether the disk can be relied on now.

use std::{
    fmt::Display,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use crate::disk::limits::READ_FAILURES_MAX;

/// What is not to be done with a disk that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bypass {
    /// What is there can still be read.
    Writes,
    /// It is left alone.
    All,
}

/// Whether the disk can be relied on now, and why not.
#[derive(Debug)]
pub(crate) struct Health {
    directory: PathBuf,
    is_writable: AtomicBool,
    is_readable: AtomicBool,
    reason: Mutex<Option<String>>,
    errors: AtomicU64,
    /// Failed reads since the last good one.
    read_failures: AtomicU32,
}

impl Health {
    /// Nothing is known against it.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            is_writable: AtomicBool::new(true),
            is_readable: AtomicBool::new(true),
            reason: Mutex::new(None),
            errors: AtomicU64::new(0),
            read_failures: AtomicU32::new(0),
        }
    }

    /// Whether anything may be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable.load(Acquire)
    }

    /// Whether anything may be read.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        self.is_readable.load(Acquire)
    }

    /// Why not.
    pub(crate) fn reason(&self) -> Option<String> {
        self.lock().clone()
    }

    /// Operations that failed.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// One more operation that failed, of no consequence beyond itself.
    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// The disk is left alone until [`Health::recover`]. Said once.
    pub(crate) fn fail(&self, bypass: Bypass, doing: &str, error: &dyn Display) {
        self.count_error();
        self.bypass(bypass, format!("{doing}: {error}"));
    }

    /// The same for what is no failed operation.
    pub(crate) fn bypass(&self, bypass: Bypass, why: String) {
        let mut reason = self.lock();
        self.is_writable.store(false, Release);
        if bypass == Bypass::All {
            self.is_readable.store(false, Release);
        }
        if reason.is_none() {
            let directory = self.directory.display();
            log::warn!(
                "cache {directory}: {why}. Reads go on from the store; the disk is tried again now \
                 and then"
            );
        }
        *reason = Some(why);
    }

    /// A read failed: a few in a row mean that the disk is degraded.
    pub(crate) fn read_failed(&self, error: &dyn Display) {
        if READ_FAILURES_MAX <= self.read_failures.fetch_add(1, Relaxed) + 1 {
            return self.fail(Bypass::All, "reading", error);
        }
        self.count_error();
    }

    /// A read that touched the disk went well.
    #[inline]
    pub(crate) fn read_went_well(&self) {
        if self.read_failures.load(Relaxed) != 0 {
            self.read_failures.store(0, Relaxed);
        }
    }

    /// It works again. Said once.
    pub(crate) fn recover(&self) {
        let mut reason = self.lock();
        self.read_failures.store(0, Relaxed);
        self.is_readable.store(true, Release);
        self.is_writable.store(true, Release);
        if reason.take().is_some() {
            log::info!("cache {}: the disk is in use again", self.directory.display());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
