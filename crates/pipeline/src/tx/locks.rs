//! Keys that commands executed in slices hold between their slices.
//!
//! Everything else executes whole, so only such commands lock. They take locks as they go and give
//! all back at their end (two-phase locking): what they read or wrote at their beginning is still
//! so at their end. A request for a locked key waits; requests for other keys do not notice.

use std::collections::HashSet;

use busload_tables::{KeyHash, TableId};

/// Who else may use a locked key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// Readers.
    Shared,
    /// Nobody.
    Exclusive,
}

/// What a request does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Looks at it.
    Read,
    /// May change it.
    Write,
}

/// The locks of one command. Keys are told apart by their hash: two with the same one only wait for
/// each other.
#[derive(Debug)]
pub(crate) struct Locks {
    mode: LockMode,
    /// Several sets, because one that grows moves all it holds at once.
    shards: Vec<HashSet<(TableId, KeyHash)>>,
    len: usize,
}

/// Sets of a command that locks many keys: each is small enough to grow within a fraction of a
/// millisecond.
const SHARD_COUNT: usize = 256;

/// Locks up to which one set does.
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

    /// Whether a request that wants this must wait.
    pub fn conflict(&self, table: TableId, hash: KeyHash, access: Access) -> bool {
        let excludes = self.mode == LockMode::Exclusive || access == Access::Write;
        excludes && self.len != 0 && self.shards[self.shard(hash)].contains(&(table, hash))
    }

    /// About the memory they take.
    pub fn memory_bytes(&self) -> usize {
        // A set keeps a slot and a byte of control for each, and is between half and wholly full.
        self.len * 2 * (size_of::<(TableId, KeyHash)>() + 1)
    }

    fn shard(&self, hash: KeyHash) -> usize {
        // The last bits: those in front choose places in the tables and are about the same for keys
        // scanned together.
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
