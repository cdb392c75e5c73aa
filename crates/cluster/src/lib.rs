//! Private Postgres clusters for tests and benchmarks.
//!
//! ```text
//!  Builder --initdb--> directory --postgres--> Cluster --psql--> SQL
//!                                                |  start, stop, kill, pause, resume
//!                                             watchdog: ends it when this process is gone
//! ```
//!
//! A [`Cluster`] has a directory of its own, `busload-cluster-*` in the temporary directory unless
//! another is named, and the superuser `busload` and the database `busload`. It listens on a free
//! port of the loopback address and on a Unix socket in its directory. [`find_programs`] finds the
//! programs of the server; as root they run as the user `postgres`, since they refuse root.
//!
//! **Side effects.** Signals go to the postmaster that the cluster started and to its descendants,
//! which are listed while their parent is stopped, so that no process id can have been reused.
//! Dropping a [`Cluster`] stops the server at once and removes the directory if the cluster made
//! it. A small watchdog process does the same when this process ends without dropping (killed, or
//! with the cluster in a static), so that test binaries can share one ([`Cluster::shared`]).
//!
//! **Limits.** [`limits`]: how long a start and a stop may take, which ports are used.
//!
//! **Blocking.** Everything here blocks, for milliseconds to seconds: it is meant for tests and
//! set-up.
//!
//! [`proxy`] stands between a client and the cluster: it stalls, delays and cuts connections.

#![forbid(unsafe_code)]
#![cfg(unix)]

mod builder;
mod cluster;
mod error;
mod files;
pub mod limits;
mod port;
mod processes;
mod programs;
pub mod proxy;
mod psql;
mod wait;
mod watchdog;

pub use builder::{Builder, Profile, Tls};
pub use cluster::{Cluster, StopMode};
pub use error::ClusterError;
pub use programs::{Programs, find_programs};
