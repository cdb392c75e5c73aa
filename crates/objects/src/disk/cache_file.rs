//! One cache file: its geometry, the index of its extents, its open file.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
};

use arc_swap::ArcSwapOption;

use super::{
    BLOCK_BYTES, BLOCK_DATA_BYTES, EXTENT_BLOCKS, EXTENT_DATA_BYTES, block::Seal, extents::Extents,
    file_system::OpenFile, s3_fifo::ExtentId, stores::StoreKey,
};
use crate::{
    ObjectMeta,
    disk::limits::{EXTENT_OVERHEAD_BYTES, KEY_BYTES_MAX, OBJECT_BYTES_MAX},
};

/// Suffix of the names of cache files.
pub(crate) const DATA_SUFFIX: &str = ".data";

/// One version of one object of one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectKey {
    /// URL of the store.
    pub(crate) store: String,
    /// Name, size and version.
    pub(crate) meta: ObjectMeta,
}

impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.store, &self.meta.name, &self.meta.etag, self.meta.size).hash(state);
    }
}

impl ObjectKey {
    /// Returns whether the cache keeps objects of this size and with a key of this length.
    pub(crate) fn is_keepable(&self) -> bool {
        let key_bytes = self.store.len() + self.meta.name.len() + self.meta.etag.len();
        (1..=OBJECT_BYTES_MAX).contains(&self.meta.size) && key_bytes <= KEY_BYTES_MAX
    }

    /// Number of extents of the object.
    pub(crate) fn extent_count(&self) -> u32 {
        let count = self.meta.size.min(OBJECT_BYTES_MAX).div_ceil(EXTENT_DATA_BYTES);
        u32::try_from(count).expect("limits say so")
    }

    /// Bytes of the object in one of its extents.
    pub(crate) fn extent_data_bytes(&self, extent: u64) -> u64 {
        self.meta
            .size
            .saturating_sub(extent.saturating_mul(EXTENT_DATA_BYTES))
            .min(EXTENT_DATA_BYTES)
    }

    /// Bytes of the object's blocks in one of its extents.
    pub(crate) fn extent_disk_bytes(&self, extent: u32) -> u64 {
        self.extent_data_bytes(extent.into()).div_ceil(BLOCK_DATA_BYTES as u64) * BLOCK_BYTES as u64
    }

    /// Disk space of an extent, bookkeeping included.
    pub(crate) fn extent_cost(&self, extent: u32) -> u64 {
        self.extent_disk_bytes(extent) + EXTENT_OVERHEAD_BYTES
    }

    /// Length of the cache file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.meta.size.div_ceil(BLOCK_DATA_BYTES as u64) * BLOCK_BYTES as u64
    }
}

/// One file with extents of one object.
#[derive(Debug)]
pub(crate) struct CacheFile {
    /// Number of the file, which is its name on disk, in the queues and in the journal.
    pub(crate) id: u32,
    /// Random number in the checksums: no block of an earlier file of this number passes for one of
    /// this.
    pub(crate) generation: u64,
    /// Object that the file holds.
    pub(crate) key: Arc<ObjectKey>,
    /// Store of the object.
    pub(crate) store: StoreKey,
    /// Seal that makes and checks its blocks.
    pub(crate) seal: Seal,
    /// Index of the extents that are there.
    pub(crate) extents: Extents,
    /// Count of evictions, incremented before a hole is punched: a reader that found wrong bytes
    /// sees by it that they may have been right.
    pub(crate) evictions: AtomicU64,
    /// True once the file was dropped: nobody reads it or writes to it any more.
    pub(crate) is_gone: AtomicBool,
    /// Open file for reads; [`super::handles`] may close it at any time.
    pub(crate) handle: ArcSwapOption<Box<dyn OpenFile>>,
    /// True if the file was read since [`super::handles`] last looked for a file to close.
    pub(crate) is_used: AtomicBool,
    name: u64,
}

impl CacheFile {
    /// Makes a file without extents.
    pub(crate) fn new(id: u32, generation: u64, key: Arc<ObjectKey>) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self {
            id,
            generation,
            store: StoreKey::of(&key.store),
            seal: Seal::new(generation),
            extents: Extents::new(key.extent_count()),
            evictions: AtomicU64::new(0),
            is_gone: AtomicBool::new(false),
            handle: ArcSwapOption::empty(),
            is_used: AtomicBool::new(false),
            name: hasher.finish(),
            key,
        }
    }

    /// Path of the file.
    pub(crate) fn path(&self, directory: &Path) -> PathBuf {
        directory.join(data_name(self.id))
    }

    /// Identity of an extent in the queues.
    pub(crate) fn extent_id(&self, extent: u32) -> ExtentId {
        ExtentId { file: self.id, extent }
    }

    /// Name of an extent among the ghosts: the same in every file of the same object.
    pub(crate) fn ghost_name(&self, extent: u32) -> u64 {
        (self.name ^ u64::from(extent)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
    }

    /// Offset of an extent in the file.
    pub(crate) fn extent_offset(extent: u32) -> u64 {
        u64::from(extent) * (EXTENT_BLOCKS * BLOCK_BYTES) as u64
    }

    /// Bytes of the object that are on disk.
    pub(crate) fn present_data_bytes(&self) -> u64 {
        self.extents.present().map(|extent| self.key.extent_data_bytes(extent.into())).sum()
    }

    /// Bytes of the blocks that are on disk.
    pub(crate) fn present_disk_bytes(&self) -> u64 {
        self.extents.present().map(|extent| self.key.extent_disk_bytes(extent)).sum()
    }

    /// Disk space of the extents that are there, bookkeeping included.
    pub(crate) fn present_cost(&self) -> u64 {
        self.extents.present().map(|extent| self.key.extent_cost(extent)).sum()
    }
}

/// Name of a cache file by its number.
pub(crate) fn data_name(id: u32) -> String {
    format!("{id:08x}{DATA_SUFFIX}")
}

/// Number of a cache file by its name.
pub(crate) fn data_id(name: &str) -> Option<u32> {
    let id = u32::from_str_radix(name.strip_suffix(DATA_SUFFIX)?, 16).ok()?;
    (data_name(id) == name).then_some(id)
}
