//! One connection as net sees it: turns received bytes into requests.

use std::{sync::Arc, time::Duration};

use busload_io::ConnId;
use busload_resp::{ArgRange, Parser, ParserLimits, Progress, ProtocolError};
use bytes::Bytes;

use super::output::Output;
use crate::{
    batch::{BatchBuffer, DeferReason, Request, RequestBatch, Run},
    command::{CommandId, lookup},
    gauges::ConnectionGauges,
    limits::BATCH_ARGS_MAX,
};

/// State of one connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub id: ConnId,
    gauges: Arc<ConnectionGauges>,
    parser: Parser,
    /// Bytes received and not yet put into a batch, from `partial_start` on.
    partial: Vec<u8>,
    partial_start: usize,
    /// Arguments found in the incomplete request at the front of `partial`.
    partial_args: Vec<ArgRange>,
    /// Known minimum length of the incomplete request, in bytes.
    needed: usize,
    /// Bytes of requests that tx deferred, to go in front of `partial`.
    returned: Vec<u8>,
    /// Reason for which net holds back this connection's requests, if it does.
    pub hold: Option<DeferReason>,
    /// Says whether tx executes nothing until net marks requests as offered again.
    pub tx_blocked: bool,
    /// Number of runs in batches that are not back.
    pub in_flight: u32,
    /// Largest number of requests for the next batch: twice as many as tx executed of the last run,
    /// so that a client whose replies are large does not have most of its requests deferred and
    /// parsed again in every turn.
    share: usize,
    /// Says whether nothing of its last run was executed, so that it comes first in the next turn.
    pub starved: bool,
    next_seq: u64,
    pub output: Output,
    /// Says whether the driver has paused reading.
    pub paused: bool,
    /// Says whether the client has given the password, or needs none: the ordinary limits apply.
    pub authenticated: bool,
    /// Says whether bytes arrived in this turn.
    pub heard: bool,
    /// Says whether the client will send no more.
    pub half_closed: bool,
    /// Says whether the client broke the protocol: nothing more is parsed.
    broken: bool,
    /// Says whether it is in the list of connections whose first reply waits for the log.
    pub in_gated: bool,
    /// Says whether it is in the list of connections to handle before the turn ends.
    pub in_dirty: bool,
    /// Says whether it is in the list of connections with bytes to parse next turn.
    pub in_ready: bool,
    /// Says whether it is in the list of connections whose requests wait for the log.
    pub in_blocked: bool,
    /// Says whether it is in the list of connections whose requests wait for a sliced command.
    pub in_locked: bool,
    /// Number of sliced commands that had ended when its requests were deferred.
    pub jobs_ended: u64,
    /// Value of the stage's `log_epoch` when its requests were last offered again.
    pub log_epoch_tried: u64,
    /// Time at which the first `dated_bytes` of the bytes kept for later were received.
    received: Option<Duration>,
    /// Number of bytes kept for later, deferred ones first, that `received` is the time of.
    dated_bytes: usize,
    /// Memory that tx uses for this connection, such as its MULTI queue.
    pub queued_bytes: usize,
    /// Bytes of this connection that the stage's total contains.
    pub accounted: usize,
}

impl Conn {
    pub fn new(id: ConnId, authenticated: bool, gauges: Arc<ConnectionGauges>) -> Self {
        Self {
            id,
            gauges,
            parser: Parser::default(),
            partial: Vec::new(),
            partial_start: 0,
            partial_args: Vec::new(),
            needed: 0,
            returned: Vec::new(),
            hold: None,
            tx_blocked: false,
            in_flight: 0,
            share: usize::MAX,
            starved: false,
            next_seq: 0,
            output: Output::default(),
            paused: false,
            authenticated,
            heard: false,
            half_closed: false,
            broken: false,
            in_gated: false,
            in_dirty: false,
            in_ready: false,
            in_blocked: false,
            in_locked: false,
            jobs_ended: 0,
            log_epoch_tried: 0,
            received: None,
            dated_bytes: 0,
            queued_bytes: 0,
            accounted: 0,
        }
    }

    /// Returns the memory that the connection takes.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        let args = self.partial_args.capacity() * size_of::<ArgRange>();
        // The system has allocated only the written part of a large buffer.
        let partial = self.partial.capacity().min(self.partial.len().max(UNTOUCHED_BYTES_MIN));
        self.output.bytes() + partial + args + self.returned.capacity() + self.queued_bytes
    }

    /// Publishes its buffers for CLIENT LIST; `memory_bytes` is what [`Conn::memory_bytes`] has
    /// returned.
    pub fn measure(&self, memory_bytes: usize) {
        let gauges = &self.gauges;
        let backlog = self.backlog_bytes() + self.returned.len();
        gauges.query_bytes.set(backlog as u64);
        gauges.query_free_bytes.set((self.partial.capacity() - self.partial.len()) as u64);
        let args = self.partial_args.capacity() * size_of::<ArgRange>();
        gauges.argument_bytes.set(args as u64);
        gauges.reply_bytes.set(self.output.bytes() as u64);
        gauges.reply_chunks.set(self.output.chunk_count() as u64);
        gauges.memory_bytes.set(memory_bytes as u64);
        let readable = if self.paused { 0 } else { ConnectionGauges::READABLE };
        let writable = if self.output.is_sending() { ConnectionGauges::WRITABLE } else { 0 };
        gauges.events.set(readable | writable);
    }

    /// Publishes that bytes have arrived, if they have: a client that sends is not idle.
    #[inline]
    pub fn note_heard(&mut self, now: Duration) {
        if std::mem::take(&mut self.heard) {
            self.gauges.received_ms.set(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        }
    }

    /// Returns whether every request that was executed is answered.
    #[inline]
    pub fn is_answered(&self) -> bool {
        self.in_flight == 0 && self.output.next_seq() == self.next_seq
    }

    /// Returns whether every request that it sent whole is answered, and every answer sent.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.in_flight == 0
            && self.hold.is_none()
            && !self.in_ready
            && self.output.next_seq() == self.next_seq
            && self.output.is_idle()
    }

    /// Returns the number of bytes received and not yet put into a batch.
    #[inline]
    pub fn backlog_bytes(&self) -> usize {
        self.partial.len() - self.partial_start
    }

    /// Returns whether bytes can be parsed straight from the receive buffer.
    #[inline]
    pub fn is_fresh(&self) -> bool {
        self.backlog_bytes() == 0 && self.hold.is_none() && !self.in_ready
    }

    /// Stores bytes to be parsed later.
    pub fn keep(&mut self, bytes: &[u8]) {
        if self.broken {
            return;
        }
        // Drop the consumed bytes when they are the larger part, so that each byte moves about
        // once.
        if self.partial.len() <= 2 * self.partial_start {
            self.partial.drain(..self.partial_start);
            self.partial_start = 0;
        }
        // The hint asks for more than twice the received bytes only for the last growth, so growth
        // is amortised.
        let least = self.partial_start + self.backlog_bytes() + bytes.len();
        let wanted = least.max(self.partial_start + self.needed);
        if self.partial.capacity() < wanted
            && self.partial.try_reserve_exact(wanted - self.partial.len()).is_err()
        {
            self.partial.reserve(least - self.partial.len());
        }
        self.partial.extend_from_slice(bytes);
    }

    /// Parses the bytes of a receive buffer that is in the batch, `quota` requests at most.
    pub fn parse_received(
        &mut self,
        batch: &mut RequestBatch,
        limits: &ParserLimits,
        quota: usize,
        buffer: u32,
        start: u32,
        end: u32,
    ) -> Rest {
        debug_assert!(self.is_fresh(), "kept bytes come first");
        if self.broken {
            return Rest::Incomplete;
        }
        let bytes = std::mem::take(&mut batch.buffers[buffer as usize]);
        let mut into = Into { batch, buffer, base: start, answers_expected: false };
        let (parsed, rest) =
            self.parse(&mut into, limits, quota, &bytes.as_slice()[start as usize..end as usize]);
        self.keep(&bytes.as_slice()[start as usize + parsed..end as usize]);
        batch.buffers[buffer as usize] = bytes;
        rest
    }

    /// Parses the stored bytes, if they can contain a whole request, `quota` requests at most.
    pub fn parse_kept(
        &mut self,
        batch: &mut RequestBatch,
        limits: &ParserLimits,
        quota: usize,
    ) -> Rest {
        if self.backlog_bytes() < self.needed.max(1) || self.broken {
            return Rest::Incomplete;
        }
        let start = self.partial_start;
        let mut bytes = std::mem::take(&mut self.partial);
        let first_request = batch.requests.len();
        let buffer = u32::try_from(batch.buffers.len()).expect("a batch has few buffers");
        batch.buffers.push(BatchBuffer::default());
        let base = u32::try_from(start).expect("kept bytes are far below 4 GiB");
        let mut into = Into { batch, buffer, base, answers_expected: false };
        let (parsed, rest) = self.parse(&mut into, limits, quota, &bytes[start..]);
        let end = start + parsed;
        if batch.requests.len() == first_request {
            // They contain no whole request: the buffer continues to grow in place.
            self.partial = bytes;
            self.partial_start = end;
        } else if bytes.len() - end <= parsed {
            // The larger part goes into the batch: it moves as it is, with large arguments in
            // place.
            self.partial = bytes[end..].to_vec();
            self.partial_start = 0;
            bytes.truncate(end);
            batch.buffers[buffer as usize] = BatchBuffer::Collected(Bytes::from(bytes));
        } else {
            for request in &mut batch.requests[first_request..] {
                if request.buffer == buffer {
                    request.start -= base;
                    request.end -= base;
                }
            }
            batch.buffers[buffer as usize] = BatchBuffer::Received(bytes[start..end].to_vec());
            self.partial = bytes;
            self.partial_start = end;
        }
        rest
    }

    /// Appends whole requests to the batch. Returns how many bytes they took and what the remaining
    /// bytes are.
    fn parse(
        &mut self,
        into: &mut Into<'_>,
        limits: &ParserLimits,
        quota: usize,
        bytes: &[u8],
    ) -> (usize, Rest) {
        let first_request = into.batch.requests.len();
        let first_seq = self.next_seq;
        let quota = quota.min(self.share);
        let (mut at, mut dated) = (0, 0);
        let mut rest = Rest::Incomplete;
        while at < bytes.len() {
            let parsed = into.batch.requests.len() - first_request;
            if quota <= parsed || (0 < parsed && BATCH_ARGS_MAX <= into.batch.args.len()) {
                rest = Rest::OverQuota;
                break;
            }
            into.answers_expected = first_request < into.batch.requests.len();
            match self.parse_one(into, limits, &bytes[at..], at) {
                Some(length) => {
                    if at < self.dated_bytes {
                        dated = into.batch.requests.len() - first_request;
                    }
                    at += length;
                }
                None => break,
            }
            // `needed` was for this request: the next may be whole already and only wait for its
            // turn.
            self.needed = 0;
        }
        self.push_run(into.batch, first_request, first_seq, dated);
        self.dated_bytes = self.dated_bytes.saturating_sub(at);
        if rest == Rest::Incomplete || self.dated_bytes == 0 {
            self.undate();
        }
        (at, rest)
    }

    /// Notes when the bytes kept for later were received, unless that is known of the first.
    pub fn date(&mut self, received: Duration) {
        if self.received.is_none() {
            self.received = Some(received);
            self.dated_bytes = self.returned.len() + self.backlog_bytes();
        }
    }

    /// Leaves it to the next turn to date the bytes kept for later.
    fn undate(&mut self) {
        self.received = None;
        self.dated_bytes = 0;
    }

    /// Appends the request at the front of `bytes`, which lie `at` bytes behind the base. Returns
    /// its length, or `None` when it is incomplete.
    #[inline]
    fn parse_one(
        &mut self,
        into: &mut Into<'_>,
        limits: &ParserLimits,
        bytes: &[u8],
        at: usize,
    ) -> Option<usize> {
        let RequestBatch { buffers, requests, args, errors, .. } = &mut *into.batch;
        let first_arg = args.len();
        args.append(&mut self.partial_args);
        let start = into.base + at as u32;
        let buffer = into.buffer;
        let request = |command, arg_count: usize, length: usize| Request {
            command,
            buffer,
            start,
            end: start + length as u32,
            first_arg: first_arg as u32,
            arg_count: arg_count as u32,
        };
        match self.parser.parse(bytes, limits, args) {
            Ok(Progress::Request { end: length }) => {
                let name = args[first_arg].of(bytes);
                requests.push(request(lookup(name), args.len() - first_arg, length));
                Some(length)
            }
            Ok(Progress::Empty { end: length }) => Some(length),
            Ok(Progress::Inline { end: length, line }) => {
                let (encoded, ranges) = encode_inline(&line);
                let (command, end) = (lookup(&line[0]), encoded.len() as u32);
                let own = request(command, ranges.len(), 0);
                requests.push(Request { buffer: buffers.len() as u32, start: 0, end, ..own });
                args.extend(ranges);
                buffers.push(BatchBuffer::Received(encoded));
                Some(length)
            }
            Ok(Progress::Incomplete { needed }) => {
                self.needed = needed;
                self.partial_args.extend(args.drain(first_arg..));
                None
            }
            Err(
                ProtocolError::UnauthenticatedBulkLength
                | ProtocolError::UnauthenticatedMultibulkLength,
            ) if self.in_flight != 0 || into.answers_expected => {
                // One of the requests before it may be AUTH.
                args.truncate(first_arg);
                self.parser.reset();
                self.needed = 0;
                self.hold = Some(DeferReason::Barrier);
                None
            }
            Err(error) => {
                args.truncate(first_arg);
                let first_arg = errors.len() as u32;
                requests.push(Request {
                    first_arg,
                    ..request(CommandId::PROTOCOL_ERROR, 0, bytes.len())
                });
                errors.push(error);
                self.broken = true;
                Some(bytes.len())
            }
        }
    }

    fn push_run(
        &mut self,
        batch: &mut RequestBatch,
        first_request: usize,
        first_seq: u64,
        dated_requests: usize,
    ) {
        let count = batch.requests.len() - first_request;
        if count == 0 {
            return;
        }
        self.next_seq += count as u64;
        self.in_flight += 1;
        batch.runs.push(Run {
            conn: self.id,
            first_seq,
            first_request: first_request as u32,
            request_count: count as u32,
            resubmitted: std::mem::take(&mut self.tx_blocked),
            received: self.received,
            dated_requests: dated_requests as u32,
        });
    }

    /// Notes that tx executed a whole run.
    #[inline]
    pub fn run_executed(&mut self) {
        self.share = self.share.saturating_mul(2);
        self.starved = false;
    }

    /// Takes back the requests of a run from `first` on.
    pub fn take_back(
        &mut self,
        batch: &mut RequestBatch,
        run: Run,
        first: u32,
        reason: DeferReason,
    ) {
        if !self.tx_blocked {
            if reason == DeferReason::ReplyBytes {
                let executed = (first - run.first_request) as usize;
                self.share = (2 * executed).max(1);
                self.starved = executed == 0;
            }
            // This is the first of possibly several deferred runs: later ones follow it in order,
            // for the same reason.
            self.next_seq = run.first_seq + u64::from(first - run.first_request);
            self.hold = Some(reason);
            self.date_returned(batch, &run, first);
            self.tx_blocked = true;
            self.jobs_ended = batch.jobs_ended.0;
        }
        for index in first..run.first_request + run.request_count {
            let request = batch.requests[index as usize];
            let whole = request.start == 0
                && batch.buffers[request.buffer as usize].as_slice().len() == request.end as usize;
            if whole && self.returned.is_empty() {
                // A large request comes back in its own buffer.
                self.returned =
                    std::mem::take(&mut batch.buffers[request.buffer as usize]).into_vec();
            } else {
                self.returned.extend_from_slice(batch.request_bytes(&request));
            }
        }
        self.date(batch.received);
    }

    /// Dates the requests of a run that come back, from `first` on. The bytes behind keep their
    /// time if it is the same; otherwise they get a later one when their turn has come.
    fn date_returned(&mut self, batch: &RequestBatch, run: &Run, first: u32) {
        let dated_end = run.first_request + run.dated_requests;
        let Some(received) = run.received.filter(|_| first < dated_end) else {
            // Nothing of them is older than the batch, whose time they get.
            self.undate();
            return;
        };
        let length = |index: u32| batch.request_bytes(&batch.requests[index as usize]).len();
        let returned: usize = (first..dated_end).map(length).sum();
        let behind = if self.received == Some(received) { self.dated_bytes } else { 0 };
        self.received = Some(received);
        self.dated_bytes = returned + behind;
    }

    /// Puts all deferred requests in front of the bytes that came later, to be parsed again.
    pub fn restore_deferred(&mut self) {
        self.hold = None;
        if self.returned.is_empty() {
            return;
        }
        let count = self.returned.len();
        if count <= self.partial_start {
            // There is space in front: most of the deferred bytes were taken from there.
            self.partial_start -= count;
            self.partial[self.partial_start..][..count].copy_from_slice(&self.returned);
            self.returned.clear();
        } else {
            let mut bytes = std::mem::take(&mut self.returned);
            bytes.extend_from_slice(&self.partial[self.partial_start..]);
            self.partial = bytes;
            self.partial_start = 0;
        }
        self.parser.reset();
        self.partial_args.clear();
        self.needed = 0;
        self.broken = false;
    }

    /// Drops an incomplete request that will never be whole.
    pub fn drop_partial(&mut self) {
        if self.returned.is_empty() && self.hold.is_none() && !self.in_ready {
            self.partial = Vec::new();
            self.partial_start = 0;
        }
    }
}

/// Capacity above which a buffer is counted by what is written to it.
const UNTOUCHED_BYTES_MIN: usize = 2 * 1024 * 1024;

/// Destination in the batch for parsed requests.
struct Into<'b> {
    batch: &'b mut RequestBatch,
    /// Ordinal of the buffer that the bytes are or will be in.
    buffer: u32,
    /// Offset in the buffer at which the bytes begin.
    base: u32,
    /// Says whether requests of this connection are in the batch.
    answers_expected: bool,
}

/// Kind of the bytes behind the last parsed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Part of a request, or nothing.
    Incomplete,
    /// More requests: the connection has used its share of this batch.
    OverQuota,
}

/// Encodes an inline request as the multibulk request it stands for.
fn encode_inline(line: &[Vec<u8>]) -> (Vec<u8>, Vec<ArgRange>) {
    let mut bytes = Vec::new();
    busload_resp::write_array(&mut bytes, line.len());
    let ranges = line
        .iter()
        .map(|word| {
            busload_resp::write_bulk_header(&mut bytes, word.len());
            let start = bytes.len() as u32;
            bytes.extend_from_slice(word);
            busload_resp::write_crlf(&mut bytes);
            ArgRange { start, end: start + word.len() as u32 }
        })
        .collect();
    (bytes, ranges)
}
