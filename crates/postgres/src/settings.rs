//! A table's checked settings.

use std::{fmt, path::PathBuf, time::Duration};

use busload_batch::LineSettings;

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
    /// How many connections are kept (K).
    pub connections: usize,
    /// A request's time.
    pub timeout: Duration,
    /// The waiting line: its bounds, when a batch leaves, the write lanes. As many batches may be in flight as
    /// there are connections.
    pub line: LineSettings,
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
