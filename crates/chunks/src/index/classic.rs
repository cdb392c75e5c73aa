//! Index of a classic table file: pairs of prefix and ordinal sorted by prefix, then lengths and
//! suffixes in the order of the records.

use bytes::Bytes;

use crate::{
    FormatError, be,
    error::malformed,
    index::{
        ChunkLocation, Span, check_prefixes, footer::CLASSIC_FOOTER_BYTES, footer::ClassicFooter,
    },
    limits::CLASSIC_SUM_STEP,
};

/// Length of a prefix and an ordinal.
const TUPLE_BYTES: usize = 12;

/// Length of the field with a record's length.
const LENGTH_BYTES: usize = 4;

/// Length of the rest of an address.
const SUFFIX_BYTES: usize = 12;

/// Length of the index per chunk.
const CHUNK_INDEX_BYTES: usize = TUPLE_BYTES + LENGTH_BYTES + SUFFIX_BYTES;

pub(super) fn tail_bytes(chunk_count: u32) -> u64 {
    u64::from(chunk_count) * CHUNK_INDEX_BYTES as u64 + CLASSIC_FOOTER_BYTES as u64
}

#[derive(Debug)]
pub(super) struct Classic {
    chunk_count: u32,
    /// Index and footer, as in the file.
    tail: Bytes,
    /// Offset of every [`CLASSIC_SUM_STEP`]-th record.
    offsets: Box<[u64]>,
}

impl Classic {
    pub(super) fn parse(
        tail: Bytes,
        chunk_count: u32,
        file_bytes: u64,
    ) -> Result<Self, FormatError> {
        let expected = tail_bytes(chunk_count);
        if tail.len() as u64 != expected || file_bytes < expected {
            return Err(malformed!(
                "expected the last {expected} bytes of a table file with {chunk_count} chunks, \
                 got {} of a file of {file_bytes}",
                tail.len()
            ));
        }
        ClassicFooter::parse(&tail)?.check(chunk_count)?;
        let mut classic = Self { chunk_count, tail, offsets: Box::default() };
        check_prefixes(classic.tuples().iter().map(|tuple| be::u64_at(tuple, 0)))?;
        classic.check_ordinals()?;
        classic.offsets = classic.sum_lengths(file_bytes - expected)?;
        Ok(classic)
    }

    /// Checks that each record has exactly one entry.
    fn check_ordinals(&self) -> Result<(), FormatError> {
        let mut seen = vec![0u64; self.count().div_ceil(64)];
        for tuple in self.tuples() {
            let ordinal = be::to_usize(be::u32_at(tuple, 8));
            let word = seen
                .get_mut(ordinal / 64)
                .filter(|word| ordinal < self.count() && **word >> (ordinal % 64) & 1 == 0)
                .ok_or_else(|| {
                    malformed!(
                        "expected each of {} records once in the index, found record {ordinal}",
                        self.chunk_count
                    )
                })?;
            *word |= 1 << (ordinal % 64);
        }
        Ok(())
    }

    /// Returns the running sums and checks that the records fill the file up to the index.
    fn sum_lengths(&self, records_bytes: u64) -> Result<Box<[u64]>, FormatError> {
        let mut offsets = Vec::with_capacity(self.count().div_ceil(CLASSIC_SUM_STEP));
        // Fewer than 2^32 lengths below 2^32 each: no overflow.
        let mut end = 0;
        for lengths in self.lengths().chunks(CLASSIC_SUM_STEP * LENGTH_BYTES) {
            offsets.push(end);
            end += sum(lengths);
        }
        if end != records_bytes {
            return Err(malformed!(
                "records of {end} bytes in all, expected {records_bytes} before the index"
            ));
        }
        Ok(offsets.into())
    }

    pub(super) fn chunk_count(&self) -> u32 {
        self.chunk_count
    }

    pub(super) fn prefix(&self, position: u32) -> u64 {
        be::u64_at(&self.tuples()[be::to_usize(position)], 0)
    }

    pub(super) fn suffix(&self, position: u32) -> &[u8; SUFFIX_BYTES] {
        &self.suffixes()[self.ordinal(position)]
    }

    pub(super) fn location(&self, position: u32) -> ChunkLocation {
        let ordinal = self.ordinal(position);
        let lengths = self.lengths();
        let step = ordinal / CLASSIC_SUM_STEP;
        let before = sum(&lengths[step * CLASSIC_SUM_STEP * LENGTH_BYTES..ordinal * LENGTH_BYTES]);
        let length = be::u32_at(lengths, ordinal * LENGTH_BYTES);
        ChunkLocation {
            span: Span { offset: self.offsets[step] + before, length },
            dictionary: None,
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.tail.len() + size_of_val(&*self.offsets)) as u64
    }

    fn count(&self) -> usize {
        be::to_usize(self.chunk_count)
    }

    fn ordinal(&self, position: u32) -> usize {
        be::to_usize(be::u32_at(&self.tuples()[be::to_usize(position)], 8))
    }

    fn tuples(&self) -> &[[u8; TUPLE_BYTES]] {
        self.tail[..self.count() * TUPLE_BYTES].as_chunks().0
    }

    fn lengths(&self) -> &[u8] {
        &self.tail[self.count() * TUPLE_BYTES..self.count() * (TUPLE_BYTES + LENGTH_BYTES)]
    }

    fn suffixes(&self) -> &[[u8; SUFFIX_BYTES]] {
        self.tail[self.count() * (TUPLE_BYTES + LENGTH_BYTES)..self.count() * CHUNK_INDEX_BYTES]
            .as_chunks()
            .0
    }
}

/// Returns the sum of big-endian `u32`s.
fn sum(lengths: &[u8]) -> u64 {
    be::u32s(lengths).map(u64::from).sum()
}
