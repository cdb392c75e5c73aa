//! Counters of a request queue.

use busload_histogram::Histogram;

use crate::request::Operation;

/// Counters of a queue since it was created. All but the limits only grow.
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

/// Times that requests waited and batches took, by class. The queue writes it, anyone may read it.
#[derive(Debug, Default)]
pub struct QueueLatencies {
    /// Times of the reads.
    pub reads: ClassLatencies,
    /// Times of the writes.
    pub writes: ClassLatencies,
}

/// Times of the reads or of the writes. Each request that was sent counts once in both, but those
/// that joined an entry in flight.
#[derive(Debug, Default)]
pub struct ClassLatencies {
    /// From the arrival of a request's entry until its batch was sent.
    pub queued: Histogram,
    /// From then until the batch ended.
    pub served: Histogram,
}

impl QueueLatencies {
    /// Returns the times of `operation`'s class.
    pub fn class(&self, operation: Operation) -> &ClassLatencies {
        match operation {
            Operation::Read => &self.reads,
            Operation::Write => &self.writes,
        }
    }
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
    /// Number of batches that may be in flight now.
    pub batches_in_flight_limit: usize,
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
    pub(crate) fn count_dispatch(&mut self, entries: usize) {
        self.batches += 1;
        self.entries += entries as u64;
        self.batch_entries_max = self.batch_entries_max.max(entries);
    }
}
