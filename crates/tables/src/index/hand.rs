//! Walks round an index in hash order, however it changes, and finds entries by their hash alone.

use super::{EntryRef, Index};
use crate::hasher::Hasher;

/// Position of a walk that goes round an index again and again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hand {
    /// First hash of the bucket where the walk continues.
    hash: u64,
    /// Number of entries of the bucket that are passed.
    slot: usize,
}

impl Index {
    /// Walks on until `is_wanted` holds for an entry, or `steps` entries and buckets are passed.
    /// The walk continues at the entry that it returns, or at the one that takes its slot when it
    /// is deleted. An entry is passed once per round, except for a few when segments change.
    pub fn walk(
        &self,
        hand: &mut Hand,
        mut steps: usize,
        mut is_wanted: impl FnMut(EntryRef<'_>) -> bool,
    ) -> Option<EntryRef<'_>> {
        if self.directory.is_empty() {
            return None;
        }
        loop {
            let word = self.directory.word(hand.hash);
            let (segment, buckets) = (word.segment(), usize::from(word.buckets()));
            for bucket in segment.home(word.tag(hand.hash))..buckets {
                let slots = segment.bucket_slots(bucket);
                slots.iter().skip(hand.slot).for_each(|slot| slot.prefetch());
                while let Some(slot) = slots.get(hand.slot) {
                    if steps == 0 {
                        return None;
                    }
                    steps -= 1;
                    let entry = EntryRef::new(slot.entry());
                    if is_wanted(entry) {
                        return Some(entry);
                    }
                    hand.slot += 1;
                }
                steps = steps.saturating_sub(1);
                hand.slot = 0;
                if bucket + 1 < buckets {
                    hand.hash = segment.home_start(bucket + 1, hand.hash);
                }
            }
            hand.hash = self.directory.next_segment(hand.hash).unwrap_or(0);
        }
    }

    /// Returns the newcomer whose key has this hash, if there is one.
    pub fn newcomer(&self, hash: u64, hasher: &Hasher) -> Option<EntryRef<'_>> {
        if self.directory.is_empty() {
            return None;
        }
        let word = self.directory.word(hash);
        let is_wanted =
            |entry: super::Entry| entry.is_newcomer() && (hasher.hash(entry.key()) == hash);
        let found = word.segment().find_by(word.buckets(), word.tag(hash), is_wanted);
        found.map(|(entry, _)| EntryRef::new(entry))
    }

    /// Settles all entries without uses, as the eviction expects them when it begins.
    pub fn settle_all(&self) {
        let mut hash = (!self.directory.is_empty()).then_some(0);
        while let Some(at) = hash {
            let segment = self.directory.word(at).segment();
            for bucket in 0..usize::from(segment.buckets()) {
                let slots = segment.bucket_slots(bucket);
                slots.iter().for_each(|slot| slot.prefetch());
                slots.iter().for_each(|slot| slot.entry().settle(0));
            }
            hash = self.directory.next_segment(at);
        }
    }
}
