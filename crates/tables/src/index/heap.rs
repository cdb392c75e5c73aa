//! Memory of entries and segments, with exact accounting.
//!
//! General allocators round small sizes to multiples of 16, which costs an entry of 16 + 32 bytes a
//! sixth of its size. So entries up to [`SLAB_BYTES_MAX`] are in pages of one size class each, in
//! steps of 8 bytes. Larger entries and index segments go to the global allocator, in sizes that it
//! does not have to round.
//!
//! ```text
//! region (up to 64 pages, one allocation)
//!   -> page (64 KiB: header, then blocks of one class)
//!     -> block = entry
//! ```
//!
//! When the last block of a page is freed, the page goes back to its region; when the last page of
//! a region is freed, the region goes back to the global allocator (one region is kept). The heap
//! also holds dead values and indexes that are too large to be freed at once.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::VecDeque;
use std::ptr::NonNull;

use bytes::Bytes;

use super::Index;
use crate::limits::HUGE_BYTES_MIN;

/// Length of the largest block that comes from a slab page.
pub(super) const SLAB_BYTES_MAX: usize = 1024;

const PAGE_BYTES: usize = 64 * 1024;
const PAGE_HEADER_BYTES: usize = 64;
/// Length of a region: a little less than 64 pages, so that the allocator does not round it up. The
/// last page is shorter by that.
const REGION_BYTES: usize = u64::BITS as usize * PAGE_BYTES - 256;
const CLASS_COUNT: usize = 16 + 8 + 8 + 8;
/// Offset that marks the end of a page's list of freed blocks.
const NO_BLOCK: u32 = 0;

const _: () = assert!(size_of::<Page>() <= PAGE_HEADER_BYTES);

/// Source of all blocks, and owner of what is dead and not yet freed.
pub(crate) struct Heap {
    classes: [Option<NonNull<Page>>; CLASS_COUNT],
    regions: Vec<Option<Region>>,
    /// Ids of the regions that have a free page.
    open: Vec<u32>,
    vacant: Vec<u32>,
    /// Bytes held by everything that is reachable from a table.
    pub(crate) live_bytes: u64,
    /// Bytes held by what is dead and not yet freed.
    pub(crate) garbage_bytes: u64,
    pub(crate) dead_indexes: Vec<Index>,
    dead_values: VecDeque<Bytes>,
    /// Buffer reused when a packed hash is rebuilt.
    pub(crate) scratch: Vec<u8>,
}

struct Page {
    previous: Option<NonNull<Page>>,
    next: Option<NonNull<Page>>,
    region: u32,
    /// Offset of the first freed block.
    freed: u32,
    /// Offset after the last block that was ever used.
    fresh: u32,
    used_count: u32,
    block_bytes: u32,
    class: u32,
    /// Offset of the page's end.
    end: u32,
}

struct Region {
    base: NonNull<u8>,
    /// First page, at the first multiple of the page size in the region.
    first: NonNull<u8>,
    /// Bit set with one bit for each free page.
    free: u64,
    /// Bit set with one bit for each page.
    all: u64,
    /// Index of this region in `Heap::open`.
    open_at: u32,
}

// SAFETY: the heap owns its pages and nothing in them is tied to a thread.
unsafe impl Send for Heap {}

impl Heap {
    pub(crate) fn new() -> Self {
        Heap {
            classes: [None; CLASS_COUNT],
            regions: Vec::new(),
            open: Vec::new(),
            vacant: Vec::new(),
            live_bytes: 0,
            garbage_bytes: 0,
            dead_indexes: Vec::new(),
            dead_values: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// Returns an uninitialised block of at least `bytes`, aligned to 8.
    #[inline]
    pub(super) fn allocate(&mut self, bytes: usize) -> NonNull<u8> {
        self.live_bytes += block_held(bytes) as u64;
        if SLAB_BYTES_MAX < bytes {
            return allocate_global(block_layout(bytes), false);
        }
        let class = class_of(bytes);
        let page = self.classes[class].unwrap_or_else(|| self.add_page(class));
        // SAFETY: pages in `classes` are live and have a free block; nobody else refers to their
        // headers.
        let page_ref = unsafe { &mut *page.as_ptr() };
        let offset = if page_ref.freed == NO_BLOCK {
            let offset = page_ref.fresh;
            page_ref.fresh += page_ref.block_bytes;
            offset
        } else {
            let offset = page_ref.freed;
            // SAFETY: a freed block's first word holds the offset of the next freed one.
            page_ref.freed = unsafe { page.cast::<u8>().add(offset as usize).cast::<u32>().read() };
            offset
        };
        page_ref.used_count += 1;
        if page_ref.is_full() {
            self.unlink(page);
        }
        // SAFETY: the offset is that of a block inside the page.
        unsafe { page.cast::<u8>().add(offset as usize) }
    }

    /// Frees a block.
    ///
    /// # Safety
    /// The block came from `allocate` with a size of the same class and is not used any more.
    #[inline]
    pub(super) unsafe fn free(&mut self, block: NonNull<u8>, bytes: usize) {
        self.live_bytes -= block_held(bytes) as u64;
        if SLAB_BYTES_MAX < bytes {
            // SAFETY: by the caller's promise it was allocated with this layout.
            unsafe { dealloc(block.as_ptr(), block_layout(bytes)) };
            return;
        }
        let offset = block.as_ptr().addr() & (PAGE_BYTES - 1);
        // SAFETY: slab blocks are in a page that begins at the next lower multiple of its size.
        let page = unsafe { block.sub(offset) }.cast::<Page>();
        // SAFETY: the page is live as long as it has used blocks; nobody else refers to its header.
        let page_ref = unsafe { &mut *page.as_ptr() };
        let was_full = page_ref.is_full();
        // SAFETY: the block is dead, aligned, and at least 8 bytes long.
        unsafe { block.cast::<u32>().write(page_ref.freed) };
        page_ref.freed = offset as u32;
        page_ref.used_count -= 1;
        let is_empty = page_ref.used_count == 0;
        if was_full {
            self.link(page);
        }
        if is_empty {
            self.remove_page(page);
        }
    }

    /// Returns zeroed memory for an index segment.
    pub(super) fn allocate_segment(&mut self, bytes: usize) -> NonNull<u8> {
        self.live_bytes += held_bytes(bytes) as u64;
        allocate_global(segment_layout(bytes), true)
    }

    /// Frees an index segment.
    ///
    /// # Safety
    /// It came from `allocate_segment` with the same size and is not used any more.
    pub(super) unsafe fn free_segment(&mut self, segment: NonNull<u8>, bytes: usize) {
        self.live_bytes -= held_bytes(bytes) as u64;
        // SAFETY: by the caller's promise it was allocated with this layout.
        unsafe { dealloc(segment.as_ptr(), segment_layout(bytes)) };
    }

    /// Takes a dead value. Small ones are dropped here; huge ones wait for `take_dead_value`.
    pub(super) fn bury_value(&mut self, value: Bytes, held_bytes: u64) {
        self.live_bytes -= held_bytes;
        if HUGE_BYTES_MIN <= value.len() {
            self.garbage_bytes += value.len() as u64;
            self.dead_values.push_back(value);
        }
    }

    /// Takes a dead index, which is freed in steps.
    pub(crate) fn bury_index(&mut self, index: Index) {
        self.live_bytes -= index.bytes();
        self.garbage_bytes += index.bytes();
        self.dead_indexes.push(index);
    }

    pub(crate) fn take_dead_value(&mut self) -> Option<Bytes> {
        let value = self.dead_values.pop_front()?;
        self.garbage_bytes -= value.len() as u64;
        Some(value)
    }

    /// Returns the number of slab pages in use.
    #[cfg(test)]
    pub(crate) fn page_count(&self) -> usize {
        self.regions
            .iter()
            .flatten()
            .map(|region| (region.all & !region.free).count_ones() as usize)
            .sum()
    }

    #[cold]
    fn add_page(&mut self, class: usize) -> NonNull<Page> {
        let id = match self.open.last() {
            Some(&id) => id,
            None => self.add_region(),
        };
        let region = self.regions[id as usize].as_mut().expect("open regions exist");
        let at = region.free.trailing_zeros() as usize;
        region.free &= region.free - 1;
        // SAFETY: `at` is below the count of pages of the region.
        let page = unsafe { region.first.add(at * PAGE_BYTES) }.cast::<Page>();
        let end = region.base.as_ptr().addr() + REGION_BYTES - page.as_ptr().addr();
        if region.free == 0 {
            self.close_region(id);
        }
        let header = Page {
            previous: None,
            next: None,
            region: id,
            freed: NO_BLOCK,
            fresh: PAGE_HEADER_BYTES as u32,
            used_count: 0,
            block_bytes: class_bytes(class) as u32,
            class: class as u32,
            end: end.min(PAGE_BYTES) as u32,
        };
        // SAFETY: the page is free memory of the region, aligned to its size.
        unsafe { page.write(header) };
        self.link(page);
        page
    }

    fn remove_page(&mut self, page: NonNull<Page>) {
        self.unlink(page);
        // SAFETY: the page is live until its bit is set below.
        let (id, address) = unsafe { ((*page.as_ptr()).region, page.as_ptr().addr()) };
        let region = self.regions[id as usize].as_mut().expect("a page's region exists");
        let at = (address - region.first.as_ptr().addr()) / PAGE_BYTES;
        let was_closed = region.free == 0;
        region.free |= 1 << at;
        let is_free = region.free == region.all;
        if was_closed {
            region.open_at = self.open.len() as u32;
            self.open.push(id);
        }
        if is_free && 1 < self.open.len() {
            self.close_region(id);
            self.free_region(id);
        }
    }

    fn add_region(&mut self) -> u32 {
        let base = allocate_global(region_layout(), false);
        let skipped = base.as_ptr().addr().next_multiple_of(PAGE_BYTES) - base.as_ptr().addr();
        // The last page may be shorter, but by less than half.
        let page_count = (REGION_BYTES - skipped + PAGE_BYTES / 2) / PAGE_BYTES;
        // SAFETY: less than a page of the region is skipped.
        let first = unsafe { base.add(skipped) };
        let all = u64::MAX >> (u64::BITS as usize - page_count);
        let region = Region { base, first, free: all, all, open_at: self.open.len() as u32 };
        let id = match self.vacant.pop() {
            Some(id) => {
                self.regions[id as usize] = Some(region);
                id
            }
            None => {
                self.regions.push(Some(region));
                self.regions.len() as u32 - 1
            }
        };
        self.open.push(id);
        id
    }

    fn close_region(&mut self, id: u32) {
        let at = self.regions[id as usize].as_ref().expect("the region exists").open_at;
        self.open.swap_remove(at as usize);
        if let Some(&moved) = self.open.get(at as usize) {
            self.regions[moved as usize].as_mut().expect("open regions exist").open_at = at;
        }
    }

    fn free_region(&mut self, id: u32) {
        let region = self.regions[id as usize].take().expect("the region exists");
        self.vacant.push(id);
        // SAFETY: the region was allocated with this layout and none of its pages is in use.
        unsafe { dealloc(region.base.as_ptr(), region_layout()) };
    }

    /// Puts a page with free blocks at the front of its class.
    fn link(&mut self, page: NonNull<Page>) {
        // SAFETY: the page is live, and nobody else refers to its header.
        let page_ref = unsafe { &mut *page.as_ptr() };
        let first = &mut self.classes[page_ref.class as usize];
        page_ref.previous = None;
        page_ref.next = *first;
        if let Some(next) = *first {
            // SAFETY: linked pages are live and distinct from the one being linked.
            unsafe { (*next.as_ptr()).previous = Some(page) };
        }
        *first = Some(page);
    }

    fn unlink(&mut self, page: NonNull<Page>) {
        // SAFETY: the page is live and linked.
        let (previous, next, class) =
            unsafe { ((*page.as_ptr()).previous, (*page.as_ptr()).next, (*page.as_ptr()).class) };
        match previous {
            // SAFETY: linked pages are live.
            Some(previous) => unsafe { (*previous.as_ptr()).next = next },
            None => self.classes[class as usize] = next,
        }
        if let Some(next) = next {
            // SAFETY: linked pages are live.
            unsafe { (*next.as_ptr()).previous = previous };
        }
    }
}

impl Page {
    #[inline]
    fn is_full(&self) -> bool {
        self.freed == NO_BLOCK && self.end < self.fresh + self.block_bytes
    }
}

impl Drop for Heap {
    /// Frees all pages. Entries with memory of their own must be gone by then.
    fn drop(&mut self) {
        for id in 0..self.regions.len() {
            if self.regions[id].is_some() {
                self.free_region(id as u32);
            }
        }
    }
}

/// Returns the length that a block request is rounded to; blocks of one rounded length are
/// interchangeable.
#[inline]
pub(super) fn block_bytes(bytes: usize) -> usize {
    if bytes <= SLAB_BYTES_MAX { class_bytes(class_of(bytes)) } else { request_bytes(bytes) }
}

/// Returns how many bytes the global allocator (mimalloc's classes) takes for a request: four sizes
/// per doubling, the larger ones with some bytes of its own, the largest in whole slices.
pub(crate) fn held_bytes(bytes: usize) -> usize {
    const SLICE_BYTES: usize = 64 * 1024;
    match bytes {
        0..=64 => bytes.next_multiple_of(16),
        65..=4096 => quarter_step(bytes),
        4097..=1_048_575 => quarter_step(bytes + 8),
        _ => bytes.next_multiple_of(SLICE_BYTES),
    }
}

/// Returns the largest request that is held in the same size as this one.
fn request_bytes(bytes: usize) -> usize {
    const OWN_BYTES: usize = 64;
    if bytes <= 4096 { quarter_step(bytes) } else { quarter_step(bytes + OWN_BYTES) - OWN_BYTES }
}

#[inline]
fn block_held(bytes: usize) -> usize {
    if bytes <= SLAB_BYTES_MAX {
        class_bytes(class_of(bytes))
    } else {
        held_bytes(request_bytes(bytes))
    }
}

/// Rounds up to the next of four sizes per doubling.
fn quarter_step(bytes: usize) -> usize {
    let step = 1 << ((bytes - 1).ilog2() - 2);
    bytes.next_multiple_of(step)
}

/// Returns the class of a length. Classes are in steps of 8 bytes up to 128, 16 to 256, 32 to 512
/// and 64 to 1024.
#[inline]
fn class_of(bytes: usize) -> usize {
    debug_assert!(0 < bytes && bytes <= SLAB_BYTES_MAX);
    match bytes {
        0..=128 => bytes.div_ceil(8) - 1,
        129..=256 => 16 + (bytes - 129) / 16,
        257..=512 => 24 + (bytes - 257) / 32,
        _ => 32 + (bytes - 513) / 64,
    }
}

#[inline]
fn class_bytes(class: usize) -> usize {
    match class {
        0..=15 => (class + 1) * 8,
        16..=23 => 128 + (class - 15) * 16,
        24..=31 => 256 + (class - 23) * 32,
        _ => 512 + (class - 31) * 64,
    }
}

fn block_layout(bytes: usize) -> Layout {
    Layout::from_size_align(request_bytes(bytes), 8).expect("blocks are at most some GiB")
}

fn segment_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 64).expect("segments are at most some MiB")
}

fn region_layout() -> Layout {
    Layout::from_size_align(REGION_BYTES, 16).expect("a constant")
}

fn allocate_global(layout: Layout, zeroed: bool) -> NonNull<u8> {
    // SAFETY: no layout of this module has size zero.
    let memory = unsafe { if zeroed { alloc_zeroed(layout) } else { alloc(layout) } };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_every_size_with_the_next_larger_class() {
        for bytes in 1..=SLAB_BYTES_MAX {
            let rounded = class_bytes(class_of(bytes));
            assert!(bytes <= rounded && rounded < bytes + 8.max(bytes / 8), "{bytes} -> {rounded}");
            assert!(class_of(bytes) < CLASS_COUNT);
            assert_eq!(class_of(rounded), class_of(bytes));
        }
    }

    #[test]
    fn requests_above_the_slabs_waste_no_class_of_the_allocator() {
        assert_eq!(held_bytes(56), 64);
        assert_eq!(held_bytes(4096), 4096);
        assert_eq!(held_bytes(4097), 5120);
        assert_eq!(held_bytes(8128), 8192);
        assert_eq!(held_bytes(8192), 10240);
        for bytes in (1025..100_000).step_by(7) {
            let request = request_bytes(bytes);
            assert!(bytes <= request, "{bytes} -> {request}");
            assert_eq!(request_bytes(request), request, "{bytes}");
        }
    }

    #[test]
    fn freed_blocks_are_used_again_and_empty_pages_go_back() {
        let mut heap = Heap::new();
        let mut blocks = Vec::new();
        for i in 0..20_000_usize {
            let bytes = 8 + i % 100;
            let block = heap.allocate(bytes);
            // SAFETY: the block has at least 8 bytes.
            unsafe { block.cast::<u64>().write(i as u64) };
            blocks.push((block, bytes, i as u64));
        }
        let pages = heap.page_count();
        for round in 0..3 {
            for (block, bytes, _) in blocks.iter().skip(round).step_by(2) {
                // SAFETY: allocated above and taken again below.
                unsafe { heap.free(*block, *bytes) };
            }
            for (block, bytes, mark) in blocks.iter_mut().skip(round).step_by(2) {
                *block = heap.allocate(*bytes);
                // SAFETY: the block has at least 8 bytes.
                unsafe { block.cast::<u64>().write(*mark) };
            }
            assert!(heap.page_count() <= pages);
        }
        for (block, bytes, mark) in blocks {
            // SAFETY: each block is live and was written.
            assert_eq!(unsafe { block.cast::<u64>().read() }, mark);
            // SAFETY: not used after this.
            unsafe { heap.free(block, bytes) };
        }
        assert_eq!((heap.page_count(), heap.live_bytes), (0, 0));
    }
}
