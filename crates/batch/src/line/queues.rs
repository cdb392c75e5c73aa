//! Entries that can be sent, and when they are due.
//!
//! Reads have one queue, and each write partition has its own. An entry joins the back of its queue
//! when no earlier operation on its key is unfinished, so the front of a queue is the entry that
//! could be sent for longest.

use std::time::Duration;

use super::entry::{Class, Entries, EntryId, EntryMark, Place, Turn};
use super::list::List;
use super::trips::Trips;
use crate::settings::{Departure, LineSettings};
use crate::stats::LineStats;

/// Queues of all classes.
pub(super) struct Queues {
    reads: Queue,
    lanes: Vec<Lane>,
    departure: Departure,
    batch_bytes_max: usize,
    turns: u64,
}

/// Entries of one class that can be sent.
struct Queue {
    entries: List<EntryMark>,
    bytes: usize,
}

struct Lane {
    queue: Queue,
    in_flight: LaneState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LaneState {
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
    pub trips: &'a Trips,
    pub stats: &'a LineStats,
}

impl Queues {
    pub fn new(settings: &LineSettings) -> Self {
        Self {
            reads: Queue::new(),
            lanes: (0..settings.lanes)
                .map(|_| Lane { queue: Queue::new(), in_flight: LaneState::Free })
                .collect(),
            departure: settings.departure,
            batch_bytes_max: settings.batch_bytes_max,
            turns: 0,
        }
    }

    /// Returns the class of a write of a key with this hash.
    pub fn class_of_write(&self, hash: u64) -> Class {
        let lane = hash % self.lanes.len() as u64;
        Class::Write { lane: usize::try_from(lane).expect("a partition's number is a small one") }
    }

    /// Queues `id` from now on.
    #[inline]
    pub fn push<T>(&mut self, entries: &mut Entries<T>, id: EntryId, since: Duration) {
        self.turns += 1;
        let entry = &mut entries[id];
        entry.place = Place::Queued(Turn { number: self.turns, since });
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
            Class::Write { lane } => &mut self.lanes[lane].queue,
        }
    }

    /// Returns the number of queued reads.
    pub fn reads_len(&self) -> usize {
        self.reads.entries.len()
    }

    /// Returns the entry of `class` that could be sent for longest.
    pub fn first(&self, class: Class) -> Option<EntryId> {
        match class {
            Class::Read => self.reads.entries.first(),
            Class::Write { lane } => self.lanes[lane].queue.entries.first(),
        }
    }

    /// Marks the partition of `class` busy, after one of its batches was sent.
    pub fn set_busy(&mut self, class: Class) {
        self.set_lane(class, LaneState::Busy);
    }

    /// Marks the partition of `class` free, after its batch has ended.
    pub fn set_free(&mut self, class: Class) {
        self.set_lane(class, LaneState::Free);
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
        let lanes = self.lanes.iter().enumerate();
        let free = lanes.filter(|(_, lane)| lane.in_flight == LaneState::Free);
        let writes = free.map(|(number, lane)| (Class::Write { lane: number }, &lane.queue));
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
        let Place::Queued(turn) = entries[queue.entries.first()?].place else { return None };
        let due = turn.since.saturating_add(self.hold(traffic, class, queue));
        Some(Candidate { class, turn: turn.number, due })
    }

    /// Returns how long the first entry of a queue waits for more entries.
    fn hold(&self, traffic: &Traffic<'_>, class: Class, queue: &Queue) -> Duration {
        let (_, enough) = self.departure.entries();
        if enough <= queue.entries.len() || self.batch_bytes_max <= queue.bytes {
            return Duration::ZERO;
        }
        match self.departure {
            Departure::Window { wait, .. } => wait,
            Departure::WhenFree { .. } if traffic.trips.count(class.operation()) == 0 => {
                Duration::ZERO
            }
            Departure::WhenFree { .. } => traffic.stats.class(class.operation()).hold(),
        }
    }

    fn set_lane(&mut self, class: Class, state: LaneState) {
        if let Class::Write { lane } = class {
            self.lanes[lane].in_flight = state;
        }
    }
}

impl Queue {
    fn new() -> Self {
        Self { entries: List::new(), bytes: 0 }
    }
}
