//! What travels between net and tx: requests one way, replies the other, in the same memory.

use busload_io::{ConnId, Peer};
use busload_resp::{ArgRange, ProtocolError};
use bytes::Bytes;

use crate::{command::CommandId, gate::Gate};

/// Received bytes that requests point into.
#[derive(Debug)]
pub enum BatchBuffer {
    /// A receive buffer of the driver, goes back there.
    Received(Vec<u8>),
    /// Bytes collected for one connection; a large argument in it can be kept by reference.
    Collected(Bytes),
}

impl Default for BatchBuffer {
    fn default() -> Self {
        BatchBuffer::Received(Vec::new())
    }
}

impl BatchBuffer {
    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            BatchBuffer::Received(bytes) => bytes,
            BatchBuffer::Collected(bytes) => bytes,
        }
    }

    /// The bytes, without a copy when nobody else holds them.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            BatchBuffer::Received(bytes) => bytes,
            BatchBuffer::Collected(bytes) => bytes.into(),
        }
    }
}

/// One whole request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What it asks for.
    pub command: CommandId,
    /// Ordinal of its buffer.
    pub buffer: u32,
    /// Its first byte there.
    pub start: u32,
    /// Behind its last byte.
    pub end: u32,
    /// Ordinal of its first argument in [`Batch::args`]; for a protocol error the ordinal in
    /// [`Batch::errors`].
    pub first_arg: u32,
    /// Count of arguments, the command's name included.
    pub arg_count: u32,
}

/// Consecutive requests of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Whose.
    pub conn: ConnId,
    /// Sequence number of the first; the others follow.
    pub first_seq: u64,
    /// Ordinal of the first in [`Batch::requests`].
    pub first_request: u32,
    /// How many.
    pub request_count: u32,
    /// Requests that were given back are offered again, from the first of them on.
    pub offered_again: bool,
}

/// What happened to a connection before or after this batch's requests.
#[derive(Debug)]
pub enum Control {
    /// Before all requests.
    Opened {
        /// Its id.
        conn: ConnId,
        /// Who.
        peer: Peer,
    },
    /// After all requests.
    Closed {
        /// Its id.
        conn: ConnId,
    },
}

/// A large value inside the reply bytes, by reference.
#[derive(Debug)]
pub struct SharedPart {
    /// It belongs in front of this byte of [`Batch::out`].
    pub at: usize,
    /// The value.
    pub bytes: Bytes,
}

/// Replies to consecutive requests of one connection that leave together.
#[derive(Clone, Copy, Debug)]
pub struct ReplySegment {
    /// Whose.
    pub conn: ConnId,
    /// Sequence number of the first request answered.
    pub first_seq: u64,
    /// Requests answered; zero for a push, which answers none and takes its place behind what is
    /// there.
    pub seq_count: u32,
    /// First byte in [`Batch::out`].
    pub start: usize,
    /// Behind the last.
    pub end: usize,
    /// Ordinal of the first shared part in it.
    pub first_shared: u32,
    /// How many.
    pub shared_count: u32,
    /// What it waits for.
    pub gate: Gate,
    /// Close the connection when this is sent.
    pub close: bool,
}

/// Why requests come back unexecuted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferReason {
    /// The log, or the helper that makes room in it, is behind.
    LogBehind,
    /// Too many bytes of replies are pending.
    ReplyBytes,
    /// An earlier request of the connection must be answered first.
    Barrier,
    /// A command that is executed in slices holds a key of the request.
    Locked,
}

/// Requests of a run that were not executed: from this one to the run's end.
#[derive(Clone, Copy, Debug)]
pub struct Deferred {
    /// Ordinal in [`Batch::runs`].
    pub run: u32,
    /// Ordinal in [`Batch::requests`] of the first left.
    pub request: u32,
    /// Why.
    pub reason: DeferReason,
}

/// Memory tx holds for a connection (its MULTI queue and watched keys), told to net, which bounds
/// the sum.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Whose.
    pub conn: ConnId,
    /// Bytes now.
    pub bytes: usize,
}

/// One turn's work. Filled by net, executed by tx, handed back with the replies; never dropped in
/// between.
#[derive(Debug, Default)]
pub struct Batch {
    /// Received bytes.
    pub buffers: Vec<BatchBuffer>,
    /// Opened and closed connections.
    pub control: Vec<Control>,
    /// Requests, grouped by connection.
    pub runs: Vec<Run>,
    /// All requests, run by run.
    pub requests: Vec<Request>,
    /// Arguments of all requests, relative to their request's start.
    pub args: Vec<ArgRange>,
    /// Protocol errors, which take their place among the requests.
    pub errors: Vec<ProtocolError>,

    /// Reply bytes of all connections.
    pub out: Vec<u8>,
    /// Large values among them, by position.
    pub shared: Vec<SharedPart>,
    /// Which bytes are whose.
    pub replies: Vec<ReplySegment>,
    /// Requests given back.
    pub deferred: Vec<Deferred>,
    /// Connections to close at once (CLIENT KILL).
    pub closes: Vec<ConnId>,
    /// Changed MULTI queues and watched keys.
    pub held: Vec<Held>,
    /// Connections that have authenticated, or no longer have.
    pub authenticated: Vec<(ConnId, bool)>,
    /// How many commands that were executed in slices had ended, before this batch was executed and
    /// after it.
    pub jobs_ended: (u64, u64),
}

impl Batch {
    /// Whether there is nothing for tx in it.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.control.is_empty()
    }

    /// The bytes of a request, from its start.
    #[inline]
    pub fn request_bytes(&self, request: &Request) -> &[u8] {
        &self.buffers[request.buffer as usize].as_slice()
            [request.start as usize..request.end as usize]
    }

    /// Empties everything but `buffers`, which the net stage takes home, and keeps the memory.
    pub fn clear(&mut self) {
        self.control.clear();
        self.runs.clear();
        self.requests.clear();
        self.args.clear();
        self.errors.clear();
        self.out.clear();
        self.shared.clear();
        self.replies.clear();
        self.deferred.clear();
        self.closes.clear();
        self.held.clear();
        self.authenticated.clear();
        if self.out.capacity() > OUT_BYTES_KEPT {
            crate::reaper::drop_elsewhere(std::mem::take(&mut self.out));
        }
    }
}

/// Reply memory a batch keeps between turns; what one large turn needed beyond it is given back.
const OUT_BYTES_KEPT: usize = 4 * 1024 * 1024;
