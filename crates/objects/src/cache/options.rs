//! What a cache is told, and what it tells.

use std::path::PathBuf;

use tokio::runtime::Handle;

use crate::ObjectMeta;

/// What is kept where.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Of this cache alone.
    pub directory: PathBuf,
    /// Disk space, at most.
    pub bytes_max: u64,
    /// So much of the file system stays free for others.
    pub free_bytes_min: u64,
    /// Bytes of fills in memory, at most.
    pub fill_bytes_max: u64,
    /// Objects up to this size are brought to disk whole when they are first touched; of larger
    /// ones only what is touched. 0: never whole.
    pub fill_whole_max: u64,
    /// Files are read and written on its threads that may block, and what looks after the directory
    /// waits on its timers.
    pub runtime: Handle,
}

/// Metrics since the start.
#[derive(Clone, Debug, Default)]
pub struct CacheStats {
    /// Bytes of disk used now.
    pub bytes: u64,
    /// The limit.
    pub bytes_max: u64,
    /// Objects with something on disk.
    pub objects: u64,
    /// Extents on disk.
    pub extents: u64,
    /// Reads answered from disk.
    pub hits: u64,
    /// Reads that needed the store, also by waiting for a read under way.
    pub misses: u64,
    /// Misses that joined a read under way.
    pub joined: u64,
    /// Extents evicted.
    pub evicted: u64,
    /// Blocks on disk whose checksum was wrong: read again from the store.
    pub corrupt: u64,
    /// Reads and writes of the disk that failed.
    pub disk_errors: u64,
    /// Whether the disk is left alone because it is degraded or full, and why.
    pub bypassed: Option<String>,
    /// Bytes of fills in memory now.
    pub fill_bytes: u64,
}

/// One object of which something is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedObject {
    /// URL of its store.
    pub store: String,
    /// Which.
    pub meta: ObjectMeta,
    /// Bytes of it on disk.
    pub present: u64,
}

/// How far long work has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
    /// Of those done, bytes that were corrupt.
    pub corrupt: u64,
}
