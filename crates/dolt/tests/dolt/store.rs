//! Stores from open to close, over directories and over a bucket.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod archives;
mod closing;
mod corruption;
mod dropped_files;
mod fixtures;
mod locations;
mod many;
mod opening;
mod pinned_dictionaries;
mod prefetch;
mod remote_store;
mod support;
mod versions;
