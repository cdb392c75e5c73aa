//! Every limit of the log in one place, and how they relate.

use crate::format::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES};

/// Default length of a segment file.
pub const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// Smallest segment the options may ask for.
pub const SEGMENT_BYTES_MIN: u64 = 16 * 1024;

/// The first segment after a start is this short, so that writing its zeros does not delay
/// readiness.
pub const FIRST_SEGMENT_BYTES: u64 = 8 * 1024 * 1024;

/// Where little is free, a segment is made shorter, down to this. Below it writes are refused.
pub const SHRUNK_SEGMENT_BYTES_MIN: u64 = 2 * 1024 * 1024;

/// Default bound of the bytes handed over and not yet written.
pub const QUEUE_BYTES_LIMIT: u64 = 16 * 1024 * 1024;

/// A frame takes further batches only up to here; a single record may be larger.
pub const FRAME_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The open batch is handed over in mid-turn once it is this long.
pub const BATCH_BYTES: u64 = 1024 * 1024;

/// Part of a segment that a batch may take at most (as a divisor), for short segments.
pub const SEGMENT_BATCH_DIVISOR: u64 = 16;

/// A part of a record shorter than this is copied rather than kept by reference.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;

/// Parts by reference in one batch before it is handed over.
pub const BATCH_PART_COUNT_MAX: usize = 64;

/// Slices of one write call; a frame takes further batches only up to here (the system takes 1024).
pub const FRAME_SLICE_COUNT_MAX: usize = 512;

/// Zeros are written in pieces of this length.
pub const ZERO_CHUNK_BYTES: u64 = 1024 * 1024;

/// Zeros are synced whenever this many are unsynced, so that they never fill the device's queue
/// before a sync of the log.
pub const ZERO_SYNC_BYTES: u64 = 4 * 1024 * 1024;

/// Default rate of writing zeros ahead while nobody waits for them.
pub const ZERO_BYTES_PER_SECOND: u64 = 512 * 1024 * 1024;

/// How long after a refusal for lack of space the next attempt is made.
pub const NO_SPACE_RETRY_MS: u64 = 1000;

/// Spent batches kept for reuse.
pub const SPARE_BATCH_COUNT_MAX: usize = 32;

/// Recovery reads in pieces of this length; a longer frame is read whole.
pub const READ_BYTES: usize = 2 * 1024 * 1024;

/// A warning is logged when the log passes this size, and at each doubling.
pub const LOG_BYTES_WARNING: u64 = 8 * 1024 * 1024 * 1024;

/// What a record can cost in a frame beyond its bytes: its length prefix.
pub const RECORD_OVERHEAD_BYTES: u64 = 10;

/// What a batch can cost beyond its records, when it becomes a frame of its own: header and
/// padding.
pub const BATCH_OVERHEAD_BYTES: u64 = FRAME_HEADER_BYTES as u64 + 8;

const _: () = assert!(FIRST_SEGMENT_BYTES <= SEGMENT_BYTES);
const _: () = assert!(SEGMENT_BYTES_MIN <= FIRST_SEGMENT_BYTES);
const _: () = assert!(SEGMENT_BYTES_MIN <= SHRUNK_SEGMENT_BYTES_MIN);
const _: () = assert!(SHRUNK_SEGMENT_BYTES_MIN <= FIRST_SEGMENT_BYTES);
const _: () = assert!(2 * BATCH_BYTES < FRAME_BYTES_MAX);
const _: () = assert!(BATCH_PART_COUNT_MAX * 2 < FRAME_SLICE_COUNT_MAX);
const _: () = assert!(FRAME_SLICE_COUNT_MAX <= 1024);
const _: () = assert!(ZERO_CHUNK_BYTES <= ZERO_SYNC_BYTES);
// The shortest segment made holds any record that counts as small: else that would wait for room
// for ever.
const _: () = assert!(
    SEGMENT_HEADER_BYTES as u64
        + BATCH_OVERHEAD_BYTES
        + BATCH_BYTES
        + RECORD_OVERHEAD_BYTES
        + BATCH_OVERHEAD_BYTES
        <= SHRUNK_SEGMENT_BYTES_MIN
);
// A segment holds its header, the last frame's reserve and several batches of the largest normal
// size.
const _: () = assert!(
    SEGMENT_HEADER_BYTES as u64
        + BATCH_OVERHEAD_BYTES
        + 4 * (SEGMENT_BYTES_MIN / SEGMENT_BATCH_DIVISOR)
        < SEGMENT_BYTES_MIN
);
