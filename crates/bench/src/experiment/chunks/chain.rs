//! A store of chunks whose contents follow from their numbers: the number (8 bytes), then filler.

use std::{collections::HashSet, path::Path};

use anyhow::{Context, Result};
use busload_chunks::{ChunkAddress, FileKind};

use crate::{
    random::Random,
    store::{Filler, Store, fill},
};

/// Chunks so far apart are in different extents of a cache, whatever else is in the file.
const APART_BYTES: u64 = 1_280 * 1_024;

/// Design of a store.
#[derive(Clone, Debug)]
pub struct Design {
    pub files: usize,
    pub chunks_per_file: usize,
    /// Sizes of chunks, taken in turns.
    pub chunk_bytes: Vec<usize>,
    pub filler: Filler,
    /// Chunks of the chain.
    pub chain: usize,
    /// Decides everything that is drawn.
    pub seed: u64,
}

/// A store, and chunks that are read in a certain order.
#[derive(Debug)]
pub struct ChainStore {
    pub store: Store,
    /// Numbers of chunks to read one after the other; those that are apart come first.
    pub chain: Vec<u32>,
    /// Numbers of chunks that are in different extents each, in random order.
    pub apart: Vec<u32>,
}

impl ChainStore {
    pub fn make(directory: &Path, design: &Design) -> Result<Self> {
        let mut store = Store::create(directory)?;
        let mut contents = Vec::new();
        let mut numbers = 0_u64..;
        let mut sizes = design.chunk_bytes.iter().cycle();
        for _ in 0..design.files {
            store.add_file(FileKind::Classic, |push| {
                let of_file = numbers.by_ref().zip(sizes.by_ref()).take(design.chunks_per_file);
                for (number, bytes) in of_file {
                    let seed = design.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    contents.clear();
                    contents.extend_from_slice(&number.to_le_bytes());
                    fill(&mut contents, seed, design.filler, *bytes);
                    push(&contents)?;
                }
                Ok(())
            })?;
        }
        store.write_manifest(store.chunks.first().context("a store with chunks")?.address)?;
        let mut random = Random::new(design.seed);
        let mut apart = Vec::new();
        let mut next = (0, 0);
        for (number, chunk) in (0..).zip(&store.chunks) {
            let offset = chunk.location.span.offset;
            if next <= (chunk.file, offset) {
                apart.push(number);
                next = (chunk.file, offset + APART_BYTES);
            }
        }
        random.shuffle(&mut apart);
        let is_apart: HashSet<u32> = apart.iter().copied().collect();
        let mut others: Vec<u32> =
            (0..store.count()).filter(|number| !is_apart.contains(number)).collect();
        random.shuffle(&mut others);
        let chain = apart.iter().copied().chain(others).take(design.chain).collect();
        Ok(Self { store, chain, apart })
    }

    /// Returns the chunk that is known when the store is open.
    pub fn last(&self) -> &ChunkAddress {
        &self.store.chunks[self.store.chunks.len() - 1].address
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

/// Reads the number of the chunk whose contents these are.
pub fn number_in(contents: &[u8]) -> Option<u64> {
    contents.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
pub mod tests {
    use std::{fs, os::unix::fs::FileExt};

    use busload_chunks::Stored;

    use super::*;
    use crate::{
        cleanup::{Cleanup, Directory},
        store::index,
    };

    /// A store of two files and 3,000 chunks.
    pub fn small() -> (Directory, ChainStore) {
        let directory = Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let design = Design {
            files: 2,
            chunks_per_file: 1_500,
            chunk_bytes: vec![4_096, 1_000],
            filler: Filler::Half,
            chain: 50,
            seed: 1,
        };
        let store = ChainStore::make(&directory.path().join("store"), &design).unwrap();
        (directory, store)
    }

    #[test]
    fn every_chunk_is_where_the_store_says_and_compresses_by_half() {
        let (_directory, ChainStore { store, chain, apart }) = small();
        for (number, chunk) in (0..).zip(&store.chunks) {
            let path = store.directory.join(&store.file_of(chunk).name);
            let mut bytes = vec![0; index(chunk.location.span.length)];
            let file = fs::File::open(path).unwrap();
            file.read_exact_at(&mut bytes, chunk.location.span.offset).unwrap();
            let contents = Stored::parse(bytes.into(), &chunk.location).unwrap();
            let contents = contents.decode(None).unwrap();
            assert_eq!(number_in(&contents), Some(number));
            assert_eq!(ChunkAddress::of(&contents), chunk.address);
            assert_eq!(contents.len(), index(chunk.contents_bytes));
        }
        let ratio = store.bytes() * 100 / store.contents_bytes();
        assert!((45..60).contains(&ratio), "{ratio}%");
        let extent = |number: &u32| {
            let chunk = store.chunk(*number);
            (chunk.file, chunk.location.span.offset / 1_047_552)
        };
        let extents: HashSet<_> = apart.iter().map(extent).collect();
        assert_eq!((extents.len(), chain.len()), (apart.len(), 50));
        assert!(chain.starts_with(&apart) && 2 < apart.len());
    }
}
