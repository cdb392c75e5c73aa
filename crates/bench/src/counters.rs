//! Answers that a load saw: how many, how long they took, and what was wrong with them.

use std::{
    cell::Cell,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

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
    pub acknowledged: Vec<u64>,
    /// Versions of upserts that were handed out.
    pub versions: u64,
    next_kept: usize,
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
            acknowledged: Vec::new(),
            versions: 0,
            next_kept: 0,
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
        if self.acknowledged.len() < ACKNOWLEDGED_KEPT {
            self.acknowledged.push(row);
        } else if let Some(place) = self.acknowledged.get_mut(self.next_kept) {
            *place = row;
            self.next_kept = (self.next_kept + 1) % ACKNOWLEDGED_KEPT;
        }
    }

    /// Adds what another part of the load saw.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.latency_ns.add(&other.latency_ns)?;
        self.late_ns.add(&other.late_ns)?;
        self.answered += other.answered;
        self.answered_ever += other.answered_ever;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.unanswered += other.unanswered;
        self.overloaded |= other.overloaded;
        self.failed.merge(&other.failed);
        self.acknowledged.extend_from_slice(&other.acknowledged);
        self.versions += other.versions;
        Ok(())
    }
}

thread_local! {
    /// Shard that this thread writes to. Threads that never asked for one share the first.
    static SHARD: Cell<usize> = const { Cell::new(0) };
}

/// Counters of several threads, each with one of its own: clients that run as tasks never wait for
/// each other.
#[derive(Debug)]
pub struct Shards {
    counters: Vec<Mutex<Counters>>,
    next: AtomicUsize,
}

impl Shards {
    /// Makes a shard for each of `threads` threads and one for all others.
    pub fn new(threads: usize) -> Result<Self> {
        let counters: Result<Vec<_>> =
            (0..=threads).map(|_| Ok(Mutex::new(Counters::new()?))).collect();
        Ok(Self { counters: counters?, next: AtomicUsize::new(1) })
    }

    /// Gives the calling thread a shard of its own.
    pub fn enter(&self) {
        SHARD.set(self.next.fetch_add(1, Ordering::Relaxed) % self.counters.len());
    }

    #[inline]
    pub fn own(&self) -> MutexGuard<'_, Counters> {
        self.counters[SHARD.get() % self.counters.len()]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds up the counters of all threads.
    pub fn total(&self) -> Result<Counters> {
        let mut total = Counters::new()?;
        for counters in &self.counters {
            total.merge(&counters.lock().unwrap_or_else(PoisonError::into_inner))?;
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::Failure;

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
        counters.acknowledged.sort_unstable();
        assert_eq!(counters.acknowledged, (1_500..2_500).collect::<Vec<_>>());
    }

    #[test]
    fn shards_of_all_threads_add_up() {
        let shards = Shards::new(2).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    shards.enter();
                    shards.own().answer(WINDOW, 1, 1_000, 1_500);
                    shards.own().failed.add(Failure::Wrong("x".to_owned()));
                });
            }
        });
        shards.own().failed.add(Failure::Refused("full".to_owned()));
        let Counters { answered, failed, .. } = shards.total().unwrap();
        assert_eq!((answered, failed.wrong.count, failed.refused.count), (3, 3, 1));
        assert_eq!(failed.refused.example.as_deref(), Some("full"));
    }
}
