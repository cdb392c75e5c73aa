//! The proxy in front of an echo server.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use busload_cluster::proxy::{
    Direction::{ToClient, ToServer},
    Proxy,
};

/// Timeout that is long enough for everything that must happen.
const LONG: Duration = Duration::from_secs(60);

/// Starts a server that echoes every byte, and a proxy before it.
fn echo() -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            thread::spawn(move || {
                let mut client = client?;
                io::copy(&mut client.try_clone()?, &mut client)
            });
        }
    });
    Proxy::start(port).unwrap()
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer).unwrap();
    answer
}

/// Reads until the connection ends, cleanly or not.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    bytes
}

#[test]
fn bytes_pass_both_ways_and_are_counted() {
    let proxy = echo();
    let mut stream = connect(&proxy);
    let much: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut sending = stream.try_clone().unwrap();
    let sent = much.clone();
    let sender = thread::spawn(move || sending.write_all(&sent));
    let mut answer = vec![0; much.len()];
    stream.read_exact(&mut answer).unwrap();
    sender.join().unwrap().unwrap();
    assert!(answer == much);
    assert_eq!(proxy.forwarded(ToServer), 4_000_000);
    assert_eq!(proxy.forwarded(ToClient), 4_000_000);
}

#[test]
fn the_end_of_a_connection_passes() {
    let proxy = echo();
    let mut stream = connect(&proxy);
    assert_eq!(exchange(&mut stream, b"abc"), b"abc");
    assert_eq!(proxy.connections(), 1);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(rest(&mut stream), b"");
    assert!(proxy.wait_connections(0, LONG));
}

#[test]
fn stalled_replies_are_held_and_come_later() {
    let proxy = echo();
    let mut stream = connect(&proxy);
    proxy.stall(ToClient);
    stream.write_all(b"abc").unwrap();
    assert!(proxy.wait_held(ToClient, LONG));
    assert_eq!((proxy.forwarded(ToServer), proxy.forwarded(ToClient)), (3, 0));
    proxy.resume();
    let mut answer = [0; 3];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"abc");
}

#[test]
fn stalled_requests_do_not_reach_the_server() {
    let proxy = echo();
    let mut stream = connect(&proxy);
    proxy.stall(ToServer);
    stream.write_all(b"abc").unwrap();
    assert!(proxy.wait_held(ToServer, LONG));
    assert!(!proxy.wait_held(ToClient, Duration::from_millis(50)));
    assert_eq!(proxy.forwarded(ToServer), 0);
    assert_eq!(proxy.cut(), 1);
    assert_eq!(rest(&mut stream), b"");
    assert_eq!(proxy.forwarded(ToServer), 0);
}

#[test]
fn a_cut_takes_all_connections_and_new_ones_pass() {
    let proxy = echo();
    let mut streams = [connect(&proxy), connect(&proxy)];
    streams.iter_mut().for_each(|stream| assert_eq!(exchange(stream, b"x"), b"x"));
    assert_eq!(proxy.cut(), 2);
    streams.iter_mut().for_each(|stream| assert_eq!(rest(stream), b""));
    assert_eq!(exchange(&mut connect(&proxy), b"y"), b"y");
}

#[test]
fn a_cut_after_bytes_is_exact_and_happens_once() {
    for (direction, bytes) in [(ToClient, 0), (ToClient, 4), (ToServer, 2), (ToServer, 5)] {
        let proxy = echo();
        let mut stream = connect(&proxy);
        assert_eq!(exchange(&mut stream, b"abc"), b"abc");
        proxy.cut_after(direction, bytes);
        stream.write_all(b"defghi").unwrap();
        let got = rest(&mut stream);
        assert!(b"defghi".starts_with(&got), "{got:?}");
        assert_eq!(proxy.forwarded(direction), 3 + bytes, "{direction:?}");
        assert_eq!(proxy.pending_cuts(), 0);
        assert_eq!(exchange(&mut connect(&proxy), b"jkl"), b"jkl");
    }
}

#[test]
fn a_cut_at_the_end_of_a_reply_waits_for_the_next() {
    let proxy = echo();
    let mut stream = connect(&proxy);
    proxy.cut_after(ToClient, 3);
    assert_eq!(exchange(&mut stream, b"abc"), b"abc");
    assert_eq!(proxy.pending_cuts(), 1);
    stream.write_all(b"d").unwrap();
    assert_eq!(rest(&mut stream), b"");
}

#[test]
fn cuts_happen_one_after_the_other() {
    let proxy = echo();
    proxy.cut_after(ToServer, 0);
    proxy.cut_after(ToClient, 1);
    let mut first = connect(&proxy);
    first.write_all(b"abc").unwrap();
    assert_eq!(rest(&mut first), b"");
    let mut second = connect(&proxy);
    second.write_all(b"abc").unwrap();
    assert_eq!(rest(&mut second), b"a");
    assert_eq!(exchange(&mut connect(&proxy), b"def"), b"def");
}

#[test]
fn refused_connections_end_at_once_and_others_go_on() {
    let proxy = echo();
    let mut before = connect(&proxy);
    assert_eq!(exchange(&mut before, b"a"), b"a");
    proxy.refuse();
    assert_eq!(rest(&mut connect(&proxy)), b"");
    assert_eq!(exchange(&mut before, b"b"), b"b");
    proxy.accept();
    assert_eq!(exchange(&mut connect(&proxy), b"c"), b"c");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a delay is about time")]
fn delays_do_not_add_up() {
    let proxy = echo();
    let mut stream = connect(&proxy);
    stream.set_nodelay(true).unwrap();
    let delay = Duration::from_secs(1);
    proxy.delay(ToServer, delay);
    let start = Instant::now();
    for piece in 0..100 {
        stream.write_all(&[piece]).unwrap();
        thread::yield_now();
    }
    let mut answer = [0; 100];
    stream.read_exact(&mut answer).unwrap();
    let took = start.elapsed();
    // A hundred pieces, one after the other, would take 100 s. Some may have been joined on their
    // way to the proxy.
    assert!(delay <= took && took < 30 * delay, "{took:?}");
    assert_eq!(answer.to_vec(), (0..100).collect::<Vec<u8>>());
}

#[test]
fn a_server_that_is_down_closes_connections() {
    // A reserved port, which the system never assigns: a port that was free a moment ago may belong
    // to another test by now.
    let proxy = Proxy::start(1).unwrap();
    assert_eq!(rest(&mut connect(&proxy)), b"");
}
