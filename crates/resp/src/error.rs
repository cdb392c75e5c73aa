//! Errors that make a stream of requests unreadable. After any of these the client gets the error
//! and its connection is closed.

use std::fmt;

/// Reason why a request cannot be read. [`Display`](fmt::Display) gives Redis 7.0's text after
/// `-ERR `.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolError {
    /// An inline request has no line end within the limit.
    InlineTooBig,
    /// The line of `*` has no end within the limit.
    MultibulkCountTooBig,
    /// The line of `$` has no end within the limit.
    BulkCountTooBig,
    /// `*` is not followed by a number, or the number is above the limit.
    InvalidMultibulkLength,
    /// A request has more arguments than a client may send before it has authenticated.
    UnauthenticatedMultibulkLength,
    /// A byte other than `$` begins an argument.
    ExpectedBulk(u8),
    /// `$` is not followed by a number, or the number is negative or above the limit.
    InvalidBulkLength,
    /// An argument is longer than a client may send before it has authenticated.
    UnauthenticatedBulkLength,
    /// An inline request has a quote that is not closed, or one that closes in the middle of a
    /// word.
    UnbalancedQuotes,
    /// The whole request is larger than the limit.
    RequestTooBig,
}

impl ProtocolError {
    /// Appends the whole error reply: `-ERR ...` with its line end.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut text = b"ERR ".to_vec();
        match self {
            // Written as a raw byte, which a `Formatter` does not accept.
            Self::ExpectedBulk(byte) => {
                text.extend_from_slice(b"Protocol error: expected '$', got '");
                text.push(*byte);
                text.push(b'\'');
            }
            other => text.extend_from_slice(other.to_string().as_bytes()),
        }
        crate::write_error(out, &text);
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::InlineTooBig => "too big inline request",
            Self::MultibulkCountTooBig => "too big mbulk count string",
            Self::BulkCountTooBig => "too big bulk count string",
            Self::InvalidMultibulkLength => "invalid multibulk length",
            Self::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            Self::ExpectedBulk(byte) => {
                return write!(f, "Protocol error: expected '$', got '{}'", char::from(*byte));
            }
            Self::InvalidBulkLength => "invalid bulk length",
            Self::UnauthenticatedBulkLength => "unauthenticated bulk length",
            Self::UnbalancedQuotes => "unbalanced quotes in request",
            Self::RequestTooBig => "too big request",
        };
        write!(f, "Protocol error: {what}")
    }
}

impl std::error::Error for ProtocolError {}
