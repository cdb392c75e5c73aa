//! Stores that have something on disk, for those who look at a cache and empty it.

use std::collections::{HashMap, HashSet};

use super::{Disk, StoreKey};
use crate::CachedStore;

impl Disk {
    /// Lists the stores that have something on disk. Of those that have only sidecars it reads the
    /// head of one.
    pub(crate) fn list_stores(&self) -> Vec<CachedStore> {
        let mut found: HashMap<StoreKey, CachedStore> = HashMap::new();
        let none = |url: &str| CachedStore { url: url.to_owned(), files: 0, bytes: 0 };
        for cache_file in self.cache_files() {
            if !cache_file.extents.is_empty() {
                let url = &cache_file.key.store;
                found.entry(StoreKey::of(url)).or_insert_with(|| none(url)).files += 1;
            }
        }
        let with_sidecars = self.accounting().stores.with_sidecars();
        for key in with_sidecars {
            if found.contains_key(&key) {
                continue;
            }
            let names = self.accounting().stores.sidecar_names(key);
            if let Some(url) = names.iter().find_map(|name| self.sidecar_store(key, name)) {
                found.insert(key, none(&url));
            }
        }
        let accounting = self.accounting();
        for (key, store) in &mut found {
            store.bytes = accounting.stores.bytes(*key);
        }
        found.into_values().filter(|store| 0 < store.bytes).collect()
    }

    /// Removes objects and sidecars of these stores. Returns the bytes freed.
    pub(crate) fn drop_stores(&self, urls: &HashSet<String>) -> u64 {
        let objects = self.drop_files(|key| urls.contains(&key.store));
        let sidecars: u64 = urls.iter().map(|url| self.retain_sidecars(url, &|_| false)).sum();
        objects + sidecars
    }
}
