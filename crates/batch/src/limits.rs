//! Bounds of the request queue that are not settings, and the bounds of its settings.

use std::time::Duration;

/// Bytes that a pending request counts besides its key and its write: its waiter, its list links,
/// its deadline.
///
/// Each request counts them, so that many requests for one key are not free.
pub const REQUEST_OVERHEAD_BYTES: usize = 128;

/// Upper bound of [`QueueSettings::requests_max`](crate::QueueSettings::requests_max).
pub const REQUESTS_MAX: usize = (1 << 24) - 1;

/// Upper bound of
/// [`QueueSettings::batches_in_flight_max`](crate::QueueSettings::batches_in_flight_max), unless
/// the dispatch policy is immediate.
pub const BATCHES_IN_FLIGHT_MAX: usize = 255;

// All requests of a batch were once pending together, so a batch holds no more of them than the
// queue (which holds all of them if the dispatch policy is immediate). Slot numbers are `u32`.
const _: () = assert!(REQUESTS_MAX as u64 * (BATCHES_IN_FLIGHT_MAX as u64 + 1) < u32::MAX as u64);

/// Upper bound of [`QueueSettings::write_partitions`](crate::QueueSettings::write_partitions):
/// choosing a batch of writes looks at all partitions.
pub const WRITE_PARTITIONS_MAX: usize = 1024;

/// Number of entries, as a multiple of a batch, that the search of a partition for further writes
/// of one kind visits.
pub const KIND_SEARCH_BATCHES: usize = 4;

/// Lower bound of a batch of reads, in multiples of `min_batch`, if that many reads are pending:
/// smaller batches cost more than they gain by keeping all connections busy.
pub const SHARE_MIN_BATCHES: usize = 4;

/// Assumed batch time of a class whose first batch has not ended yet.
pub const BATCH_TIME_MEAN_INITIAL: Duration = Duration::from_millis(1);

/// Weight of the last batch in the moving average of batch times, as a divisor.
pub const BATCH_TIME_MEAN_WEIGHT: u32 = 8;

/// Cap on the time of one batch, as a multiple of the mean, so that a batch that hung does not
/// delay later ones.
pub const BATCH_TIME_OUTLIER_FACTOR: u32 = 8;

/// Number of obsolete deadlines above which they are swept out, if they also outnumber the live
/// ones.
pub const DEADLINES_SWEEP_MIN: usize = 64;
