//! What can go wrong.

use std::{io, path::PathBuf};

/// Why a cluster cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// There is no Postgres server on this machine.
    #[error(
        "no Postgres server found (initdb, postgres, pg_ctl and psql in one directory; looked in {looked}). \
         Install it (Debian: apt-get install postgresql; Fedora: dnf install postgresql-server; \
         macOS: brew install postgresql) or name its directory in BUSLOAD_POSTGRES_BIN"
    )]
    NoPrograms {
        /// Where it was looked for.
        looked: String,
    },
    /// The server refuses to run as root, and there is nobody else to run it as.
    #[error("as root, the Postgres server runs as the user postgres, and there is none")]
    NoServerUser,
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed ({status}): {output}")]
    Program {
        /// Its name.
        program: &'static str,
        /// How it ended.
        status: String,
        /// What it printed.
        output: String,
    },
    /// The server did not start.
    #[error("the server in {directory} did not start: {why}; its log ends with:\n{log}")]
    NotStarted {
        /// The cluster's directory.
        directory: PathBuf,
        /// What was seen.
        why: &'static str,
        /// The end of its log.
        log: String,
    },
    /// No port could be had.
    #[error("no free port on the loopback address")]
    NoPort,
    /// It has been stopped or killed, or ended by itself.
    #[error("the cluster is not running")]
    NotRunning,
    /// It runs already.
    #[error("the cluster is running already")]
    Running,
    /// Processes do not show a signal in time.
    #[error("the server's processes did not follow a signal in time")]
    Signal,
}

impl ClusterError {
    /// For `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
