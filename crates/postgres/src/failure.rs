//! Classifies errors of the driver or the server by what they mean for a batch.

use tokio_postgres::error::SqlState;

use crate::{Error, cause::describe};

/// Reaction that a failure needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The connection has ended, or the server does not know the outcome itself; whether a write
    /// took place is unknown.
    Lost,
    /// One entry caused it: the others are sent again without it.
    Data,
    /// Another transaction was first: the same statement is sent again a little later.
    Conflict,
    /// The relation is not what the session knows, or the server no longer accepts writes.
    Stale,
    /// The statement ran too long and was ended. It changed nothing.
    Canceled,
    /// The server lacks something that no entry is responsible for: memory, disk, connections.
    Exhausted,
    /// The server refused the statement for another reason. It changed nothing.
    Refused,
}

impl Class {
    /// Returns whether one entry may be the cause, so that the others are worth sending again
    /// without it. Triggers and functions raise whatever they like, so this excludes only errors
    /// that certainly do not come from them.
    pub(crate) fn may_be_one_entrys(self) -> bool {
        matches!(self, Class::Data | Class::Conflict | Class::Stale | Class::Refused)
    }
}

/// Classifies the failure of a statement. An error that the server has sent means that nothing was
/// changed, unless it says that the server itself goes down: that can arrive in place of success.
pub(crate) fn classify(error: &tokio_postgres::Error) -> Class {
    match error.code() {
        Some(state) => classify_state(state),
        None => Class::Lost,
    }
}

fn classify_state(state: &SqlState) -> Class {
    match state.code() {
        "40001" | "40P01" => Class::Conflict,
        "40003" => Class::Lost,
        // Other errors of class 57 end the whole server or connection; 57014 ends one statement.
        "57014" => Class::Canceled,
        // Cached plans that no longer fit, names and types that are gone, an index that is no
        // longer unique, prepared statements that the other side of a pooler does not know, a
        // server that has become a standby.
        "0A000" | "42703" | "42P01" | "42P02" | "42P10" | "42P18" | "42704" | "42804" | "42809"
        | "42883" | "42846" | "3F000" | "26000" | "25006" => Class::Stale,
        // Caused by one item: a row too large for an index, a row that a policy forbids, a
        // generated column.
        "54000" | "42501" | "428C9" => Class::Data,
        code => match code.get(..2) {
            Some("57" | "08") => Class::Lost,
            Some("53" | "58") => Class::Exhausted,
            Some("22" | "23" | "44" | "P0") => Class::Data,
            _ => Class::Refused,
        },
    }
}

/// Converts the server's error for the clients of one item.
pub(crate) fn data(error: &tokio_postgres::Error) -> Error {
    let (sqlstate, message) = parts(error);
    Error::Data { sqlstate: sqlstate.into(), message: message.into() }
}

/// Converts the server's error for all clients of a statement.
pub(crate) fn refused(error: &tokio_postgres::Error) -> Error {
    let (sqlstate, message) = parts(error);
    Error::Statement { sqlstate: sqlstate.into(), message: message.into() }
}

/// Converts an error that occurred while a session was opened.
pub(crate) fn while_opening(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(_) => refused(error),
        None => Error::ConnectionLost(describe(error).into()),
    }
}

fn parts(error: &tokio_postgres::Error) -> (String, String) {
    let state = error.code().unwrap_or(&SqlState::CONNECTION_FAILURE);
    (state.code().to_owned(), describe(error))
}

#[cfg(test)]
mod tests {
    use tokio_postgres::error::SqlState;

    use super::{Class, classify_state};

    #[test]
    fn each_state_has_its_class() {
        let cases = [
            ("22001", Class::Data),
            ("22021", Class::Data),
            ("22P02", Class::Data),
            ("23502", Class::Data),
            ("23514", Class::Data),
            ("44000", Class::Data),
            ("54000", Class::Data),
            ("P0001", Class::Data),
            ("40001", Class::Conflict),
            ("40P01", Class::Conflict),
            ("57014", Class::Canceled),
            ("57P01", Class::Lost),
            ("57P02", Class::Lost),
            ("57P03", Class::Lost),
            ("08006", Class::Lost),
            ("0A000", Class::Stale),
            ("42703", Class::Stale),
            ("42P01", Class::Stale),
            ("42P18", Class::Stale),
            ("25006", Class::Stale),
            ("40003", Class::Lost),
            ("53100", Class::Exhausted),
            ("AB001", Class::Refused),
            ("XX000", Class::Refused),
        ];
        for (code, class) in cases {
            assert_eq!(classify_state(&SqlState::from_code(code)), class, "{code}");
        }
    }
}
