//! Limits of the disk side, each with its reason.

use std::time::Duration;

use crate::disk::{BLOCK_BYTES, EXTENT_BLOCKS};

/// Disk space of a cache, at least: one extent, its file's bookkeeping, a journal and its
/// successor.
pub const DISK_BYTES_MIN: u64 = 2 << 20;
/// Objects larger than this are not kept on disk: a file that is on disk takes a byte of memory for
/// each of its extents, here or not, which are 16 MiB for this size.
pub const OBJECT_BYTES_MAX: u64 = 16 << 40;
/// Store, name and version of an object that is kept on disk, together. S3 allows names of 1,024
/// bytes.
pub const KEY_BYTES_MAX: usize = 16 << 10;
/// A name of [`crate::Cache::write_sidecar`]: with what is appended it is a file's name, which most
/// systems limit to 255 bytes.
pub const SIDECAR_NAME_BYTES_MAX: usize = 200;
/// Bytes of one thing kept.
pub const SIDECAR_BYTES_MAX: usize = 256 << 20;
/// Things kept have at most this part of the disk's limit: they are not evicted, and the journal
/// has to find room beside them.
pub const SIDECAR_SHARE: u64 = 2;

/// File system's bookkeeping of a file (inode, directory entry, a block of its extent tree),
/// counted against the limit.
pub const FILE_OVERHEAD_BYTES: u64 = 8 << 10;
/// The same for each extent of ours: ext4 takes 12 bytes for each run of blocks, and an extent may
/// be torn into a few runs.
pub const EXTENT_OVERHEAD_BYTES: u64 = 128;

/// Blocks that are read into a buffer that a thread keeps: 64 KiB stays in the processor's cache,
/// and no allocation is made for it.
pub const SCRATCH_BLOCKS: usize = 16;
/// Blocks of one read call: 1 MiB keeps a device busy.
pub const READ_BLOCKS_MAX: usize = EXTENT_BLOCKS;

/// Threads in reads of one disk at once: enough for a device that serves several at a time.
pub const DISK_READS_MAX: usize = 6;
/// Threads that write to one disk, or look after it, at once. Two keep a device busy; more would
/// take processors from those who wait.
pub const DISK_WRITES_MAX: usize = 2;

/// Data files open at once, if the process may have twice as many.
pub const OPEN_FILES_MAX: usize = 4096;

/// Extents that were evicted early are remembered in this many places for each extent that fits the
/// disk.
pub const GHOST_PLACES_PER_EXTENT: usize = 2;
/// The small queue of S3-FIFO has one tenth of all extents.
pub const SMALL_QUEUE_SHARE: usize = 10;
/// Parts of the small queue's lifetime within which reads of an extent count once.
pub const TICKS_PER_SMALL_QUEUE: usize = 8;

/// Extents that one write may drive out: it takes one's place, and maybe those of others who were
/// faster.
pub const EVICTIONS_PER_WRITE_MAX: usize = 1024;

/// So long a change waits for others before the journal is written.
pub const FLUSH_DELAY: Duration = Duration::from_millis(100);
/// Changes that wait for the journal; a writer that finds more writes them itself.
pub const PENDING_CHANGES_MAX: usize = 16 << 10;
/// A journal larger than this is not read: the cache starts empty. A million extents need less than
/// 8 MiB.
pub const JOURNAL_BYTES_MAX: u64 = 256 << 20;
/// A journal may grow by its last rewritten length and this before it is rewritten.
pub const JOURNAL_SLACK_BYTES_MAX: u64 = 4 << 20;
/// Also in a small cache it may grow by so much.
pub const JOURNAL_SLACK_BYTES_MIN: u64 = 64 << 10;
/// Runs of extents in one record of the journal: what a flipped bit can lose.
pub const RUNS_PER_RECORD_MAX: usize = 512;

/// After a failure the disk is left alone for so long.
pub const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// How often free space, and whether the directory is still there, are looked at.
pub const LOOK_PAUSE: Duration = Duration::from_secs(5);
/// Failed reads with no good one between them after which the disk is left alone: a single bad
/// sector costs one extent.
pub const READ_FAILURES_MAX: u32 = 4;
/// Extents given up in one look when the file system is too full. The file system may tell of freed
/// space seconds later.
pub const FLOOR_EVICTIONS_MAX: u64 = 256;

const _: () = assert!(SCRATCH_BLOCKS <= READ_BLOCKS_MAX);
const _: () = assert!(READ_BLOCKS_MAX * BLOCK_BYTES <= 1 << 20);
const _: () = assert!(KEY_BYTES_MAX < u16::MAX as usize / 2, "a record's length has two bytes");
const _: () =
    assert!(RUNS_PER_RECORD_MAX * 10 < u16::MAX as usize / 2, "a record's length has two bytes");
const _: () = assert!(OBJECT_BYTES_MAX.div_ceil(crate::disk::EXTENT_DATA_BYTES) < u32::MAX as u64);
const _: () =
    assert!(2 * JOURNAL_SLACK_BYTES_MIN + FILE_OVERHEAD_BYTES + (1 << 20) < DISK_BYTES_MIN);
