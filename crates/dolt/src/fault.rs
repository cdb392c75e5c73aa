//! Reasons why a read failed, for callers that may try something else.

use busload_chunks::FormatError;
use busload_objects::Error as ObjectsError;

use crate::Error;

/// Failure of a read of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The object is not there (any more) in the requested version.
    Gone,
    /// The bytes are corrupt; the text says how.
    Corrupt(String),
    /// An error that no other read avoids.
    Error(Error),
}

impl From<ObjectsError> for Fault {
    fn from(error: ObjectsError) -> Self {
        match error {
            ObjectsError::Gone(_) => Self::Gone,
            error => Self::Error(error.into()),
        }
    }
}

impl From<FormatError> for Fault {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Refused(text) => Self::Error(Error::Refused(text)),
            FormatError::Malformed(text) | FormatError::Corrupt(text) => Self::Corrupt(text),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}
