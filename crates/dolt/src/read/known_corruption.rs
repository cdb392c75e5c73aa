//! Chunks that were found corrupt in the store a moment ago. Reading one again and again would cost
//! requests, and evict good neighbours from disk.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;

use crate::{
    limits::{CORRUPT_CHUNKS_MAX, CORRUPTION_REMEMBERED},
    versions::table_file::TableFile,
};

/// Serial number of an open file, and a position in its index.
type Key = (u64, u32);

/// Chunks that were lately found corrupt, and what was wrong with them.
#[derive(Debug, Default)]
pub(crate) struct KnownCorruption {
    found: Mutex<HashMap<Key, Found>>,
}

#[derive(Debug)]
struct Found {
    until: Instant,
    text: String,
}

impl KnownCorruption {
    /// Returns what was wrong with a chunk a moment ago.
    pub fn of(&self, file: &TableFile, position: u32) -> Option<String> {
        self.get((file.serial, position), Instant::now())
    }

    /// Notes a chunk of which each read gave wrong bytes, and the last two the same.
    pub fn note(&self, file: &TableFile, position: u32, text: &str) {
        self.put((file.serial, position), text, Instant::now());
    }

    fn get(&self, key: Key, now: Instant) -> Option<String> {
        let found = self.lock();
        found.get(&key).filter(|found| now < found.until).map(|found| found.text.clone())
    }

    /// Notes a chunk, unless the table is full: then it is read again.
    fn put(&self, key: Key, text: &str, now: Instant) {
        let mut found = self.lock();
        if CORRUPT_CHUNKS_MAX <= found.len() {
            found.retain(|_, found| now < found.until);
        }
        if found.len() < CORRUPT_CHUNKS_MAX || found.contains_key(&key) {
            found.insert(key, Found { until: now + CORRUPTION_REMEMBERED, text: text.to_owned() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_is_remembered_for_a_while_and_of_so_many_chunks() {
        let (corruption, now) = (KnownCorruption::default(), Instant::now());
        for position in (0..).take(CORRUPT_CHUNKS_MAX) {
            corruption.put((7, position), "wrong", now);
        }
        assert_eq!(corruption.get((7, 5), now), Some("wrong".to_owned()));
        assert_eq!((corruption.get((8, 5), now), corruption.get((7, u32::MAX), now)), (None, None));
        corruption.put((9, 9), "wrong", now);
        assert_eq!(corruption.get((9, 9), now), None, "the table is full");
        let later = now + CORRUPTION_REMEMBERED;
        assert_eq!(corruption.get((7, 5), later), None);
        corruption.put((9, 9), "wrong", later);
        assert_eq!(corruption.get((9, 9), later), Some("wrong".to_owned()));
        assert_eq!(corruption.lock().len(), 1);
    }
}
