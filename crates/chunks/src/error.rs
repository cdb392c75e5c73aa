//! What is wrong with bytes.

/// Bytes that are not what they are said to be. The text says what was expected; which file it was
/// the caller knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A manifest, an index or a footer.
    #[error("{0}")]
    Malformed(String),
    /// A store that is not served on purpose (a journal, an unknown version).
    #[error("{0}")]
    Refused(String),
    /// The bytes of a chunk or a dictionary: a checksum or the address disagrees with them, or they
    /// do not decode. Whoever read them from a place that may be wrong reads them again.
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
