//! Every limit of flights and fills, with its reason.

use std::time::Duration;

use crate::disk::EXTENT_DATA_BYTES;

/// Bytes between two ranges that are read in one trip all the same, until a store's pace is known.
pub(super) const GAP_DEFAULT: u64 = 1 << 20;
/// Smallest such gap: below it a second request costs more than the bytes, whatever the store.
pub(super) const GAP_MIN: u64 = 64 << 10;
/// Largest such gap.
pub(super) const GAP_MAX: u64 = 2 << 20;
/// A trip brings at most so many times the bytes asked for.
pub(super) const WASTE_FACTOR_MAX: u64 = 4;
/// Trips up to this size may waste more: they take hardly longer than their first byte.
pub(super) const WASTE_FREE_BYTES: u64 = 64 << 10;
/// Ranges that do not overlap are not merged into trips beyond this: two streams bring them sooner.
pub(super) const TRIP_BYTES_MAX: u64 = 8 << 20;

/// Foreground bytes of a cache that stay in memory after they landed, until their extent is on disk.
pub(super) const LANDED_BYTES_MAX: u64 = 16 << 20;
/// Flights that begin before a range and are looked at to see whether one covers it. Identical ranges are always found.
pub(super) const LOOK_BACK_MAX: usize = 32;

/// A read of the disk that takes longer comes from the store instead. A disk that has really begun it and not ended it is left alone for a
/// while: each such read holds a thread.
pub(super) const DISK_PATIENCE: Duration = Duration::from_secs(3);

/// Extents of a part of a fill: 8 MiB, from where on larger requests do not get cheaper.
pub(super) const PART_EXTENTS_MAX: u64 = 8;
/// Parts that the budget of fills should allow at once; they are smaller where it is small.
pub(super) const PARTS_AT_ONCE_MIN: u64 = 4;
/// Ranges of extents that wait to be filled, per object. What does not fit is asked for again by its next miss.
pub(super) const QUEUE_RANGES_MAX: usize = 1024;
/// After a part failed misses start no fill for so long.
pub(super) const FILL_PAUSE: Duration = Duration::from_secs(5);
/// The same after the disk kept nothing of a part: bytes brought for nothing.
pub(super) const DISK_PAUSE: Duration = Duration::from_secs(30);

/// What a first byte is thought to take until one came.
pub(super) const FIRST_BYTE_DEFAULT: Duration = Duration::from_millis(50);
/// What a stream is thought to bring per second until one was long enough to tell.
pub(super) const BANDWIDTH_DEFAULT: f64 = 50e6;
/// Bytes of a part that tell its own rate.
pub(super) const OWN_RATE_BYTES_MIN: u64 = 256 << 10;
/// A part that brought nothing for so long is not waited for by those who come now.
pub(super) const QUIET_MAX: Duration = Duration::from_millis(100);

const _: () = {
    assert!(GAP_MIN <= GAP_DEFAULT && GAP_DEFAULT <= GAP_MAX);
    // A single part always fits into the count of the budget's semaphore.
    assert!(PART_EXTENTS_MAX * EXTENT_DATA_BYTES < u32::MAX as u64);
};
