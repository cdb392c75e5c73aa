//! The eviction policy: S3-FIFO, after Yang et al., "FIFO queues are all you need for cache
//! eviction", SOSP 2023.
//!
//! ```text
//!   new --> small (a tenth) --read meanwhile--> main --read meanwhile--> its end again
//!             |                                  |
//!             | not read                         | not read
//!             v                                  v
//!           evicted, its name to the ghosts    evicted
//!   new, but its name is among the ghosts --> main
//! ```
//!
//! An extent that is read once goes through the small queue only and never evicts those that are
//! read again and again. So does one that a stream brings ([`Entrance::Sequential`]), even when its
//! name is among the ghosts, and it leaves no name there: that it was copied, even twice, is no
//! sign that it will be read again.
//!
//! Extents without which a store would be below its floor are passed over, to the end of the main
//! queue. After some of them the eviction looks into the other queue, and after as many there it
//! finds nothing: an eviction never costs more.

use std::collections::VecDeque;

use super::ghosts::Ghosts;
use crate::disk::limits::{PASSED_OVER_MAX, SMALL_QUEUE_SHARE, TICKS_PER_SMALL_QUEUE};

/// Identity of one extent of one cache file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExtentId {
    /// Number of the cache file.
    pub(crate) file: u32,
    /// Number of the extent in it.
    pub(crate) extent: u32,
}

/// The states of the extents, which the queues read and change.
pub(crate) trait ExtentStates {
    /// Returns whether an extent is on disk; an absent one only has its entry left here.
    fn is_present(&self, extent_id: ExtentId) -> bool;
    /// Notes that its entry was taken out for good.
    fn unqueue(&self, extent_id: ExtentId);
    /// Number of periods in which it was read; `leave` says how many stay noted.
    fn take_reads(&self, extent_id: ExtentId, leave: fn(u8) -> u8) -> u8;
    /// Returns whether its store would be below its floor without it.
    fn is_spared(&self, extent_id: ExtentId) -> bool;
    /// Returns the extent's name among the ghosts.
    fn name(&self, extent_id: ExtentId) -> u64;
}

/// The queues of S3-FIFO. Every extent has at most one entry.
#[derive(Debug)]
pub(crate) struct S3Fifo {
    small: VecDeque<Newcomer>,
    main: VecDeque<ExtentId>,
    ghosts: Ghosts,
    small_count: usize,
    /// Insertions in one period.
    period: usize,
    inserted: usize,
    tick: u8,
}

/// An entry of the small queue.
#[derive(Clone, Copy, Debug)]
struct Newcomer {
    extent_id: ExtentId,
    /// Reason for which it was written.
    entrance: Entrance,
}

/// Outcome for the entry at the front of a queue.
enum Step {
    /// Its extent is evicted.
    Victim(ExtentId),
    /// Its extent is absent, or it went to the end for its reads.
    Moved,
    /// It went to the end for its store's floor.
    PassedOver,
}

/// Choice of an eviction to heed the floors of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floors {
    /// The eviction makes room for a store.
    Kept,
    /// The disk has less space than it was thought to have.
    Ignored,
}

/// Reason for a new entry, which decides its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// A miss: the queue depends on the extent's history.
    New,
    /// A stream: the small queue, whatever its history. Others have to read it for it to stay.
    Sequential,
    /// A restart: the main queue, so that new extents have to prove themselves first.
    Restored,
}

impl S3Fifo {
    /// Makes queues for a disk that holds this many extents.
    pub(crate) fn new(extents_max: usize) -> Self {
        let small_count = (extents_max / SMALL_QUEUE_SHARE).max(1);
        Self {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: Ghosts::new(extents_max),
            small_count,
            period: (small_count / TICKS_PER_SMALL_QUEUE).max(1),
            inserted: 0,
            tick: 0,
        }
    }

    /// Period with which reads are marked.
    pub(crate) fn tick(&self) -> u8 {
        self.tick
    }

    /// Counts an insertion: periods are as long as a number of insertions.
    pub(crate) fn count_insertion(&mut self) {
        self.inserted += 1;
        if self.inserted == self.period {
            self.inserted = 0;
            self.tick = self.tick.wrapping_add(1);
        }
    }

    /// Adds an entry for an extent that has none.
    pub(crate) fn push(&mut self, extent_id: ExtentId, name: u64, entrance: Entrance) {
        let is_known = match entrance {
            Entrance::New => self.ghosts.take(name),
            Entrance::Sequential => false,
            Entrance::Restored => true,
        };
        if is_known {
            self.main.push_back(extent_id);
        } else {
            self.small.push_back(Newcomer { extent_id, entrance });
        }
    }

    /// Number of new extents that may come before the first of them leaves the small queue.
    pub(crate) fn small_capacity(&self) -> usize {
        self.small.len().max(self.small_count)
    }

    /// Takes out the next extent to evict, if there is one.
    ///
    /// The loop ends: every step takes an entry out, lowers its reads or counts it as passed over,
    /// and reads add no more than one mark in a period.
    pub(crate) fn pop(&mut self, extents: &impl ExtentStates, floors: Floors) -> Option<ExtentId> {
        let mut passed_over = 0;
        while passed_over < 2 * PASSED_OVER_MAX {
            let prefers_small = self.small_count <= self.small.len();
            let is_turned = PASSED_OVER_MAX <= passed_over;
            let is_small =
                !self.small.is_empty() && (self.main.is_empty() || prefers_small != is_turned);
            let step = if is_small {
                self.pop_small(extents, floors)
            } else {
                self.pop_main(extents, floors)
            };
            match step? {
                Step::Victim(victim) => return Some(victim),
                Step::PassedOver => passed_over += 1,
                Step::Moved => {}
            }
        }
        None
    }

    /// None: the queue is empty.
    fn pop_small(&mut self, extents: &impl ExtentStates, floors: Floors) -> Option<Step> {
        let Newcomer { extent_id, entrance } = self.small.pop_front()?;
        let step = self.step(extents, extent_id, |_| 0, floors);
        if let Step::Victim(_) = step
            && entrance != Entrance::Sequential
        {
            self.ghosts.insert(extents.name(extent_id));
        }
        Some(step)
    }

    /// None: the queue is empty.
    fn pop_main(&mut self, extents: &impl ExtentStates, floors: Floors) -> Option<Step> {
        let extent_id = self.main.pop_front()?;
        Some(self.step(extents, extent_id, |reads| reads.saturating_sub(1), floors))
    }

    /// Decides what becomes of an entry that was taken out of its queue.
    fn step(
        &mut self,
        extents: &impl ExtentStates,
        extent_id: ExtentId,
        leave: fn(u8) -> u8,
        floors: Floors,
    ) -> Step {
        if !extents.is_present(extent_id) {
            extents.unqueue(extent_id);
            return Step::Moved;
        }
        if 0 < extents.take_reads(extent_id, leave) {
            self.main.push_back(extent_id);
            return Step::Moved;
        }
        if floors == Floors::Kept && extents.is_spared(extent_id) {
            self.main.push_back(extent_id);
            return Step::PassedOver;
        }
        extents.unqueue(extent_id);
        Step::Victim(extent_id)
    }

    /// Number of entries, those of absent extents included.
    pub(crate) fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    /// Takes out the entries of absent extents.
    pub(crate) fn sweep(&mut self, extents: &impl ExtentStates) {
        let stays = |extent_id| {
            let is_present = extents.is_present(extent_id);
            if !is_present {
                extents.unqueue(extent_id);
            }
            is_present
        };
        self.small.retain(|newcomer| stays(newcomer.extent_id));
        self.main.retain(|extent_id| stays(*extent_id));
    }

    /// Forgets all extents, but not the ghosts.
    pub(crate) fn clear(&mut self) {
        self.small = VecDeque::new();
        self.main = VecDeque::new();
    }

    /// Bytes of memory that the queues take.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.small.capacity() * size_of::<Newcomer>()
            + self.main.capacity() * size_of::<ExtentId>()
            + self.ghosts.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
