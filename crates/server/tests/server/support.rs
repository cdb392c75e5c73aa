//! Runs the real binary as a process, with a minimal client of the protocol.

pub mod client;
pub mod fixtures;
pub mod pty;
pub mod served;

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use busload_io::{Clock, RealClock};
use rustix::process::{Pid, Signal, kill_process};

pub use client::Client;

/// Longest time that anything takes on a slow machine; a test that waits longer has hung.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Polls a condition until it holds.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = RealClock::new();
    while !is_so() {
        assert!(clock.now() < TIMEOUT, "not in time: {what}");
        thread::yield_now();
    }
}

/// Returns a command of the binary, without variables of the tests' environment that would
/// configure it.
pub fn busload() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_busload"));
    for variable in ["BUSLOAD_PASSWORD", "BUSLOAD_USER", "BUSLOAD_LOG", "NOTIFY_SOCKET"] {
        command.env_remove(variable);
    }
    command
}

/// Returns the command of a start on free ports with its data in this directory.
pub fn serve(data: &Path, arguments: &[&str]) -> Command {
    let mut command = busload();
    command.args(on_free_ports(&[&["serve"][..], arguments].concat())).arg("--data").arg(data);
    command
}

/// Runs a command to its end. A start must be one that is refused.
pub fn run(arguments: &[&str]) -> Ended {
    Ended::of(busload().args(on_free_ports(arguments)).output().unwrap())
}

/// Adds free ports to the arguments of a start, and of `check`, which listens for a moment on the
/// ports of a start: both would meet other tests on the default ones.
pub fn on_free_ports<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut all = arguments.to_vec();
    if matches!(arguments.first(), Some(&"check" | &"serve")) {
        for flag in ["--resp", "--http"].into_iter().filter(|flag| !arguments.contains(flag)) {
            all.extend([flag, "127.0.0.1:0"]);
        }
    }
    all
}

/// Runs `busload check` on these tables.
#[track_caller]
pub fn checked(tables: &[&str]) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("d");
    let mut arguments = vec!["check", "--data", data.to_str().unwrap()];
    tables.iter().for_each(|table| arguments.extend(["--table", table]));
    let ended = run(&arguments);
    assert!(!data.exists(), "nothing is written");
    ended
}

/// Outcome of a process that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Asserts that the process ended with this code and one line on stderr; returns the line.
    #[track_caller]
    pub fn failed(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{self:?}");
        let line = self.stderr.strip_suffix('\n').unwrap();
        assert!(line.starts_with("busload: ") && !line.contains('\n'), "one clear line: {line}");
        line
    }
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    stderr: Receiver<String>,
    said: Vec<String>,
    addresses: HashMap<String, String>,
}

impl Server {
    /// Starts a server on free ports with its data in this directory.
    #[track_caller]
    pub fn start(data: &Path, arguments: &[&str]) -> Self {
        let started = Self::try_start(serve(data, arguments));
        started.unwrap_or_else(|ended| panic!("no start: {ended:?}"))
    }

    /// Starts a server and waits for its `ready` line; fails if the process ends first.
    pub fn try_start(mut command: Command) -> Result<Self, Ended> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, stderr) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut server = Self { child, stderr, said: Vec::new(), addresses: HashMap::new() };
        match server.wait_until_ready() {
            Some(()) => Ok(server),
            None => {
                let code = server.child.wait().unwrap().code();
                let stderr = server.said.iter().map(|line| format!("{line}\n")).collect();
                Err(Ended { code, stdout: String::new(), stderr })
            }
        }
    }

    /// Waits for the next `ready` line and notes its addresses; `None` if the process ends first.
    #[track_caller]
    pub fn wait_until_ready(&mut self) -> Option<()> {
        let ready = self.wait_for_line("ready")?;
        let pairs = ready.split(' ').filter_map(|pair| pair.split_once('='));
        self.addresses = pairs.map(|(name, address)| (name.into(), address.into())).collect();
        Some(())
    }

    /// Waits for the next line that begins like this; `None` if the process ends first.
    #[track_caller]
    pub fn wait_for_line(&mut self, beginning: &str) -> Option<String> {
        loop {
            match self.stderr.recv_timeout(TIMEOUT) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if line.starts_with(beginning) {
                        return Some(line);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("no `{beginning}` in {:?}", self.said),
            }
        }
    }

    /// Waits for the next line that contains this text.
    #[track_caller]
    pub fn wait_for_text(&mut self, text: &str) -> String {
        loop {
            let line =
                self.wait_for_line("").unwrap_or_else(|| panic!("no `{text}` in {:?}", self.said));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Returns the lines of stderr that tests have waited for so far.
    pub fn said(&self) -> &[String] {
        &self.said
    }

    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Returns an address from the `ready` line.
    #[track_caller]
    pub fn address(&self, front: &str) -> SocketAddr {
        self.addresses[front].parse().unwrap()
    }

    #[track_caller]
    pub fn client(&self) -> Client<TcpStream> {
        Client::connect(self.address("resp"))
    }

    pub fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(process, signal).unwrap();
    }

    /// Kills the process without a shutdown, like a crash.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks for a clean shutdown and waits for the end of the process.
    #[track_caller]
    pub fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        while self.wait_for_line("").is_some() {}
        self.child.wait().unwrap()
    }

    /// Gets a page over HTTP; returns the status line and the body.
    #[track_caller]
    pub fn http(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address("http")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    /// Returns one metric of `/metrics`.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        let (_, body) = self.http("/metrics");
        let line = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {body}")).parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Mixes bits as SplitMix64 does.
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns the path of the log's first segment in this data directory.
pub fn first_segment(data: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(data.join("log")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some()).min().unwrap()
}
