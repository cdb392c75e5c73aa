//! The cache of decoded chunks in memory, if one is wanted.

use std::fmt;

use busload_chunks::ChunkAddress;
use bytes::Bytes;
use quick_cache::{Weighter, sync::Cache};

use crate::limits::{MEMORY_CHUNK_BYTES_ESTIMATE, MEMORY_ENTRY_BYTES};

/// Contents by address, checked, up to some bytes.
pub(crate) struct MemoryCache {
    cache: Option<Cache<ChunkAddress, Bytes, Weight>>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<ChunkAddress, Bytes> for Weight {
    fn weight(&self, _: &ChunkAddress, contents: &Bytes) -> u64 {
        MEMORY_ENTRY_BYTES + u64::try_from(contents.len()).unwrap_or(u64::MAX / 2)
    }
}

impl MemoryCache {
    /// 0: nothing is kept.
    pub fn new(bytes_max: u64) -> Self {
        let cache = (0 < bytes_max).then(|| {
            let count = bytes_max / (MEMORY_CHUNK_BYTES_ESTIMATE + MEMORY_ENTRY_BYTES);
            let count = usize::try_from(count).expect("what fits into memory can be counted");
            Cache::with_weighter(count.max(1), bytes_max, Weight)
        });
        Self { cache }
    }

    pub fn get(&self, address: &ChunkAddress) -> Option<Bytes> {
        self.cache.as_ref()?.get(address)
    }

    /// Keeps contents that have been checked.
    pub fn insert(&self, address: ChunkAddress, contents: &Bytes) {
        if let Some(cache) = &self.cache {
            cache.insert(address, contents.clone());
        }
    }

    /// Bytes of contents and entries.
    pub fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}

impl fmt::Debug for MemoryCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCache").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
