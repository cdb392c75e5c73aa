//! Frees dead indexes in steps.

use super::Index;
use super::heap::Heap;

/// Position in a dead index up to which it is freed.
#[derive(Default)]
pub(super) struct Remains {
    /// Hash of the first segment that is not yet freed; segments before it are gone.
    hash: u64,
    /// Number of buckets of that segment that are emptied.
    bucket: usize,
}

impl Heap {
    /// Frees about `steps` entries or segments of dead indexes; returns whether there is more.
    pub(crate) fn collect(&mut self, mut steps: usize) -> bool {
        while 0 < steps {
            let Some(mut index) = self.dead_indexes.pop() else { return false };
            if !index.free_some(self, &mut steps) {
                self.dead_indexes.push(index);
            }
        }
        !self.dead_indexes.is_empty()
    }
}

impl Index {
    /// Frees some of a dead index; returns whether it is gone.
    fn free_some(&mut self, heap: &mut Heap, steps: &mut usize) -> bool {
        // While it is being freed it counts as live, like everything that the heap frees.
        heap.garbage_bytes -= self.bytes;
        heap.live_bytes += self.bytes;
        let before = heap.live_bytes;
        let is_gone = self.free_segments(heap, steps);
        self.bytes -= before - heap.live_bytes;
        heap.live_bytes -= self.bytes;
        if !is_gone {
            heap.garbage_bytes += self.bytes;
        }
        is_gone
    }

    fn free_segments(&mut self, heap: &mut Heap, steps: &mut usize) -> bool {
        if self.directory.is_empty() {
            return true;
        }
        loop {
            let segment = self.directory.word(self.remains.hash).segment();
            while self.remains.bucket < usize::from(segment.buckets()) {
                if *steps == 0 {
                    return false;
                }
                for entry in segment.take_bucket(self.remains.bucket) {
                    entry.destroy(heap);
                    *steps = steps.saturating_sub(1);
                }
                self.remains.bucket += 1;
            }
            segment.free(heap);
            *steps = steps.saturating_sub(1);
            match self.directory.next_segment(self.remains.hash) {
                Some(hash) => self.remains = Remains { hash, bucket: 0 },
                None => break,
            }
        }
        self.directory.clear(heap);
        true
    }
}
