//! Counters of the log. The log's thread writes them, and the thread of the snapshots those of
//! removed segments; anyone may read them. Each counter is
//! exact, but a snapshot of all is not taken at one instant.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use busload_histogram::{Histogram, Reading};

/// Counters of the log since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames written; each took one write call.
    pub frames: u64,
    /// Number of records written.
    pub records: u64,
    /// Largest number of records in one frame.
    pub frame_records_max: u64,
    /// Total length of all frames.
    pub bytes: u64,
    /// Syncs of segments by the log's own thread.
    pub syncs: u64,
    /// Time spent in these syncs, in microseconds.
    pub sync_us_total: u64,
    /// Duration of the longest sync, in microseconds.
    pub sync_us_max: u64,
    /// Durations of these syncs.
    pub sync_times: Reading,
    /// Bytes of all segments on disk, without the zeros ahead in the last one.
    pub log_bytes: u64,
    /// Number of segments on disk that are in use.
    pub segments: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    frames: AtomicU64,
    records: AtomicU64,
    frame_records_max: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicU64,
    sync_us_total: AtomicU64,
    sync_us_max: AtomicU64,
    sync_times: Histogram,
    log_bytes: AtomicU64,
    segments: AtomicU64,
    /// Removed segments and their bytes, which the thread of the snapshots counts.
    removed_bytes: AtomicU64,
    removed_segments: AtomicU64,
}

/// Adds to a counter. With a single writer, a load and a store suffice; no locked instruction is
/// needed.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

fn raise(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed).max(value), Ordering::Relaxed);
}

impl Counters {
    pub fn frame(&self, records: u64, bytes: u64) {
        add(&self.frames, 1);
        add(&self.records, records);
        add(&self.bytes, bytes);
        add(&self.log_bytes, bytes);
        raise(&self.frame_records_max, records);
    }

    pub fn sync(&self) {
        add(&self.syncs, 1);
    }

    pub fn sync_took(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        add(&self.sync_us_total, us);
        raise(&self.sync_us_max, us);
        self.sync_times.record(time, 1);
    }

    /// Counts another segment, of which only the header is in use so far. Returns the bytes of the
    /// whole log.
    pub fn segment(&self, bytes: u64) -> u64 {
        add(&self.segments, 1);
        add(&self.log_bytes, bytes);
        self.log_bytes()
    }

    /// Counts the zeros at the end of a segment that is full.
    pub fn unused(&self, bytes: u64) {
        add(&self.log_bytes, bytes);
    }

    /// Counts a segment that was removed because a snapshot covers it.
    pub fn removed(&self, bytes: u64) {
        add(&self.removed_segments, 1);
        add(&self.removed_bytes, bytes);
    }

    fn log_bytes(&self) -> u64 {
        let removed = self.removed_bytes.load(Ordering::Relaxed);
        self.log_bytes.load(Ordering::Relaxed).saturating_sub(removed)
    }

    pub fn recovered(&self, segments: u64, bytes: u64) {
        add(&self.segments, segments);
        add(&self.log_bytes, bytes);
    }

    pub fn snapshot(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            frames: get(&self.frames),
            records: get(&self.records),
            frame_records_max: get(&self.frame_records_max),
            bytes: get(&self.bytes),
            syncs: get(&self.syncs),
            sync_us_total: get(&self.sync_us_total),
            sync_us_max: get(&self.sync_us_max),
            sync_times: self.sync_times.read(),
            log_bytes: self.log_bytes(),
            segments: get(&self.segments).saturating_sub(get(&self.removed_segments)),
        }
    }
}
