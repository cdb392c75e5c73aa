//! Contents of chunks: made from their numbers, so that nothing but addresses has to be kept.
//!
//! ```text
//!   number (8 bytes) | address of the next of the chain, or zeros (20 bytes) | filler that
//!   compresses about 2:1
//! ```

use busload_chunks::ChunkAddress;

use crate::random::Random;

/// Bytes before the filler.
pub const HEADER_BYTES: usize = 28;

/// Bytes of a piece of filler.
const PIECE_BYTES: usize = 64;

/// Random bytes of a piece: snappy needs three more for the rest.
const RANDOM_BYTES: usize = 28;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filler {
    Half,
    Random,
}

#[derive(Clone, Debug)]
pub struct Generator {
    /// Sizes of chunks, taken in turns.
    pub chunk_bytes: Vec<usize>,
    pub filler: Filler,
    pub seed: u64,
}

impl Generator {
    /// Bytes of a chunk.
    pub fn bytes(&self, number: u64) -> usize {
        let sizes = u64::try_from(self.chunk_bytes.len()).expect("a count fits in 64 bits");
        self.chunk_bytes[usize::try_from(number % sizes).expect("below a count")]
    }

    /// The contents of a chunk, in a buffer that is used again.
    pub fn make(&self, number: u64, next: ChunkAddress, into: &mut Vec<u8>) {
        let bytes = self.bytes(number);
        into.clear();
        into.extend_from_slice(&number.to_le_bytes());
        into.extend_from_slice(&next.0);
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        while into.len() < bytes {
            let piece = into.len();
            let random_bytes = match self.filler {
                Filler::Half => RANDOM_BYTES,
                Filler::Random => PIECE_BYTES,
            };
            while into.len() < piece + random_bytes {
                into.extend_from_slice(&random.next().to_le_bytes());
            }
            into.resize(piece + PIECE_BYTES, b'.');
        }
        into.truncate(bytes);
    }
}

/// The number of the chunk whose contents these are.
pub fn number(contents: &[u8]) -> Option<u64> {
    contents.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// The address that these contents name as the next; `None` at the end of the chain and beside it.
pub fn next(contents: &[u8]) -> Option<ChunkAddress> {
    let address = contents.get(8..HEADER_BYTES)?.first_chunk().map(|bytes| ChunkAddress(*bytes))?;
    (address != ChunkAddress::ZERO).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generator(filler: Filler) -> Generator {
        Generator { chunk_bytes: vec![4_096, 100], filler, seed: 1 }
    }

    #[test]
    fn contents_name_themselves_and_the_next() {
        let (mut first, mut again) = (Vec::new(), Vec::new());
        let address = ChunkAddress([7; 20]);
        generator(Filler::Half).make(3, address, &mut first);
        assert_eq!((first.len(), number(&first), next(&first)), (100, Some(3), Some(address)));
        generator(Filler::Half).make(3, ChunkAddress::ZERO, &mut again);
        assert_eq!((number(&again), next(&again)), (Some(3), None));
        generator(Filler::Half).make(3, address, &mut again);
        assert_eq!(again, first);
        assert_eq!((number(b"short"), next(b"short")), (None, None));
    }

    #[test]
    fn half_of_the_filler_is_random() {
        let mut contents = Vec::new();
        generator(Filler::Half).make(0, ChunkAddress::ZERO, &mut contents);
        let dots = contents.iter().filter(|byte| **byte == b'.').count();
        assert!((1_900..2_300).contains(&dots), "{dots}");
        generator(Filler::Random).make(0, ChunkAddress::ZERO, &mut contents);
        assert!(contents.iter().filter(|byte| **byte == b'.').count() < 100);
    }
}
