//! Hostile bytes for the tests of decoders: seeded changes of valid ones, and a count of the memory
//! that a decoder takes for them.
//!
//! The same seed gives the same changes, so a test that names its seed can be repeated.

mod memory;
mod mutate;

pub use memory::{CountingAllocator, within};
pub use mutate::{Random, mutate, mutate_with};
