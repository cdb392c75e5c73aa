//! The stage that owns the sockets: it parses whole requests out of received bytes, and sends the
//! replies in request order, each when the log has reached its gate.
//!
//! One turn: take every available event, parse every whole request into **one** batch, take
//! finished replies, submit one send per connection.
//!
//! ```text
//!  collect: events --> Conn (parser, kept bytes) --> RequestBatch --> tx
//!  deliver: RequestBatch --> Conn.output (order, gates)
//!  finish_turn: watermarks --> open gates --> sends
//! ```
//!
//! **Overload.** Net stops reading a client whose pending replies reach `client_reply_bytes` until
//! it has taken half of them. It stores requests that tx deferred and submits them again when the
//! reason has passed; until then it does not read the connection. When all connections together
//! take more than `reply_bytes_total`, it closes the largest and logs that. **Shutdown.** After
//! [`NetStage::stop`] it accepts and reads nothing more; tx executes and answers the requests that
//! were received whole.

mod conn;
mod maps;
mod output;
mod timings;

use std::{io, sync::Arc, task::Waker, time::Duration};

use busload_io::{CloseReason, ConnId, Event, Net, Peer};
use busload_log::Progress;
use busload_resp::{Authentication, ParserLimits};
use bytes::Bytes;

use crate::{
    batch::{BatchBuffer, Control, DeferReason, NetLimits, RequestBatch},
    gate::Gate,
    gauges::ConnectionGauges,
    limits::{
        BACKLOG_BYTES_MAX, BATCH_ARGS_MAX, BATCH_REQUESTS_MAX, BATCH_REQUESTS_SHARED,
        RUN_REQUESTS_MIN, SPARE_BUFFER_BYTES_MAX, SPARE_BUFFERS_MAX,
    },
    reaper,
    settings::Settings,
    stats::Stats,
};

use conn::{Conn, Rest};
use output::{Release, Spare};
use timings::Timings;

/// The net stage, over a driver of sockets.
pub struct NetStage<N: Net> {
    net: N,
    progress: Progress,
    stats: Arc<Stats>,
    limits: ParserLimits,
    /// Limits for a client that has not authenticated.
    limits_unauthenticated: ParserLimits,
    password_needed: bool,
    client_reply_bytes: usize,
    reply_bytes_total: usize,
    conns: Vec<Option<Box<Conn>>>,
    conn_count: usize,
    events: Vec<Event>,
    received: Vec<Vec<u8>>,
    spare: Spare,
    /// Connections whose first pending reply waits for the log.
    gated: Vec<ConnId>,
    /// Connections to release and send for before the turn ends.
    dirty: Vec<ConnId>,
    /// Connections with bytes to parse in the next turn.
    ready: Vec<ConnId>,
    /// Connections with bytes to parse of which tx executed nothing in this turn: they come first.
    ready_first: Vec<ConnId>,
    /// Connections whose requests wait for the log.
    blocked: Vec<ConnId>,
    /// Connections whose requests wait for a sliced command.
    locked: Vec<ConnId>,
    /// Number of sliced commands that have ended.
    jobs_ended: u64,
    /// Closed connections that tx does not know of yet.
    closed: Vec<ConnId>,
    /// Clients in MONITOR mode that are to be closed.
    slow_monitors: Vec<ConnId>,
    bytes_total: usize,
    /// Says whether the log was asked to wake the stage when it moves, for the blocked connections.
    log_asked: bool,
    /// Number of times that the log was asked.
    log_epoch: u64,
    /// Times of requests whose replies are not released yet.
    timings: Timings,
    /// Largest number of requests of one connection for the current batch.
    quota: usize,
    stopping: bool,
    /// Says whether bytes came after the stop.
    discarded: bool,
}

impl<N: Net> NetStage<N> {
    /// Creates a stage on this driver. The log wakes the driver when it moves.
    pub fn new(net: N, progress: Progress, stats: Arc<Stats>, settings: &Settings) -> Self {
        progress.set_waker(net.waker());
        let limits = ParserLimits {
            request_bytes: settings.request_bytes,
            // As many as Redis allows: the size of a request is limited in bytes.
            arg_count: i32::MAX as usize,
            ..ParserLimits::default()
        };
        Self {
            net,
            progress,
            stats,
            limits_unauthenticated: ParserLimits {
                authentication: Authentication::Required,
                ..limits.clone()
            },
            limits,
            password_needed: settings.needs_password(),
            client_reply_bytes: settings.client_reply_bytes,
            reply_bytes_total: settings.reply_bytes_total,
            conns: Vec::new(),
            conn_count: 0,
            events: Vec::new(),
            received: Vec::new(),
            spare: Spare::default(),
            gated: Vec::new(),
            dirty: Vec::new(),
            ready: Vec::new(),
            ready_first: Vec::new(),
            blocked: Vec::new(),
            locked: Vec::new(),
            jobs_ended: 0,
            closed: Vec::new(),
            slow_monitors: Vec::new(),
            bytes_total: 0,
            log_asked: false,
            log_epoch: 0,
            timings: Timings::default(),
            quota: BATCH_REQUESTS_SHARED,
            stopping: false,
            discarded: false,
        }
    }

    /// Returns a waker that ends a poll from any thread.
    pub fn waker(&self) -> Waker {
        self.net.waker()
    }

    /// Waits for events (at most `timeout`, not at all when there is work left) and fills the
    /// batch, which must be empty.
    pub fn collect(
        &mut self,
        batch: &mut RequestBatch,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        debug_assert!(batch.is_empty() && batch.buffers.is_empty(), "a batch is filled from empty");
        let timeout = if self.has_work() { Some(Duration::ZERO) } else { timeout };
        let mut events = std::mem::take(&mut self.events);
        self.net.poll(&mut events, timeout)?;
        self.stats.net_polls_total.add(1);
        self.net.take_buffers(&mut self.received);
        batch.buffers.extend(self.received.drain(..).map(BatchBuffer::Received));
        for conn in self.closed.drain(..) {
            batch.control.push(Control::Closed { conn });
        }
        let speaking =
            events.iter().filter(|event| matches!(event, Event::Received { .. })).count();
        let speaking = (speaking + self.ready_first.len() + self.ready.len()).max(1);
        self.quota = (BATCH_REQUESTS_SHARED / speaking).max(RUN_REQUESTS_MIN);
        self.offer_ready(batch);
        for event in events.drain(..) {
            self.handle(event, batch);
        }
        self.events = events;
        if !batch.requests.is_empty() {
            self.stats.net_batches.record(batch.requests.len());
        }
        Ok(())
    }

    /// Takes the replies out of a batch, and its memory: the batch is empty afterwards.
    pub fn deliver(&mut self, batch: &mut RequestBatch) {
        if let Some(limits) = batch.limits {
            self.set_limits(limits);
        }
        for run in &batch.replies {
            let Some(conn) = lookup(&mut self.conns, run.conn) else { continue };
            if run.seq_count == 0 && self.client_reply_bytes <= conn.output.bytes() {
                self.slow_monitors.push(run.conn);
                continue;
            }
            conn.output.push(run, batch, &mut self.spare);
            mark(&mut self.dirty, &mut conn.in_dirty, conn.id);
        }
        if !self.slow_monitors.is_empty() {
            self.close_slow_monitors();
        }
        for held in &batch.held {
            if let Some(conn) = lookup(&mut self.conns, held.conn) {
                conn.queued_bytes = held.bytes;
                mark(&mut self.dirty, &mut conn.in_dirty, conn.id);
            }
        }
        for &(id, authenticated) in &batch.authenticated {
            if let Some(conn) = lookup(&mut self.conns, id) {
                conn.authenticated = authenticated;
            }
        }
        if self.jobs_ended < batch.jobs_ended.1 {
            self.jobs_ended = batch.jobs_ended.1;
            for id in self.locked.drain(..) {
                if let Some(conn) = lookup(&mut self.conns, id) {
                    conn.in_locked = false;
                    mark(&mut self.dirty, &mut conn.in_dirty, id);
                }
            }
        }
        self.timings.extend(&batch.timings);
        self.take_back(batch);
        if !batch.runs.is_empty() {
            self.date_rest(batch.received);
        }
        for run in &batch.runs {
            if let Some(conn) = lookup(&mut self.conns, run.conn) {
                conn.in_flight -= 1;
                if !conn.tx_blocked {
                    conn.run_executed();
                }
                mark(&mut self.dirty, &mut conn.in_dirty, conn.id);
            }
        }
        for conn in std::mem::take(&mut batch.closes) {
            self.close(conn);
        }
        for buffer in batch.buffers.drain(..) {
            match buffer {
                BatchBuffer::Received(buffer) => self.net.recycle(buffer),
                BatchBuffer::Collected(bytes) => drop_shared(bytes),
            }
        }
        batch.clear();
    }

    /// Uses other limits from now on.
    fn set_limits(&mut self, limits: NetLimits) {
        self.client_reply_bytes = limits.client_reply_bytes;
        self.reply_bytes_total = limits.reply_bytes_total;
        self.limits.request_bytes = limits.request_bytes;
        self.limits_unauthenticated.request_bytes = limits.request_bytes;
        self.net.limit_connections(limits.clients_max);
    }

    /// Closes the clients in MONITOR mode that do not take what they are sent.
    fn close_slow_monitors(&mut self) {
        for id in std::mem::take(&mut self.slow_monitors) {
            let Some(conn) = lookup(&mut self.conns, id) else { continue };
            log::warn!(
                "closing connection {}: it monitors and has {} bytes pending of at most {} \
                 (client_reply_bytes)",
                id.index,
                conn.output.bytes(),
                self.client_reply_bytes
            );
            self.stats.monitors_closed_total.add(1);
            self.close(id);
        }
    }

    /// Ends a turn: releases the replies whose gates are open, sends, pauses and resumes. `now` is
    /// the time of the release, for the latencies.
    pub fn finish_turn(&mut self, now: Duration) {
        let progress = Gate { written: self.progress.written(), durable: self.progress.durable() };
        // Recorded first: who has seen a reply finds it counted.
        self.timings.record(&self.stats, progress, now);
        let mut released = 0;
        let mut gated = std::mem::take(&mut self.gated);
        for id in gated.drain(..) {
            if let Some(conn) = lookup(&mut self.conns, id) {
                conn.in_gated = false;
                mark(&mut self.dirty, &mut conn.in_dirty, id);
            }
        }
        self.gated = gated;
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            released += usize::from(self.settle(id, progress, now));
        }
        debug_assert!(self.dirty.is_empty(), "settling makes nothing dirty");
        self.dirty = dirty;
        if released != 0 {
            self.stats.reply_batches.record(released);
            self.stats.net_sends_total.add(released as u64);
        }
        self.enforce_total();
        self.stats.connections.set(self.conn_count as u64);
        self.stats.connection_bytes.set(self.bytes_total as u64);
        self.stats.connections_blocked.set(self.blocked.len() as u64);
    }

    /// Asks the log to wake the driver when it reaches the next gate. Returns false when there is
    /// something to do already: the caller must not wait.
    pub fn prepare_wait(&mut self) -> bool {
        if self.has_work() {
            return false;
        }
        let mut next =
            Gate { written: busload_log::Lsn(u64::MAX), durable: busload_log::Lsn(u64::MAX) };
        for &id in &self.gated {
            let Some(conn) = lookup(&mut self.conns, id) else { continue };
            let Some(gate) = conn.output.gate() else { continue };
            // A gate needs both of its parts: wait for the one that is missing.
            if self.progress.written() < gate.written {
                next.written = next.written.min(gate.written);
            } else {
                next.durable = next.durable.min(gate.durable);
            }
        }
        let written = next.written.0 != u64::MAX && self.progress.wake_when_written(next.written);
        let durable = next.durable.0 != u64::MAX && self.progress.wake_when_durable(next.durable);
        !written && !durable
    }

    /// Stops accepting and reading.
    pub fn stop(&mut self) {
        self.stopping = true;
        self.net.stop_listening();
        for conn in self.conns.iter_mut().flatten() {
            conn.paused = true;
            self.net.pause(conn.id);
        }
    }

    /// Ends the sending half of every connection, once everything is sent. Unread bytes would make
    /// the system reset connections and lose data still on its way, so the stage receives and
    /// discards them until the peers are done or quiet.
    pub fn start_grace_period(&mut self) {
        for conn in self.conns.iter().flatten() {
            self.net.finish(conn.id);
            self.net.resume(conn.id);
        }
    }

    /// Returns whether peers sent something since the last call, although nothing is parsed any
    /// more.
    pub fn take_discarded(&mut self) -> bool {
        std::mem::take(&mut self.discarded)
    }

    /// Returns the number of open connections.
    pub fn connection_count(&self) -> usize {
        self.conn_count
    }

    /// Returns whether every request received whole was answered and every answer sent.
    pub fn is_drained(&self) -> bool {
        self.conns.iter().flatten().all(|conn| conn.is_settled())
    }

    /// Returns whether the next turn has something to do without any event.
    fn has_work(&self) -> bool {
        !self.ready.is_empty()
            || !self.ready_first.is_empty()
            || !self.closed.is_empty()
            || !self.dirty.is_empty()
    }

    fn handle(&mut self, event: Event, batch: &mut RequestBatch) {
        match event {
            Event::Accepted { conn, peer } => self.accept(conn, peer, batch),
            Event::Received { conn: id, span } => {
                self.stats.net_receives_total.add(1);
                self.stats.net_received_bytes_total.add(u64::from(span.end - span.start));
                let Some(conn) = lookup(&mut self.conns, id) else { return };
                if self.stopping {
                    self.discarded = true;
                    return;
                }
                conn.heard = true;
                let limits =
                    if conn.authenticated { &self.limits } else { &self.limits_unauthenticated };
                let full = is_full(batch);
                let rest = if conn.is_fresh() && !full {
                    conn.parse_received(
                        batch,
                        limits,
                        self.quota,
                        span.buffer,
                        span.start,
                        span.end,
                    )
                } else {
                    let bytes = batch.buffers[span.buffer as usize].as_slice();
                    conn.keep(&bytes[span.start as usize..span.end as usize]);
                    match conn.hold {
                        Some(_) => Rest::Incomplete,
                        None if full || conn.in_ready => Rest::OverQuota,
                        None => conn.parse_kept(batch, limits, self.quota),
                    }
                };
                if rest == Rest::OverQuota {
                    mark(&mut self.ready, &mut conn.in_ready, id);
                }
                mark(&mut self.dirty, &mut conn.in_dirty, id);
            }
            Event::Sent { conn: id, chunk } => {
                self.stats.net_sent_bytes_total.add(chunk.as_slice().len() as u64);
                let Some(conn) = lookup(&mut self.conns, id) else { return };
                conn.output.sent(chunk, &mut self.spare);
                mark(&mut self.dirty, &mut conn.in_dirty, id);
            }
            Event::Closed { conn: id, reason } => {
                let Some(conn) = lookup(&mut self.conns, id) else { return };
                match reason {
                    CloseReason::Peer => {
                        conn.half_closed = true;
                        conn.drop_partial();
                        mark(&mut self.dirty, &mut conn.in_dirty, id);
                    }
                    CloseReason::Error(_) => self.forget(id),
                }
            }
            Event::Woken | Event::Timer => {
                if self.log_asked && self.progress.moved_since_asked() {
                    self.log_asked = false;
                    self.wake_blocked();
                }
            }
        }
    }

    fn accept(&mut self, id: ConnId, peer: Peer, batch: &mut RequestBatch) {
        let index = id.index as usize;
        if self.conns.len() <= index {
            self.conns.resize_with(index + 1, || None);
        }
        if let Some(last) = &self.conns[index] {
            let last = last.id;
            self.forget(last);
        }
        let gauges = Arc::new(ConnectionGauges::new(self.net.descriptor(id)));
        let conn = Conn::new(id, !self.password_needed, Arc::clone(&gauges));
        self.conns[index] = Some(Box::new(conn));
        self.conn_count += 1;
        self.stats.connections_total.add(1);
        batch.control.push(Control::Opened { conn: id, peer, gauges });
        if self.stopping {
            self.close(id);
        }
    }

    /// Parses the bytes that were left for this turn.
    fn offer_ready(&mut self, batch: &mut RequestBatch) {
        let mut offered = std::mem::take(&mut self.ready_first);
        offered.append(&mut self.ready);
        for id in offered {
            let Some(conn) = lookup(&mut self.conns, id) else { continue };
            if is_full(batch) {
                self.ready.push(id);
                continue;
            }
            conn.in_ready = false;
            let limits =
                if conn.authenticated { &self.limits } else { &self.limits_unauthenticated };
            if conn.hold.is_none() && conn.parse_kept(batch, limits, self.quota) == Rest::OverQuota
            {
                mark(&mut self.ready, &mut conn.in_ready, id);
            }
            if conn.half_closed {
                conn.drop_partial();
            }
            mark(&mut self.dirty, &mut conn.in_dirty, id);
        }
    }

    /// Notes when the requests were received that found no place in a batch.
    fn date_rest(&mut self, received: Duration) {
        for &id in self.ready_first.iter().chain(&self.ready) {
            if let Some(conn) = lookup(&mut self.conns, id) {
                conn.date(received);
            }
        }
    }

    /// Looks again at every connection that waits for the log, because it moved.
    fn wake_blocked(&mut self) {
        for id in self.blocked.drain(..) {
            if let Some(conn) = lookup(&mut self.conns, id) {
                conn.in_blocked = false;
                mark(&mut self.dirty, &mut conn.in_dirty, id);
            }
        }
    }

    /// Takes back the requests that tx deferred.
    fn take_back(&mut self, batch: &mut RequestBatch) {
        for index in 0..batch.deferred.len() {
            let deferred = batch.deferred[index];
            let run = batch.runs[deferred.run as usize];
            let Some(conn) = lookup(&mut self.conns, run.conn) else { continue };
            conn.take_back(batch, run, deferred.request, deferred.reason);
            mark(&mut self.dirty, &mut conn.in_dirty, run.conn);
            if !conn.paused {
                conn.paused = true;
                self.net.pause(run.conn);
            }
        }
    }

    /// Sends the released replies of a connection and updates its pauses and its share of the
    /// total. Returns whether something was sent.
    fn settle(&mut self, id: ConnId, progress: Gate, now: Duration) -> bool {
        let Some(conn) = lookup(&mut self.conns, id) else { return false };
        conn.in_dirty = false;
        conn.note_heard(now);
        let mut sent = false;
        match conn.output.release(progress, &mut self.spare) {
            Release::Send(chunk) => {
                self.net.send(id, chunk);
                sent = true;
            }
            Release::Gated => mark(&mut self.gated, &mut conn.in_gated, id),
            Release::Idle => {}
            Release::Close => {
                self.close(id);
                return false;
            }
        }
        let pending = conn.output.bytes();
        match conn.hold {
            None if self.client_reply_bytes <= pending => conn.hold = Some(DeferReason::ReplyBytes),
            Some(DeferReason::ReplyBytes)
                if pending < self.client_reply_bytes / 2 && conn.in_flight == 0 =>
            {
                conn.restore_deferred();
                let first = std::mem::take(&mut conn.starved);
                let ready = if first { &mut self.ready_first } else { &mut self.ready };
                mark(ready, &mut conn.in_ready, id);
            }
            Some(DeferReason::Barrier) if conn.is_answered() => {
                conn.restore_deferred();
                mark(&mut self.ready, &mut conn.in_ready, id);
            }
            Some(DeferReason::Locked) if conn.in_flight == 0 => {
                if conn.jobs_ended < self.jobs_ended {
                    conn.restore_deferred();
                    mark(&mut self.ready, &mut conn.in_ready, id);
                } else {
                    mark(&mut self.locked, &mut conn.in_locked, id);
                }
            }
            Some(DeferReason::LogBehind) if conn.in_flight == 0 => {
                let tried = conn.log_epoch_tried == self.log_epoch;
                if !self.log_asked || !tried {
                    if !self.log_asked {
                        self.log_asked = true;
                        self.log_epoch += 1;
                        self.progress.wake_when_moved();
                    }
                    conn.log_epoch_tried = self.log_epoch;
                    conn.restore_deferred();
                    mark(&mut self.ready, &mut conn.in_ready, id);
                } else {
                    mark(&mut self.blocked, &mut conn.in_blocked, id);
                }
            }
            _ => {}
        }
        let pause =
            conn.hold.is_some() || (conn.in_ready && BACKLOG_BYTES_MAX <= conn.backlog_bytes());
        if !self.stopping && conn.paused != pause {
            conn.paused = pause;
            if conn.paused { self.net.pause(id) } else { self.net.resume(id) }
        }
        let memory = conn.memory_bytes();
        conn.measure(memory);
        self.bytes_total = self.bytes_total + memory - conn.accounted;
        conn.accounted = memory;
        if conn.half_closed && conn.is_settled() {
            self.close(id);
        }
        sent
    }

    /// Closes the largest connections until all together are within their limit.
    fn enforce_total(&mut self) {
        while self.reply_bytes_total < self.bytes_total {
            let largest = self.conns.iter().flatten().max_by_key(|conn| conn.accounted);
            let Some((id, bytes)) = largest.map(|conn| (conn.id, conn.accounted)) else { return };
            log::warn!(
                "closing connection {}: it holds {bytes} bytes of pending replies and unread \
                 requests, all connections together {} of at most {} (reply_bytes_total)",
                id.index,
                self.bytes_total,
                self.reply_bytes_total
            );
            self.stats.connections_evicted_total.add(1);
            self.close(id);
        }
    }

    fn close(&mut self, id: ConnId) {
        if lookup(&mut self.conns, id).is_some() {
            self.net.close(id);
            self.forget(id);
        }
    }

    fn forget(&mut self, id: ConnId) {
        let Some(place) = self.conns.get_mut(id.index as usize) else { return };
        let Some(conn) = place.take_if(|conn| conn.id == id) else { return };
        self.bytes_total -= conn.accounted;
        self.conn_count -= 1;
        self.closed.push(id);
        let bytes = conn.accounted;
        reaper::drop_sized(conn, bytes);
    }
}

impl<N: Net> std::fmt::Debug for NetStage<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetStage").field("connections", &self.conn_count).finish_non_exhaustive()
    }
}

#[inline]
fn lookup(conns: &mut [Option<Box<Conn>>], id: ConnId) -> Option<&mut Box<Conn>> {
    conns.get_mut(id.index as usize)?.as_mut().filter(|conn| conn.id == id)
}

/// Returns whether the remaining bytes must wait for the next turn.
#[inline]
fn is_full(batch: &RequestBatch) -> bool {
    BATCH_REQUESTS_MAX <= batch.requests.len() || BATCH_ARGS_MAX <= batch.args.len()
}

/// Adds the connection to a list unless it is in it.
#[inline]
fn mark(list: &mut Vec<ConnId>, listed: &mut bool, id: ConnId) {
    if !std::mem::replace(listed, true) {
        list.push(id);
    }
}

/// Keeps a buffer for reuse, unless it is large or there are enough.
fn keep_spare(spare: &mut Vec<Vec<u8>>, mut bytes: Vec<u8>) {
    if spare.len() < SPARE_BUFFERS_MAX && bytes.capacity() <= SPARE_BUFFER_BYTES_MAX {
        bytes.clear();
        spare.push(bytes);
    } else if SPARE_BUFFER_BYTES_MAX < bytes.capacity() {
        let capacity = bytes.capacity();
        reaper::drop_sized(bytes, capacity);
    }
}

/// Drops a large value on a thread that nobody waits for.
fn drop_shared(bytes: Bytes) {
    let length = bytes.len();
    reaper::drop_sized(bytes, length);
}
