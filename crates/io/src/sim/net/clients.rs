//! The clients' end of the simulated network, which a test controls.

use std::sync::{Arc, Mutex};

use super::{Pipe, SimNetState, lock};
use crate::ConnId;

/// Id of a simulated client, valid from its connect on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u32);

/// Clients' end of a [`super::SimNet`]. Clones are the same end.
#[derive(Clone, Debug)]
pub struct SimClients {
    shared: Arc<Mutex<SimNetState>>,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// Bytes that the client wrote and the server has not received yet.
    pub(super) written: Pipe,
    /// True if the client closed its sending half.
    pub(super) written_ended: bool,
    /// True if the server got the end of the stream, after all bytes.
    pub(super) end_reported: bool,
    /// True if the client neither writes nor reads any more.
    pub(super) closed: bool,
    /// True if the client broke the connection.
    pub(super) reset: bool,
    /// True if the server sends no more.
    pub(super) finished: bool,
    /// True if the client takes the bytes in transit.
    pub(super) reading: bool,
    /// Bytes that the server sent and that have not arrived at the client yet.
    pub(super) under_way: Pipe,
    /// Bytes that arrived at the client and that the test has not read yet.
    pub(super) arrived: Vec<u8>,
}

/// State of a client as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The server has not accepted it yet.
    Waiting,
    Open(ConnId),
    /// The server closed or refused it, or reported it as broken.
    Gone,
}

impl Client {
    /// Returns whether the server can still receive from it or send to it.
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
    pub(super) fn new(shared: Arc<Mutex<SimNetState>>) -> Self {
        Self { shared }
    }

    fn with<R>(&self, client: ClientId, act: impl FnOnce(&mut Client) -> R) -> R {
        act(&mut lock(&self.shared).clients[client.0 as usize])
    }

    /// Connects a new client, which the server accepts in a later poll. The client reads until told
    /// otherwise.
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

    /// Writes bytes from the client. They are lost silently if the server has closed the
    /// connection.
    ///
    /// # Panics
    /// If the client has closed its sending half.
    pub fn write(&self, client: ClientId, bytes: &[u8]) {
        self.with(client, |client| {
            assert!(!client.written_ended, "a write after the end");
            if client.is_live() {
                client.written.extend(bytes);
            }
        });
    }

    /// Takes the bytes that arrived at the client.
    pub fn read(&self, client: ClientId) -> Vec<u8> {
        self.with(client, |client| std::mem::take(&mut client.arrived))
    }

    /// Closes the client's sending half; the client goes on reading.
    pub fn half_close(&self, client: ClientId) {
        self.with(client, |client| client.written_ended = true);
    }

    /// Closes the client: the bytes it wrote still arrive, those that the server sends do not.
    pub fn close(&self, client: ClientId) {
        self.with(client, |client| {
            client.written_ended = true;
            client.closed = true;
            client.under_way.clear();
        });
    }

    /// Breaks the connection: all bytes in transit to the client are lost and at least half of
    /// those to the server; then the server sees an error.
    pub fn reset(&self, client: ClientId) {
        self.with(client, |client| {
            client.written_ended = true;
            client.closed = true;
            client.reset = true;
            client.written.truncate(client.written.len() / 2);
            client.under_way.clear();
        });
    }

    /// Makes the client stop taking bytes, so that the server's sends stay in flight once the
    /// buffer is full.
    pub fn stop_reading(&self, client: ClientId) {
        self.with(client, |client| client.reading = false);
    }

    /// Makes the client take bytes again.
    pub fn start_reading(&self, client: ClientId) {
        self.with(client, |client| client.reading = true);
    }

    /// Returns the server's connection to this client, while there is one.
    pub fn conn(&self, client: ClientId) -> Option<ConnId> {
        self.with(client, |client| match client.phase {
            Phase::Open(conn) => Some(conn),
            Phase::Waiting | Phase::Gone => None,
        })
    }

    /// Returns whether the client sees the end: the server closed the connection or its half (or
    /// refused it, or the connection broke) and everything sent before has arrived, even if the
    /// test has not read it yet.
    pub fn is_closed(&self, client: ClientId) -> bool {
        self.with(client, |client| {
            (client.finished || !client.is_live()) && client.under_way.is_empty()
        })
    }

    /// Returns whether polls alone move nothing more: the server has accepted or refused every
    /// client and reported every byte and end of the clients, and everything that can arrive at a
    /// client has arrived. The server's sends in flight do not count: they wait for clients that
    /// read.
    pub fn is_idle(&self) -> bool {
        lock(&self.shared).clients.iter().all(Client::is_idle)
    }
}
