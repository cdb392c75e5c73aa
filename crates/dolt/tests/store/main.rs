//! Stores from open to close, over directories and over a bucket.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod archives;
mod corruption;
mod far;
mod fixtures;
mod life;
mod many;
mod old_files;
mod opening;
mod pins;
mod places;
mod prefetch;
mod support;
mod versions;
