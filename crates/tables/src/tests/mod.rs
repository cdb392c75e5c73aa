//! Tests of the crate as a whole.

mod collisions;
mod eviction;
mod memory;
mod model;
mod properties;
mod replay;

use crate::{KeyHash, Tables};

/// Small generator of random numbers: the same seed gives the same run.
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Creates tables whose hashes keep only these bits.
pub(crate) fn tables_keeping(kept_bits: u64) -> Tables {
    let mut tables = Tables::new(7);
    tables.hasher.kept_bits = kept_bits;
    tables
}

pub(crate) fn hash(tables: &Tables, key: &[u8]) -> KeyHash {
    tables.hash(key)
}
