//! Entries of batches: one key, read or written once, for all its waiters.

use std::time::Duration;

use super::arena::{Arena, Id};
use super::keys::KeyId;
use super::list::{Link, List};
use super::waiters::WaiterMark;
use crate::batch::BatchId;
use crate::request::{Operation, Stage};

/// Marker of entry ids.
pub(super) enum EntryMark {}

pub(super) type EntryId = Id<EntryMark>;

pub(super) type Entries<T> = Arena<Entry<T>, EntryMark>;

/// One key, read or written once, for all its waiters.
pub(super) struct Entry<T> {
    pub key: KeyId,
    pub operation: Operation,
    /// Time at which its first request arrived.
    pub arrived: Duration,
    /// The write, while it is pending.
    pub write: Option<T>,
    pub size: Size,
    pub state: EntryState,
    pub waiters: List<WaiterMark>,
    /// Set if one of its requests was marked.
    pub is_marked: bool,
    /// Waiters that were cancelled while the entry was in flight, and count until it is finished.
    pub cancelled_counted: usize,
    /// Link in the list of the key's pending entries.
    pub of_key: Link<EntryMark>,
    /// Link in the queue of the class's entries that can be sent.
    pub of_queue: Link<EntryMark>,
}

/// Bytes of an entry, or of one request for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    pub key: usize,
    pub write: usize,
}

/// Progress of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryState {
    /// An earlier operation on its key is unfinished.
    Blocked,
    /// It can be sent.
    Queued(Turn),
    /// Its batch is in flight.
    InFlight(BatchId),
}

/// Moment from which an entry could be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Turn {
    /// Unique and increasing, so that the oldest is known even when time stands still.
    pub number: u64,
    pub since: Duration,
}

impl Size {
    pub fn of_read(key: usize) -> Self {
        Self { key, write: 0 }
    }

    pub fn bytes(self) -> usize {
        self.key.saturating_add(self.write)
    }

    /// Returns the size after a merge with a write of `later` bytes that has made it `merged`
    /// bytes. The queue has admitted no more than the sum, so no more is counted.
    pub fn merged(self, later: usize, merged: usize) -> Self {
        Self { key: self.key, write: merged.min(self.write + later) }
    }
}

impl<T> Entry<T> {
    pub fn waits(&self) -> bool {
        !matches!(self.state, EntryState::InFlight(_))
    }

    /// Returns how far a request has come whose waiter has been removed.
    pub fn stage_after_leaving(&self) -> Stage {
        match self.operation {
            _ if !self.waits() => Stage::InFlight,
            Operation::Write if !self.waiters.is_empty() => Stage::Merged,
            Operation::Read | Operation::Write => Stage::Waiting,
        }
    }
}
