//! Driver of the operating system's sockets, based on readiness (epoll, kqueue; edge-triggered).
//!
//! The cost of a turn is its system calls: one wait, one receive per readable connection, one send
//! per chunk. No event allocates, hashes or searches; a readiness event carries the connection's
//! slot.
//!
//! **Receiving.** A readable connection gets one receive per poll, directly after the previous
//! connection's bytes in the current buffer. A receive that returns less than it was offered has
//! emptied the socket: the next bytes make a new edge, so no second receive is needed. A receive
//! that fills its space, or one cut off by the limit on bytes per poll, puts the connection on a
//! list that is served first in the next poll, which then does not block.
//!
//! **End of stream.** When the readiness event says that the peer closed its half, the driver keeps
//! reading from the connection until a receive of 0 bytes, because the edge will not come again.
//!
//! **Sending** is tried at once; the next poll reports it (without a system call, unless the poll
//! before also did without). The rest that the socket does not accept is sent when it becomes
//! writable. The bytes sent between two polls are limited; the rest waits for the next poll, which
//! then does not block.
//!
//! **Embedded runtime.** Other work of the polling thread ([`Idle`]) waits in place of this driver:
//! on the poll's own file descriptor, which is readable when a socket or the waker is ready. The
//! driver lets it wait only after a poll that found nothing, so anything that happens from then on
//! makes a new edge.
//!
//! **Overload.** A client above the connection limit gets a message and is closed. When file
//! descriptors run out, the driver pauses the listeners for a moment (clients wait in the backlog)
//! and logs one line. Each poll accepts a limited number of clients per listener.

use std::{
    fmt, io, mem,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    task::Waker,
    time::Duration,
};

use mio::{Events, Interest, Poll, Token, event::Event as Ready};

use super::{
    Address, Buffer, CloseReason, ConnId, Event, Net, NetOptions, Peer, SendChunk, Span,
    receive::ReceiveBuffers, slots::Slots,
};
use crate::{
    Clock, RealClock,
    limits::{
        ACCEPT_BACKOFF, ACCEPT_COUNT_PER_POLL, CLOSE_DRAIN_CALLS_MAX, READY_COUNT_PER_POLL,
        RECEIVE_BUFFERS_PER_POLL, SENT_BYTES_PER_POLL_MAX,
    },
};

mod connection;
mod listen;
mod stream;
#[cfg(test)]
mod tests;
mod wake;

use connection::{Connection, Sending};
use listen::Listener;
use stream::{Stream, Written};
use wake::PollWaker;

const WAKER: Token = Token(usize::MAX - 1);

/// Token of the last listener. Listeners have tokens from here downwards, connections from 0
/// upwards.
const LISTENER_LAST: usize = usize::MAX - 2;

/// Counters of a driver since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCounters {
    /// Number of waits for readiness.
    pub polls: u64,
    /// Number of receive calls.
    pub receives: u64,
    /// Number of send calls.
    pub sends: u64,
    /// Number of connections accepted.
    pub accepts: u64,
    /// Number of connections refused because of the connection limit.
    pub refusals: u64,
    /// Number of bytes received.
    pub received_bytes: u64,
    /// Number of bytes sent.
    pub sent_bytes: u64,
}

/// Other work of the polling thread, done while it waits for sockets.
pub trait Idle: Send + fmt::Debug {
    /// Works until `poll` has become readable, `wait_max` has passed (`None`: never), or there is
    /// something else for the caller to do. If nothing is left to wait for, does what can be done
    /// at once. Returning early is harmless.
    fn idle(&mut self, poll: BorrowedFd<'_>, wait_max: Option<Duration>);
}

/// Driver of the operating system's sockets.
#[derive(Debug)]
pub struct RealNet {
    /// Dropped first: it may have registered the poll's file descriptor.
    idle: Option<Box<dyn Idle>>,
    poll: Poll,
    ready: Events,
    waker: Arc<PollWaker>,
    clock: RealClock,
    options: NetOptions,
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
    /// Time, by `clock`, until which the listeners are paused.
    accept_after: Option<Duration>,
    /// True if the lack of file descriptors was logged and no client was accepted since.
    exhaustion_logged: bool,
    connections: Slots<Connection>,
    receive: ReceiveBuffers,
    /// Connections to receive from in the next poll whether or not an edge comes.
    read_again: Vec<ConnId>,
    /// Further connections of that kind that had their turn in this poll: they come after those
    /// that had none.
    read_more: Vec<ConnId>,
    /// Connections whose send stopped before the socket was full.
    send_again: Vec<ConnId>,
    /// Results, for the next poll to report, of sends tried since the last one.
    send_results: Vec<SendResult>,
    /// Ordinal of the current poll, to see what was already done in it.
    ordinal: u64,
    received_bytes_in_poll: usize,
    received_bytes_in_poll_max: usize,
    /// Value of [`NetCounters::sent_bytes`] at which sends wait for the next poll.
    sent_bytes_pause_at: u64,
    /// True if the last poll made a system call.
    waited: bool,
    counters: NetCounters,
}

#[derive(Debug)]
enum SendResult {
    Done(ConnId, SendChunk),
    Failed(ConnId, io::ErrorKind),
}

impl RealNet {
    /// Listens on all of `addresses`. Replaces the file of a Unix socket on which nobody answers.
    ///
    /// # Errors
    /// The error names the address.
    pub fn bind(addresses: &[Address], options: NetOptions) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(PollWaker::new(poll.registry(), WAKER)?);
        let mut listeners = Vec::with_capacity(addresses.len());
        for (index, address) in addresses.iter().enumerate() {
            let mut listener = Listener::bind(address)?;
            listener.register(poll.registry(), Token(LISTENER_LAST - index))?;
            listeners.push(listener);
        }
        Ok(Self {
            idle: None,
            poll,
            ready: Events::with_capacity(READY_COUNT_PER_POLL),
            waker,
            clock: RealClock::new(),
            options,
            addresses: listeners.iter().map(|listener| listener.address().clone()).collect(),
            listeners,
            accept_after: None,
            exhaustion_logged: false,
            connections: Slots::new(),
            receive: ReceiveBuffers::new(options.buffer_bytes, options.receive_bytes_min)?,
            read_again: Vec::new(),
            read_more: Vec::new(),
            send_again: Vec::new(),
            send_results: Vec::new(),
            ordinal: 0,
            received_bytes_in_poll: 0,
            received_bytes_in_poll_max: RECEIVE_BUFFERS_PER_POLL * options.buffer_bytes,
            sent_bytes_pause_at: SENT_BYTES_PER_POLL_MAX as u64,
            waited: false,
            counters: NetCounters::default(),
        })
    }

    /// Sets the work that the thread does whenever it would wait, and a little of it in every poll.
    pub fn set_idle(&mut self, idle: Box<dyn Idle>) {
        self.idle = Some(idle);
    }

    fn wait(&mut self, wait_max: Option<Duration>) -> io::Result<()> {
        let Some(idle) = &mut self.idle else { return self.poll.poll(&mut self.ready, wait_max) };
        self.poll.poll(&mut self.ready, Some(Duration::ZERO))?;
        if !self.ready.is_empty() {
            idle.idle(self.poll.registry().as_fd(), Some(Duration::ZERO));
            return Ok(());
        }
        idle.idle(self.poll.registry().as_fd(), wait_max);
        self.poll.poll(&mut self.ready, Some(Duration::ZERO))
    }

    /// Returns the addresses it listens on, in the order given to [`RealNet::bind`], with the ports
    /// that the system chose.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns the counters since the driver was created.
    pub fn counters(&self) -> NetCounters {
        self.counters
    }

    /// Returns the number of connections.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Returns whether this poll may report completed sends without a system call, so that a turn
    /// of requests and replies costs one wait and not two. Never twice in a row: a caller that
    /// always has more to send must not keep other connections from being read.
    fn reports_without_wait(&self) -> bool {
        self.waited
            && self.read_again.is_empty()
            && self.send_again.is_empty()
            && !self.send_results.is_empty()
    }

    fn wait_max(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let more = !(self.send_results.is_empty()
            && self.read_again.is_empty()
            && self.send_again.is_empty());
        if more {
            return Some(Duration::ZERO);
        }
        if !self.listeners.iter().any(|listener| listener.more) {
            return timeout;
        }
        match self.accept_after {
            None => Some(Duration::ZERO),
            Some(after) => {
                let rest = after.saturating_sub(self.clock.now());
                Some(timeout.map_or(rest, |timeout| timeout.min(rest)))
            }
        }
    }

    fn report_sends(&mut self, events: &mut Vec<Event>) {
        for result in self.send_results.drain(..) {
            match result {
                SendResult::Done(conn, chunk) => {
                    if let Some(connection) = self.connections.get_mut(conn) {
                        connection.sending = Sending::Nothing;
                        events.push(Event::Sent { conn, chunk });
                    }
                }
                SendResult::Failed(conn, kind) => {
                    if self.connections.remove(conn).is_some() {
                        events.push(Event::Closed { conn, reason: CloseReason::Error(kind) });
                    }
                }
            }
        }
    }

    fn serve_again(&mut self, events: &mut Vec<Event>) {
        // Both lists may grow while they are served; additions wait for the next poll.
        let count = self.send_again.len();
        for position in 0..count {
            let conn = self.send_again[position];
            if let Some(connection) = self.connections.get_mut(conn) {
                connection.send_again = false;
                self.send_rest(conn, events);
            }
        }
        self.send_again.drain(..count);
        let count = self.read_again.len();
        for position in 0..count {
            let conn = self.read_again[position];
            if let Some(connection) = self.connections.get_mut(conn) {
                connection.read_again = false;
                self.receive(conn, events);
            }
        }
        self.read_again.drain(..count);
    }

    fn handle_ready(&mut self, ready: &Ready, events: &mut Vec<Event>) {
        let Token(token) = ready.token();
        if ready.token() == WAKER {
            self.waker.reset();
            events.push(Event::Woken);
        } else if let Some(listener) = self.listeners.get_mut(LISTENER_LAST - token) {
            listener.more = true;
        } else if let Some(conn) = self.connections.id_at(token) {
            self.handle_connection_ready(conn, ready, events);
        }
    }

    fn handle_connection_ready(&mut self, conn: ConnId, ready: &Ready, events: &mut Vec<Event>) {
        let broken = ready.is_error();
        let ended = broken || ready.is_read_closed();
        if ready.is_writable() || broken || ready.is_write_closed() {
            self.send_rest(conn, events);
        }
        if (ended || ready.is_readable())
            && let Some(connection) = self.connections.get_mut(conn)
        {
            connection.end_seen |= ended;
            self.receive(conn, events);
        }
    }

    /// Receives once, unless it is not the connection's turn.
    fn receive(&mut self, conn: ConnId, events: &mut Vec<Event>) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        if connection.paused || connection.ended {
            connection.unread = true;
            return;
        }
        let served = connection.received_in == self.ordinal;
        if served || self.received_bytes_in_poll_max <= self.received_bytes_in_poll {
            return read_again(&mut self.read_again, conn, connection);
        }
        connection.unread = false;
        self.counters.receives += 1;
        let buffer = self.receive.unfilled();
        let offered = buffer.len();
        match connection.stream.receive(buffer) {
            Ok(0) => {
                connection.ended = true;
                events.push(Event::Closed { conn, reason: CloseReason::Peer });
            }
            Ok(count) => {
                connection.received_in = self.ordinal;
                self.received_bytes_in_poll += count;
                self.counters.received_bytes += count as u64;
                let span: Span = self.receive.fill(count);
                events.push(Event::Received { conn, span });
                if count == offered || connection.end_seen {
                    read_again(&mut self.read_more, conn, connection);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.end_seen = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                read_again(&mut self.read_again, conn, connection);
            }
            Err(error) => {
                self.connections.remove(conn);
                events.push(Event::Closed { conn, reason: CloseReason::Error(error.kind()) });
            }
        }
    }

    /// Continues a send in flight.
    fn send_rest(&mut self, conn: ConnId, events: &mut Vec<Event>) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let Sending::UnderWay { chunk, sent_bytes } = &mut connection.sending else { return };
        if self.sent_bytes_pause_at <= self.counters.sent_bytes {
            return send_again(&mut self.send_again, conn, connection);
        }
        match connection.stream.send(chunk.as_slice(), sent_bytes, &mut self.counters) {
            Written::All => {
                let sending = mem::replace(&mut connection.sending, Sending::Nothing);
                if let Sending::UnderWay { chunk, .. } = sending {
                    events.push(Event::Sent { conn, chunk });
                }
            }
            Written::UntilFull => {}
            Written::Part => send_again(&mut self.send_again, conn, connection),
            Written::Failed(kind) => {
                self.connections.remove(conn);
                events.push(Event::Closed { conn, reason: CloseReason::Error(kind) });
            }
        }
    }

    fn accept(&mut self, events: &mut Vec<Event>) {
        if let Some(after) = self.accept_after
            && self.clock.now() < after
        {
            return;
        }
        self.accept_after = None;
        for index in 0..self.listeners.len() {
            if self.listeners[index].more
                && let Err(error) = self.accept_from(index, events)
            {
                self.back_off(index, &error);
            }
        }
    }

    fn accept_from(&mut self, index: usize, events: &mut Vec<Event>) -> io::Result<()> {
        for _ in 0..ACCEPT_COUNT_PER_POLL {
            let listener = &mut self.listeners[index];
            match listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer, events),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        listener.more = false;
                        break;
                    }
                    // The client has disconnected already; the next one may be fine.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Pauses the listeners after an error. Mostly the process is out of file descriptors: the
    /// client stays in the backlog and its edge is gone, so trying again at once would spin, and
    /// waiting for readiness would wait for ever.
    fn back_off(&mut self, index: usize, error: &io::Error) {
        self.accept_after = Some(self.clock.now() + ACCEPT_BACKOFF);
        if !mem::replace(&mut self.exhaustion_logged, true) {
            let address = self.listeners[index].address();
            log::warn!(
                "cannot accept clients at {address}: {error}; trying again every {ACCEPT_BACKOFF:?}"
            );
        }
    }

    fn admit(&mut self, mut stream: Stream, peer: Peer, events: &mut Vec<Event>) {
        self.exhaustion_logged = false;
        if self.options.connection_count_limit as usize <= self.connections.len() {
            self.counters.refusals += 1;
            return stream.refuse(self.options.full_message);
        }
        let conn = self.connections.next_id();
        let token = Token(conn.index as usize);
        if let Err(error) =
            stream.register(self.poll.registry(), token, Interest::READABLE | Interest::WRITABLE)
        {
            log::warn!("cannot watch a client of {}: {error}; it is closed", peer.local);
            return;
        }
        self.counters.accepts += 1;
        self.connections.insert(Connection::new(stream));
        events.push(Event::Accepted { conn, peer });
    }
}

fn read_again(list: &mut Vec<ConnId>, conn: ConnId, connection: &mut Connection) {
    if !mem::replace(&mut connection.read_again, true) {
        list.push(conn);
    }
}

fn send_again(list: &mut Vec<ConnId>, conn: ConnId, connection: &mut Connection) {
    if !mem::replace(&mut connection.send_again, true) {
        list.push(conn);
    }
}

impl Net for RealNet {
    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        self.receive.begin();
        self.ordinal += 1;
        self.received_bytes_in_poll = 0;
        self.sent_bytes_pause_at = self.counters.sent_bytes + SENT_BYTES_PER_POLL_MAX as u64;
        let before = events.len();
        if self.reports_without_wait() {
            self.report_sends(events);
            if before < events.len() {
                self.waited = false;
                return Ok(());
            }
        }
        self.waited = true;
        self.counters.polls += 1;
        let wait_max = self.wait_max(timeout);
        match self.wait(wait_max) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        self.report_sends(events);
        self.serve_again(events);
        let ready = mem::replace(&mut self.ready, Events::with_capacity(0));
        for event in &ready {
            self.handle_ready(event, events);
        }
        let silent = ready.is_empty();
        self.ready = ready;
        self.read_again.append(&mut self.read_more);
        self.accept(events);
        if silent && events.len() == before && wait_max.is_some() && wait_max == timeout {
            events.push(Event::Timer);
        }
        Ok(())
    }

    fn take_buffers(&mut self, buffers: &mut Vec<Buffer>) {
        self.receive.take(buffers);
    }

    fn recycle(&mut self, buffer: Buffer) {
        self.receive.recycle(buffer);
    }

    fn send(&mut self, conn: ConnId, chunk: SendChunk) {
        let Some(connection) = self.connections.get_mut(conn) else { return };
        let mut sent_bytes = 0;
        match &connection.sending {
            Sending::Nothing => {}
            Sending::Failed => return,
            Sending::Reported | Sending::UnderWay { .. } => {
                panic!("a second send on a connection before the first was reported")
            }
        }
        if self.sent_bytes_pause_at <= self.counters.sent_bytes {
            connection.sending = Sending::UnderWay { chunk, sent_bytes };
            return send_again(&mut self.send_again, conn, connection);
        }
        connection.sending =
            match connection.stream.send(chunk.as_slice(), &mut sent_bytes, &mut self.counters) {
                Written::All => {
                    self.send_results.push(SendResult::Done(conn, chunk));
                    Sending::Reported
                }
                Written::UntilFull => Sending::UnderWay { chunk, sent_bytes },
                Written::Part => {
                    send_again(&mut self.send_again, conn, connection);
                    Sending::UnderWay { chunk, sent_bytes }
                }
                Written::Failed(kind) => {
                    self.send_results.push(SendResult::Failed(conn, kind));
                    Sending::Failed
                }
            };
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn) {
            connection.paused = true;
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn)
            && mem::replace(&mut connection.paused, false)
            && connection.unread
        {
            read_again(&mut self.read_again, conn, connection);
        }
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(mut connection) = self.connections.remove(conn)
            && !connection.ended
        {
            for _ in 0..CLOSE_DRAIN_CALLS_MAX {
                match connection.stream.receive(self.receive.unfilled()) {
                    Ok(count) if 0 < count => {}
                    _ => break,
                }
            }
        }
    }

    fn finish(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(conn) {
            connection.stream.finish();
        }
    }

    fn limit_connections(&mut self, count: u32) {
        self.options.connection_count_limit = count;
    }

    fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    fn descriptor(&self, conn: ConnId) -> Option<i32> {
        self.connections.get(conn).map(|connection| connection.stream.descriptor())
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.waker))
    }
}
