//! Metrics of a store, and the counters of its reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use busload_chunks::ChunkAddress;
use busload_objects::{CacheStats, RemoteStats};

use crate::{Error, UsageStats};

/// Metrics of one store.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    /// Requests for chunks that were answered.
    pub requests: u64,
    /// Requests answered from the memory cache.
    pub memory_hits: u64,
    /// Requests answered from local disk.
    pub local: u64,
    /// Requests answered with bytes of the object store.
    pub remote: u64,
    /// Requests answered with a chunk that the peer which owns its file sent.
    pub peers: u64,
    /// Requests for chunks that do not exist.
    pub absent: u64,
    /// Requests that failed. A chunk that is not on local disk is no failure.
    pub errors: u64,
    /// Chunks whose contents did not match the address, whether or not another read or file was
    /// right.
    pub corrupt: u64,
    /// Prefetches that are in progress.
    pub prefetches: u64,
    /// Chunks skipped because too many prefetches were in progress.
    pub prefetches_skipped: u64,
    /// Chunks prefetched because a chunk that was read refers to them.
    pub references_prefetched: u64,
    /// Those of them that were read afterwards.
    pub references_read: u64,
    /// Number of manifest versions seen.
    pub versions: u64,
    /// Table files of the current version.
    pub files: u64,
    /// Chunks of the current version.
    pub chunks: u64,
    /// Bytes of memory for the indexes.
    pub index_bytes: u64,
    /// Bytes of memory for the cache of decoded chunks.
    pub memory_bytes: u64,
    /// Root of the current version.
    pub root: Option<ChunkAddress>,
    /// Counts of what clients got.
    pub usage: UsageStats,
    /// Metrics of the disk cache.
    pub cache: CacheStats,
    /// Metrics of the object store.
    pub store: RemoteStats,
}

/// Source of a chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Memory,
    Disk,
    Store,
    Peer,
}

/// Source of a chunk's bytes, and the length of the chunk in its table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadFrom {
    pub origin: Origin,
    pub stored_bytes: u32,
}

/// Counters of reads. A read counts once, when it ends, so the sum is the number of reads.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    memory_hits: AtomicU64,
    local: AtomicU64,
    remote: AtomicU64,
    peers: AtomicU64,
    absent: AtomicU64,
    errors: AtomicU64,
    not_local: AtomicU64,
}

impl Counters {
    pub fn count_found(&self, origin: Origin) {
        let counter = match origin {
            Origin::Memory => &self.memory_hits,
            Origin::Disk => &self.local,
            Origin::Store => &self.remote,
            Origin::Peer => &self.peers,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Counts a read that gave no chunk.
    pub fn count_other(&self, error: Option<&Error>) {
        let counter = match error {
            None => &self.absent,
            Some(Error::NotLocal) => &self.not_local,
            Some(_) => &self.errors,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub fn stats(&self) -> StoreStats {
        let mut stats = StoreStats {
            memory_hits: self.memory_hits.load(Relaxed),
            local: self.local.load(Relaxed),
            remote: self.remote.load(Relaxed),
            peers: self.peers.load(Relaxed),
            absent: self.absent.load(Relaxed),
            errors: self.errors.load(Relaxed),
            ..StoreStats::default()
        };
        let found = stats.memory_hits + stats.local + stats.remote + stats.peers;
        stats.requests = found + stats.absent + stats.errors + self.not_local.load(Relaxed);
        stats
    }
}
