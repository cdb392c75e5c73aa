//! Errors of a read.

/// Reason why an item is not known. Each text names the table, its service and the item or items.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// DynamoDB cannot be reached, is throttling, or gives wrong answers; it was tried several
    /// times.
    #[error("{0}")]
    Unreachable(String),
    /// DynamoDB refuses the request: there is no such table, or the account may not read it.
    #[error("{0}")]
    Denied(String),
}
