//! One segment: a small hash table for all keys whose hashes begin with the same bits.
//!
//! ```text
//! header line (64 bytes) | bucket 0 | bucket 1 | ... | bucket n-1     (64 bytes each, 8 slots)
//! slot: tag 16 bits | address of the entry 48 bits (bit 0: the entry expires); 0 = free
//! ```
//!
//! A tag is the 16 hash bits after those that all keys of the segment share, and the home bucket of
//! a tag is `tag * n / 2^16`. So buckets are in hash order, and a segment changes its size without
//! reading any entry. An entry whose home is full is in the next bucket with a free slot (the first
//! bucket follows the last). Invariants:
//! * the used slots of a bucket come first;
//! * all buckets from an entry's home to the one before it are full, so a search ends at a bucket
//!   with a free slot.

use std::ptr::NonNull;

use super::entry::Entry;
use super::heap::Heap;
use super::prefetch;
use crate::UnixMs;

/// Number of slots of a bucket.
pub(super) const BUCKET_SLOTS: usize = 8;

/// Bucket counts whose segments fill a size class of the allocator.
const SIZES: [u16; 12] = [1, 3, 7, 15, 23, 31, 47, 63, 78, 94, 110, 126];

/// Number of buckets of the largest segment. Only a segment that cannot be split (its keys' hashes
/// are equal in more bits than the directory may have) grows beyond.
pub(super) const BUCKETS_MAX: u16 = SIZES[SIZES.len() - 1];

/// Most entries that two neighbours may have together to be merged: half of what one can hold.
const MERGED_COUNT_MAX: u32 = capacity(BUCKETS_MAX) / 2;

const TAG_SHIFT: u32 = 48;
const ADDRESS_MASK: u64 = (1 << TAG_SHIFT) - 1;
const EXPIRES: u64 = 1;
/// Sweep bound of a segment in which nothing expires.
pub(super) const NEVER: UnixMs = UnixMs::MAX;

/// Word of a bucket, for one entry.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Slot(u64);

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Bucket([Slot; BUCKET_SLOTS]);

#[repr(C, align(64))]
struct Header {
    count: u32,
    expiring: u32,
    buckets: u16,
    depth: u8,
    /// Number of entries that expire at or before `swept_at`.
    due: u32,
    /// Time of the last sweep.
    swept_at: UnixMs,
    /// Lower bound of the expiry of all entries that expire after `swept_at`.
    earliest_rest: UnixMs,
}

const _: () = assert!(size_of::<Header>() == 64 && size_of::<Bucket>() == 64);

/// Pointer to a live segment. Copies of it are handed around inside the index; the code that frees
/// the segment makes sure that no copy is left.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Segment(NonNull<Header>);

/// Position of an entry in a segment.
#[derive(Clone, Copy)]
pub(super) struct EntryPosition {
    bucket: usize,
    slot: usize,
}

impl Slot {
    const FREE: Slot = Slot(0);

    #[inline]
    fn new(tag: u16, entry: Entry, expires: bool) -> Slot {
        let address = entry.address().as_ptr().expose_provenance() as u64;
        debug_assert!(address & !ADDRESS_MASK == 0 && address & 7 == 0);
        Slot(u64::from(tag) << TAG_SHIFT | address | u64::from(expires))
    }

    #[inline]
    pub fn tag(self) -> u16 {
        (self.0 >> TAG_SHIFT) as u16
    }

    #[inline]
    fn is_free(self) -> bool {
        self == Slot::FREE
    }

    #[inline]
    pub fn expires(self) -> bool {
        self.0 & EXPIRES != 0
    }

    /// Returns the entry. The slot must not be free.
    #[inline]
    pub fn entry(self) -> Entry {
        let address = (self.0 & ADDRESS_MASK & !EXPIRES) as usize;
        let pointer = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        Entry::from_address(pointer.expect("used slots hold an address"))
    }

    #[inline]
    fn with_tag(self, tag: u16) -> Slot {
        Slot(self.0 & ADDRESS_MASK | u64::from(tag) << TAG_SHIFT)
    }

    #[inline]
    pub fn prefetch(self) {
        let address = (self.0 & ADDRESS_MASK & !EXPIRES) as usize;
        // Most entries are shorter than a cache line and span two: often the key, and nearly always
        // the value, is in the second.
        prefetch(std::ptr::with_exposed_provenance(address));
        prefetch(std::ptr::with_exposed_provenance(address + 64));
    }
}

impl Bucket {
    const FREE: Bucket = Bucket([Slot::FREE; BUCKET_SLOTS]);

    #[inline]
    fn is_full(&self) -> bool {
        !self.0[BUCKET_SLOTS - 1].is_free()
    }

    #[inline]
    fn used(&self) -> &[Slot] {
        // Used slots come first; counting them all is cheaper than searching for the last.
        let count = self.0.iter().filter(|slot| !slot.is_free()).count();
        &self.0[..count]
    }

    fn remove(&mut self, at: usize) -> Slot {
        let last = self.used().len() - 1;
        let slot = self.0[at];
        self.0[at] = self.0[last];
        self.0[last] = Slot::FREE;
        slot
    }

    /// Returns one bit for each slot with this tag. A free slot counts as tag 0.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn matches(&self, tag: u16) -> u32 {
        use std::arch::x86_64::*;
        let lines = self.0.as_ptr().cast::<__m128i>();
        // SAFETY: SSE2 is part of x86_64, and the bucket is four aligned vectors long.
        unsafe {
            let upper = |at: usize| {
                let low = _mm_castsi128_ps(_mm_load_si128(lines.add(at)));
                let high = _mm_castsi128_ps(_mm_load_si128(lines.add(at + 1)));
                _mm_srli_epi32(_mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(low, high)), 16)
            };
            let wanted = _mm_set1_epi32(i32::from(tag));
            let first = _mm_cmpeq_epi32(upper(0), wanted);
            let second = _mm_cmpeq_epi32(upper(2), wanted);
            let words = _mm_packs_epi32(first, second);
            _mm_movemask_epi8(_mm_packs_epi16(words, _mm_setzero_si128())) as u32
        }
    }

    /// Returns one bit for each slot with this tag. A free slot counts as tag 0.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    fn matches(&self, tag: u16) -> u32 {
        self.0.iter().enumerate().map(|(at, slot)| u32::from(slot.tag() == tag) << at).sum()
    }
}

/// Returns the tag of a hash in a segment of this depth.
#[inline]
pub(super) fn tag_of(hash: u64, depth: u32) -> u16 {
    (hash << depth >> 48) as u16
}

#[inline]
fn home_of(tag: u16, buckets: u16) -> usize {
    ((u32::from(tag) * u32::from(buckets)) >> 16) as usize
}

/// Returns how many entries `buckets` buckets may hold: seven eighths of their slots.
const fn capacity(buckets: u16) -> u32 {
    buckets as u32 * 7
}

/// Returns the smallest size with space for `count` entries.
fn size_for(count: u32) -> u16 {
    match SIZES.iter().find(|&&size| count <= capacity(size)) {
        Some(&size) => size,
        None => oversize_above(BUCKETS_MAX, count),
    }
}

/// Doubles `buckets` until `count` entries fit.
fn oversize_above(buckets: u16, count: u32) -> u16 {
    let mut size = buckets;
    while capacity(size) < count {
        assert!(
            size < u16::MAX / 2,
            "half a million keys whose hashes begin alike: the hash seed is broken"
        );
        size = size * 2 + 2;
    }
    size
}

fn segment_bytes(buckets: u16) -> usize {
    (usize::from(buckets) + 1) * 64
}

impl Segment {
    /// Creates an empty segment.
    pub fn create(heap: &mut Heap, depth: u32, count: u32) -> Segment {
        let buckets = size_for(count);
        let segment = Segment(heap.allocate_segment(segment_bytes(buckets)).cast());
        let header = Header {
            count: 0,
            expiring: 0,
            buckets,
            depth: depth as u8,
            due: 0,
            swept_at: UnixMs::MIN,
            earliest_rest: NEVER,
        };
        // SAFETY: the segment begins with space for its header and is ours alone.
        unsafe { segment.0.write(header) };
        segment
    }

    /// Frees the segment, but not its entries.
    pub fn free(self, heap: &mut Heap) {
        let bytes = segment_bytes(self.buckets());
        // SAFETY: it was allocated with this size; by the type's rule nobody else uses it.
        unsafe { heap.free_segment(self.0.cast(), bytes) };
    }

    #[inline]
    pub fn from_address(address: usize) -> Segment {
        let pointer = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        Segment(pointer.expect("directory words hold an address"))
    }

    #[inline]
    pub fn address(self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    pub fn count(self) -> u32 {
        self.header().count
    }

    pub fn depth(self) -> u32 {
        u32::from(self.header().depth)
    }

    pub fn buckets(self) -> u16 {
        self.header().buckets
    }

    /// Returns whether one more entry fits.
    #[inline]
    pub fn has_room(self) -> bool {
        self.count() < capacity(self.buckets())
    }

    /// Prefetches the home bucket of a tag.
    #[inline]
    pub fn prefetch_bucket(self, buckets: u16, tag: u16) {
        let at = (home_of(tag, buckets) + 1) * 64;
        prefetch(self.0.as_ptr().cast::<u8>().wrapping_add(at));
    }

    /// Prefetches the header, which changes with every insertion and removal.
    #[inline]
    pub fn prefetch_header(self) {
        prefetch(self.0.as_ptr().cast());
    }

    /// Prefetches the entries in the home bucket that have this tag, or the next bucket if the
    /// search will continue there.
    #[inline]
    pub fn prefetch_entry(self, buckets: u16, tag: u16) {
        let home = home_of(tag, buckets);
        let bucket = &self.lines(buckets)[home];
        let mut matches = bucket.matches(tag);
        if matches == 0 && bucket.is_full() {
            let next = if home + 1 == usize::from(buckets) { 0 } else { home + 1 };
            prefetch(self.0.as_ptr().cast::<u8>().wrapping_add((next + 1) * 64));
        }
        while matches != 0 {
            bucket.0[matches.trailing_zeros() as usize].prefetch();
            matches &= matches - 1;
        }
    }

    /// Finds a key and its position.
    #[inline]
    pub fn find(self, buckets: u16, tag: u16, key: &[u8]) -> Option<(Entry, EntryPosition)> {
        self.find_by(buckets, tag, |entry| entry.has_key(key))
    }

    /// Finds an entry with this tag for which `is_wanted` holds, and its position.
    #[inline]
    pub fn find_by(
        self,
        buckets: u16,
        tag: u16,
        is_wanted: impl Fn(Entry) -> bool,
    ) -> Option<(Entry, EntryPosition)> {
        let lines = self.lines(buckets);
        let mut at = home_of(tag, buckets);
        for _ in 0..buckets {
            let bucket = &lines[at];
            let mut matches = bucket.matches(tag);
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize;
                let found = bucket.0[slot];
                if !found.is_free() && is_wanted(found.entry()) {
                    return Some((found.entry(), EntryPosition { bucket: at, slot }));
                }
                matches &= matches - 1;
            }
            if !bucket.is_full() {
                return None;
            }
            at = if at + 1 == lines.len() { 0 } else { at + 1 };
        }
        None
    }

    /// Adds an entry that is not there yet. There must be a free slot.
    #[inline]
    pub fn insert(self, tag: u16, entry: Entry, expiry: Option<UnixMs>) {
        self.insert_slot(Slot::new(tag, entry, expiry.is_some()));
        let header = self.header_mut();
        header.count += 1;
        header.add_expiry(expiry);
    }

    /// Updates the slot of an entry that moved in memory or changed its expiry.
    pub fn update(
        self,
        position: EntryPosition,
        entry: Entry,
        old: Option<UnixMs>,
        new: Option<UnixMs>,
    ) {
        let slot = &mut self.lines_mut(self.buckets())[position.bucket].0[position.slot];
        *slot = Slot::new(slot.tag(), entry, new.is_some());
        if old != new {
            let header = self.header_mut();
            header.remove_expiry(old);
            header.add_expiry(new);
        }
    }

    /// Removes an entry and returns it.
    pub fn remove(self, position: EntryPosition, expiry: Option<UnixMs>) -> Entry {
        let buckets = self.buckets();
        let lines = self.lines_mut(buckets);
        let was_full = lines[position.bucket].is_full();
        let slot = lines[position.bucket].remove(position.slot);
        if was_full {
            close_hole(lines, position.bucket);
        }
        let header = self.header_mut();
        header.count -= 1;
        header.remove_expiry(expiry);
        slot.entry()
    }

    /// Returns a segment with the same entries and space for `count`. This segment is freed.
    pub fn resized(self, heap: &mut Heap, count: u32) -> Segment {
        let target = Segment::create(heap, self.depth(), count);
        for slot in self.slots() {
            target.insert_slot(slot);
        }
        *target.header_mut() = Header { buckets: target.buckets(), ..*self.header() };
        self.free(heap);
        target
    }

    /// Returns two segments, one bit deeper, with the entries of this one, which is freed.
    pub fn split(self, heap: &mut Heap, hash: impl Fn(&[u8]) -> u64) -> (Segment, Segment) {
        const AHEAD: usize = 16;
        let depth = self.depth();
        let upper_count = self.slots().filter(|slot| slot.tag() >> 15 != 0).count() as u32;
        let lower = Segment::create(heap, depth + 1, self.count() - upper_count);
        let upper = Segment::create(heap, depth + 1, upper_count);
        let mut ahead = self.slots();
        for slot in ahead.by_ref().take(AHEAD) {
            slot.prefetch();
        }
        for slot in self.slots() {
            if let Some(next) = ahead.next() {
                next.prefetch();
            }
            let target = if slot.tag() >> 15 == 0 { lower } else { upper };
            target.insert_slot(slot.with_tag(tag_of(hash(slot.entry().key()), depth + 1)));
            target.header_mut().count += 1;
            target.header_mut().expiring += u32::from(slot.expires());
        }
        lower.inherit_bound(&[self]);
        upper.inherit_bound(&[self]);
        self.free(heap);
        (lower, upper)
    }

    /// Returns whether `merge` would make a segment that is not too large.
    pub fn can_merge(self, other: Segment) -> bool {
        self.depth() == other.depth() && self.count() + other.count() <= MERGED_COUNT_MAX
    }

    /// Returns one segment with the entries of two neighbours, which are freed.
    pub fn merge(lower: Segment, upper: Segment, heap: &mut Heap) -> Segment {
        let target = Segment::create(heap, lower.depth() - 1, lower.count() + upper.count());
        for (source, bit) in [(lower, 0), (upper, 1 << 15)] {
            for slot in source.slots() {
                target.insert_slot(slot.with_tag(bit | slot.tag() >> 1));
            }
        }
        let header = target.header_mut();
        header.count = lower.count() + upper.count();
        header.expiring = lower.header().expiring + upper.header().expiring;
        target.inherit_bound(&[lower, upper]);
        lower.free(heap);
        upper.free(heap);
        target
    }

    /// Returns the entry count to resize to if the segment is much too large for what it holds.
    #[inline]
    pub fn shrunk_count(self) -> Option<u32> {
        let (count, buckets) = (self.count(), self.buckets());
        // Below three tenths of the slots; the smaller segment gets a quarter more space than it
        // needs.
        if count * 10 < u32::from(buckets) * 24 {
            let target = count + count / 4;
            return (size_for(target) < buckets).then_some(target);
        }
        None
    }

    /// Returns the entry count to resize to, so that one more entry fits.
    pub fn grown_count(self) -> u32 {
        capacity(self.buckets()) + 1
    }

    /// Returns the home bucket of a tag.
    pub fn home(self, tag: u16) -> usize {
        home_of(tag, self.buckets())
    }

    /// Returns the first hash whose home is this bucket; `hash` is any hash that belongs to the
    /// segment.
    pub fn home_start(self, home: usize, hash: u64) -> u64 {
        let depth = self.depth();
        let first_tag = ((home as u64) << 16).div_ceil(u64::from(self.buckets()));
        let shared = if depth == 0 { 0 } else { hash >> (64 - depth) << (64 - depth) };
        shared | first_tag << (48 - depth)
    }

    /// Iterates over all used slots in bucket order.
    pub fn slots<'a>(self) -> impl Iterator<Item = Slot> + 'a {
        let lines: &'a [Bucket] = self.lines(self.buckets());
        lines.iter().flat_map(|bucket| bucket.used().iter().copied())
    }

    /// Returns the used slots of one bucket, wherever their home is.
    pub fn bucket_slots<'a>(self, at: usize) -> &'a [Slot] {
        self.lines(self.buckets())[at].used()
    }

    /// Empties one bucket without regard for the others and returns its entries. Used to free a
    /// whole segment.
    pub fn take_bucket(self, at: usize) -> impl Iterator<Item = Entry> {
        let bucket = std::mem::replace(&mut self.lines_mut(self.buckets())[at], Bucket::FREE);
        for slot in bucket.used() {
            slot.prefetch();
        }
        bucket.0.into_iter().filter(|slot| !slot.is_free()).map(Slot::entry)
    }

    /// Calls `emit` with every slot whose home is this bucket.
    pub fn for_each_at_home(self, home: usize, mut emit: impl FnMut(Slot)) {
        let buckets = self.buckets();
        let lines = self.lines(buckets);
        for slot in lines[home].used() {
            slot.prefetch();
        }
        let mut at = home;
        for _ in 0..buckets {
            for slot in lines[at].used().iter().filter(|slot| home_of(slot.tag(), buckets) == home)
            {
                emit(*slot);
            }
            if !lines[at].is_full() {
                return;
            }
            at = if at + 1 == lines.len() { 0 } else { at + 1 };
        }
    }

    /// Returns a time before which no entry expires.
    #[inline]
    pub fn earliest(self) -> UnixMs {
        self.header().earliest()
    }

    /// Returns a time before which no entry expires except those that the last sweep found due.
    pub fn earliest_rest(self) -> UnixMs {
        if self.header().expiring == 0 { NEVER } else { self.header().earliest_rest }
    }

    /// Finds the entries that are due and sets the bound for the next sweep.
    pub fn sweep(self, now: UnixMs, mut expired: impl FnMut(Entry)) {
        const AHEAD: usize = 8;
        let mut due = 0;
        let mut earliest_rest = NEVER;
        let mut ahead = self.slots().filter(|slot| slot.expires());
        for slot in ahead.by_ref().take(AHEAD) {
            slot.prefetch();
        }
        for slot in self.slots().filter(|slot| slot.expires()) {
            if let Some(next) = ahead.next() {
                next.prefetch();
            }
            match slot.entry().expiry() {
                Some(at) if at <= now => {
                    due += 1;
                    expired(slot.entry());
                }
                Some(at) => earliest_rest = earliest_rest.min(at),
                None => {}
            }
        }
        let header = self.header_mut();
        header.due = due;
        header.swept_at = now;
        header.earliest_rest = earliest_rest;
    }

    #[cfg(test)]
    pub fn assert_invariants(self) {
        let buckets = self.buckets();
        let lines = self.lines(buckets);
        for (at, bucket) in lines.iter().enumerate() {
            let first_free =
                bucket.0.iter().position(|slot| slot.is_free()).unwrap_or(BUCKET_SLOTS);
            assert_eq!(bucket.used().len(), first_free, "used slots come first");
            for slot in bucket.used() {
                let mut passed = home_of(slot.tag(), buckets);
                while passed != at {
                    assert!(lines[passed].is_full(), "a search would end before the entry");
                    passed = (passed + 1) % lines.len();
                }
            }
        }
        assert_eq!(self.slots().count() as u32, self.count());
        assert!(self.count() <= capacity(buckets));
    }

    fn insert_slot(self, slot: Slot) {
        let buckets = self.buckets();
        let lines = self.lines_mut(buckets);
        let mut at = home_of(slot.tag(), buckets);
        while lines[at].is_full() {
            at = if at + 1 == lines.len() { 0 } else { at + 1 };
        }
        let free = lines[at].used().len();
        lines[at].0[free] = slot;
    }

    /// Takes over the sweep bound of the segments that the entries came from.
    fn inherit_bound(self, sources: &[Segment]) {
        let header = self.header_mut();
        if header.expiring != 0 {
            header.earliest_rest =
                sources.iter().map(|source| source.earliest()).min().unwrap_or(NEVER);
        }
    }

    #[inline]
    fn header<'a>(self) -> &'a Header {
        // SAFETY: a live segment begins with its header; no exclusive reference to it is held
        // across calls.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn header_mut<'a>(mut self) -> &'a mut Header {
        // SAFETY: as above; the index is borrowed exclusively by every operation that changes a
        // segment.
        unsafe { self.0.as_mut() }
    }

    /// Returns the buckets. `buckets` is the segment's own count, from its header or its directory
    /// word.
    #[inline]
    fn lines<'a>(self, buckets: u16) -> &'a [Bucket] {
        debug_assert!(buckets == self.buckets());
        // SAFETY: `buckets` initialised buckets follow the header.
        unsafe {
            std::slice::from_raw_parts(
                self.0.add(1).cast::<Bucket>().as_ptr(),
                usize::from(buckets),
            )
        }
    }

    #[inline]
    fn lines_mut<'a>(self, buckets: u16) -> &'a mut [Bucket] {
        // SAFETY: as above; the index is borrowed exclusively by every operation that changes a
        // segment.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.0.add(1).cast::<Bucket>().as_ptr(),
                usize::from(buckets),
            )
        }
    }
}

impl Header {
    #[inline]
    fn earliest(&self) -> UnixMs {
        if self.expiring == 0 {
            NEVER
        } else if self.due != 0 {
            UnixMs::MIN
        } else {
            self.earliest_rest
        }
    }

    #[inline]
    fn add_expiry(&mut self, expiry: Option<UnixMs>) {
        let Some(at) = expiry else { return };
        if self.expiring == 0 {
            (self.due, self.swept_at, self.earliest_rest) = (0, UnixMs::MIN, NEVER);
        }
        self.expiring += 1;
        if self.was_swept(at) {
            self.due += 1;
        } else {
            self.earliest_rest = self.earliest_rest.min(at);
        }
    }

    #[inline]
    fn remove_expiry(&mut self, expiry: Option<UnixMs>) {
        let Some(at) = expiry else { return };
        self.expiring -= 1;
        if self.was_swept(at) {
            self.due -= 1;
        }
    }

    /// Returns whether an entry with this expiry is counted in `due`.
    #[inline]
    fn was_swept(&self, at: UnixMs) -> bool {
        self.swept_at != UnixMs::MIN && at <= self.swept_at
    }
}

/// Moves entries back into a slot that became free in a full bucket, until the invariants hold
/// again.
fn close_hole(lines: &mut [Bucket], hole: usize) {
    let count = lines.len();
    let buckets = count as u16;
    let distance = |from: usize, to: usize| if from <= to { to - from } else { to + count - from };
    let mut hole = hole;
    let mut at = hole;
    for _ in 1..count {
        at = if at + 1 == count { 0 } else { at + 1 };
        let was_full = lines[at].is_full();
        // An entry may move to the hole if the hole is not before its home on the way to its
        // position.
        let movable = lines[at].used().iter().position(|slot| {
            let home = home_of(slot.tag(), buckets);
            distance(home, hole) < distance(home, at)
        });
        if let Some(slot) = movable {
            let moved = lines[at].remove(slot);
            let free = lines[hole].used().len();
            lines[hole].0[free] = moved;
            hole = at;
        }
        if !was_full {
            return;
        }
    }
}
