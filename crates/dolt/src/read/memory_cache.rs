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
    cache: Option<Cache<ChunkAddress, Cached, Weight>>,
}

/// Contents of a chunk, and its length in its table file.
#[derive(Clone)]
struct Cached {
    contents: Bytes,
    stored_bytes: u32,
}

#[derive(Clone)]
struct Weight;

impl Weighter<ChunkAddress, Cached> for Weight {
    fn weight(&self, _: &ChunkAddress, cached: &Cached) -> u64 {
        MEMORY_ENTRY_BYTES + u64::try_from(cached.contents.len()).unwrap_or(u64::MAX / 2)
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

    /// Returns whether the contents of a chunk are cached.
    pub fn has(&self, address: &ChunkAddress) -> bool {
        self.get(address).is_some()
    }

    fn get(&self, address: &ChunkAddress) -> Option<Cached> {
        self.cache.as_ref()?.get(address)
    }

    /// Returns what a read wants, if that follows from cached contents, and the length of the chunk
    /// in its table file.
    pub fn decoded(&self, address: &ChunkAddress, wanted: Wanted) -> Option<(Decoded, u32)> {
        if matches!(wanted, Wanted::Chunk(Form::Stored | Form::Record)) {
            return None;
        }
        let Cached { contents, stored_bytes } = self.get(address)?;
        let decoded = match wanted {
            Wanted::Length => Decoded::Length(
                u64::try_from(contents.len()).expect("lengths have at most 64 bits"),
            ),
            Wanted::Chunk(_) => Decoded::Chunk(Chunk::Contents(contents)),
        };
        Some((decoded, stored_bytes))
    }

    /// Caches verified contents, if that is what a read gave, with the length of the chunk in its
    /// table file.
    pub fn insert_decoded(&self, address: &ChunkAddress, decoded: &Decoded, stored_bytes: u32) {
        if let (Some(cache), Decoded::Chunk(Chunk::Contents(contents))) = (&self.cache, decoded) {
            cache.insert(*address, Cached { contents: contents.clone(), stored_bytes });
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
