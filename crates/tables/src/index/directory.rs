//! Finds the segment of a hash from the hash's first bits: extendible hashing.
//!
//! A directory of 2^d words is addressed by the first d bits of the hash; a segment whose keys
//! share fewer bits is in several neighbouring words. A word holds all that a look-up needs to
//! address a bucket:
//!
//! ```text
//! bucket count 16 bits | segment address 48 bits
//! ```
//!
//! The segment address is a multiple of 64; its low 6 bits are replaced by the depth.
//!
//! Doubling copies all words, so a directory that outgrows [`FLAT_BITS_MAX`] is cut into
//! [`SHARD_COUNT`] shards by the first bits of the hash, which double one at a time.

use super::heap::{Heap, held_bytes};
use super::segment::{BUCKETS_MAX, Segment, tag_of};
use crate::HashPrefix;

const SHARD_BITS: u32 = 6;
const SHARD_COUNT: usize = 1 << SHARD_BITS;
/// Limit of a flat directory: one with more words than 2^this is cut into shards.
const FLAT_BITS_MAX: u32 = 10;
/// Most hash bits that a segment's keys share. Scan positions have 40 bits and must tell segments
/// apart.
const DEPTH_MAX: u32 = 40;
/// Number of words that a directory may always have.
const WORDS_FREE: usize = 64;
/// Number of entries that justifies each further word; evenly spread hashes need a word for some
/// 500 entries.
const ENTRIES_PER_WORD_MIN: usize = 4;

/// Most entries that a segment is to hold which is created for entries to come.
const ENTRIES_PER_SEGMENT_MAX: usize = 700;

const ADDRESS_MASK: u64 = ((1 << 48) - 1) & !DEPTH_MASK;
const DEPTH_MASK: u64 = 63;
const BUCKETS_SHIFT: u32 = 48;

const _: () = assert!(DEPTH_MAX as u64 <= DEPTH_MASK);
const _: () = assert!(DEPTH_MAX + 16 <= 64, "a tag lies behind the deepest prefix");
const _: () = assert!(SHARD_BITS < FLAT_BITS_MAX);

/// Word of the directory, taken apart on use.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Word(u64);

struct Shard {
    words: Box<[Word]>,
    /// Binary logarithm of the number of words.
    bits: u32,
    /// Number of segments that are in one word only: while there are any, the directory cannot be
    /// halved.
    deepest_count: usize,
}

/// The segments of one index. Empty at first and after the last entry is removed.
pub(super) struct Directory {
    shards: Box<[Shard]>,
    /// Binary logarithm of the number of shards: 0 or [`SHARD_BITS`].
    shard_bits: u32,
    word_count: usize,
}

impl Word {
    #[inline]
    fn new(segment: Segment) -> Word {
        let address = segment.address() as u64;
        debug_assert!(address & !ADDRESS_MASK == 0);
        Word(u64::from(segment.buckets()) << BUCKETS_SHIFT | address | u64::from(segment.depth()))
    }

    #[inline]
    pub fn segment(self) -> Segment {
        Segment::from_address((self.0 & ADDRESS_MASK) as usize)
    }

    #[inline]
    pub fn depth(self) -> u32 {
        (self.0 & DEPTH_MASK) as u32
    }

    #[inline]
    pub fn buckets(self) -> u16 {
        (self.0 >> BUCKETS_SHIFT) as u16
    }

    #[inline]
    pub fn tag(self, hash: u64) -> u16 {
        tag_of(hash, self.depth())
    }
}

/// Returns the first `bits` bits of a hash.
#[inline]
fn prefix(hash: u64, bits: u32) -> usize {
    // Shifts in two steps, because for no bits at all a single shift would be one by 64.
    (hash >> 1 >> (63 - bits)) as usize
}

impl Directory {
    pub fn new() -> Self {
        Directory { shards: Box::new([]), shard_bits: 0, word_count: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Returns the word of a hash. The directory must not be empty.
    #[inline]
    pub fn word(&self, hash: u64) -> Word {
        let shard = &self.shards[prefix(hash, self.shard_bits)];
        shard.words[prefix(hash << self.shard_bits, shard.bits)]
    }

    /// Creates the first segment.
    pub fn start(&mut self, heap: &mut Heap) {
        debug_assert!(self.is_empty());
        let word = Word::new(Segment::create(heap, 0, 0));
        self.set_shards(heap, Box::new([Shard::new(Box::new([word]), 0)]), 0);
    }

    /// Creates the segments that about so many entries with evenly spread hashes of this prefix
    /// will have. So they need not be split and moved as they come, and those that come in hash
    /// order do not crowd the first buckets of a segment that has yet to be split.
    pub fn start_sized(&mut self, heap: &mut Heap, entries: usize, prefix: HashPrefix) {
        let HashPrefix { bits, value } = prefix;
        debug_assert!(self.is_empty());
        let segments = entries.div_ceil(ENTRIES_PER_SEGMENT_MAX).next_power_of_two();
        let depth = (segments.ilog2() + bits).min(DEPTH_MAX);
        let count = u32::try_from(entries >> depth.saturating_sub(bits)).unwrap_or(0);
        let is_expected = |at: u64| depth < bits || at >> (depth - bits) == value;
        let expected_count = |at| if is_expected(at) { count } else { 0 };
        let words: Vec<_> = (0..1_u64 << depth)
            .map(|at| Word::new(Segment::create(heap, depth, expected_count(at))))
            .collect();
        if depth <= FLAT_BITS_MAX {
            self.set_shards(heap, Box::new([Shard::new(words.into(), 0)]), 0);
            return;
        }
        self.set_shards(heap, Shard::cut(&words), SHARD_BITS);
    }

    /// Frees all segments, but not their entries. Only `clear` may follow.
    pub fn free_segments(&mut self, heap: &mut Heap) {
        let mut hash = Some(0);
        while let Some(at) = hash {
            self.word(at).segment().free(heap);
            hash = self.next_segment(at);
        }
    }

    /// Frees the directory; the segments must be gone.
    pub fn clear(&mut self, heap: &mut Heap) {
        self.set_shards(heap, Box::new([]), 0);
    }

    /// Makes space for another entry in the segment of a hash.
    pub fn make_room(
        &mut self,
        heap: &mut Heap,
        key_hash: u64,
        len: usize,
        hash: impl Fn(&[u8]) -> u64,
    ) {
        loop {
            let segment = self.word(key_hash).segment();
            if segment.has_room() {
                return;
            }
            if BUCKETS_MAX <= segment.buckets() && self.prepare_split(heap, key_hash, segment, len)
            {
                let (lower, upper) = segment.split(heap, &hash);
                self.set_split(key_hash, lower, upper);
            } else {
                let grown = segment.resized(heap, segment.grown_count());
                self.set(key_hash, grown);
            }
        }
    }

    /// Shrinks or merges the segment of a hash after a removal, if enough of it is free.
    #[inline]
    pub fn release_room(&mut self, heap: &mut Heap, key_hash: u64) {
        let segment = self.word(key_hash).segment();
        if let Some(count) = segment.shrunk_count() {
            let shrunk = segment.resized(heap, count);
            self.set(key_hash, shrunk);
            self.merge(heap, key_hash);
        }
    }

    /// Returns the first hash after the segment of this one; `None` after the last segment.
    pub fn next_segment(&self, hash: u64) -> Option<u64> {
        let depth = self.word(hash).depth();
        if depth == 0 {
            return None;
        }
        let span = 1_u64 << (64 - depth);
        (hash & !(span - 1)).checked_add(span)
    }

    /// Makes the directory deep enough to split a segment, unless that would make it too large.
    fn prepare_split(
        &mut self,
        heap: &mut Heap,
        key_hash: u64,
        segment: Segment,
        len: usize,
    ) -> bool {
        if segment.depth() == DEPTH_MAX {
            return false;
        }
        let shard = &self.shards[prefix(key_hash, self.shard_bits)];
        if segment.depth() < self.shard_bits + shard.bits {
            return true;
        }
        if WORDS_FREE.max(len / ENTRIES_PER_WORD_MIN) < self.word_count + shard.words.len() {
            return false;
        }
        if self.shard_bits == 0 && FLAT_BITS_MAX <= shard.bits {
            self.cut_into_shards(heap);
        }
        self.double(heap, key_hash);
        true
    }

    fn double(&mut self, heap: &mut Heap, hash: u64) {
        let shard = &mut self.shards[prefix(hash, self.shard_bits)];
        let added = shard.words.len();
        let before = shard.held_bytes();
        shard.words = shard.words.iter().flat_map(|&word| [word, word]).collect();
        shard.bits += 1;
        shard.deepest_count = 0;
        heap.live_bytes = heap.live_bytes + shard.held_bytes() - before;
        self.word_count += added;
    }

    /// Replaces the segment of a hash by another one of the same depth.
    fn set(&mut self, hash: u64, segment: Segment) {
        let shard = &mut self.shards[prefix(hash, self.shard_bits)];
        let span = shard.bits - (segment.depth() - self.shard_bits);
        let first = prefix(hash << self.shard_bits, shard.bits) >> span << span;
        shard.words[first..first + (1 << span)].fill(Word::new(segment));
    }

    fn set_split(&mut self, hash: u64, lower: Segment, upper: Segment) {
        let bit = 1_u64 << (64 - lower.depth());
        self.set(hash & !bit, lower);
        self.set(hash | bit, upper);
        let shard = &mut self.shards[prefix(hash, self.shard_bits)];
        if lower.depth() == self.shard_bits + shard.bits {
            shard.deepest_count += 2;
        }
    }

    /// Merges the segment of a hash with its neighbour, and the result with its own neighbour, as
    /// long as they are small.
    fn merge(&mut self, heap: &mut Heap, hash: u64) {
        loop {
            let segment = self.word(hash).segment();
            if segment.depth() == self.shard_bits {
                return;
            }
            let bit = 1_u64 << (64 - segment.depth());
            let neighbour = self.word(hash ^ bit).segment();
            if !segment.can_merge(neighbour) {
                return;
            }
            let was_deepest = {
                let shard = &self.shards[prefix(hash, self.shard_bits)];
                segment.depth() == self.shard_bits + shard.bits
            };
            let (lower, upper) =
                if hash & bit == 0 { (segment, neighbour) } else { (neighbour, segment) };
            let merged = Segment::merge(lower, upper, heap);
            self.set(hash, merged);
            if was_deepest {
                self.count_deepest_out(heap, hash);
            }
        }
    }

    /// Notes that two of a shard's deepest segments became one. Without deepest segments the shard
    /// is halved.
    fn count_deepest_out(&mut self, heap: &mut Heap, hash: u64) {
        let shard_bits = self.shard_bits;
        let shard = &mut self.shards[prefix(hash, shard_bits)];
        shard.deepest_count -= 2;
        if shard.deepest_count != 0 {
            return;
        }
        let before = shard.held_bytes();
        *shard = Shard::new(shard.words.iter().step_by(2).copied().collect(), shard_bits);
        heap.live_bytes = heap.live_bytes + shard.held_bytes() - before;
        self.word_count -= shard.words.len();
        if shard_bits != 0 && self.shards.iter().all(|shard| shard.bits == 0) {
            let words = self.shards.iter().map(|shard| shard.words[0]).collect();
            self.set_shards(heap, Box::new([Shard::new(words, 0)]), 0);
        }
    }

    /// Cuts a flat directory into shards, unless a segment would belong to several: then it stays
    /// flat.
    fn cut_into_shards(&mut self, heap: &mut Heap) {
        let words = &self.shards[0].words;
        if words.iter().any(|word| word.depth() < SHARD_BITS) {
            return;
        }
        let shards = Shard::cut(words);
        self.set_shards(heap, shards, SHARD_BITS);
    }

    fn set_shards(&mut self, heap: &mut Heap, shards: Box<[Shard]>, shard_bits: u32) {
        let held = |shards: &[Shard]| {
            let own = if shards.is_empty() { 0 } else { held_bytes(size_of_val(shards)) as u64 };
            own + shards.iter().map(Shard::held_bytes).sum::<u64>()
        };
        heap.live_bytes = heap.live_bytes + held(&shards) - held(&self.shards);
        self.word_count = shards.iter().map(|shard| shard.words.len()).sum();
        self.shards = shards;
        self.shard_bits = shard_bits;
    }
}

impl Shard {
    fn new(words: Box<[Word]>, shard_bits: u32) -> Shard {
        let bits = words.len().ilog2();
        let deepest_count = words.iter().filter(|word| word.depth() == shard_bits + bits).count();
        Shard { words, bits, deepest_count }
    }

    /// Cuts the words of a flat directory into shards.
    fn cut(words: &[Word]) -> Box<[Shard]> {
        let words = words.chunks_exact(words.len() / SHARD_COUNT);
        words.map(|words| Shard::new(words.into(), SHARD_BITS)).collect()
    }

    fn held_bytes(&self) -> u64 {
        held_bytes(size_of_val(&*self.words)) as u64
    }
}
