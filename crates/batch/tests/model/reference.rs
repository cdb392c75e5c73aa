//! The rules of the queue in their plainest form: one list of entries, searched from the start each
//! time.

use std::collections::BTreeMap;
use std::time::Duration;

use busload_batch::limits::{BATCH_SHARE_MIN, KIND_SEARCH_BATCHES, REQUEST_OVERHEAD_BYTES};
use busload_batch::{
    DispatchPolicy, Operation, QueueSettings, QueueStats, Refusal, Sharing, Stage, Write,
};

use crate::change::Change;

pub type Key = u8;

pub struct Reference {
    pub settings: QueueSettings,
    pub now: Duration,
    /// Pending entries and entries in flight, in order of arrival.
    entries: Vec<Entry>,
    batches: Vec<Batch>,
    /// Batch and index with which each key was last sent.
    last_seats: BTreeMap<Key, Seat>,
    turns: usize,
}

struct Entry {
    key: Key,
    key_bytes: usize,
    change: Option<Change>,
    waiters: Vec<Waiter>,
    /// Number of waiters that left while it was in flight and count until it is finished.
    left_counted: usize,
    place: Place,
}

struct Waiter {
    request: usize,
    deadline: Option<Duration>,
    /// True if the request joined when the entry was in flight.
    joined_in_flight: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Blocked,
    Queued { turn: usize, since: Duration },
    InFlight(Seat),
}

/// Batch of an entry and its index in it. Batches are numbered in the order they are sent.
#[derive(Clone, Copy, PartialEq)]
struct Seat {
    batch: usize,
    index: usize,
}

struct Batch {
    batch: usize,
    operation: Operation,
    keys: Vec<Key>,
}

/// Expected batch: keys in order, with their writes.
pub type Expected = Vec<(Key, Option<Change>)>;

/// A request that was just made.
#[derive(Debug, Clone)]
pub struct Request {
    pub number: usize,
    pub key: Key,
    pub key_bytes: usize,
    pub change: Option<Change>,
    pub deadline: Option<Duration>,
}

impl Reference {
    pub fn new(settings: QueueSettings) -> Self {
        let (entries, batches, last_seats) = Default::default();
        Reference { settings, now: Duration::ZERO, entries, batches, last_seats, turns: 0 }
    }

    pub fn ask(&mut self, request: Request) -> Result<(), Refusal> {
        self.admit(&request)?;
        let Request { number, key, key_bytes, change, deadline } = request;
        let joined = self.find_entry(key, change.as_ref());
        let joined_in_flight = joined.is_some_and(|index| self.entries[index].in_flight());
        let waiter = Waiter { request: number, deadline, joined_in_flight };
        let Some(index) = joined else {
            self.entries.push(Entry {
                key,
                key_bytes,
                change,
                waiters: vec![waiter],
                left_counted: 0,
                place: Place::Blocked,
            });
            self.let_queue(key);
            return Ok(());
        };
        let entry = &mut self.entries[index];
        entry.waiters.push(waiter);
        if let (Some(earlier), Some(later)) = (&mut entry.change, change) {
            earlier.merge(later).expect("find_entry has tried it");
        }
        Ok(())
    }

    /// Cancels a request. Returns how far it had come, if it was there.
    pub fn leave(&mut self, request: usize) -> Option<(Stage, Operation)> {
        let has = |entry: &Entry| entry.waiters.iter().any(|waiter| waiter.request == request);
        let index = self.entries.iter().position(has)?;
        let entry = &mut self.entries[index];
        entry.waiters.retain(|waiter| waiter.request != request);
        let operation = entry.operation();
        let stage = match entry.in_flight() {
            true => {
                entry.left_counted +=
                    usize::from(self.settings.dispatch == DispatchPolicy::Immediate);
                Stage::InFlight
            }
            false if operation == Operation::Write && !entry.waiters.is_empty() => Stage::Merged,
            false => Stage::Waiting,
        };
        if stage != Stage::InFlight && entry.waiters.is_empty() {
            let key = self.entries.remove(index).key;
            self.let_queue(key);
        }
        Some((stage, operation))
    }

    pub fn expire(&mut self) -> Vec<(usize, Stage, Operation)> {
        let mut late: Vec<_> =
            self.deadlines().filter(|(deadline, _)| *deadline <= self.now).collect();
        late.sort();
        let leave = |(_, request)| {
            let (stage, operation) = self.leave(request).expect("it is there");
            (request, stage, operation)
        };
        late.into_iter().map(leave).collect()
    }

    pub fn take_waiting(&mut self) -> Vec<usize> {
        let (in_flight, waiting) =
            std::mem::take(&mut self.entries).into_iter().partition(Entry::in_flight);
        self.entries = in_flight;
        let waiting: Vec<Entry> = waiting;
        let mut requests: Vec<usize> = waiting.iter().flat_map(Entry::requests).collect();
        requests.sort_unstable();
        requests
    }

    pub fn next_batch(&mut self, batch: usize, stats: &QueueStats) -> Option<Expected> {
        let due = self.queues(stats).into_iter().filter(|queue| self.due(queue) <= self.now);
        let queue = due.min_by_key(|queue| self.turn(queue[0]))?;
        let mut leaving = self.pick(&queue, stats);
        let keys_by_turn: Vec<Key> = leaving.iter().map(|entry| self.entries[*entry].key).collect();
        leaving.sort_by_key(|entry| self.entries[*entry].key);
        for (index, entry) in leaving.iter().enumerate() {
            let entry = &mut self.entries[*entry];
            entry.place = Place::InFlight(Seat { batch, index });
            self.last_seats.insert(entry.key, Seat { batch, index });
        }
        keys_by_turn.into_iter().for_each(|key| self.let_queue(key));
        let operation = self.entries[leaving[0]].operation();
        let left = leaving.iter().map(|entry| &self.entries[*entry]);
        let entries: Expected = left.map(|entry| (entry.key, entry.change.clone())).collect();
        self.batches.push(Batch {
            batch,
            operation,
            keys: entries.iter().map(|(key, _)| *key).collect(),
        });
        Some(entries)
    }

    /// Returns the requests that one entry of a batch answers.
    pub fn answer(&mut self, batch: usize, index: usize) -> Vec<usize> {
        let seat = Place::InFlight(Seat { batch, index });
        let Some(entry) = self.entries.iter().position(|entry| entry.place == seat) else {
            return Vec::new();
        };
        let entry = self.entries.remove(entry);
        self.let_queue(entry.key);
        entry.requests().collect()
    }

    /// Returns the requests that were not answered, with the index of their entry.
    pub fn end(&mut self, batch: usize) -> Vec<(usize, usize)> {
        let Some(place) = self.batches.iter().position(|other| other.batch == batch) else {
            return Vec::new();
        };
        let ended = self.batches.remove(place);
        let mut rest = Vec::new();
        for index in 0..ended.keys.len() {
            rest.extend(self.answer(batch, index).into_iter().map(|request| (index, request)));
        }
        rest
    }

    pub fn next_wake(&self, stats: &QueueStats) -> Option<Duration> {
        let queues = self.queues(stats);
        let dispatches = queues.iter().map(|queue| self.due(queue));
        dispatches.chain(self.deadlines().map(|(deadline, _)| deadline)).min()
    }

    pub fn requests(&self) -> usize {
        let until_answer = self.settings.dispatch == DispatchPolicy::Immediate;
        let counted = |entry: &Entry| {
            let waiters = entry.waiters.iter();
            let counts =
                |waiter: &&Waiter| until_answer || !entry.in_flight() || waiter.joined_in_flight;
            waiters.filter(counts).count() + entry.left_counted
        };
        self.entries.iter().map(counted).sum()
    }

    pub fn bytes(&self) -> usize {
        let waiting = self.entries.iter().filter(|entry| !entry.in_flight());
        waiting.map(Entry::bytes).sum::<usize>() + self.requests() * REQUEST_OVERHEAD_BYTES
    }

    /// Returns whether a request waits for an entry of the batch.
    pub fn is_awaited(&self, batch: usize) -> bool {
        let of_batch =
            |entry: &&Entry| matches!(entry.place, Place::InFlight(seat) if seat.batch == batch);
        self.entries.iter().filter(of_batch).any(|entry| !entry.waiters.is_empty())
    }

    pub fn batches_in_flight(&self) -> usize {
        self.batches.len()
    }

    fn admit(&self, request: &Request) -> Result<(), Refusal> {
        let QueueSettings { requests_max, bytes_max, .. } = self.settings;
        let write = request.change.as_ref().map_or(0, Change::bytes);
        let bytes = request.key_bytes + write + REQUEST_OVERHEAD_BYTES;
        if bytes_max < bytes {
            return Err(Refusal::TooLarge { bytes, bytes_max });
        }
        if requests_max < self.requests() + 1 || bytes_max < self.bytes() + bytes {
            return Err(Refusal::Full { requests_max, bytes_max });
        }
        Ok(())
    }

    /// Returns the entry that a request joins: the last of its key, if that accepts it.
    fn find_entry(&self, key: Key, change: Option<&Change>) -> Option<usize> {
        let of_key = |index: &usize| self.entries[*index].key == key;
        let waits = |index: &usize| !self.entries[*index].in_flight();
        let mut all = (0..self.entries.len()).filter(of_key);
        if let Some(last) = all.clone().rfind(waits) {
            let takes = match (&self.entries[last].change, change) {
                (None, None) => true,
                (Some(earlier), Some(later)) => earlier.clone().merge(later.clone()).is_ok(),
                _ => false,
            };
            return takes.then_some(last);
        }
        if change.is_some() || self.settings.sharing == Sharing::Waiting {
            return None;
        }
        // The read of the key that was sent last, if it is still in flight.
        all.find(|index| self.entries[*index].change.is_none() && self.left_last(*index))
    }

    fn left_last(&self, index: usize) -> bool {
        let Entry { key, place, .. } = &self.entries[index];
        self.last_seats.get(key).is_some_and(|seat| *place == Place::InFlight(*seat))
    }

    /// Updates `key` after an event: queues its first pending entry if no earlier one blocks it.
    fn let_queue(&mut self, key: Key) {
        let of_key = self.entries.iter_mut().filter(|entry| entry.key == key);
        let (in_flight, mut waiting): (Vec<_>, Vec<_>) =
            of_key.partition(|entry| entry.in_flight());
        let Some(first) = waiting.first_mut() else { return };
        let beside_reads =
            first.change.is_none() && in_flight.iter().all(|entry| entry.change.is_none());
        if first.place == Place::Blocked && (in_flight.is_empty() || beside_reads) {
            self.turns += 1;
            first.place = Place::Queued { turn: self.turns, since: self.now };
        }
    }

    /// Returns the entries that could be sent now: reads, and writes, each if they have a free
    /// slot. No queue is empty, and each is in the order of sending.
    fn queues(&self, stats: &QueueStats) -> Vec<Vec<usize>> {
        if self.batches.len() == self.settings.batches_in_flight_max {
            return Vec::new();
        }
        let has_slot = |operation: &Operation| {
            self.of(*operation).count() < stats.class(*operation).batches_in_flight_limit
        };
        let operations = [Operation::Read, Operation::Write].into_iter().filter(has_slot);
        let queues = operations.map(|operation| self.queue(operation));
        queues.filter(|queue| !queue.is_empty()).collect()
    }

    /// Returns the entries of `operation` that can be sent.
    fn queue(&self, operation: Operation) -> Vec<usize> {
        let of_class =
            (0..self.entries.len()).filter(|index| self.entries[*index].operation() == operation);
        let mut queue: Vec<usize> = of_class.filter(|index| self.turn(*index).is_some()).collect();
        queue.sort_by_key(|index| self.turn(*index));
        queue
    }

    /// Returns the batches in flight of `operation`.
    fn of(&self, operation: Operation) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(move |batch| batch.operation == operation)
    }

    fn turn(&self, index: usize) -> Option<(usize, Duration)> {
        match self.entries[index].place {
            Place::Queued { turn, since } => Some((turn, since)),
            Place::Blocked | Place::InFlight(_) => None,
        }
    }

    /// Returns when a queue is due.
    fn due(&self, queue: &[usize]) -> Duration {
        let (_, since) = self.turn(queue[0]).expect("it queues");
        let bytes: usize = queue.iter().map(|index| self.entries[*index].bytes()).sum();
        let full = self.settings.batch_bytes_max <= bytes;
        match self.settings.dispatch {
            DispatchPolicy::Window { entries, .. } if full || entries <= queue.len() => since,
            DispatchPolicy::Window { wait, .. } => since + wait,
            DispatchPolicy::Adaptive | DispatchPolicy::Eager | DispatchPolicy::Immediate => since,
        }
    }

    /// Returns the entries of a queue that go together.
    fn pick(&self, queue: &[usize], stats: &QueueStats) -> Vec<usize> {
        let operation = self.entries[queue[0]].operation();
        let under_way = self.of(operation).map(|batch| batch.keys.len()).sum::<usize>();
        let slots = (stats.class(operation).batches_in_flight_limit - 1).max(1);
        let entries_max = match self.settings.dispatch {
            DispatchPolicy::Adaptive | DispatchPolicy::Eager => {
                let share = (queue.len() + under_way).div_ceil(slots).max(BATCH_SHARE_MIN);
                share.min(self.settings.batch_entries_max)
            }
            DispatchPolicy::Immediate => self.settings.batch_entries_max,
            DispatchPolicy::Window { entries, .. } => entries,
        };
        let kind = |index: &usize| self.entries[*index].change.as_ref().map(Change::kind);
        let mut leaving = Vec::new();
        let mut bytes = 0;
        let mut others = 0;
        for index in queue {
            if kind(index) != kind(&queue[0]) {
                others += 1;
                if others == entries_max * KIND_SEARCH_BATCHES {
                    break;
                }
                continue;
            }
            bytes += self.entries[*index].bytes();
            let too_large = !leaving.is_empty() && self.settings.batch_bytes_max < bytes;
            if too_large || leaving.len() == entries_max {
                break;
            }
            leaving.push(*index);
        }
        leaving
    }

    fn deadlines(&self) -> impl Iterator<Item = (Duration, usize)> {
        let waiters = self.entries.iter().flat_map(|entry| &entry.waiters);
        waiters.filter_map(|waiter| Some((waiter.deadline?, waiter.request)))
    }
}

impl Entry {
    fn in_flight(&self) -> bool {
        matches!(self.place, Place::InFlight(_))
    }

    fn operation(&self) -> Operation {
        if self.change.is_some() { Operation::Write } else { Operation::Read }
    }

    fn requests(&self) -> impl Iterator<Item = usize> {
        self.waiters.iter().map(|waiter| waiter.request)
    }

    fn bytes(&self) -> usize {
        self.key_bytes + self.change.as_ref().map_or(0, Change::bytes)
    }
}
