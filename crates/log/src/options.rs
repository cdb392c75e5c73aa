use crate::limits;

/// Settings of the log. [`Options::default`] is what the product uses.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Length of a segment file. A record that does not fit gets a longer segment; a nearly full
    /// disk gets shorter ones.
    pub segment_bytes: u64,
    /// Length of the first segment after a start, whose zeros are written before [`crate::open`]
    /// returns.
    pub first_segment_bytes: u64,
    /// Limit of the bytes handed over and not yet written (one record may exceed it).
    pub queue_bytes_limit: u64,
    /// Length up to which a frame takes further batches.
    pub frame_bytes_max: u64,
    /// Rate of writing zeros ahead while nobody waits for them.
    pub zero_bytes_per_second: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: limits::SEGMENT_BYTES,
            first_segment_bytes: limits::FIRST_SEGMENT_BYTES,
            queue_bytes_limit: limits::QUEUE_BYTES_LIMIT,
            frame_bytes_max: limits::FRAME_BYTES_MAX,
            zero_bytes_per_second: limits::ZERO_BYTES_PER_SECOND,
        }
    }
}

impl Options {
    /// Replaces out-of-range values by the nearest valid ones.
    pub(crate) fn clamped(self) -> Self {
        let segment_bytes = self.segment_bytes.max(limits::SEGMENT_BYTES_MIN);
        Self {
            segment_bytes,
            first_segment_bytes: self
                .first_segment_bytes
                .clamp(limits::SEGMENT_BYTES_MIN, segment_bytes),
            queue_bytes_limit: self.queue_bytes_limit.max(1),
            frame_bytes_max: self.frame_bytes_max.max(1),
            zero_bytes_per_second: self.zero_bytes_per_second.max(1),
        }
    }

    /// Returns the length at which the writer hands over the open batch in mid-turn; also that of
    /// the longest record that counts as small.
    pub(crate) fn batch_bytes(&self) -> u64 {
        limits::BATCH_BYTES.min(self.shortest() / limits::SEGMENT_BATCH_DIVISOR)
    }

    /// Returns the shortest segment that the helper makes when the disk is nearly full.
    pub(crate) fn shrunk_segment_bytes_min(&self) -> u64 {
        limits::SHRUNK_SEGMENT_BYTES_MIN.min(self.shortest())
    }

    fn shortest(&self) -> u64 {
        self.first_segment_bytes.min(self.segment_bytes)
    }

    /// Returns the most that a batch of small records is charged: a batch just below the limit, one
    /// more small record, and the overheads of both.
    pub(crate) fn unit_bytes_max(&self) -> u64 {
        2 * self.batch_bytes() + limits::RECORD_OVERHEAD_BYTES + limits::BATCH_OVERHEAD_BYTES
    }
}
