//! The servers under measurement: started, waited for, stopped.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

use crate::{
    cleanup::{Cleanup, Process},
    clock::{duration_ns, now_ns, pause},
    limits::{OUTPUT_LINES, POLL, READY, STOP},
    machine::CpuList,
    requests::Operation,
};

/// A kind of server this program can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// busload
    Busload,
    /// redis-server
    Redis,
    /// Answers without doing anything: shows how fast the load side is
    Null,
}

impl Kind {
    /// The name in tables and in `--servers`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busload => "busload",
            Self::Redis => "redis",
            Self::Null => "null",
        }
    }
}

/// Writes that survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Durability {
    /// No log at all. busload: sync=off; Redis: no append-only file
    None,
    /// Written before the reply, synced later. busload: sync=os; Redis: appendfsync everysec
    Os,
    /// Synced before the reply. busload: sync=always; Redis: appendfsync always
    Always,
}

impl Durability {
    /// The name in tables and in `--case`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Os => "os",
            Self::Always => "always",
        }
    }

    fn busload_sync(self) -> &'static str {
        match self {
            Self::None => "off",
            Self::Os => "os",
            Self::Always => "always",
        }
    }

    fn redis_arguments(self) -> &'static [&'static str] {
        match self {
            Self::None => &["--appendonly", "no"],
            Self::Os => &["--appendonly", "yes", "--appendfsync", "everysec"],
            Self::Always => &["--appendonly", "yes", "--appendfsync", "always"],
        }
    }
}

/// Programs and their arguments, the same for all cases.
#[derive(Clone, Debug)]
pub struct Programs {
    pub busload: PathBuf,
    pub redis: PathBuf,
    /// Further arguments for busload.
    pub busload_arguments: Vec<String>,
    /// Further arguments for redis-server.
    pub redis_arguments: Vec<String>,
    /// Processors for the server, or any.
    pub cpus: Option<CpuList>,
}

#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    pub kind: Kind,
    pub durability: Durability,
    /// busload's `--net-threads`; the others have nothing like it.
    pub net_threads: u32,
    /// Its data; what is there already is recovered.
    pub directory: &'a Path,
    /// Operation that will be sent and bytes of a value; only the null server needs to know.
    pub null_reply: (Operation, usize),
}

#[derive(Debug)]
pub struct Server {
    process: Process,
    address: SocketAddr,
    http: SocketAddr,
    output: Output,
    ready_after: Duration,
}

impl Programs {
    /// Starts a server and waits until it serves.
    pub fn start(&self, cleanup: &Cleanup, launch: &Launch<'_>) -> Result<Server> {
        let [address, http] = free_addresses()?;
        let mut command = self.command(launch, address, http)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started_ns = now_ns();
        let process = match &self.cpus {
            Some(cpus) => cpus.with(|| cleanup.spawn(&mut command))?,
            None => cleanup.spawn(&mut command)?,
        };
        let output = Output::default();
        output.follow(process.with_child(|child| child.stdout.take()))?;
        output.follow(process.with_child(|child| child.stderr.take()))?;
        let mut server = Server { process, address, http, output, ready_after: Duration::ZERO };
        server.wait_ready(launch.kind, started_ns)?;
        Ok(server)
    }

    fn command(
        &self,
        launch: &Launch<'_>,
        address: SocketAddr,
        http: SocketAddr,
    ) -> Result<Command> {
        match launch.kind {
            Kind::Busload => Ok(self.busload_command(launch, address, http)),
            Kind::Redis => Ok(self.redis_command(launch, address)),
            Kind::Null => null_command(launch, address),
        }
    }

    fn busload_command(
        &self,
        launch: &Launch<'_>,
        address: SocketAddr,
        http: SocketAddr,
    ) -> Command {
        let mut command = Command::new(&self.busload);
        command
            .args(["serve", "--data"])
            .arg(launch.directory)
            .args(["--resp", &address.to_string(), "--http", &http.to_string()])
            .args(["--net-threads", &launch.net_threads.to_string()])
            .arg("--table")
            .arg(format!("default=memory:?sync={}", launch.durability.busload_sync()))
            .args(&self.busload_arguments);
        command
    }

    fn redis_command(&self, launch: &Launch<'_>, address: SocketAddr) -> Command {
        let mut command = Command::new(&self.redis);
        command
            .args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--dir"])
            .arg(launch.directory)
            .args(["--save", "", "--daemonize", "no", "--auto-aof-rewrite-percentage", "0"])
            .args(launch.durability.redis_arguments())
            .args(&self.redis_arguments);
        command
    }
}

fn null_command(launch: &Launch<'_>, address: SocketAddr) -> Result<Command> {
    let (operation, value_bytes) = launch.null_reply;
    let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
    command.args(["null-server", "--listen", &address.to_string(), "--reply-bytes"]);
    command.arg(if operation == Operation::Set { "0".to_owned() } else { value_bytes.to_string() });
    Ok(command)
}

impl Server {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address for HTTP and gRPC, which only busload serves.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Returns the time from its start until it served.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// The last lines it printed.
    pub fn output(&self) -> Vec<String> {
        self.output.lines()
    }

    /// Asks it to stop (SIGTERM) and waits; gives how long that took.
    pub fn stop(self) -> Result<Duration> {
        let started_ns = now_ns();
        let status = self.process.stop(Signal::TERM, STOP)?;
        if !status.success() {
            bail!("the server stopped with {status}; its last output:\n{}", self.output.text());
        }
        Ok(Duration::from_nanos(now_ns() - started_ns))
    }

    /// busload says on stderr when it is ready, all answer PING only then.
    fn wait_ready(&mut self, kind: Kind, started_ns: u64) -> Result<()> {
        let until_ns = started_ns + duration_ns(READY);
        loop {
            let says_so = kind == Kind::Redis || self.output.is_ready();
            if says_so && ping(self.address).unwrap_or(false) {
                self.ready_after = Duration::from_nanos(now_ns() - started_ns);
                return Ok(());
            }
            if let Some(status) = self.process.poll_exit() {
                pause(POLL * 10);
                bail!("{} ended at its start with {status}:\n{}", kind.name(), self.output.text());
            }
            if until_ns < now_ns() {
                bail!("{} was not ready within {READY:?}:\n{}", kind.name(), self.output.text());
            }
            pause(POLL);
        }
    }
}

/// Sends one command to a server and gives the first line of its reply.
pub fn ask(address: SocketAddr, command: &str) -> Result<String> {
    let timeout = Duration::from_secs(2);
    let mut socket = TcpStream::connect_timeout(&address, timeout)?;
    socket.set_read_timeout(Some(timeout))?;
    let words: Vec<_> =
        command.split(' ').map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    socket.write_all(format!("*{}\r\n{}", words.len(), words.concat()).as_bytes())?;
    let mut line = String::new();
    BufReader::new(socket.take(4_096)).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

fn ping(address: SocketAddr) -> Result<bool> {
    Ok(ask(address, "PING")? == "+PONG")
}

/// Two addresses nobody listens on. Another program could take one before the server does; it never
/// has. Both are held until both are known: the system may well give a port again that was let go a
/// moment ago.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port");
    let (one, other) = (listen()?, listen()?);
    Ok([one.local_addr()?, other.local_addr()?])
}

/// Output of a server, read by a thread per pipe so that it never blocks on us.
#[derive(Clone, Debug, Default)]
struct Output {
    printed: Arc<Mutex<Printed>>,
}

#[derive(Debug, Default)]
struct Printed {
    recent: VecDeque<String>,
    is_ready: bool,
}

impl Output {
    fn follow(&self, pipe: Option<impl Read + Send + 'static>) -> Result<()> {
        let Some(pipe) = pipe else { return Ok(()) };
        let output = self.clone();
        std::thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || {
                for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                    output.add(&String::from_utf8_lossy(&line));
                }
            })
            .context("a thread for the server's output")?;
        Ok(())
    }

    fn add(&self, line: &str) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        printed.is_ready |= line.starts_with("ready");
        if printed.recent.len() == OUTPUT_LINES {
            printed.recent.pop_front();
        }
        printed.recent.push_back(line.to_owned());
    }

    fn is_ready(&self) -> bool {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).is_ready
    }

    fn lines(&self) -> Vec<String> {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).recent.iter().cloned().collect()
    }

    fn text(&self) -> String {
        let lines = self.lines();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}
