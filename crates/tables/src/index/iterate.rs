//! Walks an index in hash order: scans that survive changes, iteration, random choice.

use super::segment::{BUCKET_SLOTS, Segment, Slot};
use super::{EntryRef, Index};

/// Length of a scan position: the first 40 bits of a hash.
const POSITION_BITS: u32 = 40;
const POSITION_SHIFT: u32 = 64 - POSITION_BITS;

/// Number of slots drawn before a random choice takes the next best entry. Usually one slot in four
/// is free.
const RANDOM_DRAWS_MAX: u64 = 16;

/// Most entries that a random choice visits before it gives up.
const RANDOM_VISITED_MAX: usize = 10_000;

impl Index {
    /// Emits the entries whose home buckets begin at or after `position` until `count_min` were
    /// visited. Returns the position to continue at.
    ///
    /// An entry's hash does not change, and a bucket holds a range of hashes. So everything after a
    /// position is emitted later, whatever the sizes of segments are by then; entries that share a
    /// bucket with the position are emitted again.
    pub fn scan<'a>(
        &'a self,
        position: u64,
        count_min: usize,
        mut emit: impl FnMut(EntryRef<'a>),
    ) -> Option<u64> {
        if self.directory.is_empty() || 1 << POSITION_BITS <= position {
            return None;
        }
        let mut visited = 0;
        let mut hash = position << POSITION_SHIFT;
        loop {
            let word = self.directory.word(hash);
            let (segment, buckets) = (word.segment(), word.buckets());
            for home in segment.home(word.tag(hash))..usize::from(buckets) {
                let start = segment.home_start(home, hash) >> POSITION_SHIFT;
                if count_min.max(1) <= visited && position < start {
                    return Some(start);
                }
                visited += 1;
                segment.for_each_at_home(home, |slot| {
                    visited += 1;
                    emit(EntryRef::new(slot.entry()));
                });
            }
            hash = self.directory.next_segment(hash)?;
            if count_min <= visited {
                return Some(hash >> POSITION_SHIFT);
            }
        }
    }

    /// Emits the entries whose hashes are at or after `from`, in the order of their home buckets,
    /// until `go_on`, called after each bucket, returns false. Returns the hash to continue at. An
    /// entry that stays is emitted exactly once by a scan from start to end, however segments
    /// change meanwhile.
    pub fn scan_once<'a>(
        &'a self,
        from: u64,
        hash_of: impl Fn(&[u8]) -> u64,
        mut emit: impl FnMut(EntryRef<'a>),
        mut go_on: impl FnMut() -> bool,
    ) -> Option<u64> {
        if self.directory.is_empty() {
            return None;
        }
        let mut hash = from;
        loop {
            let word = self.directory.word(hash);
            let (segment, buckets) = (word.segment(), usize::from(word.buckets()));
            let first_tag = word.tag(hash);
            for home in segment.home(first_tag)..buckets {
                segment.for_each_at_home(home, |slot| {
                    let entry = EntryRef::new(slot.entry());
                    // The tag decides, unless segments have been merged since the last call.
                    let is_here = first_tag < slot.tag()
                        || (first_tag == slot.tag() && from <= hash_of(entry.key()));
                    if is_here {
                        emit(entry);
                    }
                });
                if home + 1 < buckets && !go_on() {
                    return Some(segment.home_start(home + 1, hash));
                }
            }
            hash = self.directory.next_segment(hash)?;
            if !go_on() {
                return Some(hash);
            }
        }
    }

    /// Iterates over all entries in the order of their buckets.
    pub fn iter(&self) -> Iter<'_> {
        let next_hash = (!self.directory.is_empty()).then_some(0);
        Iter { index: self, hash: 0, next_hash, segment: None, bucket: 0, slots: &[] }
    }

    /// Continues at a cursor that [`Iter::cursor`] returned. The index must not have changed since:
    /// an added or removed entry may hide others, or show them twice.
    pub fn iter_from(&self, cursor: IterCursor) -> Iter<'_> {
        if self.directory.is_empty() {
            return self.iter();
        }
        let hash = cursor.hash;
        let segment = self.directory.word(hash).segment();
        let bucket = usize::from(cursor.bucket);
        let mut slots: &[Slot] = &[];
        if 0 < bucket && bucket <= usize::from(segment.buckets()) {
            let all = segment.bucket_slots(bucket - 1);
            slots = &all[all.len().saturating_sub(usize::from(cursor.slots_left))..];
        }
        Iter {
            index: self,
            hash,
            next_hash: self.directory.next_segment(hash),
            segment: Some(segment),
            bucket,
            slots,
        }
    }

    /// Returns an entry for which `accept` holds, chosen by a random number, about fairly. `None`
    /// when none was found; in a table with many more refused than accepted entries that does not
    /// mean that there is none.
    pub fn random(
        &self,
        random: u64,
        accept: impl Fn(EntryRef<'_>) -> bool,
    ) -> Option<EntryRef<'_>> {
        if self.directory.is_empty() {
            return None;
        }
        self.random_slot(random, &accept).or_else(|| self.any_behind(random, &accept))
    }

    /// Draws slots until one holds an acceptable entry: fair, but it may find none.
    fn random_slot(
        &self,
        random: u64,
        accept: impl Fn(EntryRef<'_>) -> bool,
    ) -> Option<EntryRef<'_>> {
        (0..RANDOM_DRAWS_MAX).find_map(|draw| {
            let hash = mix(random.wrapping_add(draw));
            let word = self.directory.word(hash);
            let slots = word.segment().bucket_slots(word.segment().home(word.tag(hash)));
            let slot = slots.get(hash as usize % BUCKET_SLOTS)?;
            Some(EntryRef::new(slot.entry())).filter(|entry| accept(*entry))
        })
    }

    /// Returns the first acceptable entry in the buckets from a random one on.
    fn any_behind(
        &self,
        random: u64,
        accept: impl Fn(EntryRef<'_>) -> bool,
    ) -> Option<EntryRef<'_>> {
        let mut visited = 0;
        let mut hash = mix(random);
        let mut wraps = 0;
        let mut first_bucket =
            self.directory.word(hash).segment().home(self.directory.word(hash).tag(hash));
        // Goes round more than once, because it starts in the middle of the first segment.
        while visited < RANDOM_VISITED_MAX && wraps < 2 {
            let segment = self.directory.word(hash).segment();
            for bucket in first_bucket..usize::from(segment.buckets()) {
                let slots = segment.bucket_slots(bucket);
                visited += 1 + slots.len();
                let chosen = slots
                    .iter()
                    .map(|slot| EntryRef::new(slot.entry()))
                    .find(|entry| accept(*entry));
                if chosen.is_some() {
                    return chosen;
                }
            }
            first_bucket = 0;
            hash = self.directory.next_segment(hash).unwrap_or_else(|| {
                wraps += 1;
                0
            });
        }
        None
    }
}

/// Spreads the bits of a number over all of a hash.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ mixed >> 29
}

/// Iterator over the entries of an index.
pub(crate) struct Iter<'a> {
    index: &'a Index,
    /// Hash in the current segment.
    hash: u64,
    next_hash: Option<u64>,
    segment: Option<Segment>,
    bucket: usize,
    slots: &'a [Slot],
}

/// Position of an iteration over an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IterCursor {
    hash: u64,
    /// Next bucket of the segment.
    bucket: u16,
    /// Number of entries of the bucket before it that are still to come.
    slots_left: u8,
}

impl Iter<'_> {
    /// Returns the cursor where [`Index::iter_from`] continues.
    pub fn cursor(&self) -> IterCursor {
        IterCursor {
            hash: self.hash,
            bucket: self.bucket as u16,
            slots_left: self.slots.len() as u8,
        }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = EntryRef<'a>;

    fn next(&mut self) -> Option<EntryRef<'a>> {
        loop {
            if let Some((slot, rest)) = self.slots.split_first() {
                self.slots = rest;
                return Some(EntryRef::new(slot.entry()));
            }
            match self.segment {
                Some(segment) if self.bucket < usize::from(segment.buckets()) => {
                    self.slots = segment.bucket_slots(self.bucket);
                    self.bucket += 1;
                }
                _ => {
                    let hash = self.next_hash?;
                    self.hash = hash;
                    self.segment = Some(self.index.directory.word(hash).segment());
                    self.next_hash = self.index.directory.next_segment(hash);
                    self.bucket = 0;
                }
            }
        }
    }
}
