//! The busload server with the tables of an experiment.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::process::Pid;

use crate::{
    cleanup::{Cleanup, Directory},
    cli::cpus,
    clock::{duration_ns, now_ns, pause},
    limits::{POLL, READY_SOURCE},
    machine::CpuList,
    requests::Operation,
    server::{self, Durability, Kind, Launch, Programs, ask},
};

/// Arguments about the busload binary.
#[derive(Debug, Args)]
pub struct Binary {
    /// The busload binary [default: beside this program, then target/release/busload]
    #[arg(long, value_name = "PATH", help_heading = "busload")]
    pub busload: Option<PathBuf>,
    /// Further arguments for busload, separated by spaces
    #[arg(
        long,
        value_name = "ARGS",
        allow_hyphen_values = true,
        default_value = "",
        help_heading = "busload"
    )]
    pub busload_args: String,
}

impl Binary {
    /// Makes a starter on these processors, with directories in `directory`.
    pub fn starter(&self, busload: PathBuf, cpus: Option<CpuList>, directory: PathBuf) -> Starter {
        let arguments = self.busload_args.split_ascii_whitespace().map(str::to_owned).collect();
        Starter { busload, arguments, cpus, directory }
    }
}

/// Arguments about the processors that are used.
#[derive(Debug, Args)]
pub struct Processors {
    /// Processors of the server, as 0 or 0-3, or `any`
    #[arg(long, value_name = "CPUS", default_value = "0", help_heading = "Machine")]
    pub server_cpu: String,
    /// Processors of the load, as 1, or `any`. An S3 server of the bench runs on all
    #[arg(long, value_name = "CPUS", default_value = "1", help_heading = "Machine")]
    pub load_cpu: String,
}

impl Processors {
    /// Refuses wrong lists of processors.
    pub fn check(&self) -> Result<()> {
        cpus(&self.server_cpu)?;
        cpus(&self.load_cpu).map(drop)
    }

    /// Returns the processors of the server, or none in particular.
    pub fn of_server(&self) -> Result<Option<CpuList>> {
        cpus(&self.server_cpu)
    }

    /// Binds this thread, the load.
    pub fn bind_load(&self) -> Result<()> {
        cpus(&self.load_cpu)?.map_or(Ok(()), |cpus| cpus.bind_thread())
    }

    pub fn text(&self) -> String {
        format!("server on {}, load on {}", self.server_cpu, self.load_cpu)
    }
}

/// Arguments about busload and the machine.
#[derive(Debug, Args)]
pub struct Served {
    /// Which busload
    #[command(flatten)]
    pub binary: Binary,
    /// Further options of busload's tables, as poll=1s&requests=128
    #[arg(long, value_name = "QUERY", help_heading = "busload")]
    pub table_options: Option<String>,
    /// The machine
    #[command(flatten)]
    pub processors: Processors,
}

impl Served {
    /// Makes a starter, with directories in `directory`.
    pub fn starter(&self, busload: PathBuf, directory: PathBuf) -> Result<Starter> {
        Ok(self.binary.starter(busload, self.processors.of_server()?, directory))
    }

    /// Options of a table with those of the command line, which come last.
    pub fn options(&self, own: &str) -> String {
        let options = [Some(own), self.table_options.as_deref()];
        options.into_iter().flatten().collect::<Vec<_>>().join("&")
    }
}

/// A table to serve.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: &'static str,
    /// The URL of what it is over.
    pub url: String,
}

impl Table {
    /// Over a chunk store at `url`, with options as `disk=1GiB&fill=whole`.
    pub fn of_chunks(name: &'static str, url: &str, options: &str) -> Self {
        let mark = if url.contains('?') { '&' } else { '?' };
        Self { name, url: format!("chunks+{url}{mark}{options}") }
    }
}

/// Starter of busload servers, the same for all measurements.
#[derive(Clone, Debug)]
pub struct Starter {
    pub busload: PathBuf,
    pub arguments: Vec<String>,
    pub cpus: Option<CpuList>,
    /// Parent of the servers' directories.
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
    pub fn start(&self, cleanup: &Cleanup, tables: &[Table]) -> Result<Server> {
        let data = cleanup.directory(&self.directory)?;
        self.start_in(cleanup, data, tables)
    }

    /// Starts it where another has left its cache.
    pub fn start_in(&self, cleanup: &Cleanup, data: Directory, tables: &[Table]) -> Result<Server> {
        let server =
            self.spawn(cleanup, data.path(), tables).context("cannot start the busload server")?;
        Ok(Server { server, data })
    }

    fn spawn(&self, cleanup: &Cleanup, data: &Path, tables: &[Table]) -> Result<server::Server> {
        let mut busload_arguments = Vec::new();
        for Table { name, url } in tables {
            busload_arguments.extend(["--table".to_owned(), format!("{name}={url}")]);
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
    /// Returns the address for RESP.
    pub fn resp(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the address for gRPC and HTTP.
    pub fn http(&self) -> SocketAddr {
        self.server.http()
    }

    pub fn pid(&self) -> Pid {
        self.server.pid()
    }

    /// Returns the time from its start until it answered `PING`.
    pub fn ready_after(&self) -> Duration {
        self.server.ready_after()
    }

    /// Ends it; its directory stays for the next.
    pub fn stop(self) -> Result<Directory> {
        self.server.stop()?;
        Ok(self.data)
    }

    /// Waits until it gives this answer to a command: it serves before it has reached what its
    /// tables are over.
    pub fn wait_for(&self, command: &str, wanted: &str) -> Result<()> {
        let until_ns = now_ns() + duration_ns(READY_SOURCE);
        loop {
            let reply = ask(self.resp(), command);
            if reply.as_ref().is_ok_and(|reply| reply == wanted) {
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
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('{') && rest.contains(&label))
        })?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_name_and_table() {
        let text = "# TYPE x gauge\nx{table=\"db\"} 5\nx_total{table=\"db\"} 7\n\
                    x{table=\"other\",y=\"z\"} 1.5e3\n";
        let metrics = Metrics { text: text.to_owned() };
        assert_eq!(metrics.of_table("x", "db"), Some(5.0));
        assert_eq!(metrics.of_table("x_total", "db"), Some(7.0));
        assert_eq!(metrics.of_table("x", "other"), Some(1_500.0));
        assert_eq!(metrics.of_table("x", "absent"), None);
    }
}
