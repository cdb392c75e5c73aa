//! Objects of a store: its bucket, and the disk cache in front of it.

use std::sync::Arc;

use busload_objects::{Cache, FillFilter, Object, ObjectMeta, Remote};

/// Bucket and disk cache of one chunk store. Cloning copies two pointers.
#[derive(Clone)]
pub(crate) struct ObjectSource {
    pub remote: Arc<Remote>,
    pub cache: Arc<Cache>,
    /// True if bytes cross a network, which may change them on the way.
    pub is_remote: bool,
    /// Choice of the objects that reads bring to disk.
    pub filter: FillFilter,
}

impl ObjectSource {
    pub fn new(url: &str, remote: Arc<Remote>, cache: Arc<Cache>, filter: FillFilter) -> Self {
        Self { remote, cache, is_remote: !url.starts_with("file:"), filter }
    }

    /// Opens one version of an object for reads through the cache.
    pub fn object(&self, meta: &ObjectMeta) -> Arc<Object> {
        self.cache.filtered_object(&self.remote, meta, &self.filter)
    }
}
