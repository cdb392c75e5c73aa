//! Every limit of the log in one place, and how the limits relate.

use crate::format::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES};

/// Bytes that a start writes again at once, of those that may not have been synced.
pub const REWRITE_BYTES: usize = 1 << 20;

/// Default length of a segment file.
pub const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// Smallest segment length that the options accept.
pub const SEGMENT_BYTES_MIN: u64 = 16 * 1024;

/// Length of the first segment after a start. It is short so that writing its zeros does not delay
/// readiness.
pub const FIRST_SEGMENT_BYTES: u64 = 8 * 1024 * 1024;

/// Shortest segment that the helper makes when the disk is nearly full. Below it the log refuses
/// writes.
pub const SHRUNK_SEGMENT_BYTES_MIN: u64 = 2 * 1024 * 1024;

/// Default limit of the bytes handed over and not yet written.
pub const QUEUE_BYTES_LIMIT: u64 = 16 * 1024 * 1024;

/// Length up to which a frame takes further batches; a single record may be larger.
pub const FRAME_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Length at which the writer hands over the open batch in mid-turn.
pub const BATCH_BYTES: u64 = 1024 * 1024;

/// Divisor that bounds a batch in short segments: a batch takes at most this fraction of a segment.
pub const SEGMENT_BATCH_DIVISOR: u64 = 16;

/// Length from which a part of a record is kept by reference rather than copied.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;

/// Number of parts kept by reference at which a batch is handed over.
pub const BATCH_PART_COUNT_MAX: usize = 64;

/// Number of slices up to which a frame takes further batches (one write call takes at most 1024).
pub const FRAME_SLICE_COUNT_MAX: usize = 512;

/// Length of one write of zeros.
pub const ZERO_CHUNK_BYTES: u64 = 1024 * 1024;

/// Length of unsynced zeros at which the helper syncs them, so that they never fill the device's
/// queue ahead of a sync of the log.
pub const ZERO_SYNC_BYTES: u64 = 4 * 1024 * 1024;

/// Default rate of writing zeros ahead while nobody waits for them.
pub const ZERO_BYTES_PER_SECOND: u64 = 512 * 1024 * 1024;

/// Pause between a failure for lack of space and the next attempt.
pub const NO_SPACE_RETRY_MS: u64 = 1000;

/// Number of spent batches kept for reuse.
pub const SPARE_BATCH_COUNT_MAX: usize = 32;

/// Length of one read of recovery; a longer frame is read whole.
pub const READ_BYTES: usize = 2 * 1024 * 1024;

/// Number of segments that are open at once while a snapshot reads a log that is being written.
pub const READ_SEGMENTS_OPEN_MAX: usize = 8;

/// Bytes of a copy of a segment or snapshot that are written at once.
pub const COPY_BUFFER_BYTES: usize = 1024 * 1024;

/// Length of unsynced writes at which a copy is synced, so that they never fill the device's queue
/// ahead of a sync of the log.
pub const COPY_SYNC_BYTES: u64 = 4 * 1024 * 1024;

/// Size of the log at which it logs a warning; it logs another at each doubling.
pub const LOG_BYTES_WARNING: u64 = 8 * 1024 * 1024 * 1024;

/// Most that a record can cost in a frame beyond its bytes: its length prefix.
pub const RECORD_OVERHEAD_BYTES: u64 = 10;

/// Most that a batch can cost beyond its records when it becomes a frame of its own: header and
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
// The shortest segment holds any record that counts as small; otherwise such a record would wait
// for ever.
const _: () = assert!(
    SEGMENT_HEADER_BYTES as u64
        + BATCH_OVERHEAD_BYTES
        + BATCH_BYTES
        + RECORD_OVERHEAD_BYTES
        + BATCH_OVERHEAD_BYTES
        <= SHRUNK_SEGMENT_BYTES_MIN
);
// A segment holds its header, the reserve for the clean shutdown's frame and several batches of the
// largest normal size.
const _: () = assert!(
    SEGMENT_HEADER_BYTES as u64
        + BATCH_OVERHEAD_BYTES
        + 4 * (SEGMENT_BYTES_MIN / SEGMENT_BATCH_DIVISOR)
        < SEGMENT_BYTES_MIN
);
