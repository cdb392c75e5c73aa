//! Readers of a store: as Dolt's own client does on the wire, and by ranges of the object store
//! itself.
//!
//! ```text
//!   walks: fetch, scan, point --addresses--> Client: location streams (gRPC) --+
//!     ^                             |                                          | locations
//!     |                             +--> Direct: indexes known beforehand --+  |
//!     |                                                                     v  v
//!     +-- contents, each checked against its address -- Downloads: regions, largest first,
//!                                                       GETs of a pool of connections
//! ```
//!
//! Walks depend on what is read: the addresses asked for next come from the contents of chunks that
//! have arrived. Everything runs on the thread that polls it, which is what decodes and checks, as
//! the stock client's processor would.

mod clone;
mod counts;
mod direct;
mod download;
mod downloads;
mod failure;
mod fetch;
mod http;
mod limits;
mod locations;
mod regions;
mod rpc;
mod walks;

pub use self::{
    counts::{Counts, Report},
    direct::{Direct, Ranges},
    rpc::{Client, Streams},
    walks::Points,
};

#[cfg(test)]
mod tests;
