//! The driver over real sockets on the loopback interface.

#![cfg(not(loom))]

use std::{
    collections::HashMap,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    thread,
};

use super::*;
use crate::{Rng, sim::SimRng};

/// Timeout so long that only a lost event can reach it.
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(20));

fn loopback() -> Address {
    Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

/// Event that a poll reported, with its bytes.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Accepted(ConnId),
    Received(ConnId, Vec<u8>),
    Sent(ConnId, usize),
    Closed(ConnId, CloseReason),
    Woken,
    Timer,
}

struct Server {
    net: RealNet,
    /// Events reported by a poll that the test has not asked for yet.
    events: std::collections::VecDeque<Seen>,
}

impl Server {
    fn new(options: NetOptions) -> Self {
        Self { net: RealNet::bind(&[loopback()], options).unwrap(), events: Default::default() }
    }

    fn address(&self) -> SocketAddr {
        match &self.net.addresses()[0] {
            Address::Tcp(address) => *address,
            Address::Unix(path) => panic!("{path:?}"),
        }
    }

    fn poll(&mut self, timeout: Option<Duration>) {
        let mut events = Vec::new();
        self.net.poll(&mut events, timeout).unwrap();
        let mut buffers = Vec::new();
        self.net.take_buffers(&mut buffers);
        for event in events {
            self.events.push_back(match event {
                Event::Accepted { conn, .. } => Seen::Accepted(conn),
                Event::Received { conn, span } => {
                    let buffer = &buffers[span.buffer as usize];
                    Seen::Received(conn, buffer[span.start as usize..span.end as usize].to_vec())
                }
                Event::Sent { conn, chunk } => Seen::Sent(conn, chunk.as_slice().len()),
                Event::Closed { conn, reason } => Seen::Closed(conn, reason),
                Event::Woken => Seen::Woken,
                Event::Timer => Seen::Timer,
            });
        }
        for buffer in buffers {
            self.net.recycle(buffer);
        }
    }

    fn next(&mut self) -> Seen {
        loop {
            match self.events.pop_front() {
                Some(Seen::Timer) => panic!("nothing came"),
                Some(event) => return event,
                None => self.poll(TIMEOUT),
            }
        }
    }

    fn accepted(&mut self) -> ConnId {
        match self.next() {
            Seen::Accepted(conn) => conn,
            other => panic!("{other:?}"),
        }
    }

    fn connect(&mut self) -> (TcpStream, ConnId) {
        let client = TcpStream::connect(self.address()).unwrap();
        client.set_read_timeout(TIMEOUT).unwrap();
        (client, self.accepted())
    }

    /// Receives exactly `count` bytes, all from `conn`.
    fn receive(&mut self, conn: ConnId, count: usize) -> Vec<u8> {
        let mut received = Vec::new();
        while received.len() < count {
            match self.next() {
                Seen::Received(from, bytes) if from == conn => received.extend(bytes),
                other => panic!("{other:?} after {} bytes", received.len()),
            }
        }
        assert_eq!(received.len(), count);
        received
    }

    /// Waits until the system has `count` bytes of the client that the driver has not yet received:
    /// a client's write may return before they arrive.
    fn wait_for_bytes(&mut self, conn: ConnId, count: usize) {
        let Stream::Tcp(stream) = &self.net.connections.get_mut(conn).unwrap().stream else {
            panic!("it is a TCP listener")
        };
        let stream = TcpStream::from(stream.as_fd().try_clone_to_owned().unwrap());
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(TIMEOUT).unwrap();
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::WAITALL;
        let (_, arrived) = rustix::net::recv(&stream, &mut vec![0_u8; count][..], flags).unwrap();
        assert_eq!(arrived, count);
        // The clone shares the mode with the original.
        stream.set_nonblocking(true).unwrap();
    }

    fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        self.net.send(conn, SendChunk::Owned(bytes.to_vec()));
    }

    /// Checks that two polls that do not wait report nothing.
    fn assert_silent(&mut self) {
        for _ in 0..2 {
            self.poll(Some(Duration::ZERO));
        }
        assert!(self.events.iter().all(|event| *event == Seen::Timer), "{:?}", self.events);
        self.events.clear();
    }
}

fn random_bytes(rng: &mut SimRng, count: usize) -> Vec<u8> {
    (0..count).map(|_| rng.next_u64() as u8).collect()
}

#[test]
fn many_connections_get_their_own_bytes_back() {
    let options =
        NetOptions { buffer_bytes: 8192, receive_bytes_min: 1024, ..NetOptions::default() };
    let mut server = Server::new(options);
    let address = server.address();
    let clients: Vec<_> = (0..40)
        .map(|seed| {
            thread::spawn(move || {
                let mut rng = SimRng::new(seed);
                let count = 100_000 + rng.index(100_000);
                let bytes = random_bytes(&mut rng, count);
                let client = TcpStream::connect(address).unwrap();
                client.set_read_timeout(TIMEOUT).unwrap();
                let mut back = vec![0; bytes.len()];
                thread::scope(|scope| {
                    scope.spawn(|| (&client).write_all(&bytes).unwrap());
                    (&client).read_exact(&mut back).unwrap();
                });
                assert!(back == bytes, "client {seed}");
            })
        })
        .collect();
    let mut open = 0;
    let mut ended = 0;
    let mut owed: HashMap<ConnId, Vec<u8>> = HashMap::new();
    let mut sending = std::collections::HashSet::new();
    while ended < clients.len() {
        match server.next() {
            Seen::Accepted(_) => open += 1,
            Seen::Received(conn, bytes) => owed.entry(conn).or_default().extend(bytes),
            Seen::Sent(conn, _) => assert!(sending.remove(&conn)),
            Seen::Closed(conn, reason) => {
                assert_eq!(reason, CloseReason::Peer);
                server.net.close(conn);
                ended += 1;
            }
            other => panic!("{other:?}"),
        }
        for (conn, bytes) in &mut owed {
            if !bytes.is_empty() && sending.insert(*conn) {
                server.net.send(*conn, SendChunk::Owned(mem::take(bytes)));
            }
        }
    }
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!((open, server.net.connection_count()), (40, 0));
    let counters = server.net.counters();
    assert_eq!(counters.received_bytes, counters.sent_bytes);
    assert_eq!(counters.accepts, 40);
}

#[test]
fn a_receive_that_fills_its_room_goes_on_without_a_new_edge() {
    let mut server = Server::new(NetOptions {
        buffer_bytes: 64,
        receive_bytes_min: 16,
        ..NetOptions::default()
    });
    let (mut client, conn) = server.connect();
    let bytes = random_bytes(&mut SimRng::new(1), 1000);
    client.write_all(&bytes).unwrap();
    assert_eq!(server.receive(conn, 1000), bytes);
    server.assert_silent();
}

#[test]
fn everyone_is_heard_in_turn_when_there_is_more_than_one_poll_takes() {
    let mut server = Server::new(NetOptions {
        buffer_bytes: 64,
        receive_bytes_min: 64,
        ..NetOptions::default()
    });
    let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for (client, conn) in &mut clients {
        server.net.pause(*conn);
        client.write_all(&[b'x'; 1000]).unwrap();
    }
    while clients.iter().any(|(_, conn)| !server.net.connections.get_mut(*conn).unwrap().unread) {
        server.poll(TIMEOUT);
    }
    clients.iter().for_each(|(_, conn)| server.net.resume(*conn));
    let polls = 40_usize.div_ceil(RECEIVE_BUFFERS_PER_POLL);
    (0..polls).for_each(|_| server.poll(TIMEOUT));
    let mut heard = std::collections::HashSet::new();
    for event in server.events.drain(..) {
        match event {
            Seen::Received(conn, bytes) => assert!(heard.insert(conn) || bytes.len() == 64),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(heard.len(), clients.len());
}

#[test]
fn a_turn_of_request_and_reply_costs_one_wait_one_receive_and_one_send() {
    let mut server = Server::new(NetOptions::default());
    let (mut client, conn) = server.connect();
    // A new connection becomes writable, which is an edge of its own: it must not end the first
    // turn's wait.
    server.assert_silent();
    for _ in 0..20 {
        let before = server.net.counters();
        client.write_all(b"0123456789").unwrap();
        server.receive(conn, 10);
        server.send(conn, b"reply");
        assert_eq!(server.next(), Seen::Sent(conn, 5));
        let after = server.net.counters();
        assert_eq!(after.polls - before.polls, 1);
        assert_eq!((after.receives - before.receives, after.sends - before.sends), (1, 1));
    }
}

#[test]
fn a_connection_with_always_more_to_send_does_not_keep_others_from_being_heard() {
    let mut server = Server::new(NetOptions::default());
    let (_reader, busy) = server.connect();
    let (mut client, conn) = server.connect();
    server.send(busy, b"x");
    client.write_all(b"hello").unwrap();
    server.wait_for_bytes(conn, 5);
    for _ in 0..4 {
        server.poll(Some(Duration::ZERO));
        while let Some(event) = server.events.pop_front() {
            match event {
                Seen::Sent(..) => server.send(busy, b"x"),
                Seen::Received(from, bytes) => {
                    return assert_eq!((from, &bytes[..]), (conn, &b"hello"[..]));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("it was not heard");
}

/// Sends `bytes`, which the client begins to read only once no poll makes progress.
fn send_to_slow_reader(server: &mut Server, mut client: TcpStream, conn: ConnId, bytes: &[u8]) {
    server.send(conn, bytes);
    for _ in 0..100 {
        server.poll(Some(Duration::ZERO));
    }
    server.assert_silent();
    let mut received = vec![0; bytes.len()];
    thread::scope(|scope| {
        scope.spawn(|| client.read_exact(&mut received).unwrap());
        assert_eq!(server.next(), Seen::Sent(conn, bytes.len()));
    });
    assert!(received == bytes);
    server.assert_silent();
}

#[test]
fn a_send_the_client_does_not_take_stays_under_way_until_it_does() {
    let mut server = Server::new(NetOptions::default());
    let (client, conn) = server.connect();
    let bytes = random_bytes(&mut SimRng::new(2), 32 << 20);
    send_to_slow_reader(&mut server, client, conn, &bytes);
}

#[test]
fn a_send_in_many_small_pieces_arrives_whole() {
    let mut server = Server::new(NetOptions::default());
    let (client, conn) = server.connect();
    match &server.net.connections.get_mut(conn).unwrap().stream {
        Stream::Tcp(stream) => {
            rustix::net::sockopt::set_socket_send_buffer_size(stream, 4096).unwrap()
        }
        Stream::Unix(_) => unreachable!("it is a TCP listener"),
    }
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 128 << 10).unwrap();
    let bytes = random_bytes(&mut SimRng::new(2), 4 << 20);
    send_to_slow_reader(&mut server, client, conn, &bytes);
    assert!(10 < server.net.counters().sends, "{:?}", server.net.counters());
}

#[test]
fn the_other_connections_are_served_while_one_does_not_take_its_bytes() {
    let mut server = Server::new(NetOptions::default());
    let (_stuck, stuck) = server.connect();
    let (mut client, conn) = server.connect();
    server.send(stuck, &vec![1; 64 << 20]);
    for _ in 0..10 {
        client.write_all(b"ping").unwrap();
        assert_eq!(server.receive(conn, 4), b"ping");
        server.send(conn, b"pong");
        assert_eq!(server.next(), Seen::Sent(conn, 4));
        client.read_exact(&mut [0; 4]).unwrap();
    }
}

#[test]
fn a_client_that_closed_its_sending_half_still_gets_its_reply() {
    let mut server = Server::new(NetOptions::default());
    for _ in 0..20 {
        let (mut client, conn) = server.connect();
        // The bytes and the end are in the socket together: one edge for both.
        client.write_all(b"request").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.receive(conn, 7), b"request");
        assert_eq!(server.next(), Seen::Closed(conn, CloseReason::Peer));
        server.send(conn, b"reply");
        assert_eq!(server.next(), Seen::Sent(conn, 5));
        server.net.close(conn);
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        assert_eq!(reply, "reply");
    }
    server.assert_silent();
}

#[test]
fn the_end_of_a_stream_is_told_once_and_after_all_bytes() {
    let mut server = Server::new(NetOptions {
        buffer_bytes: 64,
        receive_bytes_min: 64,
        ..NetOptions::default()
    });
    // Lengths around that of a receive, so that the last bytes fill it or not.
    for count in [1, 63, 64, 65, 128, 200] {
        let (mut client, conn) = server.connect();
        let bytes = random_bytes(&mut SimRng::new(3), count);
        client.write_all(&bytes).unwrap();
        drop(client);
        assert_eq!(server.receive(conn, count), bytes);
        assert_eq!(server.next(), Seen::Closed(conn, CloseReason::Peer));
        server.assert_silent();
        server.net.close(conn);
    }
}

#[test]
fn a_reset_connection_is_gone() {
    let mut server = Server::new(NetOptions::default());
    let (client, conn) = server.connect();
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(server.next(), Seen::Closed(conn, CloseReason::Error(ErrorKind::ConnectionReset)));
    assert_eq!(server.net.connection_count(), 0);
    server.send(conn, b"too late");
    server.assert_silent();
}

#[test]
fn a_send_that_fails_is_told_and_ends_the_connection() {
    let mut server = Server::new(NetOptions::default());
    let (client, conn) = server.connect();
    server.send(conn, &vec![0; 64 << 20]);
    server.assert_silent();
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
    match server.next() {
        Seen::Closed(gone, CloseReason::Error(_)) => assert_eq!(gone, conn),
        other => panic!("{other:?}"),
    }
    server.assert_silent();
    assert_eq!(server.net.connection_count(), 0);
}

#[test]
fn a_send_after_the_peers_end_may_still_fail() {
    let mut server = Server::new(NetOptions::default());
    let (client, conn) = server.connect();
    drop(client);
    assert_eq!(server.next(), Seen::Closed(conn, CloseReason::Peer));
    server.send(conn, b"nobody reads this");
    assert_eq!(server.next(), Seen::Sent(conn, 17));
    // The peer has already answered with a reset, or will soon.
    loop {
        server.send(conn, b"nor this");
        match server.next() {
            Seen::Sent(..) => {}
            Seen::Closed(gone, CloseReason::Error(_)) => break assert_eq!(gone, conn),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(server.net.connection_count(), 0);
}

#[test]
fn nothing_is_told_of_a_connection_after_its_close() {
    let mut server = Server::new(NetOptions::default());
    let (mut client, conn) = server.connect();
    server.send(conn, &vec![0; 64 << 20]);
    client.write_all(b"unread").unwrap();
    server.net.close(conn);
    server.assert_silent();
    let (mut reported, second) = server.connect();
    assert_eq!(
        (second.index, second.generation),
        (conn.index, conn.generation + 1),
        "the slot is used again"
    );
    // Commands for the former connection do not reach the one that now has its slot.
    server.send(conn, b"for the one before");
    server.net.close(conn);
    // A send that is done but not yet reported.
    server.send(second, b"bye");
    server.net.close(second);
    server.assert_silent();
    let mut text = String::new();
    reported.read_to_string(&mut text).unwrap();
    assert_eq!(text, "bye");
}

#[test]
fn a_last_reply_arrives_although_the_client_has_sent_more() {
    let mut server = Server::new(NetOptions {
        buffer_bytes: 4096,
        receive_bytes_min: 4096,
        ..NetOptions::default()
    });
    let (mut client, conn) = server.connect();
    client.write_all(&[b'x'; 40_000]).unwrap();
    server.receive(conn, 4096);
    // Bytes that arrive after the close turn it into a reset, which may destroy the reply.
    server.wait_for_bytes(conn, 40_000 - 4096);
    server.send(conn, b"-ERR\r\n");
    server.net.close(conn);
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "-ERR\r\n");
}

#[test]
fn a_paused_connection_is_silent_and_loses_nothing() {
    let mut server = Server::new(NetOptions::default());
    let (mut client, conn) = server.connect();
    server.net.pause(conn);
    client.write_all(b"first").unwrap();
    server.assert_silent();
    client.shutdown(Shutdown::Write).unwrap();
    server.assert_silent();
    server.net.resume(conn);
    assert_eq!(server.receive(conn, 5), b"first");
    assert_eq!(server.next(), Seen::Closed(conn, CloseReason::Peer));
    server.net.resume(conn);
    server.assert_silent();
}

#[test]
fn a_client_above_the_limit_is_told_so_and_a_free_place_is_given_again() {
    let mut server = Server::new(NetOptions {
        connection_count_limit: 2,
        full_message: b"-ERR full\r\n",
        ..NetOptions::default()
    });
    let (_first, conn) = server.connect();
    let (_second, _) = server.connect();
    let mut third = TcpStream::connect(server.address()).unwrap();
    third.set_read_timeout(TIMEOUT).unwrap();
    // That the former connection is writable is an edge, too, and may come first.
    while server.net.counters().refusals == 0 {
        server.poll(TIMEOUT);
        assert!(server.events.is_empty(), "{:?}", server.events);
    }
    server.assert_silent();
    let mut text = String::new();
    third.read_to_string(&mut text).unwrap();
    assert_eq!(text, "-ERR full\r\n");
    assert_eq!(server.net.counters().refusals, 1);
    server.net.close(conn);
    server.connect();
}

#[test]
fn a_timeout_is_told_and_a_poll_without_one_does_not_wait() {
    let mut server = Server::new(NetOptions::default());
    server.poll(Some(Duration::from_millis(2)));
    assert_eq!(server.events.pop_front(), Some(Seen::Timer));
    server.poll(Some(Duration::ZERO));
    assert_eq!(server.events.pop_front(), Some(Seen::Timer));
    assert!(server.events.is_empty());
}

#[test]
fn waking_from_other_threads_ends_a_poll_and_is_told_once() {
    let mut server = Server::new(NetOptions::default());
    for _ in 0..200 {
        let waker = server.net.waker();
        let wakers: Vec<_> = (0..3)
            .map(|_| {
                let waker = waker.clone();
                thread::spawn(move || waker.wake_by_ref())
            })
            .collect();
        assert_eq!(server.next(), Seen::Woken);
        for waker in wakers {
            waker.join().unwrap();
        }
        // Wakes after the first poll cause at most one more.
        server.poll(Some(Duration::ZERO));
        server.events.retain(|event| *event != Seen::Timer);
        assert!(server.events.len() <= 1, "{:?}", server.events);
        server.events.clear();
        server.assert_silent();
    }
}

#[test]
fn accepted_sockets_send_small_replies_at_once_and_notice_dead_clients() {
    let mut server = Server::new(NetOptions::default());
    let (_client, conn) = server.connect();
    let Stream::Tcp(stream) = &server.net.connections.get_mut(conn).unwrap().stream else {
        panic!("it is a TCP listener")
    };
    assert!(stream.nodelay().unwrap());
    assert!(rustix::net::sockopt::socket_keepalive(stream).unwrap());
    assert_eq!(rustix::net::sockopt::tcp_keepidle(stream).unwrap(), Duration::from_secs(300));
}

#[test]
fn after_stop_listening_clients_are_refused_and_those_there_are_go_on() {
    let mut server = Server::new(NetOptions::default());
    let (mut client, conn) = server.connect();
    server.net.stop_listening();
    assert_eq!(
        TcpStream::connect(server.address()).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    client.write_all(b"still").unwrap();
    assert_eq!(server.receive(conn, 5), b"still");
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let server = Server::new(NetOptions::default());
    let address = server.address();
    let error = RealNet::bind(&[Address::Tcp(address)], NetOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&format!("cannot listen on {address}: ")), "{error}");
}

#[test]
fn peers_and_our_own_addresses_are_told() {
    let anywhere = Address::Tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let mut net = RealNet::bind(&[anywhere, loopback()], NetOptions::default()).unwrap();
    let mut clients = Vec::new();
    for address in net.addresses().to_vec() {
        let Address::Tcp(address) = address else { panic!("{address}") };
        let reached = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
        let client = TcpStream::connect(reached).unwrap();
        clients.push(client.try_clone().unwrap());
        let mut events = Vec::new();
        // The former connection's becoming writable is an edge for which nothing is reported.
        while events.is_empty() {
            net.poll(&mut events, TIMEOUT).unwrap();
        }
        match events.as_slice() {
            [Event::Accepted { peer, .. }] => {
                assert_eq!(peer.local, Address::Tcp(reached));
                assert_eq!(peer.remote, Address::Tcp(client.local_addr().unwrap()));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_unix_socket_serves_and_its_file_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address = Address::Unix(path.clone());
    let net = RealNet::bind(std::slice::from_ref(&address), NetOptions::default()).unwrap();
    let mut server = Server { net, events: Default::default() };
    assert_eq!(server.net.addresses(), std::slice::from_ref(&address));
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(TIMEOUT).unwrap();
    let conn = server.accepted();
    client.write_all(b"ping").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.receive(conn, 4), b"ping");
    assert_eq!(server.next(), Seen::Closed(conn, CloseReason::Peer));
    server.send(conn, b"pong");
    assert_eq!(server.next(), Seen::Sent(conn, 4));
    client.read_exact(&mut [0; 4]).unwrap();

    let error = RealNet::bind(std::slice::from_ref(&address), NetOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "somebody answers there");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(path.exists());
    server.net.stop_listening();
    assert!(!path.exists());
}

#[test]
fn a_stale_unix_socket_is_replaced_and_any_other_file_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address = Address::Unix(path.clone());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "what a killed process leaves");
    let net = RealNet::bind(std::slice::from_ref(&address), NetOptions::default()).unwrap();
    UnixStream::connect(&path).unwrap();

    // Another process has replaced the file meanwhile, so the driver must not remove it.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"precious").unwrap();
    drop(net);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let error = RealNet::bind(&[address], NetOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}
