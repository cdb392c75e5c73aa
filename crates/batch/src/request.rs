//! What comes into a line and what its waiters get out of it.

use std::time::Duration;

use thiserror::Error;

/// What a line must know about a request besides its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask {
    /// Bytes of the key.
    pub bytes: usize,
    /// When the request is late, on the clock of `now`. [`Line::expire`](crate::Line::expire) then
    /// gives its waiter back.
    pub deadline: Option<Duration>,
}

/// Names one request of one line, forever: no other request of the line gets the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

/// A request that was not taken, with its waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Refused<W> {
    /// The waiter, untouched.
    pub waiter: W,
    /// Why.
    pub reason: Refusal,
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// With this request more would wait than may. It will do when some have left.
    #[error("the line is full: at most {requests_max} requests and {bytes_max} bytes may wait")]
    Full {
        /// [`LineSettings::requests_max`](crate::LineSettings::requests_max).
        requests_max: usize,
        /// [`LineSettings::bytes_max`](crate::LineSettings::bytes_max).
        bytes_max: usize,
    },
    /// The request would not fit into an empty line either.
    #[error("the request counts {bytes} bytes, and at most {bytes_max} bytes may wait")]
    TooLarge {
        /// What the request counts.
        bytes: usize,
        /// [`LineSettings::bytes_max`](crate::LineSettings::bytes_max).
        bytes_max: usize,
    },
    /// Nothing more is taken. A line never says this, only a batcher around it that was closed.
    #[error("the batcher is closed")]
    Closed,
}

/// A waiter whose entry was answered or whose batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered<W, R> {
    /// Who asked.
    pub waiter: W,
    /// Of a write: which part of the entry's outcome is this request's. `None` for a read.
    pub receipt: Option<R>,
}

/// A waiter whose deadline has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late<W> {
    /// Who asked.
    pub waiter: W,
    /// How far the request had come.
    pub stage: Stage,
    /// What it asked for.
    pub operation: Operation,
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It waited in the line and is gone with its caller: it will not be made.
    Waiting,
    /// It is a write that waited in one entry with others. It may be made with theirs.
    Merged,
    /// Its batch is under way. A write may or may not have been made.
    InFlight,
}

/// What a request asks for. Reads are one class of batches, writes are the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The value of the key.
    Read,
    /// A change of the key.
    Write,
}
