//! Clients that ask for too much, and their neighbours, which must not notice.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::support::{Client, Server, TIMEOUT, client::command};
use busload_io::{Clock, RealClock};
use busload_resp::reply::{Reply, ReplyCounter};
use tempfile::tempdir;

const MIB: f64 = (1 << 20) as f64;

/// Measures the slowest of many small requests beside other load, for people to read.
struct Neighbour {
    done: Arc<AtomicBool>,
    thread: thread::JoinHandle<(u32, Duration)>,
}

impl Neighbour {
    fn start(mut client: Client<TcpStream>) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&done);
        let thread = thread::spawn(move || {
            let clock = RealClock::new();
            let (mut count, mut longest) = (0, Duration::ZERO);
            // At least once, even if this thread did not run before the other client was done.
            loop {
                let started = clock.now();
                assert_eq!(client.text(&["SET", "small", "1"]), "OK");
                assert_eq!(client.text(&["GET", "small"]), "1");
                longest = longest.max((clock.now() - started) / 2);
                count += 2;
                if stop.load(Ordering::Relaxed) {
                    break (count, longest);
                }
            }
        });
        Self { done, thread }
    }

    fn finish(self, what: &str) {
        self.done.store(true, Ordering::Relaxed);
        let (count, longest) = self.thread.join().unwrap();
        println!("beside {what}: {count} requests of a neighbour, the longest {longest:?}");
    }
}

#[test]
fn a_hundred_thousand_requests_before_the_first_read_are_all_answered() {
    for wiring in ["0", "1"] {
        let directory = tempdir().unwrap();
        let server = Server::start(directory.path(), &["--net-threads", wiring]);
        let neighbour = Neighbour::start(server.client());
        let mut client = server.client();
        client.send(&command(&["INCR", "n"]).repeat(100_000));
        for expected in 1..=100_000 {
            assert_eq!(client.receive().unwrap(), Reply::Integer(expected));
        }
        neighbour.finish("100,000 pipelined requests");
    }
}

#[test]
fn a_client_that_never_reads_is_not_read_either() {
    for wiring in ["0", "1"] {
        let directory = tempdir().unwrap();
        let arguments = ["--net-threads", wiring, "--client-reply-bytes", "4MiB"];
        let server = Server::start(directory.path(), &arguments);
        assert_eq!(server.client().text(&["SET", "k", &"x".repeat(10_000)]), "OK");
        let neighbour = Neighbour::start(server.client());
        let mut client = server.client();
        client.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let requests = command(&["GET", "k"]).repeat(1000);
        // 20 GB of replies if the server read all requests.
        let sent = (0..2000).take_while(|_| client.stream.write_all(&requests).is_ok()).count();
        assert!(sent < 2000, "the server reads on");
        let held = server.metric("busload_connection_memory_bytes");
        assert!(held < 32.0 * MIB, "{held} bytes are held for it");
        let resident = server.metric("process_resident_memory_bytes");
        assert!(resident < 300.0 * MIB, "{resident} bytes");
        neighbour.finish("a client that never reads");
    }
}

#[test]
fn when_all_replies_together_are_too_much_somebody_is_closed_and_it_is_logged() {
    let directory = tempdir().unwrap();
    let arguments = ["--client-reply-bytes", "8MiB", "--reply-bytes-total", "12MiB"];
    let mut server = Server::start(directory.path(), &arguments);
    assert_eq!(server.client().text(&["SET", "k", &"x".repeat(20_000)]), "OK");
    let greedy: Vec<_> = (0..4)
        .map(|_| {
            let mut client = server.client();
            client.send(&command(&["GET", "k"]).repeat(1000));
            client
        })
        .collect();
    server.wait_for_text("reply_bytes_total");
    assert_eq!(server.client().text(&["PING"]), "PONG");
    assert!(1.0 <= server.metric("busload_connections_evicted_total"));
    drop(greedy);
}

#[test]
fn a_reply_of_a_gigabyte_harms_nobody() {
    const VALUE_BYTES: usize = 64 << 20;
    /// Keeps the replies below `reply_bytes_total`, above which the server closes the client.
    const TIMES: usize = 15;
    for wiring in ["0", "1"] {
        let directory = tempdir().unwrap();
        let table = "default=memory:?sync=os";
        let server = Server::start(directory.path(), &["--net-threads", wiring, "--table", table]);
        let mut client = server.client();
        assert_eq!(client.text(&["SET", "big", &"x".repeat(VALUE_BYTES)]), "OK");
        let before = server.metric("process_resident_memory_bytes");
        let neighbour = Neighbour::start(server.client());
        let words: Vec<&str> = ["MGET"].into_iter().chain(["big"; TIMES]).collect();
        client.send(&command(&words));
        let mut counter = ReplyCounter::default();
        let mut buffer = vec![0; 1 << 20];
        let (mut received, mut most) = (0, before);
        while counter.counts().replies == 0 {
            let count = client.stream.read(&mut buffer).unwrap();
            assert_ne!(count, 0, "closed after {received} bytes");
            if (received + count) >> 28 != received >> 28 {
                most = most.max(server.metric("process_resident_memory_bytes"));
            }
            received += count;
            counter.feed(&buffer[..count]).unwrap();
        }
        assert!(1_000_000_000 < received);
        assert!(most < before + 200.0 * MIB, "{before} bytes before, {most} while it was sent");
        neighbour.finish("a reply of 1 GB");
    }
}

#[test]
fn an_unfinished_request_takes_no_more_memory_than_was_sent() {
    let directory = tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let before = server.metric("process_resident_memory_bytes");
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let mut client = server.client();
            client.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$536870912\r\nxxxx");
            client
        })
        .collect();
    assert_eq!(server.client().text(&["PING"]), "PONG");
    let after = server.metric("process_resident_memory_bytes");
    assert!(after < before + 100.0 * MIB, "{before} bytes before, {after} after");
    drop(clients);
}

#[test]
fn a_value_of_the_largest_size_goes_in_and_one_byte_more_does_not() {
    let directory = tempdir().unwrap();
    let server = Server::start(directory.path(), &["--table", "default=memory:?sync=off"]);
    let mut client = server.client();
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$536870912\r\n");
    let piece = vec![b'v'; 1 << 20];
    (0..512).for_each(|_| client.send(&piece));
    client.send(b"\r\n");
    assert_eq!(client.receive().unwrap(), Reply::Simple(b"OK".into()));
    assert_eq!(client.text(&["STRLEN", "a"]), "536870912");
    let appended = client.text(&["APPEND", "a", "v"]);
    assert_eq!(appended, "-ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$536870913\r\n");
    let refused = client.receive().unwrap();
    assert_eq!(refused, Reply::Error(b"ERR Protocol error: invalid bulk length".into()));
}

#[test]
fn memory_max_refuses_writes_and_lets_reads_and_deletes_through() {
    let directory = tempdir().unwrap();
    let arguments = ["--memory-max", "8MiB", "--table", "default=memory:?sync=off"];
    let server = Server::start(directory.path(), &arguments);
    let mut client = server.client();
    let value = "x".repeat(100_000);
    let written =
        (0..1000).take_while(|key| client.text(&["SET", &key.to_string(), &value]) == "OK").count();
    assert!((20..100).contains(&written), "{written} values of 100 kB in 8 MiB");
    assert!(client.text(&["SET", "more", &value]).starts_with("-OOM"));
    assert_eq!(client.text(&["GET", "0"]), value);
    assert_eq!(client.text(&["DEL", "0", "1", "2"]), "3");
    assert_eq!(client.text(&["SET", "again", &value]), "OK");
}

#[test]
fn a_slow_reader_gets_everything_in_order() {
    let directory = tempdir().unwrap();
    let arguments = ["--client-reply-bytes", "1MiB"];
    let server = Server::start(directory.path(), &arguments);
    let mut client = server.client();
    let mut writer = client.stream.try_clone().unwrap();
    let sending = thread::spawn(move || {
        for number in 0..20_000 {
            let request = command(&["ECHO", &format!("{number:0>1000}")]);
            match writer.write_all(&request) {
                Ok(()) => {}
                Err(error) => panic!("{:?}: {error}", error.kind() == ErrorKind::WouldBlock),
            }
        }
    });
    client.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    for number in 0..20_000 {
        assert_eq!(client.receive().unwrap(), Reply::Bulk(format!("{number:0>1000}").into_bytes()));
    }
    sending.join().unwrap();
}
