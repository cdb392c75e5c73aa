//! Batches in flight.

use std::time::Duration;

use super::arena::{Arena, Id};
use super::entry::{Class, EntryId};
use crate::batch::BatchId;
use crate::request::Operation;

enum BatchMark {}

/// Table of the batches in flight.
pub(super) struct InFlightBatches {
    arena: Arena<InFlightBatch, BatchMark>,
    max: usize,
    serial: u64,
    reads: usize,
    writes: usize,
    /// Entries of all read batches in flight, counted when they were sent.
    read_entries: usize,
}

/// One batch in flight.
pub(super) struct InFlightBatch {
    pub class: Class,
    pub started: Duration,
    /// Entries in the order of the batch; `None` when answered.
    pub entries: Vec<Option<EntryId>>,
    /// Number of entries that have waiters and no answer.
    awaited: usize,
    serial: u64,
}

impl InFlightBatches {
    pub fn new(max: usize) -> Self {
        Self { arena: Arena::new(), max, serial: 0, reads: 0, writes: 0, read_entries: 0 }
    }

    /// Starts a batch, whose entries [`fill`](Self::fill) adds.
    pub fn start(&mut self, class: Class, started: Duration) -> BatchId {
        *self.count_mut(class) += 1;
        self.serial += 1;
        let serial = self.serial;
        let batch = InFlightBatch { class, started, entries: Vec::new(), awaited: 0, serial };
        BatchId { slot: self.arena.insert(batch).slot(), serial }
    }

    /// Adds the entries of a batch that was just started. Each has a waiter.
    pub fn fill(&mut self, batch: BatchId, entries: impl Iterator<Item = EntryId>) {
        let batch = &mut self.arena[Id::at(batch.slot)];
        batch.entries = entries.map(Some).collect();
        batch.awaited = batch.entries.len();
        if batch.class == Class::Read {
            self.read_entries += batch.entries.len();
        }
    }

    /// Records that an entry of a batch in flight got its first waiter again.
    pub fn await_entry(&mut self, batch: BatchId) {
        self.arena[Id::at(batch.slot)].awaited += 1;
    }

    /// Records that an entry of a batch in flight has no waiters any more: all were cancelled or
    /// answered.
    pub fn release_entry(&mut self, batch: BatchId) {
        self.arena[Id::at(batch.slot)].awaited -= 1;
    }

    /// Returns whether a request waits for an entry of the batch; `false` if the batch has ended.
    pub fn is_awaited(&self, batch: BatchId) -> bool {
        self.find(batch).is_some_and(|id| 0 < self.arena[id].awaited)
    }

    /// Takes the entry at `index` of a batch in flight; `None` the second time.
    pub fn take(&mut self, batch: BatchId, index: usize) -> Option<EntryId> {
        let id = self.find(batch)?;
        self.arena[id].entries.get_mut(index)?.take()
    }

    pub fn end(&mut self, batch: BatchId) -> Option<InFlightBatch> {
        let id = self.find(batch)?;
        let batch = self.arena.remove(id);
        *self.count_mut(batch.class) -= 1;
        if batch.class == Class::Read {
            self.read_entries -= batch.entries.len();
        }
        Some(batch)
    }

    pub fn count(&self, operation: Operation) -> usize {
        match operation {
            Operation::Read => self.reads,
            Operation::Write => self.writes,
        }
    }

    /// Returns the number of entries of all read batches in flight, answered or not.
    pub fn read_entries(&self) -> usize {
        self.read_entries
    }

    pub fn len(&self) -> usize {
        self.arena.len()
    }

    pub fn has_free_slot(&self) -> bool {
        self.len() < self.max
    }

    fn find(&self, batch: BatchId) -> Option<Id<BatchMark>> {
        let id = Id::at(batch.slot);
        let known = self.arena.get(id)?;
        (known.serial == batch.serial).then_some(id)
    }

    fn count_mut(&mut self, class: Class) -> &mut usize {
        match class {
            Class::Read => &mut self.reads,
            Class::Write { .. } => &mut self.writes,
        }
    }
}
