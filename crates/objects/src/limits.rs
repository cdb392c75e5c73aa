//! Every limit of reads, fetches, fills and streams, with its reason.

use std::time::Duration;

use crate::disk::{BLOCK_DATA_BYTES, EXTENT_BLOCKS, EXTENT_DATA_BYTES};

/// Gap between two ranges that one read still spans, until the store's pace is known.
pub(crate) const GAP_DEFAULT: u64 = 1 << 20;
/// Smallest gap that counts as one: below it a second request costs more than the bytes, unless
/// the link is slow.
pub(crate) const GAP_MIN: u64 = 64 << 10;
/// Smallest gap that counts as one over a slow link, which takes 300 ms for 64 KiB: a block.
pub(crate) const GAP_MIN_SLOW: u64 = 4 << 10;
/// Largest gap that one read spans.
pub(crate) const GAP_MAX: u64 = 2 << 20;
/// Bytes that a read may bring for each byte that was asked for.
pub(crate) const WASTE_FACTOR_MAX: u64 = 4;
/// Size up to which a read may waste more: it takes hardly longer than its first byte. Over a slow
/// link the largest gap counts instead.
pub(crate) const WASTE_FREE_BYTES: u64 = 64 << 10;
/// Size up to which ranges that do not overlap share a read: beyond it two requests are faster.
pub(crate) const READ_BYTES_MAX: u64 = 8 << 20;

/// Bytes of completed foreground fetches of a cache that stay in memory until their extent is on
/// disk.
pub(crate) const RECEIVED_BYTES_MAX: u64 = 16 << 20;
/// Bytes that a completed fetch counts for beside those it has brought.
pub(crate) const RECEIVED_FETCH_BYTES: u64 = 1 << 10;
/// Number of fetches that begin before a range and are checked for one that covers it. A fetch of
/// the same range is always found.
pub(crate) const LOOK_BACK_MAX: usize = 32;

/// Time after which a read of the disk comes from the store instead. A disk that has begun the read
/// and not ended it is bypassed for a while: each such read holds a thread.
pub(crate) const DISK_TIMEOUT: Duration = Duration::from_secs(3);

/// Extents of a part of a fill: 8 MiB; larger requests do not get cheaper.
pub(crate) const PART_EXTENTS_MAX: u64 = 8;
/// Time in which a part comes, about: bytes are on disk when their part is complete. Parts over a
/// slow link are shorter than 8 MiB, and at least an extent.
pub(crate) const PART_TIME: Duration = Duration::from_secs(4);
/// Time within which the parts of fills under way are due when the next one is sent. A store that
/// takes much longer for a part gets one request after the other: side by side they would slow
/// foreground reads on a slow link, and none would come sooner.
pub(crate) const FILL_AHEAD_TIME: Duration = Duration::from_secs(2);
/// Parts that the budget of fills allows at once; a small budget makes them smaller.
pub(crate) const PARTS_AT_ONCE_MIN: u64 = 4;
/// Runs of extents in the fill queue of an object. The next miss queues again what does not fit.
pub(crate) const QUEUE_RANGES_MAX: usize = 1024;
/// Time without new fills of an object after one of its parts failed.
pub(crate) const FILL_PAUSE: Duration = Duration::from_secs(5);
/// Time without new fills after the disk kept nothing of a part, whose bytes came for nothing.
pub(crate) const DISK_PAUSE: Duration = Duration::from_secs(30);

/// Blocks of a piece of a stream: a quarter of an extent, so that no piece is in two parts. Larger
/// pieces would only take more memory for slow readers.
pub(crate) const PIECE_BLOCKS: usize = 64;
/// Bytes of a piece, at most.
pub(crate) const PIECE_BYTES: u64 = (PIECE_BLOCKS * BLOCK_DATA_BYTES) as u64;
/// A range up to this size is read as one piece, wherever it begins.
pub(crate) const SMALL_RANGE_BYTES: u64 = 256 << 10;
/// Pieces that a stream has asked for and not returned: 2 MiB, which it holds for a reader that has
/// stopped.
pub(crate) const PIECES_AHEAD_MAX: usize = 8;
/// Number of pieces left at which a stream asks for the next ones together, in one read, while the
/// others are under way.
pub(crate) const PIECES_AHEAD_MIN: usize = PIECES_AHEAD_MAX / 2;
/// Pieces that a stream reads from disk at once when they are not in the page cache.
pub(crate) const PIECES_FROM_DISK: usize = 4;
/// Largest timeout of a stream: an `Instant` has an end.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Parts that a stream brings to disk ahead of its position: they come in parallel and hide the
/// time to the first byte.
pub(crate) const PARTS_AHEAD: u64 = 4;
/// Part of a stream's timeout within which the fetches ahead of it are due: the piece that it waits
/// for shares the link with them.
pub(crate) const READAHEAD_SHARE: u32 = 4;
/// Interval at which a fetch checks how far those before it are: a third of the time to a first
/// byte.
pub(crate) const READAHEAD_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Extents that a stream must be able to bring to disk ahead, so that its pieces lie within; with
/// less space it bypasses the disk.
pub(crate) const EXTENTS_AHEAD_MIN: u64 = 4;
/// Extents of one read of a stream that bypasses the disk.
pub(crate) const BYPASS_READ_EXTENTS: u64 = 2;
/// Extents ahead of such a stream, at most: their bytes are among the recent fetches until it gets
/// there.
pub(crate) const BYPASS_AHEAD_MAX: u64 = 8;
/// Part of [`RECEIVED_BYTES_MAX`] that all streams which bypass the disk take together, about.
pub(crate) const BYPASS_SHARE: u64 = 2;
/// Part of the new extents that the disk can take which the parts of a stream use, so that the
/// eviction does not take them before the stream reads them.
pub(crate) const NEW_EXTENTS_SHARE: u64 = 2;

/// Assumed time to the first byte until one came.
pub(crate) const FIRST_BYTE_DEFAULT: Duration = Duration::from_millis(50);
/// Assumed bytes per second of one response until one was long enough to measure.
pub(crate) const BANDWIDTH_DEFAULT: f64 = 50e6;
/// Bytes of a fetch after which its own rate counts instead of the average.
pub(crate) const OWN_RATE_BYTES_MIN: u64 = 256 << 10;
/// Time since the answer of a fetch began after which its own rate counts, even if little has come.
pub(crate) const OWN_RATE_TIME_MIN: Duration = Duration::from_millis(250);
/// Longest wait for the bytes before a range in a fetch under way; else its reader starts a new
/// fetch. Clients give up after some seconds without a byte.
pub(crate) const JOIN_WAIT_MAX: Duration = Duration::from_secs(2);
/// Time without a byte after which new readers do not join a part.
pub(crate) const QUIET_MAX: Duration = Duration::from_millis(100);

const _: () = {
    assert!(EXTENT_BLOCKS.is_multiple_of(PIECE_BLOCKS));
    assert!(PIECE_BYTES <= SMALL_RANGE_BYTES);
    // The pieces that a stream asks for begin in an extent and end at most two behind it; parts and
    // reads may end an extent short of the reach.
    assert!(
        (PIECES_AHEAD_MAX * PIECE_BLOCKS).div_ceil(EXTENT_BLOCKS) + 1 < EXTENTS_AHEAD_MIN as usize
    );
    assert!(EXTENTS_AHEAD_MIN <= BYPASS_AHEAD_MAX && BYPASS_READ_EXTENTS < EXTENTS_AHEAD_MIN);
    assert!(BYPASS_AHEAD_MAX * EXTENT_DATA_BYTES <= RECEIVED_BYTES_MAX / BYPASS_SHARE);
    assert!(READAHEAD_POLL_INTERVAL.as_millis() < OWN_RATE_TIME_MIN.as_millis());
    // A stream turns to the foreground after half of its timeout: what is under way ahead is due
    // before.
    assert!(2 < READAHEAD_SHARE);
    // Over a slow link the next part is sent when most of the one before it is there.
    assert!(2 * FILL_AHEAD_TIME.as_millis() <= PART_TIME.as_millis());
    assert!(PARTS_AHEAD <= EXTENTS_AHEAD_MIN && BYPASS_READ_EXTENTS <= PART_EXTENTS_MAX);
    assert!(
        0 < PIECES_AHEAD_MIN
            && PIECES_AHEAD_MIN < PIECES_AHEAD_MAX
            && PIECES_FROM_DISK <= PIECES_AHEAD_MAX
    );
    assert!(PIECES_AHEAD_MAX as u64 * PIECE_BYTES <= READ_BYTES_MAX);
    assert!(GAP_MIN_SLOW <= GAP_MIN && GAP_MIN <= GAP_DEFAULT && GAP_DEFAULT <= GAP_MAX);
    // A single part always fits into the count of the budget's semaphore.
    assert!(PART_EXTENTS_MAX * EXTENT_DATA_BYTES < u32::MAX as u64);
};
