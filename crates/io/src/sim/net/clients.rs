//! The clients' end: what a test holds in its hands.

use std::sync::{Arc, Mutex};

use super::{Pipe, Shared, lock};
use crate::ConnId;

/// A simulated client, from its connect on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u32);

/// The clients' end of a [`super::SimNet`]. Clones are the same end.
#[derive(Clone, Debug)]
pub struct SimClients {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// Written by the client, not yet received by the server.
    pub(super) written: Pipe,
    /// The client writes no more.
    pub(super) written_ended: bool,
    /// The server was told so, after all bytes.
    pub(super) end_reported: bool,
    /// The client neither writes nor reads any more.
    pub(super) closed: bool,
    /// The client broke the connection.
    pub(super) reset: bool,
    /// The server sends no more.
    pub(super) finished: bool,
    /// The client takes what is on its way.
    pub(super) reading: bool,
    /// Sent by the server, not yet at the client.
    pub(super) under_way: Pipe,
    /// At the client, not yet read.
    pub(super) arrived: Vec<u8>,
}

/// How the server sees a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not yet accepted.
    Waiting,
    Open(ConnId),
    /// Closed by the server, refused, or reported as broken.
    Gone,
}

impl Client {
    /// Whether the server can still receive from it or send to it.
    fn is_live(&self) -> bool {
        self.phase != Phase::Gone
    }

    fn is_idle(&self) -> bool {
        let received = match self.phase {
            Phase::Waiting => false,
            Phase::Open(_) => {
                self.written.is_empty() && self.written_ended == self.end_reported && !self.reset
            }
            Phase::Gone => true,
        };
        received && (self.under_way.is_empty() || !self.reading)
    }
}

impl SimClients {
    pub(super) fn new(shared: Arc<Mutex<Shared>>) -> Self {
        Self { shared }
    }

    fn with<R>(&self, client: ClientId, act: impl FnOnce(&mut Client) -> R) -> R {
        act(&mut lock(&self.shared).clients[client.0 as usize])
    }

    /// A new client; the server accepts it in a later poll. It reads until told otherwise.
    pub fn connect(&self) -> ClientId {
        let mut shared = lock(&self.shared);
        let id = ClientId(u32::try_from(shared.clients.len()).expect("few clients"));
        shared.clients.push(Client {
            phase: Phase::Waiting,
            written: Pipe::new(),
            written_ended: false,
            end_reported: false,
            closed: false,
            finished: false,
            reset: false,
            reading: true,
            under_way: Pipe::new(),
            arrived: Vec::new(),
        });
        id
    }

    /// The client sends. Lost without a trace when the server has closed the connection.
    ///
    /// # Panics
    /// When the client closed its sending half before.
    pub fn write(&self, client: ClientId, bytes: &[u8]) {
        self.with(client, |client| {
            assert!(!client.written_ended, "a write after the end");
            if client.is_live() {
                client.written.extend(bytes);
            }
        });
    }

    /// Takes what arrived at the client.
    pub fn read(&self, client: ClientId) -> Vec<u8> {
        self.with(client, |client| std::mem::take(&mut client.arrived))
    }

    /// The client closes its sending half and goes on reading.
    pub fn half_close(&self, client: ClientId) {
        self.with(client, |client| client.written_ended = true);
    }

    /// The client closes: what it wrote still arrives, what the server sends no longer does.
    pub fn close(&self, client: ClientId) {
        self.with(client, |client| {
            client.written_ended = true;
            client.closed = true;
            client.under_way.clear();
        });
    }

    /// The connection breaks: bytes on their way to the client are lost, those to the server at
    /// least by half; then the server sees an error.
    pub fn reset(&self, client: ClientId) {
        self.with(client, |client| {
            client.written_ended = true;
            client.closed = true;
            client.reset = true;
            client.written.truncate(client.written.len() / 2);
            client.under_way.clear();
        });
    }

    /// The client stops taking what the server sends, so that its sends stay under way once the
    /// buffer is full.
    pub fn stop_reading(&self, client: ClientId) {
        self.with(client, |client| client.reading = false);
    }

    /// The client takes it again.
    pub fn start_reading(&self, client: ClientId) {
        self.with(client, |client| client.reading = true);
    }

    /// Which connection of the server this client is, while it is one.
    pub fn conn(&self, client: ClientId) -> Option<ConnId> {
        self.with(client, |client| match client.phase {
            Phase::Open(conn) => Some(conn),
            Phase::Waiting | Phase::Gone => None,
        })
    }

    /// Whether the client sees the end: the server closed the connection or its half (or refused
    /// it, or the connection broke) and everything sent before has arrived, even if it was not yet
    /// read.
    pub fn is_closed(&self, client: ClientId) -> bool {
        self.with(client, |client| {
            (client.finished || !client.is_live()) && client.under_way.is_empty()
        })
    }

    /// How many bytes this client has written that the server has not yet received.
    pub fn unreceived_bytes(&self, client: ClientId) -> usize {
        self.with(client, |client| client.written.len())
    }

    /// Whether polls alone move nothing more towards the server or a client: every client was
    /// accepted or refused, every byte and end of the clients was reported, and everything that can
    /// arrive at a client has. Sends under way on the server's side do not count: they wait for
    /// clients that read.
    pub fn is_idle(&self) -> bool {
        lock(&self.shared).clients.iter().all(Client::is_idle)
    }
}
