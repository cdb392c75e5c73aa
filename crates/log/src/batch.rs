//! Records on their way from the writer to a frame.

use bytes::Bytes;

use crate::{Lsn, SyncPolicy};
use std::time::Duration;

/// Part of a record that the batch keeps by reference. It belongs before byte `at` of the batch's
/// `bytes`.
#[derive(Debug)]
pub(crate) struct Part {
    pub at: usize,
    pub bytes: Bytes,
}

/// Whole records, encoded as they will be in a frame's body. A batch moves as a whole, and its
/// buffers are reused.
#[derive(Debug, Default)]
pub(crate) struct RecordBatch {
    pub bytes: Vec<u8>,
    pub parts: Vec<Part>,
    pub part_bytes: u64,
    pub record_count: u32,
    /// Upper bound of the bytes that the batch takes in a segment, as reserved.
    pub charge: u64,
    pub sync: Sync,
    pub wall_ms: i64,
}

/// Strictest sync policy that the records of a batch or frame ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sync {
    pub always: bool,
    pub interval: Option<Duration>,
}

impl Sync {
    pub fn add(&mut self, policy: SyncPolicy) {
        match policy {
            SyncPolicy::Always => self.always = true,
            SyncPolicy::Interval(interval) => self.add_interval(interval),
            SyncPolicy::Os => {}
        }
    }

    pub fn merge(&mut self, other: Sync) {
        self.always |= other.always;
        if let Some(interval) = other.interval {
            self.add_interval(interval);
        }
    }

    fn add_interval(&mut self, interval: Duration) {
        self.interval = Some(self.interval.map_or(interval, |shortest| shortest.min(interval)));
    }
}

impl RecordBatch {
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Returns the length that the batch takes in a frame's body.
    pub fn body_bytes(&self) -> u64 {
        self.bytes.len() as u64 + self.part_bytes
    }

    /// Empties the batch and keeps its buffers, except one larger than `bytes_kept_max`.
    pub fn reset(&mut self, bytes_kept_max: usize) {
        self.parts.clear();
        if bytes_kept_max < self.bytes.capacity() {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        let (bytes, parts) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.parts));
        *self = RecordBatch { bytes, parts, ..RecordBatch::default() };
    }

    /// Appends the records of `other`, which keeps only its buffers.
    pub fn append(&mut self, other: &mut RecordBatch) {
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.parts.extend(other.parts.drain(..).map(|part| Part { at: base + part.at, ..part }));
        self.part_bytes += other.part_bytes;
        self.record_count += other.record_count;
        self.charge += other.charge;
        self.sync.merge(other.sync);
        self.wall_ms = self.wall_ms.max(other.wall_ms);
    }

    /// Returns the largest number of slices that `slices` can yield.
    pub fn slice_count_max(&self) -> usize {
        2 * self.parts.len() + 1
    }

    /// Yields the bytes of the body in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        let pieces = self.parts.iter().flat_map(move |part| {
            let before = &self.bytes[from..part.at];
            from = part.at;
            [before, &part.bytes]
        });
        let last = self.parts.last().map_or(0, |part| part.at);
        pieces.chain(std::iter::once(&self.bytes[last..])).filter(|slice| !slice.is_empty())
    }
}

/// Position in the order of reservations: the bytes charged so far.
pub(crate) type Charge = u64;

/// LSN of the first record of a log.
pub(crate) const FIRST_LSN: Lsn = Lsn(1);
