//! Limits of every queue, batch, buffer and retry of the pipeline.

use std::time::Duration;

/// Number of batches that a net thread owns: one fills, one is queued, one executes, one comes
/// back.
pub const BATCH_COUNT: usize = 4;

/// Number of requests that tx hashes and prefetches together before it executes them.
pub const GROUP_REQUESTS: usize = 32;

/// Number of requests in one batch at which net stops parsing for this turn (it finishes the run in
/// progress).
///
/// A turn of this many takes about two milliseconds, which bounds how long one client waits for the
/// others.
pub const BATCH_REQUESTS_MAX: usize = 8 * 1024;

/// Number of requests of one batch that the connections with pending requests share.
pub const BATCH_REQUESTS_SHARED: usize = 4 * 1024;

/// Smallest number of requests that a connection may put into a batch.
pub const RUN_REQUESTS_MIN: usize = 64;

/// Number of arguments in one batch at which net stops parsing for this turn (it finishes the
/// request in progress): a command over many keys costs as much as that many commands.
pub const BATCH_ARGS_MAX: usize = 64 * 1024;

/// Unparsed bytes of one connection at which net stops reading from it until they are fewer.
pub const BACKLOG_BYTES_MAX: usize = 256 * 1024;

/// Reply bytes of one batch that its connections share. A connection that has used up its share has
/// the rest of its requests executed in a later turn.
pub const BATCH_REPLY_BYTES_SHARED: usize = 1024 * 1024;

/// Smallest number of reply bytes of a batch that a connection may use.
pub const RUN_REPLY_BYTES_MIN: usize = 16 * 1024;

/// Reply bytes in one batch at which tx defers all remaining requests; connections that got no
/// reply come first in the next turn.
pub const BATCH_REPLY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Largest size of a buffer that holds pending replies of one connection.
pub const REPLY_CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Number of steps, of about 100 ns each, that one turn executes of a sliced command.
pub const SLICE_STEPS: usize = 4 * 1024;

/// Number of entries that one SCAN or HSCAN visits, whatever its COUNT says: the client continues
/// with the cursor.
pub const SCAN_ENTRIES_MAX: usize = 4 * 1024;

/// Number of steps, of one or two nanoseconds each, after which matching a pattern with one text is
/// abandoned.
pub const MATCH_STEPS_MAX: usize = 256 * 1024;

/// Number of pattern matching steps that take as long as one of [`SLICE_STEPS`].
pub const MATCH_STEPS_PER_STEP: usize = 64;

/// Number of entries that SCAN and HSCAN visit before they check whether they have done enough.
pub const SCAN_ENTRIES_AT_ONCE: usize = 64;

/// Number of pattern matching steps after which SCAN and HSCAN return and let the client continue
/// with the cursor.
pub const SCAN_STEPS_MAX: usize = MATCH_STEPS_PER_STEP * SLICE_STEPS;

/// Reply bytes after which SCAN and HSCAN return.
pub const SCAN_REPLY_BYTES: usize = 1024 * 1024;

/// Reply bytes after which a slice ends.
pub const SLICE_BYTES: usize = 512 * 1024;

/// Time that a job which waits for the log pauses before it checks again.
pub const JOB_PAUSE: Duration = Duration::from_micros(500);

/// Number of arguments from which on a write is executed in slices.
pub const SLICED_ARGS_MIN: usize = 4 * 1024;

/// Bytes of a request, or of what it copies, from which on a write is executed in slices.
pub const SLICED_BYTES_MIN: usize = 1024 * 1024;

/// Number of fields of a hash from which on it is copied in slices.
pub const SLICED_FIELDS_MIN: usize = 2 * 1024;

/// Size from which on a write in slices logs and stores a value by reference.
pub const BIG_VALUE_BYTES: usize = 64 * 1024;

/// Bytes of one record of a transaction that is logged in parts.
pub const LOG_PART_BYTES: usize = 512 * 1024;

/// Bytes of the log that each part takes beyond its effects, because it may be a batch and a frame
/// of its own.
pub const LOG_PART_OVERHEAD_BYTES: usize = 128;

/// Number of parts handed to the log and not yet written.
pub const LOG_PARTS_AHEAD: usize = 2;

/// Reply bytes of a sliced command that one buffer holds.
pub const JOB_PIECE_BYTES: usize = 64 * 1024;

/// Number of keys that one client can watch.
pub const WATCHED_KEYS_MAX: usize = 10_000;

/// Number of fields that MEMORY USAGE reads, whatever SAMPLES says.
pub const MEMORY_SAMPLES_MAX: usize = 4 * 1024;

/// Bytes of the commands in one chunk of a MULTI queue; a longer command has a chunk of its own.
pub const QUEUE_CHUNK_BYTES: usize = 64 * 1024;
/// Number of arguments in one chunk of a MULTI queue.
pub const QUEUE_CHUNK_ARGS: usize = 4 * 1024;

/// Pending reply bytes of one client from which on net puts further replies into mapped memory: the
/// client evidently does not read.
pub const MAPPED_FROM_BYTES: usize = 512 * 1024;

/// Length of one piece of mapped memory.
pub const MAPPED_CHUNK_BYTES: usize = 256 * 1024;

/// Number of unused maps that the trimmer unmaps at a time: 32 MiB.
pub const TRIMMED_COUNT_MAX: usize = 128;

/// Interval at which the trimmer unmaps unused maps.
pub const TRIM_INTERVAL: Duration = Duration::from_millis(100);

/// Number of groups of requests whose replies wait for the log and whose times are still to be
/// recorded. The oldest of more are recorded early.
pub const TIMINGS_MAX: usize = 4 * 1024;

/// Size above which memory is freed on a background thread.
pub const BYTES_FREED_INLINE: usize = 1024 * 1024;

/// Bytes of copied values in one reply above which the reply is an error. Large values, which are
/// sent by reference, do not count.
pub const REPLY_COPIED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Reply size up to which a reply is never cut off: a command that was executed is answered.
pub const REPLY_SMALL_BYTES: usize = 1024 * 1024;

/// Size from which on a reply shares a value by reference instead of copying it.
pub const SHARED_VALUE_BYTES_MIN: usize = 32 * 1024;

/// Default of `client_reply_bytes`: pending reply bytes at which net stops reading a client until
/// it has taken some.
pub const CLIENT_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Default of `reply_bytes_total`: memory of all connections together above which net closes the
/// largest.
pub const REPLY_BYTES_TOTAL: usize = 2 * 1024 * 1024 * 1024;

/// Number of wrong passwords from one address that are checked, however fast they come; beyond that
/// each is refused and its connection closed.
pub const GUESSES_AT_ONCE: u32 = 10;

/// Time after which an address may try one more password.
pub const GUESS_INTERVAL: Duration = Duration::from_secs(1);

/// Number of addresses whose wrong passwords are counted separately.
pub const GUESS_ADDRESSES_MAX: usize = 4096;

/// Number of times that a password is verified again because its user has changed meanwhile.
pub const VERIFICATION_TRIES: u32 = 3;

/// Number of slots of the filter from key hash to the highest LSN that a reader of the key must
/// wait for.
pub const GATE_FILTER_SLOTS: usize = 16 * 1024;

/// Number of expired entries deleted in one log record.
pub const SWEEP_RECORD_KEYS: usize = 64;

/// Number of entries that one turn's expiry sweep may visit.
pub const SWEEP_ENTRIES_PER_TURN: usize = 1_000;

/// Number of garbage collection steps per turn while there is garbage.
pub const GARBAGE_STEPS_PER_TURN: usize = 512;

/// Number of garbage collection steps before a command is refused because memory is short.
pub const GARBAGE_STEPS_UNDER_PRESSURE: usize = 8 * 1024;

/// Number of keys that one turn evicts, a fraction of a millisecond, beside one for each key that a
/// request writes.
pub const EVICTED_KEYS_PER_TURN: usize = 512;

/// Memory of evicted keys after which a request evicts no more.
pub const EVICTED_BYTES_PER_REQUEST: u64 = 8 * 1024 * 1024;

/// Part of a limit by which memory may be above it while keys are being evicted.
pub const EVICTION_SLACK_SHARE: u64 = 16;

/// Most memory above a limit while keys are being evicted.
pub const EVICTION_SLACK_BYTES: u64 = 16 * 1024 * 1024;

/// Longest time that tx sleeps while expiring keys exist or garbage is left.
pub const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(100);

/// Number of entries of the slow log, unless `slowlog-max-len` says another, as in Redis.
pub const SLOW_LOG_LEN_DEFAULT: usize = 128;

/// Memory of the slow log's entries, whatever their number.
pub const SLOW_LOG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Number of arguments that an entry of the slow log shows.
pub const SLOW_LOG_ARGS_MAX: usize = 32;

/// Bytes of one argument that an entry of the slow log shows.
pub const SLOW_LOG_ARG_BYTES_MAX: usize = 128;

/// Bytes of a key at a source that the slow log can show: each open request keeps them.
pub const SLOW_SOURCE_KEY_BYTES: usize = 44;

/// Default of `slowlog-log-slower-than`: execution time of a slow command, as in Redis.
pub const SLOW_COMMAND: Duration = Duration::from_millis(10);

/// Value of `slowlog-log-slower-than` below which every command is timed by itself; from it on only
/// those that can take long.
pub const TIME_EVERY_COMMAND_BELOW: Duration = Duration::from_millis(1);

/// Bytes of a request from which on a fast command can take long, too.
pub const TIMED_REQUEST_BYTES_MIN: usize = 4 * 1024;

/// Default of `latency-monitor-threshold`: time from which on LATENCY shows an event.
pub const LATENCY_SPIKE: Duration = Duration::from_millis(100);

/// Number of samples that LATENCY keeps per event, as in Redis.
pub const LATENCY_SAMPLES_MAX: usize = 160;

/// Number of clients in MONITOR mode; each turn copies its lines to every one of them.
pub const MONITORS_MAX: usize = 16;

/// Bytes of lines for MONITOR in one turn; further commands of the turn are only counted.
pub const MONITOR_BYTES_PER_TURN: usize = 1024 * 1024;

/// Number of arguments that a line of MONITOR shows.
pub const MONITOR_ARGS_MAX: usize = 128;

/// Bytes of one argument that a line of MONITOR shows.
pub const MONITOR_ARG_BYTES_MAX: usize = 1024;

/// Interval at which tx looks for clients that are idle for longer than `timeout`.
pub const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time that clients have at shutdown to take their replies.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Time for which peers must have sent nothing before net closes connections at shutdown, once
/// every request is answered.
pub const SHUTDOWN_QUIET: Duration = Duration::from_millis(50);

/// Number of open tickets of one source; a further request is refused.
pub const SOURCE_TICKETS_MAX: usize = 1 << 20;

/// Bytes of a glob pattern. Compiling one of this length takes a few milliseconds.
pub const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// Number of character classes, of 32 bytes each, in a glob pattern; the same class several times
/// in a row counts once.
pub const PATTERN_SETS_MAX: usize = 16_000;

/// Number of names, patterns or ids in one request of a command that answers each of them with many
/// bytes (`COMMAND DOCS`, `CONFIG GET`, `CLIENT LIST ID`, `INFO`).
pub const NAMES_MAX: usize = 1024;

/// Bytes of a value in `CONFIG SET`.
pub const CONFIG_VALUE_BYTES_MAX: usize = 64 * 1024;

/// Smallest `client-reply-bytes` and `reply-bytes-total` that `CONFIG SET` accepts.
pub const CONFIG_REPLY_BYTES_MIN: u64 = 64 * 1024;

/// Smallest `client-query-buffer-limit` that `CONFIG SET` accepts.
pub const CONFIG_REQUEST_BYTES_MIN: u64 = 64 * 1024;

/// Largest `client-query-buffer-limit` that `CONFIG SET` accepts.
pub const CONFIG_REQUEST_BYTES_MAX: u64 = 1 << 31;

/// Bytes of a name that a client gives itself or its library, and of its library's version.
pub const CLIENT_NAME_BYTES_MAX: usize = 4 * 1024;

/// Number of requests to a table that wait while a reload replaces its source; further ones are
/// refused.
pub const HELD_REQUESTS_MAX: usize = 16 * 1024;

/// Bytes of keys and arguments of these requests; a request beyond is refused.
pub const HELD_REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Number of named tables that may exist.
pub const TABLE_COUNT_MAX: usize = 4096;

/// Length of a table's name that matches a pattern, in bytes: two path components of most systems.
pub const TABLE_PATH_BYTES_MAX: usize = 255;

/// Number of parts of a pattern of table names.
pub const PATTERN_PARTS_MAX: usize = 4;

/// Number of SELECT spaces of the table `default`.
pub const SPACE_COUNT: u16 = 16;

/// Number of free buffers that a net stage keeps for reuse.
pub const SPARE_BUFFERS_MAX: usize = 256;
/// Size of the largest buffer that a net stage keeps for reuse.
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
