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

/// Number of entries, as a multiple of a batch, that the search for further writes of one kind
/// visits.
pub const KIND_SEARCH_BATCHES: usize = 4;

/// Share of the slots, as a divisor, that writes leave to reads if the dispatch policy adapts: the
/// backend may block all writes for long.
pub const WRITES_LEAVE: usize = 4;

/// Number of entries that a batch takes, if they are pending, though its share among the batches in
/// flight is less: smaller batches cost more than they gain by using all slots.
pub const BATCH_SHARE_MIN: usize = 32;

/// Price of one more batch, in waiting time of a request: about what a Postgres server's processor
/// spends on a statement besides its rows.
pub const STATEMENT_COST: Duration = Duration::from_micros(50);

/// Limit of the batches in flight of a class before anything was measured.
pub const LIMIT_INITIAL: usize = 4;

/// Least number of batches in a period of measuring.
pub const PERIOD_BATCHES_MIN: usize = 16;

/// Shortest period of measuring: longer than a busy system leaves a runnable thread waiting.
pub const PERIOD_MIN: Duration = Duration::from_millis(5);

/// Least length of a period of measuring, in mean times of a batch.
pub const PERIOD_BATCH_TIMES_MIN: u32 = 4;

/// Maximum number of pairs of periods in one trial of another limit.
pub const PAIRS_MAX: usize = 8;

/// Number of periods after which another limit is tried again, once it was tried in vain.
pub const RETRIAL_PERIODS_MIN: u32 = 16;

/// Largest such number: it doubles with each trial in vain.
pub const RETRIAL_PERIODS_MAX: u32 = 256;

/// Number of obsolete deadlines above which they are swept out, if they also outnumber the live
/// ones.
pub const DEADLINES_SWEEP_MIN: usize = 64;
