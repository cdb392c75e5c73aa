//! Measures the memory that decoding takes.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// Allocator that counts the bytes that the current thread holds, and the most it held. A program
/// of tests that calls [`within`] makes it the global one.
#[derive(Debug)]
pub struct CountingAllocator;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

#[allow(unsafe_code, reason = "nothing but an allocator sees what is allocated")]
// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Does the work and returns its result; it may hold at most `bytes_max` more than is held already.
/// Counts only what this thread allocates.
///
/// # Panics
/// If it held more, or if the allocator of the program is not [`CountingAllocator`].
#[track_caller]
pub fn within<T>(bytes_max: usize, what: &str, work: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    let probe = std::hint::black_box(vec![0_u8; 64]);
    assert!(before + 64 <= HELD.get(), "nothing is counted: the allocator is another one");
    drop(probe);
    PEAK.set(before);
    let result = work();
    let peak = PEAK.get() - before;
    assert!(
        peak <= signed(bytes_max),
        "{what}: {peak} bytes were allocated, expected at most {bytes_max}"
    );
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    #[test]
    fn memory_is_counted() {
        let kept = within(3_000, "two vectors", || [vec![1u8; 1_000], Vec::with_capacity(1_500)]);
        let peak =
            std::panic::catch_unwind(|| within(999, "one vector", || drop(vec![1u8; 1_000])));
        assert!(peak.is_err() && kept[0].len() == 1_000);
    }
}
