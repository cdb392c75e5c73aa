//! Dolt's protocol: the real binary over real sockets, with stores that Dolt wrote and a client
//! that works as Dolt's does.

#![allow(clippy::disallowed_methods, reason = "tests are at the edge")]

mod client;
mod consistency;
mod downloads;
mod faults;
mod files;
mod fixture;
mod freshness;
mod http;
mod limits;
mod locations;
mod metadata;
mod peer_bandwidth;
mod peer_chunks;
mod peers;
mod savings;
mod slow_link;
mod stores;
mod unfinished;

use crate::support::{eventually, mix};

/// An address that no store has.
const NOWHERE: [u8; 20] = [0x5a; 20];
