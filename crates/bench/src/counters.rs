//! Answers that a load saw: how many, how long they took, and what was wrong with them.

use std::collections::VecDeque;

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::{
    clock::Window,
    failures::Failed,
    stats::{new_histogram, record},
};

/// Rows with acknowledged upserts that counters keep, to be looked at afterwards.
const ACKNOWLEDGED_KEPT: usize = 1_000;

/// Answers that a load, or a part of it, saw.
#[derive(Debug)]
pub struct Counters {
    /// Times of the requests that count, in nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// Delays in sending them; of an open loop only.
    pub late_ns: Histogram<u64>,
    /// Rows, or chunks, answered within the window.
    pub answered: u64,
    /// Rows answered at all, the warm-up included.
    pub answered_ever: u64,
    /// Moment of the last answer within the window.
    pub last_ns: u64,
    /// Requests never answered; of an open loop only.
    pub unanswered: u64,
    /// The schedule of an open loop was given up.
    pub overloaded: bool,
    /// Refusals and wrong answers.
    pub failed: Failed,
    /// Rows whose upsert was acknowledged: some of them.
    pub acknowledged: VecDeque<u64>,
}

impl Counters {
    pub fn new() -> Result<Self> {
        Ok(Self {
            latency_ns: new_histogram()?,
            late_ns: new_histogram()?,
            answered: 0,
            answered_ever: 0,
            last_ns: 0,
            unanswered: 0,
            overloaded: false,
            failed: Failed::default(),
            acknowledged: VecDeque::new(),
        })
    }

    /// A closed loop's answer of `rows` rows: it counts when it came within the window.
    #[inline]
    pub fn answer(&mut self, window: Window, rows: u64, asked_ns: u64, now_ns: u64) {
        self.answered_ever += rows;
        if window.contains(now_ns) {
            self.answered += rows;
            self.last_ns = self.last_ns.max(now_ns);
            record(&mut self.latency_ns, now_ns.saturating_sub(asked_ns));
        }
    }

    /// An open loop's answer: its time counts when it was due within the window.
    #[inline]
    pub fn answer_due(&mut self, window: Window, due_ns: u64, now_ns: u64) {
        self.answered_ever += 1;
        self.answered += u64::from(window.contains(now_ns));
        if window.contains(due_ns) {
            record(&mut self.latency_ns, now_ns.saturating_sub(due_ns));
        }
    }

    /// An open loop's request that will not be answered. It enters with the time it has waited:
    /// leaving it out would flatter the server.
    pub fn give_up(&mut self, window: Window, due_ns: u64, now_ns: u64) {
        if window.contains(due_ns) {
            self.unanswered += 1;
            record(&mut self.latency_ns, now_ns.saturating_sub(due_ns));
        }
    }

    /// An upsert of this row was acknowledged; the latest of them are kept.
    #[inline]
    pub fn acknowledge(&mut self, row: u64) {
        self.acknowledged.push_back(row);
        if ACKNOWLEDGED_KEPT < self.acknowledged.len() {
            self.acknowledged.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { from_ns: 1_000, until_ns: 2_000 };

    #[test]
    fn an_open_loop_counts_times_by_when_a_request_was_due() {
        let mut counters = Counters::new().unwrap();
        counters.answer_due(WINDOW, 900, 1_500);
        counters.answer_due(WINDOW, 1_500, 3_000);
        counters.give_up(WINDOW, 1_600, 5_000);
        counters.give_up(WINDOW, 100, 5_000);
        assert_eq!((counters.answered, counters.answered_ever, counters.unanswered), (1, 2, 1));
        assert_eq!(counters.latency_ns.len(), 2);
        assert!(1_499 <= counters.latency_ns.min());
    }

    #[test]
    fn the_latest_acknowledged_rows_are_kept() {
        let mut counters = Counters::new().unwrap();
        (0..2_500).for_each(|row| counters.acknowledge(row));
        assert!(counters.acknowledged.iter().copied().eq(1_500..2_500));
    }
}
