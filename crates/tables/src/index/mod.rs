//! The hash index of which tables and large hashes are made. All unsafe code of this crate is in
//! here.
//!
//! ```text
//! hash: | shard | directory word | tag (16 bits: home bucket, then compared) | ... |
//!
//! Directory -> Segment (up to 126 buckets) -> bucket of 8 slots (one cache line) -> Entry
//! ```
//!
//! Everything is in hash order down to the bucket; scans and iteration rely on that. Growth
//! rebuilds or splits one segment (under 900 entries) at a time; a directory doubles in shards.
//! Dead indexes are freed in steps.
//!
//! `Entry` and `Segment` are plain pointers to live objects, private to this module. One rule makes
//! their methods sound: shared borrows of an [`Index`] only read (and count uses in the headers of
//! entries, which no reference covers), every other change borrows it exclusively, and references
//! handed out carry the lifetime of the borrow.
#![allow(unsafe_code)]

mod directory;
mod entry;
mod garbage;
mod hand;
mod heap;
mod iterate;
mod segment;
mod sweep;

use directory::Directory;
pub(crate) use entry::Content;
use entry::{ContentMut, Entry, Payload, SharedValue};
use garbage::Remains;
pub(crate) use hand::Hand;
pub(crate) use heap::Heap;
pub(crate) use heap::held_bytes;
pub(crate) use iterate::{Iter, IterCursor};
use segment::{EntryPosition, Segment};
use sweep::SweepState;

use std::cell::Cell;
use std::marker::PhantomData;

use bytes::{Bytes, BytesMut};

use crate::hasher::Hasher;
use crate::limits::SHARED_BYTES_MIN;
use crate::{HashPrefix, UnixMs};

/// Map from byte strings to entries.
pub(crate) struct Index {
    directory: Directory,
    len: usize,
    expiring_len: usize,
    /// Bytes held by the entries, what they own, and the index itself.
    bytes: u64,
    sweep: SweepState,
    /// Position where freeing continues once the index is dead.
    remains: Remains,
    /// Shared borrows count uses in the headers of entries, so threads must not share an index.
    not_shared: PhantomData<Cell<()>>,
}

/// Content to store under a key.
pub(crate) enum NewContent<'a> {
    /// A string to be copied.
    Slice(&'a [u8]),
    /// A string to be kept by reference if it is long enough.
    Shared(Bytes),
    /// A string in a buffer with capacity to grow.
    Grown(BytesMut),
    /// A small hash in packed form.
    Packed(&'a [u8]),
    /// A large hash with an index of its own.
    Indexed(Box<Index>),
}

/// Reference to a live entry.
#[derive(Clone, Copy)]
pub(crate) struct EntryRef<'a> {
    entry: Entry,
    index: PhantomData<&'a Index>,
}

impl<'a> EntryRef<'a> {
    fn new(entry: Entry) -> Self {
        EntryRef { entry, index: PhantomData }
    }

    pub fn key(self) -> &'a [u8] {
        self.entry.key()
    }

    #[inline]
    pub fn content(self) -> Content<'a> {
        self.entry.content()
    }

    #[inline]
    pub fn expiry(self) -> Option<UnixMs> {
        self.entry.expiry()
    }

    /// Returns what [`Entry::is_general`] does.
    pub fn is_general(self) -> bool {
        self.entry.is_general()
    }

    #[inline]
    pub fn is_live(self, now: UnixMs) -> bool {
        self.expiry().is_none_or(|at| now < at)
    }

    /// Returns whether the count of uses is not yet full, as it always is in tables that do not
    /// evict.
    #[inline]
    pub fn lacks_uses(self) -> bool {
        self.entry.lacks_uses()
    }

    /// Counts a use for the eviction, unless the count is full.
    #[inline]
    pub fn note_use(self) {
        self.entry.note_use();
    }

    /// Returns how many uses are counted.
    pub fn uses(self) -> u8 {
        self.entry.uses()
    }

    /// Returns whether the entry is in the queue of newcomers.
    pub fn is_newcomer(self) -> bool {
        self.entry.is_newcomer()
    }

    /// Makes the entry a newcomer without uses.
    pub fn make_newcomer(self) {
        self.entry.make_newcomer();
    }

    /// Makes the entry one of the main queue with this many uses.
    pub fn settle(self, uses: u8) {
        self.entry.settle(uses);
    }
}

// SAFETY: the index owns everything behind its pointers, and none of it is tied to a thread.
unsafe impl Send for Index {}

impl Index {
    pub fn new() -> Self {
        Index {
            directory: Directory::new(),
            len: 0,
            expiring_len: 0,
            bytes: 0,
            sweep: SweepState::new(),
            remains: Remains::default(),
            not_shared: PhantomData,
        }
    }

    /// Creates an index that is the content of an entry; its own struct is accounted too.
    pub fn new_boxed(heap: &mut Heap) -> Box<Self> {
        let mut index = Box::new(Index::new());
        index.bytes = heap::held_bytes(size_of::<Index>()) as u64;
        heap.live_bytes += index.bytes;
        index
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn expiring_len(&self) -> usize {
        self.expiring_len
    }

    /// Returns the bytes held by the entries, what they own, and the index itself.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        if !self.directory.is_empty() {
            let word = self.directory.word(hash);
            word.segment().prefetch_bucket(word.buckets(), word.tag(hash));
        }
    }

    #[inline]
    pub fn prefetch_header(&self, hash: u64) {
        if !self.directory.is_empty() {
            self.directory.word(hash).segment().prefetch_header();
        }
    }

    #[inline]
    pub fn prefetch_entry(&self, hash: u64) {
        if !self.directory.is_empty() {
            let word = self.directory.word(hash);
            word.segment().prefetch_entry(word.buckets(), word.tag(hash));
        }
    }

    #[inline]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<EntryRef<'_>> {
        self.locate(hash, key).map(|(_, entry, _)| EntryRef::new(entry))
    }

    /// Stores content under a key and replaces whatever was there.
    pub fn put(
        &mut self,
        heap: &mut Heap,
        hasher: &Hasher,
        hash: u64,
        key: &[u8],
        content: NewContent<'_>,
        expiry: Option<UnixMs>,
    ) {
        let before = heap.live_bytes;
        // The bytes of a large hash were counted when it was filled.
        let moved_in = if let NewContent::Indexed(index) = &content { index.bytes } else { 0 };
        let payload = content.into_payload();
        match self.locate(hash, key) {
            Some((segment, entry, position)) => {
                let old = entry.expiry();
                let replaced = entry.replace(heap, payload, expiry);
                if replaced != entry || old != expiry {
                    segment.update(position, replaced, old, expiry);
                }
                self.count_expiry(old, expiry);
            }
            None => {
                self.make_room(heap, hasher, hash);
                let word = self.directory.word(hash);
                let entry = Entry::create(heap, key, payload, expiry);
                word.segment().insert(word.tag(hash), entry, expiry);
                self.len += 1;
                self.count_expiry(None, expiry);
            }
        }
        self.bytes = self.bytes + moved_in + heap.live_bytes - before;
    }

    /// Writes `bytes` at `offset` of a string, extends it if needed, fills a gap with zeros, and
    /// returns its new length. The expiry stays. Any other content counts as an empty string. The
    /// entry is general from then on.
    pub fn patch(
        &mut self,
        heap: &mut Heap,
        hasher: &Hasher,
        hash: u64,
        key: &[u8],
        offset: usize,
        bytes: &[u8],
    ) -> usize {
        let end = offset + bytes.len();
        let located = self.locate(hash, key);
        let expiry = located.and_then(|(_, entry, _)| entry.expiry());
        let before = heap.live_bytes;
        let old = match located
            .map(|(segment, entry, position)| (segment, entry, position, entry.content_mut()))
        {
            Some((_, entry, _, ContentMut::Shared(shared))) => {
                let len = shared.patch(heap, offset, bytes);
                entry.note_use();
                self.bytes = self.bytes + heap.live_bytes - before;
                self.make_general(hash, key);
                return len;
            }
            Some((segment, entry, position, ContentMut::Inline)) => {
                let old = entry.inline();
                let len = old.len().max(end);
                if len < SHARED_BYTES_MIN {
                    let entry = entry.patch_inline(heap, offset, bytes);
                    entry.make_general();
                    entry.note_use();
                    segment.update(position, entry, expiry, expiry);
                    self.bytes = self.bytes + heap.live_bytes - before;
                    return len;
                }
                old.to_vec()
            }
            _ => Vec::new(),
        };
        let mut new = BytesMut::with_capacity(old.len().max(end));
        new.extend_from_slice(&old);
        write_at(&mut new, offset, bytes);
        let len = new.len();
        if len < SHARED_BYTES_MIN {
            self.put(heap, hasher, hash, key, NewContent::Slice(&new), expiry);
        } else {
            self.put(heap, hasher, hash, key, NewContent::Shared(new.freeze()), expiry);
        }
        self.make_general(hash, key);
        len
    }

    /// Returns how many bytes [`Index::patch`] would copy or clear besides those of the patch.
    pub fn patch_copies(&mut self, hash: u64, key: &[u8], offset: usize, len: usize) -> usize {
        let Some((_, entry, _)) = self.locate(hash, key) else { return offset };
        let (old, room) = match entry.content_mut() {
            ContentMut::Shared(shared) if shared.bytes.is_unique() => {
                (shared.bytes.len(), usize::try_from(shared.held_bytes).unwrap_or(usize::MAX))
            }
            ContentMut::Shared(shared) => (shared.bytes.len(), 0),
            ContentMut::Inline => (entry.inline().len(), 0),
            ContentMut::Packed | ContentMut::Indexed(_) => return offset,
        };
        let gap = offset.saturating_sub(old);
        if offset + len <= room { gap } else { old + gap }
    }

    /// Calls [`Entry::make_general`] for the entry of a key, if there is one.
    pub fn make_general(&mut self, hash: u64, key: &[u8]) {
        if let Some((_, entry, _)) = self.locate(hash, key) {
            entry.make_general();
        }
    }

    /// Changes the expiry of a key; returns whether the key was there.
    pub fn set_expiry(
        &mut self,
        heap: &mut Heap,
        hash: u64,
        key: &[u8],
        expiry: Option<UnixMs>,
    ) -> bool {
        let Some((segment, entry, position)) = self.locate(hash, key) else { return false };
        let before = heap.live_bytes;
        let old = entry.expiry();
        let entry = entry.set_expiry(heap, expiry);
        segment.update(position, entry, old, expiry);
        self.count_expiry(old, expiry);
        self.bytes = self.bytes + heap.live_bytes - before;
        true
    }

    /// Removes a key; returns whether it was there.
    pub fn delete(&mut self, heap: &mut Heap, hash: u64, key: &[u8]) -> bool {
        let Some((segment, entry, position)) = self.locate(hash, key) else { return false };
        let before = heap.live_bytes;
        let expiry = entry.expiry();
        segment.remove(position, expiry).destroy(heap);
        self.len -= 1;
        self.count_expiry(expiry, None);
        if self.len == 0 {
            self.directory.free_segments(heap);
            self.directory.clear(heap);
        } else {
            self.directory.release_room(heap, hash);
        }
        self.bytes = self.bytes + heap.live_bytes - before;
        true
    }

    /// Changes the large hash under a key in place. `None` when the key holds none.
    pub fn with_indexed<R>(
        &mut self,
        heap: &mut Heap,
        hash: u64,
        key: &[u8],
        change: impl FnOnce(&mut Index, &mut Heap) -> R,
    ) -> Option<R> {
        let (_, entry, _) = self.locate(hash, key)?;
        let ContentMut::Indexed(index) = entry.content_mut() else { return None };
        entry.note_use();
        let before = heap.live_bytes;
        let result = change(index, heap);
        self.bytes = self.bytes + heap.live_bytes - before;
        Some(result)
    }

    /// Checks what the search, the counts and the directory rely on.
    #[cfg(test)]
    pub fn assert_invariants(&self, hash: impl Fn(&[u8]) -> u64) {
        let mut at = (!self.directory.is_empty()).then_some(0);
        let (mut len, mut expiring_len) = (0, 0);
        while let Some(start) = at {
            let word = self.directory.word(start);
            let segment = word.segment();
            assert_eq!((word.depth(), word.buckets()), (segment.depth(), segment.buckets()));
            segment.assert_invariants();
            for slot in segment.slots() {
                let key_hash = hash(slot.entry().key());
                assert!(
                    self.directory.word(key_hash) == word,
                    "an entry is in a segment that is not its own"
                );
                assert!(
                    segment.find(word.buckets(), word.tag(key_hash), slot.entry().key()).is_some()
                );
                assert_eq!(slot.expires(), slot.entry().expiry().is_some());
                assert!(slot.entry().expiry().is_none_or(|at| segment.earliest() <= at));
                expiring_len += usize::from(slot.expires());
                len += 1;
            }
            at = self.directory.next_segment(start);
        }
        assert_eq!((len, expiring_len), (self.len, self.expiring_len));
    }

    #[inline]
    fn locate(&self, hash: u64, key: &[u8]) -> Option<(Segment, Entry, EntryPosition)> {
        if self.directory.is_empty() {
            return None;
        }
        let word = self.directory.word(hash);
        let segment = word.segment();
        let (entry, position) = segment.find(word.buckets(), word.tag(hash), key)?;
        Some((segment, entry, position))
    }

    /// Prepares an empty index for about so many entries whose hashes have this prefix.
    pub fn reserve(&mut self, heap: &mut Heap, entries: usize, prefix: HashPrefix) {
        if !self.directory.is_empty() || entries == 0 {
            return;
        }
        let before = heap.live_bytes;
        self.directory.start_sized(heap, entries, prefix);
        self.bytes = self.bytes + heap.live_bytes - before;
    }

    #[inline]
    fn make_room(&mut self, heap: &mut Heap, hasher: &Hasher, hash: u64) {
        if self.directory.is_empty() {
            self.directory.start(heap);
        }
        if !self.directory.word(hash).segment().has_room() {
            self.directory.make_room(heap, hash, self.len, |key| hasher.hash(key));
        }
    }

    #[inline]
    fn count_expiry(&mut self, old: Option<UnixMs>, new: Option<UnixMs>) {
        self.expiring_len -= usize::from(old.is_some());
        if let Some(at) = new {
            self.expiring_len += 1;
            self.sweep.note(at);
        }
    }
}

impl<'a> NewContent<'a> {
    fn into_payload(self) -> Payload<'a> {
        match self {
            NewContent::Slice(slice) if slice.len() < SHARED_BYTES_MIN => Payload::Inline(slice),
            NewContent::Slice(slice) => {
                Payload::Shared(SharedValue::new(Bytes::copy_from_slice(slice)))
            }
            NewContent::Shared(bytes) => Payload::Shared(SharedValue::new(bytes)),
            NewContent::Grown(bytes) => {
                let held_bytes = heap::held_bytes(bytes.capacity()) as u64;
                Payload::Shared(SharedValue { bytes: bytes.freeze(), held_bytes })
            }
            NewContent::Packed(packed) => Payload::Packed(packed),
            NewContent::Indexed(index) => Payload::Indexed(index),
        }
    }
}

impl SharedValue {
    fn new(bytes: Bytes) -> Self {
        let held_bytes = heap::held_bytes(bytes.len()) as u64;
        SharedValue { bytes, held_bytes }
    }

    /// Writes `bytes` at `offset` and returns the new length: in place with amortised growth if
    /// nobody else holds the value, otherwise on a copy.
    fn patch(&mut self, heap: &mut Heap, offset: usize, bytes: &[u8]) -> usize {
        heap.live_bytes -= self.held_bytes;
        let mut new = match std::mem::take(&mut self.bytes).try_into_mut() {
            Ok(unique) => unique,
            Err(shared) => {
                let mut copy = BytesMut::with_capacity(shared.len().max(offset + bytes.len()));
                copy.extend_from_slice(&shared);
                copy
            }
        };
        write_at(&mut new, offset, bytes);
        self.held_bytes = heap::held_bytes(new.capacity()) as u64;
        heap.live_bytes += self.held_bytes;
        self.bytes = new.freeze();
        self.bytes.len()
    }
}

/// Writes `bytes` at `offset`, extends `target` if needed and fills a gap with zeros.
fn write_at(target: &mut BytesMut, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if target.len() < offset {
        target.resize(offset, 0);
    }
    let overlap = bytes.len().min(target.len() - offset);
    target[offset..offset + overlap].copy_from_slice(&bytes[..overlap]);
    target.extend_from_slice(&bytes[overlap..]);
    debug_assert!(end <= target.len());
}

/// Prefetches a cache line.
#[inline]
fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint and reads nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
