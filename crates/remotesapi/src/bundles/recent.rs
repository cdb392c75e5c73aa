//! An LRU cache of encoded bundles, bounded in bytes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{BundleKey, EncodedBundle};

/// Approximate overhead of an entry beyond its contents.
const ENTRY_BYTES: u64 = 256;

/// Bundles by key. The least recently used one is evicted first, as a bundle that was advertised a
/// moment ago is about to be downloaded.
#[derive(Debug)]
pub struct RecentBundles {
    entries: HashMap<BundleKey, Entry>,
    /// Keys by time of last use.
    order: BTreeMap<u64, BundleKey>,
    /// Logical clock: the number of uses so far.
    now: u64,
    bytes: u64,
    bytes_max: u64,
}

#[derive(Debug)]
struct Entry {
    encoded: Arc<EncodedBundle>,
    used: u64,
}

impl RecentBundles {
    pub fn new(bytes_max: u64) -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), now: 0, bytes: 0, bytes_max }
    }

    /// Returns a bundle and marks it as just used.
    pub fn get(&mut self, key: &BundleKey) -> Option<Arc<EncodedBundle>> {
        self.now += 1;
        let entry = self.entries.get_mut(key)?;
        self.order.remove(&entry.used);
        entry.used = self.now;
        self.order.insert(self.now, *key);
        Some(Arc::clone(&entry.encoded))
    }

    /// Inserts a bundle, unless it alone is larger than the cache.
    pub fn insert(&mut self, key: BundleKey, encoded: Arc<EncodedBundle>) {
        let weight = weight(&encoded);
        if self.bytes_max < weight {
            return;
        }
        self.remove(&key);
        self.now += 1;
        self.bytes += weight;
        self.order.insert(self.now, key);
        self.entries.insert(key, Entry { encoded, used: self.now });
        while self.bytes_max < self.bytes
            && let Some((_, key)) = self.order.first_key_value()
        {
            let key = *key;
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &BundleKey) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.order.remove(&entry.used);
        self.bytes -= weight(&entry.encoded);
    }
}

fn weight(encoded: &EncodedBundle) -> u64 {
    let addresses = encoded.bundle.as_ref().map_or(0, |bundle| size_of_val(&*bundle.addresses));
    let bytes = encoded.bytes.len() + size_of_val(&*encoded.lengths) + addresses;
    ENTRY_BYTES + u64::try_from(bytes).expect("lengths have at most 64 bits")
}

#[cfg(test)]
mod tests {
    use busload_dolt::ChunkAddress;
    use bytes::Bytes;

    use super::*;

    fn key(number: u8) -> BundleKey {
        BundleKey(ChunkAddress([number; 20]))
    }

    fn encoded(bytes: usize) -> Arc<EncodedBundle> {
        let bytes = Bytes::from(vec![0; bytes]);
        Arc::new(EncodedBundle { bundle: None, lengths: Vec::new(), bytes })
    }

    fn present(recent: &RecentBundles) -> Vec<u8> {
        (0..20).filter(|number| recent.entries.contains_key(&key(*number))).collect()
    }

    #[test]
    fn the_least_recently_used_bundle_is_evicted_first() {
        let mut recent = RecentBundles::new(4 * (1000 + ENTRY_BYTES));
        (0..4).for_each(|number| recent.insert(key(number), encoded(1000)));
        assert!(recent.get(&key(0)).is_some());
        recent.insert(key(4), encoded(1000));
        assert_eq!(present(&recent), [0, 2, 3, 4]);
        recent.insert(key(5), encoded(2000 + usize::try_from(ENTRY_BYTES).unwrap()));
        assert_eq!(present(&recent), [0, 4, 5]);
        assert!(recent.get(&key(2)).is_none());
        assert_eq!(recent.order.len(), recent.entries.len());
        assert_eq!(recent.bytes, recent.bytes_max);
    }

    #[test]
    fn a_bundle_larger_than_the_cache_evicts_nothing() {
        let mut recent = RecentBundles::new(1000 + ENTRY_BYTES);
        recent.insert(key(1), encoded(1000));
        recent.insert(key(2), encoded(1001));
        assert_eq!(present(&recent), [1]);
    }

    #[test]
    fn a_bundle_that_is_inserted_again_counts_once() {
        let mut recent = RecentBundles::new(1 << 20);
        (0..10).for_each(|_| recent.insert(key(1), encoded(1000)));
        assert_eq!((recent.bytes, recent.order.len()), (1000 + ENTRY_BYTES, 1));
    }
}
