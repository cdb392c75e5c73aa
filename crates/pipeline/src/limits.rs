//! Every queue, batch, buffer and retry of the pipeline has its limit here.

use std::time::Duration;

/// Batches a net thread owns. One fills, one waits, one executes, one comes back.
pub const BATCH_COUNT: usize = 4;

/// Requests hashed and prefetched together before they are executed.
pub const GROUP_REQUESTS: usize = 32;

/// Requests in one batch at which net stops parsing for this turn (a run in progress is finished).
///
/// A turn of this many takes about two milliseconds: what one client waits for the others at most.
pub const BATCH_REQUESTS_MAX: usize = 8 * 1024;

/// Requests of one batch that the connections with something to say share.
pub const BATCH_REQUESTS_SHARED: usize = 4 * 1024;

/// A connection's share of a batch is at least this.
pub const RUN_REQUESTS_MIN: usize = 64;

/// Bytes of requests not yet offered at which a connection is not read until they are fewer.
pub const BACKLOG_BYTES_MAX: usize = 256 * 1024;

/// Bytes of replies of one connection and batch at which tx leaves the rest of its requests for later, whatever
/// `client_reply_bytes` says.
pub const RUN_REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of replies in one batch at which tx leaves all other requests for later.
pub const BATCH_REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes that the values of one reply may take where they are copied; a longer reply is an error. Large values, which
/// are sent from where they are, do not count.
pub const REPLY_COPIED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A reply up to here is never cut off: what has been executed is answered.
pub const REPLY_SMALL_BYTES: usize = 1024 * 1024;

/// Values of at least this size are shared with the reply by reference instead of copied.
pub const SHARED_VALUE_BYTES_MIN: usize = 32 * 1024;

/// Default of `client_reply_bytes`: pending replies at which a client is not read until it has taken some.
pub const CLIENT_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Default of `reply_bytes_total`: memory of all connections together above which the largest is closed.
pub const REPLY_BYTES_TOTAL: usize = 2 * 1024 * 1024 * 1024;

/// Wrong passwords from one address that are looked at, however fast they come; beyond that each is
/// refused, and its connection closed.
pub const GUESSES_AT_ONCE: u32 = 10;

/// After this one more is.
pub const GUESS_INTERVAL: Duration = Duration::from_secs(1);

/// Addresses whose wrong passwords are counted each for itself.
pub const GUESSERS_MAX: usize = 4096;

/// Slots of the filter from key hash to the highest LSN a reader of the key must wait for.
pub const GATE_FILTER_SLOTS: usize = 16 * 1024;

/// Expired entries deleted in one log record.
pub const SWEEP_RECORD_KEYS: usize = 64;

/// Entries one turn's expiry sweep may visit.
pub const SWEEP_ENTRIES_PER_TURN: usize = 1_000;

/// Steps of garbage collection per turn while there is garbage.
pub const GARBAGE_STEPS_PER_TURN: usize = 512;

/// Steps of garbage collection before a command is refused for want of memory.
pub const GARBAGE_STEPS_UNDER_PRESSURE: usize = 8 * 1024;

/// How long tx sleeps at most while expiring keys exist or garbage is left.
pub const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(100);

/// How long replies may take to leave at shutdown.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// How long peers must have sent nothing before connections are closed at shutdown, once everything is answered.
pub const SHUTDOWN_QUIET: Duration = Duration::from_millis(50);

/// Tickets of one source open at once; a further request is refused.
pub const SOURCE_TICKETS_MAX: usize = 1 << 20;

/// Named tables.
pub const TABLE_COUNT_MAX: usize = 4096;

/// SELECT spaces of the table `default`.
pub const SPACE_COUNT: u16 = 16;

/// Free buffers kept for reuse per net stage, and the largest one kept.
pub const SPARE_BUFFERS_MAX: usize = 256;
/// See [`SPARE_BUFFERS_MAX`].
pub const SPARE_BUFFER_BYTES_MAX: usize = 256 * 1024;

const _: () = assert!(RUN_REPLY_BYTES_MAX <= BATCH_REPLY_BYTES_MAX);
const _: () = assert!(RUN_REPLY_BYTES_MAX <= CLIENT_REPLY_BYTES);
const _: () =
    assert!(BATCH_REPLY_BYTES_MAX < REPLY_COPIED_BYTES_MAX && REPLY_COPIED_BYTES_MAX < REPLY_BYTES_TOTAL);
const _: () = assert!(SHARED_VALUE_BYTES_MIN <= REPLY_SMALL_BYTES);
const _: () = assert!(CLIENT_REPLY_BYTES <= REPLY_BYTES_TOTAL);
const _: () = assert!(GROUP_REQUESTS <= RUN_REQUESTS_MIN && RUN_REQUESTS_MIN <= BATCH_REQUESTS_SHARED);
const _: () = assert!(BATCH_REQUESTS_SHARED <= BATCH_REQUESTS_MAX);
const _: () = assert!(GATE_FILTER_SLOTS.is_power_of_two());
