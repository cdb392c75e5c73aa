//! In-memory tables: index, values, expiry and the effects that change them.
//!
//! Single-threaded, no IO, no clock: time (`now`) and randomness are arguments. A transaction reads
//! through [`Tables::get`] and similar methods, and changes tables only by the primitive mutations
//! ([`Tables::put`], [`Tables::patch`], [`Tables::delete`], ...). Each mutation has exactly one
//! [`effect::Effect`]; applying the effects of a history in order to empty tables gives the same
//! contents again.
//!
//! ```text
//!  key -> KeyHash -> directory word -> bucket (one cache line)
//!      -> entry (header, expiry, key, value)
//! ```
//!
//! # Limits
//! Keys, fields and values are at most [`limits::STRING_BYTES_MAX`] long.
//!
//! # Guarantees
//! * No operation moves more than one index segment (about 900 entries). A flush, and the deletion
//!   of a large hash or a huge value, leave the freeing to [`Tables::collect_garbage`] and
//!   [`Tables::take_huge`].
//! * Time alone removes nothing: reads do not see an entry whose expiry has passed,
//!   [`Tables::sweep`] finds it, and the caller deletes it, so that the deletion can be logged.
//! * Nothing is evicted by itself: [`Tables::choose_victim`] names an entry of a table that is a
//!   cache, and the caller deletes it.

mod tables;
mod value;

mod eviction;
mod fields;
mod hasher;
mod index;
mod packed;

pub mod effect;
pub mod limits;

pub use eviction::Victim;
pub use tables::{
    HashPrefix, HugeValue, KeyHash, StringValue, Sweep, TableEntry, TableId, Tables, UnixMs,
};
pub use value::{HashCursor, HashIter, HashRef, StringRef, Value, ValueKind};

#[cfg(test)]
mod tests;
