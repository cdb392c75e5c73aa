//! The directory with what is on local disk.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use tokio::runtime::Handle;

use crate::{Error, Object, ObjectMeta, Remote};

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
    /// Objects up to this size are brought to disk whole when they are first touched; of larger ones only what is touched.
    /// 0: never whole.
    pub fill_whole_max: u64,
    /// Files are read and written here.
    pub runtime: Handle,
}

/// Figures since the start.
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
    pub damaged: u64,
    /// Reads and writes of the disk that failed.
    pub disk_errors: u64,
    /// Whether the disk is left alone because it is sick or full, and why.
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
    /// Of those done, bytes that were damaged.
    pub damaged: u64,
}

/// The directory with what is on local disk.
#[derive(Debug)]
pub struct Cache {}

impl Cache {
    /// Opens or makes the directory. Only another process in it, or settings that make no sense, are errors: whatever else is
    /// wrong with the disk leaves a cache that keeps nothing, says so once, and tries again now and then.
    pub fn open(_options: CacheOptions) -> Result<Arc<Self>, Error> {
        unimplemented!()
    }

    /// Without a disk: everything comes from the store.
    pub fn none(_fill_bytes_max: u64, _runtime: Handle) -> Arc<Self> {
        unimplemented!()
    }

    /// One object of a store. The same object gives the same handle while anybody has it.
    pub fn object(self: &Arc<Self>, _remote: &Arc<Remote>, _meta: &ObjectMeta) -> Arc<Object> {
        unimplemented!()
    }

    /// Keeps small bytes under a name (letters, digits, `-`, `.`), checksummed; not evicted, but counted. Blocks for a file's write.
    /// A disk that cannot take it is no error: it is not there later.
    pub fn keep(&self, _name: &str, _bytes: &[u8]) {
        unimplemented!()
    }

    /// What was kept, if it is there and whole. Blocks for a file's read.
    pub fn kept(&self, _name: &str) -> Option<Bytes> {
        unimplemented!()
    }

    /// Forgets what was kept, but for these names.
    pub fn keep_only(&self, _is_wanted: &dyn Fn(&str) -> bool) {
        unimplemented!()
    }

    /// Everything of which something is on disk.
    pub fn list(&self) -> Vec<CachedObject> {
        unimplemented!()
    }

    /// Removes an object, or all of a name's versions: what is read afterwards comes from the store. Returns bytes freed.
    pub async fn drop_object(&self, _name: &str) -> u64 {
        unimplemented!()
    }

    /// Removes everything. Returns bytes freed.
    pub async fn drop_all(&self) -> u64 {
        unimplemented!()
    }

    /// Reads every block on disk and removes what is damaged.
    pub async fn verify(&self, _report: &mut (dyn FnMut(Progress) + Send)) -> Progress {
        unimplemented!()
    }

    /// Figures.
    pub fn stats(&self) -> CacheStats {
        unimplemented!()
    }

    /// Writes what is not written yet. Fills under way are given up.
    pub async fn close(&self) {
        unimplemented!()
    }
}
