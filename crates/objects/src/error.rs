//! What can go wrong with a read, for those who have to decide what to do about it.

/// Why bytes of an object, or the object itself, could not be had. The text names the object and
/// says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Settings that make no sense; nothing was tried.
    #[error("{0}")]
    Settings(String),
    /// The store cannot be reached, refuses, or did not answer in time; asking again may help.
    #[error("{0}")]
    Unreachable(String),
    /// The store says no: credentials, bucket, permissions.
    #[error("{0}")]
    Denied(String),
    /// There is no such object (any more), or it was replaced by another one.
    #[error("{0}")]
    Gone(String),
    /// Not on local disk, and that was all that was asked for.
    #[error("not on local disk")]
    NotLocal,
    /// The caller's deadline passed.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// The cache's directory is in use by another process.
    #[error("{0}")]
    Locked(String),
}
