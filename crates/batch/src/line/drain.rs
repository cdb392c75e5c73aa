//! How everything that waits leaves at once, when nobody will serve it.

use std::hash::Hash;

use super::Line;
use crate::request::{Late, Stage};
use crate::write::Write;

impl<K: Clone + Eq + Hash + Ord, T: Write, W> Line<K, T, W> {
    /// Takes the waiters of all that waits, in order of arrival, as if they had left: none of it
    /// will be made. Batches under way go on, and their waiters stay.
    ///
    /// For a caller who will ask for no further batch.
    pub fn take_waiting(&mut self, waiting: &mut Vec<Late<W>>) {
        for id in self.waiters.in_order() {
            if self.entries[self.waiters.arena[id].entry].waits() {
                self.stats.left += 1;
                let late = self.detach(id);
                waiting.push(Late { stage: Stage::Waiting, ..late });
            }
        }
    }
}
