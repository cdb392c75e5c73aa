//! The cache of objects with real disks, real object stores and faults of both.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod disk_full;
mod eviction;
mod faults;
mod kill;
mod streams_end_to_end;
mod support;
