//! The simulated network, rule by rule, over many seeds.

use std::collections::BTreeMap;

use super::*;
use crate::Rng;

const SEEDS: std::ops::Range<u64> = 0..60;

/// Number of polls after which anything that moves by chance has moved.
const POLLS: usize = 2000;

struct Server {
    net: SimNet,
    clients: SimClients,
    received: BTreeMap<ConnId, Vec<u8>>,
    ended: BTreeMap<ConnId, CloseReason>,
    sent: Vec<(ConnId, usize)>,
    /// Everything that happened, to compare runs.
    history: Vec<String>,
}

impl Server {
    fn new(seed: u64, options: SimNetOptions) -> Self {
        let (net, clients) = SimNet::new(seed, options);
        let (received, ended, sent, history) = Default::default();
        Self { net, clients, received, ended, sent, history }
    }

    /// Creates a server with one client that it has accepted.
    fn with_client(seed: u64) -> (Self, ClientId, ConnId) {
        let options =
            SimNetOptions { send_buffer_bytes: 100, piece_bytes_max: 40, ..Default::default() };
        let mut server = Self::new(seed, options);
        let client = server.clients.connect();
        server.poll_until(|server| server.clients.conn(client).is_some());
        let conn = server.clients.conn(client).unwrap();
        (server, client, conn)
    }

    fn poll(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.net.poll(&mut events, None).unwrap();
        let mut buffers = Vec::new();
        self.net.take_buffers(&mut buffers);
        for event in &events {
            self.history.push(format!("{event:?}"));
            match event {
                Event::Received { conn, span } => {
                    let bytes =
                        &buffers[span.buffer as usize][span.start as usize..span.end as usize];
                    assert!(!bytes.is_empty());
                    assert!(!self.ended.contains_key(conn), "bytes behind the end");
                    self.received.entry(*conn).or_default().extend(bytes);
                }
                Event::Closed { conn, reason } => {
                    let before = self.ended.insert(*conn, *reason);
                    assert!(before.is_none() || before == Some(CloseReason::Peer));
                }
                Event::Sent { conn, chunk } => self.sent.push((*conn, chunk.as_slice().len())),
                Event::Accepted { .. } | Event::Woken | Event::Timer => {}
            }
        }
        buffers.into_iter().for_each(|buffer| self.net.recycle(buffer));
        events
    }

    fn poll_until(&mut self, condition: impl Fn(&Self) -> bool) {
        for _ in 0..POLLS {
            if condition(self) {
                return;
            }
            self.poll();
        }
        panic!("it never happens; so far: {:?}", self.history);
    }

    fn poll_often(&mut self) {
        (0..50).for_each(|_| drop(self.poll()));
    }

    fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        self.net.send(conn, SendChunk::Owned(bytes.to_vec()));
    }

    fn received(&self, conn: ConnId) -> &[u8] {
        self.received.get(&conn).map_or(&[], Vec::as_slice)
    }
}

/// Lets many clients send random bytes and get them back; returns what happened.
fn echo(seed: u64) -> Vec<String> {
    let net = NetOptions { buffer_bytes: 64, receive_bytes_min: 16, ..NetOptions::default() };
    let mut server =
        Server::new(seed, SimNetOptions { net, send_buffer_bytes: 50, piece_bytes_max: 100 });
    let mut rng = SimRng::new(seed ^ 1);
    let clients: Vec<(ClientId, Vec<u8>)> = (0..8)
        .map(|_| {
            let count = rng.index(2000);
            (server.clients.connect(), (0..count).map(|_| rng.next_u64() as u8).collect())
        })
        .collect();
    for (client, bytes) in &clients {
        server.clients.write(*client, bytes);
        server.clients.half_close(*client);
    }
    let mut echoed: BTreeMap<ConnId, usize> = BTreeMap::new();
    let mut busy: BTreeMap<ConnId, bool> = BTreeMap::new();
    let mut back: Vec<Vec<u8>> = vec![Vec::new(); clients.len()];
    for _ in 0..POLLS {
        for event in server.poll() {
            match event {
                Event::Accepted { conn, .. } => drop(busy.insert(conn, false)),
                Event::Sent { conn, .. } => drop(busy.insert(conn, false)),
                _ => {}
            }
        }
        for (conn, busy) in &mut busy {
            let from = echoed.entry(*conn).or_default();
            let received = server.received.get(conn).map_or(&[][..], Vec::as_slice);
            if !*busy && *from < received.len() {
                server.net.send(*conn, SendChunk::Owned(received[*from..].to_vec()));
                *from = received.len();
                *busy = true;
            }
        }
        for (index, (client, _)) in clients.iter().enumerate() {
            back[index].extend(server.clients.read(*client));
        }
    }
    for ((_, bytes), back) in clients.iter().zip(&back) {
        assert_eq!(bytes, back, "seed {seed}");
    }
    assert_eq!(server.ended.len(), 8);
    assert!(server.clients.is_idle());
    server.history
}

#[test]
fn every_client_gets_its_own_bytes_back_in_order() {
    for seed in SEEDS {
        echo(seed);
    }
}

#[test]
fn the_same_seed_makes_the_same_happen() {
    assert_eq!(echo(7), echo(7));
    assert_ne!(echo(7), echo(8));
}

#[test]
fn bytes_are_cut_anywhere() {
    let mut counts = std::collections::BTreeSet::new();
    for seed in SEEDS {
        let (mut server, client, conn) = Server::with_client(seed);
        server.clients.write(client, &[b'x'; 20]);
        server.poll_until(|server| !server.received(conn).is_empty());
        counts.insert(server.received(conn).len());
    }
    assert!(counts.contains(&1) && counts.contains(&20) && 5 < counts.len(), "{counts:?}");
}

#[test]
fn a_client_that_does_not_read_keeps_a_send_under_way() {
    for seed in SEEDS {
        let (mut server, client, conn) = Server::with_client(seed);
        server.clients.stop_reading(client);
        server.send(conn, &[b'x'; 101]);
        server.poll_often();
        assert_eq!((server.sent.len(), server.clients.read(client).len()), (0, 0));
        server.clients.start_reading(client);
        server.poll_until(|server| server.sent == [(conn, 101)]);
        server.poll_until(|server| server.clients.is_idle());
        assert_eq!(server.clients.read(client), [b'x'; 101]);
        // What fits into the buffer is sent although the client does not read.
        server.clients.stop_reading(client);
        server.send(conn, &[b'y'; 100]);
        server.poll_until(|server| server.sent.len() == 2);
        assert!(server.clients.is_idle());
    }
}

#[test]
fn after_a_half_close_the_other_direction_goes_on() {
    for seed in SEEDS {
        let (mut server, client, conn) = Server::with_client(seed);
        server.clients.write(client, b"request");
        server.clients.half_close(client);
        server.poll_until(|server| !server.ended.is_empty());
        assert_eq!(
            (server.received(conn), server.ended[&conn]),
            (&b"request"[..], CloseReason::Peer)
        );
        server.send(conn, b"reply");
        server.poll_until(|server| !server.sent.is_empty());
        assert!(!server.clients.is_closed(client));
        server.net.close(conn);
        server.poll_until(|server| server.clients.is_closed(client));
        assert_eq!(server.clients.read(client), b"reply");
    }
}

#[test]
fn a_reply_handed_over_before_the_servers_close_arrives() {
    for seed in SEEDS {
        let (mut server, client, conn) = Server::with_client(seed);
        server.clients.write(client, b"unread");
        server.send(conn, &[b'x'; 150]);
        server.net.close(conn);
        server.poll_until(|server| server.clients.is_closed(client));
        assert_eq!(server.clients.read(client), [b'x'; 100], "as much as the buffer takes");
        assert!(server.received.is_empty() && server.sent.is_empty() && server.ended.is_empty());
        assert_eq!(server.net.connection_count(), 0);
    }
}

#[test]
fn sends_to_a_client_that_closed_vanish_or_fail() {
    let mut failed = 0;
    for seed in SEEDS {
        let (mut server, client, conn) = Server::with_client(seed);
        server.clients.write(client, b"last words");
        server.clients.close(client);
        server.poll_until(|server| server.ended.contains_key(&conn));
        assert_eq!(
            (server.received(conn), server.ended[&conn]),
            (&b"last words"[..], CloseReason::Peer)
        );
        server.send(conn, b"reply");
        server.poll_until(|server| {
            !server.sent.is_empty()
                || server.ended[&conn] == CloseReason::Error(io::ErrorKind::BrokenPipe)
        });
        failed += u32::from(server.sent.is_empty());
        assert_eq!(server.net.connection_count(), usize::from(!server.sent.is_empty()));
        assert_eq!(server.clients.read(client), b"");
    }
    assert!(0 < failed && failed < 60, "{failed} of 60 failed");
}

#[test]
fn a_reset_is_an_error_and_frees_the_connection() {
    for seed in SEEDS {
        let (mut server, client, conn) = Server::with_client(seed);
        server.clients.write(client, b"0123456789");
        server.clients.reset(client);
        server.poll_until(|server| !server.ended.is_empty());
        assert_eq!(server.ended[&conn], CloseReason::Error(io::ErrorKind::ConnectionReset));
        assert!(b"01234".starts_with(server.received(conn)));
        assert_eq!(server.net.connection_count(), 0);
        assert!(server.clients.is_idle() && server.clients.is_closed(client));
    }
}

#[test]
fn a_paused_connection_reports_at_most_one_more_piece() {
    let mut late = 0;
    for seed in SEEDS {
        let (mut server, client, conn) = Server::with_client(seed);
        server.net.pause(conn);
        server.clients.write(client, &[b'x'; 500]);
        server.clients.half_close(client);
        server.poll_often();
        let pieces = server.history.iter().filter(|event| event.contains("Received")).count();
        assert!(pieces <= 1 && server.ended.is_empty());
        late += pieces;
        server.net.resume(conn);
        server.poll_until(|server| !server.ended.is_empty());
        assert_eq!(server.received(conn).len(), 500);
    }
    assert!(0 < late, "pausing is asynchronous");
}

#[test]
fn a_client_above_the_limit_is_told_and_closed() {
    for seed in SEEDS {
        let net = NetOptions {
            connection_count_limit: 2,
            full_message: b"-ERR full\r\n",
            ..Default::default()
        };
        let mut server = Server::new(seed, SimNetOptions { net, ..Default::default() });
        let clients = [(); 3].map(|()| server.clients.connect());
        server.poll_until(|server| server.clients.is_idle());
        let refused: Vec<_> =
            clients.into_iter().filter(|client| server.clients.is_closed(*client)).collect();
        assert_eq!(refused.len(), 1);
        assert_eq!(server.clients.read(refused[0]), b"-ERR full\r\n");
        server.net.stop_listening();
        let late = server.clients.connect();
        server.poll_until(|server| server.clients.is_closed(late));
        assert_eq!(server.clients.read(late), b"");
        assert_eq!(server.net.connection_count(), 2);
    }
}

#[test]
fn commands_for_a_former_connection_do_not_reach_the_next_one() {
    let (mut server, _, former) = Server::with_client(1);
    server.net.close(former);
    let client = server.clients.connect();
    server.poll_until(|server| server.clients.conn(client).is_some());
    let conn = server.clients.conn(client).unwrap();
    assert_eq!((conn.index, conn.generation), (former.index, former.generation + 1));
    server.send(former, b"late");
    server.net.pause(former);
    server.net.close(former);
    server.clients.write(client, b"hello");
    server.poll_until(|server| server.received(conn) == b"hello");
    assert_eq!(server.clients.read(client), b"");
}

#[test]
fn a_wake_is_told_once_and_silence_is_a_timer() {
    let mut server = Server::new(1, SimNetOptions::default());
    let waker = server.net.waker();
    waker.wake_by_ref();
    std::thread::spawn(move || waker.wake()).join().unwrap();
    assert!(matches!(server.poll()[..], [Event::Woken]));
    assert!(matches!(server.poll()[..], [Event::Timer]));
}
