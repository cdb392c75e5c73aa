//! What can go wrong with a table, as its clients are told.
//!
//! Kinds are closed and say what a client can do: wait for Postgres (`CannotConnect`, `Schema`),
//! repair the request (`BadKey`, `BadValue`, `Data`), ask again later (`TooLate`, `Full`), look
//! whether a write took place (`OutcomeUnknown`). The texts stand alone and never hold a password:
//! they are made from names, addresses and what the server or the system said.

use std::sync::Arc;

use thiserror::Error;

/// Why a request was not answered. Cheap to clone: one error is given to every waiter of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// No connection could be opened: `cannot connect to postgres at 127.0.0.1:5433: Connection
    /// refused`.
    #[error("{0}")]
    CannotConnect(Arc<str>),
    /// The connection ended while a read was on it, and again when the read was repeated.
    #[error("{0}")]
    ConnectionLost(Arc<str>),
    /// The relation, its columns or its index are not what the table needs.
    #[error("{0}")]
    Schema(Arc<str>),
    /// The key cannot be one of this table's.
    #[error("{0}")]
    BadKey(Arc<str>),
    /// The value, or the name of a column, cannot be written to this table.
    #[error("{0}")]
    BadValue(Arc<str>),
    /// A write to a table that was not configured with `writable`.
    #[error("this table is read only (writable = true allows writes)")]
    ReadOnly,
    /// Postgres refused this one item (SQLSTATE classes 22 and 23, and what triggers raise).
    #[error("{message} (SQLSTATE {sqlstate})")]
    Data {
        /// Five letters and digits.
        sqlstate: Arc<str>,
        /// The server's message.
        message: Arc<str>,
    },
    /// Postgres refused the statement as such, whatever was in it.
    #[error("{message} (SQLSTATE {sqlstate})")]
    Statement {
        /// Five letters and digits.
        sqlstate: Arc<str>,
        /// The server's message.
        message: Arc<str>,
    },
    /// A write was sent and nobody knows whether it took place.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(Arc<str>),
    /// The request's time was over before an answer came. It changed nothing.
    #[error("no answer from postgres in time")]
    TooLate,
    /// Too many requests or bytes are waiting already.
    #[error("too many requests wait for postgres already")]
    Full,
    /// The table takes no more requests.
    #[error("the table is closing")]
    Closed,
    /// A bug in this library: the batch of the request panicked.
    #[error("internal error: the batch of this request failed")]
    Panicked,
}

/// Why a table's options cannot be used. The texts never hold a password, nor a URL that may hold
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// The URL is not one.
    #[error("the URL of the table: {0}")]
    Url(String),
    /// The URL's query holds a name nobody knows.
    #[error("`{written}` is no option of a postgres table; {hint}")]
    Unknown {
        /// What was written.
        written: String,
        /// The nearest name, or all names.
        hint: String,
    },
    /// The same option in two places.
    #[error("{0} is given twice")]
    Twice(String),
    /// An option that must be given.
    #[error("{option} is missing: {expected}")]
    Missing {
        /// Its name.
        option: &'static str,
        /// What it would look like.
        expected: &'static str,
    },
    /// A value that does not fit its option.
    #[error("{option} = `{written}`: {expected}")]
    Value {
        /// The option's name.
        option: String,
        /// What was written.
        written: String,
        /// What was expected.
        expected: String,
    },
    /// Options that contradict each other.
    #[error("{0}")]
    Conflict(String),
}
