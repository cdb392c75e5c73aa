//! Objects of a store: its bucket, and the disk cache in front of it.

use std::sync::Arc;

use busload_objects::{Cache, Object, ObjectMeta, Remote};

/// Bucket and disk cache of one chunk store. Cloning copies two pointers.
#[derive(Clone)]
pub(crate) struct ObjectSource {
    pub remote: Arc<Remote>,
    pub cache: Arc<Cache>,
    /// True if bytes cross a network, which may change them on the way.
    pub is_remote: bool,
}

impl ObjectSource {
    pub fn new(url: &str, remote: Arc<Remote>, cache: Arc<Cache>) -> Self {
        Self { remote, cache, is_remote: !url.starts_with("file:") }
    }

    /// Opens one version of an object for reads through the cache.
    pub fn object(&self, meta: &ObjectMeta) -> Arc<Object> {
        self.cache.object(&self.remote, meta)
    }
}
