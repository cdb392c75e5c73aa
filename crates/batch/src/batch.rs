//! Batches: the entries that one statement or call carries.

use std::time::Duration;

use crate::request::Operation;

/// Entries that are dispatched together, as one statement or call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryBatch<K, T> {
    /// Id to pass to [`RequestQueue::answer`](crate::RequestQueue::answer) and
    /// [`RequestQueue::end`](crate::RequestQueue::end).
    pub id: BatchId,
    /// Keys to read or writes to make.
    pub content: Content<K, T>,
}

/// Name of one batch of one queue; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchId {
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

/// Facts about a batch in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentBatch {
    /// Operation of all its entries.
    pub operation: Operation,
    /// Number of its entries.
    pub entries: usize,
    /// Number of requests that it was sent with.
    pub requests: u64,
    /// Time since it was sent.
    pub age: Duration,
}

/// Way in which a batch has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchEnd {
    /// The backend has served it.
    Served,
    /// The backend has served it while it was opening connections: the times of batches say nothing
    /// about the next ones.
    Unsettled,
    /// It failed as a whole: its time says nothing about the next ones.
    Failed,
    /// The backend has said that it has too much to do.
    Overloaded,
}

/// Content of a batch. [`RequestQueue::answer`](crate::RequestQueue::answer) takes an entry's index
/// in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content<K, T> {
    /// Keys to read, sorted, each once.
    Read(Vec<K>),
    /// Writes to make, all of one kind, sorted by key, each key once.
    Write(Vec<(K, T)>),
}

impl<K, T> Content<K, T> {
    /// Returns the number of entries, which is never 0.
    pub fn len(&self) -> usize {
        match self {
            Self::Read(keys) => keys.len(),
            Self::Write(entries) => entries.len(),
        }
    }

    /// Returns `false`: no batch is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
