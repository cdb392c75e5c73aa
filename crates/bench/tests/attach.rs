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

const STALL: Duration = Duration::from_millis(200);

/// Number of times that something is measured before it is said never to happen: other work on the
/// machine may stand in the way of one short measurement, not of all of them.
const TRIES: u32 = 50;

/// A server that answers every request with `reply`.
struct DumbServer {
    reply: &'static str,
    /// After this many requests on a connection it is silent for a while, once.
    stalls_at: u64,
    /// After this many requests it closes the connection.
    closes_at: u64,
    requests: AtomicU64,
}

impl DumbServer {
    fn polite() -> Self {
        let (stalls_at, closes_at) = (u64::MAX, u64::MAX);
        Self { reply: "+OK\r\n", stalls_at, closes_at, requests: AtomicU64::new(0) }
    }

    fn start(self) -> (SocketAddr, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(self);
        let serving = Arc::clone(&server);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.serve(socket.unwrap()));
            }
        });
        (address, server)
    }

    /// A request is a `*`: keys and values of the bench hold none.
    fn serve(&self, mut socket: TcpStream) {
        let (_never, wait) = mpsc::channel::<()>();
        let mut buffer = vec![0; 65_536];
        let mut seen = 0;
        while let Ok(count @ 1..) = socket.read(&mut buffer) {
            let requests = buffer[..count].iter().filter(|byte| **byte == b'*').count();
            let before = seen;
            seen += u64::try_from(requests).unwrap();
            self.requests.fetch_add(seen - before, Ordering::SeqCst);
            if before < self.stalls_at && self.stalls_at <= seen {
                let _ = wait.recv_timeout(STALL);
            }
            let is_closed = self.closes_at <= seen;
            if is_closed || socket.write_all(self.reply.repeat(requests).as_bytes()).is_err() {
                return;
            }
        }
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Runs a case and returns its exit, and the fields of its first CSV record by name.
fn kv(address: SocketAddr, arguments: &str) -> (Output, HashMap<String, String>) {
    let out = tempfile::TempDir::new().unwrap();
    let csv = out.path().join("kv.csv");
    let always = "--load-cpu any --rounds 1 --warm-up 0.1 --keys 1000 --durability none \
                  --net-threads 0";
    let output = Command::new(env!("CARGO_BIN_EXE_busload-bench"))
        .args(["kv", "--attach", &address.to_string(), "--csv"])
        .arg(&csv)
        .args(always.split_ascii_whitespace().chain(arguments.split(' ')))
        .output()
        .unwrap();
    let content = std::fs::read_to_string(&csv).unwrap_or_default();
    let mut records = content.lines().filter(|line| !line.starts_with('#'));
    let mut record = || records.next().unwrap_or_default().split(',').map(str::to_owned);
    let fields = record().zip(record()).collect();
    (output, fields)
}

/// Runs a case that ends well and returns its numbers.
fn measured(address: SocketAddr, arguments: &str) -> impl Fn(&str) -> f64 {
    let (output, fields) = kv(address, arguments);
    assert!(output.status.success(), "{output:?}");
    move |name| fields[name].parse().unwrap_or_else(|_| panic!("{name} of {fields:?}"))
}

#[test]
fn a_closed_loop_counts_every_reply_once() {
    let (address, server) = DumbServer::polite().start();
    let arguments = "--ops set --pipelines 7 --clients 3 --seconds 0.5 --no-preload";
    let number = measured(address, arguments);
    assert!(number("refused") < 0.5);
    // The window is 0.5 of about 0.6 seconds, and whole pipelines are sent.
    let counted = number("per_s") * 0.5;
    let received = f64::from(u32::try_from(server.requests()).unwrap());
    assert_eq!(server.requests() % 7, 0);
    assert!(0.0 < counted && counted <= received, "{counted} of {received}");
}

#[test]
fn an_open_loop_keeps_its_rate_on_keys_that_are_there() {
    let keeps_its_rate = (0..TRIES).any(|_| {
        let (address, server) = DumbServer::polite().start();
        let number = measured(address, "--rate 2k --ops get --clients 4 --seconds 0.4");
        // A thousand keys are written before.
        assert_eq!(server.requests(), 1_000 + 1_000);
        assert!(number("unanswered") < 0.5);
        // 10 ms in which the load gets no processor where the window begins or ends are seen in it.
        (1_800.0..=2_050.0).contains(&number("per_s"))
    });
    assert!(keeps_its_rate);
}

#[test]
fn a_stall_is_charged_for_every_request_it_kept_waiting() {
    let is_charged = (0..TRIES).any(|_| {
        let (address, _) = DumbServer { stalls_at: 300, ..DumbServer::polite() }.start();
        let arguments = "--rate 1k --ops get --clients 1 --seconds 0.5 --no-preload";
        let number = measured(address, arguments);
        // 200 of 500 requests waited, half of them at least 100 ms: a closed loop would have
        // noticed one.
        assert!(150_000.0 < number("p99_us"));
        // A machine that is busy stalls by itself: then more of them waited.
        number("p50_us") < 100_000.0
    });
    assert!(is_charged);
}

#[test]
fn error_replies_are_shown_and_a_server_that_goes_away_ends_the_run_with_one_clear_line() {
    let arguments = "--ops get --pipelines 2 --clients 1 --seconds 0.1 --no-preload";
    let (address, _) =
        DumbServer { reply: "-ERR none of that\r\n", ..DumbServer::polite() }.start();
    let (output, fields) = kv(address, arguments);
    assert!(0 < fields["refused"].parse::<u64>().unwrap());
    assert!(String::from_utf8_lossy(&output.stdout).contains("(ERR none of that)"));
    let (address, _) = DumbServer { closes_at: 100, ..DumbServer::polite() }.start();
    let (output, _) = kv(address, arguments);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("the server closed a connection"), "{message}");
}
