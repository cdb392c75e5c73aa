//! The fill queue of an object.

use std::{collections::VecDeque, ops::Range};

use tokio::time::Instant;

use crate::limits::QUEUE_RANGES_MAX;

/// Extents of one object that wait to be filled.
#[derive(Debug, Default)]
pub(crate) struct FillQueue {
    /// Runs of extents, in the order in which they are filled.
    ranges: VecDeque<Range<u64>>,
    /// True while a driver takes from the queue.
    is_driven: bool,
    /// True once the whole object was queued: what is missing later was evicted, and comes back
    /// extent by extent when it is touched.
    whole_was_queued: bool,
    paused_until: Option<Instant>,
}

impl FillQueue {
    /// Adds runs of extents. Returns whether the caller has to start a driver.
    pub(crate) fn add(
        &mut self,
        ranges: impl IntoIterator<Item = Range<u64>>,
        now: Instant,
    ) -> bool {
        if self.is_paused(now) {
            return false;
        }
        for range in ranges {
            self.add_one(range);
        }
        !self.ranges.is_empty() && !std::mem::replace(&mut self.is_driven, true)
    }

    pub(crate) fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    fn add_one(&mut self, range: Range<u64>) {
        let is_queued =
            self.ranges.iter().any(|other| other.start <= range.start && range.end <= other.end);
        if range.is_empty() || is_queued {
            return;
        }
        let count = self.ranges.len();
        match self.ranges.back_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if QUEUE_RANGES_MAX <= count => {}
            _ => self.ranges.push_back(range),
        }
    }

    /// Returns true for the first caller that may fill the whole object.
    pub(crate) fn start_whole(&mut self, now: Instant) -> bool {
        !self.is_paused(now) && !std::mem::replace(&mut self.whole_was_queued, true)
    }

    /// Empties the queue and takes nothing until then: the store or the disk has failed. Later
    /// misses ask anew.
    pub(crate) fn pause(&mut self, until: Instant) {
        self.paused_until = Some(until);
        self.forget();
    }

    /// Empties the queue, as if nothing had been asked for.
    pub(crate) fn forget(&mut self) {
        self.ranges.clear();
        self.whole_was_queued = false;
    }

    /// Empties the queue because its driver ends early; the next miss starts another driver.
    pub(crate) fn abandon(&mut self) {
        self.forget();
        self.is_driven = false;
    }

    pub(crate) fn pop(&mut self) -> Option<Range<u64>> {
        self.ranges.pop_front()
    }

    /// Puts back what is left of a run that was taken.
    pub(crate) fn push_front(&mut self, rest: Range<u64>) {
        if !rest.is_empty() {
            self.ranges.push_front(rest);
        }
    }

    pub(crate) fn stop_driving(&mut self) {
        self.is_driven = false;
    }
}

#[cfg(test)]
impl FillQueue {
    pub(crate) fn is_busy(&self) -> bool {
        self.is_driven
    }
}
