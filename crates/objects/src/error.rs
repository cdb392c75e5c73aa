//! Errors of reads, by what the caller can do about them.

/// Reason why a read failed. The text names the object and says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The settings or arguments make no sense; nothing was tried.
    #[error("{0}")]
    Settings(String),
    /// The store cannot be reached, refuses, or did not answer in time; a retry may help.
    #[error("{0}")]
    Unreachable(String),
    /// The store denies access: credentials, bucket, permissions.
    #[error("{0}")]
    Denied(String),
    /// The object does not exist (any more), or another one has replaced it.
    #[error("{0}")]
    Gone(String),
    /// The bytes are not on local disk, and the caller asked for no more.
    #[error("not on local disk")]
    NotLocal,
    /// The deadline of the caller passed.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// Another process uses the directory of the cache.
    #[error("{0}")]
    Locked(String),
}
