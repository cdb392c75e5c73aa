//! Names of extents that were evicted before they were read twice.

use crate::disk::limits::GHOST_PLACES_PER_EXTENT;

/// Entries of one bucket, of which a new name replaces the oldest.
const BUCKET: usize = 4;
/// Age in steps from which on a name is too old. A step is a number of evictions, so that an age
/// fits two bytes.
const STEPS: u16 = 64;

/// Names of the extents evicted last, about as many as fit the disk: fingerprints in a table of
/// fixed size. A false hit (once in some ten thousand) puts an extent into the wrong queue, no
/// more.
#[derive(Debug)]
pub(crate) struct Ghosts {
    table: Vec<Ghost>,
    buckets: usize,
    /// Evictions of one step.
    step: usize,
    inserted: usize,
    now: u16,
}

/// Entry of the table, free where the fingerprint is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ghost {
    fingerprint: u16,
    since: u16,
}

impl Ghosts {
    /// Makes a memory of about this many names. The table is allocated for the first.
    pub(crate) fn new(count: usize) -> Self {
        let buckets = (count * GHOST_PLACES_PER_EXTENT).div_ceil(BUCKET).max(1);
        Self {
            table: Vec::new(),
            buckets,
            step: count.div_ceil(usize::from(STEPS)).max(1),
            inserted: 0,
            now: 0,
        }
    }

    /// Adds the name of an evicted extent.
    pub(crate) fn insert(&mut self, name: u64) {
        self.table.resize(self.buckets * BUCKET, Ghost::default());
        self.count_insertion();
        let (now, ghost) = (self.now, Ghost { fingerprint: fingerprint(name), since: self.now });
        let oldest = self.bucket(name).iter_mut().max_by_key(|ghost| age(**ghost, now));
        *oldest.expect("a bucket has entries") = ghost;
    }

    /// Takes a name out. Returns whether it was there: evicted lately.
    pub(crate) fn take(&mut self, name: u64) -> bool {
        if self.table.is_empty() {
            return false;
        }
        let (now, fingerprint) = (self.now, fingerprint(name));
        let mut ghosts = self.bucket(name).iter_mut();
        let found =
            ghosts.find(|ghost| ghost.fingerprint == fingerprint && age(**ghost, now) <= STEPS);
        found.map(|ghost| *ghost = Ghost::default()).is_some()
    }

    fn bucket(&mut self, name: u64) -> &mut [Ghost] {
        let buckets = u64::try_from(self.buckets).expect("a length");
        let bucket = usize::try_from((name >> 16) % buckets).expect("less than a length");
        &mut self.table[bucket * BUCKET..][..BUCKET]
    }

    fn count_insertion(&mut self) {
        self.inserted += 1;
        if self.inserted == self.step {
            self.inserted = 0;
            self.now = self.now.wrapping_add(1);
        }
    }

    /// Bytes of memory that the table takes.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.table.capacity() * size_of::<Ghost>()
    }
}

fn age(ghost: Ghost, now: u16) -> u16 {
    if ghost.fingerprint == 0 { u16::MAX } else { now.wrapping_sub(ghost.since) }
}

fn fingerprint(name: u64) -> u16 {
    let [low, high, ..] = name.to_le_bytes();
    u16::from_le_bytes([low, high]).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(index: u64) -> u64 {
        (index + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn the_last_evicted_are_remembered_and_older_ones_are_not() {
        let mut ghosts = Ghosts::new(1000);
        for index in 0..10_000 {
            ghosts.insert(name(index));
        }
        let old = (0..8000).filter(|&index| ghosts.take(name(index))).count();
        let new = (9500..10_000).filter(|&index| ghosts.take(name(index))).count();
        assert!(old < 20, "{old}");
        assert!(450 <= new, "{new}");
    }

    #[test]
    fn a_name_is_taken_once() {
        let mut ghosts = Ghosts::new(1);
        assert!(!ghosts.take(name(1)));
        ghosts.insert(name(1));
        assert!(!ghosts.take(name(2)) && ghosts.take(name(1)) && !ghosts.take(name(1)));
    }
}
