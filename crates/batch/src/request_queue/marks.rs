//! Marked requests, which their caller follows into the batches that carry them.
//!
//! A request that nobody follows costs one branch when its batch is sent.

use std::hash::Hash;

use super::RequestQueue;
use crate::batch::{BatchId, SentBatch};
use crate::request::RequestId;
use crate::write::Write;

impl<K: Clone + Eq + Hash + Ord, T: Write, W> RequestQueue<K, T, W> {
    /// Marks a request, so that [`is_marked`](Self::is_marked) tells of the batch that it is sent
    /// with. Nothing happens if the request has been answered.
    pub fn mark(&mut self, request: RequestId) {
        if let Some(waiter) = self.waiters.find(request) {
            let entry = self.waiters.arena[waiter].entry;
            self.entries[entry].is_marked = true;
        }
    }

    /// Returns whether a batch in flight was sent with entries of marked requests. Those requests
    /// may have been cancelled meanwhile.
    pub fn is_marked(&self, batch: BatchId) -> bool {
        self.in_flight_batches.is_marked(batch)
    }

    /// Returns facts about a batch in flight; `None` if it has ended.
    pub fn sent_batch(&self, batch: BatchId) -> Option<SentBatch> {
        let batch = self.in_flight_batches.get(batch)?;
        Some(SentBatch {
            operation: batch.operation,
            entries: batch.entries.len(),
            requests: batch.requests,
            age: self.now.saturating_sub(batch.started),
        })
    }

    /// Returns the waiter of a request that has not been answered.
    pub fn waiter_mut(&mut self, request: RequestId) -> Option<&mut W> {
        let waiter = self.waiters.find(request)?;
        Some(&mut self.waiters.arena[waiter].answered.waiter)
    }

    /// Visits the waiters of a batch in flight that have no answer yet: by entry, and those of an
    /// entry in order of arrival.
    pub fn visit_waiters(&mut self, batch: BatchId, mut visit: impl FnMut(&mut W)) {
        let Some(batch) = self.in_flight_batches.get(batch) else { return };
        for entry in batch.entries.iter().flatten() {
            let mut next = self.entries[*entry].waiters.first();
            while let Some(id) = next {
                let waiter = &mut self.waiters.arena[id];
                next = waiter.of_entry.next();
                visit(&mut waiter.answered.waiter);
            }
        }
    }
}
