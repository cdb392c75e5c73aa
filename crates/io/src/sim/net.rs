//! placeholder
use crate::{Buffer, ConnId, Event, Net, NetOptions, SendChunk};
use std::{io, task::Waker, time::Duration};

/// Options.
#[derive(Clone, Copy, Debug)]
pub struct SimNetOptions {
    /// Limits, as of the real driver.
    pub net: NetOptions,
    /// Bytes a client that does not read lets the server send before the send stays under way.
    pub send_buffer_bytes: usize,
    /// Bytes delivered to the server at once, at most.
    pub piece_bytes_max: usize,
}

impl Default for SimNetOptions {
    fn default() -> Self {
        Self { net: NetOptions::default(), send_buffer_bytes: 4096, piece_bytes_max: 64 }
    }
}

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u32);

/// The server's end.
#[derive(Debug)]
pub struct SimNet;

/// The clients' end.
#[derive(Clone, Debug)]
pub struct SimClients;

impl SimNet {
    /// Both ends.
    pub fn new(_seed: u64, _options: SimNetOptions) -> (SimNet, SimClients) {
        (SimNet, SimClients)
    }
}

impl SimClients {
    /// A new client.
    pub fn connect(&self) -> ClientId {
        ClientId(0)
    }
    /// The client sends.
    pub fn write(&self, _client: ClientId, _bytes: &[u8]) {}
    /// Takes what arrived at the client.
    pub fn read(&self, _client: ClientId) -> Vec<u8> {
        Vec::new()
    }
    /// The client closes its sending half.
    pub fn half_close(&self, _client: ClientId) {}
    /// The client closes.
    pub fn close(&self, _client: ClientId) {}
    /// The connection breaks.
    pub fn reset(&self, _client: ClientId) {}
    /// The client stops taking what the server sends.
    pub fn stop_reading(&self, _client: ClientId) {}
    /// The client takes it again.
    pub fn start_reading(&self, _client: ClientId) {}
    /// Whether the server closed the connection (or refused it) and everything it sent before has arrived.
    pub fn is_closed(&self, _client: ClientId) -> bool {
        false
    }
    /// Whether no byte, end or connection is on its way in either direction.
    pub fn is_idle(&self) -> bool {
        true
    }
}

impl Net for SimNet {
    fn poll(&mut self, events: &mut Vec<Event>, _timeout: Option<Duration>) -> io::Result<()> {
        events.push(Event::Timer);
        Ok(())
    }
    fn take_buffers(&mut self, _buffers: &mut Vec<Buffer>) {}
    fn recycle(&mut self, _buffer: Buffer) {}
    fn send(&mut self, _conn: ConnId, _chunk: SendChunk) {}
    fn pause(&mut self, _conn: ConnId) {}
    fn resume(&mut self, _conn: ConnId) {}
    fn close(&mut self, _conn: ConnId) {}
    fn stop_listening(&mut self) {}
    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }
}
