//! The busload server: a memory table, and one over the table in Postgres.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;

use super::{
    arguments::Postgres,
    database::Database,
    library::{Rule, table_url},
    rows::Key,
};
use crate::{
    cleanup::{Cleanup, Directory},
    clock::{duration_ns, now_ns, pause},
    limits::{POLL, READY_SOURCE},
    requests::Operation,
    server::{self, Durability, Kind, Launch, Programs, ask},
};

/// A running server; its directory goes after it.
pub struct Server {
    server: server::Server,
    _directory: Directory,
}

impl Server {
    /// The name of the table over Postgres.
    pub const TABLE: &str = "bench";

    /// Starts it and waits until it answers from Postgres.
    ///
    /// # Errors
    ///
    /// It cannot be started, or cannot reach Postgres.
    pub fn start(
        cleanup: &Cleanup,
        busload: &Path,
        arguments: &Postgres,
        database: &Database,
    ) -> Result<Self> {
        let directory = cleanup.directory(&std::env::temp_dir())?;
        let mut busload_arguments = vec![
            "--table".to_owned(),
            format!("{}={}", Self::TABLE, table_url(arguments, database, Rule::Own)),
        ];
        busload_arguments.extend(arguments.busload_args.split_ascii_whitespace().map(str::to_owned));
        let programs = Programs {
            busload: busload.to_owned(),
            redis: std::path::PathBuf::new(),
            busload_arguments,
            redis_arguments: Vec::new(),
            cpus: None,
        };
        let launch = Launch {
            kind: Kind::Busload,
            durability: Durability::None,
            net_threads: 0,
            directory: directory.path(),
            null_reply: (Operation::Get, 0),
        };
        let server = programs.start(cleanup, &launch).context("cannot start the busload server")?;
        let started = Self { server, _directory: directory };
        started.wait_for_postgres()?;
        Ok(started)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.server.pid()
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// It does not end in order.
    pub fn stop(self) -> Result<()> {
        self.server.stop().map(drop)
    }

    /// It serves before it has reached Postgres, and says so in its replies.
    fn wait_for_postgres(&self) -> Result<()> {
        let until_ns = now_ns() + duration_ns(READY_SOURCE);
        let command = format!("GET {}:{}", Self::TABLE, Key::of(0).text());
        loop {
            let reply = ask(self.address(), &command)?;
            if reply == "$35" {
                return Ok(());
            }
            if until_ns < now_ns() {
                bail!("the busload server answers `{reply}`:\n{}", self.server.output().join("\n"));
            }
            pause(POLL);
        }
    }
}
