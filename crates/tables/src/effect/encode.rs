//! Writers of effects. Each appends one effect to a record.

use super::{PartPosition, code};
use crate::{TableId, UnixMs};

/// Appends a put of a string.
#[inline]
pub fn put(out: &mut Vec<u8>, table: TableId, key: &[u8], value: &[u8], expiry: Option<UnixMs>) {
    put_header(out, table, key, expiry, value.len());
    out.extend_from_slice(value);
}

/// Appends a put up to its value: the next `value_len` bytes of the record must be the value.
#[inline]
pub fn put_header(
    out: &mut Vec<u8>,
    table: TableId,
    key: &[u8],
    expiry: Option<UnixMs>,
    value_len: usize,
) {
    match expiry {
        None => start(out, code::PUT, table, key),
        Some(at) => {
            start(out, code::PUT_EXPIRING, table, key);
            out.extend_from_slice(&at.to_le_bytes());
        }
    }
    varint(out, value_len as u64);
}

/// Appends a patch that writes `bytes` at `offset` of a string.
pub fn patch(out: &mut Vec<u8>, table: TableId, key: &[u8], offset: usize, bytes: &[u8]) {
    patch_header(out, table, key, offset, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a patch up to its bytes: the next `len` bytes of the record must be those.
pub fn patch_header(out: &mut Vec<u8>, table: TableId, key: &[u8], offset: usize, len: usize) {
    start(out, code::PATCH, table, key);
    varint(out, offset as u64);
    varint(out, len as u64);
}

/// Appends a delete of a key.
#[inline]
pub fn delete(out: &mut Vec<u8>, table: TableId, key: &[u8]) {
    start(out, code::DELETE, table, key);
}

/// Appends the setting of an expiry.
pub fn expire(out: &mut Vec<u8>, table: TableId, key: &[u8], expiry: UnixMs) {
    start(out, code::EXPIRE, table, key);
    out.extend_from_slice(&expiry.to_le_bytes());
}

/// Appends the removal of an expiry.
pub fn persist(out: &mut Vec<u8>, table: TableId, key: &[u8]) {
    start(out, code::PERSIST, table, key);
}

/// Begins a hash put: exactly `pair_count` times [`hash_put_pair`] must follow.
pub fn hash_put_header(out: &mut Vec<u8>, table: TableId, key: &[u8], pair_count: usize) {
    start(out, code::HASH_PUT, table, key);
    varint(out, pair_count as u64);
}

/// Appends one pair of a hash put.
pub fn hash_put_pair(out: &mut Vec<u8>, field: &[u8], value: &[u8]) {
    string(out, field);
    string(out, value);
}

/// Begins a hash delete: exactly `field_count` times [`hash_delete_field`] must follow.
pub fn hash_delete_header(out: &mut Vec<u8>, table: TableId, key: &[u8], field_count: usize) {
    start(out, code::HASH_DELETE, table, key);
    varint(out, field_count as u64);
}

/// Appends one field of a hash delete.
pub fn hash_delete_field(out: &mut Vec<u8>, field: &[u8]) {
    string(out, field);
}

/// Appends a flush of a table.
pub fn flush(out: &mut Vec<u8>, table: TableId) {
    out.push(code::FLUSH);
    varint(out, u64::from(table.0));
}

/// Begins a part: everything after it in the record belongs to it.
pub fn part_header(out: &mut Vec<u8>, position: PartPosition) {
    out.extend_from_slice(&[code::PART, position as u8]);
}

/// Appends the creation of a table.
pub fn catalogue_created(out: &mut Vec<u8>, table: TableId, name: &[u8], settings: &[u8]) {
    start(out, code::CREATED, table, name);
    string(out, settings);
}

/// Appends new settings of a table.
pub fn catalogue_settings(out: &mut Vec<u8>, table: TableId, settings: &[u8]) {
    start(out, code::SETTINGS, table, settings);
}

/// Appends the removal of a table.
pub fn catalogue_dropped(out: &mut Vec<u8>, table: TableId) {
    out.push(code::DROPPED);
    varint(out, u64::from(table.0));
}

#[inline]
fn start(out: &mut Vec<u8>, code: u8, table: TableId, key: &[u8]) {
    out.reserve(super::OVERHEAD_BYTES_MAX + key.len());
    out.push(code);
    varint(out, u64::from(table.0));
    string(out, key);
}

#[inline]
fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[inline]
fn varint(out: &mut Vec<u8>, mut number: u64) {
    while 0x80 <= number {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
