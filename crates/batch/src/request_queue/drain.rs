//! Emptying the queue when no batch will be dispatched any more.

use std::hash::Hash;

use super::RequestQueue;
use crate::request::{Late, Stage};
use crate::write::Write;

impl<K: Clone + Eq + Hash + Ord, T: Write, W> RequestQueue<K, T, W> {
    /// Takes the waiters of all pending requests, in order of arrival, as if they had been
    /// cancelled: none of the requests will be made. Batches in flight go on and keep their
    /// waiters.
    ///
    /// This is for a caller that will ask for no further batch.
    pub fn take_waiting(&mut self, waiting: &mut Vec<Late<W>>) {
        for id in self.waiters.in_order() {
            if self.entries[self.waiters.arena[id].entry].waits() {
                self.stats.cancelled += 1;
                let late = self.detach(id);
                waiting.push(Late { stage: Stage::Waiting, ..late });
            }
        }
    }
}
