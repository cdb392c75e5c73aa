//! A table's checked settings: plain values, no file read, no server asked yet.

use std::{
    collections::HashSet,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use busload_batch::LineSettings;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio_postgres::config::{ChannelBinding, TargetSessionAttrs};

use crate::{
    limits::{HOSTS_MAX, WARNINGS_MAX},
    password::PasswordSource,
    relation::Relation,
    tls::TlsSettings,
};

/// What stands for itself in the parts of a URL.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

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
    /// The waiting line: its bounds, when a batch leaves, the write lanes. As many batches may be
    /// in flight as there are connections.
    pub line: LineSettings,
    /// What the operator was told already.
    pub(crate) told: Told,
}

/// Where the server is and as whom to log in.
#[derive(Clone, Debug)]
pub struct Server {
    /// Tried in order, 1 to [`HOSTS_MAX`].
    pub hosts: Vec<Host>,
    /// The role.
    pub user: String,
    /// The database.
    pub dbname: String,
    /// Where the password is found.
    pub password: PasswordSource,
    /// Whether and how TLS is used.
    pub tls: TlsSettings,
    /// Time of one attempt to connect to one address.
    pub connect_timeout: Duration,
    /// As `pg_stat_activity` shows it.
    pub application_name: String,
    /// Command line options for the session, such as `-c search_path=app`.
    pub options: Option<String>,
    /// Which servers will do.
    pub target_session_attrs: TargetSessionAttrs,
    /// Whether SCRAM must be bound to the TLS channel.
    pub channel_binding: ChannelBinding,
    /// When a silent TCP connection is given up.
    pub keepalive: Keepalive,
}

/// When a TCP connection that says nothing is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Whether silent connections are probed at all.
    pub enabled: bool,
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without an answer that end the connection.
    pub count: u32,
    /// How long sent bytes may stay unacknowledged.
    pub user_timeout: Duration,
}

/// One server's place. `Display` is what errors show.
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

impl Settings {
    /// The table in one line, without secrets: `postgres://app@db:5432/lake relation=public.t
    /// key=pk columns=payload`.
    pub fn describe(&self) -> String {
        let columns = match &self.columns {
            Some(columns) => columns.join(","),
            None => "(all others)".to_owned(),
        };
        let writable = if self.writable { " writable" } else { "" };
        let (server, relation, key) = (&self.server, &self.relation, self.key.join(","));
        format!("{server} relation={relation} key={key} columns={columns}{writable}")
    }
}

/// As a URL without the password.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(Host::in_url).collect();
        let (user, dbname) = (encoded(&self.user), encoded(&self.dbname));
        write!(f, "postgres://{user}@{}/{dbname}", hosts.join(","))
    }
}

impl Host {
    /// The socket's path, of a Unix socket.
    pub fn socket(&self) -> Option<PathBuf> {
        match self {
            Self::Tcp { .. } => None,
            Self::Unix { directory, port } => Some(socket_path(directory, *port)),
        }
    }

    fn in_url(&self) -> String {
        match self {
            Self::Tcp { .. } => self.to_string(),
            Self::Unix { directory, port } => {
                format!("{}:{port}", encoded(&directory.to_string_lossy()))
            }
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, port } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp { name, port } => write!(f, "{name}:{port}"),
            Self::Unix { directory, port } => {
                write!(f, "{}", socket_path(directory, *port).display())
            }
        }
    }
}

fn socket_path(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!(".s.PGSQL.{port}"))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Warnings that were given already: each connection of a table meets the same ones. Shared by all
/// clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<HashSet<String>>>);

impl Told {
    /// Whether this is new.
    pub(crate) fn is_new(&self, warning: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < WARNINGS_MAX && told.insert(warning.to_owned())
    }
}

const _: () = assert!(1 <= HOSTS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_shown_so_that_one_can_connect_to_them() {
        let tcp = |name: &str| Host::Tcp { name: name.into(), port: 5433 };
        for (host, shown, in_url) in [
            (tcp("db"), "db:5433", "db:5433"),
            (tcp("::1"), "[::1]:5433", "[::1]:5433"),
            (
                Host::Unix { directory: "/run/pg".into(), port: 5433 },
                "/run/pg/.s.PGSQL.5433",
                "%2Frun%2Fpg:5433",
            ),
        ] {
            assert_eq!(host.to_string(), shown);
            assert_eq!(host.in_url(), in_url);
        }
    }

    #[test]
    fn a_warning_is_new_once_for_all_clones() {
        let told = Told::default();
        assert!(told.is_new("a") && told.is_new("b"));
        assert!(!told.clone().is_new("a"));
        let many = (0..2 * WARNINGS_MAX).filter(|number| told.is_new(&number.to_string())).count();
        assert_eq!(many, WARNINGS_MAX - 2);
    }
}
