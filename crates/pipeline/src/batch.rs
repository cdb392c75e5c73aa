//! The object that travels between net and tx: it carries requests one way and replies back, in the
//! same memory.

use std::{sync::Arc, time::Duration};

use busload_io::{ConnId, Peer};
use busload_resp::{ArgRange, ProtocolError};
use bytes::Bytes;

use crate::{command::CommandId, gate::Gate, gauges::ConnectionGauges, latency::Timing};

/// Buffer of received bytes that requests point into.
#[derive(Debug)]
pub enum BatchBuffer {
    /// Receive buffer of the driver, which net returns to it.
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
    /// Returns the bytes of the buffer.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            BatchBuffer::Received(bytes) => bytes,
            BatchBuffer::Collected(bytes) => bytes,
        }
    }

    /// Returns the bytes, without a copy when nobody else holds them.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            BatchBuffer::Received(bytes) => bytes,
            BatchBuffer::Collected(bytes) => bytes.into(),
        }
    }
}

/// One whole request of a client.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Command that the request asks for.
    pub command: CommandId,
    /// Ordinal of its buffer in [`RequestBatch::buffers`].
    pub buffer: u32,
    /// Offset of its first byte in the buffer.
    pub start: u32,
    /// Offset behind its last byte in the buffer.
    pub end: u32,
    /// Ordinal of its first argument in [`RequestBatch::args`]; for a protocol error the ordinal in
    /// [`RequestBatch::errors`].
    pub first_arg: u32,
    /// Number of arguments, the command's name included.
    pub arg_count: u32,
}

/// Run of consecutive requests of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Connection that sent the requests.
    pub conn: ConnId,
    /// Sequence number of the first request; the others follow.
    pub first_seq: u64,
    /// Ordinal of the first request in [`RequestBatch::requests`].
    pub first_request: u32,
    /// Number of requests in the run.
    pub request_count: u32,
    /// Says whether net submits deferred requests again, from the first of them on.
    pub resubmitted: bool,
    /// Time at which the requests were received, if that was before the others of the batch.
    pub received: Option<Duration>,
    /// Number of requests at the front of the run that `received` is the time of. The others came
    /// later; tx counts their times from `received`, too.
    pub dated_requests: u32,
}

/// Event of a connection that tx learns before or after this batch's requests.
#[derive(Debug)]
pub enum Control {
    /// A connection was opened; tx handles it before all requests.
    Opened {
        /// Id of the new connection.
        conn: ConnId,
        /// Addresses of both ends.
        peer: Peer,
        /// Measurements that net keeps up to date.
        gauges: Arc<ConnectionGauges>,
    },
    /// A connection was closed; tx handles it after all requests.
    Closed {
        /// Id of the closed connection.
        conn: ConnId,
    },
}

/// Large value that belongs into the reply bytes, held by reference.
#[derive(Debug)]
pub struct SharedPart {
    /// Offset in [`RequestBatch::out`] in front of which the value belongs.
    pub at: usize,
    /// Bytes of the value.
    pub bytes: Bytes,
}

/// Reply run: replies to consecutive requests of one connection that are sent together.
#[derive(Clone, Copy, Debug)]
pub struct ReplyRun {
    /// Connection that gets the replies.
    pub conn: ConnId,
    /// Sequence number of the first request answered.
    pub first_seq: u64,
    /// Number of requests answered; zero for a push, which answers none and is queued behind the
    /// replies before it.
    pub seq_count: u32,
    /// Offset of the first byte in [`RequestBatch::out`].
    pub start: usize,
    /// Offset behind the last byte in [`RequestBatch::out`].
    pub end: usize,
    /// Ordinal of its first shared part in [`RequestBatch::shared`].
    pub first_shared: u32,
    /// Number of its shared parts.
    pub shared_count: u32,
    /// Gate that must open before net sends the replies.
    pub gate: Gate,
    /// Says whether net closes the connection when it has sent this.
    pub close: bool,
}

/// Reason for which tx defers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferReason {
    /// The log, or the helper that prepares its segments, is behind.
    LogBehind,
    /// Too many bytes of replies are pending.
    ReplyBytes,
    /// An earlier request of the connection must be answered first.
    Barrier,
    /// A sliced command has locked a key of the request.
    Locked,
}

/// Requests of a run that tx did not execute: from this one to the run's end.
#[derive(Clone, Copy, Debug)]
pub struct Deferred {
    /// Ordinal of the run in [`RequestBatch::runs`].
    pub run: u32,
    /// Ordinal in [`RequestBatch::requests`] of the first request not executed.
    pub request: u32,
    /// Reason for which tx deferred them.
    pub reason: DeferReason,
}

/// Limits of the net stage that CONFIG SET can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetLimits {
    /// Pending reply bytes of one client above which net stops reading it.
    pub client_reply_bytes: usize,
    /// Memory of all connections above which net closes the largest.
    pub reply_bytes_total: usize,
    /// Largest size of one request in bytes.
    pub request_bytes: usize,
    /// Most connections; further ones are refused.
    pub clients_max: u32,
}

/// Memory that tx uses for a connection (its MULTI queue, watched keys and job); net adds it to
/// the memory that it limits.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Connection that the memory is used for.
    pub conn: ConnId,
    /// Number of bytes at this moment.
    pub bytes: usize,
}

/// One turn's work. Net fills it, tx executes it and hands it back with the replies; it is never
/// dropped in between.
#[derive(Debug, Default)]
pub struct RequestBatch {
    /// Buffers of received bytes.
    pub buffers: Vec<BatchBuffer>,
    /// Time at which the requests were received, on the monotonic clock; the wiring sets it.
    pub received: Duration,
    /// Connections that were opened and closed.
    pub control: Vec<Control>,
    /// Runs of requests, one or more per connection.
    pub runs: Vec<Run>,
    /// All requests, run by run.
    pub requests: Vec<Request>,
    /// Arguments of all requests, relative to their request's start.
    pub args: Vec<ArgRange>,
    /// Protocol errors; each has a request that refers to it.
    pub errors: Vec<ProtocolError>,

    /// Reply bytes of all connections.
    pub out: Vec<u8>,
    /// Large values among the reply bytes, by position.
    pub shared: Vec<SharedPart>,
    /// Reply runs, which say whose bytes are where.
    pub replies: Vec<ReplyRun>,
    /// Requests that tx deferred.
    pub deferred: Vec<Deferred>,
    /// Connections to close at once (CLIENT KILL).
    pub closes: Vec<ConnId>,
    /// Connections whose memory at tx has changed.
    pub held: Vec<Held>,
    /// Connections that have authenticated (`true`), or no longer are authenticated (`false`).
    pub authenticated: Vec<(ConnId, bool)>,
    /// Times of the requests that were executed, for the latencies.
    pub timings: Vec<Timing>,
    /// Limits for net to use from now on, if they have changed.
    pub limits: Option<NetLimits>,
    /// Number of sliced commands that had ended before this batch was executed, and after it.
    pub jobs_ended: (u64, u64),
}

impl RequestBatch {
    /// Returns whether the batch holds nothing for tx.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.control.is_empty()
    }

    /// Returns the bytes of a request.
    #[inline]
    pub fn request_bytes(&self, request: &Request) -> &[u8] {
        &self.buffers[request.buffer as usize].as_slice()
            [request.start as usize..request.end as usize]
    }

    /// Empties everything but `buffers`, which the net stage takes back, and keeps the memory.
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
        self.timings.clear();
        self.limits = None;
        if self.out.capacity() > OUT_BYTES_KEPT {
            crate::reaper::drop_elsewhere(std::mem::take(&mut self.out));
        }
    }
}

/// Reply memory that a batch keeps between turns; it frees what one large turn needed beyond that.
const OUT_BYTES_KEPT: usize = 4 * 1024 * 1024;
