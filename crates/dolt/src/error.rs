//! Errors of a store.

use busload_chunks::FormatError;

/// Reason why a request failed. A chunk that does not exist is not an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The store cannot be reached, or did not answer in time.
    #[error("{0}")]
    Unreachable(String),
    /// The store is not served, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The store does not exist.
    #[error("{0}")]
    NoStore(String),
    /// Too many stores are open or being opened.
    #[error("{0}")]
    Overloaded(String),
    /// The store holds corrupt data.
    #[error("{0}")]
    Corrupt(String),
    /// The chunk is not on local disk, and the request was for local disk only.
    #[error("the chunk is not on local disk")]
    NotLocal,
    /// The deadline of the request passed.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// The store has been closed.
    #[error("busload is shutting down")]
    Closed,
}

/// Sorts errors by whether a retry may help. Credentials can be fixed while the store is served,
/// and the store looks for an object that is gone before a request fails.
impl From<busload_objects::Error> for Error {
    fn from(error: busload_objects::Error) -> Self {
        use busload_objects::Error as Objects;
        match error {
            Objects::Unreachable(text) | Objects::Denied(text) | Objects::Gone(text) => {
                Self::Unreachable(text)
            }
            Objects::Settings(text) | Objects::Locked(text) => Self::Refused(text),
            Objects::DeadlineExceeded(text) => Self::DeadlineExceeded(text),
            Objects::NotLocal => Self::NotLocal,
        }
    }
}

impl Error {
    /// Converts the error of parsing the bytes of `what`.
    pub(crate) fn of_format(what: &str, error: FormatError) -> Self {
        match error {
            FormatError::Refused(text) => Self::Refused(format!("{what}: {text}")),
            FormatError::Malformed(text) | FormatError::Corrupt(text) => {
                Self::Corrupt(format!("{what}: {text}"))
            }
        }
    }
}
