//! The waiting line.

use std::hash::Hash;
use std::time::Duration;

use crate::batch::{Batch, BatchId};
use crate::request::{Answered, Ask, Late, Refusal, Refused, RequestId};
use crate::settings::{LineSettings, SettingsError};
use crate::stats::LineStats;
use crate::write::Write;

/// A waiting line: requests of single keys come in, batches go out, answers come back to the waiters.
pub struct Line<K, T: Write, W> {
    settings: LineSettings,
    stats: LineStats,
    waiters: Vec<(K, T, W)>,
}

impl<K: Clone + Eq + Hash + Ord, T: Write, W> Line<K, T, W> {
    /// An empty line.
    pub fn new(settings: LineSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self { settings, stats: LineStats::default(), waiters: Vec::new() })
    }

    /// Takes a read.
    pub fn read(&mut self, _now: Duration, _key: K, waiter: W, _ask: Ask) -> Result<RequestId, Refused<W>> {
        Err(self.full(waiter))
    }

    /// Takes a write.
    pub fn write(
        &mut self,
        _now: Duration,
        _key: K,
        _write: T,
        waiter: W,
        _ask: Ask,
    ) -> Result<RequestId, Refused<W>> {
        Err(self.full(waiter))
    }

    /// The caller of `request` gave up: its waiter is given back, if it has not been answered yet.
    pub fn leave(&mut self, _request: RequestId) -> Option<W> {
        None
    }

    /// The next batch that is due, if any. Call it until there is none.
    pub fn next_batch(&mut self, _now: Duration) -> Option<Batch<K, T>> {
        None
    }

    /// Takes the waiters of one entry of a batch under way, in order of arrival.
    pub fn answer(&mut self, _batch: BatchId, _entry: usize, _waiters: &mut Vec<Answered<W, T::Receipt>>) {}

    /// The trip is over: the batch's place and lane are free, and waiters not answered are given back with their entry's index.
    pub fn end(
        &mut self,
        _now: Duration,
        _batch: BatchId,
        _rest: &mut Vec<(usize, Answered<W, T::Receipt>)>,
    ) {
    }

    /// Takes the waiters whose deadline has passed.
    pub fn expire(&mut self, _now: Duration, _late: &mut Vec<Late<W>>) {}

    /// When `next_batch` or `expire` may have something to do without any other call.
    pub fn next_wake(&self, _now: Duration) -> Option<Duration> {
        None
    }

    /// What the line has done.
    pub fn stats(&self) -> &LineStats {
        &self.stats
    }

    /// Whether nothing waits and nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Batches under way.
    pub fn in_flight(&self) -> usize {
        0
    }

    fn full(&mut self, waiter: W) -> Refused<W> {
        self.stats.refused += 1;
        let LineSettings { requests_max, bytes_max, .. } = self.settings;
        Refused { waiter, reason: Refusal::Full { requests_max, bytes_max } }
    }
}
