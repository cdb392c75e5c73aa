//! Optional cache of decoded chunks in memory.

use std::fmt;

use busload_chunks::ChunkAddress;
use bytes::Bytes;
use quick_cache::{Weighter, sync::Cache};

use super::decode::{Decoded, Wanted};
use crate::{
    Chunk, Form,
    limits::{MEMORY_CHUNK_BYTES_ESTIMATE, MEMORY_ENTRY_BYTES},
};

/// Verified contents by address, up to a number of bytes.
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
    /// Creates a cache of this many bytes; 0 caches nothing.
    pub fn new(bytes_max: u64) -> Self {
        let cache = (0 < bytes_max).then(|| {
            let count = bytes_max / (MEMORY_CHUNK_BYTES_ESTIMATE + MEMORY_ENTRY_BYTES);
            let count = usize::try_from(count).expect("a count of chunks in memory fits a usize");
            Cache::with_weighter(count.max(1), bytes_max, Weight)
        });
        Self { cache }
    }

    pub fn get(&self, address: &ChunkAddress) -> Option<Bytes> {
        self.cache.as_ref()?.get(address)
    }

    /// Returns what a read wants, if that follows from cached contents.
    pub fn decoded(&self, address: &ChunkAddress, wanted: Wanted) -> Option<Decoded> {
        match wanted {
            Wanted::Chunk(Form::Contents) => {
                self.get(address).map(Chunk::Contents).map(Decoded::Chunk)
            }
            Wanted::Length => {
                let length = self.get(address)?.len();
                Some(Decoded::Length(u64::try_from(length).expect("lengths have at most 64 bits")))
            }
            Wanted::Chunk(Form::Stored | Form::Record) => None,
        }
    }

    /// Caches verified contents, if that is what a read gave.
    pub fn insert_decoded(&self, address: &ChunkAddress, decoded: &Decoded) {
        if let (Some(cache), Decoded::Chunk(Chunk::Contents(contents))) = (&self.cache, decoded) {
            cache.insert(*address, contents.clone());
        }
    }

    /// Returns the bytes of contents and entries.
    pub fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}

impl fmt::Debug for MemoryCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCache").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
