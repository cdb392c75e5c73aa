//! Hostile bytes for the tests of decoders: seeded changes of valid ones, and a count of the memory
//! that a decoder takes for them. And the number of rounds of tests that try every crash.
//!
//! The same seed gives the same changes, so a test that names its seed can be repeated.

mod memory;
mod mutate;
mod soak;

pub use memory::{CountingAllocator, within};
pub use mutate::{Random, mutate, mutate_with};
pub use soak::rounds;
