//! Arrival of requests, which become entries.

use std::hash::Hash;
use std::time::Duration;

use super::RequestQueue;
use super::entry::{Entry, EntryId, EntryState, Size};
use super::keys::KeyId;
use super::list::{Link, List};
use super::waiters::{Counted, NewWaiter};
use crate::request::{Operation, RequestId};
use crate::settings::{DispatchPolicy, Sharing};
use crate::write::Write;

/// Says whether a request opens an entry or joins one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entrance {
    Opened,
    Joined,
}

impl<K: Clone + Eq + Hash + Ord, T: Write, W> RequestQueue<K, T, W> {
    /// Finds or opens the entry for a read of `key`.
    #[inline]
    pub(super) fn entry_to_read(&mut self, key: KeyId, size: Size) -> EntryId {
        if let Some(entry) = self.read_to_join(key) {
            self.count_request(Operation::Read, Entrance::Joined);
            return entry;
        }
        self.count_request(Operation::Read, Entrance::Opened);
        self.open(key, Operation::Read, None, size)
    }

    /// Finds or opens the entry for a write of `key`.
    pub(super) fn entry_to_write(
        &mut self,
        key: KeyId,
        write: T,
        size: Size,
    ) -> (EntryId, T::Receipt) {
        let write = match self.merge(key, write, size.write) {
            Ok(merged) => {
                self.count_request(Operation::Write, Entrance::Joined);
                return merged;
            }
            Err(write) => write,
        };
        self.count_request(Operation::Write, Entrance::Opened);
        let receipt = write.receipt();
        (self.open(key, Operation::Write, Some(write), size), receipt)
    }

    /// Adds a waiter behind the others of its entry.
    #[inline]
    pub(super) fn attach(
        &mut self,
        entry: EntryId,
        waiter: W,
        receipt: Option<T::Receipt>,
        deadline: Option<Duration>,
    ) -> RequestId {
        self.pending.add_requests(1);
        let counted = match self.entries[entry].state {
            EntryState::InFlight(batch) => {
                if self.entries[entry].waiters.is_empty() {
                    self.in_flight_batches.await_entry(batch);
                }
                Counted::UntilAnswer
            }
            _ if self.settings.dispatch == DispatchPolicy::Immediate => Counted::UntilAnswer,
            EntryState::Blocked | EntryState::Queued(_) => Counted::UntilDispatch,
        };
        let id = self.waiters.insert(NewWaiter { waiter, receipt, entry, counted, deadline });
        self.entries[entry]
            .waiters
            .push(&mut self.waiters.arena, id, |waiter| &mut waiter.of_entry);
        self.waiters.request(id)
    }

    /// Finds the entry whose answer a new read of `key` may share.
    #[inline]
    fn read_to_join(&self, key: KeyId) -> Option<EntryId> {
        let slot = &self.keys[key];
        match (slot.waiting.last(), self.settings.sharing) {
            (Some(last), _) => (self.entries[last].operation == Operation::Read).then_some(last),
            (None, Sharing::InFlight) => slot.in_flight.read(),
            (None, Sharing::Waiting) => None,
        }
    }

    /// Merges `write` into the last entry of `key`, if that is a pending write that accepts it.
    fn merge(&mut self, key: KeyId, write: T, bytes: usize) -> Result<(EntryId, T::Receipt), T> {
        let Some(id) = self.keys[key].waiting.last() else { return Err(write) };
        let entry = &mut self.entries[id];
        let Some(earlier) = &mut entry.write else { return Err(write) };
        let receipt = earlier.merge(write)?;
        let before = entry.size;
        entry.size = before.merged(bytes, earlier.bytes());
        self.pending.resize(before.bytes(), entry.size.bytes());
        if let EntryState::Queued(_) = entry.state {
            self.queues.resize(entry.operation, before.bytes(), entry.size.bytes());
        }
        Ok((id, receipt))
    }

    /// Opens an entry behind all others of `key`.
    #[inline]
    fn open(&mut self, key: KeyId, operation: Operation, write: Option<T>, size: Size) -> EntryId {
        self.pending.resize(0, size.bytes());
        let id = self.entries.insert(Entry {
            key,
            operation,
            arrived: self.now,
            write,
            size,
            state: EntryState::Blocked,
            waiters: List::new(),
            is_marked: false,
            cancelled_counted: 0,
            of_key: Link::NONE,
            of_queue: Link::NONE,
        });
        self.keys[key].waiting.push(&mut self.entries, id, |entry| &mut entry.of_key);
        self.settle(key);
        id
    }

    fn count_request(&mut self, operation: Operation, entrance: Entrance) {
        let class = self.stats.class_mut(operation);
        class.requests += 1;
        class.joined += u64::from(entrance == Entrance::Joined);
    }
}
