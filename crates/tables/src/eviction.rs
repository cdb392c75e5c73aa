//! Eviction from tables that are caches: S3-FIFO, after Yang et al., "FIFO queues are all you need
//! for cache eviction", SOSP 2023, with a main queue that takes no memory.
//!
//! ```text
//!  new --> newcomers (a tenth) --used meanwhile--> main (all others) --used meanwhile--+
//!            |                                       ^  |               one use less <-+
//!            | not used                              |  | not used
//!            v                                       |  v
//!          evicted, fingerprint to the ghosts        |  evicted
//!  new, but its fingerprint is among the ghosts -----+
//! ```
//!
//! * **Uses** are two bits in the header of an entry. A read of an entry whose count is full writes
//!   nothing. In a table that does not evict every count is full from the start, so reads there pay
//!   for a comparison with a word that they have loaded anyway.
//! * **Newcomers** are a queue of key hashes, and a bit in the entry's header. A key that was
//!   deleted leaves its hash behind, which is skipped when it reaches the front. If its key was set
//!   again meanwhile, the key is judged earlier than its turn. Until something has to be evicted
//!   for the first time, all keys are newcomers; the queue is at most a quarter longer than the
//!   table.
//! * **Main** is the index itself. A hand goes round it in hash order. An entry enters it at a
//!   random distance from the hand, not a whole round behind it, so one that newcomers had to leave
//!   because it was used enters with one use. On Zipf, scan and shifting traces that hits as often
//!   as the queue of the paper (the tests compare both).
//! * **Ghosts** are fingerprints of 16 bits, about as many as the table has entries.
//!
//! All of it takes 3 bytes per entry of a table that evicts, and at most 12 while most entries are
//! newcomers (it fills, or nothing is used); other tables pay nothing. Nothing
//! needs to be restored at a start: all entries are in the main queue then. Whatever this module
//! forgets or confuses costs hits, never data: it only chooses.

mod ghosts;
mod newcomers;

use crate::KeyHash;
use crate::UnixMs;
use crate::hasher::Hasher;
use crate::index::{Hand, Index};
use crate::limits::{
    EVICTION_HAND_STEPS_MAX, EVICTION_NEWCOMERS_JUDGED_MAX, NEWCOMERS_SHARE, NEWCOMERS_STALE_SHARE,
};

use ghosts::Ghosts;
use newcomers::Newcomers;

/// Uses with which an entry that was used as a newcomer enters the main queue.
const PROMOTED_USES: u8 = 1;

/// Policy of one table, without its entries.
#[derive(Default)]
pub(crate) struct Eviction {
    newcomers: Newcomers,
    ghosts: Ghosts,
    hand: Hand,
}

/// Entry that is to be evicted next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Hash of its key.
    pub hash: KeyHash,
    /// True if it has expired already.
    pub is_expired: bool,
}

impl Eviction {
    /// Prepares to evict from a table that may have entries.
    pub fn start(&mut self, index: &Index) {
        index.settle_all();
        while self.ghosts.fit(index.len()) {}
    }

    /// Forgets everything, because the table is empty now.
    pub fn clear(&mut self) {
        *self = Eviction::default();
    }

    /// Returns the bytes that the allocator holds for the policy.
    pub fn held_bytes(&self) -> u64 {
        (self.newcomers.held_bytes() + self.ghosts.held_bytes()) as u64
    }

    /// Takes note of a key that was added to the table.
    pub fn admit(&mut self, index: &Index, hasher: &Hasher, hash: u64, key: &[u8]) {
        let Some(entry) = index.find(hash, key) else { return };
        self.ghosts.fit(index.len());
        if self.ghosts.take(hash) {
            entry.settle(0);
            return;
        }
        entry.make_newcomer();
        self.newcomers.push(hash);
        // Two at a time, so that the queue also shrinks after many keys were deleted.
        for _ in 0..2 {
            if index.len() + share(index.len(), NEWCOMERS_STALE_SHARE) < self.newcomers.len()
                && let Some(hash) = self.newcomers.pop()
                && let Some(entry) = index.newcomer(hash, hasher)
            {
                entry.settle(entry.uses());
            }
        }
    }

    /// Chooses an entry that `may_evict` allows and appends its key to `key`. `None` when none was
    /// found within the limits.
    ///
    /// It changes no entry but for its uses. A victim that the caller does not delete stays.
    pub fn choose(
        &mut self,
        index: &Index,
        hasher: &Hasher,
        now: UnixMs,
        may_evict: &mut dyn FnMut(KeyHash) -> bool,
        key: &mut Vec<u8>,
    ) -> Option<Victim> {
        let of_newcomers = self.choose_newcomer(index, hasher, now, may_evict, key);
        of_newcomers.or_else(|| self.choose_main(index, hasher, now, may_evict, key))
    }

    fn choose_newcomer(
        &mut self,
        index: &Index,
        hasher: &Hasher,
        now: UnixMs,
        may_evict: &mut dyn FnMut(KeyHash) -> bool,
        key: &mut Vec<u8>,
    ) -> Option<Victim> {
        for _ in 0..EVICTION_NEWCOMERS_JUDGED_MAX {
            if self.newcomers.len() < share(index.len(), NEWCOMERS_SHARE) {
                return None;
            }
            let hash = self.newcomers.pop()?;
            let Some(entry) = index.newcomer(hash, hasher) else { continue };
            let is_expired = !entry.is_live(now);
            if entry.uses() != 0 && !is_expired || !may_evict(KeyHash(hash)) {
                entry.settle(PROMOTED_USES);
                continue;
            }
            // It has left the queue, whether the caller deletes it or not.
            entry.settle(0);
            if !is_expired {
                self.ghosts.insert(hash);
            }
            key.extend_from_slice(entry.key());
            return Some(Victim { hash: KeyHash(hash), is_expired });
        }
        None
    }

    /// Moves the hand to an entry of the main queue without uses. If there is none within the
    /// limit, the entry with the fewest uses there is the victim, even if it is a newcomer: nearly
    /// all are, when the table has just become full.
    fn choose_main(
        &mut self,
        index: &Index,
        hasher: &Hasher,
        now: UnixMs,
        may_evict: &mut dyn FnMut(KeyHash) -> bool,
        key: &mut Vec<u8>,
    ) -> Option<Victim> {
        let start = key.len();
        let mut lowest = u8::MAX;
        let mut victim = None;
        index.walk(&mut self.hand, EVICTION_HAND_STEPS_MAX, |entry| {
            let is_expired = !entry.is_live(now);
            let (uses, is_newcomer) = (entry.uses(), entry.is_newcomer());
            let rank = if is_expired { 0 } else { 2 * uses + u8::from(is_newcomer) };
            if !is_newcomer {
                entry.settle(uses.saturating_sub(1));
            }
            if lowest <= rank {
                return false;
            }
            let hash = KeyHash(hasher.hash(entry.key()));
            if !may_evict(hash) {
                return false;
            }
            lowest = rank;
            key.truncate(start);
            key.extend_from_slice(entry.key());
            victim = Some((Victim { hash, is_expired }, is_newcomer));
            rank == 0
        });
        let (victim, is_newcomer) = victim?;
        if is_newcomer && !victim.is_expired {
            self.ghosts.insert(victim.hash.0);
        }
        Some(victim)
    }

    /// Checks that every newcomer among the entries is in the queue.
    #[cfg(test)]
    pub fn assert_invariants(&self, index: &Index, hasher: &Hasher) {
        let mut queued = std::collections::HashMap::<u64, usize>::new();
        self.newcomers.iter().for_each(|hash| *queued.entry(hash).or_default() += 1);
        for entry in index.iter().filter(|entry| entry.is_newcomer()) {
            let left = queued.get_mut(&hasher.hash(entry.key()));
            *left.filter(|left| 0 < **left).expect("a newcomer is queued") -= 1;
        }
    }
}

/// Returns a share of a number of entries, at least one.
fn share(entries: usize, divisor: usize) -> usize {
    (entries / divisor).max(1)
}
