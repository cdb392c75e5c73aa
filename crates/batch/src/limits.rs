//! Every bound of the waiting line that is not a setting, and what bounds the settings.

use std::time::Duration;

/// What a waiting request costs besides its key and its write: its waiter, its places in the lists,
/// its deadline.
///
/// Counted for each request, so that many requests for one key are not free.
pub const REQUEST_OVERHEAD_BYTES: usize = 128;

/// Most that [`LineSettings::requests_max`](crate::LineSettings::requests_max) may be.
pub const REQUESTS_MAX: usize = (1 << 24) - 1;

/// Most that [`LineSettings::batches_in_flight_max`](crate::LineSettings::batches_in_flight_max)
/// may be.
pub const BATCHES_IN_FLIGHT_MAX: usize = 255;

// Requests of a batch waited all at once, so a batch holds no more of them than the line. Slots are
// numbered by `u32`.
const _: () = assert!(REQUESTS_MAX as u64 * (BATCHES_IN_FLIGHT_MAX as u64 + 1) < u32::MAX as u64);

/// Most that [`LineSettings::lanes`](crate::LineSettings::lanes) may be. All lanes are looked at
/// for a batch of writes.
pub const LANES_MAX: usize = 1024;

/// How many times the entries of one batch a lane is searched for further writes of the kind that
/// leaves.
pub const KIND_SEARCH_BATCHES: usize = 4;

/// A batch of reads takes its share of what is asked for, but never less than this many times
/// `min_batch` if so many wait: smaller ones cost more trips than they keep places busy.
pub const SHARE_MIN_BATCHES: usize = 4;

/// A class whose first trip has not ended yet is taken to need this long.
pub const TRIP_MEAN_INITIAL: Duration = Duration::from_millis(1);

/// One in this many parts of the mean trip time is the last trip.
pub const TRIP_MEAN_WEIGHT: u32 = 8;

/// A trip counts as at most this many times the mean, so that one that hung does not hold others
/// back afterwards.
pub const TRIP_OUTLIER_FACTOR: u32 = 8;

/// Deadlines of requests that are gone are swept out when they are more than this and more than the
/// live ones.
pub const DEADLINES_SWEEP_MIN: usize = 64;
