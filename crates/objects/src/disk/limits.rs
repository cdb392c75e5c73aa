//! Limits of the disk cache, each with its reason.

use std::time::Duration;

use crate::disk::{BLOCK_BYTES, EXTENT_BLOCKS};

/// Smallest limit of a cache's disk space: one extent, its file's bookkeeping, a journal and its
/// successor.
pub const DISK_BYTES_MIN: u64 = 2 << 20;
/// Largest object that the cache keeps on disk: the index takes a byte of memory for each extent of
/// an object, there or not, which is 16 MiB for this size.
pub const OBJECT_BYTES_MAX: u64 = 16 << 40;
/// Bytes of store, name and version of an object on disk, together. S3 allows names of 1,024 bytes.
pub const KEY_BYTES_MAX: usize = 16 << 10;
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize, "a sidecar has the URL's length as u16");
/// Bytes of a sidecar's name: with its suffix it is a file's name, which most systems limit to 255
/// bytes.
pub const SIDECAR_NAME_BYTES_MAX: usize = 200;
/// Bytes of one sidecar.
pub const SIDECAR_BYTES_MAX: usize = 256 << 20;
/// Part of the disk's limit that all sidecars may take: those of open stores are not evicted, and
/// the journal needs space beside them.
pub const SIDECAR_SHARE: u64 = 2;
/// Part of the disk's limit that the floors of all stores take, at most, so that there is always
/// something to evict beside them.
pub const FLOORS_SHARE: u64 = 2;
/// Part of the disk's limit that sidecars of closed stores keep while extents are evicted; beyond
/// it they go first.
pub const CLOSED_SIDECAR_SHARE: u64 = 8;

/// Bytes of the file system's bookkeeping for a file (inode, directory entry, a block of its extent
/// tree), counted against the limit.
pub const FILE_OVERHEAD_BYTES: u64 = 8 << 10;
/// Bytes of the same for each extent: ext4 takes 12 bytes for each run of blocks, and an extent may
/// be torn into a few runs.
pub const EXTENT_OVERHEAD_BYTES: u64 = 128;

/// Blocks of the read buffer that each thread keeps: 64 KiB stay in the processor's cache and need
/// no allocation.
pub const SCRATCH_BLOCKS: usize = 16;
/// Blocks of one read call: 1 MiB keeps a device busy.
pub const READ_BLOCKS_MAX: usize = EXTENT_BLOCKS;

/// Threads that read one disk at once: enough for a device that serves several requests at a time.
pub const DISK_READS_MAX: usize = 6;
/// Threads that write to one disk or maintain it at once. Two keep a device busy; more would take
/// processors from readers.
pub const DISK_WRITES_MAX: usize = 2;

/// Cache files open at once, if the process may have twice as many.
pub const OPEN_FILES_MAX: usize = 4096;

/// Entries of the ghost table for each extent that fits the disk.
pub const GHOST_PLACES_PER_EXTENT: usize = 2;
/// Share of the small queue of S3-FIFO: one tenth of all extents.
pub const SMALL_QUEUE_SHARE: usize = 10;
/// Periods in the lifetime of the small queue; reads of an extent within one period count once.
pub const TICKS_PER_SMALL_QUEUE: usize = 8;

/// Extents that one eviction passes over in each queue because their stores would fall below their
/// floors, or because they were read: a tenth of a millisecond of work under the lock.
pub const PASSED_OVER_MAX: usize = 256;
/// Entries of absent extents that the queues may hold beyond as many as they have of others.
pub const QUEUE_SLACK_MAX: usize = 1024;
/// Extents that one write may evict: as many as it needs, and more when concurrent writes take the
/// space first.
pub const EVICTIONS_PER_WRITE_MAX: usize = 1024;

/// Time that a change waits for others before the maintenance task writes the journal.
pub const FLUSH_DELAY: Duration = Duration::from_millis(100);
/// Changes that may wait for the journal; a writer that finds more writes them itself.
pub const PENDING_CHANGES_MAX: usize = 16 << 10;
/// Largest journal that a start reads; with a larger one the cache starts empty. A million extents
/// need less than 8 MiB.
pub const JOURNAL_BYTES_MAX: u64 = 256 << 20;
/// Bytes by which a journal may grow beyond twice its last rewritten length before it is rewritten.
pub const JOURNAL_SLACK_BYTES_MAX: u64 = 4 << 20;
/// Smallest such slack, for a small cache.
pub const JOURNAL_SLACK_BYTES_MIN: u64 = 64 << 10;
/// Runs of extents in one record of the journal: as many as a flipped bit can lose.
pub const RUNS_PER_RECORD_MAX: usize = 512;

/// Time for which a failed disk is bypassed before the maintenance task tries it again.
pub const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// Interval at which the maintenance task checks free space and whether the directory is still
/// there.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Failed reads in a row after which the disk is bypassed: a single bad sector costs one extent.
pub const READ_FAILURES_MAX: u32 = 4;
/// Extents that one check evicts when the file system is too full. The file system may report freed
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
