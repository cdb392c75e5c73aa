//! Metrics, and the counters behind them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use busload_chunks::ChunkAddress;
use busload_objects::{CacheStats, RemoteStats};

use crate::Error;

/// Metrics.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    /// Chunks asked for and answered.
    pub requests: u64,
    /// Answered from the memory cache.
    pub memory_hits: u64,
    /// Answered from disk.
    pub local: u64,
    /// Answered with bytes of the object store.
    pub remote: u64,
    /// Known not to exist.
    pub absent: u64,
    /// Answered with an error. That a chunk is not on local disk is none.
    pub errors: u64,
    /// Chunks whose contents were not those of the address, whether or not another read or copy was
    /// right.
    pub corrupt: u64,
    /// Prefetches under way.
    pub prefetches: u64,
    /// Chunks that were not prefetched because too much was under way.
    pub prefetches_skipped: u64,
    /// Versions of the manifest seen.
    pub versions: u64,
    /// Files of the current version.
    pub files: u64,
    /// Chunks of the current version.
    pub chunks: u64,
    /// MemoryCache of the indexes.
    pub index_bytes: u64,
    /// MemoryCache of the cache of decoded chunks.
    pub memory_bytes: u64,
    /// Root of the current version.
    pub root: Option<ChunkAddress>,
    /// The disk.
    pub cache: CacheStats,
    /// The object store.
    pub store: RemoteStats,
}

/// Where the bytes of an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    MemoryCache,
    Disk,
    Store,
}

/// Counted once per answer, and nothing per question: the sum is the number of questions.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    memory_hits: AtomicU64,
    local: AtomicU64,
    remote: AtomicU64,
    absent: AtomicU64,
    errors: AtomicU64,
    not_local: AtomicU64,
    corrupt: AtomicU64,
    versions: AtomicU64,
}

impl Counters {
    pub fn count_found(&self, origin: Origin) {
        let counter = match origin {
            Origin::MemoryCache => &self.memory_hits,
            Origin::Disk => &self.local,
            Origin::Store => &self.remote,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Counts an answer that is no chunk.
    pub fn count_other(&self, error: Option<&Error>) {
        let counter = match error {
            None => &self.absent,
            Some(Error::NotLocal) => &self.not_local,
            Some(_) => &self.errors,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub fn count_corrupt(&self) {
        self.corrupt.fetch_add(1, Relaxed);
    }

    pub fn count_version(&self) {
        self.versions.fetch_add(1, Relaxed);
    }

    pub fn stats(&self) -> StoreStats {
        let mut stats = StoreStats {
            memory_hits: self.memory_hits.load(Relaxed),
            local: self.local.load(Relaxed),
            remote: self.remote.load(Relaxed),
            absent: self.absent.load(Relaxed),
            errors: self.errors.load(Relaxed),
            corrupt: self.corrupt.load(Relaxed),
            versions: self.versions.load(Relaxed),
            ..StoreStats::default()
        };
        let found = stats.memory_hits + stats.local + stats.remote;
        stats.requests = found + stats.absent + stats.errors + self.not_local.load(Relaxed);
        stats
    }
}
