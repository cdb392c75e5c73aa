//! A table's checked settings: plain values; no file was read and no server was contacted for them.

use std::{
    collections::HashSet,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use busload_batch::QueueSettings;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio_postgres::config::{ChannelBinding, TargetSessionAttrs};

use crate::{
    limits::{HOSTS_MAX, WARNINGS_MAX},
    password::PasswordSource,
    relation::Relation,
    tls::TlsSettings,
};

/// Characters that need no encoding in the parts of a URL.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Settings of one table, checked. [`Options::resolve`](crate::Options::resolve) makes them.
///
/// `Debug` shows no password.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The table's name, as logs and `application_name` show it.
    pub name: String,
    /// Server and login of the table.
    pub server: Server,
    /// Relation that holds the rows.
    pub relation: Relation,
    /// Columns of the key, in order.
    pub key: Vec<String>,
    /// Value columns, in order; `None` for all that are not in the key.
    pub columns: Option<Vec<String>>,
    /// Separator of the parts of a composite key.
    pub separator: char,
    /// True if the table accepts writes.
    pub writable: bool,
    /// Maximum number of connections.
    pub connections: usize,
    /// Timeout of a request.
    pub timeout: Duration,
    /// Pause between checks whether the relation has changed, while there are requests
    /// ([`RELATION_CHECK_INTERVAL`](crate::limits::RELATION_CHECK_INTERVAL)).
    pub relation_check_interval: Duration,
    /// Settings of the request queue: limits and dispatch policy. As many batches may be in flight
    /// as there may be connections.
    pub queue: QueueSettings,
    /// Warnings that the operator has seen already.
    pub(crate) logged_warnings: LoggedWarnings,
}

/// Server of a table, and the login there.
#[derive(Clone, Debug)]
pub struct Server {
    /// Hosts, tried in order, 1 to [`HOSTS_MAX`].
    pub hosts: Vec<Host>,
    /// Role to log in as.
    pub user: String,
    /// Database to connect to.
    pub dbname: String,
    /// Source of the password.
    pub password: PasswordSource,
    /// Mode and certificates of TLS.
    pub tls: TlsSettings,
    /// Time for one attempt to connect to one address.
    pub connect_timeout: Duration,
    /// Name that `pg_stat_activity` shows.
    pub application_name: String,
    /// Command line options for the session, such as `-c search_path=app`.
    pub options: Option<String>,
    /// Kind of server that is accepted.
    pub target_session_attrs: TargetSessionAttrs,
    /// Policy for binding SCRAM to the TLS channel.
    pub channel_binding: ChannelBinding,
    /// Detection of dead TCP connections.
    pub keepalive: Keepalive,
}

/// Detection of dead TCP connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// True to probe silent connections at all.
    pub enabled: bool,
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between two keepalive probes.
    pub interval: Duration,
    /// Number of unanswered probes that end the connection.
    pub count: u32,
    /// Longest time that sent bytes may stay unacknowledged.
    pub user_timeout: Duration,
}

/// Address of one server. Errors show it through `Display`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name or an address, and a port.
    Tcp {
        /// Name or address of the host.
        name: String,
        /// TCP port of the server.
        port: u16,
    },
    /// A directory with the server's Unix socket.
    Unix {
        /// Directory of the socket.
        directory: PathBuf,
        /// Port, which is part of the socket's name.
        port: u16,
    },
}

impl Settings {
    /// Describes the table in one line, without secrets: `postgres://app@db:5432/lake
    /// relation=public.t key=pk columns=payload`.
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

/// Shows the server as a URL without the password.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(Host::in_url).collect();
        let (user, dbname) = (encoded(&self.user), encoded(&self.dbname));
        write!(f, "postgres://{user}@{}/{dbname}", hosts.join(","))
    }
}

impl Host {
    /// Returns the path of a Unix socket.
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

/// Warnings that were already given: every connection of a table causes the same ones. All clones
/// share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoggedWarnings(Arc<Mutex<HashSet<String>>>);

impl LoggedWarnings {
    /// Returns whether this warning is new, and remembers it.
    pub(crate) fn is_new(&self, warning: &str) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logged.len() < WARNINGS_MAX && logged.insert(warning.to_owned())
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
        let logged = LoggedWarnings::default();
        assert!(logged.is_new("a") && logged.is_new("b"));
        assert!(!logged.clone().is_new("a"));
        let many =
            (0..2 * WARNINGS_MAX).filter(|number| logged.is_new(&number.to_string())).count();
        assert_eq!(many, WARNINGS_MAX - 2);
    }
}
