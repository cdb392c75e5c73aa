//! Locks of sliced commands on keys, held between their slices.
//!
//! All other commands execute whole, so only sliced ones lock. They acquire locks as they go and
//! release all of them at their end (two-phase locking): what they read or wrote at their beginning
//! is unchanged at their end. A request for a locked key waits; requests for other keys are not
//! affected.

use std::collections::HashSet;

use busload_tables::{KeyHash, TableId};

/// Mode of a lock: who else may use the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// Others may read the key.
    Shared,
    /// Nobody else may use the key.
    Exclusive,
}

/// Kind of access that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Only reads the key.
    Read,
    /// May change the key.
    Write,
}

/// Locks of one command. Keys are distinguished by their hash: two with the same hash only wait for
/// each other.
#[derive(Debug)]
pub(crate) struct Locks {
    mode: LockMode,
    /// Several sets, because a growing set moves all its entries at once.
    shards: Vec<HashSet<(TableId, KeyHash)>>,
    len: usize,
}

/// Number of sets of a command that locks many keys: each is small enough to grow within a fraction
/// of a millisecond.
const SHARD_COUNT: usize = 256;

/// Number of locks up to which one set suffices.
const UNSHARDED_MAX: usize = 1024;

impl Locks {
    pub fn new(mode: LockMode) -> Self {
        Self { mode, shards: vec![HashSet::new()], len: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn insert(&mut self, table: TableId, hash: KeyHash) {
        if self.len == UNSHARDED_MAX && self.shards.len() == 1 {
            let all = std::mem::take(&mut self.shards[0]);
            self.shards.resize_with(SHARD_COUNT, HashSet::new);
            for (table, hash) in all {
                let shard = self.shard(hash);
                self.shards[shard].insert((table, hash));
            }
        }
        let shard = self.shard(hash);
        self.len += usize::from(self.shards[shard].insert((table, hash)));
    }

    /// Returns whether a request that needs this access must wait.
    pub fn conflict(&self, table: TableId, hash: KeyHash, access: Access) -> bool {
        let excludes = self.mode == LockMode::Exclusive || access == Access::Write;
        excludes && self.len != 0 && self.shards[self.shard(hash)].contains(&(table, hash))
    }

    /// Returns the approximate memory of the locks.
    pub fn memory_bytes(&self) -> usize {
        // A set uses a slot and a control byte per entry, and is between half and completely full.
        self.len * 2 * (size_of::<(TableId, KeyHash)>() + 1)
    }

    fn shard(&self, hash: KeyHash) -> usize {
        // Use the last bits: the first bits choose segments of the tables and are about the same
        // for keys scanned together.
        (hash.0 & 0xff) as usize % self.shards.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_writers_do_not() {
        let (table, hash) = (TableId(3), KeyHash(77));
        let mut shared = Locks::new(LockMode::Shared);
        let mut exclusive = Locks::new(LockMode::Exclusive);
        shared.insert(table, hash);
        exclusive.insert(table, hash);
        assert!(!shared.conflict(table, hash, Access::Read));
        assert!(shared.conflict(table, hash, Access::Write));
        assert!(exclusive.conflict(table, hash, Access::Read));
        assert!(!exclusive.conflict(TableId(4), hash, Access::Write));
    }

    #[test]
    fn many_locks_are_all_held() {
        let mut locks = Locks::new(LockMode::Exclusive);
        for hash in 0..10_000 {
            locks.insert(TableId(0), KeyHash(hash * 0x9e37_79b9));
        }
        assert!((0..10_000).all(|hash| locks.conflict(
            TableId(0),
            KeyHash(hash * 0x9e37_79b9),
            Access::Read
        )));
        assert!(!locks.conflict(TableId(0), KeyHash(1), Access::Write));
    }
}
