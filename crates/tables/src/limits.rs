//! Every limit of this crate.

/// Longest key, field or value.
pub const STRING_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Length from which values are kept as shared buffers and handed out without copying.
pub const SHARED_BYTES_MIN: usize = 32 * 1024;

/// Length from which dead shared values are handed out by [`crate::Tables::take_huge`].
pub const HUGE_BYTES_MIN: usize = 1024 * 1024;

/// Most fields of a hash that is kept packed in its entry.
pub const SMALL_HASH_FIELDS_MAX: usize = 64;

/// Most bytes of a hash that is kept packed in its entry.
pub const SMALL_HASH_BYTES_MAX: usize = 1024;

/// Most fields of a hash that Redis keeps as a listpack (`hash-max-listpack-entries`).
pub const COMPACT_HASH_FIELDS_MAX: usize = 512;

/// Longest field or value of a hash that Redis keeps as a listpack (`hash-max-listpack-value`).
pub const COMPACT_HASH_STRING_BYTES_MAX: usize = 64;

/// Number of spaces that exist from the start (`SELECT 0` to `SELECT 15`).
pub const SPACE_COUNT: u16 = 16;

/// Number of effects that a replay decodes ahead.
pub const REPLAY_GROUP_COUNT: usize = 64;

/// Bytes of records that a replay decodes ahead. Longer records are applied on their own.
pub const REPLAY_GROUP_BYTES: usize = 64 * 1024;

/// Share of a table that evicts above which newcomers are evicted, as a divisor: a tenth.
pub const NEWCOMERS_SHARE: usize = 10;

/// Share of a table by which the queue of newcomers may be longer than the table, because keys were
/// deleted, as a divisor. Beyond that the oldest newcomers join the main queue unjudged.
pub const NEWCOMERS_STALE_SHARE: usize = 4;

/// Number of newcomers that are judged before the hand looks for a victim. Most are used newcomers
/// or left by deleted keys then.
pub const EVICTION_NEWCOMERS_JUDGED_MAX: usize = 16;

/// Number of entries and buckets that the hand passes before the least used of them is the victim.
pub const EVICTION_HAND_STEPS_MAX: usize = 128;

const _: () = assert!(SMALL_HASH_BYTES_MAX < SHARED_BYTES_MIN && SHARED_BYTES_MIN < HUGE_BYTES_MIN);
const _: () = assert!(
    SMALL_HASH_FIELDS_MAX <= COMPACT_HASH_FIELDS_MAX,
    "only large hashes have so many fields"
);
const _: () = assert!(STRING_BYTES_MAX < 1 << 30, "lengths take 30 bits in an entry's header");
