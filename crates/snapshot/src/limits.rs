//! Every limit of the snapshots.

/// Bytes of effects at which a block is written. A single value may be longer.
pub const BLOCK_BYTES: usize = 256 * 1024;

/// Length of a value from which it gets a block of its own, which is not compressed.
pub const OWN_BLOCK_BYTES: usize = 256 * 1024;

/// Bytes of pairs at which the fields of a hash go on in a further effect.
pub const HASH_EFFECT_BYTES: usize = 32 * 1024;

/// Least memory of tables for which a further partition is made.
pub const PARTITION_BYTES_MIN: u64 = 32 * 1024 * 1024;

/// A partition takes about this fraction of the memory of all tables.
pub const PARTITION_FRACTION: u64 = 32;

/// Most partitions of a snapshot, as a power of two.
pub const PARTITION_BITS_MAX: u32 = 7;

/// Records of the log of which a snapshot notes the partition, a byte for each, when it first reads
/// them. Where there are more it spills them; if the disk is too full for that, further ones are
/// decoded once for each partition.
pub const NOTED_RECORDS_MAX: usize = 8 * 1024 * 1024;

/// As many records are noted also if this fraction of the memory of all tables is more.
pub const NOTED_FRACTION: u64 = 64;

/// Length of a partition's effects at which they are spilled as a chunk. A single effect may be
/// longer.
pub const SPILL_CHUNK_BYTES: usize = 256 * 1024;

/// Length of the effects of all partitions that are not spilled yet.
pub const SPILL_BUFFERS_BYTES: usize = 16 * 1024 * 1024;

/// Length of unsynced writes at which a snapshot's file is synced, so that they never fill the
/// device's queue ahead of a sync of the log.
pub const SYNC_BYTES: u64 = 4 * 1024 * 1024;

/// Number of snapshots that are kept.
pub const KEPT_COUNT: usize = 2;

/// Bytes of decoded blocks that a start reads ahead, and one block more.
pub const READ_AHEAD_BYTES: usize = 8 * 1024 * 1024;

/// Length of a block from which it is not compressed.
pub const COMPRESSED_BYTES_MAX: usize = 1024 * 1024;

/// Space of the disk that a snapshot leaves to the log.
pub const DISK_RESERVE_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes of the log read between two calls of the pacer.
pub const PACED_BYTES: usize = 256 * 1024;

/// Default of the least length of the log behind the last snapshot at which another is made.
pub const LOG_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Default share of one processor that making a snapshot takes, in percent.
pub const CPU_PERCENT: u32 = 25;

/// The same where there is only one processor, which then serves the less meanwhile.
pub const CPU_PERCENT_SINGLE: u32 = 10;

/// Longest pause that the pacer makes at once.
pub const PAUSE_MAX_MS: u64 = 100;

/// Length of the log behind the last snapshot, in percent of the contents, above which a snapshot
/// that begins sorts it into a file and has the priority of the other threads, and from which its
/// share grows with the log.
pub const CATCH_UP_PERCENT: u64 = 200;

/// A snapshot that began with a shorter log begins anew like this when the log is so many times as
/// long as that.
pub const GIVE_WAY_FACTOR: u64 = 4;

/// Length of the log from which that factor does not hold: it begins anew already at the length
/// itself, so that large tables do not need so much space.
pub const GIVE_WAY_BYTES_MAX: u64 = 8 << 30;

/// Interval at which the thread looks how much the log has grown.
pub const LOOK_INTERVAL_MS: u64 = 500;

/// Longest time that a requested snapshot waits for what it is to cover to become durable.
pub const DURABLE_WAIT_MS: u64 = 1_000;

/// Interval at which it looks whether that is so.
pub const DURABLE_LOOK_MS: u64 = 2;

/// Interval between two lines of the log that say how far a snapshot is that takes long.
pub const PROGRESS_INTERVAL_MS: u64 = 10_000;

/// Pause after a snapshot that could not be made, before the next attempt.
pub const RETRY_INTERVAL_MS: u64 = 30_000;

const _: () = assert!(OWN_BLOCK_BYTES <= BLOCK_BYTES);
const _: () = assert!(HASH_EFFECT_BYTES < BLOCK_BYTES);
const _: () = assert!(64 * 1024 <= SPILL_BUFFERS_BYTES >> PARTITION_BITS_MAX);
