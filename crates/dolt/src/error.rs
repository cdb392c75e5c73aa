//! Why a chunk could not be had.

/// Why there is no answer. A chunk that does not exist is not an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The store cannot be reached or did not answer in time.
    #[error("{0}")]
    Unreachable(String),
    /// The store is not served, and why.
    #[error("{0}")]
    Refused(String),
    /// What the store holds is not what it should be.
    #[error("{0}")]
    Damaged(String),
    /// Not on local disk, and that was all that was asked for.
    #[error("the chunk is not on local disk")]
    NotLocal,
    /// The deadline passed.
    #[error("{0}")]
    TooLate(String),
    /// The store has been closed.
    #[error("busload is shutting down")]
    Closed,
}
