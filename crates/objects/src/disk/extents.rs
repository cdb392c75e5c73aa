//! Index of the extents of a file: one byte each.

use std::sync::atomic::{
    AtomicU8, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Set while the extent is on disk.
const PRESENT: u8 = 1 << 7;
/// Set while a queue has an entry for it, which may outlive the extent.
const QUEUED: u8 = 1 << 6;
/// Period in which it was read last.
const TICK: u8 = 0b1111 << TICK_SHIFT;
const TICK_SHIFT: u8 = 2;
/// Number of periods in which it was read, at most 3.
const READS: u8 = 0b11;

/// One byte for each extent of a file. Readers look and mark without a lock; all other changes
/// happen under the accounting's lock.
#[derive(Debug)]
pub(crate) struct Extents {
    states: Box<[AtomicU8]>,
    /// Number of extents on disk.
    present: AtomicU32,
}

impl Extents {
    /// Makes an index of this many extents, all absent.
    pub(crate) fn new(count: u32) -> Self {
        Self { states: (0..count).map(|_| AtomicU8::new(0)).collect(), present: AtomicU32::new(0) }
    }

    /// Number of extents of the object.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.states.len()).expect("made of a u32")
    }

    fn get(&self, extent: u32) -> Option<&AtomicU8> {
        self.states.get(usize::try_from(extent).ok()?)
    }

    fn state(&self, extent: u32) -> u8 {
        self.get(extent).map_or(0, |state| state.load(Acquire))
    }

    pub(crate) fn is_present(&self, extent: u32) -> bool {
        self.state(extent) & PRESENT != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.present.load(Acquire) == 0
    }

    /// Extents that are on disk.
    pub(crate) fn present(&self) -> impl Iterator<Item = u32> + '_ {
        self.present_from(0)
    }

    /// Iterates over the extents on disk from `first` on.
    pub(crate) fn present_from(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let end = if self.is_empty() { 0 } else { self.count() };
        (first..end).filter(|&extent| self.is_present(extent))
    }

    /// Marks an extent as read. Reads within one period count once: a reader of its blocks one
    /// after the other is one reader.
    #[inline]
    pub(crate) fn touch(&self, extent: u32, tick: u8) {
        let Some(entry) = self.get(extent) else { return };
        let state = entry.load(Relaxed);
        let tick = (tick << TICK_SHIFT) & TICK;
        if state & TICK == tick || state & PRESENT == 0 {
            return;
        }
        let reads = ((state & READS) + 1).min(READS);
        // A lost race loses one mark, which does not matter.
        let _ = entry.compare_exchange(
            state,
            (state & (PRESENT | QUEUED)) | tick | reads,
            Relaxed,
            Relaxed,
        );
    }

    /// Marks an extent present. Returns whether a queue has no entry for it yet.
    pub(crate) fn insert(&self, extent: u32, tick: u8) -> bool {
        let fresh = PRESENT | QUEUED | ((tick << TICK_SHIFT) & TICK);
        let Some(state) = self.get(extent) else { return false };
        let before = state.swap(fresh, AcqRel);
        self.present.fetch_add(u32::from(before & PRESENT == 0), AcqRel);
        before & QUEUED == 0
    }

    /// Marks an extent absent. Returns whether it was present.
    pub(crate) fn remove(&self, extent: u32) -> bool {
        let was_present =
            self.get(extent).is_some_and(|state| state.fetch_and(!PRESENT, AcqRel) & PRESENT != 0);
        self.present.fetch_sub(u32::from(was_present), AcqRel);
        was_present
    }

    /// Notes that no queue has an entry for it any more.
    pub(crate) fn unqueue(&self, extent: u32) {
        if let Some(state) = self.get(extent) {
            state.fetch_and(!QUEUED, AcqRel);
        }
    }

    /// Number of periods in which it was read; `leave` says how many stay noted.
    pub(crate) fn take_reads(&self, extent: u32, leave: impl Fn(u8) -> u8) -> u8 {
        let Some(entry) = self.get(extent) else { return 0 };
        let update = |state: u8| Some((state & !READS) | leave(state & READS).min(READS));
        entry.fetch_update(AcqRel, Acquire, update).unwrap_or(0) & READS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_one_period_count_once() {
        let extents = Extents::new(2);
        assert!(extents.insert(1, 3));
        for _ in 0..10 {
            extents.touch(1, 3);
        }
        assert_eq!(extents.take_reads(1, |reads| reads), 0, "the period in which it came");
        for tick in 4..20 {
            extents.touch(1, tick);
            extents.touch(1, tick);
            assert_eq!(extents.take_reads(1, |reads| reads), (tick - 3).min(3));
        }
        assert!(extents.is_present(1) && !extents.is_present(0));
    }

    #[test]
    fn absent_and_unknown_extents_take_no_marks() {
        let extents = Extents::new(1);
        extents.touch(0, 1);
        extents.touch(7, 1);
        extents.unqueue(7);
        assert_eq!((extents.take_reads(0, |_| 0), extents.take_reads(7, |_| 0)), (0, 0));
        assert!(
            !extents.remove(0)
                && !extents.remove(7)
                && !extents.is_present(7)
                && !extents.insert(7, 0)
        );
    }

    #[test]
    fn an_entry_left_in_a_queue_is_used_again() {
        let extents = Extents::new(1);
        assert!(extents.insert(0, 0));
        assert!(extents.remove(0) && !extents.remove(0));
        assert!(!extents.insert(0, 0), "its entry is still there");
        extents.remove(0);
        extents.unqueue(0);
        assert!(extents.insert(0, 0));
        assert_eq!(extents.present().collect::<Vec<_>>(), [0]);
    }
}
