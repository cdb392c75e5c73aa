//! The servers under measurement: started, waited for, asked, stopped.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use rustix::process::{Pid, Signal};

use crate::{
    cleanup::{Cleanup, Directory, Process},
    cli::{bail_usage, name_of},
    clock::{duration_ns, now_ns, pause},
    limits::{
        ASK, INFO_BYTES_MAX, METRICS_BYTES_MAX, OUTPUT_LINES, POLL, READY, READY_SOURCE, SILENCE,
        STOP,
    },
    machine::CpuList,
};

/// File in a server's directory that takes what it prints.
const OUTPUT: &str = "output";

/// Arguments about the busload binary.
#[derive(Debug, Args)]
#[command(next_help_heading = "busload")]
pub struct Binary {
    /// The busload binary [default: beside this program, then target/release/busload]
    #[arg(long, value_name = "PATH")]
    pub busload: Option<PathBuf>,
    /// Further arguments for busload, separated by spaces
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true, default_value = "")]
    pub busload_args: String,
}

impl Binary {
    /// Makes a starter on these processors, with directories in `directory`.
    pub fn starter(&self, busload: PathBuf, cpus: Option<CpuList>, directory: PathBuf) -> Starter {
        let arguments = self.busload_args.split_ascii_whitespace().map(str::to_owned).collect();
        let (redis, valkey) = ("redis-server".into(), "valkey-server".into());
        Starter { busload, redis, valkey, arguments, cpus, directory }
    }
}

/// Finds the busload binary before anything takes time: the one that was named, the one beside this
/// program, or the one that cargo builds.
pub fn busload_at(named: Option<&Path>) -> Result<PathBuf> {
    let own = std::env::current_exe().context("the path of this program")?;
    let candidates = match named {
        Some(path) => vec![path.to_owned()],
        None => vec![own.with_file_name("busload"), PathBuf::from("target/release/busload")],
    };
    let Some(found) = candidates.iter().find(|path| path.is_file()) else {
        let looked: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        bail_usage!(
            "no busload binary at {}: build it (cargo build --release) or name it by --busload",
            looked.join(" or ")
        );
    };
    Ok(found.clone())
}

/// Arguments about the processors that are used.
#[derive(Debug, Args)]
#[command(next_help_heading = "Machine")]
pub struct Processors {
    /// Processors of the server, as 0 or 0-3, or `any`
    #[arg(long, value_name = "CPUS", default_value = "0")]
    pub server_cpu: CpuList,
    /// Processors of the load, as 1, or `any`. An S3 server of the bench runs on all
    #[arg(long, value_name = "CPUS", default_value = "1")]
    pub load_cpu: CpuList,
}

impl Processors {
    /// Binds this thread, the load.
    pub fn bind_load(&self) -> Result<()> {
        self.load_cpu.bind_thread()
    }

    pub fn text(&self) -> String {
        format!("server on {}, load on {}", self.server_cpu, self.load_cpu)
    }
}

/// Arguments about busload and the machine.
#[derive(Debug, Args)]
pub struct Served {
    #[command(flatten)]
    pub binary: Binary,
    /// Further options of busload's tables, as poll=1s&requests=128
    #[arg(long, value_name = "QUERY", help_heading = "busload")]
    pub table_options: Option<String>,
    #[command(flatten)]
    pub processors: Processors,
}

impl Served {
    /// Makes a starter, with directories in `directory`.
    pub fn starter(&self, busload: PathBuf, directory: PathBuf) -> Result<Starter> {
        Ok(self.binary.starter(busload, Some(self.processors.server_cpu.clone()), directory))
    }

    /// Joins options of a table with those of the command line, which come last.
    pub fn options(&self, own: &str) -> String {
        let options = [Some(own), self.table_options.as_deref()];
        options.into_iter().flatten().collect::<Vec<_>>().join("&")
    }
}

/// A kind of server that this program can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServerKind {
    /// busload
    Busload,
    /// redis-server
    Redis,
    /// valkey-server, with the settings of redis-server
    Valkey,
    /// Answers without doing anything: shows how fast the load side is
    Null,
    /// The server that one writes first: a thread for each connection, a lock, a write, a sync
    Naive,
}

/// Writes that survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// No log at all. busload: sync=off; Redis: no append-only file
    None,
    /// Written before the reply, synced later. busload: sync=os; Redis: appendfsync everysec
    Os,
    /// Synced before the reply. busload: sync=always; Redis: appendfsync always
    Always,
}

impl Durability {
    /// Returns busload's `sync`, and Redis' `appendonly` and `appendfsync`.
    fn settings(self) -> [&'static str; 3] {
        match self {
            Self::None => ["off", "no", "no"],
            Self::Os => ["os", "yes", "everysec"],
            Self::Always => ["always", "yes", "always"],
        }
    }
}

/// A memory table under measurement, and the server that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    pub kind: ServerKind,
    pub durability: Durability,
    /// busload's `--net-threads`; the others have nothing like it.
    pub net_threads: u32,
    /// Bytes of the value in every reply of the null server; 0: the reply is OK.
    pub reply_bytes: usize,
    /// Further arguments, before those of the command line.
    pub arguments: &'static [&'static str],
}

impl Launch {
    /// Leaves it to clients when to make a snapshot. The bench starts the others so anyway.
    pub fn without_snapshots(self) -> Self {
        match self.kind {
            ServerKind::Busload => Self { arguments: &["--snapshot-log", "none"], ..self },
            _ => self,
        }
    }
}

/// A table of the busload server.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: &'static str,
    /// The URL of what it is over.
    pub url: String,
}

impl Table {
    /// Makes a table over a chunk store at `url`, with options as `disk=1GiB&fill=whole`.
    pub fn of_chunks(name: &'static str, url: &str, options: &str) -> Self {
        let mark = if url.contains('?') { '&' } else { '?' };
        Self { name, url: format!("chunks+{url}{mark}{options}") }
    }
}

/// Programs and their arguments, the same for all measurements.
#[derive(Clone, Debug)]
pub struct Starter {
    pub busload: PathBuf,
    pub redis: PathBuf,
    pub valkey: PathBuf,
    /// Further arguments for busload.
    pub arguments: Vec<String>,
    pub cpus: Option<CpuList>,
    /// Parent of the servers' directories.
    pub directory: PathBuf,
}

/// A running server; its directory goes after it.
#[derive(Debug)]
pub struct Server {
    kind: ServerKind,
    process: Process,
    resp: SocketAddr,
    http: SocketAddr,
    ready_after: Duration,
    data: Directory,
}

impl Starter {
    /// Starts busload with these tables in a new directory.
    pub fn start(&self, cleanup: &Cleanup, tables: &[Table]) -> Result<Server> {
        self.start_in(cleanup, cleanup.directory(&self.directory)?, tables)
    }

    /// Starts busload with these tables where another has left its cache.
    pub fn start_in(&self, cleanup: &Cleanup, data: Directory, tables: &[Table]) -> Result<Server> {
        let (kind, durability) = (ServerKind::Busload, Durability::None);
        let launch = Launch { kind, durability, net_threads: 0, reply_bytes: 0, arguments: &[] };
        self.launch(cleanup, data, &launch, tables).context("cannot start the busload server")
    }

    /// Starts a server with a memory table, and busload with further tables; recovers what is in
    /// the directory already.
    pub fn launch(
        &self,
        cleanup: &Cleanup,
        data: Directory,
        launch: &Launch,
        tables: &[Table],
    ) -> Result<Server> {
        let [resp, http] = free_addresses()?;
        let directory = data.path().join("data");
        fs::create_dir_all(&directory).context("a server's directory")?;
        let [sync, append_only, append_fsync] = launch.durability.settings();
        let mut command = match launch.kind {
            ServerKind::Busload => {
                let mut command = Command::new(&self.busload);
                command.args(["serve", "--data"]).arg(&directory);
                command.args(["--resp", &resp.to_string(), "--http", &http.to_string()]);
                command.args(["--net-threads", &launch.net_threads.to_string()]);
                command.args(["--table", &format!("default=memory:?sync={sync}")]);
                for Table { name, url } in tables {
                    command.args(["--table", &format!("{name}={url}")]);
                }
                command.args(launch.arguments).args(&self.arguments);
                command
            }
            ServerKind::Redis | ServerKind::Valkey => {
                let is_redis = launch.kind == ServerKind::Redis;
                let mut command = Command::new(if is_redis { &self.redis } else { &self.valkey });
                command.args(["--bind", "127.0.0.1", "--port", &resp.port().to_string()]);
                command.arg("--dir").arg(&directory).args(["--save", "", "--daemonize", "no"]);
                command.args(["--appendonly", append_only, "--appendfsync", append_fsync]);
                command.args(["--auto-aof-rewrite-percentage", "0"]).args(launch.arguments);
                command
            }
            ServerKind::Null => {
                let mut command = Command::new(std::env::current_exe().context("this program")?);
                command.args(["null-server", &resp.to_string(), &launch.reply_bytes.to_string()]);
                command
            }
            ServerKind::Naive => {
                let mut command = Command::new(std::env::current_exe().context("this program")?);
                command.args(["naive-server", &resp.to_string(), &name_of(&launch.durability)]);
                command.arg(directory.join("log"));
                command
            }
        };
        // A file takes what it prints without ever blocking it.
        let printed = File::create(data.path().join(OUTPUT)).context("a server's output")?;
        command.stdin(Stdio::null()).stdout(printed.try_clone()?).stderr(printed);
        let started_ns = now_ns();
        let process = match &self.cpus {
            Some(cpus) => cpus.with(|| cleanup.spawn(&mut command))?,
            None => cleanup.spawn(&mut command)?,
        };
        let kind = launch.kind;
        let mut server = Server { kind, process, resp, http, ready_after: Duration::ZERO, data };
        // Before it is ready it accepts connections, but answers nothing.
        server.wait_within(READY, "PING", "+PONG")?;
        let tells = !matches!(launch.kind, ServerKind::Redis | ServerKind::Valkey);
        if tells && !last_lines(&server.data).contains("ready") {
            // Another program has taken the port.
            bail!("another program answers at {resp}, not the server that was started");
        }
        server.ready_after = Duration::from_nanos(now_ns() - started_ns);
        Ok(server)
    }
}

impl Server {
    pub fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Returns the address for RESP.
    pub fn resp(&self) -> SocketAddr {
        self.resp
    }

    /// Returns the address for gRPC and HTTP, which only busload serves.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    pub fn directory(&self) -> &Path {
        self.data.path()
    }

    /// Returns the time from its start until it answered `PING`.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Asks it to stop (SIGTERM) and waits; its directory stays for the next.
    pub fn stop(self) -> Result<Directory> {
        let status = self.process.stop(Signal::TERM, STOP)?;
        if !status.success() {
            let printed = last_lines(&self.data);
            bail!("the server stopped with {status}; its last output:\n{printed}");
        }
        Ok(self.data)
    }

    /// Waits until it gives this answer to a command: it serves before it has reached what its
    /// tables are over.
    pub fn wait_for(&self, command: &str, wanted: &str) -> Result<()> {
        self.wait_within(READY_SOURCE, command, wanted)
    }

    fn wait_within(&self, timeout: Duration, command: &str, wanted: &str) -> Result<()> {
        let until_ns = now_ns() + duration_ns(timeout);
        loop {
            let ended = self.process.poll_exit();
            let reply = ask(self.resp, command).unwrap_or_else(|error| error.to_string());
            if reply == wanted && ended.is_none() {
                return Ok(());
            }
            if ended.is_some() || until_ns < now_ns() {
                let printed = last_lines(&self.data);
                bail!("to {command} the server answers `{reply}` ({ended:?}):\n{printed}");
            }
            pause(POLL);
        }
    }

    /// Reads the metrics that it shows.
    pub fn metrics(&self) -> Result<Metrics> {
        let mut socket = TcpStream::connect(self.http).context("no HTTP")?;
        socket.set_read_timeout(Some(Duration::from_secs(10))).context("a socket's option")?;
        // Of HTTP/1.0, so that the answer is not cut into chunks.
        socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").context("asking for metrics")?;
        let mut text = String::new();
        socket.take(METRICS_BYTES_MAX).read_to_string(&mut text).context("reading metrics")?;
        Ok(Metrics { text })
    }
}

/// A page of metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    text: String,
}

impl Metrics {
    /// Returns a metric of a table.
    pub fn of_table(&self, name: &str, table: &str) -> Option<f64> {
        self.with_label(name, &format!("table=\"{table}\""))
    }

    /// Returns a metric of the stores of a pattern.
    pub fn of_pattern(&self, name: &str, pattern: &str) -> Option<f64> {
        self.with_label(name, &format!("pattern=\"{pattern}\""))
    }

    fn with_label(&self, name: &str, label: &str) -> Option<f64> {
        let start = format!("{name}{{");
        let mut lines = self.text.lines();
        let line = lines.find(|line| line.starts_with(&start) && line.contains(label))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

/// Returns the last lines that a server printed, on stdout and stderr.
fn last_lines(data: &Directory) -> String {
    let printed = fs::read(data.path().join(OUTPUT)).unwrap_or_default();
    let printed = String::from_utf8_lossy(&printed);
    let lines: Vec<_> = printed.lines().collect();
    lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n")
}

/// Sends one command to a server and returns the first line of its reply.
pub fn ask(address: SocketAddr, command: &str) -> Result<String> {
    Ok(send(address, command, ASK)?.0)
}

/// Does the same with a server that has much to do.
pub fn ask_busy(address: SocketAddr, command: &str) -> Result<String> {
    Ok(send(address, command, SILENCE)?.0)
}

/// Fields of INFO, by name.
#[derive(Clone, Debug, Default)]
pub struct Info {
    text: String,
}

impl Info {
    /// Asks a server for its fields about persistence.
    pub fn persistence(address: SocketAddr) -> Result<Self> {
        Self::section(address, "INFO persistence")
    }

    /// Asks busload for its fields about stages and their batches.
    pub fn stages(address: SocketAddr) -> Result<Self> {
        Self::section(address, "INFO stages")
    }

    fn section(address: SocketAddr, question: &str) -> Result<Self> {
        let (head, rest) = send(address, question, SILENCE).context("INFO")?;
        let length = head.strip_prefix('$').and_then(|length| length.parse().ok());
        let length = length.filter(|length| *length <= INFO_BYTES_MAX);
        let length = length.with_context(|| format!("to INFO the server answers `{head}`"))?;
        let mut text = String::new();
        rest.take(length).read_to_string(&mut text).context("INFO")?;
        Ok(Self { text })
    }

    #[cfg(test)]
    pub fn from(text: &str) -> Self {
        Self { text: text.to_owned() }
    }

    /// Returns a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.text.lines().filter_map(|line| line.strip_prefix(name));
        values.find_map(|value| value.strip_prefix(':'))
    }

    /// Returns a field that may have a fraction.
    pub fn decimal(&self, name: &str) -> Option<f64> {
        self.get(name)?.parse().ok()
    }

    /// Returns a field that is a number; 0 if there is none, as with fields of another server.
    pub fn number(&self, name: &str) -> u64 {
        self.get(name).and_then(|value| value.parse().ok()).unwrap_or_default()
    }
}

/// Sends one command on a connection of its own. Returns the first line of the reply, and what
/// comes behind it.
fn send(
    address: SocketAddr,
    command: &str,
    timeout: Duration,
) -> Result<(String, BufReader<TcpStream>)> {
    let mut socket = TcpStream::connect_timeout(&address, timeout)?;
    socket.set_read_timeout(Some(timeout))?;
    let words: Vec<_> =
        command.split(' ').map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    socket.write_all(format!("*{}\r\n{}", words.len(), words.concat()).as_bytes())?;
    let (mut line, mut reader) = (String::new(), BufReader::new(socket));
    reader.by_ref().take(4_096).read_line(&mut line)?;
    Ok((line.trim_end().to_owned(), reader))
}

/// Finds two addresses on which nobody listens. Another program could take one before the server
/// does; it never has. Both are held until both are known: the system may well give a port again
/// that was let go a moment ago.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port");
    let (one, other) = (listen()?, listen()?);
    Ok([one.local_addr()?, other.local_addr()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_name_and_table() {
        let text = "x{table=\"db\"} 5\nx_total{table=\"db\"} 7\nx{table=\"other\"} 1.5e3\n";
        let metrics = Metrics { text: text.to_owned() };
        let asked = [("x", "db"), ("x_total", "db"), ("x", "other"), ("x", "absent")];
        let found = asked.map(|(name, table)| metrics.of_table(name, table));
        assert_eq!(found, [Some(5.0), Some(7.0), Some(1_500.0), None]);
    }

    #[test]
    fn info_is_read_whole_and_its_fields_by_their_names() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            for reply in ["$22\r\n# P\r\nxy:7\r\nx:1\r\nz:ok\r\n", "-ERR unknown\r\n"] {
                let (mut socket, _) = listener.accept().unwrap();
                assert!(socket.read(&mut [0; 1_024]).unwrap() > 0);
                socket.write_all(reply.as_bytes()).unwrap();
            }
        });
        let info = Info::persistence(address).unwrap();
        assert_eq!(["x", "xy", "z", "absent"].map(|name| info.number(name)), [1, 7, 0, 0]);
        assert_eq!((info.get("z"), info.get("absent")), (Some("ok"), None));
        assert!(Info::persistence(address).is_err_and(|error| error.to_string().contains("-ERR")));
        serving.join().unwrap();
    }
}
