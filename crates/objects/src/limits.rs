//! Every limit of fetches and fills, with its reason.

use std::time::Duration;

use crate::disk::{BLOCK_DATA_BYTES, EXTENT_BLOCKS, EXTENT_DATA_BYTES};

/// Bytes between two ranges that are read in one read all the same, until a store's pace is known.
pub(crate) const GAP_DEFAULT: u64 = 1 << 20;
/// Smallest such gap: below it a second request costs more than the bytes, whatever the store.
pub(crate) const GAP_MIN: u64 = 64 << 10;
/// Largest such gap.
pub(crate) const GAP_MAX: u64 = 2 << 20;
/// A read brings at most so many times the bytes asked for.
pub(crate) const WASTE_FACTOR_MAX: u64 = 4;
/// Reads up to this size may waste more: they take hardly longer than their first byte.
pub(crate) const WASTE_FREE_BYTES: u64 = 64 << 10;
/// Ranges that do not overlap are not merged into reads beyond this: two streams bring them sooner.
pub(crate) const READ_BYTES_MAX: u64 = 8 << 20;

/// Foreground bytes of a cache that stay in memory after they arrived, until their extent is on
/// disk.
pub(crate) const RECEIVED_BYTES_MAX: u64 = 16 << 20;
/// Fetches that begin before a range and are looked at to see whether one covers it. Identical
/// ranges are always found.
pub(crate) const LOOK_BACK_MAX: usize = 32;

/// A read of the disk that takes longer comes from the store instead. A disk that has really begun
/// it and not ended it is left alone for a while: each such read holds a thread.
pub(crate) const DISK_TIMEOUT: Duration = Duration::from_secs(3);

/// Extents of a part of a fill: 8 MiB, from where on larger requests do not get cheaper.
pub(crate) const PART_EXTENTS_MAX: u64 = 8;
/// What is under way of fills is to be due within this time, but for one part. Before a store that
/// brings less than a part in it, one comes after the other: side by side they would take a thin
/// line from reads that somebody waits for, and none would come sooner.
pub(crate) const FILL_AHEAD_TIME: Duration = Duration::from_secs(8);
/// Parts that the budget of fills should allow at once; they are smaller where it is small.
pub(crate) const PARTS_AT_ONCE_MIN: u64 = 4;
/// Ranges of extents that wait to be filled, per object. What does not fit is asked for again by
/// its next miss.
pub(crate) const QUEUE_RANGES_MAX: usize = 1024;
/// After a part failed misses start no fill for so long.
pub(crate) const FILL_PAUSE: Duration = Duration::from_secs(5);
/// The same after the disk kept nothing of a part: bytes brought for nothing.
pub(crate) const DISK_PAUSE: Duration = Duration::from_secs(30);

/// Blocks of a piece of a stream: a quarter of an extent, so that no piece is in two parts. Larger
/// ones would only take the memory of those who read slowly.
pub(crate) const PIECE_BLOCKS: usize = 64;
/// Bytes of a piece, at most.
pub(crate) const PIECE_BYTES: u64 = (PIECE_BLOCKS * BLOCK_DATA_BYTES) as u64;
/// A range up to this size is read as one piece, wherever it begins.
pub(crate) const SMALL_RANGE_BYTES: u64 = 256 << 10;
/// Pieces that a stream has asked for and not given on: 2 MiB, which is what it holds for a reader
/// that has come to a halt.
pub(crate) const PIECES_AHEAD_MAX: usize = 8;
/// When so many are left, as many more as there is room for are asked for together: in one read,
/// while the rest is on its way.
pub(crate) const PIECES_AHEAD_MIN: usize = PIECES_AHEAD_MAX / 2;
/// Pieces that are read from a disk at once where they are not in memory of the system.
pub(crate) const PIECES_FROM_DISK: usize = 4;
/// A stream's timeout with a piece, at most: instants have an end.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Parts ahead of where it is that a stream brings to disk: they come in parallel, and hide the
/// time to the first byte.
pub(crate) const PARTS_AHEAD: u64 = 4;
/// What is under way ahead of a stream is to be due within this part of its timeout: what is waited
/// for shares the line with it.
pub(crate) const READAHEAD_SHARE: u32 = 4;
/// A fetch that waits for those before it looks so often how far they are: a third of the time to a
/// first byte.
pub(crate) const READAHEAD_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Extents that a stream must be able to bring ahead, so that its pieces lie within: else it leaves
/// the disk alone.
pub(crate) const EXTENTS_AHEAD_MIN: u64 = 4;
/// Extents of a read of a stream that reads past the disk.
pub(crate) const BYPASS_READ_EXTENTS: u64 = 2;
/// Extents ahead of such a stream, at most: their bytes are among those that arrived lately, until
/// it gets there.
pub(crate) const BYPASS_AHEAD_MAX: u64 = 8;
/// Of what arrived lately streams that read past the disk take about this part together.
pub(crate) const BYPASS_SHARE: u64 = 2;
/// A stream's parts take this part of the room that the disk has for what is new, so that they are
/// not driven out before they are read.
pub(crate) const ROOM_SHARE: u64 = 2;

/// What a first byte is thought to take until one came.
pub(crate) const FIRST_BYTE_DEFAULT: Duration = Duration::from_millis(50);
/// What a stream is thought to bring per second until one was long enough to tell.
pub(crate) const BANDWIDTH_DEFAULT: f64 = 50e6;
/// Bytes of a part that tell its own rate.
pub(crate) const OWN_RATE_BYTES_MIN: u64 = 256 << 10;
/// From then on after its answer began a part tells its own rate, too, however little has come.
pub(crate) const OWN_RATE_TIME_MIN: Duration = Duration::from_millis(250);
/// Who wants bytes of a read under way waits for those before them, if they are due within this
/// time. Clients give up after some seconds without a byte.
pub(crate) const JOIN_WAIT_MAX: Duration = Duration::from_secs(2);
/// A part that brought nothing for so long is not waited for by those who come now.
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
    assert!(PARTS_AHEAD <= EXTENTS_AHEAD_MIN && BYPASS_READ_EXTENTS <= PART_EXTENTS_MAX);
    assert!(
        0 < PIECES_AHEAD_MIN
            && PIECES_AHEAD_MIN < PIECES_AHEAD_MAX
            && PIECES_FROM_DISK <= PIECES_AHEAD_MAX
    );
    assert!(PIECES_AHEAD_MAX as u64 * PIECE_BYTES <= READ_BYTES_MAX);
    assert!(GAP_MIN <= GAP_DEFAULT && GAP_DEFAULT <= GAP_MAX);
    // A single part always fits into the count of the budget's semaphore.
    assert!(PART_EXTENTS_MAX * EXTENT_DATA_BYTES < u32::MAX as u64);
};
