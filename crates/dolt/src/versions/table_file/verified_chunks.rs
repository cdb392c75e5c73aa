//! Chunks of a file that have been verified (hash-checked) as they are on local disk.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// Count of writes that no file ever reaches.
const NEVER: u64 = u64::MAX;

/// One bit per chunk of a file, valid for one state of what is on disk.
///
/// A checksum on disk says that the bytes are those that were written, not that the store sent the
/// right ones. So a chunk that was verified once must be verified again when other bytes may have
/// taken its place on disk: when anything of the file was written there since
/// ([`busload_objects::Object::disk_writes`]). Once a file is filled nothing writes to it any more,
/// and all of its bits last.
#[derive(Debug)]
pub(crate) struct VerifiedChunks {
    /// Count of writes for which the bits are valid.
    writes: AtomicU64,
    bits: Box<[AtomicU64]>,
    /// Lock held to set a bit, once per chunk.
    setting: Mutex<()>,
}

impl VerifiedChunks {
    pub fn new(chunk_count: u32) -> Self {
        let words =
            usize::try_from(chunk_count.div_ceil(64)).expect("a count of chunks fits into memory");
        Self {
            writes: AtomicU64::new(NEVER),
            bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
            setting: Mutex::new(()),
        }
    }

    /// Returns whether the chunk's bytes, read while the count of writes was `writes` before and
    /// after, are verified.
    pub fn has(&self, position: u32, writes: u64) -> bool {
        let (word, bit) = self.bit(position);
        // The second load is for bits that another thread clears and sets in between.
        self.writes.load(Ordering::Acquire) == writes
            && word.load(Ordering::Acquire) & bit != 0
            && self.writes.load(Ordering::Acquire) == writes
    }

    /// Notes that the chunk's bytes, read while the count of writes was `writes` before and after,
    /// are verified.
    pub fn set(&self, position: u32, writes: u64) {
        let _setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let valid = self.writes.load(Ordering::Relaxed);
        if valid != writes {
            // Another thread may have seen a later state already.
            if valid != NEVER && writes < valid {
                return;
            }
            self.writes.store(NEVER, Ordering::Release);
            self.bits.iter().for_each(|word| word.store(0, Ordering::Release));
            self.writes.store(writes, Ordering::Release);
        }
        let (word, bit) = self.bit(position);
        word.fetch_or(bit, Ordering::Release);
    }

    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> u64 {
        u64::try_from(size_of_val(&*self.bits)).expect("memory is less than 2^64 bytes")
    }

    fn bit(&self, position: u32) -> (&AtomicU64, u64) {
        let word = usize::try_from(position / 64).expect("a position fits into memory");
        (&self.bits[word], 1 << (position % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_of_one_chunk() {
        let verified = VerifiedChunks::new(130);
        for position in [0, 63, 64, 129] {
            verified.set(position, 5);
        }
        let set: Vec<u32> = (0..130).filter(|&position| verified.has(position, 5)).collect();
        assert_eq!(set, [0, 63, 64, 129]);
    }

    #[test]
    fn no_chunk_is_verified_at_first() {
        let verified = VerifiedChunks::new(64);
        assert!((0..64).all(|position| !verified.has(position, 0)));
    }

    #[test]
    fn a_write_to_disk_clears_all_bits() {
        let verified = VerifiedChunks::new(64);
        verified.set(1, 5);
        verified.set(2, 6);
        assert!(
            !verified.has(1, 5) && !verified.has(1, 6) && !verified.has(2, 5) && verified.has(2, 6)
        );
    }

    #[test]
    fn a_read_before_a_later_write_sets_no_bit() {
        let verified = VerifiedChunks::new(64);
        verified.set(1, 6);
        verified.set(2, 5);
        assert!(verified.has(1, 6) && !verified.has(2, 5) && !verified.has(2, 6));
    }
}
