//! The log on a simulated disk (and once on a real one): what survives which crash, which
//! corruption is noticed, and what faults do.

mod harness;

mod basics;
mod copy;
mod corruption;
mod crash;
mod faults;
mod last_segment;
mod mutated;
mod real;
mod space;
mod spares;
mod tools;

/// Counts the memory that recovery takes.
#[global_allocator]
static ALLOCATOR: busload_hostile::CountingAllocator = busload_hostile::CountingAllocator;
