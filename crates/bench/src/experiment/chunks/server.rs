//! The busload server with tables over the experiment's stores.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;

use super::store::Store;
use crate::{
    cleanup::{Cleanup, Directory},
    clock::{duration_ns, now_ns, pause},
    limits::{POLL, READY_SOURCE},
    machine::CpuList,
    requests::Operation,
    server::{self, Durability, Kind, Launch, Programs, ask},
};

/// A table to serve.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// URL of the store.
    pub url: String,
    /// Options of the table, as `disk=1GiB&fill=whole`.
    pub options: String,
}

/// How busload is started, the same for all measurements.
#[derive(Clone, Debug)]
pub struct Starter {
    /// The binary.
    pub busload: PathBuf,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Where it runs, or anywhere.
    pub cpus: Option<CpuList>,
    /// Where its directories are made.
    pub directory: PathBuf,
}

/// A running server; its directory goes after it.
#[derive(Debug)]
pub struct Server {
    server: server::Server,
    data: Directory,
}

impl Starter {
    /// Starts it in a new directory.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(&self, cleanup: &Cleanup, tables: &[Table]) -> Result<Server> {
        let data = cleanup.directory(&self.directory)?;
        self.start_in(cleanup, data, tables)
    }

    /// Starts it where another has left its cache.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start_in(&self, cleanup: &Cleanup, data: Directory, tables: &[Table]) -> Result<Server> {
        let server = self.spawn(cleanup, data.path(), tables).context("cannot start the busload server")?;
        Ok(Server { server, data })
    }

    fn spawn(&self, cleanup: &Cleanup, data: &Path, tables: &[Table]) -> Result<server::Server> {
        let mut busload_arguments = Vec::new();
        for Table { name, url, options } in tables {
            let mark = if url.contains('?') { '&' } else { '?' };
            busload_arguments.extend(["--table".to_owned(), format!("{name}=chunks+{url}{mark}{options}")]);
        }
        busload_arguments.extend(self.arguments.iter().cloned());
        let programs = Programs {
            busload: self.busload.clone(),
            redis: PathBuf::new(),
            busload_arguments,
            redis_arguments: Vec::new(),
            cpus: self.cpus.clone(),
        };
        let launch = Launch {
            kind: Kind::Busload,
            durability: Durability::None,
            net_threads: 0,
            directory: data,
            null_reply: (Operation::Get, 0),
        };
        programs.start(cleanup, &launch)
    }
}

impl Server {
    /// Where it listens for RESP.
    pub fn resp(&self) -> SocketAddr {
        self.server.address()
    }

    /// Where it listens for gRPC and HTTP.
    pub fn http(&self) -> SocketAddr {
        self.server.http()
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.server.pid()
    }

    /// How long it took from its start until it answered `PING`.
    pub fn ready_after(&self) -> Duration {
        self.server.ready_after()
    }

    /// Ends it; its directory stays for the next.
    ///
    /// # Errors
    ///
    /// It does not end in order.
    pub fn stop(self) -> Result<Directory> {
        self.server.stop()?;
        Ok(self.data)
    }

    /// Waits until a table's store is open: until its last chunk is known to exist.
    ///
    /// # Errors
    ///
    /// It does not happen in time.
    pub fn wait_open(&self, table: &str, store: &Store) -> Result<()> {
        let last = store.entries.last().context("a store with chunks")?;
        let command = format!("EXISTS {table}:{}", last.address);
        let until_ns = now_ns() + duration_ns(READY_SOURCE);
        loop {
            let reply = ask(self.resp(), &command);
            if reply.as_ref().is_ok_and(|reply| reply == ":1") {
                return Ok(());
            }
            if until_ns < now_ns() {
                let reply = reply.unwrap_or_else(|error| error.to_string());
                bail!("the busload server answers `{reply}`:\n{}", self.server.output().join("\n"));
            }
            pause(POLL);
        }
    }

    /// The metrics it shows.
    ///
    /// # Errors
    ///
    /// It shows none.
    pub fn metrics(&self) -> Result<Metrics> {
        let mut socket = TcpStream::connect(self.http()).context("no HTTP")?;
        socket.set_read_timeout(Some(Duration::from_secs(10))).context("a socket's option")?;
        // Of HTTP/1.0, so that the answer is not cut into chunks.
        socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").context("asking for metrics")?;
        let mut text = String::new();
        socket.take(METRICS_BYTES_MAX).read_to_string(&mut text).context("reading metrics")?;
        Ok(Metrics { text })
    }
}

/// Longest page of metrics that is read.
const METRICS_BYTES_MAX: u64 = 4 << 20;

/// A page of metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    text: String,
}

impl Metrics {
    /// A metric of a table.
    pub fn of_table(&self, name: &str, table: &str) -> Option<f64> {
        let label = format!("table=\"{table}\"");
        let line = self.text.lines().find(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') && rest.contains(&label))
        })?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_name_and_table() {
        let text =
            "# TYPE x gauge\nx{table=\"db\"} 5\nx_total{table=\"db\"} 7\nx{table=\"other\",y=\"z\"} 1.5e3\n";
        let metrics = Metrics { text: text.to_owned() };
        assert_eq!(metrics.of_table("x", "db"), Some(5.0));
        assert_eq!(metrics.of_table("x_total", "db"), Some(7.0));
        assert_eq!(metrics.of_table("x", "other"), Some(1_500.0));
        assert_eq!(metrics.of_table("x", "absent"), None);
    }
}
