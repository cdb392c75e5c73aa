//! Real Redis to compare with.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use busload_resp::reply::Reply;

use super::{encode, show_bytes, words};

/// Lock of the Redis that the environment names: tests share it, and each begins by emptying it.
static SHARED: Mutex<()> = Mutex::new(());

/// Number of attempts to start Redis: another process may take the port between the moment in which
/// it was free and the one in which Redis listens there.
const STARTS_MAX: usize = 5;

/// Connection to a Redis, and the process if the test started it.
pub struct Redis {
    stream: TcpStream,
    process: Option<Child>,
    /// Held as long as the shared Redis is used.
    _shared: Option<MutexGuard<'static, ()>>,
}

impl Redis {
    /// Connects to the one that the environment names, for comparing transcripts.
    pub fn from_environment() -> Option<Self> {
        let address = std::env::var("BUSLOAD_TEST_REDIS").ok()?;
        let shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = TcpStream::connect(address).expect("BUSLOAD_TEST_REDIS names a Redis");
        Some(Self::on(stream, None, Some(shared)))
    }

    /// Starts a Redis for this test, without persistence; `None` when redis-server is not
    /// installed.
    pub fn start() -> Option<Self> {
        let mut said = String::new();
        for _ in 0..STARTS_MAX {
            match Self::start_once()? {
                Ok(redis) => return Some(redis),
                Err(instead) => said = instead,
            }
        }
        panic!("Redis did not start: {said}");
    }

    /// Starts Redis once; the error is its output when it ended at once.
    fn start_once() -> Option<Result<Self, String>> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?.local_addr().ok()?.port();
        let mut process = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        if let Err(said) = wait_until_ready(&mut process) {
            return Some(Err(said));
        }
        let stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("Redis listens when it says so");
        Some(Ok(Self::on(stream, Some(process), None)))
    }

    fn on(
        stream: TcpStream,
        process: Option<Child>,
        shared: Option<MutexGuard<'static, ()>>,
    ) -> Self {
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a TCP socket");
        Self { stream, process, _shared: shared }
    }

    /// Does what `Server::run` does.
    pub fn run(&mut self, line: impl AsRef<[u8]>) -> String {
        let words = words(line.as_ref());
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        show_bytes(&self.send(&words))
    }

    /// Executes a command and returns the reply's bytes.
    pub fn send(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.stream.write_all(&encode(words)).expect("Redis takes the request");
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let count = self.stream.read(&mut chunk).expect("Redis answers");
            assert_ne!(count, 0, "Redis closed the connection");
            bytes.extend_from_slice(&chunk[..count]);
            if let Some((_, length)) = Reply::parse(&bytes).expect("Redis sends replies") {
                assert_eq!(length, bytes.len(), "one reply at a time");
                return bytes;
            }
        }
    }
}

/// Waits until Redis's log says that it is ready. The error is the log when it ended instead.
fn wait_until_ready(process: &mut Child) -> Result<(), String> {
    let mut output = process.stdout.take().expect("stdout is a pipe");
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    while !String::from_utf8_lossy(&text).contains("eady to accept connections") {
        let count = output.read(&mut chunk).expect("Redis says what it does");
        if count == 0 {
            _ = process.wait();
            return Err(String::from_utf8_lossy(&text).into_owned());
        }
        text.extend_from_slice(&chunk[..count]);
    }
    // The pipe stays open: Redis may write more.
    process.stdout = Some(output);
    Ok(())
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            _ = process.kill();
            _ = process.wait();
        }
    }
}
