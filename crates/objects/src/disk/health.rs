//! The health of a disk: whether the cache uses it or bypasses it.

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

/// Operations for which a failed disk is bypassed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bypass {
    /// Writes only; the cache still reads what is there.
    Writes,
    /// Both reads and writes.
    All,
}

/// Health of a disk, and why it is bypassed.
#[derive(Debug)]
pub(crate) struct Health {
    directory: PathBuf,
    is_writable: AtomicBool,
    is_readable: AtomicBool,
    reason: Mutex<Option<String>>,
    errors: AtomicU64,
    /// Failed reads in a row.
    read_failures: AtomicU32,
}

impl Health {
    /// Makes a healthy disk's record.
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

    /// Returns whether the cache may write.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable.load(Acquire)
    }

    /// Returns whether the cache may read.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        self.is_readable.load(Acquire)
    }

    /// Reason for which the disk is bypassed, if it is.
    pub(crate) fn reason(&self) -> Option<String> {
        self.lock().clone()
    }

    /// Number of operations that failed.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Counts a failed operation that has no further consequence.
    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// Counts a failed operation and bypasses the disk until [`Health::recover`]. Logs it once.
    pub(crate) fn fail(&self, bypass: Bypass, doing: &str, error: &dyn Display) {
        self.count_error();
        self.bypass(bypass, format!("{doing}: {error}"));
    }

    /// Bypasses the disk for a reason that is no failed operation.
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

    /// Counts a failed read; a few in a row mean that the disk is degraded.
    pub(crate) fn read_failed(&self, error: &dyn Display) {
        if READ_FAILURES_MAX <= self.read_failures.fetch_add(1, Relaxed) + 1 {
            return self.fail(Bypass::All, "reading", error);
        }
        self.count_error();
    }

    /// Ends a row of failed reads.
    #[inline]
    pub(crate) fn read_went_well(&self) {
        if self.read_failures.load(Relaxed) != 0 {
            self.read_failures.store(0, Relaxed);
        }
    }

    /// Uses the disk again. Logs it once.
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
