//! The whole program against a server in the test that only counts requests.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

/// Treatment of requests by the server.
#[derive(Clone, Copy, Debug)]
struct Manners {
    reply: &'static str,
    /// After this many requests on a connection it is silent for a while, once.
    stalls_at: Option<u64>,
    stall: Duration,
    /// After this many requests it closes the connection.
    closes_at: Option<u64>,
}

/// Number of times that something is measured before it is said never to happen: other work on the
/// machine may stand in the way of one short measurement, not of all of them.
const TRIES: u32 = 50;

const POLITE: Manners =
    Manners { reply: "+OK\r\n", stalls_at: None, stall: Duration::ZERO, closes_at: None };

struct DumbServer {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl DumbServer {
    fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || serve(socket.unwrap(), manners, &counted));
            }
        });
        Self { address, requests }
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

/// A request is a `*`: keys and values of the bench hold none.
fn serve(mut socket: TcpStream, manners: Manners, counted: &AtomicU64) {
    let (_never, wait) = mpsc::channel::<()>();
    let mut buffer = vec![0; 65_536];
    let mut stalls_at = manners.stalls_at;
    let mut seen = 0;
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        let requests = buffer[..count].iter().filter(|byte| **byte == b'*').count();
        seen += u64::try_from(requests).unwrap();
        counted.fetch_add(u64::try_from(requests).unwrap(), Ordering::SeqCst);
        if manners.closes_at.is_some_and(|limit| limit <= seen) {
            return;
        }
        if stalls_at.is_some_and(|limit| limit <= seen) {
            stalls_at = None;
            let _ = wait.recv_timeout(manners.stall);
        }
        if socket.write_all(manners.reply.repeat(requests).as_bytes()).is_err() {
            return;
        }
    }
}

/// A run's exit, and the fields of its first CSV record by name.
struct Run {
    output: Output,
    fields: HashMap<String, String>,
}

impl Run {
    fn kv(address: SocketAddr, arguments: &str) -> Self {
        let out = tempfile::TempDir::new().unwrap();
        let csv = out.path().join("kv.csv");
        let output = Command::new(env!("CARGO_BIN_EXE_busload-bench"))
            .args(["kv", "--attach", &address.to_string(), "--load-cpu", "any", "--rounds", "1"])
            .args(["--warm-up", "0.1", "--keys", "1000", "--csv"])
            .arg(&csv)
            .args(arguments.split(' '))
            .output()
            .unwrap();
        let content = std::fs::read_to_string(&csv).unwrap_or_default();
        let mut records = content.lines().filter(|line| !line.starts_with('#'));
        let mut record = || records.next().unwrap_or_default().split(',').map(str::to_owned);
        let fields = record().zip(record()).collect();
        Self { output, fields }
    }

    /// A run that ended well.
    fn succeeded(address: SocketAddr, arguments: &str) -> Self {
        let run = Self::kv(address, arguments);
        assert!(run.output.status.success(), "{:?}", run.output);
        run
    }

    fn number(&self, name: &str) -> f64 {
        let found = self.fields.get(name).and_then(|text| text.parse().ok());
        found.unwrap_or_else(|| panic!("no {name}: {:?}", self.output))
    }
}

#[test]
fn a_closed_loop_counts_every_reply_once() {
    let server = DumbServer::start(POLITE);
    let arguments = "--case set:7:none:0 --clients 3 --seconds 0.5 --no-preload";
    let run = Run::succeeded(server.address, arguments);
    assert!(run.number("refused") < 0.5);
    // The window is 0.5 of about 0.6 seconds, and whole pipelines are sent.
    let counted = run.number("per_s") * 0.5;
    let received = f64::from(u32::try_from(server.requests()).unwrap());
    assert_eq!(server.requests() % 7, 0);
    assert!(0.0 < counted && counted <= received, "{counted} of {received}");
}

#[test]
fn filling_writes_every_key_once() {
    let server = DumbServer::start(POLITE);
    let arguments = "--rate 100 --case get:none:0 --clients 2 --seconds 0.2";
    Run::succeeded(server.address, arguments);
    assert_eq!(server.requests(), 1_000 + 30);
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let arguments = "--rate 2k --case get:none:0 --clients 4 --seconds 0.4 --no-preload";
    let keeps_its_rate = (0..TRIES).any(|_| {
        let server = DumbServer::start(POLITE);
        let run = Run::succeeded(server.address, arguments);
        assert_eq!(server.requests(), 1_000);
        assert!(run.number("unanswered") < 0.5);
        // 10 ms in which the load gets no processor where the window begins or ends are seen in it.
        (1_800.0..=2_050.0).contains(&run.number("per_s"))
    });
    assert!(keeps_its_rate);
}

#[test]
fn a_stall_is_charged_for_every_request_it_kept_waiting() {
    let stall = Duration::from_millis(200);
    let arguments = "--rate 1k --case get:none:0 --clients 1 --seconds 0.5 --no-preload";
    let is_charged = (0..TRIES).any(|_| {
        let server = DumbServer::start(Manners { stalls_at: Some(300), stall, ..POLITE });
        let run = Run::kv(server.address, arguments);
        // 200 of 500 requests waited, half of them at least 100 ms: a closed loop would have
        // noticed one.
        assert!(150_000.0 < run.number("p99_us"), "{:?}", run.output);
        // A machine that is busy stalls by itself: then more of them waited.
        run.number("p50_us") < 100_000.0
    });
    assert!(is_charged);
}

#[test]
fn error_replies_are_counted_and_shown() {
    let server = DumbServer::start(Manners { reply: "-ERR none of that\r\n", ..POLITE });
    let arguments = "--case get:2:none:0 --clients 1 --seconds 0.1 --no-preload";
    let run = Run::kv(server.address, arguments);
    assert!(0.0 < run.number("refused"));
    assert!(String::from_utf8_lossy(&run.output.stdout).contains("(ERR none of that)"));
}

#[test]
fn a_server_that_goes_away_ends_the_run_with_one_clear_line() {
    let server = DumbServer::start(Manners { closes_at: Some(100), ..POLITE });
    let arguments = "--case get:1:none:0 --clients 1 --no-preload";
    let run = Run::kv(server.address, arguments);
    assert_eq!(run.output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&run.output.stderr);
    assert!(message.contains("the server closed a connection"), "{message}");
}
