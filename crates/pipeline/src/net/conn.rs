//! One connection as net sees it: bytes in, requests out.

use busload_io::ConnId;
use busload_resp::{ArgRange, Parser, ParserLimits, Progress, ProtocolError};
use bytes::Bytes;

use super::output::Output;
use crate::{
    batch::{Batch, BatchBuffer, DeferReason, Request, Run},
    command::{CommandId, lookup},
    limits::BATCH_ARGS_MAX,
};

/// A connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub id: ConnId,
    parser: Parser,
    /// Bytes received and not yet offered, from `partial_start` on.
    partial: Vec<u8>,
    partial_start: usize,
    /// Arguments found in the incomplete request at the front of `partial`.
    partial_args: Vec<ArgRange>,
    /// The incomplete request has at least so many bytes.
    needed: usize,
    /// Requests tx gave back, to go in front of `partial`.
    returned: Vec<u8>,
    /// Nothing is offered while this holds.
    pub hold: Option<DeferReason>,
    /// tx executes nothing until requests are marked as offered again.
    pub tx_blocked: bool,
    /// Runs in batches that are not back.
    pub in_flight: u32,
    /// Requests that go into the next batch at most. Twice as many as could be executed of the last
    /// run, so that a client whose replies are large does not have most of its requests given back
    /// and parsed again in every turn.
    share: usize,
    /// Nothing of its last run was executed: it comes first in the next turn.
    pub starved: bool,
    next_seq: u64,
    pub output: Output,
    /// Reading is paused at the driver.
    pub paused: bool,
    /// It has shown the password, or needs none: the ordinary limits hold.
    pub authenticated: bool,
    /// The client will send no more.
    pub half_closed: bool,
    /// The protocol was broken: nothing more is read.
    broken: bool,
    /// In the list of connections whose head waits for the log.
    pub in_gated: bool,
    /// In the list of connections to look at before the turn ends.
    pub in_dirty: bool,
    /// In the list of connections with bytes to parse next turn.
    pub in_ready: bool,
    /// In the list of connections whose requests wait for the log.
    pub in_blocked: bool,
    /// In the list of connections whose requests wait for a command executed in slices.
    pub in_locked: bool,
    /// How many such commands had ended when its requests were refused.
    pub jobs_ended: u64,
    /// The asking of the log after which its requests were last offered.
    pub log_epoch_tried: u64,
    /// MULTI queue in tx.
    pub queued_bytes: usize,
    /// What of this connection the total contains.
    pub accounted: usize,
}

impl Conn {
    pub fn new(id: ConnId, authenticated: bool) -> Self {
        Self {
            id,
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
            half_closed: false,
            broken: false,
            in_gated: false,
            in_dirty: false,
            in_ready: false,
            in_blocked: false,
            in_locked: false,
            jobs_ended: 0,
            log_epoch_tried: 0,
            queued_bytes: 0,
            accounted: 0,
        }
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let args = self.partial_args.capacity() * size_of::<ArgRange>();
        // Of a large buffer the system has given only what was written.
        let partial = self.partial.capacity().min(self.partial.len().max(UNTOUCHED_BYTES_MIN));
        self.output.bytes() + partial + args + self.returned.capacity() + self.queued_bytes
    }

    /// Whether every request that was executed is answered.
    pub fn is_answered(&self) -> bool {
        self.in_flight == 0 && self.output.next_seq() == self.next_seq
    }

    /// Whether every request it sent whole is answered, and every answer sent.
    pub fn is_settled(&self) -> bool {
        self.in_flight == 0
            && self.hold.is_none()
            && !self.in_ready
            && self.output.next_seq() == self.next_seq
            && self.output.is_idle()
    }

    /// Bytes received and not yet offered.
    pub fn backlog_bytes(&self) -> usize {
        self.partial.len() - self.partial_start
    }

    /// Whether bytes can be parsed straight from the receive buffer.
    pub fn is_fresh(&self) -> bool {
        self.backlog_bytes() == 0 && self.hold.is_none() && !self.in_ready
    }

    /// Keeps bytes for later.
    pub fn keep(&mut self, bytes: &[u8]) {
        if self.broken {
            return;
        }
        // What was offered is dropped when it is the larger part, so that each byte moves about
        // once.
        if self.partial.len() <= 2 * self.partial_start {
            self.partial.drain(..self.partial_start);
            self.partial_start = 0;
        }
        // The hint asks for more than twice what has arrived only for the last growth, so growth is
        // amortised.
        let least = self.partial_start + self.backlog_bytes() + bytes.len();
        let wanted = least.max(self.partial_start + self.needed);
        if self.partial.capacity() < wanted
            && self.partial.try_reserve_exact(wanted - self.partial.len()).is_err()
        {
            self.partial.reserve(least - self.partial.len());
        }
        self.partial.extend_from_slice(bytes);
    }

    /// Parses what lies in a receive buffer, which is in the batch, `quota` requests at most.
    pub fn parse_received(
        &mut self,
        batch: &mut Batch,
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

    /// Parses what was kept, if it can contain a whole request, `quota` requests at most.
    pub fn parse_kept(&mut self, batch: &mut Batch, limits: &ParserLimits, quota: usize) -> Rest {
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
            // Nothing whole in it: it goes on growing in place.
            self.partial = bytes;
            self.partial_start = end;
        } else if bytes.len() - end <= parsed {
            // The larger part is offered: it goes as it is, with large arguments in place.
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

    /// Appends whole requests to the batch; returns how many bytes they took and what the others
    /// are.
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
        let mut at = 0;
        let mut rest = Rest::Incomplete;
        while at < bytes.len() {
            let parsed = into.batch.requests.len() - first_request;
            if quota <= parsed || (0 < parsed && BATCH_ARGS_MAX <= into.batch.args.len()) {
                rest = Rest::OverQuota;
                break;
            }
            into.answers_expected = first_request < into.batch.requests.len();
            match self.parse_one(into, limits, &bytes[at..], at) {
                Some(length) => at += length,
                None => break,
            }
            // What was needed was for this one: the next may be whole already, and wait only for
            // its turn.
            self.needed = 0;
        }
        self.push_run(into.batch, first_request, first_seq);
        (at, rest)
    }

    /// Appends the request at the front of `bytes`, which lie `at` bytes behind the base; returns
    /// its length, nothing when it is incomplete.
    #[inline]
    fn parse_one(
        &mut self,
        into: &mut Into<'_>,
        limits: &ParserLimits,
        bytes: &[u8],
        at: usize,
    ) -> Option<usize> {
        let Batch { buffers, requests, args, errors, .. } = &mut *into.batch;
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

    fn push_run(&mut self, batch: &mut Batch, first_request: usize, first_seq: u64) {
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
            offered_again: std::mem::take(&mut self.tx_blocked),
        });
    }

    /// A run was executed whole.
    pub fn run_executed(&mut self) {
        self.share = self.share.saturating_mul(2);
        self.starved = false;
    }

    /// Takes back the requests of a run from `first` on.
    pub fn take_back(&mut self, batch: &mut Batch, run: Run, first: u32, reason: DeferReason) {
        if !self.tx_blocked {
            if reason == DeferReason::ReplyBytes {
                let executed = (first - run.first_request) as usize;
                self.share = (2 * executed).max(1);
                self.starved = executed == 0;
            }
            // The first of possibly several runs given back: later ones follow it in order, and
            // have its reason.
            self.next_seq = run.first_seq + u64::from(first - run.first_request);
            self.hold = Some(reason);
            self.tx_blocked = true;
            self.jobs_ended = batch.jobs_ended.0;
        }
        for index in first..run.first_request + run.request_count {
            let request = batch.requests[index as usize];
            let whole = request.start == 0
                && batch.buffers[request.buffer as usize].as_slice().len() == request.end as usize;
            if whole && self.returned.is_empty() {
                // A large request comes back as it went.
                self.returned =
                    std::mem::take(&mut batch.buffers[request.buffer as usize]).into_vec();
            } else {
                self.returned.extend_from_slice(batch.request_bytes(&request));
            }
        }
    }

    /// Everything given back is here: it goes in front of what came later, to be parsed anew.
    pub fn rejoin(&mut self) {
        self.hold = None;
        if self.returned.is_empty() {
            return;
        }
        let count = self.returned.len();
        if count <= self.partial_start {
            // There is room in front: what is given back was mostly taken from there.
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

    /// An incomplete request will never be whole.
    pub fn drop_partial(&mut self) {
        if self.returned.is_empty() && self.hold.is_none() && !self.in_ready {
            self.partial = Vec::new();
            self.partial_start = 0;
        }
    }
}

/// A buffer with more room than this is not counted whole before it is filled.
const UNTOUCHED_BYTES_MIN: usize = 2 * 1024 * 1024;

/// Where parsed requests go.
struct Into<'b> {
    batch: &'b mut Batch,
    /// Ordinal of the buffer the bytes are or will be in.
    buffer: u32,
    /// Where they begin there.
    base: u32,
    /// Requests of this connection are in the batch.
    answers_expected: bool,
}

/// What the bytes behind the last request parsed are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Part of a request, or nothing.
    Incomplete,
    /// More requests: the connection had its share of this batch.
    OverQuota,
}

/// An inline request as the multibulk request it stands for.
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
