//! `busload top`: without a terminal, and in one. The server that it asks is one of the test's, so
//! that it counts what the test says.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    process::{Child, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use rustix::{
    process::{Pid, Signal, kill_process},
    termios::{LocalModes, tcgetattr},
};

use crate::support::{Ended, busload, eventually, pty::Pty};

/// Server whose counters grow by the same in each second that it counts: one per request.
struct Counting {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Counting {
    fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let asked = Arc::clone(&heads);
        let seconds = AtomicU64::new(100);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).unwrap() != 0 {}
                asked.lock().unwrap().push(head);
                let body = document(seconds.fetch_add(1, Ordering::Relaxed));
                let answer = format!("HTTP/1.0 {status}\r\nA: b\r\n\r\n{body}");
                // A client that has been stopped takes nothing.
                let _ = stream.get_mut().write_all(answer.as_bytes());
            }
        });
        Self { address, heads }
    }

    fn top(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = busload();
        command.args(["top", "--http", &self.address.to_string()]).args(arguments);
        command
    }
}

fn document(seconds: u64) -> String {
    let executed = seconds * 12_345;
    format!(
        "{{\"uptime_ms\": {}, \"version\": \"9.9.9\", \"state\": \"ready\", \
         \"health\": {{\"level\": \"ok\", \"reasons\": []}}, \
         \"commands\": {{\"executed\": {executed}}}, \
         \"stages\": [{{\"name\": \"tx\", \"batches\": {seconds}, \"items\": {executed}}}]}}",
        seconds * 1_000
    )
}

#[test]
fn without_a_terminal_a_report_is_printed_once() {
    let server = Counting::start("200 OK");
    let ended =
        Ended::of(server.top(&["--once"]).env("BUSLOAD_PASSWORD", "sesame").output().unwrap());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for line in [
        "busload 9.9.9, up 1m 41s, ready",
        "health: ok",
        "12,345 requests/s, 0 errors/s",
        "tx                     1.0       12,345      12345.0            0",
    ] {
        assert!(ended.stdout.lines().any(|shown| shown == line), "no `{line}` in {}", ended.stdout);
    }
    assert!(!ended.stdout.contains('\x1b'), "no escape sequences");
    let heads = server.heads.lock().unwrap();
    assert_eq!(heads.len(), 2, "two readings make a rate");
    assert!(heads[0].starts_with("GET /api/stats"), "{heads:?}");
    assert!(heads[0].contains("Authorization: Basic ZGVmYXVsdDpzZXNhbWU="), "{heads:?}");
}

#[test]
fn without_a_terminal_reports_follow_one_another() {
    let server = Counting::start("200 OK");
    let mut top = server.top(&[]).stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let mut reports = 0;
    while reports < 2 {
        let line = lines.next().unwrap().unwrap();
        reports += usize::from(line == "12,345 requests/s, 0 errors/s");
    }
    drop(lines);
    // Nobody reads any more: that ends it.
    assert_eq!(top.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_that_does_not_answer_is_one_clear_line() {
    let unauthorized = Counting::start("401 Unauthorized");
    let ended = Ended::of(unauthorized.top(&["--once"]).output().unwrap());
    assert!(ended.failed(1).contains("asks for a password"), "{ended:?}");
    let other = Counting::start("404 Not Found");
    let ended = Ended::of(other.top(&["--once"]).output().unwrap());
    assert!(ended.failed(1).contains("it answers with status 404"), "{ended:?}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let ended = Ended::of(
        busload().args(["top", "--once", "--http", &address.to_string()]).output().unwrap(),
    );
    assert!(ended.failed(1).contains(&address.to_string()), "{ended:?}");
}

/// A terminal, with `busload top` in it.
struct Terminal {
    pty: Pty,
    top: Child,
}

impl Terminal {
    fn start(server: &Counting) -> Self {
        let pty = Pty::open();
        let mut top = server.top(&[]);
        top.stdin(pty.stream()).stdout(pty.stream()).stderr(Stdio::null());
        let terminal = Self { top: top.spawn().unwrap(), pty };
        terminal.pty.wait_for("12,345 requests/s");
        terminal
    }

    /// Asserts that the process ends well, and that the terminal is as it was before.
    fn assert_restored(mut self) {
        assert_eq!(self.top.wait().unwrap().code(), Some(0));
        self.pty.wait_for("\x1b[?25h\x1b[?1049l");
        let modes = tcgetattr(&self.pty.user).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
    }
}

#[test]
fn a_terminal_is_filled_again_each_second_and_restored_when_the_user_quits() {
    let server = Counting::start("200 OK");
    for key in [&b"q"[..], b"\x03"] {
        let terminal = Terminal::start(&server);
        let modes = tcgetattr(&terminal.pty.user).unwrap().local_modes;
        assert!(!modes.intersects(LocalModes::ICANON | LocalModes::ECHO), "keys are read at once");
        // The next second is drawn over the last one.
        eventually("two frames", || {
            terminal.pty.shown().matches("\x1b[H\x1b[1mbusload 9.9.9").count() >= 2
        });
        File::from(terminal.pty.controller.try_clone().unwrap()).write_all(key).unwrap();
        terminal.assert_restored();
    }
}

#[test]
fn a_terminal_of_another_size_gets_a_frame_that_fits() {
    let server = Counting::start("200 OK");
    let terminal = Terminal::start(&server);
    terminal.pty.resize(12, 3);
    let process = Pid::from_raw(i32::try_from(terminal.top.id()).unwrap()).unwrap();
    kill_process(process, Signal::WINCH).unwrap();
    // Three rows of twelve columns, and nothing behind them.
    let frame = "\x1b[H\x1b[1mbusload 9.9.\x1b[0m\x1b[K\r\n\x1b[32mhealth: ok\x1b[0m\x1b[K\r\n\
                 \x1b[0m\x1b[K\x1b[J";
    terminal.pty.wait_for(frame);
    kill_process(process, Signal::TERM).unwrap();
    terminal.assert_restored();
}
