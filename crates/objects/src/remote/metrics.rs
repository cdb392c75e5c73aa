//! Counters and moving averages of a store.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    RemoteStats,
    limits::{
        BANDWIDTH_BYTES_MIN, BANDWIDTH_SAMPLE_TIME, BANDWIDTH_WEIGHT, FAR_FIRST_BYTE,
        FIRST_BYTE_WEIGHT, SLOW_LINK_BANDWIDTH,
    },
    side_by_side::SideBySide,
};

/// Counters of a store. See [`RemoteStats`].
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) requests: AtomicU64,
    pub(super) lists: AtomicU64,
    pub(super) foreground_reads: AtomicU64,
    pub(super) fill_reads: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) slow_downs: AtomicU64,
    pub(super) wrong_responses: AtomicU64,
    pub(super) hedges: AtomicU64,
    pub(super) hedges_won: AtomicU64,
    side_by_side: Mutex<SideBySide>,
    measured: Mutex<Measured>,
}

/// Requests and bytes of one path of a bucket, whose other counters several paths may share.
#[derive(Debug, Default)]
pub struct PathTraffic {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl PathTraffic {
    /// Requests sent, retries included.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Bytes of bodies received.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(super) fn count_requests(&self, count: u64) {
        self.requests.fetch_add(count, Relaxed);
    }

    pub(super) fn count_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

/// Measured pace of a store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StorePace {
    /// Time to the first byte, if any read came so far.
    pub(crate) first_byte: Option<Duration>,
    /// Bytes per second of one response, if one was long enough to measure.
    pub(crate) bandwidth: Option<f64>,
}

#[derive(Debug, Default)]
struct Measured {
    pace: StorePace,
    last_error: Option<String>,
}

impl StorePace {
    /// Returns whether the store is known to be behind a slow link.
    pub(crate) fn is_slow(&self) -> bool {
        self.bandwidth.is_some_and(|bandwidth| bandwidth < SLOW_LINK_BANDWIDTH)
    }

    /// Returns whether a connection may bring less than the link, because round trips are long.
    pub(super) fn is_far(&self) -> bool {
        self.first_byte.is_some_and(|first_byte| FAR_FIRST_BYTE <= first_byte)
    }
}

impl Metrics {
    pub(super) fn first_byte_after(&self, time: Duration) {
        let mut measured = self.measured();
        let mean = measured.pace.first_byte.unwrap_or(time).as_secs_f64();
        let next = mean + (time.as_secs_f64() - mean) * FIRST_BYTE_WEIGHT;
        measured.pace.first_byte = Some(Duration::from_secs_f64(next));
    }

    /// Measures a body, or a part of one: its bytes and the time that they took.
    pub(super) fn body_took(&self, bytes: u64, time: Duration) {
        if bytes < BANDWIDTH_BYTES_MIN && time < BANDWIDTH_SAMPLE_TIME {
            return;
        }
        // A body that was there at once: the clock's step stands for what it took.
        let rate = bytes as f64 / time.as_secs_f64().max(1e-6);
        let mut measured = self.measured();
        let mean = measured.pace.bandwidth.unwrap_or(rate);
        measured.pace.bandwidth = Some(mean + (rate - mean) * BANDWIDTH_WEIGHT);
    }

    pub(super) fn failed(&self, error: &str) {
        self.measured().last_error = Some(error.to_owned());
    }

    pub(super) fn last_error(&self) -> Option<String> {
        self.measured().last_error.clone()
    }

    pub(super) fn pace(&self) -> StorePace {
        self.measured().pace
    }

    pub(super) fn stats(&self, (window, in_flight): (u64, u64)) -> RemoteStats {
        let measured = self.measured();
        RemoteStats {
            requests: self.requests.load(Relaxed),
            lists: self.lists.load(Relaxed),
            foreground_reads: self.foreground_reads.load(Relaxed),
            fill_reads: self.fill_reads.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            retries: self.retries.load(Relaxed),
            slow_downs: self.slow_downs.load(Relaxed),
            wrong_responses: self.wrong_responses.load(Relaxed),
            hedges: self.hedges.load(Relaxed),
            hedges_won: self.hedges_won.load(Relaxed),
            window,
            in_flight,
            first_byte: measured.pace.first_byte.unwrap_or_default(),
            bandwidth: measured.pace.bandwidth.unwrap_or_default(),
            last_error: measured.last_error.clone(),
        }
    }

    /// Rates of fills and readahead side by side.
    pub(super) fn side_by_side(&self) -> MutexGuard<'_, SideBySide> {
        self.side_by_side.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
