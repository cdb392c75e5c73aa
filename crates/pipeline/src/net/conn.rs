//! One connection as net sees it: bytes in, requests out.

use busload_io::ConnId;
use busload_resp::{ArgRange, Parser, ParserLimits, Progress};
use bytes::Bytes;

use super::output::Output;
use crate::{
    batch::{Batch, BatchBuffer, DeferReason, Request, Run},
    command::{CommandId, lookup},
};

/// A connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub id: ConnId,
    parser: Parser,
    /// Bytes from the first request not yet offered on.
    pub partial: Vec<u8>,
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
    next_seq: u64,
    pub output: Output,
    /// Reading is paused at the driver.
    pub paused: bool,
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
    /// The asking of the log after which its requests were last offered.
    pub log_epoch_tried: u64,
    /// MULTI queue in tx.
    pub queued_bytes: usize,
    /// What of this connection the total contains.
    pub accounted: usize,
}

impl Conn {
    pub fn new(id: ConnId) -> Self {
        Self {
            id,
            parser: Parser::default(),
            partial: Vec::new(),
            partial_args: Vec::new(),
            needed: 0,
            returned: Vec::new(),
            hold: None,
            tx_blocked: false,
            in_flight: 0,
            next_seq: 0,
            output: Output::default(),
            paused: false,
            half_closed: false,
            broken: false,
            in_gated: false,
            in_dirty: false,
            in_ready: false,
            in_blocked: false,
            log_epoch_tried: 0,
            queued_bytes: 0,
            accounted: 0,
        }
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> usize {
        self.output.bytes() + self.partial.capacity() + self.returned.capacity() + self.queued_bytes
    }

    /// Whether every request it sent whole is answered, and every answer sent.
    pub fn is_settled(&self) -> bool {
        self.in_flight == 0
            && self.hold.is_none()
            && !self.in_ready
            && self.output.next_seq() == self.next_seq
            && self.output.is_idle()
    }

    /// Whether bytes can be parsed straight from the receive buffer.
    pub fn is_fresh(&self) -> bool {
        self.partial.is_empty() && self.hold.is_none() && !self.in_ready
    }

    /// Keeps bytes for later.
    pub fn keep(&mut self, bytes: &[u8]) {
        if self.broken {
            return;
        }
        let wanted = self.needed.max(self.partial.len() + bytes.len());
        if self.partial.capacity() < wanted {
            // The hint never asks for more than twice what has arrived, so growth is amortised.
            self.partial.reserve_exact(wanted - self.partial.len());
        }
        self.partial.extend_from_slice(bytes);
    }

    /// Parses what lies in a receive buffer, which is in the batch.
    pub fn parse_received(
        &mut self,
        batch: &mut Batch,
        limits: &ParserLimits,
        buffer: u32,
        start: u32,
        end: u32,
    ) {
        debug_assert!(self.is_fresh(), "kept bytes come first");
        if self.broken {
            return;
        }
        let rest = self.parse(batch, limits, buffer, start, end);
        if rest < end {
            let bytes = &batch.buffers[buffer as usize].as_slice()[rest as usize..end as usize];
            // Borrowed from the batch, which `keep` does not touch.
            let wanted = self.needed.max(bytes.len());
            self.partial.reserve_exact(wanted);
            self.partial.extend_from_slice(bytes);
        }
    }

    /// Parses what was kept, if it can contain a whole request.
    pub fn parse_kept(&mut self, batch: &mut Batch, limits: &ParserLimits) {
        if self.partial.len() < self.needed || self.partial.is_empty() || self.broken {
            return;
        }
        let bytes = std::mem::take(&mut self.partial);
        let length = u32::try_from(bytes.len()).expect("a request is far below 4 GiB");
        let buffer = u32::try_from(batch.buffers.len()).expect("a batch has few buffers");
        let requests_before = batch.requests.len();
        batch.buffers.push(BatchBuffer::Received(bytes));
        let rest = self.parse(batch, limits, buffer, 0, length);
        let Some(BatchBuffer::Received(bytes)) = batch.buffers.get_mut(buffer as usize) else { return };
        let mut bytes = std::mem::take(bytes);
        if batch.requests.len() == requests_before {
            // Nothing whole in it: it goes on growing in place.
            bytes.drain(..rest as usize);
            self.partial = bytes;
        } else {
            self.partial.extend_from_slice(&bytes[rest as usize..]);
            bytes.truncate(rest as usize);
            batch.buffers[buffer as usize] = BatchBuffer::Collected(Bytes::from(bytes));
        }
    }

    /// Appends whole requests to the batch; returns where the first incomplete one begins.
    fn parse(&mut self, batch: &mut Batch, limits: &ParserLimits, buffer: u32, start: u32, end: u32) -> u32 {
        let first_request = batch.requests.len();
        let first_seq = self.next_seq;
        let mut at = start;
        let mut inline = Vec::new();
        let inline_base = batch.buffers.len();
        let Batch { buffers, requests, args, errors, .. } = batch;
        let bytes = buffers[buffer as usize].as_slice();
        while at < end {
            let first_arg = args.len();
            args.append(&mut self.partial_args);
            let request = |command, arg_count, length: usize| Request {
                command,
                buffer,
                start: at,
                end: at + length as u32,
                first_arg: first_arg as u32,
                arg_count,
            };
            match self.parser.parse(&bytes[at as usize..end as usize], limits, args) {
                Ok(Progress::Request { end: length }) => {
                    let name = args[first_arg].of(&bytes[at as usize..]);
                    requests.push(request(lookup(name), (args.len() - first_arg) as u32, length));
                    at += length as u32;
                }
                Ok(Progress::Empty { end: length }) => at += length as u32,
                Ok(Progress::Inline { end: length, line }) => {
                    let (encoded, ranges) = encode_inline(&line);
                    let command = lookup(&line[0]);
                    let inline_buffer = (inline_base + inline.len()) as u32;
                    requests.push(Request {
                        buffer: inline_buffer,
                        start: 0,
                        end: encoded.len() as u32,
                        ..request(command, ranges.len() as u32, 0)
                    });
                    args.extend(ranges);
                    inline.push(encoded);
                    at += length as u32;
                }
                Ok(Progress::Incomplete { needed }) => {
                    self.needed = needed;
                    self.partial_args.extend(args.drain(first_arg..));
                    break;
                }
                Err(error) => {
                    args.truncate(first_arg);
                    requests.push(Request {
                        first_arg: errors.len() as u32,
                        ..request(CommandId::PROTOCOL_ERROR, 0, (end - at) as usize)
                    });
                    errors.push(error);
                    self.broken = true;
                    at = end;
                }
            }
        }
        if at == end {
            self.needed = 0;
        }
        batch.buffers.extend(inline.into_iter().map(BatchBuffer::Received));
        self.push_run(batch, first_request, first_seq);
        at
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

    /// Takes back the requests of a run from `first` on.
    pub fn take_back(&mut self, batch: &Batch, run: &Run, first: u32, reason: DeferReason) {
        if !self.tx_blocked {
            // The first of possibly several runs given back: later ones follow it in order.
            self.next_seq = run.first_seq + u64::from(first - run.first_request);
        }
        self.hold = Some(reason);
        self.tx_blocked = true;
        for request in &batch.requests[first as usize..(run.first_request + run.request_count) as usize] {
            self.returned.extend_from_slice(batch.request_bytes(request));
        }
    }

    /// Everything given back is here: it goes in front of what came later, to be parsed anew.
    pub fn rejoin(&mut self) {
        self.hold = None;
        if self.returned.is_empty() {
            return;
        }
        let mut bytes = std::mem::take(&mut self.returned);
        bytes.extend_from_slice(&self.partial);
        self.partial = bytes;
        self.parser.reset();
        self.partial_args.clear();
        self.needed = 0;
        self.broken = false;
    }

    /// An incomplete request will never be whole.
    pub fn drop_partial(&mut self) {
        if self.returned.is_empty() && self.hold.is_none() && !self.in_ready {
            self.partial = Vec::new();
        }
    }
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
