//! Entries that can be sent, and when they are due.
//!
//! Reads have one queue, and each write partition has its own. An entry joins the back of its queue
//! when no earlier operation on its key is unfinished, so the front of a queue is the entry that
//! could be sent for longest.

use std::time::Duration;

use super::entry::{Class, Entries, EntryId, EntryMark, EntryState, Turn};
use super::in_flight::InFlightBatches;
use super::list::List;
use crate::settings::{DispatchPolicy, QueueSettings};
use crate::stats::QueueStats;

/// Queues of all classes.
pub(super) struct Queues {
    reads: Queue,
    write_partitions: Vec<Partition>,
    dispatch: DispatchPolicy,
    batch_bytes_max: usize,
    turns: u64,
}

/// Entries of one class that can be sent.
struct Queue {
    entries: List<EntryMark>,
    bytes: usize,
}

struct Partition {
    queue: Queue,
    in_flight: PartitionState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PartitionState {
    Free,
    Busy,
}

/// A queue that is not empty, and when it is due.
struct Candidate {
    class: Class,
    turn: u64,
    due: Duration,
}

/// Inputs of the dispatch policy besides the queues.
pub(super) struct Traffic<'a> {
    pub in_flight_batches: &'a InFlightBatches,
    pub stats: &'a QueueStats,
}

impl Queues {
    pub fn new(settings: &QueueSettings) -> Self {
        Self {
            reads: Queue::new(),
            write_partitions: (0..settings.write_partitions)
                .map(|_| Partition { queue: Queue::new(), in_flight: PartitionState::Free })
                .collect(),
            dispatch: settings.dispatch,
            batch_bytes_max: settings.batch_bytes_max,
            turns: 0,
        }
    }

    /// Returns the class of a write of a key with this hash.
    pub fn class_of_write(&self, hash: u64) -> Class {
        let partition = hash % self.write_partitions.len() as u64;
        Class::Write {
            partition: usize::try_from(partition).expect("a partition's number is a small one"),
        }
    }

    /// Queues `id` from now on.
    #[inline]
    pub fn push<T>(&mut self, entries: &mut Entries<T>, id: EntryId, since: Duration) {
        self.turns += 1;
        let entry = &mut entries[id];
        entry.state = EntryState::Queued(Turn { number: self.turns, since });
        let bytes = entry.size.bytes();
        let queue = self.queue_mut(entries[id].class);
        queue.bytes += bytes;
        queue.entries.push(entries, id, |entry| &mut entry.of_queue);
    }

    /// Takes `id` out of its queue.
    #[inline]
    pub fn remove<T>(&mut self, entries: &mut Entries<T>, id: EntryId) {
        let (class, bytes) = (entries[id].class, entries[id].size.bytes());
        let queue = self.queue_mut(class);
        queue.bytes -= bytes;
        queue.entries.unlink(entries, id, |entry| &mut entry.of_queue);
    }

    /// Accounts for a queued entry that has changed its size.
    pub fn resize(&mut self, class: Class, before: usize, after: usize) {
        let queue = self.queue_mut(class);
        queue.bytes = queue.bytes - before + after;
    }

    fn queue_mut(&mut self, class: Class) -> &mut Queue {
        match class {
            Class::Read => &mut self.reads,
            Class::Write { partition } => &mut self.write_partitions[partition].queue,
        }
    }

    /// Returns whether no entry could be sent, in time.
    pub fn is_empty(&self) -> bool {
        let has_entries = |queue: &Queue| queue.entries.len() != 0;
        !has_entries(&self.reads)
            && !self.write_partitions.iter().any(|partition| has_entries(&partition.queue))
    }

    /// Returns the number of queued reads.
    pub fn reads_len(&self) -> usize {
        self.reads.entries.len()
    }

    /// Returns the entry of `class` that could be sent for longest.
    pub fn first(&self, class: Class) -> Option<EntryId> {
        match class {
            Class::Read => self.reads.entries.first(),
            Class::Write { partition } => self.write_partitions[partition].queue.entries.first(),
        }
    }

    /// Marks the partition of `class` busy, after one of its batches was sent.
    pub fn set_busy(&mut self, class: Class) {
        self.set_partition(class, PartitionState::Busy);
    }

    /// Marks the partition of `class` free, after its batch has ended.
    pub fn set_free(&mut self, class: Class) {
        self.set_partition(class, PartitionState::Free);
    }

    /// Returns the class whose batch goes next: of those that are due, the one whose first entry
    /// could be sent for longest.
    pub fn next_due<T>(
        &self,
        entries: &Entries<T>,
        traffic: &Traffic<'_>,
        now: Duration,
    ) -> Option<Class> {
        let due = self.candidates(entries, traffic).filter(|candidate| candidate.due <= now);
        due.min_by_key(|candidate| candidate.turn).map(|candidate| candidate.class)
    }

    /// Returns when the first queue is due.
    pub fn first_due<T>(&self, entries: &Entries<T>, traffic: &Traffic<'_>) -> Option<Duration> {
        self.candidates(entries, traffic).map(|candidate| candidate.due).min()
    }

    fn candidates<T>(
        &self,
        entries: &Entries<T>,
        traffic: &Traffic<'_>,
    ) -> impl Iterator<Item = Candidate> {
        let write_partitions = self.write_partitions.iter().enumerate();
        let free =
            write_partitions.filter(|(_, partition)| partition.in_flight == PartitionState::Free);
        let writes =
            free.map(|(number, partition)| (Class::Write { partition: number }, &partition.queue));
        std::iter::once((Class::Read, &self.reads))
            .chain(writes)
            .filter_map(|(class, queue)| self.candidate(entries, traffic, class, queue))
    }

    fn candidate<T>(
        &self,
        entries: &Entries<T>,
        traffic: &Traffic<'_>,
        class: Class,
        queue: &Queue,
    ) -> Option<Candidate> {
        let EntryState::Queued(turn) = entries[queue.entries.first()?].state else { return None };
        let due = turn.since.saturating_add(self.hold(traffic, class, queue));
        Some(Candidate { class, turn: turn.number, due })
    }

    /// Returns how long the first entry of a queue waits for more entries.
    fn hold(&self, traffic: &Traffic<'_>, class: Class, queue: &Queue) -> Duration {
        let (_, enough) = self.dispatch.entries();
        if enough <= queue.entries.len() || self.batch_bytes_max <= queue.bytes {
            return Duration::ZERO;
        }
        match self.dispatch {
            DispatchPolicy::Immediate => Duration::ZERO,
            DispatchPolicy::Window { wait, .. } => wait,
            DispatchPolicy::WhenFree { .. }
                if traffic.in_flight_batches.count(class.operation()) == 0 =>
            {
                Duration::ZERO
            }
            DispatchPolicy::WhenFree { .. } => traffic.stats.class(class.operation()).hold(),
        }
    }

    fn set_partition(&mut self, class: Class, state: PartitionState) {
        if let Class::Write { partition } = class {
            self.write_partitions[partition].in_flight = state;
        }
    }
}

impl Queue {
    fn new() -> Self {
        Self { entries: List::new(), bytes: 0 }
    }
}
