//! Batches in flight, and the limits of their number.

use std::time::Duration;

use super::arena::{Arena, Id};
use super::entry::EntryId;
use crate::batch::{BatchEnd, BatchId};
use crate::limiter::{Limiter, Measured, Sent, SentMark, Unended};
use crate::limits::WRITES_LEAVE;
use crate::request::Operation;
use crate::settings::{DispatchPolicy, QueueSettings};

enum BatchMark {}

/// Table of the batches in flight.
pub(super) struct InFlightBatches {
    arena: Arena<InFlightBatch, BatchMark>,
    max: usize,
    serial: u64,
    reads: ClassInFlight,
    writes: ClassInFlight,
}

/// Batches in flight of one class.
pub(super) struct ClassInFlight {
    batches: usize,
    /// Entries of these batches, counted when they were sent.
    entries: usize,
    limit: Limit,
}

/// Limit of the batches in flight of one class.
enum Limit {
    Fixed(usize),
    Adaptive(Box<Limiter>),
}

/// One batch in flight.
pub(super) struct InFlightBatch {
    pub operation: Operation,
    /// Entries in the order of the batch; `None` when answered.
    pub entries: Vec<Option<EntryId>>,
    pub started: Duration,
    /// Number of requests when it was sent.
    pub requests: u64,
    /// Sum over the entries of the time for which they could have been sent.
    waited: Duration,
    mark: Option<SentMark>,
    /// Number of entries that have waiters and no answer.
    awaited: usize,
    /// Set if it was sent with a marked request.
    is_marked: bool,
    serial: u64,
}

impl InFlightBatches {
    pub fn new(settings: &QueueSettings) -> Self {
        let max = settings.batches_in_flight_max;
        Self {
            arena: Arena::new(),
            max,
            serial: 0,
            reads: ClassInFlight::new(settings, max),
            writes: ClassInFlight::new(settings, max - max / WRITES_LEAVE),
        }
    }

    /// Starts a batch, whose entries [`fill`](Self::fill) adds.
    pub fn start(&mut self, operation: Operation, started: Duration) -> BatchId {
        self.serial += 1;
        let serial = self.serial;
        let batch = InFlightBatch {
            operation,
            entries: Vec::new(),
            started,
            requests: 0,
            waited: Duration::ZERO,
            mark: None,
            awaited: 0,
            is_marked: false,
            serial,
        };
        BatchId { slot: self.arena.insert(batch).slot(), serial }
    }

    /// Adds the entries of a batch that was just started. Each has a waiter.
    pub fn fill(
        &mut self,
        batch: BatchId,
        sent: Sent,
        requests: u64,
        entries: impl Iterator<Item = EntryId>,
    ) {
        let sent = Sent { is_last_slot: self.max <= self.arena.len(), ..sent };
        let batch = &mut self.arena[Id::at(batch.slot)];
        batch.entries = entries.map(Some).collect();
        batch.awaited = batch.entries.len();
        batch.waited = sent.waited;
        batch.requests = requests;
        let class = match batch.operation {
            Operation::Read => &mut self.reads,
            Operation::Write => &mut self.writes,
        };
        batch.mark = class.send(batch.started, batch.entries.len(), sent);
    }

    /// Marks a batch in flight.
    pub fn mark(&mut self, batch: BatchId) {
        self.arena[Id::at(batch.slot)].is_marked = true;
    }

    /// Returns whether a batch in flight is marked; `false` if it has ended.
    pub fn is_marked(&self, batch: BatchId) -> bool {
        self.get(batch).is_some_and(|batch| batch.is_marked)
    }

    /// Returns a batch in flight; `None` if it has ended.
    pub fn get(&self, batch: BatchId) -> Option<&InFlightBatch> {
        self.find(batch).map(|id| &self.arena[id])
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

    /// Ends a batch; `None` if it has ended before.
    pub fn end(&mut self, batch: BatchId, now: Duration, end: BatchEnd) -> Option<InFlightBatch> {
        let id = self.find(batch)?;
        let batch = self.arena.remove(id);
        let of_class = self.arena.iter().filter(|(_, other)| other.operation == batch.operation);
        let unended = of_class.filter_map(|(_, other)| other.unended(now));
        let class = match batch.operation {
            Operation::Read => &mut self.reads,
            Operation::Write => &mut self.writes,
        };
        class.end(&batch, now, end, unended);
        Some(batch)
    }

    pub fn class(&self, operation: Operation) -> &ClassInFlight {
        match operation {
            Operation::Read => &self.reads,
            Operation::Write => &self.writes,
        }
    }

    pub fn len(&self) -> usize {
        self.arena.len()
    }

    /// Returns whether one more batch of `operation` may be sent.
    pub fn has_free_slot(&self, operation: Operation) -> bool {
        let class = self.class(operation);
        self.len() < self.max && class.batches < class.limit()
    }

    fn find(&self, batch: BatchId) -> Option<Id<BatchMark>> {
        let id = Id::at(batch.slot);
        let known = self.arena.get(id)?;
        (known.serial == batch.serial).then_some(id)
    }
}

impl InFlightBatch {
    fn unended(&self, now: Duration) -> Option<Unended> {
        let elapsed = now.saturating_sub(self.started);
        Some(Unended { mark: self.mark?, entries: self.entries.len(), elapsed })
    }
}

impl ClassInFlight {
    /// Creates a class that may have `adaptive_max` batches if the dispatch policy adapts.
    fn new(settings: &QueueSettings, adaptive_max: usize) -> Self {
        let limit = match settings.dispatch {
            DispatchPolicy::Adaptive => Limit::Adaptive(Box::new(Limiter::new(adaptive_max))),
            DispatchPolicy::Eager | DispatchPolicy::Window { .. } | DispatchPolicy::Immediate => {
                Limit::Fixed(settings.batches_in_flight_max)
            }
        };
        Self { batches: 0, entries: 0, limit }
    }

    /// Returns the number of entries of all batches, answered or not.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Returns the number of batches that may be in flight now.
    pub fn limit(&self) -> usize {
        match &self.limit {
            Limit::Fixed(limit) => *limit,
            Limit::Adaptive(limiter) => limiter.limit(),
        }
    }

    fn send(&mut self, now: Duration, entries: usize, sent: Sent) -> Option<SentMark> {
        self.batches += 1;
        let entries_before = self.entries;
        self.entries += entries;
        match &mut self.limit {
            Limit::Fixed(_) => None,
            Limit::Adaptive(limiter) => {
                limiter.advance(now, entries_before);
                Some(limiter.sent(self.batches, sent))
            }
        }
    }

    fn end(
        &mut self,
        batch: &InFlightBatch,
        now: Duration,
        end: BatchEnd,
        unended: impl Iterator<Item = Unended>,
    ) {
        self.batches -= 1;
        let entries_before = self.entries;
        self.entries -= batch.entries.len();
        let (Limit::Adaptive(limiter), Some(mark)) = (&mut self.limit, batch.mark) else {
            return;
        };
        limiter.advance(now, entries_before);
        match end {
            BatchEnd::Served => {
                let took = now.saturating_sub(batch.started);
                let entries = batch.entries.len();
                let measured = Measured { entries, waited: batch.waited, took };
                limiter.ended(now, mark, measured, unended);
            }
            BatchEnd::Unsettled => limiter.unsettled(),
            BatchEnd::Failed => {}
            BatchEnd::Overloaded => limiter.overloaded(mark),
        }
    }
}
