//! Effects: what a transaction changed, as bytes of a log record.
//!
//! A record consists of the effects of one transaction, one after the other, with nothing around
//! them. Replaying all records in order on empty tables gives the same contents; neither a clock
//! nor random numbers are needed.
//!
//! # Format
//! `varint` is an unsigned LEB128 number; `string` is a varint length followed by that many bytes;
//! `expiry` is a signed 64-bit little-endian number of milliseconds since the Unix epoch. The first
//! byte says what follows:
//!
//! | byte | effect | follows |
//! |---|---|---|
//! | 1 | put | varint table, string key, string value |
//! | 2 | put with expiry | varint table, string key, expiry, string value |
//! | 3 | patch | varint table, string key, varint offset, string bytes |
//! | 4 | delete | varint table, string key |
//! | 5 | expire | varint table, string key, expiry |
//! | 6 | persist | varint table, string key |
//! | 7 | hash put | varint table, string key, varint pair count, then per pair 2 strings |
//! | 8 | hash delete | varint table, string key, varint field count, then per field a string |
//! | 9 | flush | varint table |
//! | 10 | part | a byte (0: first, 1: next, 2: last), then bytes of effects to the record's end |
//! | 16 | table created | varint table, string name, string settings |
//! | 17 | table settings | varint table, string settings |
//! | 18 | table dropped | varint table |
//!
//! A part is alone in its record. The bytes of a first part, of any next parts and of the last
//! part, joined, are the effects of one transaction, which takes effect where the last part is. So
//! a transaction of hundreds of megabytes does not block other writers. Parts without a last one
//! belong to a transaction that never took effect; a new first part discards them. At most one
//! transaction in parts is in progress at a time.
//!
//! A value is always the last part of its put, so that a writer can hand it over by reference.

mod apply;
mod decode;
mod encode;

pub use apply::{ApplyError, OpenParts, Replayer, apply};
pub use decode::{Catalogue, Decoder, Effect, EffectError, Fields, Pairs, PartPosition, decode};
pub use encode::{
    catalogue_created, catalogue_dropped, catalogue_settings, delete, expire, flush,
    hash_delete_field, hash_delete_header, hash_put_header, hash_put_pair, part_header, patch,
    patch_header, persist, put, put_header,
};

/// Bytes of a record that holds a part, beyond those of its effects.
pub const PART_OVERHEAD_BYTES: usize = 2;

/// Most bytes that an effect takes beyond its key, fields and values. A hash effect takes
/// [`PAIR_OVERHEAD_BYTES_MAX`] more for each of its pairs or fields.
pub const OVERHEAD_BYTES_MAX: usize = 1 + VARINT_BYTES_MAX_TABLE + 3 * VARINT_BYTES_MAX_LENGTH + 8;

/// Most bytes that a pair or field of a hash effect takes beyond field and value.
pub const PAIR_OVERHEAD_BYTES_MAX: usize = 2 * VARINT_BYTES_MAX_LENGTH;

const VARINT_BYTES_MAX_TABLE: usize = 3;
const VARINT_BYTES_MAX_LENGTH: usize = 5;

/// Returns whether a record begins with a change of the set of tables (such changes have records of
/// their own).
pub fn is_catalogue(record: &[u8]) -> bool {
    record.first().is_some_and(|code| code::CREATED <= *code)
}

/// Returns whether a record is one of several of a transaction.
pub fn is_part(record: &[u8]) -> bool {
    record.first() == Some(&code::PART)
}

pub(crate) mod code {
    pub const PUT: u8 = 1;
    pub const PUT_EXPIRING: u8 = 2;
    pub const PATCH: u8 = 3;
    pub const DELETE: u8 = 4;
    pub const EXPIRE: u8 = 5;
    pub const PERSIST: u8 = 6;
    pub const HASH_PUT: u8 = 7;
    pub const HASH_DELETE: u8 = 8;
    pub const FLUSH: u8 = 9;
    pub const PART: u8 = 10;
    pub const CREATED: u8 = 16;
    pub const SETTINGS: u8 = 17;
    pub const DROPPED: u8 = 18;
}
