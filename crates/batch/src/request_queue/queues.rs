//! Entries that can be sent, and when they are due.
//!
//! Reads have one queue, writes another. An entry joins the back of its queue when no earlier
//! operation on its key is unfinished, so the front of a queue is the entry that could be sent for
//! longest.

use std::time::Duration;

use super::entry::{Entries, EntryId, EntryMark, EntryState, Turn};
use super::in_flight::InFlightBatches;
use super::list::List;
use crate::request::Operation;
use crate::settings::{DispatchPolicy, QueueSettings};

/// Queues of both classes.
pub(super) struct Queues {
    reads: Queue,
    writes: Queue,
    dispatch: DispatchPolicy,
    batch_bytes_max: usize,
    turns: u64,
}

/// Entries of one class that can be sent.
struct Queue {
    entries: List<EntryMark>,
    bytes: usize,
}

/// A queue that is not empty and has a free slot, and when it is due.
struct Candidate {
    operation: Operation,
    turn: u64,
    due: Duration,
}

impl Queues {
    pub fn new(settings: &QueueSettings) -> Self {
        Self {
            reads: Queue::new(),
            writes: Queue::new(),
            dispatch: settings.dispatch,
            batch_bytes_max: settings.batch_bytes_max,
            turns: 0,
        }
    }

    /// Queues `id` from now on.
    #[inline]
    pub fn push<T>(&mut self, entries: &mut Entries<T>, id: EntryId, since: Duration) {
        self.turns += 1;
        let entry = &mut entries[id];
        entry.state = EntryState::Queued(Turn { number: self.turns, since });
        let bytes = entry.size.bytes();
        let queue = self.queue_mut(entries[id].operation);
        queue.bytes += bytes;
        queue.entries.push(entries, id, |entry| &mut entry.of_queue);
    }

    /// Takes `id` out of its queue.
    #[inline]
    pub fn remove<T>(&mut self, entries: &mut Entries<T>, id: EntryId) {
        let (operation, bytes) = (entries[id].operation, entries[id].size.bytes());
        let queue = self.queue_mut(operation);
        queue.bytes -= bytes;
        queue.entries.unlink(entries, id, |entry| &mut entry.of_queue);
    }

    /// Accounts for a queued entry that has changed its size.
    pub fn resize(&mut self, operation: Operation, before: usize, after: usize) {
        let queue = self.queue_mut(operation);
        queue.bytes = queue.bytes - before + after;
    }

    /// Returns whether no entry could be sent, in time.
    pub fn is_empty(&self) -> bool {
        self.len(Operation::Read) == 0 && self.len(Operation::Write) == 0
    }

    /// Returns the number of queued entries of `operation`.
    pub fn len(&self, operation: Operation) -> usize {
        self.queue(operation).entries.len()
    }

    /// Returns the entry of `operation` that could be sent for longest.
    pub fn first(&self, operation: Operation) -> Option<EntryId> {
        self.queue(operation).entries.first()
    }

    /// Returns the class whose batch goes next: of those that are due and have a free slot, the one
    /// whose first entry could be sent for longest.
    pub fn next_due<T>(
        &self,
        entries: &Entries<T>,
        in_flight: &InFlightBatches,
        now: Duration,
    ) -> Option<Operation> {
        let due = self.candidates(entries, in_flight).filter(|candidate| candidate.due <= now);
        due.min_by_key(|candidate| candidate.turn).map(|candidate| candidate.operation)
    }

    /// Returns when the first queue is due that has a free slot.
    pub fn first_due<T>(
        &self,
        entries: &Entries<T>,
        in_flight: &InFlightBatches,
    ) -> Option<Duration> {
        self.candidates(entries, in_flight).map(|candidate| candidate.due).min()
    }

    fn candidates<T>(
        &self,
        entries: &Entries<T>,
        in_flight: &InFlightBatches,
    ) -> impl Iterator<Item = Candidate> {
        [Operation::Read, Operation::Write]
            .into_iter()
            .filter(|operation| in_flight.has_free_slot(*operation))
            .filter_map(|operation| self.candidate(entries, operation))
    }

    fn candidate<T>(&self, entries: &Entries<T>, operation: Operation) -> Option<Candidate> {
        let EntryState::Queued(turn) = entries[self.first(operation)?].state else { return None };
        let due = turn.since.saturating_add(self.window(operation));
        Some(Candidate { operation, turn: turn.number, due })
    }

    /// Returns how long the first entry of a queue waits for more entries.
    fn window(&self, operation: Operation) -> Duration {
        let queue = self.queue(operation);
        match self.dispatch {
            DispatchPolicy::Window { entries, wait }
                if queue.entries.len() < entries && queue.bytes < self.batch_bytes_max =>
            {
                wait
            }
            DispatchPolicy::Window { .. }
            | DispatchPolicy::Adaptive
            | DispatchPolicy::Eager
            | DispatchPolicy::Immediate => Duration::ZERO,
        }
    }

    fn queue(&self, operation: Operation) -> &Queue {
        match operation {
            Operation::Read => &self.reads,
            Operation::Write => &self.writes,
        }
    }

    fn queue_mut(&mut self, operation: Operation) -> &mut Queue {
        match operation {
            Operation::Read => &mut self.reads,
            Operation::Write => &mut self.writes,
        }
    }
}

impl Queue {
    fn new() -> Self {
        Self { entries: List::new(), bytes: 0 }
    }
}
