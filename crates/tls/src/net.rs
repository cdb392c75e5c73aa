//! Driver of sockets that encrypts the TCP connections of another driver.
//!
//! ```text
//!  driver below --Received (ciphertext)--> Session --> plaintext buffer --Received--> net stage
//!               <--send (records)--------- Session <----------- send (replies) ------ net stage
//!               --Sent--> next part of the reply, or Sent with the reply itself
//! ```
//!
//! Each receive is decrypted at once, so nothing waits here that the stage above cannot see. The
//! plaintext of all connections of a poll lies in few buffers, as that of the driver below does. A
//! reply is encrypted when it is sent; a long one in parts of [`SEND_BYTES_MAX`], the next one when
//! the one before is sent. What TLS itself has to say goes between.
//!
//! **Ends.** A `close_notify` is the end of the stream, as is the end of the TCP stream without
//! one: a request that is cut off is not executed either way. A record that is not authentic, and a
//! handshake that fails or lasts longer than [`HANDSHAKE_MAX`], end the connection with an alert.
//!
//! Unix sockets are not encrypted: the permissions of the file decide who may connect.

use std::{
    collections::VecDeque,
    fmt, io, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::Duration,
};

use busload_io::{Address, Buffer, Clock, CloseReason, ConnId, Event, Net, SendChunk, Span};

use crate::{
    Identity,
    limits::{
        HANDSHAKE_MAX, PLAINTEXT_BUFFER_BYTES, PLAINTEXT_BUFFER_COUNT_MAX, RECORD_BYTES_MAX,
        SEND_BYTES_MAX, SPARE_BYTES_MAX, SPARE_COUNT_MAX,
    },
};

mod plaintext;
mod session;
#[cfg(test)]
mod tests;

use plaintext::PlaintextBuffers;
use session::{Received, Session};

/// Counters of TLS connections since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of handshakes that succeeded.
    pub handshakes: AtomicU64,
    /// Handshakes of these that resumed an earlier session.
    pub resumptions: AtomicU64,
    /// Connections that ended because of an error of TLS, mostly in the handshake.
    pub failures: AtomicU64,
}

impl Counters {
    /// Counts a handshake that succeeded.
    pub fn count_handshake(&self, is_resumed: bool) {
        self.handshakes.fetch_add(1, Relaxed);
        self.resumptions.fetch_add(u64::from(is_resumed), Relaxed);
    }
}

/// Driver that encrypts the TCP connections of the driver below it; without an identity it encrypts
/// nothing.
pub struct TlsNet<N> {
    net: N,
    identity: Option<Arc<Identity>>,
    clock: Box<dyn Clock + Send>,
    slots: Vec<Slot>,
    /// Handshakes by the time at which they must have ended.
    handshakes: VecDeque<(Duration, ConnId)>,
    /// Events of the driver below.
    events: Vec<Event>,
    /// Buffers of the driver below, as of the last poll.
    received: Vec<Buffer>,
    plaintext: PlaintextBuffers,
    /// Buffers for records to send.
    spare: Vec<Vec<u8>>,
}

/// Use of a slot of the driver below.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Connection,
}

#[derive(Debug, Default)]
enum Connection {
    /// The connection has ended for the stage above.
    #[default]
    Ended,
    Plain,
    Encrypted(Box<Session>),
}

impl<N: Net> TlsNet<N> {
    /// Wraps a driver. Without an identity, its connections are not encrypted.
    pub fn new(
        net: N,
        identity: Option<Arc<Identity>>,
        clock: impl Clock + Send + 'static,
    ) -> Self {
        Self {
            net,
            identity,
            clock: Box::new(clock),
            slots: Vec::new(),
            handshakes: VecDeque::new(),
            events: Vec::new(),
            received: Vec::new(),
            plaintext: PlaintextBuffers::default(),
            spare: Vec::new(),
        }
    }

    fn session(&mut self, conn: ConnId) -> Option<&mut Session> {
        session_of(&mut self.slots, conn)
    }

    fn handle(&mut self, identity: &Identity, event: Event, events: &mut Vec<Event>) {
        match event {
            Event::Accepted { conn, peer } => {
                let plain = matches!(peer.local, Address::Unix(_));
                events.push(Event::Accepted { conn, peer });
                self.accept(identity, conn, plain, events);
            }
            Event::Received { conn, span } => match self.slot(conn) {
                Some(Connection::Encrypted(_)) => self.receive(identity, conn, span, events),
                Some(Connection::Plain) => {
                    let buffer = &self.received[span.buffer as usize];
                    let span = self.plaintext.copy(&buffer[span.start as usize..span.end as usize]);
                    events.push(Event::Received { conn, span });
                }
                Some(Connection::Ended) | None => {}
            },
            Event::Sent { conn, chunk } => match self.slot(conn) {
                Some(Connection::Encrypted(_)) => self.sent(conn, chunk, events),
                Some(Connection::Plain) => events.push(Event::Sent { conn, chunk }),
                Some(Connection::Ended) | None => {}
            },
            Event::Closed { conn, reason } => match self.slot(conn) {
                Some(Connection::Encrypted(session)) => {
                    if reason != CloseReason::Peer {
                        self.forget(conn);
                    } else if mem::replace(&mut session.end_reported, true) {
                        return;
                    }
                    events.push(Event::Closed { conn, reason });
                }
                Some(Connection::Plain) => events.push(Event::Closed { conn, reason }),
                Some(Connection::Ended) | None => {}
            },
            Event::Woken | Event::Timer => events.push(event),
        }
    }

    fn slot(&mut self, conn: ConnId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(conn.index as usize)?;
        (slot.generation == conn.generation).then_some(&mut slot.connection)
    }

    fn accept(&mut self, identity: &Identity, conn: ConnId, plain: bool, events: &mut Vec<Event>) {
        let index = conn.index as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let connection = match plain {
            true => Connection::Plain,
            false => match Session::new(identity.resp()) {
                Ok(session) => Connection::Encrypted(Box::new(session)),
                Err(error) => {
                    log::error!("a client cannot be served by TLS: {error}");
                    self.slots[index] =
                        Slot { generation: conn.generation, connection: Connection::Ended };
                    self.net.close(conn);
                    let reason = CloseReason::Error(io::ErrorKind::Other);
                    return events.push(Event::Closed { conn, reason });
                }
            },
        };
        if !plain {
            self.handshakes.push_back((self.clock.now() + HANDSHAKE_MAX, conn));
        }
        self.slots[index] = Slot { generation: conn.generation, connection };
    }

    fn receive(&mut self, identity: &Identity, conn: ConnId, span: Span, events: &mut Vec<Event>) {
        let Some(session) = session_of(&mut self.slots, conn) else { return };
        let buffer = &self.received[span.buffer as usize];
        let bytes = &buffer[span.start as usize..span.end as usize];
        let space = self.plaintext.unfilled(bytes.len() + RECORD_BYTES_MAX);
        let was_handshaking = session.is_handshaking();
        let received = session.receive(bytes, space);
        if was_handshaking && !session.is_handshaking() {
            identity.counters().count_handshake(session.is_resumed());
        }
        match received {
            Ok(Received { plaintext_bytes, ended }) => {
                if 0 < plaintext_bytes {
                    let span = self.plaintext.fill(plaintext_bytes);
                    events.push(Event::Received { conn, span });
                }
                if ended && !mem::replace(&mut session.end_reported, true) {
                    events.push(Event::Closed { conn, reason: CloseReason::Peer });
                }
                self.send_next(conn);
            }
            Err(error) => self.fail(identity, conn, &error, io::ErrorKind::InvalidData, events),
        }
    }

    /// Ends a connection from this side, with the alert that its session may have.
    fn fail(
        &mut self,
        identity: &Identity,
        conn: ConnId,
        why: &dyn fmt::Display,
        kind: io::ErrorKind,
        events: &mut Vec<Event>,
    ) {
        log::debug!("connection {}: closed because of TLS: {why}", conn.index);
        identity.counters().failures.fetch_add(1, Relaxed);
        self.send_next(conn);
        self.forget(conn);
        self.net.close(conn);
        events.push(Event::Closed { conn, reason: CloseReason::Error(kind) });
    }

    fn forget(&mut self, conn: ConnId) {
        if let Some(connection) = self.slot(conn) {
            *connection = Connection::Ended;
        }
    }

    /// Takes back what the driver below has sent.
    fn sent(&mut self, conn: ConnId, records: SendChunk, events: &mut Vec<Event>) {
        if let SendChunk::Owned(records) = records
            && records.capacity() <= SPARE_BYTES_MAX
            && self.spare.len() < SPARE_COUNT_MAX
        {
            self.spare.push(records);
        }
        let Some(session) = self.session(conn) else { return };
        session.sending = false;
        if let Some(chunk) = session.take_sent_chunk() {
            events.push(Event::Sent { conn, chunk });
        }
        self.send_next(conn);
    }

    /// Sends what there is to send, unless something is on its way.
    fn send_next(&mut self, conn: ConnId) {
        let Some(session) = session_of(&mut self.slots, conn) else { return };
        if session.sending {
            return;
        }
        let mut records = self.spare.pop().unwrap_or_default();
        records.clear();
        session.write_records(&mut records);
        if !records.is_empty() {
            session.sending = true;
            self.net.send(conn, SendChunk::Owned(records));
            return;
        }
        self.spare.push(records);
        if session.finishing {
            self.net.finish(conn);
        }
    }

    /// Ends handshakes that last too long.
    fn end_late_handshakes(&mut self, identity: &Identity, events: &mut Vec<Event>) {
        while let Some(&(deadline, conn)) = self.handshakes.front() {
            let late = self.session(conn).is_some_and(|session| session.is_handshaking());
            if late && self.clock.now() < deadline {
                return;
            }
            self.handshakes.pop_front();
            if late {
                let why = "its handshake lasts too long";
                self.fail(identity, conn, &why, io::ErrorKind::TimedOut, events);
            }
        }
    }

    /// Returns how long the driver below may wait.
    fn wait_max(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(&(deadline, _)) = self.handshakes.front() else { return timeout };
        let rest = deadline.saturating_sub(self.clock.now());
        Some(timeout.map_or(rest, |timeout| timeout.min(rest)))
    }
}

fn session_of(slots: &mut [Slot], conn: ConnId) -> Option<&mut Session> {
    let slot = slots.get_mut(conn.index as usize)?;
    match &mut slot.connection {
        Connection::Encrypted(session) if slot.generation == conn.generation => Some(session),
        _ => None,
    }
}

impl<N: Net> Net for TlsNet<N> {
    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        let Some(identity) = self.identity.clone() else { return self.net.poll(events, timeout) };
        let timeout = self.wait_max(timeout);
        self.plaintext.begin();
        let mut below = mem::take(&mut self.events);
        let polled = self.net.poll(&mut below, timeout);
        self.net.take_buffers(&mut self.received);
        for event in below.drain(..) {
            self.handle(&identity, event, events);
        }
        self.events = below;
        for buffer in self.received.drain(..) {
            self.net.recycle(buffer);
        }
        self.end_late_handshakes(&identity, events);
        polled
    }

    fn take_buffers(&mut self, buffers: &mut Vec<Buffer>) {
        match self.identity {
            Some(_) => self.plaintext.take(buffers),
            None => self.net.take_buffers(buffers),
        }
    }

    fn recycle(&mut self, buffer: Buffer) {
        match self.identity {
            Some(_) => self.plaintext.recycle(buffer),
            None => self.net.recycle(buffer),
        }
    }

    fn send(&mut self, conn: ConnId, chunk: SendChunk) {
        if self.identity.is_none() {
            return self.net.send(conn, chunk);
        }
        match self.slot(conn) {
            Some(Connection::Encrypted(session)) => {
                session.take_chunk(chunk);
                self.send_next(conn);
            }
            Some(Connection::Plain) => self.net.send(conn, chunk),
            Some(Connection::Ended) | None => {}
        }
    }

    fn pause(&mut self, conn: ConnId) {
        self.net.pause(conn);
    }

    fn resume(&mut self, conn: ConnId) {
        self.net.resume(conn);
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(session) = self.session(conn) {
            session.end();
            self.send_next(conn);
        }
        self.forget(conn);
        self.net.close(conn);
    }

    fn finish(&mut self, conn: ConnId) {
        match self.session(conn) {
            Some(session) => {
                session.end();
                session.finishing = true;
                self.send_next(conn);
            }
            None => self.net.finish(conn),
        }
    }

    fn limit_connections(&mut self, count: u32) {
        self.net.limit_connections(count);
    }

    fn stop_listening(&mut self) {
        self.net.stop_listening();
    }

    fn descriptor(&self, conn: ConnId) -> Option<i32> {
        self.net.descriptor(conn)
    }

    fn waker(&self) -> Waker {
        self.net.waker()
    }
}

impl<N> fmt::Debug for TlsNet<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsNet").field("encrypts", &self.identity.is_some()).finish_non_exhaustive()
    }
}
