//! Files of one directory, flat, by name. Only the log knows what is in them.

use std::{fmt, io, path::PathBuf};

mod real;
mod write_parts;

pub use real::{RealDisk, RealFile};

#[cfg(test)]
mod tests;

/// A file's name inside the disk's directory. No slashes.
pub type FileName = String;

/// What a caller asks of a disk; names the operation in errors.
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

/// What a caller can do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// No room (ENOSPC, EDQUOT): the operation had no effect that matters; room may come back.
    NoSpace,
    /// There is no such file.
    NotFound,
    /// There is one already, or another process holds the lock.
    Exists,
    /// Anything else. After a failed write or sync the contents of the file are unknown.
    Failed,
}

/// A failed operation.
#[derive(Debug)]
pub struct DiskError {
    /// What the caller can do about it.
    pub kind: DiskErrorKind,
    /// What was asked.
    pub operation: DiskOperation,
    /// Of which file (full path for people).
    pub path: PathBuf,
    /// What the system said.
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

/// One directory on a disk. A handle is cheap to clone; clones name the same directory and may be
/// used on several threads at once (on different files).
pub trait Disk: Clone {
    /// An open file. Closed when dropped.
    type File;

    /// Takes the lock file `name` (created when missing) until the returned file is dropped.
    /// [`DiskErrorKind::Exists`] when another process has it.
    fn lock(&self, name: &str) -> Result<Self::File, DiskError>;

    /// Names of the files, in no order.
    fn list(&self) -> Result<Vec<FileName>, DiskError>;

    /// Creates a file for reading and writing; [`DiskErrorKind::Exists`] when there is one.
    fn create(&self, name: &str) -> Result<Self::File, DiskError>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> Result<Self::File, DiskError>;

    /// Length in bytes.
    fn length(&self, file: &Self::File) -> Result<u64, DiskError>;

    /// Reads at `offset` until `into` is full or the file ends; returns the count of bytes read.
    fn read_at(&self, file: &Self::File, offset: u64, into: &mut [u8]) -> Result<usize, DiskError>;

    /// Writes all parts one behind the other at `offset`, with one system call unless the system
    /// takes less (then it is asked again for the rest; EINTR likewise).
    fn write_at(
        &self,
        file: &Self::File,
        offset: u64,
        parts: &[io::IoSlice<'_>],
    ) -> Result<(), DiskError>;

    /// Cuts or extends (with zeros) the file.
    fn truncate(&self, file: &Self::File, length: u64) -> Result<(), DiskError>;

    /// Makes contents and length durable (fdatasync).
    fn sync(&self, file: &Self::File) -> Result<(), DiskError>;

    /// Renames, replacing the target.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file.
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> Result<(), DiskError>;

    /// Free bytes for files of this user; `u64::MAX` where that is not known.
    fn available_bytes(&self) -> u64;

    /// The full path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
}
