//! The hash of addresses.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::{ChunkAddress, be};

/// 2^64 divided by the golden ratio: odd, and with bits of no pattern.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Secret seed, so that nobody can construct addresses that collide. Addresses look random, but
/// a client that writes chunks can choose among them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed([u64; 4]);

impl Seed {
    pub(super) fn random() -> Self {
        let keys = RandomState::new();
        Self([0u64, 1, 2, 3].map(|number| {
            let mut hasher = keys.build_hasher();
            hasher.write_u64(number);
            hasher.finish()
        }))
    }

    /// Hashes all 20 bytes in rounds that multiply and fold the 128 bits, like wyhash and its
    /// relatives. After the second round, addresses that differ only in their last bytes would form
    /// an arithmetic progression; the last round breaks that up.
    pub(super) fn hash(&self, address: &ChunkAddress) -> u64 {
        let [first, second] = [be::u64_at(&address.0, 0), be::u64_at(&address.0, 8)];
        let third = u64::from(be::u32_at(&address.0, 16));
        let folded = fold(first ^ self.0[0], second ^ self.0[1]);
        fold(fold(folded ^ self.0[2], third ^ self.0[3]), GOLDEN)
    }
}

/// Folds both halves of the product, so that each bit of the factors reaches each bit of the
/// result.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    // The cast keeps the low half, which is the two halves folded, and drops the upper one on
    // purpose.
    (product ^ product >> 64) as u64
}
