//! The seam for random numbers: hash seeds, RANDOMKEY, HRANDFIELD, log ids. Not for secrets.

/// Source of random numbers.
pub trait Rng {
    /// Returns the next number; every value is equally likely.
    fn next_u64(&mut self) -> u64;
}

/// Fast generator that is seeded once from the system.
#[derive(Debug)]
pub struct OsRng {
    state: crate::sim::SimRng,
}

impl OsRng {
    /// Creates a generator seeded with the randomness that the standard library gives hash maps.
    pub fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self { state: crate::sim::SimRng::new(RandomState::new().hash_one(std::process::id())) }
    }
}

impl Default for OsRng {
    fn default() -> Self {
        Self::new()
    }
}

impl Rng for OsRng {
    fn next_u64(&mut self) -> u64 {
        self.state.next_u64()
    }
}
