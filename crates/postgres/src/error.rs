//! Errors of a table, as its clients get them.
//!
//! The kinds are closed and say what a client can do: wait for Postgres (`CannotConnect`,
//! `Schema`), repair the request (`BadKey`, `BadValue`, `Data`), ask again later (`TooLate`,
//! `Full`), check whether a write took place (`OutcomeUnknown`). The texts stand alone and never
//! hold a password: they are made of names, addresses and the messages of the server or the system.

use std::sync::Arc;

use thiserror::Error;

/// Reason why a request was not answered. Cheap to clone: every waiter of a batch gets a clone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// No connection could be opened: `cannot connect to postgres at 127.0.0.1:5433: Connection
    /// refused`.
    #[error("{0}")]
    CannotConnect(Arc<str>),
    /// The connection ended while a read was on it, and again when the read was repeated.
    #[error("{0}")]
    ConnectionLost(Arc<str>),
    /// The relation, its columns or its index do not fit the table's settings, or no longer do. The
    /// request has changed nothing.
    #[error("{0}")]
    Schema(Arc<str>),
    /// The key does not fit the table's key columns.
    #[error("{0}")]
    BadKey(Arc<str>),
    /// The value, or the name of a column, cannot be written to this table.
    #[error("{0}")]
    BadValue(Arc<str>),
    /// The request writes to a table that was not configured with `writable`.
    #[error("this table is read only (writable = true allows writes)")]
    ReadOnly,
    /// Postgres refused this one item (SQLSTATE classes 22 and 23, and errors that triggers raise).
    #[error("{message} (SQLSTATE {sqlstate})")]
    Data {
        /// SQLSTATE: five letters and digits.
        sqlstate: Arc<str>,
        /// Message that the server sent.
        message: Arc<str>,
    },
    /// Postgres refused the statement as a whole, whatever its items.
    #[error("{message} (SQLSTATE {sqlstate})")]
    Statement {
        /// SQLSTATE: five letters and digits.
        sqlstate: Arc<str>,
        /// Message that the server sent.
        message: Arc<str>,
    },
    /// A write was sent, and it is unknown whether it took place.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(Arc<str>),
    /// The request's deadline passed before an answer came. It changed nothing.
    #[error("no answer from postgres in time")]
    TooLate,
    /// Too many requests or bytes are pending already.
    #[error("too many requests wait for postgres already")]
    Full,
    /// The table takes no more requests.
    #[error("the table is closing")]
    Closed,
    /// A bug in this library: the batch of the request panicked.
    #[error("internal error: the batch of this request failed")]
    Panicked,
}

impl Error {
    /// Returns whether the server has too much to do: it lacks memory, disk or connections
    /// (SQLSTATE class 53). A timeout says nothing: a statement that waits for another
    /// transaction's lock has one on an idle server, too.
    pub(crate) fn is_overload(&self) -> bool {
        match self {
            Self::Statement { sqlstate, .. } => sqlstate.starts_with("53"),
            _ => false,
        }
    }
}

/// Reason why a table's options cannot be used. The texts never hold a password, nor a URL that may
/// hold one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// The text is no valid URL.
    #[error("the URL of the table: {0}")]
    Url(String),
    /// The URL's query holds an unknown option.
    #[error("`{written}` is no option of a postgres table; {hint}")]
    Unknown {
        /// Option as it was written.
        written: String,
        /// Nearest name, or all names.
        hint: String,
    },
    /// The same option is given twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// An option that must be given is missing.
    #[error("{option} is missing: {expected}")]
    Missing {
        /// Name of the option.
        option: &'static str,
        /// Example of its value.
        expected: &'static str,
    },
    /// A value does not fit its option.
    #[error("{option} = `{written}`: {expected}")]
    Value {
        /// Name of the option.
        option: String,
        /// Value as it was written.
        written: String,
        /// Description of a valid value.
        expected: String,
    },
    /// The options contradict each other.
    #[error("{0}")]
    Conflict(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_resources_is_overload_and_a_timeout_is_not() {
        let statement =
            |sqlstate: &str| Error::Statement { sqlstate: sqlstate.into(), message: "no".into() };
        assert!(!Error::TooLate.is_overload());
        assert!(statement("53300").is_overload() && statement("53200").is_overload());
        assert!(!statement("42501").is_overload());
        assert!(!Error::CannotConnect("refused".into()).is_overload());
    }
}
