//! The seam for files: the files of one flat directory, by name. Only the log knows their contents.

use std::{fmt, io, path::PathBuf};

mod real;
mod write_parts;

pub use real::{RealDisk, RealFile};

#[cfg(test)]
mod tests;

/// Name of a file inside the disk's directory, without slashes.
pub type FileName = String;

/// Kind of a disk operation, named in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum DiskOperation {
    Lock,
    List,
    Create,
    Open,
    Length,
    Read,
    Write,
    Truncate,
    Sync,
    Rename,
    Remove,
    SyncDirectory,
}

/// Kind of a failure, by what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// The disk is full (ENOSPC, EDQUOT). The operation had no effect that matters; space may come
    /// back.
    NoSpace,
    /// The file does not exist.
    NotFound,
    /// The file exists already, or another process holds the lock.
    Exists,
    /// Any other failure. After a failed write or sync the contents of the file are unknown.
    Failed,
}

/// Error of a failed disk operation.
#[derive(Debug)]
pub struct DiskError {
    /// Kind of failure, which says what the caller can do about it.
    pub kind: DiskErrorKind,
    /// Kind of the failed operation.
    pub operation: DiskOperation,
    /// Full path of the file, for people.
    pub path: PathBuf,
    /// Error that the system returned.
    pub source: io::Error,
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} failed: {}", self.operation, self.path.display(), self.source)
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// One directory on a disk. A handle is cheap to clone; clones name the same directory, and several
/// threads may use them at once (on different files).
pub trait Disk: Clone {
    /// Open file, closed when dropped.
    type File;

    /// Takes the lock file `name` (created if missing) until the returned file is dropped. Returns
    /// [`DiskErrorKind::Exists`] when another process holds it.
    fn lock(&self, name: &str) -> Result<Self::File, DiskError>;

    /// Returns the names of the files, in no order.
    fn list(&self) -> Result<Vec<FileName>, DiskError>;

    /// Creates a file for reading and writing; [`DiskErrorKind::Exists`] when there is one.
    fn create(&self, name: &str) -> Result<Self::File, DiskError>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> Result<Self::File, DiskError>;

    /// Returns the length of the file in bytes.
    fn length(&self, file: &Self::File) -> Result<u64, DiskError>;

    /// Reads at `offset` until `into` is full or the file ends; returns the number of bytes read.
    fn read_at(&self, file: &Self::File, offset: u64, into: &mut [u8]) -> Result<usize, DiskError>;

    /// Writes all parts one after the other at `offset`, with one system call unless that writes
    /// less (then the rest is written by further calls; likewise after EINTR).
    fn write_at(
        &self,
        file: &Self::File,
        offset: u64,
        parts: &[io::IoSlice<'_>],
    ) -> Result<(), DiskError>;

    /// Cuts the file to `length` or extends it with zeros.
    fn truncate(&self, file: &Self::File, length: u64) -> Result<(), DiskError>;

    /// Makes the file's contents and length durable (fdatasync).
    fn sync(&self, file: &Self::File) -> Result<(), DiskError>;

    /// Renames a file and replaces the target.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes the file `name`.
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> Result<(), DiskError>;

    /// Returns the bytes free for files of this user; `u64::MAX` when that is unknown.
    fn available_bytes(&self) -> u64;

    /// Returns the full path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
}
