//! Dispatch of entries, and the end of them and of their waiters.

use std::hash::Hash;
use std::time::Duration;

use super::RequestQueue;
use super::entry::{EntryId, EntryState};
use super::keys::KeyId;
use super::waiters::{Counted, WaiterId};
use crate::batch::{BatchId, Content, EntryBatch};
use crate::limiter::Sent;
use crate::limits::{BATCH_SHARE_MIN, KIND_SEARCH_BATCHES};
use crate::request::{Answered, Late, Operation, Stage};
use crate::settings::DispatchPolicy;
use crate::write::Write;

impl<K: Clone + Eq + Hash + Ord, T: Write, W> RequestQueue<K, T, W> {
    /// Takes a batch out of the queue of `operation`, which is not empty.
    pub(super) fn take_batch(&mut self, operation: Operation) -> EntryBatch<K, T> {
        let mut picked = std::mem::take(&mut self.picked);
        let id = self.in_flight_batches.start(operation, self.now);
        let (sent, requests) = self.pick(operation, id, &mut picked);
        let mut is_marked = false;
        for (_, id) in &picked {
            is_marked |= self.entries[*id].is_marked;
            self.settle(self.entries[*id].key);
        }
        picked.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let entries = picked.iter().map(|(_, entry)| *entry);
        self.in_flight_batches.fill(id, sent, requests, entries);
        if is_marked {
            self.in_flight_batches.mark(id);
        }
        self.stats.class_mut(operation).count_dispatch(picked.len());
        let content = self.content(operation, &mut picked);
        self.picked = picked;
        EntryBatch { id, content }
    }

    /// Finishes an entry in flight: its waiters get their answer, and entries that wait for it may
    /// go on.
    #[inline]
    pub(super) fn finish(&mut self, id: EntryId, mut answer: impl FnMut(Answered<W, T::Receipt>)) {
        let entry = self.entries.remove(id);
        self.pending.remove_requests(entry.cancelled_counted);
        let mut next = entry.waiters.first();
        while let Some(waiter) = next {
            let waiter = self.waiters.remove(waiter);
            next = waiter.of_entry.next();
            if waiter.counted == Counted::UntilAnswer {
                self.pending.remove_requests(1);
            }
            answer(waiter.answered);
        }
        let slot = &mut self.keys[entry.key];
        slot.in_flight = slot.in_flight.without(id);
        self.settle(entry.key);
    }

    /// Takes one waiter from its entry.
    pub(super) fn detach(&mut self, id: WaiterId) -> Late<W> {
        let entry_id = self.waiters.arena[id].entry;
        let entry = &mut self.entries[entry_id];
        entry.waiters.unlink(&mut self.waiters.arena, id, |waiter| &mut waiter.of_entry);
        let (operation, stage) = (entry.operation, entry.stage_after_leaving());
        let is_done = entry.waiters.is_empty()
            && match entry.state {
                EntryState::InFlight(batch) => {
                    self.in_flight_batches.release_entry(batch);
                    false
                }
                EntryState::Blocked | EntryState::Queued(_) => true,
            };
        let waiter = self.waiters.remove(id);
        if stage != Stage::InFlight {
            self.pending.remove_requests(1);
        } else if self.settings.dispatch == DispatchPolicy::Immediate {
            // The batch may go on for others, with this request's share of the work.
            self.entries[entry_id].cancelled_counted += 1;
        } else if waiter.counted == Counted::UntilAnswer {
            self.pending.remove_requests(1);
        }
        if is_done {
            self.drop_waiting(entry_id);
        }
        Late { waiter: waiter.answered.waiter, stage, operation }
    }

    /// Updates a key after one of its entries was added, sent or answered: queues its first pending
    /// entry if that can be sent now, and removes the key if it is idle.
    #[inline]
    pub(super) fn settle(&mut self, key: KeyId) {
        let slot = &self.keys[key];
        let Some(first) = slot.waiting.first() else {
            if slot.is_idle() {
                self.keys.remove(key);
            }
            return;
        };
        let entry = &self.entries[first];
        if entry.state == EntryState::Blocked && slot.may_dispatch(entry.operation) {
            self.queues.push(&mut self.entries, first, self.now);
        }
    }

    /// Moves entries from the queue of `operation` to `picked`: the first and those that may go
    /// with it. Returns also the number of their requests.
    fn pick(
        &mut self,
        operation: Operation,
        batch: BatchId,
        picked: &mut Vec<(K, EntryId)>,
    ) -> (Sent, u64) {
        let (takes_max, share) = (self.settings.batch_takes_max(), self.share(operation));
        let entries_max = takes_max.min(share.max(BATCH_SHARE_MIN));
        let mut waited = Duration::ZERO;
        let mut next = self.queues.first(operation);
        let kind = next.and_then(|first| self.kind(first));
        let mut others = entries_max.saturating_mul(KIND_SEARCH_BATCHES);
        let mut bytes = 0_usize;
        let mut requests = 0;
        while let Some(id) = next.filter(|_| picked.len() < entries_max && 0 < others) {
            next = self.entries[id].of_queue.next();
            if self.kind(id) != kind {
                others -= 1;
                continue;
            }
            bytes = bytes.saturating_add(self.entries[id].size.bytes());
            if self.settings.batch_bytes_max < bytes && !picked.is_empty() {
                break;
            }
            if let EntryState::Queued(turn) = self.entries[id].state {
                waited = waited.saturating_add(self.now.saturating_sub(turn.since));
            }
            let entry = &self.entries[id];
            let (queued, waiters) =
                (self.now.saturating_sub(entry.arrived), entry.waiters.len() as u64);
            self.latencies.class(operation).queued.record(queued, waiters);
            requests += waiters;
            picked.push((self.take(id, batch), id));
        }
        let is_share = (BATCH_SHARE_MIN + 1..takes_max).contains(&share) && share <= picked.len();
        (Sent { waited, is_share, is_last_slot: false }, requests)
    }

    /// Returns the share of one batch in the entries of `operation` that are pending or in flight.
    fn share(&self, operation: Operation) -> usize {
        match self.settings.dispatch {
            DispatchPolicy::Adaptive | DispatchPolicy::Eager => {
                let of_class = self.in_flight_batches.class(operation);
                let outstanding = self.queues.len(operation) + of_class.entries();
                outstanding.div_ceil(of_class.limit().saturating_sub(1).max(1))
            }
            DispatchPolicy::Window { .. } | DispatchPolicy::Immediate => usize::MAX,
        }
    }

    fn kind(&self, id: EntryId) -> Option<T::Kind> {
        self.entries[id].write.as_ref().map(T::kind)
    }

    /// Moves an entry from its queue and its key's pending entries to `batch`.
    #[inline]
    fn take(&mut self, id: EntryId, batch: BatchId) -> K {
        self.queues.remove(&mut self.entries, id);
        let entry = &mut self.entries[id];
        entry.state = EntryState::InFlight(batch);
        if self.settings.dispatch != DispatchPolicy::Immediate {
            self.pending.remove_requests(entry.waiters.len());
        }
        self.pending.resize(entry.size.bytes(), 0);
        let (key, operation) = (entry.key, entry.operation);
        let slot = &mut self.keys[key];
        slot.waiting.unlink(&mut self.entries, id, |entry| &mut entry.of_key);
        slot.in_flight = slot.in_flight.and(operation, id);
        slot.key.clone()
    }

    fn content(&mut self, operation: Operation, picked: &mut Vec<(K, EntryId)>) -> Content<K, T> {
        let picked = picked.drain(..);
        match operation {
            Operation::Read => Content::Read(picked.map(|(key, _)| key).collect()),
            Operation::Write => {
                let entries = picked.map(|(key, id)| {
                    let write = self.entries[id].write.take();
                    (key, write.expect("an entry of a write has it until it is sent"))
                });
                Content::Write(entries.collect())
            }
        }
    }

    /// Drops a pending entry that has no waiters left.
    fn drop_waiting(&mut self, id: EntryId) {
        if let EntryState::Queued(_) = self.entries[id].state {
            self.queues.remove(&mut self.entries, id);
        }
        let key = self.entries[id].key;
        self.keys[key].waiting.unlink(&mut self.entries, id, |entry| &mut entry.of_key);
        let entry = self.entries.remove(id);
        self.pending.resize(entry.size.bytes(), 0);
        self.settle(key);
    }
}
