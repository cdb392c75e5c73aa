//! Stores of a set that are open or have something on disk, by their names.

use std::{
    collections::{BTreeMap, HashSet},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use busload_objects::CachedStore;

use super::{OpenStore, StoreSet, is_idle};

/// A store that is open, or has something on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownStore {
    /// Name of the store; none if the template leads no name there, as after it was changed.
    pub name: Option<String>,
    /// URL of the store.
    pub url: String,
    /// Use of the store; none if it is closed.
    pub open: Option<OpenUse>,
    /// Files of which something is on disk.
    pub files: u64,
    /// Bytes of disk that the store uses, indexes included.
    pub disk_bytes: u64,
}

/// Use of an open store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenUse {
    /// Memory of its index, in bytes.
    pub index_bytes: u64,
    /// Time since the last request for it.
    pub idle: Duration,
}

impl StoreSet {
    /// Lists the stores that are open or have something on disk, by their names. Reads a little of
    /// the disk.
    pub async fn known(&self) -> Vec<KnownStore> {
        let on_disk = self.cache().stores().await;
        let mut known: BTreeMap<String, KnownStore> = BTreeMap::new();
        for CachedStore { url, files, bytes } in on_disk {
            let name = self.name_of(&url);
            let store = KnownStore { name, url: url.clone(), open: None, files, disk_bytes: bytes };
            known.insert(url, store);
        }
        let now_ms = self.shared.now_ms();
        for open in self.open_stores() {
            // A store that is being opened may not exist.
            if open.snapshot().is_none() {
                continue;
            }
            let none = || KnownStore {
                name: Some(open.name().to_owned()),
                url: open.url().to_owned(),
                open: None,
                files: 0,
                disk_bytes: 0,
            };
            known.entry(open.url().to_owned()).or_insert_with(none).open =
                Some(open.use_at(now_ms));
        }
        let mut known: Vec<_> = known.into_values().collect();
        known.sort_by(|one, other| one.name.cmp(&other.name));
        known
    }

    /// Returns how many open stores somebody has.
    pub fn in_use(&self) -> usize {
        self.shared.stores().open.values().filter(|open| !is_idle(open)).count()
    }

    /// Removes from disk all that these stores, by their URLs, have there. Returns the bytes freed.
    pub async fn drop_stores(&self, urls: HashSet<String>) -> u64 {
        self.cache().drop_stores(urls).await
    }

    /// Returns the name of the store with this URL, if the template leads a name there.
    fn name_of(&self, url: &str) -> Option<String> {
        let (host, path, query) = split(url);
        let (own_host, _, own_query) = split(self.shared.remote.url());
        let template = &self.shared.settings.template;
        if (host, query) == (own_host, own_query) { template.name_of(path) } else { None }
    }
}

impl OpenStore {
    fn use_at(&self, now_ms: u64) -> OpenUse {
        let idle_ms = now_ms.saturating_sub(self.used_ms.load(Relaxed));
        OpenUse { index_bytes: self.index_bytes(), idle: Duration::from_millis(idle_ms) }
    }
}

/// Splits a URL into scheme and host, path without the slash before it, and query.
fn split(url: &str) -> (&str, &str, &str) {
    let (location, query) = url.split_once('?').unwrap_or((url, ""));
    let host_start = location.find("://").map_or(0, |at| at + "://".len());
    let slash = location[host_start..].find('/').map_or(location.len(), |at| host_start + at);
    let (host, path) = location.split_at(slash);
    (host, path.strip_prefix('/').unwrap_or_default(), query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_as_the_paths_of_stores_are_put_into_them() {
        assert_eq!(split("s3://b/dolt/a/b?region=x"), ("s3://b", "dolt/a/b", "region=x"));
        assert_eq!(split("aws://[t:b]/a/b"), ("aws://[t:b]", "a/b", ""));
        assert_eq!(split("file:///srv/a"), ("file://", "srv/a", ""));
        assert_eq!(split("s3://b"), ("s3://b", "", ""));
    }
}
