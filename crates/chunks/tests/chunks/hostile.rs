//! Hostile bytes: every decoder returns an error or something harmless. It never panics, never
//! points outside the file, and never takes more memory than the given bytes can justify.

mod bombs;
mod chunks;
mod indexes;
mod manifests;

/// Counts the memory that decoding takes.
#[global_allocator]
static ALLOCATOR: busload_hostile::CountingAllocator = busload_hostile::CountingAllocator;
