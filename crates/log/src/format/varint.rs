//! Lengths of records as LEB128: seven bits per byte, lowest bits first; the top bit says that
//! another byte follows.

pub(crate) const VARINT_BYTES_MAX: usize = 10;

/// Returns the number of bytes that `value` takes.
#[inline]
pub(crate) fn varint_bytes(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Writes `value` into the first bytes of `into` and returns their number.
#[inline]
pub(crate) fn put_varint(mut value: u64, into: &mut [u8]) -> usize {
    let mut at = 0;
    while 0x80 <= value {
        into[at] = (value & 0x7f) as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    into[at] = value as u8;
    at + 1
}

/// Reads the value at the start of `from` and returns it with the number of bytes it takes; `None`
/// when it is cut off or does not fit into a `u64`.
#[inline]
pub(crate) fn varint(from: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (at, &byte) in from.iter().enumerate().take(VARINT_BYTES_MAX) {
        let part = u64::from(byte & 0x7f);
        let shift = 7 * at as u32;
        if part != 0 && part.leading_zeros() < shift {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Some((value, at + 1));
        }
    }
    None
}
