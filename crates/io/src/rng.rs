//! Random numbers: hash seeds, RANDOMKEY, HRANDFIELD, log ids. Not for secrets.

/// A source of random numbers.
pub trait Rng {
    /// The next number; every value is equally likely.
    fn next_u64(&mut self) -> u64;
}

/// Seeded from the system once, then a fast generator.
#[derive(Debug)]
pub struct OsRng {
    state: crate::sim::SimRng,
}

impl OsRng {
    /// A generator seeded with the randomness the standard library gives hash maps.
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
