//! Deadlines, nearest first.
//!
//! Callers mostly use one timeout, so a deadline is mostly later than those before it: it goes to
//! the back of a queue. The others go to a heap. A request that is answered in time leaves its
//! deadline behind; it is dropped when it comes to the front, or when such deadlines are the
//! majority.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::arena::Id;
use super::waiters::WaiterMark;
use crate::limits::DEADLINES_SWEEP_MIN;

/// Deadlines of requests, by the request's slot and serial number.
#[derive(Default)]
pub(super) struct Deadlines {
    sorted: VecDeque<Deadline>,
    unsorted: BinaryHeap<Reverse<Deadline>>,
    /// Number of deadlines whose request is still there.
    live: usize,
}

/// Deadline of one request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Deadline {
    pub at: Duration,
    pub serial: u64,
    pub slot: u32,
}

impl Deadline {
    pub fn waiter(self) -> Id<WaiterMark> {
        Id::at(self.slot)
    }
}

impl Deadlines {
    #[inline]
    pub fn push(&mut self, deadline: Deadline) {
        self.live += 1;
        match self.sorted.back() {
            Some(last) if deadline < *last => self.unsorted.push(Reverse(deadline)),
            _ => self.sorted.push_back(deadline),
        }
    }

    /// Returns the nearest deadline. [`Deadlines::forget`] makes sure that its request is there.
    pub fn first(&self) -> Option<Deadline> {
        let unsorted = self.unsorted.peek().map(|Reverse(deadline)| *deadline);
        match (self.sorted.front().copied(), unsorted) {
            (Some(sorted), Some(unsorted)) => Some(sorted.min(unsorted)),
            (sorted, unsorted) => sorted.or(unsorted),
        }
    }

    /// Accounts for a request with a deadline that is gone.
    #[inline]
    pub fn forget(&mut self, is_live: impl Fn(Deadline) -> bool) {
        self.live -= 1;
        while self.first().is_some_and(|first| !is_live(first)) {
            self.pop();
        }
        let len = self.len();
        if self.live + self.live.max(DEADLINES_SWEEP_MIN) < len {
            self.sorted.retain(|deadline| is_live(*deadline));
            self.unsorted.retain(|Reverse(deadline)| is_live(*deadline));
        }
    }

    pub fn len(&self) -> usize {
        self.sorted.len() + self.unsorted.len()
    }

    fn pop(&mut self) {
        if self.sorted.front().copied() == self.first() {
            self.sorted.pop_front();
        } else {
            self.unsorted.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(serial: u64, millis: u64) -> Deadline {
        Deadline { at: Duration::from_millis(millis), serial, slot: 0 }
    }

    #[test]
    fn nearest_is_first_in_whatever_order_they_come() {
        let mut deadlines = Deadlines::default();
        let mut come: Vec<u64> = (0..200).map(|i| i * 37 % 101).collect();
        for (serial, millis) in (0..).zip(&come) {
            deadlines.push(deadline(serial, *millis));
        }
        come.sort_unstable();
        let mut gone = Vec::new();
        while let Some(first) = deadlines.first() {
            gone.push(first.serial);
            assert_eq!(first.at, Duration::from_millis(come[gone.len() - 1]));
            deadlines.forget(|deadline| !gone.contains(&deadline.serial));
        }
        assert_eq!(gone.len(), come.len());
    }

    #[test]
    fn those_of_answered_requests_do_not_pile_up_behind_one_that_waits() {
        for millis_of_others in [1_000_000, 5] {
            let mut deadlines = Deadlines::default();
            // One in each of the two structures.
            deadlines.push(deadline(0, 10));
            deadlines.push(deadline(1, 2));
            for serial in 2..10_000 {
                deadlines.push(deadline(serial, millis_of_others));
                deadlines.forget(|deadline| deadline.serial < 2);
                assert!(deadlines.len() <= 2 * DEADLINES_SWEEP_MIN);
            }
            assert_eq!(deadlines.first(), Some(deadline(1, 2)));
        }
    }
}
