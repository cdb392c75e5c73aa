//! Errors of clusters.

use std::{io, path::PathBuf};

/// Reason why an operation on a cluster failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// There is no Postgres server on this machine.
    #[error(
        "no Postgres server found (initdb, postgres, pg_ctl and psql in one directory; \
         searched {searched}). \
         Install it (Debian: apt-get install postgresql; Fedora: dnf install postgresql-server; \
         macOS: brew install postgresql) or name its directory in BUSLOAD_POSTGRES_BIN"
    )]
    NoPrograms {
        /// Directories that were searched.
        searched: String,
    },
    /// The server refuses to run as root, and there is no other user to run it as.
    #[error("as root, the Postgres server runs as the user postgres, and there is none")]
    NoServerUser,
    /// The system refused an operation.
    #[error("cannot {what}: {source}")]
    Io {
        /// Operation that was tried.
        what: String,
        /// Reason that the system gave.
        source: io::Error,
    },
    /// A program of the server failed.
    #[error("{program} failed ({status}): {output}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// Exit status of the program.
        status: String,
        /// Output of the program.
        output: String,
    },
    /// The server did not start.
    #[error("the server in {directory} did not start: {why}; its log ends with:\n{log}")]
    NotStarted {
        /// Directory of the cluster.
        directory: PathBuf,
        /// Symptom of the failure.
        why: &'static str,
        /// Last lines of the server's log.
        log: String,
    },
    /// No free port was found.
    #[error("no free port on the loopback address")]
    NoPort,
    /// The server has been stopped or killed, or has ended by itself.
    #[error("the cluster is not running")]
    NotRunning,
    /// The server is running already.
    #[error("the cluster is running already")]
    Running,
    /// Processes did not react to a signal in time.
    #[error("the server's processes did not follow a signal in time")]
    Signal,
}

impl ClusterError {
    /// Returns a function for `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
