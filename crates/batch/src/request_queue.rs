//! The request queue: the core of this crate. It does no IO and has no clock; its caller passes the
//! time.
//!
//! ```text
//!   Keys:    hash table -> the key's entry in flight, and its pending entries in order of arrival
//!   Entries: one key, read or written once; in its key's list, and, when no earlier operation
//!            on its key is unfinished, also in a queue
//!   Waiters: the callers; in the list of their entry
//!   Queues:  reads and writes: entries that can be sent
//!   InFlightBatches: batches in flight, with their entries, and the limits of their number
//! ```
//!
//! Each of them is an arena with lists through it, so adding, merging, cancelling, sending and
//! answering cost O(1).

mod arena;
mod arrival;
mod deadlines;
mod dispatch;
mod drain;
mod entry;
mod in_flight;
mod keys;
mod list;
mod marks;
mod pending;
mod queues;
mod waiters;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use entry::{Entries, EntryId, EntryState, Size};
use in_flight::InFlightBatches;
use keys::Keys;
use pending::Pending;
use queues::Queues;
use waiters::Waiters;

use crate::batch::{BatchEnd, BatchId, EntryBatch};
use crate::request::{Answered, Late, Operation, Refusal, Refused, RequestId, RequestOptions};
use crate::settings::{QueueSettings, SettingsError};
use crate::stats::{QueueLatencies, QueueStats};
use crate::write::Write;

/// A request queue: it takes single-key requests, gives out batches, and returns waiters with their
/// answers.
///
/// `K` is the key, `T` the write ([`NoWrites`](crate::NoWrites) if there are none), `W` identifies
/// the waiting caller. [The crate](crate) describes the rules.
///
/// `now` is the time on any clock that does not go back, the same for all calls. If it does go
/// back, the queue keeps the latest time it was given.
pub struct RequestQueue<K, T: Write, W> {
    settings: QueueSettings,
    stats: QueueStats,
    latencies: Arc<QueueLatencies>,
    now: Duration,
    pending: Pending,
    keys: Keys<K>,
    entries: Entries<T>,
    waiters: Waiters<W, T::Receipt>,
    queues: Queues,
    in_flight_batches: InFlightBatches,
    /// Reused buffer: the entries of a batch before they are sorted by key.
    picked: Vec<(K, EntryId)>,
}

impl<K: Clone + Eq + Hash + Ord, T: Write, W> RequestQueue<K, T, W> {
    /// Creates an empty queue.
    pub fn new(settings: QueueSettings) -> Result<Self, SettingsError> {
        Self::with_seed(settings, RandomState::new().hash_one(0_u64))
    }

    /// Creates an empty queue that hashes keys with `seed`.
    ///
    /// This is for simulations that must be reproducible. If others know the seed, they can choose
    /// keys that collide.
    pub fn with_seed(settings: QueueSettings, seed: u64) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self {
            stats: QueueStats::default(),
            latencies: Arc::default(),
            now: Duration::ZERO,
            pending: Pending::new(&settings),
            keys: Keys::new(seed),
            entries: Entries::new(),
            waiters: Waiters::new(),
            queues: Queues::new(&settings),
            in_flight_batches: InFlightBatches::new(&settings),
            picked: Vec::new(),
            settings,
        })
    }

    /// Adds a read of `key`. It sees every write of the key that arrived before it, and none that
    /// arrives after it.
    pub fn submit_load(
        &mut self,
        now: Duration,
        key: K,
        waiter: W,
        options: RequestOptions,
    ) -> Result<RequestId, Refused<W>> {
        self.advance(now);
        let size = Size::of_read(options.bytes);
        if let Err(reason) = self.pending.admit(size) {
            return Err(self.refuse(waiter, reason));
        }
        let key = self.keys.find_or_insert(key);
        let entry = self.entry_to_read(key, size);
        Ok(self.attach(entry, waiter, None, options.deadline))
    }

    /// Adds a write of `key`. It is merged into the key's last entry, if that is a pending write
    /// that accepts it.
    pub fn submit_store(
        &mut self,
        now: Duration,
        key: K,
        write: T,
        waiter: W,
        options: RequestOptions,
    ) -> Result<RequestId, Refused<W>> {
        self.advance(now);
        let size = Size { key: options.bytes, write: write.bytes() };
        if let Err(reason) = self.pending.admit(size) {
            return Err(self.refuse(waiter, reason));
        }
        let key = self.keys.find_or_insert(key);
        let (entry, receipt) = self.entry_to_write(key, write, size);
        Ok(self.attach(entry, waiter, Some(receipt), options.deadline))
    }

    /// Cancels `request` and returns its waiter, unless it was answered, cancelled or expired
    /// before.
    ///
    /// Other requests are not affected: an entry leaves the queue with its last waiter, and a batch
    /// in flight goes on. A pending write that was merged with others is made for them all the
    /// same.
    pub fn cancel(&mut self, request: RequestId) -> Option<W> {
        let id = self.waiters.find(request)?;
        self.stats.cancelled += 1;
        Some(self.detach(id).waiter)
    }

    /// Returns the next batch that is due, if there is one. Call it until there is none, after
    /// [`expire`](RequestQueue::expire).
    pub fn next_batch(&mut self, now: Duration) -> Option<EntryBatch<K, T>> {
        self.advance(now);
        let operation = self.queues.next_due(&self.entries, &self.in_flight_batches, self.now)?;
        Some(self.take_batch(operation))
    }

    /// Takes the waiters of one entry of a batch in flight, in order of arrival. The entry is done,
    /// and the entries that wait for it may go on. It takes no time argument: those entries can be
    /// sent since the latest time the queue was given.
    ///
    /// `entry` is the index in the batch. Nothing happens if it was answered before or the batch
    /// has ended.
    pub fn answer(
        &mut self,
        batch: BatchId,
        entry: usize,
        waiters: &mut Vec<Answered<W, T::Receipt>>,
    ) {
        if let Some(id) = self.in_flight_batches.take(batch, entry) {
            if !self.entries[id].waiters.is_empty() {
                self.in_flight_batches.release_entry(batch);
            }
            self.finish(id, |answered| waiters.push(answered));
        }
    }

    /// Returns the batch in flight that `request` is in, if it is and has no answer yet.
    pub fn batch_of(&self, request: RequestId) -> Option<BatchId> {
        let waiter = self.waiters.find(request)?;
        match self.entries[self.waiters.arena[waiter].entry].state {
            EntryState::InFlight(batch) => Some(batch),
            EntryState::Blocked | EntryState::Queued(_) => None,
        }
    }

    /// Returns whether any request still waits for `batch`: `false` once all its requests were
    /// answered, cancelled or expired, or it has ended.
    pub fn is_awaited(&self, batch: BatchId) -> bool {
        self.in_flight_batches.is_awaited(batch)
    }

    /// Ends a batch that the backend has served, and frees its slot.
    ///
    /// Waiters of entries that were not answered are returned with the entry's index, in order.
    /// Nothing happens if the batch has ended before.
    pub fn end(
        &mut self,
        now: Duration,
        batch: BatchId,
        rest: &mut Vec<(usize, Answered<W, T::Receipt>)>,
    ) {
        self.end_as(now, batch, BatchEnd::Served, rest);
    }

    /// Ends a batch as [`end`](Self::end) does, and says how: what a request costs is learned only
    /// from batches that were served.
    pub fn end_as(
        &mut self,
        now: Duration,
        batch: BatchId,
        end: BatchEnd,
        rest: &mut Vec<(usize, Answered<W, T::Receipt>)>,
    ) {
        self.advance(now);
        let Some(batch) = self.in_flight_batches.end(batch, self.now, end) else { return };
        self.stats.class_mut(batch.operation).batches_ended += 1;
        let served = self.now.saturating_sub(batch.started);
        self.latencies.class(batch.operation).served.record(served, batch.requests);
        for (index, entry) in batch.entries.into_iter().enumerate() {
            let Some(entry) = entry else { continue };
            self.finish(entry, |answered| rest.push((index, answered)));
        }
    }

    /// Takes the waiters whose deadline has passed, the most overdue first. For other requests this
    /// is the same as cancelling them.
    pub fn expire(&mut self, now: Duration, late: &mut Vec<Late<W>>) {
        self.advance(now);
        while let Some(id) = self.waiters.first_late(self.now) {
            self.stats.expired += 1;
            late.push(self.detach(id));
        }
    }

    /// Returns when [`next_batch`](RequestQueue::next_batch) or [`expire`](RequestQueue::expire)
    /// will next have something to do if nothing else is called before; `now` if they have already,
    /// `None` if never.
    pub fn next_wake(&self, now: Duration) -> Option<Duration> {
        let dispatch = self.queues.first_due(&self.entries, &self.in_flight_batches);
        let first = dispatch.into_iter().chain(self.waiters.first_deadline()).min()?;
        let due_already = first <= self.now.max(now);
        Some(if due_already { now } else { first })
    }

    /// Returns the queue's counters.
    pub fn stats(&self) -> QueueStats {
        let mut stats = self.stats;
        for operation in [Operation::Read, Operation::Write] {
            stats.class_mut(operation).batches_in_flight_limit =
                self.in_flight_batches.class(operation).limit();
        }
        stats
    }

    /// Returns how long requests waited and batches took, which can be read without the queue.
    pub fn latencies(&self) -> &Arc<QueueLatencies> {
        &self.latencies
    }

    /// Returns whether no request is pending and no batch is in flight.
    pub fn is_empty(&self) -> bool {
        self.keys.len() == 0 && self.in_flight_batches.len() == 0
    }

    /// Returns the number of pending requests; with [`Sharing::InFlight`](crate::Sharing::InFlight)
    /// also of those that joined an entry in flight, and with
    /// [`DispatchPolicy::Immediate`](crate::DispatchPolicy::Immediate) of all that are in flight.
    pub fn waiting(&self) -> usize {
        self.pending.requests
    }

    /// Returns whether an entry could be sent, at once or when it has waited long enough.
    pub fn has_queued(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Returns the pending bytes: keys, writes and
    /// [`REQUEST_OVERHEAD_BYTES`](crate::limits::REQUEST_OVERHEAD_BYTES) for each request.
    pub fn waiting_bytes(&self) -> usize {
        self.pending.bytes
    }

    /// Returns the number of batches in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight_batches.len()
    }

    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    fn refuse(&mut self, waiter: W, reason: Refusal) -> Refused<W> {
        self.stats.refused += 1;
        Refused { waiter, reason }
    }
}

impl<K, T: Write, W> fmt::Debug for RequestQueue<K, T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestQueue")
            .field("waiting", &self.pending.requests)
            .field("in_flight", &self.in_flight_batches.len())
            .field("settings", &self.settings)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
