//! Entries: what a batch consists of. One key, read or written once, for all who asked.

use std::time::Duration;

use super::arena::{Arena, Id};
use super::keys::KeyId;
use super::list::{Link, List};
use super::waiters::WaiterMark;
use crate::request::{Operation, Stage};

/// Marks ids of entries.
pub(super) enum EntryMark {}

pub(super) type EntryId = Id<EntryMark>;

pub(super) type Entries<T> = Arena<Entry<T>, EntryMark>;

/// One key, read or written once, for all who asked.
pub(super) struct Entry<T> {
    pub key: KeyId,
    pub class: Class,
    /// What to write, while it waits.
    pub write: Option<T>,
    pub size: Size,
    pub place: Place,
    pub waiters: List<WaiterMark>,
    /// Among the entries of the key that wait.
    pub of_key: Link<EntryMark>,
    /// Among the entries of the class that can leave.
    pub of_queue: Link<EntryMark>,
}

/// Whom an entry may share a batch with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Read,
    Write { lane: usize },
}

/// Bytes of an entry or of one request for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    pub key: usize,
    pub write: usize,
}

/// How far an entry has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Something of its key comes before it.
    Blocked,
    /// It can leave.
    Queued(Turn),
    InFlight,
}

/// When an entry became able to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Turn {
    /// No two are the same, so that the oldest is known even when time stands still.
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

    /// After a merge with a write of `later` bytes, which says it has `merged` bytes now. The line
    /// has admitted no more than the sum, so no more is counted.
    pub fn merged(self, later: usize, merged: usize) -> Self {
        Self { key: self.key, write: merged.min(self.write + later) }
    }
}

impl Class {
    pub fn operation(self) -> Operation {
        match self {
            Self::Read => Operation::Read,
            Self::Write { .. } => Operation::Write,
        }
    }
}

impl<T> Entry<T> {
    pub fn waits(&self) -> bool {
        self.place != Place::InFlight
    }

    /// How far a request has come that is no longer among the waiters.
    pub fn stage_after_leaving(&self) -> Stage {
        match self.class {
            _ if !self.waits() => Stage::InFlight,
            Class::Write { .. } if !self.waiters.is_empty() => Stage::Merged,
            Class::Read | Class::Write { .. } => Stage::Waiting,
        }
    }
}
