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
    /// The relation is not what the session knows. Triggers raise such errors, too.
    Stale,
    /// The server no longer accepts writes: it has become a standby.
    Standby,
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
    /// that certainly do not come from them, and `Stale`, which is looked into first.
    pub(crate) fn may_be_one_entrys(self) -> bool {
        matches!(self, Class::Data | Class::Conflict | Class::Refused)
    }
}

/// Reason why a statement of a batch has no result.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The driver or the server failed it.
    Driver(tokio_postgres::Error),
    /// The relation changed between its check and the statement's preparation: the result would
    /// have other types. The statement was not executed.
    WrongTypes,
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

impl Fault {
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Driver(error) => classify(error),
            Self::WrongTypes => Class::Stale,
        }
    }

    /// Returns whether the statement's plan, or that of a function that it calls, was made for
    /// other types: its tables have changed, and no entry is the cause.
    pub(crate) fn is_of_plan(&self) -> bool {
        match self {
            Self::Driver(error) => is_of_plan(error),
            Self::WrongTypes => true,
        }
    }

    /// Returns the cause alone.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Driver(error) => describe(error),
            Self::WrongTypes => CHANGES_ON.to_owned(),
        }
    }

    /// Converts the error for the clients of one item.
    pub(crate) fn data(&self) -> Error {
        match self {
            Self::Driver(error) => data(error),
            Self::WrongTypes => Error::Schema(CHANGES_ON.into()),
        }
    }

    /// Converts the error for all clients of a statement.
    pub(crate) fn refused(&self) -> Error {
        match self {
            Self::Driver(error) => refused(error),
            Self::WrongTypes => Error::Schema(CHANGES_ON.into()),
        }
    }
}

const CHANGES_ON: &str = "the columns of the table, or of one that its triggers use, have changed \
                          again and again while this request was tried; it has changed nothing, \
                          ask again";

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
        // longer unique, prepared statements that the other side of a pooler does not know.
        "0A000" | "42703" | "42P01" | "42P02" | "42P10" | "42P18" | "42704" | "42804" | "42809"
        | "42883" | "42846" | "3F000" | "26000" => Class::Stale,
        "25006" => Class::Standby,
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

fn data(error: &tokio_postgres::Error) -> Error {
    let (sqlstate, message) = parts(error);
    Error::Data { sqlstate: sqlstate.into(), message: message.into() }
}

fn is_of_plan(error: &tokio_postgres::Error) -> bool {
    // The server's functions with "cached plan must not change result type" and "type of parameter
    // 15 (bigint) does not match that when preparing the plan (integer)". Messages are translated.
    const ROUTINES: [&str; 2] = ["RevalidateCachedQuery", "ExecEvalParamExtern"];
    let routine = error.as_db_error().and_then(|error| error.routine());
    classify(error) == Class::Stale && routine.is_some_and(|routine| ROUTINES.contains(&routine))
}

/// Returns whether one entry's error can come from a change of the relation.
pub(crate) fn may_be_of_relation(error: &Error) -> bool {
    match error {
        Error::Schema(_) => true,
        Error::Statement { sqlstate, .. } => {
            classify_state(&SqlState::from_code(sqlstate)) == Class::Stale
        }
        _ => false,
    }
}

/// Returns whether Postgres could not convert the written text to the column's type.
pub(crate) fn is_of_value(error: &Error) -> bool {
    matches!(error, Error::Data { sqlstate, .. } if sqlstate.starts_with("22"))
}

fn refused(error: &tokio_postgres::Error) -> Error {
    if is_of_plan(error) {
        return Error::Schema(CHANGES_ON.into());
    }
    let (sqlstate, message) = parts(error);
    Error::Statement { sqlstate: sqlstate.into(), message: message.into() }
}

/// Converts an error that occurred while the relation was checked or a statement was prepared.
pub(crate) fn while_checking(error: &tokio_postgres::Error) -> Error {
    match classify(error) {
        Class::Lost => {
            let cause = describe(error);
            let text = format!("connection to postgres lost while it checked the table: {cause}");
            Error::ConnectionLost(text.into())
        }
        Class::Canceled => Error::TooLate,
        _ => refused(error),
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
            ("25006", Class::Standby),
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
