//! Dolt's protocol: the real binary over real sockets, with stores that Dolt wrote and a client
//! that works as Dolt's does.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]
#![allow(clippy::disallowed_methods, reason = "tests are at the edge")]

mod client;
mod consistency;
mod downloads;
mod faults;
mod files;
mod fixture;
mod http;
mod limits;
mod locations;
mod metadata;
mod slow_link;
#[path = "../support/mod.rs"]
mod support;
mod unfinished;

use support::eventually;

/// An address that no store has.
const NOWHERE: [u8; 20] = [0x5a; 20];

/// Mixes bits as SplitMix64 does.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
