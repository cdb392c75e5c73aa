//! State that all objects of a cache share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::runtime::Handle;

use crate::{CacheStats, fetch::RecentFetches, fill::FillScheduler};

/// Fills, recent fetches and counters of a cache, shared by its objects.
#[derive(Debug)]
pub(crate) struct CacheContext {
    pub(crate) fills: FillScheduler,
    pub(crate) recent: RecentFetches,
    pub(crate) counters: ReadCounters,
    /// Objects with streams that bypass the disk.
    pub(crate) bypassing: AtomicU64,
}

/// Counters of reads since the start.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) joined: AtomicU64,
}

impl CacheContext {
    /// Takes the settings of [`crate::CacheOptions`] of the same names. `fill_whole_max` must not
    /// be larger than what the disk may hold.
    pub(crate) fn new(fill_bytes_max: u64, fill_whole_max: u64, runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            fills: FillScheduler::new(fill_bytes_max, fill_whole_max, runtime),
            recent: RecentFetches::default(),
            counters: ReadCounters::default(),
            bypassing: AtomicU64::new(0),
        })
    }

    /// Sets `hits`, `misses`, `joined` and `fill_bytes`.
    pub(crate) fn add_stats(&self, stats: &mut CacheStats) {
        stats.hits = self.counters.hits.load(Relaxed);
        stats.misses = self.counters.misses.load(Relaxed);
        stats.joined = self.counters.joined.load(Relaxed);
        stats.fill_bytes = self.fills.bytes();
    }
}
