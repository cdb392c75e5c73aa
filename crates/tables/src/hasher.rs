//! The hash function of keys and fields.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// Seeded 64-bit hash. With a secret seed, clients cannot choose keys that collide.
pub(crate) struct Hasher {
    secrets: RapidSecrets,
    /// Bits of the hash that tests keep; the others are zero, so that keys collide.
    #[cfg(test)]
    pub kept_bits: u64,
}

impl Hasher {
    pub fn new(seed: u64) -> Self {
        Hasher {
            secrets: RapidSecrets::seed(seed),
            #[cfg(test)]
            kept_bits: u64::MAX,
        }
    }

    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let hash = rapidhash_v3_seeded(key, &self.secrets);
        #[cfg(test)]
        let hash = hash & self.kept_bits;
        hash
    }
}
