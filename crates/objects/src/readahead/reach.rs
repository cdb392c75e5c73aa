//! Computes how far ahead of a stream fetches start, and where each of them ends. Positions are
//! extents.

use crate::{
    disk::EXTENT_DATA_BYTES,
    limits::{
        BYPASS_AHEAD_MAX, BYPASS_READ_EXTENTS, BYPASS_SHARE, EXTENTS_AHEAD_MIN, NEW_EXTENTS_SHARE,
        PART_TIME, PARTS_AHEAD, RECEIVED_BYTES_MAX,
    },
};

/// Distance ahead of a stream at which fetches start, in extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Extents of one fetch.
    pub(crate) read: u64,
    /// Extents of all fetches ahead together.
    all: u64,
}

impl Reach {
    /// Reach of parts that are written to disk. None: the disk takes so few new extents
    /// that it would evict them before the stream gets there.
    pub(crate) fn to_disk(part_extents: u64, new_extents_max: u64) -> Option<Self> {
        let all = (part_extents * PARTS_AHEAD).min(new_extents_max / NEW_EXTENTS_SHARE);
        (EXTENTS_AHEAD_MIN <= all).then(|| Self { read: part_extents.min(all / PARTS_AHEAD), all })
    }

    /// Reach of reads that bypass the disk. Streams of different objects share what may be in
    /// memory; those of one object find the same bytes there.
    pub(crate) fn bypassing(part_extents: u64, objects: u64) -> Self {
        let all = RECEIVED_BYTES_MAX / BYPASS_SHARE / EXTENT_DATA_BYTES / objects.max(1);
        let read = BYPASS_READ_EXTENTS.min(part_extents);
        Self { read, all: all.clamp(EXTENTS_AHEAD_MIN, BYPASS_AHEAD_MAX) }
    }

    /// End of what a stream at extent `here`, which ends at `stream_end`, starts now: a multiple of
    /// a read's size, unless the stream ends before.
    pub(crate) fn end(self, here: u64, stream_end: u64) -> u64 {
        let end = here + self.all;
        if stream_end <= end { stream_end } else { end / self.read * self.read }
    }
}

/// Extents of one part, of at most `most`: as many as the store brings in [`PART_TIME`], so that
/// they are on disk soon. One until its bandwidth is known.
pub(crate) fn part_extents(bandwidth: Option<f64>, most: u64) -> u64 {
    let bytes = bandwidth.unwrap_or_default() * PART_TIME.as_secs_f64();
    // A float cast saturates.
    (bytes as u64 / EXTENT_DATA_BYTES).clamp(1, most)
}

/// End of the run that begins at `start`, which is not taken: before the next extent that is taken,
/// at most at `limit`, and at a multiple of `size`, so that neighbours do not overlap by chance.
pub(crate) fn run_end(start: u64, limit: u64, size: u64, is_taken: impl Fn(u64) -> bool) -> u64 {
    let limit = (start + 1).next_multiple_of(size).min(limit);
    (start + 1..limit).find(|&extent| is_taken(extent)).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PART_EXTENTS_MAX;

    #[test]
    fn a_disk_with_little_space_gets_smaller_parts_and_then_none() {
        let part = PART_EXTENTS_MAX;
        let ample = Reach::to_disk(part, 1_000).unwrap();
        assert_eq!((ample.read, ample.all), (part, part * PARTS_AHEAD));
        let little = Reach::to_disk(part, 20).unwrap();
        assert_eq!((little.read, little.all), (10 / PARTS_AHEAD, 10));
        assert_eq!(Reach::to_disk(part, NEW_EXTENTS_SHARE * EXTENTS_AHEAD_MIN - 1), None);
        assert_eq!(Reach::to_disk(part, NEW_EXTENTS_SHARE * EXTENTS_AHEAD_MIN).unwrap().read, 1);
    }

    #[test]
    fn streams_that_bypass_the_disk_share_the_memory_between_objects() {
        let alone = Reach::bypassing(PART_EXTENTS_MAX, 0);
        assert_eq!(alone, Reach::bypassing(PART_EXTENTS_MAX, 1));
        assert_eq!((alone.read, alone.all), (BYPASS_READ_EXTENTS, BYPASS_AHEAD_MAX));
        assert_eq!(Reach::bypassing(1, 1_000), Reach { read: 1, all: EXTENTS_AHEAD_MIN });
    }

    #[test]
    fn fetches_ahead_end_at_multiples_of_their_size_or_with_the_stream() {
        let reach = Reach { read: 8, all: 32 };
        assert_eq!(reach.end(0, 100), 32);
        assert_eq!(reach.end(3, 100), 32, "35 is within a part");
        assert_eq!(reach.end(80, 100), 100);
        assert_eq!(reach.end(68, 100), 100);
    }

    #[test]
    fn a_part_is_as_long_as_the_store_brings_soon() {
        let parts = [None, Some(200e3), Some(1e6), Some(2e6), Some(80e6), Some(f64::INFINITY)]
            .map(|bandwidth| part_extents(bandwidth, PART_EXTENTS_MAX));
        assert_eq!(parts, [1, 1, 3, 7, 8, 8]);
        assert_eq!(part_extents(Some(80e6), 2), 2);
    }

    #[test]
    fn a_run_ends_before_a_taken_extent() {
        assert_eq!(run_end(3, 100, 8, |_| false), 8);
        assert_eq!(run_end(8, 100, 8, |_| false), 16);
        assert_eq!(run_end(8, 11, 8, |_| false), 11);
        assert_eq!(run_end(8, 100, 8, |extent| extent == 10), 10);
        assert_eq!(run_end(8, 100, 1, |_| true), 9, "the first extent is the caller's");
    }
}
