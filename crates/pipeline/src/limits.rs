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

/// Arguments in one batch at which net stops parsing for this turn (the request in progress is
/// finished): a command over many keys costs as much as as many commands.
pub const BATCH_ARGS_MAX: usize = 64 * 1024;

/// Bytes of requests not yet offered at which a connection is not read until they are fewer.
pub const BACKLOG_BYTES_MAX: usize = 256 * 1024;

/// Bytes of replies in one batch that the connections in it share. A connection whose share is used
/// up has the rest of its requests executed in a later turn.
pub const BATCH_REPLY_BYTES_SHARED: usize = 1024 * 1024;

/// A connection's share of the reply bytes of a batch is at least this.
pub const RUN_REPLY_BYTES_MIN: usize = 16 * 1024;

/// Bytes of replies in one batch at which tx leaves all other requests for later; those who got
/// nothing come first then.
pub const BATCH_REPLY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Pending replies of one connection lie in buffers of at most this size.
pub const REPLY_CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Steps of a command executed in slices that one turn does, of about 100 ns each.
pub const SLICE_STEPS: usize = 4 * 1024;

/// Entries that one SCAN or HSCAN visits, whatever its COUNT says: the client goes on with the
/// cursor.
pub const SCAN_ENTRIES_MAX: usize = 4 * 1024;

/// Steps, of a nanosecond or two, after which comparing a pattern with one text is given up.
pub const MATCH_STEPS_MAX: usize = 256 * 1024;

/// The same that take as long as one of [`SLICE_STEPS`].
pub const MATCH_STEPS_PER_STEP: usize = 64;

/// Entries that SCAN and HSCAN visit before they look whether it is enough.
pub const SCAN_ENTRIES_AT_ONCE: usize = 64;

/// Steps of comparing after which SCAN and HSCAN let the client go on with the cursor.
pub const SCAN_STEPS_MAX: usize = MATCH_STEPS_PER_STEP * SLICE_STEPS;

/// Bytes found after which they do.
pub const SCAN_REPLY_BYTES: usize = 1024 * 1024;

/// Reply bytes after which a slice ends.
pub const SLICE_BYTES: usize = 512 * 1024;

/// How long a job that waits for the log pauses before it looks again.
pub const JOB_PAUSE: Duration = Duration::from_micros(500);

/// Arguments from which on a write is executed in slices.
pub const SLICED_ARGS_MIN: usize = 4 * 1024;

/// Bytes of a request, or of what it copies, from which on a write is executed in slices.
pub const SLICED_BYTES_MIN: usize = 1024 * 1024;

/// Fields of a hash from which on it is copied in slices.
pub const SLICED_FIELDS_MIN: usize = 2 * 1024;

/// Values from here on are logged and stored by reference when they are written in slices.
pub const BIG_VALUE_BYTES: usize = 64 * 1024;

/// Bytes of one record of a transaction that is logged in parts.
pub const LOG_PART_BYTES: usize = 512 * 1024;

/// Bytes of the log that each part takes beyond its effects: it may be a batch and a frame of its
/// own.
pub const LOG_PART_ROOM_BYTES: usize = 128;

/// Parts handed to the log and not yet written.
pub const LOG_PARTS_AHEAD: usize = 2;

/// Reply bytes of a command executed in slices that lie together.
pub const JOB_PIECE_BYTES: usize = 64 * 1024;

/// Keys that one client can watch.
pub const WATCHED_KEYS_MAX: usize = 10_000;

/// Fields that MEMORY USAGE looks at, whatever SAMPLES says.
pub const MEMORY_SAMPLES_MAX: usize = 4 * 1024;

/// Bytes of the commands in one chunk of a MULTI queue; a longer command has a chunk of its own.
pub const QUEUE_CHUNK_BYTES: usize = 64 * 1024;
/// Arguments in one chunk of a MULTI queue.
pub const QUEUE_CHUNK_ARGS: usize = 4 * 1024;

/// Pending replies from which on further ones lie in mapped memory: the client does not read.
pub const MAPPED_FROM_BYTES: usize = 512 * 1024;

/// Mapped memory comes in pieces of this length.
pub const MAPPED_CHUNK_BYTES: usize = 256 * 1024;

/// Maps that nobody uses given back to the system at a time: 32 MiB.
pub const TRIMMED_COUNT_MAX: usize = 128;

/// How often some are given back.
pub const TRIM_INTERVAL: Duration = Duration::from_millis(100);

/// More memory than this is freed on a thread that nobody waits for.
pub const BYTES_FREED_INLINE: usize = 1024 * 1024;

/// Bytes that the values of one reply may take where they are copied; a longer reply is an error.
/// Large values, which are sent from where they are, do not count.
pub const REPLY_COPIED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A reply up to here is never cut off: what has been executed is answered.
pub const REPLY_SMALL_BYTES: usize = 1024 * 1024;

/// Values of at least this size are shared with the reply by reference instead of copied.
pub const SHARED_VALUE_BYTES_MIN: usize = 32 * 1024;

/// Default of `client_reply_bytes`: pending replies at which a client is not read until it has
/// taken some.
pub const CLIENT_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Default of `reply_bytes_total`: memory of all connections together above which the largest is
/// closed.
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

/// How long peers must have sent nothing before connections are closed at shutdown, once everything
/// is answered.
pub const SHUTDOWN_QUIET: Duration = Duration::from_millis(50);

/// Tickets of one source open at once; a further request is refused.
pub const SOURCE_TICKETS_MAX: usize = 1 << 20;

/// Bytes of a glob pattern. Compiling one of this length takes a few milliseconds.
pub const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// Character classes of a glob pattern, of 32 bytes each; the same one several times in a row
/// counts once.
pub const PATTERN_SETS_MAX: usize = 16_000;

/// Names, patterns or ids in one request of a command that looks each of them up for an answer of
/// many bytes (`COMMAND DOCS`, `CONFIG GET`, `CLIENT LIST ID`, `INFO`).
pub const NAMES_MAX: usize = 1024;

/// Bytes of a value in `CONFIG SET`.
pub const CONFIG_VALUE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of what a client says about itself: its name, and its library's name and version.
pub const CLIENT_NAME_BYTES_MAX: usize = 4 * 1024;

/// Named tables.
pub const TABLE_COUNT_MAX: usize = 4096;

/// SELECT spaces of the table `default`.
pub const SPACE_COUNT: u16 = 16;

/// Free buffers kept for reuse per net stage, and the largest one kept.
pub const SPARE_BUFFERS_MAX: usize = 256;
/// See [`SPARE_BUFFERS_MAX`].
pub const SPARE_BUFFER_BYTES_MAX: usize = 256 * 1024;

const _: () = assert!(RUN_REPLY_BYTES_MIN <= BATCH_REPLY_BYTES_SHARED);
const _: () = assert!(BATCH_REPLY_BYTES_SHARED <= BATCH_REPLY_BYTES_MAX);
const _: () = assert!(BATCH_REPLY_BYTES_MAX <= CLIENT_REPLY_BYTES);
const _: () = assert!(REPLY_CHUNK_BYTES_MAX <= SPARE_BUFFER_BYTES_MAX);
const _: () = assert!(
    BATCH_REPLY_BYTES_MAX < REPLY_COPIED_BYTES_MAX && REPLY_COPIED_BYTES_MAX < REPLY_BYTES_TOTAL
);
const _: () = assert!(SHARED_VALUE_BYTES_MIN <= REPLY_SMALL_BYTES);
const _: () = assert!(CLIENT_REPLY_BYTES <= REPLY_BYTES_TOTAL);
const _: () =
    assert!(GROUP_REQUESTS <= RUN_REQUESTS_MIN && RUN_REQUESTS_MIN <= BATCH_REQUESTS_SHARED);
const _: () = assert!(BATCH_REQUESTS_SHARED <= BATCH_REQUESTS_MAX);
const _: () =
    assert!(SHARED_VALUE_BYTES_MIN <= BIG_VALUE_BYTES && BIG_VALUE_BYTES <= SLICED_BYTES_MIN);
const _: () = assert!(GATE_FILTER_SLOTS.is_power_of_two());
