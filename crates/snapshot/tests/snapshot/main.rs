//! Snapshots of a log that is written, cut off and corrupted on a simulated disk. A model that
//! replays every record says what each start must find.

mod copies;
mod crashes;
mod maintenance;
mod mutated;
mod roundtrip;
mod world;

/// Counts the memory that reading takes.
#[global_allocator]
static ALLOCATOR: busload_hostile::CountingAllocator = busload_hostile::CountingAllocator;
