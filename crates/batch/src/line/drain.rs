//! How everything that waits leaves at once, when nobody will serve it.

use std::hash::Hash;

use super::Line;
use super::arena::Id;
use super::waiters::WaiterId;
use crate::request::Late;
use crate::write::Write;

impl<K: Clone + Eq + Hash + Ord, T: Write, W> Line<K, T, W> {
    /// Takes the waiters of all that waits, as if they had left. Batches under way go on, and their waiters stay.
    ///
    /// For a caller who will ask for no further batch.
    pub fn take_waiting(&mut self, waiting: &mut Vec<Late<W>>) {
        let waits = |line: &Self, id| line.entries[line.waiters.arena[id].entry].waits();
        // Slots of an arena are not all in use; the last in use is where all have been seen.
        let mut unseen = self.waiters.arena.len();
        for slot in 0.. {
            if unseen == 0 {
                return;
            }
            let id: WaiterId = Id::at(slot);
            if self.waiters.arena.get(id).is_none() {
                continue;
            }
            unseen -= 1;
            if waits(self, id) {
                self.stats.left += 1;
                waiting.push(self.detach(id));
            }
        }
    }
}
