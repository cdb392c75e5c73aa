//! Causes of connection errors, as texts for people.

use std::{error::Error as _, io};

use tokio_postgres::error::DbError;

/// tokio-postgres' text for a failed handshake; its error kinds are private.
const TLS_TEXT: &str = "error performing TLS handshake";
const PASSWORD_TEXT: &str = "password missing";

/// Returns the cause alone: `Connection refused`, `password authentication failed for user "app"`.
/// It shows nothing of the configuration except what the server repeats.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(refusal) = error.as_db_error() {
        return one_line(refusal);
    }
    if error.is_closed() {
        return "the server closed the connection".to_owned();
    }
    let Some(source) = error.source() else { return error.to_string() };
    let source_text = match source.downcast_ref::<io::Error>() {
        Some(error) => describe_io(error),
        None => source.to_string(),
    };
    match error.to_string().as_str() {
        TLS_TEXT => format!("TLS: {source_text}"),
        _ if source_text == PASSWORD_TEXT => "the server asks for a password and none was found \
             (password_file, PGPASSWORD, PGPASSFILE, ~/.pgpass)"
            .to_owned(),
        "error connecting to server" | "error communicating with the server" => source_text,
        kind => format!("{kind}: {source_text}"),
    }
}

/// Returns the text of a system error without its number.
pub(crate) fn describe_io(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the server closed the connection".to_owned()
        }
        None => text,
    }
}

/// Returns whether the TLS handshake failed, or the server does not offer TLS.
pub(crate) fn is_of_tls(error: &tokio_postgres::Error) -> bool {
    error.to_string() == TLS_TEXT
}

/// Returns whether the server refused the login itself (SQLSTATE class 28), because of the user,
/// the client's address, or the presence or absence of TLS.
pub(crate) fn is_of_login(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("28"))
}

/// Returns whether the server has ended the connection on purpose, or because it crashes (SQLSTATE
/// 57P01 and 57P02).
pub(crate) fn is_of_shutdown(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| matches!(code.code(), "57P01" | "57P02"))
}

/// Joins the lines of a server's message, which may have several.
fn one_line(refusal: &DbError) -> String {
    refusal.message().split_whitespace().collect::<Vec<_>>().join(" ")
}
