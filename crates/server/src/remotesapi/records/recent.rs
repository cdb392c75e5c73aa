//! An LRU cache of encoded bundles, bounded in bytes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{Laid, Name};

/// Approximate overhead of an entry beyond its contents.
const ENTRY_BYTES: u64 = 256;

/// Bundles by key. The least recently used one is evicted first, as a bundle that was advertised a
/// moment ago is about to be downloaded.
#[derive(Debug)]
pub struct Recent {
    entries: HashMap<Name, Entry>,
    /// Names by time of last use.
    order: BTreeMap<u64, Name>,
    /// Logical clock: the number of uses so far.
    now: u64,
    bytes: u64,
    bytes_max: u64,
}

#[derive(Debug)]
struct Entry {
    laid: Arc<Laid>,
    used: u64,
}

impl Recent {
    pub fn new(bytes_max: u64) -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), now: 0, bytes: 0, bytes_max }
    }

    /// Returns a bundle and marks it as just used.
    pub fn get(&mut self, name: &Name) -> Option<Arc<Laid>> {
        self.now += 1;
        let entry = self.entries.get_mut(name)?;
        self.order.remove(&entry.used);
        entry.used = self.now;
        self.order.insert(self.now, *name);
        Some(Arc::clone(&entry.laid))
    }

    /// Inserts a bundle, unless it alone is larger than the cache.
    pub fn insert(&mut self, name: Name, laid: Arc<Laid>) {
        let weight = weight(&laid);
        if self.bytes_max < weight {
            return;
        }
        self.remove(&name);
        self.now += 1;
        self.bytes += weight;
        self.order.insert(self.now, name);
        self.entries.insert(name, Entry { laid, used: self.now });
        while self.bytes_max < self.bytes
            && let Some((_, name)) = self.order.first_key_value()
        {
            let name = *name;
            self.remove(&name);
        }
    }

    fn remove(&mut self, name: &Name) {
        let Some(entry) = self.entries.remove(name) else { return };
        self.order.remove(&entry.used);
        self.bytes -= weight(&entry.laid);
    }
}

fn weight(laid: &Laid) -> u64 {
    let addresses = laid.bundle.as_ref().map_or(0, |bundle| size_of_val(&*bundle.addresses));
    let bytes = laid.bytes.len() + size_of_val(&*laid.lengths) + addresses;
    ENTRY_BYTES + u64::try_from(bytes).expect("lengths have at most 64 bits")
}

#[cfg(test)]
mod tests {
    use busload_dolt::ChunkAddress;
    use bytes::Bytes;

    use super::*;

    fn name(number: u8) -> Name {
        Name(ChunkAddress([number; 20]))
    }

    fn laid(bytes: usize) -> Arc<Laid> {
        Arc::new(Laid { bundle: None, lengths: Vec::new(), bytes: Bytes::from(vec![0; bytes]) })
    }

    fn present(recent: &Recent) -> Vec<u8> {
        (0..20).filter(|number| recent.entries.contains_key(&name(*number))).collect()
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_goes_first() {
        let mut recent = Recent::new(4 * (1000 + ENTRY_BYTES));
        (0..4).for_each(|number| recent.insert(name(number), laid(1000)));
        assert!(recent.get(&name(0)).is_some());
        recent.insert(name(4), laid(1000));
        assert_eq!(present(&recent), [0, 2, 3, 4]);
        recent.insert(name(5), laid(2000 + usize::try_from(ENTRY_BYTES).unwrap()));
        assert_eq!(present(&recent), [0, 4, 5]);
        assert!(recent.get(&name(2)).is_none());
        assert_eq!(recent.order.len(), recent.entries.len());
        assert_eq!(recent.bytes, recent.bytes_max);
    }

    #[test]
    fn what_is_too_large_drives_nothing_out() {
        let mut recent = Recent::new(1000 + ENTRY_BYTES);
        recent.insert(name(1), laid(1000));
        recent.insert(name(2), laid(1001));
        assert_eq!(present(&recent), [1]);
    }

    #[test]
    fn what_is_put_in_again_counts_once() {
        let mut recent = Recent::new(1 << 20);
        (0..10).for_each(|_| recent.insert(name(1), laid(1000)));
        assert_eq!((recent.bytes, recent.order.len()), (1000 + ENTRY_BYTES, 1));
    }
}
