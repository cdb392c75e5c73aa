//! Which extent has to go: S3-FIFO, after Yang et al., "FIFO queues are all you need for cache
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
//! What is touched once goes through the small queue only and never drives out what is read again
//! and again. What is brought to be copied once ([`Entrance::Sequential`]) goes there too, even
//! when its name is among the ghosts, and leaves no name there: that it was copied, also more than
//! once, is no sign that it will be read again, and the names of others are.

use std::collections::VecDeque;

use super::ghosts::Ghosts;
use crate::disk::limits::{SMALL_QUEUE_SHARE, TICKS_PER_SMALL_QUEUE};

/// One extent of one file on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExtentId {
    /// Number of the file.
    pub(crate) file: u32,
    /// Number of the extent in it.
    pub(crate) extent: u32,
}

/// What the queues ask and tell of the extents.
pub(crate) trait ExtentStates {
    /// Whether it is on disk; one that is not only has its entry left here.
    fn is_present(&self, extent_id: ExtentId) -> bool;
    /// Its entry was taken out for good.
    fn unqueue(&self, extent_id: ExtentId);
    /// In how many periods it was read. What `leave` makes of it is kept.
    fn take_reads(&self, extent_id: ExtentId, leave: fn(u8) -> u8) -> u8;
    /// Its name among the ghosts.
    fn name(&self, extent_id: ExtentId) -> u64;
}

/// The queues. Every extent has at most one entry.
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
    /// What it was brought for.
    entrance: Entrance,
}

/// Where a new entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// By its history.
    New,
    /// Whatever its history: it was brought for who takes it once, and has to be read by others to
    /// stay.
    Sequential,
    /// It was there before the start: the newcomers are those that have to show what they are
    /// worth.
    Restored,
}

impl S3Fifo {
    /// For a disk with room for so many extents.
    pub(crate) fn new(room: usize) -> Self {
        let small_count = (room / SMALL_QUEUE_SHARE).max(1);
        Self {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: Ghosts::new(room),
            small_count,
            period: (small_count / TICKS_PER_SMALL_QUEUE).max(1),
            inserted: 0,
            tick: 0,
        }
    }

    /// The period that reads are marked with.
    pub(crate) fn tick(&self) -> u8 {
        self.tick
    }

    /// Time goes on with what comes in.
    pub(crate) fn count_insertion(&mut self) {
        self.inserted += 1;
        if self.inserted == self.period {
            self.inserted = 0;
            self.tick = self.tick.wrapping_add(1);
        }
    }

    /// An extent that has no entry yet.
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

    /// Extents that new ones find in the small queue, or that it will have: so many may come before
    /// the first of them goes.
    pub(crate) fn small_room(&self) -> usize {
        self.small.len().max(self.small_count)
    }

    /// Takes out the extent that has to go. None: there is none.
    ///
    /// Ends: every step takes an entry out or halves what keeps it in, and reads add no more than
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

    /// Forgets all extents, not their history.
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
