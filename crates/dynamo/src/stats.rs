//! Metrics of the reads of one table.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Metrics of one table since its first store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Name of the table.
    pub table: String,
    /// URL of the service.
    pub endpoint: String,
    /// Requests sent, retries included.
    pub requests: u64,
    /// Keys of these requests.
    pub keys: u64,
    /// Items that DynamoDB returned.
    pub items: u64,
    /// Requests that DynamoDB refused because there are too many.
    pub throttles: u64,
    /// Keys that DynamoDB left unprocessed in an answer.
    pub unprocessed: u64,
    /// Requests that failed for other reasons.
    pub failures: u64,
    /// Reads that wait for a request, or for its answer, now.
    pub waiting: u64,
}

/// Counters of one table.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) keys: AtomicU64,
    pub(crate) items: AtomicU64,
    pub(crate) throttles: AtomicU64,
    pub(crate) unprocessed: AtomicU64,
    pub(crate) failures: AtomicU64,
}

impl TableStats {
    /// Adds the counts of other readers of the same table.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.keys += other.keys;
        self.items += other.items;
        self.throttles += other.throttles;
        self.unprocessed += other.unprocessed;
        self.failures += other.failures;
        self.waiting += other.waiting;
    }
}

impl Counters {
    pub(crate) fn stats(&self) -> TableStats {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        TableStats {
            requests: read(&self.requests),
            keys: read(&self.keys),
            items: read(&self.items),
            throttles: read(&self.throttles),
            unprocessed: read(&self.unprocessed),
            failures: read(&self.failures),
            ..TableStats::default()
        }
    }
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(u64::try_from(by).expect("a count has at most 64 bits"), Relaxed);
}
