//! Both ends of connections, in memory.
//!
//! # Model
//!
//! Nothing moves by itself: bytes written by a client wait until the server polls, and bytes that
//! the server sends wait until it polls again. In each poll the seed decides, for every connection
//! and both directions, whether something moves now or later and how much: single bytes, pieces cut
//! anywhere, or everything. Bytes in transit arrive sooner or later, in order, as long as the
//! server polls.
//!
//! * **Backpressure.** The server's sends go through a buffer of
//!   [`SimNetOptions::send_buffer_bytes`]. When a client stops reading the buffer fills, and then
//!   the send stays in flight.
//! * **Pausing** is asynchronous: one more piece may be reported.
//! * **Half-close**: the server receives the bytes written before, then the end; the other
//!   direction goes on.
//! * **Close by the client**: the same, but whatever the server sends afterwards is discarded or
//!   fails, by chance.
//! * **Reset**: bytes in transit are lost in both directions (those to the server not always all),
//!   then an error is reported.
//! * **Close by the server**: bytes already in the buffer still arrive; a send in flight is
//!   dropped.
//!
//! Ids, buffers, the connection limit and the order of events are those of the real driver.
//! [`Net::poll`] never waits: when nothing happens it reports [`Event::Timer`] at once, whatever
//! the timeout.

use std::{
    collections::VecDeque,
    io, mem,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use super::SimRng;
use crate::{
    Address, Buffer, CloseReason, ConnId, Event, Net, NetOptions, Peer, SendChunk,
    net::{receive::ReceiveBuffers, slots::Slots},
};

mod clients;
#[cfg(test)]
mod tests;

use clients::{Client, Phase};
pub use clients::{ClientId, SimClients};

/// Settings of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct SimNetOptions {
    /// Limits, as for the real driver.
    pub net: NetOptions,
    /// Number of bytes in transit to one client up to which a send counts as done.
    pub send_buffer_bytes: usize,
    /// Most bytes that move at once in one direction.
    pub piece_bytes_max: usize,
}

impl Default for SimNetOptions {
    fn default() -> Self {
        Self { net: NetOptions::default(), send_buffer_bytes: 4096, piece_bytes_max: 4096 }
    }
}

/// Server's end of the simulated network.
#[derive(Debug)]
pub struct SimNet {
    shared: Arc<Mutex<SimNetState>>,
    rng: SimRng,
    options: SimNetOptions,
    ends: Slots<ServerEnd>,
    receive: ReceiveBuffers,
    /// Order of the connections in a poll, reused from poll to poll.
    order: Vec<ConnId>,
    waker: Arc<WakeFlag>,
}

/// State that both ends share.
#[derive(Debug)]
struct SimNetState {
    clients: Vec<Client>,
    listening: bool,
}

/// Server's end of one connection.
#[derive(Debug)]
struct ServerEnd {
    client: ClientId,
    reading: Reading,
    sending: Option<(SendChunk, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    On,
    /// Reading is paused, but one piece may already be on its way up.
    Stopping,
    Paused,
}

#[derive(Debug, Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl SimNet {
    /// Creates both ends of a network without connections.
    ///
    /// # Panics
    /// If the options make no sense.
    pub fn new(seed: u64, options: SimNetOptions) -> (SimNet, SimClients) {
        assert!(0 < options.send_buffer_bytes && 0 < options.piece_bytes_max, "nothing could move");
        let receive = ReceiveBuffers::new(options.net.buffer_bytes, options.net.receive_bytes_min)
            .expect("sizes of receive buffers that can work");
        let shared = Arc::new(Mutex::new(SimNetState { clients: Vec::new(), listening: true }));
        let clients = SimClients::new(Arc::clone(&shared));
        let net = SimNet {
            shared,
            rng: SimRng::new(seed),
            options,
            ends: Slots::new(),
            receive,
            order: Vec::new(),
            waker: Arc::default(),
        };
        (net, clients)
    }

    /// Returns the number of the server's connections.
    pub fn connection_count(&self) -> usize {
        self.ends.len()
    }

    fn accept(&mut self, shared: &mut SimNetState, events: &mut Vec<Event>) {
        for index in 0..shared.clients.len() {
            let client = &mut shared.clients[index];
            if client.phase != Phase::Waiting || !self.rng.chance(3, 4) {
                continue;
            }
            if !shared.listening {
                client.phase = Phase::Gone;
            } else if self.options.net.connection_count_limit as usize <= self.ends.len() {
                client.under_way.extend(self.options.net.full_message);
                client.phase = Phase::Gone;
            } else {
                let client_id = ClientId(u32::try_from(index).expect("few clients"));
                let end = ServerEnd { client: client_id, reading: Reading::On, sending: None };
                let conn = self.ends.insert(end);
                client.phase = Phase::Open(conn);
                events.push(Event::Accepted { conn, peer: peer_of(client_id) });
            }
        }
    }

    fn step(&mut self, conn: ConnId, client: &mut Client, events: &mut Vec<Event>) {
        let Some(end) = self.ends.get_mut(conn) else { return };
        let rng = &mut self.rng;
        if rng.chance(3, 4) {
            end.fill_send_buffer(client, rng, &self.options);
        }
        if end.sending.as_ref().is_some_and(|(chunk, sent)| *sent == chunk.as_slice().len())
            && rng.chance(3, 4)
            && let Some((chunk, _)) = end.sending.take()
        {
            events.push(Event::Sent { conn, chunk });
        }
        let broken = if client.reset {
            Some(io::ErrorKind::ConnectionReset)
        } else if client.closed && end.sending.is_some() {
            Some(io::ErrorKind::BrokenPipe)
        } else {
            None
        };
        if let Some(kind) = broken
            && rng.chance(1, 2)
        {
            self.ends.remove(conn);
            client.phase = Phase::Gone;
            events.push(Event::Closed { conn, reason: CloseReason::Error(kind) });
            return;
        }
        if end.reading == Reading::Paused || client.end_reported || !rng.chance(3, 4) {
            return;
        }
        if end.reading == Reading::Stopping {
            end.reading = Reading::Paused;
        }
        if !client.written.is_empty() {
            let space = self.receive.unfilled();
            let count =
                piece(rng, client.written.len().min(space.len()), self.options.piece_bytes_max);
            for (byte, received) in space.iter_mut().zip(client.written.drain(..count)) {
                *byte = received;
            }
            events.push(Event::Received { conn, span: self.receive.fill(count) });
        } else if client.written_ended && !client.reset {
            client.end_reported = true;
            events.push(Event::Closed { conn, reason: CloseReason::Peer });
        }
    }
}

impl ServerEnd {
    fn fill_send_buffer(&mut self, client: &mut Client, rng: &mut SimRng, options: &SimNetOptions) {
        let Some((chunk, sent)) = &mut self.sending else { return };
        let rest = &chunk.as_slice()[*sent..];
        if client.closed {
            // The client is gone: the bytes vanish, or the caller of this function notices the
            // broken connection.
            if rng.chance(1, 4) {
                *sent += rest.len();
            }
            return;
        }
        let space = options.send_buffer_bytes.saturating_sub(client.under_way.len());
        let count = rest.len().min(space);
        if 0 < count {
            let count = piece(rng, count, options.piece_bytes_max);
            client.under_way.extend(&rest[..count]);
            *sent += count;
        }
    }
}

/// Returns how many of `available` (not 0) bytes move now: few, any number, or all that may.
fn piece(rng: &mut SimRng, available: usize, piece_bytes_max: usize) -> usize {
    let most = available.min(piece_bytes_max);
    match rng.below(4) {
        0 => 1 + rng.index(most.min(8)),
        1 => 1 + rng.index(most),
        _ => most,
    }
}

/// Moves bytes in transit to the client, if it reads.
fn arrive(client: &mut Client, rng: &mut SimRng, options: &SimNetOptions) {
    if client.reading && !client.under_way.is_empty() && rng.chance(3, 4) {
        let count = piece(rng, client.under_way.len(), options.piece_bytes_max);
        client.arrived.extend(client.under_way.drain(..count));
    }
}

fn peer_of(client: ClientId) -> Peer {
    let address = |port| Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    // Above the ports of servers; not unique for more clients than there are ports.
    Peer { remote: address(10_000 + (client.0 % 50_000) as u16), local: address(6380) }
}

fn lock(shared: &Mutex<SimNetState>) -> MutexGuard<'_, SimNetState> {
    shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Net for SimNet {
    fn poll(&mut self, events: &mut Vec<Event>, _timeout: Option<Duration>) -> io::Result<()> {
        let before = events.len();
        self.receive.begin();
        if self.waker.0.swap(false, Ordering::Acquire) {
            events.push(Event::Woken);
        }
        let shared = Arc::clone(&self.shared);
        let mut shared = lock(&shared);
        let mut order = mem::take(&mut self.order);
        order.extend(self.ends.ids());
        self.rng.shuffle(&mut order);
        for conn in order.drain(..) {
            if let Some(end) = self.ends.get_mut(conn) {
                let client = &mut shared.clients[end.client.0 as usize];
                self.step(conn, client, events);
            }
        }
        self.order = order;
        self.accept(&mut shared, events);
        for client in &mut shared.clients {
            arrive(client, &mut self.rng, &self.options);
        }
        if events.len() == before {
            events.push(Event::Timer);
        }
        Ok(())
    }

    fn take_buffers(&mut self, buffers: &mut Vec<Buffer>) {
        self.receive.take(buffers);
    }

    fn recycle(&mut self, mut buffer: Buffer) {
        // A caller that reads a buffer after giving it back sees these bytes.
        buffer.fill(0xdd);
        self.receive.recycle(buffer);
    }

    fn send(&mut self, conn: ConnId, chunk: SendChunk) {
        if let Some(end) = self.ends.get_mut(conn) {
            assert!(
                end.sending.is_none(),
                "a second send on a connection before the first was reported"
            );
            debug_assert!(!chunk.as_slice().is_empty(), "a chunk without bytes");
            end.sending = Some((chunk, 0));
        }
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(end) = self.ends.get_mut(conn)
            && end.reading == Reading::On
        {
            end.reading = if self.rng.chance(1, 4) { Reading::Stopping } else { Reading::Paused };
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(end) = self.ends.get_mut(conn) {
            end.reading = Reading::On;
        }
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(end) = self.ends.remove(conn) {
            let client = &mut lock(&self.shared).clients[end.client.0 as usize];
            client.phase = Phase::Gone;
            client.written.clear();
            // The real driver hands a chunk to the system at once, as far as the socket's buffer
            // has space.
            if let Some((chunk, sent)) = end.sending
                && !client.closed
            {
                let rest = &chunk.as_slice()[sent..];
                let space = self.options.send_buffer_bytes.saturating_sub(client.under_way.len());
                client.under_way.extend(&rest[..rest.len().min(space)]);
            }
        }
    }

    fn finish(&mut self, conn: ConnId) {
        if let Some(end) = self.ends.get_mut(conn) {
            assert!(end.sending.is_none(), "a send is under way");
            lock(&self.shared).clients[end.client.0 as usize].finished = true;
        }
    }

    fn limit_connections(&mut self, count: u32) {
        self.options.net.connection_count_limit = count;
    }

    fn stop_listening(&mut self) {
        lock(&self.shared).listening = false;
    }

    fn descriptor(&self, _: ConnId) -> Option<i32> {
        None
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.waker))
    }
}

/// Bytes in transit in one direction.
type Pipe = VecDeque<u8>;
