//! Reasons why a backup or a restore ends early.

use std::path::PathBuf;

use busload_io::{DiskError, DiskErrorKind};
use busload_log::{Lsn, OpenError, format::LogId};
use busload_snapshot::SnapshotError;

/// Reason why a backup or a restore was not made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum BackupError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Log(#[from] OpenError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("{} is in use by another backup or restore", path.display())]
    Busy { path: PathBuf },
    #[error(
        "{} belongs to no backup; expected an empty or new directory, or one that holds a backup",
        path.display()
    )]
    Foreign { path: PathBuf },
    #[error(
        "{} is of another log: its log id is {found}, that of the data is {expected}; expected a \
         directory of its own for the backup of each log (a restored one is another log)",
        path.display()
    )]
    OtherLog { path: PathBuf, expected: LogId, found: LogId },
    #[error(
        "the data is not what was backed up before: {what}. It was replaced by an older or another \
         copy since; expected a new directory for its backup"
    )]
    Diverged { what: String },
    #[error("there is nothing to back up: no record was logged yet")]
    Nothing,
    #[error(
        "the log begins with LSN {first}, and no snapshot that verifies covers what is before it: \
         `busload snapshot verify` and `busload log repair` say and do more"
    )]
    NoSnapshot { first: Lsn },
    #[error("the files change faster than they can be opened")]
    Unsettled,
    #[error("{} holds no backup that was finished: there is no manifest", path.display())]
    NoManifest { path: PathBuf },
    #[error("the manifest {} does not verify: {what}", path.display())]
    Manifest { path: PathBuf, what: String },
    #[error(
        "the manifest {} has format version {version}, this program reads version 1: use the \
         program that wrote it, or a newer one",
        path.display()
    )]
    Version { path: PathBuf, version: String },
    #[error("{} is corrupt: {what}", path.display())]
    Corrupt { path: PathBuf, what: String },
    #[error("no snapshot that can be restored is left, and the log does not begin with segment 1")]
    NothingLeft,
    #[error(
        "there is {}: the directory is not empty; expected a new or an empty one",
        path.display()
    )]
    NotEmpty { path: PathBuf },
}

impl BackupError {
    /// Returns whether a file was not there.
    pub(crate) fn is_not_found(&self) -> bool {
        let error = match self {
            Self::Disk(error)
            | Self::Log(OpenError::Disk(error))
            | Self::Snapshot(SnapshotError::Disk(error)) => error,
            _ => return false,
        };
        error.kind == DiskErrorKind::NotFound
    }
}
