//! In-memory tables: index, values, expiry and the effects that change them.
//!
//! Single-threaded, no IO, no clock: time (`now`) and randomness are arguments. A transaction reads
//! through [`Tables::get`] and friends and changes tables only by the primitive mutations
//! ([`Tables::put`], [`Tables::patch`], [`Tables::delete`], ...). Each mutation has exactly one
//! [`effect::Effect`]; applying the effects of a history in order to empty tables gives the same
//! contents again.
//!
//! ```text
//!  key -> KeyHash -> directory word -> bucket (one cache line) -> entry (header, expiry, key, value)
//! ```
//!
//! # Limits
//! Keys, fields and values are at most [`limits::STRING_BYTES_MAX`] long.
//!
//! # What this crate promises
//! * No operation moves more than one index segment (about 900 entries); a flush, the deletion of a
//!   large hash and of huge values leave the freeing to [`Tables::collect_garbage`] and
//!   [`Tables::take_huge`].
//! * Nothing is removed by time alone: an entry whose expiry has passed is hidden from reads and
//!   found by [`Tables::sweep`]; the caller deletes it, so that the deletion can be logged.

mod tables;
mod value;

mod fields;
mod hasher;
mod index;
mod packed;

pub mod effect;
pub mod limits;

pub use tables::{HugeValue, KeyHash, StringValue, Sweep, TableId, Tables, UnixMs};
pub use value::{HashIter, HashPlace, HashRef, StringRef, Value, ValueKind};

#[cfg(test)]
mod tests;
