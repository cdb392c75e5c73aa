//! A table's checked settings.

use std::{fmt, path::PathBuf, time::Duration};

/// Everything about one table, checked. Made by [`Options::resolve`](crate::Options::resolve).
///
/// `Debug` shows no password.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The table's name, as logs and `application_name` show it.
    pub name: String,
    /// Where the server is and as whom to log in.
    pub server: Server,
    /// The relation.
    pub relation: Relation,
    /// The columns of the key, in order.
    pub key: Vec<String>,
    /// The value columns, in order; `None`: all that are not in the key.
    pub columns: Option<Vec<String>>,
    /// Between the parts of a composite key.
    pub separator: char,
    /// Whether writes are allowed.
    pub writable: bool,
    /// How many connections are kept (K): so many batches are in flight at most.
    pub connections: usize,
    /// A request's time.
    pub timeout: Duration,
    /// Entries with which a further batch leaves while others are in flight.
    pub min_batch: usize,
    /// Most entries of one batch.
    pub batch: usize,
    /// Write lanes.
    pub lanes: usize,
    /// Requests that may wait.
    pub line_requests: usize,
    /// Bytes of keys and values that may wait.
    pub line_bytes: usize,
    /// Whether a read may join one that is in flight (and then may miss a write that was acknowledged meanwhile).
    pub join_in_flight: bool,
    /// The fixed window of published designs instead of busload's own rule. No option sets it: it is there to
    /// compare both.
    pub window: Option<Window>,
}

/// A batch leaves with so many entries, or when its oldest has waited so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Entries that fill a batch.
    pub entries: usize,
    /// Longest wait of an entry.
    pub wait: Duration,
}

/// Where the server is and as whom to log in.
#[derive(Clone, Debug)]
pub struct Server {
    /// Tried in order.
    pub hosts: Vec<Host>,
    /// The role.
    pub user: String,
    /// The database.
    pub dbname: String,
    /// Time of one attempt to connect to one address.
    pub connect_timeout: Duration,
}

/// One server's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name or an address, and a port.
    Tcp {
        /// Name or address.
        name: String,
        /// Port.
        port: u16,
    },
    /// A directory with a Unix socket for the port.
    Unix {
        /// The directory.
        directory: PathBuf,
        /// Port: part of the socket's name.
        port: u16,
    },
}

/// A relation's name as SQL means it: folded to lower case unless it was quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The schema; `None`: found by the session's search path.
    pub schema: Option<String>,
    /// The name.
    pub name: String,
}

impl Relation {
    /// The name with every part quoted, as it stands in a statement.
    pub fn sql(&self) -> String {
        let name = quote_identifier(&self.name);
        match &self.schema {
            Some(schema) => format!("{}.{name}", quote_identifier(schema)),
            None => name,
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sql())
    }
}

/// A name as it stands in a statement.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
