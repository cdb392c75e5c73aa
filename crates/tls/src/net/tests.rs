use std::io::{Read, Write};

use busload_io::sim::{ClientId, SimClients, SimClock, SimNet, SimNetOptions};
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};

use super::*;
use crate::{Files, client_config};

/// Certificate of the tests and its key.
fn files(directory: &std::path::Path) -> Files {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = Files {
        certificate: directory.join("cert.pem"),
        key: directory.join("key.pem"),
        client_authorities: None,
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    files
}

/// A server that answers every byte with the next one, and clients of it.
struct Setup {
    net: TlsNet<SimNet>,
    clients: SimClients,
    clock: SimClock,
    config: Arc<ClientConfig>,
    identity: Arc<Identity>,
    events: Vec<Event>,
    /// Connections of the server: what it has to send, and whether a send is under way.
    conns: Vec<(ConnId, Vec<u8>, bool)>,
    closed: Vec<(ConnId, CloseReason)>,
    _directory: tempfile::TempDir,
}

/// One client, with its TLS.
struct Client {
    id: ClientId,
    tls: ClientConnection,
    got: Vec<u8>,
}

impl Setup {
    fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        let identity = Arc::new(Identity::load(files.clone()).unwrap());
        let (net, clients) = SimNet::new(seed, SimNetOptions::default());
        let clock = SimClock::new(0);
        let net = TlsNet::new(net, Some(Arc::clone(&identity)), clock.clone());
        Self {
            net,
            clients,
            clock,
            config: Arc::new(client_config(&files).unwrap()),
            identity,
            events: Vec::new(),
            conns: Vec::new(),
            closed: Vec::new(),
            _directory: directory,
        }
    }

    fn connect(&self) -> Client {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        Client { id: self.clients.connect(), tls, got: Vec::new() }
    }

    /// Polls once and answers what was received.
    fn turn(&mut self) {
        self.net.poll(&mut self.events, None).unwrap();
        let mut buffers = Vec::new();
        self.net.take_buffers(&mut buffers);
        for event in self.events.drain(..) {
            match event {
                Event::Accepted { conn, .. } => {
                    self.conns.retain(|(other, ..)| other.index != conn.index);
                    self.conns.push((conn, Vec::new(), false));
                }
                Event::Received { conn, span } => {
                    let bytes = &buffers[span.buffer as usize];
                    let bytes = &bytes[span.start as usize..span.end as usize];
                    assert!(!bytes.is_empty());
                    let (_, reply, _) = find(&mut self.conns, conn);
                    reply.extend(bytes.iter().map(|byte| byte.wrapping_add(1)));
                }
                Event::Sent { conn, .. } => find(&mut self.conns, conn).2 = false,
                Event::Closed { conn, reason } => self.closed.push((conn, reason)),
                Event::Woken | Event::Timer => {}
            }
        }
        buffers.into_iter().for_each(|buffer| self.net.recycle(buffer));
        for (conn, reply, sending) in &mut self.conns {
            if !*sending && !reply.is_empty() {
                *sending = true;
                self.net.send(*conn, SendChunk::Owned(mem::take(reply)));
            }
        }
    }

    /// Moves bytes between a client's TLS and the network.
    fn exchange(&self, client: &mut Client) -> Result<(), rustls::Error> {
        let arrived = self.clients.read(client.id);
        let mut arrived = &arrived[..];
        while !arrived.is_empty() {
            client.tls.read_tls(&mut arrived).unwrap();
            let state = client.tls.process_new_packets()?;
            let mut plaintext = vec![0; state.plaintext_bytes_to_read()];
            client.tls.reader().read_exact(&mut plaintext).unwrap();
            client.got.extend(plaintext);
        }
        let mut records = Vec::new();
        while client.tls.wants_write() {
            client.tls.write_tls(&mut records).unwrap();
        }
        if !records.is_empty() {
            self.clients.write(client.id, &records);
        }
        Ok(())
    }

    /// Turns until a client has got so many bytes.
    fn until_got(&mut self, client: &mut Client, count: usize) {
        for _ in 0..100_000 {
            self.exchange(client).unwrap();
            if count <= client.got.len() {
                return;
            }
            self.turn();
        }
        panic!("{} of {count} bytes arrived", client.got.len());
    }

    fn until_closed(&mut self, client: &mut Client) -> CloseReason {
        for _ in 0..100_000 {
            // What the server says at the end may be an alert.
            let _ = self.exchange(client);
            if let Some((_, reason)) = self.closed.first() {
                return *reason;
            }
            self.turn();
        }
        panic!("the connection is not closed");
    }
}

fn find(conns: &mut [(ConnId, Vec<u8>, bool)], conn: ConnId) -> &mut (ConnId, Vec<u8>, bool) {
    conns.iter_mut().find(|(other, ..)| *other == conn).expect("an open connection")
}

#[test]
fn bytes_arrive_whole_and_in_order_however_the_network_cuts_them() {
    for seed in 0..30 {
        let mut setup = Setup::new(seed);
        let mut clients: Vec<Client> = (0..3).map(|_| setup.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.tls.set_buffer_limit(None);
            let bytes: Vec<u8> = (0..50_000_u32).map(|at| (at * 7 + number as u32) as u8).collect();
            client.tls.writer().write_all(&bytes).unwrap();
            setup.exchange(client).unwrap();
        }
        for _ in 0..20 {
            setup.turn();
            clients.iter_mut().for_each(|client| setup.exchange(client).unwrap());
        }
        for (number, client) in clients.iter_mut().enumerate() {
            setup.until_got(client, 50_000);
            let expected: Vec<u8> = (0..50_000_u32)
                .map(|at| ((at * 7 + number as u32) as u8).wrapping_add(1))
                .collect();
            assert!(client.got == expected, "seed {seed}");
        }
        assert_eq!(setup.identity.counters().handshakes.load(Relaxed), 3);
        assert!(setup.closed.is_empty());
    }
}

#[test]
fn a_reply_longer_than_a_part_is_sent_in_parts_and_reported_once() {
    let mut setup = Setup::new(1);
    let mut client = setup.connect();
    client.tls.writer().write_all(b"x").unwrap();
    setup.until_got(&mut client, 1);
    let long: Vec<u8> = (0..3 * SEND_BYTES_MAX as u32 + 5).map(|at| at as u8).collect();
    setup.conns[0].1 = long.clone();
    setup.until_got(&mut client, 1 + long.len());
    assert!(client.got[1..] == long);
    // What is sent later comes behind it.
    client.tls.writer().write_all(b"y").unwrap();
    setup.until_got(&mut client, 1 + long.len() + 1);
    assert_eq!(client.got.last(), Some(&b'z'));
}

#[test]
fn close_notify_is_the_end_of_the_stream_and_the_other_half_goes_on() {
    let mut setup = Setup::new(2);
    let mut client = setup.connect();
    client.tls.writer().write_all(b"abc").unwrap();
    setup.until_got(&mut client, 3);
    client.tls.writer().write_all(b"d").unwrap();
    client.tls.send_close_notify();
    assert_eq!(setup.until_closed(&mut client), CloseReason::Peer);
    setup.until_got(&mut client, 4);
    assert_eq!(client.got, b"bcde");
    // The end of the TCP stream behind it is not reported again.
    setup.clients.half_close(client.id);
    (0..50).for_each(|_| setup.turn());
    assert_eq!(setup.closed.len(), 1);
    let conn = setup.conns[0].0;
    setup.net.close(conn);
    (0..50).for_each(|_| setup.turn());
    assert!(setup.clients.is_closed(client.id));
}

#[test]
fn the_end_of_the_sending_half_is_told_by_close_notify() {
    let mut setup = Setup::new(3);
    let mut client = setup.connect();
    client.tls.writer().write_all(b"abc").unwrap();
    setup.until_got(&mut client, 3);
    setup.net.finish(setup.conns[0].0);
    for _ in 0..1000 {
        setup.turn();
        setup.exchange(&mut client).unwrap();
    }
    let mut rest = Vec::new();
    assert_eq!(client.tls.reader().read_to_end(&mut rest).unwrap(), 0, "a clean end");
    assert!(setup.clients.is_closed(client.id));
}

#[test]
fn what_is_no_tls_ends_the_connection_and_is_counted() {
    let mut setup = Setup::new(4);
    let plain = setup.clients.connect();
    setup.clients.write(plain, b"*1\r\n$4\r\nPING\r\n");
    for _ in 0..1000 {
        setup.turn();
    }
    let reason = CloseReason::Error(io::ErrorKind::InvalidData);
    assert_eq!(setup.closed, [(setup.conns[0].0, reason)]);
    assert!(setup.clients.is_closed(plain));
    assert_eq!(setup.identity.counters().failures.load(Relaxed), 1);
}

#[test]
fn a_changed_record_ends_the_connection_and_nothing_of_it_is_seen() {
    let mut setup = Setup::new(5);
    let mut client = setup.connect();
    client.tls.writer().write_all(b"abc").unwrap();
    setup.until_got(&mut client, 3);
    client.tls.writer().write_all(b"secret").unwrap();
    let mut records = Vec::new();
    client.tls.write_tls(&mut records).unwrap();
    *records.last_mut().unwrap() ^= 1;
    setup.clients.write(client.id, &records);
    let reason = setup.until_closed(&mut client);
    assert_eq!(reason, CloseReason::Error(io::ErrorKind::InvalidData));
    assert_eq!(client.got, b"bcd");
}

#[test]
fn a_handshake_that_lasts_too_long_is_ended_and_a_session_that_idles_is_not() {
    let mut setup = Setup::new(6);
    let mut client = setup.connect();
    client.tls.writer().write_all(b"abc").unwrap();
    setup.until_got(&mut client, 3);
    let silent = setup.clients.connect();
    (0..50).for_each(|_| setup.turn());
    setup.clock.advance(HANDSHAKE_MAX - Duration::from_millis(1));
    setup.turn();
    assert!(setup.closed.is_empty());
    setup.clock.advance(Duration::from_millis(1));
    setup.turn();
    let reason = CloseReason::Error(io::ErrorKind::TimedOut);
    assert_eq!(setup.closed, [(setup.conns[1].0, reason)]);
    (0..50).for_each(|_| setup.turn());
    assert!(setup.clients.is_closed(silent));
    client.tls.writer().write_all(b"d").unwrap();
    setup.until_got(&mut client, 4);
}

#[test]
fn a_client_that_resumes_does_so_by_its_ticket() {
    let mut setup = Setup::new(7);
    for resumed in [0, 1] {
        let mut client = setup.connect();
        client.tls.writer().write_all(b"abc").unwrap();
        setup.until_got(&mut client, 3);
        (0..200).for_each(|_| setup.turn());
        setup.exchange(&mut client).unwrap();
        assert_eq!(setup.identity.counters().resumptions.load(Relaxed), resumed);
    }
}

#[test]
fn connections_that_break_at_any_point_leave_nothing_behind() {
    for seed in 0..200 {
        let mut setup = Setup::new(seed);
        let mut client = setup.connect();
        client.tls.writer().write_all(&[7; 3000]).unwrap();
        for _ in 0..seed % 40 {
            let _ = setup.exchange(&mut client);
            setup.turn();
        }
        setup.clients.reset(client.id);
        for _ in 0..300 {
            setup.turn();
        }
        if let [(conn, reason)] = setup.closed[..] {
            assert!(reason != CloseReason::Peer, "seed {seed}");
            assert!(setup.net.session(conn).is_none(), "seed {seed}");
        } else {
            // It was broken before it was accepted.
            assert!(setup.closed.is_empty() && setup.conns.is_empty(), "seed {seed}");
        }
    }
}
