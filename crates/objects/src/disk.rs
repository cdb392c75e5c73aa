//! Files of the cache: self-checking blocks, which extents are there, the journal, eviction.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use crate::{CacheOptions, CacheStats, Error, ObjectMeta};

/// Bytes of a block on disk, checksum included.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of an object that a block holds; its CRC-32C follows.
pub const BLOCK_DATA_BYTES: usize = BLOCK_BYTES - 4;
/// Blocks of an extent: 1 MiB of disk.
pub const EXTENT_BLOCKS: usize = 256;
/// Bytes of an object that an extent holds.
pub const EXTENT_DATA_BYTES: u64 = (BLOCK_DATA_BYTES * EXTENT_BLOCKS) as u64;

/// The directory.
#[derive(Debug)]
pub struct Disk {}

/// What is on disk of one object.
#[derive(Debug)]
pub struct DiskFile {}

impl Disk {
    /// See [`crate::Cache::open`].
    pub fn open(_options: &CacheOptions) -> Result<Arc<Self>, Error> {
        unimplemented!()
    }

    /// Of a version of an object of a store; made when its first extent is written.
    pub fn file(self: &Arc<Self>, _store: &str, _meta: &ObjectMeta) -> Arc<DiskFile> {
        unimplemented!()
    }

    /// Adds what it knows.
    pub fn add_stats(&self, _stats: &mut CacheStats) {
        unimplemented!()
    }
}

impl DiskFile {
    /// Whether all of a range of the object is said to be there.
    pub fn is_present(&self, _range: &Range<u64>) -> bool {
        unimplemented!()
    }

    /// Whether an extent is said to be there.
    pub fn has_extent(&self, _extent: u64) -> bool {
        unimplemented!()
    }

    /// Reads and checks what is in memory of the system already; never blocks.
    pub fn try_read(&self, _range: &Range<u64>) -> Option<Bytes> {
        unimplemented!()
    }

    /// Reads and checks; blocks for the device. None: it has to come from the store. What was damaged is forgotten.
    pub fn read(&self, _range: &Range<u64>) -> Option<Bytes> {
        unimplemented!()
    }

    /// Keeps a whole extent (the last one of an object is shorter); blocks for the device. False: not kept, which is no error.
    pub fn write(&self, _extent: u64, _data: &[u8]) -> bool {
        unimplemented!()
    }

    /// Counts the extents of this file that were written in this process; goes up before the bytes of one can be read.
    pub fn writes(&self) -> u64 {
        unimplemented!()
    }

    /// Forgets the extents that a range touches.
    pub fn remove(&self, _range: &Range<u64>) {
        unimplemented!()
    }
}
