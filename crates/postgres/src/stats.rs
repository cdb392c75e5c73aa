//! Statistics of a table.

use std::sync::atomic::{AtomicU64, Ordering};

use busload_batch::QueueStats;

use crate::{Error, pool::PoolState, session::Context};

/// Counters that batches add to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) statements: Counter,
    pub(crate) rows_read: Counter,
    pub(crate) rows_written: Counter,
    pub(crate) sent_alone: Counter,
    pub(crate) conflicts_retried: Counter,
    pub(crate) reads_repeated: Counter,
    pub(crate) writes_prepared_again: Counter,
    pub(crate) outcomes_unknown: Counter,
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Statistics and state of a table. All counters only grow.
#[derive(Clone, Debug, Default)]
pub struct TableStats {
    /// Counters of the request queue.
    pub queue: QueueStats,
    /// Number of requests pending now.
    pub waiting: usize,
    /// State and counters of the connections.
    pub pool: PoolState,
    /// Statements sent to Postgres for requests.
    pub statements: u64,
    /// Rows found by reads.
    pub rows_read: u64,
    /// Rows written or deleted.
    pub rows_written: u64,
    /// Entries sent again alone because their batch was refused.
    pub sent_alone: u64,
    /// Batches sent again after they lost against another transaction.
    pub conflicts_retried: u64,
    /// Reads repeated on another connection, or after their relation had changed.
    pub reads_repeated: u64,
    /// Batches of writes that the server has refused, sent again because their relation had
    /// changed.
    pub writes_prepared_again: u64,
    /// Writes whose outcome is unknown.
    pub outcomes_unknown: u64,
    /// Number of times that a check has found the relation changed, the first time included.
    pub relation_versions: u64,
    /// Reason why the relation cannot be served now: all requests get this error.
    pub refusal: Option<Error>,
}

impl TableStats {
    /// Returns the number of batches that were sent again.
    pub fn retries(&self) -> u64 {
        self.reads_repeated + self.writes_prepared_again + self.conflicts_retried
    }

    /// Returns why requests fail, or some connections are not open; `None` if all is well.
    pub fn last_error(&self) -> Option<&Error> {
        self.pool.last_error.as_ref().or(self.refusal.as_ref())
    }

    pub(crate) fn new(
        queue: QueueStats,
        waiting: usize,
        pool: PoolState,
        context: &Context,
    ) -> Self {
        let counters = &context.counters;
        Self {
            queue,
            waiting,
            pool,
            statements: counters.statements.get(),
            rows_read: counters.rows_read.get(),
            rows_written: counters.rows_written.get(),
            sent_alone: counters.sent_alone.get(),
            conflicts_retried: counters.conflicts_retried.get(),
            reads_repeated: counters.reads_repeated.get(),
            writes_prepared_again: counters.writes_prepared_again.get(),
            outcomes_unknown: counters.outcomes_unknown.get(),
            relation_versions: context.versions.current().number,
            refusal: context.versions.refusal(),
        }
    }
}
