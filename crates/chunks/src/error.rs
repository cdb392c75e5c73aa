//! The error of this crate.

/// Error for bytes that are not what they should be. The text says what was expected; the caller
/// knows which file it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A manifest, an index or a footer is malformed.
    #[error("{0}")]
    Malformed(String),
    /// The store is not served on purpose (it has a journal or an unknown version).
    #[error("{0}")]
    Refused(String),
    /// The bytes of a chunk or a dictionary are corrupt: a checksum or the address does not match,
    /// or they do not decode. A caller whose copy may be the corrupt one reads them again from the
    /// origin.
    #[error("{0}")]
    Corrupt(String),
}

/// [`FormatError::Malformed`] with a formatted text.
macro_rules! malformed {
    ($($text:tt)*) => { $crate::FormatError::Malformed(format!($($text)*)) };
}

/// [`FormatError::Refused`] with a formatted text.
macro_rules! refused {
    ($($text:tt)*) => { $crate::FormatError::Refused(format!($($text)*)) };
}

/// [`FormatError::Corrupt`] with a formatted text.
macro_rules! corrupt {
    ($($text:tt)*) => { $crate::FormatError::Corrupt(format!($($text)*)) };
}

pub(crate) use {corrupt, malformed, refused};
