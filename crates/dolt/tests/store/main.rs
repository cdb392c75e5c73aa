//! Stores from open to close, over directories and over a bucket.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod damage;
mod fixtures;
mod life;
mod many;
mod opening;
mod support;
mod versions;
