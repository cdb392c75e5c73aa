//! Tests of the crate's interface: tables of cases, and seeded random streams against simple
//! models.

mod model;
mod replies;
mod requests;

/// Counts the memory that parsing takes.
#[global_allocator]
static ALLOCATOR: busload_hostile::CountingAllocator = busload_hostile::CountingAllocator;
