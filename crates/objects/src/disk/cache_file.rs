//! One data file: its geometry, what is there, the open file.

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
    file_system::OpenFile, s3_fifo::ExtentId,
};
use crate::{
    ObjectMeta,
    disk::limits::{EXTENT_OVERHEAD_BYTES, KEY_BYTES_MAX, OBJECT_BYTES_MAX},
};

/// Ends the names of data files.
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
    /// Whether it is of a size that is kept on disk.
    pub(crate) fn is_keepable(&self) -> bool {
        let key_bytes = self.store.len() + self.meta.name.len() + self.meta.etag.len();
        (1..=OBJECT_BYTES_MAX).contains(&self.meta.size) && key_bytes <= KEY_BYTES_MAX
    }

    /// Extents that the object has.
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

    /// What an extent takes of the disk, bookkeeping included.
    pub(crate) fn extent_cost(&self, extent: u32) -> u64 {
        self.extent_disk_bytes(extent) + EXTENT_OVERHEAD_BYTES
    }

    /// Bytes of the data file from begin to end.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.meta.size.div_ceil(BLOCK_DATA_BYTES as u64) * BLOCK_BYTES as u64
    }
}

/// One data file.
#[derive(Debug)]
pub(crate) struct CacheFile {
    /// Its number: its name, and what queues and journal call it.
    pub(crate) id: u32,
    /// Random: no block of another life of this number is taken for one of this.
    pub(crate) generation: u64,
    /// What it holds.
    pub(crate) key: Arc<ObjectKey>,
    /// Makes and checks its blocks.
    pub(crate) seal: Seal,
    /// Which extents are there.
    pub(crate) extents: Extents,
    /// Grows before space is given back: a reader that found wrong bytes sees by it that they may
    /// have been right.
    pub(crate) evictions: AtomicU64,
    /// It was given up: nothing is read from it or written to it any more.
    pub(crate) is_gone: AtomicBool,
    /// Kept open for reads; may be closed at any time to have few open.
    pub(crate) handle: ArcSwapOption<Box<dyn OpenFile>>,
    /// Read since somebody last looked for a file to close.
    pub(crate) is_used: AtomicBool,
    name: u64,
}

impl CacheFile {
    /// Nothing of it is there.
    pub(crate) fn new(id: u32, generation: u64, key: Arc<ObjectKey>) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self {
            id,
            generation,
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

    /// The data file's path.
    pub(crate) fn path(&self, directory: &Path) -> PathBuf {
        directory.join(data_name(self.id))
    }

    /// What the queues call an extent.
    pub(crate) fn extent_id(&self, extent: u32) -> ExtentId {
        ExtentId { file: self.id, extent }
    }

    /// The same for the same extent of the same object in every life.
    pub(crate) fn ghost_name(&self, extent: u32) -> u64 {
        (self.name ^ u64::from(extent)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
    }

    /// Where an extent is in the data file.
    pub(crate) fn extent_offset(extent: u32) -> u64 {
        u64::from(extent) * (EXTENT_BLOCKS * BLOCK_BYTES) as u64
    }

    /// Bytes of the object that are there.
    pub(crate) fn present_data_bytes(&self) -> u64 {
        self.extents.present().map(|extent| self.key.extent_data_bytes(extent.into())).sum()
    }

    /// Bytes of disk that blocks which are there take.
    pub(crate) fn present_disk_bytes(&self) -> u64 {
        self.extents.present().map(|extent| self.key.extent_disk_bytes(extent)).sum()
    }

    /// What the extents which are there take of the disk, bookkeeping included.
    pub(crate) fn present_cost(&self) -> u64 {
        self.extents.present().map(|extent| self.key.extent_cost(extent)).sum()
    }
}

/// The name of a data file.
pub(crate) fn data_name(id: u32) -> String {
    format!("{id:08x}{DATA_SUFFIX}")
}

/// The number of a data file.
pub(crate) fn data_id(name: &str) -> Option<u32> {
    let id = u32::from_str_radix(name.strip_suffix(DATA_SUFFIX)?, 16).ok()?;
    (data_name(id) == name).then_some(id)
}
