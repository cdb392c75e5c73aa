//! Commands and their order, against a server in the test with a simulated disk.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod catalogue;
mod common;
mod connection;
mod docs;
mod evict;
mod evict_crash;
mod flow;
mod gating;
mod hashes;
mod hostile;
mod inspection;
mod keys;
mod latency;
mod redis_diff;
mod scan;
mod server_commands;
mod slices;
mod snapshots;
mod sources;
mod strings;
mod table_changes;
mod users;
mod world;
