//! Bytes that are not what they should be: every decoder gives an error or something harmless,
//! never a panic, never a place outside the file, never more memory than the bytes there are can
//! justify.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

#[path = "../support/mod.rs"]
mod support;

mod bombs;
mod chunks;
mod indexes;
mod manifests;
mod memory;
mod mutate;
