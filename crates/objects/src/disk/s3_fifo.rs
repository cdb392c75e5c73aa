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

use std::collections::VecDeque;

use super::ghosts::Ghosts;
use crate::disk::limits::{SMALL_QUEUE_SHARE, TICKS_PER_SMALL_QUEUE};

/// Identity of one extent of one cache file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// The loop ends: every step takes an entry out or lowers its reads, and reads add no more than
    /// one mark in a period.
    pub(crate) fn pop(&mut self, extents: &impl ExtentStates) -> Option<ExtentId> {
        loop {
            let is_small = self.small_count <= self.small.len() || self.main.is_empty();
            let victim = if is_small { self.pop_small(extents) } else { self.pop_main(extents) };
            match victim {
                Some(victim) => return Some(victim),
                None if self.small.is_empty() && self.main.is_empty() => return None,
                None => {}
            }
        }
    }

    fn pop_small(&mut self, extents: &impl ExtentStates) -> Option<ExtentId> {
        let Newcomer { extent_id, entrance } = self.small.pop_front()?;
        if !extents.is_present(extent_id) {
            extents.unqueue(extent_id);
            return None;
        }
        if 0 < extents.take_reads(extent_id, |_| 0) {
            self.main.push_back(extent_id);
            return None;
        }
        extents.unqueue(extent_id);
        if entrance != Entrance::Sequential {
            self.ghosts.insert(extents.name(extent_id));
        }
        Some(extent_id)
    }

    fn pop_main(&mut self, extents: &impl ExtentStates) -> Option<ExtentId> {
        let extent_id = self.main.pop_front()?;
        if extents.is_present(extent_id)
            && 0 < extents.take_reads(extent_id, |reads| reads.saturating_sub(1))
        {
            self.main.push_back(extent_id);
            return None;
        }
        extents.unqueue(extent_id);
        extents.is_present(extent_id).then_some(extent_id)
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
