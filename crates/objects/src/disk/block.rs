//! Self-checking blocks.
//!
//! ```text
//! 0                                           4092   4096
//! +-------------------------------------------+------+
//! | bytes of the object (zeros behind its end)| CRC  |
//! +-------------------------------------------+------+
//! ```
//!
//! The CRC-32C covers the file's random generation, the block's number and the bytes. So a block of
//! another file, of another position, of an earlier file of the same number, half a block and a
//! hole are all wrong.

use crate::disk::{BLOCK_BYTES, BLOCK_DATA_BYTES};

/// Makes and checks the checksums of one file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal(u32);

impl Seal {
    /// Makes the seal of a file from its generation.
    pub(crate) fn new(generation: u64) -> Self {
        Self(crc32c::crc32c(&generation.to_le_bytes()))
    }

    /// Never zero, so that a hole is never right.
    fn checksum(self, block: u64, data: &[u8]) -> u32 {
        let seed = crc32c::crc32c_append(self.0, &block.to_le_bytes());
        crc32c::crc32c_append(seed, data).max(1)
    }

    /// Returns the bytes of a block on disk, if they are right.
    pub(crate) fn open(self, number: u64, block: &[u8]) -> Option<&[u8]> {
        let (data, stored) = block.split_first_chunk::<BLOCK_DATA_BYTES>()?;
        let stored = u32::from_le_bytes(stored.try_into().ok()?);
        (self.checksum(number, data) == stored).then_some(data)
    }

    /// Appends bytes of an object as blocks. They begin with block `first`, and only the last block
    /// may be short.
    pub(crate) fn close(self, first: u64, data: &[u8], blocks: &mut Vec<u8>) {
        for (number, part) in (first..).zip(data.chunks(BLOCK_DATA_BYTES)) {
            let start = blocks.len();
            blocks.extend_from_slice(part);
            blocks.resize(start + BLOCK_DATA_BYTES, 0);
            let checksum = self.checksum(number, &blocks[start..]);
            blocks.extend_from_slice(&checksum.to_le_bytes());
            debug_assert_eq!(blocks.len(), start + BLOCK_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(seal: Seal, number: u64, data: &[u8]) -> Vec<u8> {
        let mut block = Vec::new();
        seal.close(number, data, &mut block);
        block
    }

    #[test]
    fn a_sealed_block_opens() {
        let seal = Seal::new(7);
        let data: Vec<u8> = (0..BLOCK_DATA_BYTES * 2 + 10).map(|i| (i % 251) as u8).collect();
        let blocks = block(seal, 5, &data);
        assert_eq!(blocks.len(), 3 * BLOCK_BYTES);
        let mut opened = Vec::new();
        for (number, block) in (5..).zip(blocks.chunks(BLOCK_BYTES)) {
            opened.extend_from_slice(seal.open(number, block).unwrap());
        }
        assert_eq!(opened[..data.len()], data);
        assert!(opened[data.len()..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn another_place_or_life_is_wrong() {
        let data = block(Seal::new(7), 5, &[1; BLOCK_DATA_BYTES]);
        assert_eq!(Seal::new(7).open(6, &data), None);
        assert_eq!(Seal::new(7).open(5 + (1 << 31), &data), None);
        assert_eq!(Seal::new(8).open(5, &data), None);
    }

    #[test]
    fn every_flipped_bit_of_a_block_is_noticed() {
        let seal = Seal::new(1);
        let mut data = block(seal, 0, b"short");
        for bit in 0..BLOCK_BYTES * 8 {
            data[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seal.open(0, &data), None, "bit {bit}");
            data[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(seal.open(0, &data).is_some());
    }

    #[test]
    fn holes_and_pieces_are_wrong() {
        for generation in 0..2000 {
            assert_eq!(Seal::new(generation).open(0, &[0; BLOCK_BYTES]), None, "{generation}");
        }
        assert_eq!(Seal::new(0).open(0, &[]), None);
        assert_eq!(Seal::new(0).open(0, &[0; BLOCK_BYTES - 1]), None);
    }

    /// CRC-32C over zeros from a suitable start is zero: such a block must not look like a hole.
    #[test]
    fn a_checksum_is_never_zero() {
        let zero = Seal::new(3);
        let data = block(zero, 0, &[0; BLOCK_DATA_BYTES]);
        assert_ne!(data[BLOCK_DATA_BYTES..], [0; 4]);
    }
}
