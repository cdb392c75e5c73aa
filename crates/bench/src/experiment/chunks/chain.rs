//! A store of chunks whose contents follow from their numbers, with a chain of chunks that name
//! each other.
//!
//! ```text
//!   a chunk: number (8 bytes) | address of the next of the chain, or zeros (20 bytes) | filler
//!            that compresses about 2:1
//! ```

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use anyhow::{Context, Result};
use busload_chunks::{ChunkAddress, FileKind};

use crate::{
    random::Random,
    store::{Store, index},
};

/// Bytes of a chunk before the filler.
pub const HEADER_BYTES: usize = 28;

/// Bytes of a piece of filler.
const PIECE_BYTES: usize = 64;

/// Random bytes of a piece that compresses 2:1: snappy needs three more for the rest.
const RANDOM_BYTES: usize = 28;

/// Chunks so far apart are in different extents of a cache, whatever else is in the file.
const APART_BYTES: usize = 1_280 * 1_024;

/// Design of a store.
#[derive(Clone, Debug)]
pub struct Design {
    pub files: usize,
    pub chunks_per_file: usize,
    /// Sizes of chunks, taken in turns.
    pub chunk_bytes: Vec<usize>,
    /// Random bytes of every 64: all of them, or as many as give a ratio of 2:1.
    pub is_random: bool,
    /// Chunks of the chain.
    pub chain: usize,
    /// Decides everything that is drawn.
    pub seed: u64,
}

impl Design {
    /// Makes the contents of a chunk, in a buffer that is used again.
    fn contents(&self, number: u32, next: ChunkAddress, into: &mut Vec<u8>) {
        let bytes = self.chunk_bytes[index(number) % self.chunk_bytes.len()];
        let number = u64::from(number);
        let random_bytes = if self.is_random { PIECE_BYTES } else { RANDOM_BYTES };
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        into.clear();
        into.extend_from_slice(&number.to_le_bytes());
        into.extend_from_slice(&next.0);
        while into.len() < bytes {
            let piece = into.len();
            while into.len() < piece + random_bytes {
                into.extend_from_slice(&random.next().to_le_bytes());
            }
            into.resize(piece + PIECE_BYTES, b'.');
        }
        into.truncate(bytes);
    }
}

/// Reads the number of the chunk whose contents these are.
pub fn number_in(contents: &[u8]) -> Option<u64> {
    contents.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Reads the address that contents name as the next; `None` at the end of the chain and beside it.
pub fn next_in(contents: &[u8]) -> Option<ChunkAddress> {
    let address = contents.get(8..HEADER_BYTES)?.first_chunk().map(|bytes| ChunkAddress(*bytes))?;
    (address != ChunkAddress::ZERO).then_some(address)
}

/// A store, its chain, and chunks that are far from each other.
#[derive(Debug)]
pub struct ChainStore {
    pub store: Store,
    /// Numbers of the chunks that name each other, in this order.
    pub chain: Vec<u32>,
    /// Numbers of chunks that are in different extents each, in random order.
    pub apart: Vec<u32>,
}

impl ChainStore {
    pub fn make(directory: &Path, design: &Design) -> Result<Self> {
        let count = design.files * design.chunks_per_file;
        let count = u32::try_from(count).context("a store has fewer than 4 billion chunks")?;
        let mut random = Random::new(design.seed);
        let mean = design.chunk_bytes.iter().sum::<usize>() / design.chunk_bytes.len();
        let stored = if design.is_random { mean } else { mean / 2 };
        let mut apart: Vec<u32> = (0..count).step_by(APART_BYTES.div_ceil(stored.max(1))).collect();
        random.shuffle(&mut apart);
        let chain = chain(design.chain, count, &apart, &mut random);
        let next = addresses(design, &chain);
        let mut store = Store::create(directory)?;
        let mut contents = Vec::new();
        let mut numbers = 0..count;
        for _ in 0..design.files {
            store.add_file(FileKind::Classic, |push| {
                numbers.by_ref().take(design.chunks_per_file).try_for_each(|number| {
                    let next = next.get(&number).copied().unwrap_or(ChunkAddress::ZERO);
                    design.contents(number, next, &mut contents);
                    push(&contents).map(drop)
                })
            })?;
        }
        let root = store.chunks.first().map_or(ChunkAddress::ZERO, |chunk| chunk.address);
        store.write_manifest(root)?;
        Ok(Self { store, chain, apart })
    }

    /// Returns the addresses of these chunks, one after the other.
    pub fn addresses(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
        numbers.into_iter().flat_map(|number| self.store.chunk(number).address.0).collect()
    }

    /// Returns the numbers of the chunks of one file.
    pub fn of_file(&self, file: u32) -> impl Iterator<Item = u32> + '_ {
        (0..self.store.count()).filter(move |number| self.store.chunk(*number).file == file)
    }
}

/// Draws a chain: first the chunks that are apart, then others at random.
fn chain(length: usize, count: u32, apart: &[u32], random: &mut Random) -> Vec<u32> {
    let mut chain: Vec<u32> = apart.iter().copied().take(length).collect();
    let mut seen: HashSet<u32> = apart.iter().copied().collect();
    while chain.len() < length && seen.len() < index(count) {
        let number = u32::try_from(random.below(u64::from(count))).expect("below 32 bits");
        if seen.insert(number) {
            chain.push(number);
        }
    }
    chain
}

/// Returns the addresses that chunks of the chain name. The address of a chunk depends on its
/// contents, so they are made from the chain's end.
fn addresses(design: &Design, chain: &[u32]) -> HashMap<u32, ChunkAddress> {
    let (mut next, mut contents) = (HashMap::with_capacity(chain.len()), Vec::new());
    let mut following = ChunkAddress::ZERO;
    for number in chain.iter().rev() {
        next.insert(*number, following);
        design.contents(*number, following, &mut contents);
        following = ChunkAddress::of(&contents);
    }
    next
}

#[cfg(test)]
pub mod tests {
    use std::{fs, os::unix::fs::FileExt};

    use busload_chunks::Stored;
    use bytes::Bytes;

    use super::*;
    use crate::cleanup::{Cleanup, Directory};

    /// A store of two files, 1,500 chunks and a chain of 50.
    pub fn small() -> (Directory, ChainStore) {
        let directory = Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let design = Design {
            files: 2,
            chunks_per_file: 1_500,
            chunk_bytes: vec![4_096, 1_000],
            is_random: false,
            chain: 50,
            seed: 1,
        };
        let store = ChainStore::make(&directory.path().join("store"), &design).unwrap();
        (directory, store)
    }

    fn read(ChainStore { store, .. }: &ChainStore, number: u32) -> Bytes {
        let chunk = store.chunk(number);
        let path = store.directory.join(&store.file_of(chunk).name);
        let mut bytes = vec![0; index(chunk.location.span.length)];
        let file = fs::File::open(path).unwrap();
        file.read_exact_at(&mut bytes, chunk.location.span.offset).unwrap();
        Stored::parse(bytes.into(), &chunk.location).unwrap().decode(None).unwrap()
    }

    #[test]
    fn every_chunk_is_where_the_store_says_and_the_chain_leads_through_its_chunks() {
        let (_directory, made) = small();
        for number in 0..made.store.count() {
            let contents = read(&made, number);
            assert_eq!(number_in(&contents), Some(u64::from(number)));
            assert_eq!(ChunkAddress::of(&contents), made.store.chunk(number).address);
            assert_eq!(contents.len(), index(made.store.chunk(number).contents_bytes));
        }
        let mut followed = vec![made.chain[0]];
        while let Some(address) = next_in(&read(&made, *followed.last().unwrap())) {
            followed.push(made.store.number(&address).unwrap());
        }
        assert_eq!((followed.len(), &followed), (50, &made.chain));
        let ratio = made.store.bytes() * 100 / made.store.contents_bytes();
        assert!((45..58).contains(&ratio), "{ratio}%");
    }

    #[test]
    fn chunks_that_are_apart_are_in_extents_of_their_own() {
        let (_directory, made) = small();
        let extent = |number: &u32| {
            let chunk = made.store.chunk(*number);
            (chunk.file, chunk.location.span.offset / 1_047_552)
        };
        let extents: HashSet<_> = made.apart.iter().map(extent).collect();
        assert_eq!((extents.len(), 1 < extents.len()), (made.apart.len(), true));
    }
}
