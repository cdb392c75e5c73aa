//! Why a chunk could not be had.

use busload_chunks::FormatError;

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
    Corrupt(String),
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

/// What matters here is whether asking again may help. Credentials can be put right while the store
/// is served, and an object that is gone is looked for again before anybody hears of it.
impl From<busload_objects::Error> for Error {
    fn from(error: busload_objects::Error) -> Self {
        use busload_objects::Error as Objects;
        match error {
            Objects::Unreachable(text) | Objects::Denied(text) | Objects::Gone(text) => {
                Self::Unreachable(text)
            }
            Objects::Settings(text) | Objects::Locked(text) => Self::Refused(text),
            Objects::DeadlineExceeded(text) => Self::TooLate(text),
            Objects::NotLocal => Self::NotLocal,
        }
    }
}

impl Error {
    /// Of bytes of something that has a name.
    pub(crate) fn of_format(what: &str, error: FormatError) -> Self {
        match error {
            FormatError::Refused(text) => Self::Refused(format!("{what}: {text}")),
            FormatError::Malformed(text) | FormatError::Corrupt(text) => {
                Self::Corrupt(format!("{what}: {text}"))
            }
        }
    }
}
