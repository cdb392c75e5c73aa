//! Commands on the bits of strings. Bit 0 is the highest bit of the first byte.

use std::ops::Range;

use busload_resp::parse_i64;
use busload_tables::limits::STRING_BYTES_MAX;
use bytes::Bytes;

use super::{
    Call,
    strings::{first_key, index_range, read_string, string},
};
use crate::{
    args::Args,
    error::{CommandError, CommandResult},
    limits::SLICE_STEPS,
    tx::{Locks, PatchOne, Slice, Step, Tx, Work, Write},
};

pub(super) fn setbit(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let position = BitPosition::parse(call.args.at(2))?;
    let bit = match call.args.at(3) {
        b"0" => 0,
        b"1" => position.mask,
        _ => return Err(CommandError::text("ERR bit is not an integer or out of range")),
    };
    let key = first_key(tx, call);
    let old = string(tx, &key)?.and_then(|value| value.as_slice().get(position.byte)).copied();
    let byte = old.unwrap_or(0);
    let new = byte & !position.mask | bit;
    // A byte that is not there is a change, even to 0: the string becomes longer.
    if old != Some(new) && tx.sliced {
        call.reply.integer(position.bit_of(byte));
        let patch = PatchOne::new(tx, &key, position.byte, Bytes::copy_from_slice(&[new]));
        return tx.run_sliced(call, Write::new(patch));
    }
    if old == Some(new) {
        // There is nothing to log, but from now on Redis keeps the string in the form of one whose
        // parts are written.
        tx.make_general(&key);
    } else {
        tx.patch(&key, position.byte, &[new]);
    }
    call.reply.integer(position.bit_of(byte));
    Ok(())
}

pub(super) fn getbit(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let position = BitPosition::parse(call.args.at(2))?;
    let key = first_key(tx, call);
    let byte =
        read_string(tx, &key)?.and_then(|value| value.as_slice().get(position.byte)).copied();
    call.reply.integer(position.bit_of(byte.unwrap_or(0)));
    Ok(())
}

/// Position of a bit in a string.
struct BitPosition {
    byte: usize,
    mask: u8,
}

impl BitPosition {
    fn parse(text: &[u8]) -> Result<Self, CommandError> {
        let offset = parse_i64(text).and_then(|offset| usize::try_from(offset).ok());
        match offset {
            Some(offset) if offset / 8 < STRING_BYTES_MAX => {
                Ok(Self { byte: offset / 8, mask: 0x80 >> (offset % 8) })
            }
            _ => Err(CommandError::text("ERR bit offset is not an integer or out of range")),
        }
    }

    fn bit_of(&self, byte: u8) -> i64 {
        i64::from(byte & self.mask != 0)
    }
}

pub(super) fn bitcount(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let key = first_key(tx, call);
    // Check the arguments only when there is something to count, as Redis 7.0 does.
    let Some(value) = read_string(tx, &key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let bytes = value.as_slice();
    let bits = match call.args.len() {
        2 => 0..bytes.len() * 8,
        4 | 5 => {
            let (first, last) = (call.args.integer(2)?, call.args.integer(3)?);
            let of_bytes = |range: Range<usize>| range.start * 8..range.end * 8;
            match call.args.get(4) {
                None => of_bytes(index_range(first, last, bytes.len())),
                Some(unit) if unit.eq_ignore_ascii_case(b"byte") => {
                    of_bytes(index_range(first, last, bytes.len()))
                }
                Some(unit) if unit.eq_ignore_ascii_case(b"bit") => {
                    index_range(first, last, bytes.len() * 8)
                }
                Some(_) if first < 0 && last < 0 && last < first => 0..0,
                Some(_) => return Err(CommandError::Syntax),
            }
        }
        _ => return Err(CommandError::Syntax),
    };
    if let Some(bytes) = value.shared()
        && COUNTED_BYTES_PER_SLICE * 8 < bits.len()
    {
        return tx.run_sliced(call, CountOnes { bytes, bits, count: 0 });
    }
    let count = count_ones_between(bytes, bits);
    call.reply.integer(i64::try_from(count).expect("a string has less than 2^33 bits"));
    Ok(())
}

/// Work of BITCOUNT on a large value. It holds the value as it was when the command began.
struct CountOnes {
    bytes: Bytes,
    /// Bits still to be counted.
    bits: Range<usize>,
    count: u64,
}

/// Number of bytes that can be counted in well under a millisecond.
const COUNTED_BYTES_PER_SLICE: usize = 2 * 1024 * 1024;

impl Work for CountOnes {
    fn step(&mut self, _: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        while !self.bits.is_empty() {
            let end = self.bits.end.min((self.bits.start / 8 + COUNTED_BYTES_PER_SLICE) * 8);
            self.count += count_ones_between(&self.bytes, self.bits.start..end);
            self.bits.start = end;
            if !slice.budget.spend(SLICE_STEPS) && !self.bits.is_empty() {
                return Ok(Step::More);
            }
        }
        slice.reply.integer(i64::try_from(self.count).expect("a string has less than 2^33 bits"));
        Ok(Step::Done)
    }

    fn suspend(&mut self, _: &Tx, _: u16, _: &Args<'_>) {}

    fn locks(&self) -> Option<&Locks> {
        None
    }
}

fn count_ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words: u64 =
        words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    let in_rest: u64 = rest.iter().map(|byte| u64::from(byte.count_ones())).sum();
    in_words + in_rest
}

fn count_ones_between(bytes: &[u8], bits: Range<usize>) -> u64 {
    if bits.is_empty() {
        return 0;
    }
    let (first_byte, last_byte) = (bits.start / 8, (bits.end - 1) / 8);
    let before = bytes[first_byte] & !(0xff >> (bits.start % 8));
    let behind = bytes[last_byte] & (0x7f >> ((bits.end - 1) % 8));
    let all = count_ones(&bytes[first_byte..=last_byte]);
    all - u64::from(before.count_ones()) - u64::from(behind.count_ones())
}
