//! What all objects of a cache share: the budget of fills, landed bytes, figures.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::CacheStats;

/// Shared by all objects of a cache.
#[derive(Debug)]
pub struct Fills {}

impl Fills {
    /// With the settings of [`crate::CacheOptions`] of the same names. `fill_whole_max` must not be larger than what the disk may hold.
    pub fn new(_fill_bytes_max: u64, _fill_whole_max: u64, _runtime: Handle) -> Arc<Self> {
        unimplemented!()
    }

    /// Sets `hits`, `misses`, `joined` and `fill_bytes`.
    pub fn add_stats(&self, _stats: &mut CacheStats) {
        unimplemented!()
    }

    /// Gives up the fills and starts no more; returns when no fill writes to disk any more. Reads go on.
    pub async fn close(&self) {
        unimplemented!()
    }
}
