//! What is wrong with bytes.

/// Bytes that are not what they are said to be. The text says what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A manifest, an index, a footer.
    #[error("{0}")]
    Malformed(String),
    /// A store that is not served on purpose (a journal, an unknown version).
    #[error("{0}")]
    Refused(String),
    /// A checksum, or the address, disagrees with the bytes.
    #[error("{0}")]
    Damaged(String),
}
