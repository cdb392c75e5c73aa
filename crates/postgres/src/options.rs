//! A table's options as they were given.

use std::{path::PathBuf, time::Duration};

use crate::{Environment, Settings, SettingsError};

/// What was given for one table, unchecked. Each option can stand in the URL's query instead; giving one twice is
/// an error.
#[derive(Clone, Default)]
pub struct Options {
    /// `postgres://user@host:port/db?relation=objects&key=path`.
    pub url: Option<String>,
    /// The relation, as SQL writes it.
    pub relation: Option<String>,
    /// The columns of the key, in order.
    pub key: Option<Vec<String>>,
    /// The value columns, in order; all others by default.
    pub columns: Option<Vec<String>>,
    /// Between the parts of a composite key.
    pub separator: Option<char>,
    /// Whether writes are allowed.
    pub writable: Option<bool>,
    /// How many connections are kept.
    pub connections: Option<usize>,
    /// A request's time.
    pub timeout: Option<Duration>,
    /// Entries with which a further batch leaves while others are in flight.
    pub min_batch: Option<usize>,
    /// Most entries of one batch.
    pub batch: Option<usize>,
    /// Write lanes.
    pub lanes: Option<usize>,
    /// Requests that may wait.
    pub line_requests: Option<usize>,
    /// Bytes of keys and values that may wait.
    pub line_bytes: Option<u64>,
    /// Whether a read may join one that is in flight.
    pub join_in_flight: Option<bool>,
    /// A file whose first line is the password.
    pub password_file: Option<PathBuf>,
}

impl Options {
    /// Checks everything and fills in the defaults. Reads no file and no variable but those of `environment`.
    pub fn resolve(self, name: &str, environment: &Environment) -> Result<Settings, SettingsError> {
        let _ = (name, environment);
        Err(SettingsError::Missing { option: "relation", expected: "the relation to serve" })
    }
}
