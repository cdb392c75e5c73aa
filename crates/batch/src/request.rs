//! Requests to the queue, and what it returns for them.

use std::time::Duration;

use thiserror::Error;

/// Size and deadline of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestOptions {
    /// Bytes of the request's key.
    pub bytes: usize,
    /// Deadline on the clock of `now`. When it has passed,
    /// [`RequestQueue::expire`](crate::RequestQueue::expire) returns the waiter.
    pub deadline: Option<Duration>,
}

/// Name of one request of one queue; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

/// A request that the queue refused, with its waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Refused<W> {
    /// The waiter, as it was passed in.
    pub waiter: W,
    /// Reason of the refusal.
    pub reason: Refusal,
}

/// Why the queue refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The queue is full. It takes requests again when some were sent, answered or cancelled.
    #[error("the queue is full: at most {requests_max} requests and {bytes_max} bytes may wait")]
    Full {
        /// The limit that was reached: [`requests_max`](crate::QueueSettings::requests_max).
        requests_max: usize,
        /// The limit: the value of [`QueueSettings::bytes_max`](crate::QueueSettings::bytes_max).
        bytes_max: usize,
    },
    /// The request would not fit into an empty queue either.
    #[error("the request counts {bytes} bytes, and at most {bytes_max} bytes may wait")]
    TooLarge {
        /// Bytes that the request counts.
        bytes: usize,
        /// The limit: the value of [`QueueSettings::bytes_max`](crate::QueueSettings::bytes_max).
        bytes_max: usize,
    },
    /// The batcher around the queue was closed. The queue itself never returns this.
    #[error("the batcher is closed")]
    Closed,
}

/// A waiter whose entry was answered or whose batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered<W, R> {
    /// The waiter of the request.
    pub waiter: W,
    /// For a write, the part of the entry's outcome that belongs to this request. `None` for a
    /// read.
    pub receipt: Option<R>,
}

/// A waiter without an answer: its deadline passed, or its queue was drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late<W> {
    /// The waiter of the request.
    pub waiter: W,
    /// Progress of the request at that moment.
    pub stage: Stage,
    /// Operation that was requested.
    pub operation: Operation,
}

/// Progress of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The request was pending; it is dropped and never sent.
    Waiting,
    /// It is a pending write that was merged with others. It may be made with theirs.
    Merged,
    /// Its batch is in flight. A write may or may not have been made.
    InFlight,
}

/// Operation of a request. Reads and writes are the two classes of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads the key's value.
    Read,
    /// Changes the key's value.
    Write,
}
