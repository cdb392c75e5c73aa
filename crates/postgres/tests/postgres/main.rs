//! Tables on real Postgres servers, and on one that misbehaves.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod connecting;
mod failure;
mod table;
