//! Counters of a request queue.

use std::time::Duration;

use crate::limits::{BATCH_TIME_MEAN_INITIAL, BATCH_TIME_MEAN_WEIGHT, BATCH_TIME_OUTLIER_FACTOR};
use crate::request::Operation;

/// Counters of a queue since it was created. They only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// Counters of the reads.
    pub reads: ClassStats,
    /// Counters of the writes.
    pub writes: ClassStats,
    /// Requests that the queue refused.
    pub refused: u64,
    /// Requests whose deadline passed.
    pub expired: u64,
    /// Requests that were cancelled before they were answered.
    pub cancelled: u64,
}

/// Counters of the reads or of the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassStats {
    /// Requests that the queue accepted.
    pub requests: u64,
    /// Accepted requests that joined an existing entry: reads de-duplicated, writes merged.
    pub joined: u64,
    /// Batches that were sent.
    pub batches: u64,
    /// Entries in these batches.
    pub entries: u64,
    /// Entries of the largest batch.
    pub batch_entries_max: usize,
    /// Batches that have ended.
    pub batches_ended: u64,
    /// Moving average of the time from sending a batch to its end.
    pub batch_time_mean: Option<Duration>,
}

impl QueueStats {
    /// Returns the number of batches in flight.
    pub fn batches_in_flight(&self) -> u64 {
        let in_flight = |class: &ClassStats| class.batches - class.batches_ended;
        in_flight(&self.reads) + in_flight(&self.writes)
    }

    /// Returns the counters of `operation`'s class.
    pub fn class(&self, operation: Operation) -> &ClassStats {
        match operation {
            Operation::Read => &self.reads,
            Operation::Write => &self.writes,
        }
    }

    pub(crate) fn class_mut(&mut self, operation: Operation) -> &mut ClassStats {
        match operation {
            Operation::Read => &mut self.reads,
            Operation::Write => &mut self.writes,
        }
    }
}

impl ClassStats {
    /// Returns how long an entry waits for more entries while other batches are in flight.
    pub(crate) fn hold(&self) -> Duration {
        self.batch_time_mean.unwrap_or(BATCH_TIME_MEAN_INITIAL)
    }

    pub(crate) fn count_dispatch(&mut self, entries: usize) {
        self.batches += 1;
        self.entries += entries as u64;
        self.batch_entries_max = self.batch_entries_max.max(entries);
    }

    pub(crate) fn count_batch_time(&mut self, took: Duration) {
        self.batches_ended += 1;
        self.batch_time_mean = Some(match self.batch_time_mean {
            None => took,
            Some(mean) => next_mean(mean, took),
        });
    }
}

fn next_mean(mean: Duration, took: Duration) -> Duration {
    let most = mean.saturating_mul(BATCH_TIME_OUTLIER_FACTOR).max(BATCH_TIME_MEAN_INITIAL);
    (mean - mean / BATCH_TIME_MEAN_WEIGHT).saturating_add(took.min(most) / BATCH_TIME_MEAN_WEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of(times_micros: &[u64]) -> Option<Duration> {
        let mut class = ClassStats::default();
        times_micros
            .iter()
            .for_each(|micros| class.count_batch_time(Duration::from_micros(*micros)));
        class.batch_time_mean
    }

    #[test]
    fn mean_starts_with_the_first_batch_and_moves_by_an_eighth() {
        assert_eq!(mean_of(&[]), None);
        assert_eq!(mean_of(&[400]), Some(Duration::from_micros(400)));
        assert_eq!(mean_of(&[400, 800]), Some(Duration::from_micros(450)));
        assert_eq!(mean_of(&[400, 0]), Some(Duration::from_micros(350)));
    }

    #[test]
    fn batch_that_hung_counts_as_a_few() {
        assert_eq!(mean_of(&[400, 30_000_000]), Some(Duration::from_micros(350 + 400)));
    }

    #[test]
    fn mean_follows_when_all_batches_become_slow() {
        let slow = 100_000;
        let mean = mean_of(&[&[0][..], &[slow; 60]].concat()).expect("there were batches");
        assert!(Duration::from_micros(slow * 9 / 10) < mean, "{mean:?}");
    }
}
