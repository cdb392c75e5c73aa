//! Chunk stores on files of Dolt, whole, changing and corrupt.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod faults;
mod store;
