//! Options and counters of a cache.

use std::{fmt, path::PathBuf, sync::Arc};

use tokio::runtime::Handle;

use crate::{ObjectMeta, disk::FLOORS_SHARE};

/// Directory, limits and runtime of a cache.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Directory of this cache alone.
    pub directory: PathBuf,
    /// Bytes of disk that the cache uses, at most.
    pub bytes_max: u64,
    /// Bytes of the file system that the cache leaves free for others.
    pub free_bytes_min: u64,
    /// Bytes of fills in memory, at most.
    pub fill_bytes_max: u64,
    /// Largest object that its first miss brings to disk whole; of larger ones misses bring the
    /// extents that they touch. 0: never whole.
    pub fill_whole_max: u64,
    /// Share of each store in the disk.
    pub store_share: StoreShare,
    /// Runtime on whose blocking threads the cache reads and writes files, and on whose timers the
    /// maintenance task waits.
    pub runtime: Handle,
}

/// Share of one store in the disk of a cache. It counts objects, not sidecars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreShare {
    /// Bytes below which no other store evicts an open store, while all floors take at most half of
    /// the disk: the stores that were opened first have theirs. At most `cap_bytes`.
    pub floor_bytes: u64,
    /// Bytes that a store may use: beyond them it evicts its own extents.
    pub cap_bytes: u64,
}

impl StoreShare {
    /// Returns the largest floor that a disk of this many bytes keeps for one store.
    pub fn floor_bytes_max(disk_bytes_max: u64) -> u64 {
        disk_bytes_max / FLOORS_SHARE
    }
}

impl Default for StoreShare {
    /// Returns the share of a store like any other: no floor and no cap.
    fn default() -> Self {
        Self { floor_bytes: 0, cap_bytes: u64::MAX }
    }
}

/// Choice of the objects of a store that reads and streams bring to disk; of others only what is
/// there already is read from it. The answer may change with time. By default all come to disk.
#[derive(Clone, Default)]
pub struct FillFilter(Option<Arc<IsWanted>>);

type IsWanted = dyn Fn(&ObjectMeta) -> bool + Send + Sync;

impl FillFilter {
    /// Brings to disk the objects for which `is_wanted` returns true. It must not block.
    pub fn new(is_wanted: impl Fn(&ObjectMeta) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_wanted)))
    }

    pub(crate) fn is_wanted(&self, object: &ObjectMeta) -> bool {
        self.0.as_ref().is_none_or(|is_wanted| is_wanted(object))
    }
}

impl fmt::Debug for FillFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FillFilter")
    }
}

/// Counters since the start, and sizes now.
#[derive(Clone, Debug, Default)]
pub struct CacheStats {
    /// Bytes of disk used now.
    pub bytes: u64,
    /// Limit of the bytes of disk.
    pub bytes_max: u64,
    /// Objects with something on disk.
    pub objects: u64,
    /// Number of extents on disk.
    pub extents: u64,
    /// Reads answered from disk.
    pub hits: u64,
    /// Reads that needed the store, joined ones included.
    pub misses: u64,
    /// Misses that joined a fetch under way.
    pub joined: u64,
    /// Extents evicted since the start.
    pub evicted: u64,
    /// Blocks on disk whose checksum was wrong; the cache read them again from the store.
    pub corrupt: u64,
    /// Reads and writes of the disk that failed.
    pub disk_errors: u64,
    /// Reason why the disk is bypassed, if it is: degraded, full, in use by another process.
    pub bypassed: Option<String>,
    /// Bytes of fills in memory now.
    pub fill_bytes: u64,
}

/// One object of which something is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedObject {
    /// URL of its store.
    pub store: String,
    /// Name, size and version of the object.
    pub meta: ObjectMeta,
    /// Bytes of the object on disk.
    pub present: u64,
}

/// One store that has something on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedStore {
    /// URL of the store.
    pub url: String,
    /// Objects of which something is on disk.
    pub files: u64,
    /// Bytes of disk that the store uses, sidecars included.
    pub bytes: u64,
}

/// Progress of a warming or a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done so far.
    pub done: u64,
    /// Bytes to do in all.
    pub total: u64,
    /// Bytes that were corrupt, of those done.
    pub corrupt: u64,
}
