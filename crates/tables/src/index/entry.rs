//! One entry: a key with its value and expiry in one block of memory.
//!
//! ```text
//! header (8) | expiry (8, if any) | own memory (0, 40 or 8) | key | inline value
//! header: kind 2 bits, has expiry 1 bit, general form 1 bit, newcomer 1 bit, uses 2 bits,
//!         key length 30 bits, inline value length 27 bits
//! ```
//!
//! Newcomer and uses are for the eviction ([`crate::eviction`]). They change also while the index
//! is borrowed shared: the header is read and written by value, and no reference covers it. In
//! tables that do not evict all uses are counted from the start, so nothing is ever written there.
//!
//! The part `own memory` is a [`SharedValue`] for long strings and a `Box<Index>` for large hashes.

use std::mem::size_of;
use std::ptr::{self, NonNull};

use bytes::Bytes;

use super::Index;
use super::heap::{Heap, block_bytes};
use crate::UnixMs;

const INLINE: u64 = 0;
const SHARED: u64 = 1;
const PACKED: u64 = 2;
const INDEXED: u64 = 3;

const EXPIRES: u64 = 1 << 2;
/// Header bit of [`Entry::is_general`].
const GENERAL: u64 = 1 << 3;
/// Header bit of [`Entry::is_newcomer`].
const NEWCOMER: u64 = 1 << 4;
const USES_SHIFT: u32 = 5;
/// Most uses of an entry that are counted.
const USES_MAX: u8 = 3;
const USES: u64 = (USES_MAX as u64) << USES_SHIFT;
const KEY_SHIFT: u32 = 7;
const VALUE_SHIFT: u32 = 37;
const LENGTH_MASK: u64 = (1 << 30) - 1;
/// Most bytes of a value inside its entry.
const INLINE_BYTES_MAX: u64 = u64::MAX >> VALUE_SHIFT;

const _: () = assert!(crate::limits::STRING_BYTES_MAX as u64 <= LENGTH_MASK);
const _: () = assert!(crate::limits::SHARED_BYTES_MIN as u64 <= INLINE_BYTES_MAX);
const _: () = assert!(crate::limits::SMALL_HASH_BYTES_MAX as u64 <= INLINE_BYTES_MAX);
const _: () = assert!(align_of::<SharedValue>() <= 8);

/// Pointer to a live entry. Copies of it are handed around inside the index; the code that frees
/// the entry makes sure that no copy is left.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Entry(NonNull<u8>);

/// String outside its entry.
pub(super) struct SharedValue {
    pub bytes: Bytes,
    /// Bytes that the allocator holds for it, as accounted.
    pub held_bytes: u64,
}

/// Content to be stored in an entry.
pub(super) enum Payload<'a> {
    Inline(&'a [u8]),
    Shared(SharedValue),
    Packed(&'a [u8]),
    Indexed(Box<Index>),
}

/// Content of an entry.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    Inline(&'a [u8]),
    Shared(&'a Bytes),
    Packed(&'a [u8]),
    Indexed(&'a Index),
}

/// Content of an entry, borrowed for a change in place.
pub(super) enum ContentMut<'a> {
    Inline,
    Shared(&'a mut SharedValue),
    Packed,
    Indexed(&'a mut Index),
}

/// First word of an entry.
#[derive(Clone, Copy)]
struct Header(u64);

impl Header {
    #[inline]
    fn kind(self) -> u64 {
        self.0 & 3
    }

    #[inline]
    fn expires(self) -> bool {
        self.0 & EXPIRES != 0
    }

    #[inline]
    fn key_len(self) -> usize {
        (self.0 >> KEY_SHIFT & LENGTH_MASK) as usize
    }

    #[inline]
    fn value_len(self) -> usize {
        (self.0 >> VALUE_SHIFT) as usize
    }

    #[inline]
    fn own_offset(self) -> usize {
        8 + usize::from(self.expires()) * 8
    }

    #[inline]
    fn own_len(self) -> usize {
        match self.kind() {
            SHARED => size_of::<SharedValue>(),
            INDEXED => size_of::<Box<Index>>(),
            _ => 0,
        }
    }

    #[inline]
    fn key_offset(self) -> usize {
        self.own_offset() + self.own_len()
    }

    #[inline]
    fn value_offset(self) -> usize {
        self.key_offset() + self.key_len()
    }

    #[inline]
    fn total(self) -> usize {
        self.value_offset() + self.value_len()
    }

    fn with_value_len(self, len: usize) -> Header {
        Header(self.0 & ((1 << VALUE_SHIFT) - 1) | (len as u64) << VALUE_SHIFT)
    }

    /// Returns the header with one more use, unless the count is full.
    #[inline]
    fn used(self) -> Header {
        Header(self.0 + (u64::from(self.0 & USES != USES) << USES_SHIFT))
    }

    /// Returns the header with what another one knows for the eviction.
    #[inline]
    fn with_uses_of(self, other: Header) -> Header {
        Header(self.0 & !(NEWCOMER | USES) | other.0 & (NEWCOMER | USES))
    }
}

impl Payload<'_> {
    #[inline]
    fn header(&self, key_len: usize, expiry: Option<UnixMs>) -> Header {
        let (kind, value_len) = match self {
            Payload::Inline(value) => (INLINE, value.len()),
            Payload::Shared(_) => (SHARED, 0),
            Payload::Packed(value) => (PACKED, value.len()),
            Payload::Indexed(_) => (INDEXED, 0),
        };
        assert!(
            key_len as u64 <= LENGTH_MASK && value_len as u64 <= INLINE_BYTES_MAX,
            "longer than any limit"
        );
        let expires = if expiry.is_some() { EXPIRES } else { 0 };
        let lengths = (key_len as u64) << KEY_SHIFT | (value_len as u64) << VALUE_SHIFT;
        Header(kind | USES | expires | lengths)
    }
}

impl Entry {
    #[inline]
    pub fn from_address(address: NonNull<u8>) -> Entry {
        Entry(address)
    }

    #[inline]
    pub fn address(self) -> NonNull<u8> {
        self.0
    }

    /// Creates a new entry.
    #[inline]
    pub fn create(
        heap: &mut Heap,
        key: &[u8],
        payload: Payload<'_>,
        expiry: Option<UnixMs>,
    ) -> Entry {
        let header = payload.header(key.len(), expiry);
        let entry = Entry(heap.allocate(header.total()));
        // SAFETY: the block has space for all that the header describes; `key` is not part of the
        // fresh block.
        unsafe { ptr::copy_nonoverlapping(key.as_ptr(), entry.at(header.key_offset()), key.len()) };
        entry.fill(heap, header, payload, expiry);
        entry
    }

    /// Replaces payload and expiry under the same key, which is a use. The entry may move.
    #[inline(always)]
    pub fn replace(self, heap: &mut Heap, payload: Payload<'_>, expiry: Option<UnixMs>) -> Entry {
        let old = self.header();
        let new = payload.header(old.key_len(), expiry).with_uses_of(old.used());
        self.bury_content(heap);
        let (old_total, new_total) = (old.total(), new.total());
        if old_total == new_total || block_bytes(old_total) == block_bytes(new_total) {
            if old.key_offset() != new.key_offset() {
                // SAFETY: both ranges are inside the block.
                unsafe {
                    ptr::copy(self.at(old.key_offset()), self.at(new.key_offset()), old.key_len())
                };
            }
            self.fill(heap, new, payload, expiry);
            return self;
        }
        let entry = Entry(heap.allocate(new_total));
        // SAFETY: the new block has space for the key; the blocks are distinct.
        unsafe {
            ptr::copy_nonoverlapping(
                self.at(old.key_offset()),
                entry.at(new.key_offset()),
                old.key_len(),
            );
        }
        entry.fill(heap, new, payload, expiry);
        // SAFETY: the old block was allocated for its header's total and is left behind.
        unsafe { heap.free(self.0, old_total) };
        entry
    }

    /// Changes the expiry. The entry may move.
    pub fn set_expiry(self, heap: &mut Heap, expiry: Option<UnixMs>) -> Entry {
        let old = self.header();
        let new = Header(if expiry.is_some() { old.0 | EXPIRES } else { old.0 & !EXPIRES });
        let target = if block_bytes(old.total()) == block_bytes(new.total()) {
            self
        } else {
            Entry(heap.allocate(new.total()))
        };
        let rest = old.total() - old.own_offset();
        // SAFETY: the rest of the entry fits behind the new own offset; `copy` allows the blocks to
        // be one.
        unsafe { ptr::copy(self.at(old.own_offset()), target.at(new.own_offset()), rest) };
        target.write_head(new, expiry);
        if target != self {
            // SAFETY: the old block was allocated for its header's total; its contents moved.
            unsafe { heap.free(self.0, old.total()) };
        }
        target
    }

    /// Returns whether [`Entry::make_general`] was called since the payload was stored.
    pub fn is_general(self) -> bool {
        self.header().0 & GENERAL != 0
    }

    /// Marks the payload as general, which the payload itself does not show. Changes of the payload
    /// in place and of the expiry keep the mark; another payload clears it.
    pub fn make_general(self) {
        let header = self.header().0 | GENERAL;
        // SAFETY: every block begins with its header; the caller has the index borrowed mutably.
        unsafe { self.at(0).cast::<u64>().write(header) };
    }

    /// Returns whether fewer than [`USES_MAX`] uses are counted.
    #[inline]
    pub fn lacks_uses(self) -> bool {
        self.header().0 & USES != USES
    }

    /// Counts a use, up to [`USES_MAX`].
    #[inline]
    pub fn note_use(self) {
        if self.lacks_uses() {
            self.write_header(self.header().used());
        }
    }

    /// Returns how many uses are counted.
    pub fn uses(self) -> u8 {
        (self.header().0 >> USES_SHIFT) as u8 & USES_MAX
    }

    /// Returns whether the entry is in the queue of newcomers.
    pub fn is_newcomer(self) -> bool {
        self.header().0 & NEWCOMER != 0
    }

    /// Makes the entry a newcomer without uses.
    pub fn make_newcomer(self) {
        self.write_header(Header(self.header().0 & !USES | NEWCOMER));
    }

    /// Makes the entry one of the main queue with this many uses, [`USES_MAX`] at most.
    pub fn settle(self, uses: u8) {
        let uses = u64::from(uses.min(USES_MAX)) << USES_SHIFT;
        self.write_header(Header(self.header().0 & !(NEWCOMER | USES) | uses));
    }

    #[inline]
    fn write_header(self, header: Header) {
        // SAFETY: every block begins with its header. The caller may have the index borrowed
        // shared: no reference covers a header, and an index is not shared between threads.
        unsafe { self.at(0).cast::<u64>().write(header.0) };
    }

    /// Writes `bytes` at `offset` of the inline value, extends it if needed and fills a gap with
    /// zeros. The entry may move.
    pub fn patch_inline(self, heap: &mut Heap, offset: usize, bytes: &[u8]) -> Entry {
        let old = self.header();
        debug_assert!(old.kind() == INLINE);
        let new = old.with_value_len(old.value_len().max(offset + bytes.len()));
        let target = if block_bytes(old.total()) == block_bytes(new.total()) {
            self
        } else {
            let target = Entry(heap.allocate(new.total()));
            // SAFETY: except for a longer value the layout is the same, and the new block is at
            // least as long.
            unsafe { ptr::copy_nonoverlapping(self.at(0), target.at(0), old.total()) };
            // SAFETY: the old block was allocated for its header's total; its contents moved.
            unsafe { heap.free(self.0, old.total()) };
            target
        };
        let gap = offset.saturating_sub(old.value_len());
        // SAFETY: header, gap and bytes are inside the block by the new header's total.
        unsafe {
            target.at(0).cast::<u64>().write(new.0);
            ptr::write_bytes(target.at(old.total()), 0, gap);
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                target.at(new.value_offset() + offset),
                bytes.len(),
            );
        }
        target
    }

    /// Frees the entry. Large contents are buried, that is, left for the garbage collection.
    #[inline]
    pub fn destroy(self, heap: &mut Heap) {
        let total = self.header().total();
        self.bury_content(heap);
        // SAFETY: the block was allocated for its header's total; by the type's rule nobody else
        // uses it.
        unsafe { heap.free(self.0, total) };
    }

    #[inline]
    pub fn key<'a>(self) -> &'a [u8] {
        let header = self.header();
        // SAFETY: the header describes initialised bytes of the block.
        unsafe { std::slice::from_raw_parts(self.at(header.key_offset()), header.key_len()) }
    }

    #[inline]
    pub fn has_key(self, key: &[u8]) -> bool {
        self.key() == key
    }

    #[inline]
    pub fn expiry(self) -> Option<UnixMs> {
        // SAFETY: an entry that expires has its expiry after the header.
        self.header().expires().then(|| unsafe { self.at(8).cast::<i64>().read() })
    }

    #[inline]
    pub fn content<'a>(self) -> Content<'a> {
        let header = self.header();
        // SAFETY: by its kind the entry holds an initialised value of this type at this offset,
        // aligned to 8.
        unsafe {
            match header.kind() {
                INLINE => Content::Inline(self.inline()),
                PACKED => Content::Packed(self.inline()),
                SHARED => {
                    Content::Shared(&(*self.at(header.own_offset()).cast::<SharedValue>()).bytes)
                }
                _ => Content::Indexed(&*self.at(header.own_offset()).cast::<Box<Index>>()),
            }
        }
    }

    /// Returns the content for changes in place. The caller has the index borrowed mutably.
    pub fn content_mut<'a>(self) -> ContentMut<'a> {
        let header = self.header();
        // SAFETY: as in `content`; the caller's exclusive borrow of the index covers the entry.
        unsafe {
            match header.kind() {
                INLINE => ContentMut::Inline,
                PACKED => ContentMut::Packed,
                SHARED => {
                    ContentMut::Shared(&mut *self.at(header.own_offset()).cast::<SharedValue>())
                }
                _ => ContentMut::Indexed(&mut *self.at(header.own_offset()).cast::<Box<Index>>()),
            }
        }
    }

    #[inline]
    fn header(self) -> Header {
        // SAFETY: a live entry begins with its header.
        Header(unsafe { self.0.cast::<u64>().read() })
    }

    /// Returns the inline value; empty when the value is outside the entry.
    #[inline]
    pub fn inline<'a>(self) -> &'a [u8] {
        let header = self.header();
        // SAFETY: the header describes initialised bytes of the block.
        unsafe { std::slice::from_raw_parts(self.at(header.value_offset()), header.value_len()) }
    }

    #[inline]
    fn at(self, offset: usize) -> *mut u8 {
        self.0.as_ptr().wrapping_add(offset)
    }

    /// Writes everything but the key.
    #[inline]
    fn fill(self, heap: &mut Heap, header: Header, payload: Payload<'_>, expiry: Option<UnixMs>) {
        self.write_head(header, expiry);
        // SAFETY: the block has space for what the header describes; payloads are outside of it.
        unsafe {
            match payload {
                Payload::Inline(value) | Payload::Packed(value) => {
                    ptr::copy_nonoverlapping(
                        value.as_ptr(),
                        self.at(header.value_offset()),
                        value.len(),
                    );
                }
                Payload::Shared(shared) => {
                    heap.live_bytes += shared.held_bytes;
                    self.at(header.own_offset()).cast::<SharedValue>().write(shared);
                }
                Payload::Indexed(index) => {
                    self.at(header.own_offset()).cast::<Box<Index>>().write(index)
                }
            }
        }
    }

    #[inline]
    fn write_head(self, header: Header, expiry: Option<UnixMs>) {
        // SAFETY: every block has space for the header, and for the expiry if the header says that
        // there is one.
        unsafe {
            self.at(0).cast::<u64>().write(header.0);
            if let Some(at) = expiry {
                self.at(8).cast::<i64>().write(at);
            }
        }
    }

    /// Moves content with memory of its own out of the entry and buries it. The entry must be freed
    /// or filled anew.
    #[inline(always)]
    fn bury_content(self, heap: &mut Heap) {
        let header = self.header();
        if matches!(header.kind(), SHARED | INDEXED) {
            self.bury_own_memory(heap, header);
        }
    }

    /// Out of line: most values are inside their entries.
    #[inline(never)]
    fn bury_own_memory(self, heap: &mut Heap, header: Header) {
        match header.kind() {
            SHARED => {
                // SAFETY: the entry owns a shared value here, which is moved out once.
                let shared = unsafe { self.at(header.own_offset()).cast::<SharedValue>().read() };
                heap.bury_value(shared.bytes, shared.held_bytes);
            }
            INDEXED => {
                // SAFETY: the entry owns an index here, which is moved out once.
                let index = unsafe { self.at(header.own_offset()).cast::<Box<Index>>().read() };
                heap.bury_index(*index);
            }
            _ => {}
        }
    }
}
