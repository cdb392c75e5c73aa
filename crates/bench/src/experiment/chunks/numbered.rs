//! Stores of chunks whose contents follow from their numbers: the number (8 bytes), then filler.

use std::path::Path;

use anyhow::Result;
use busload_chunks::{ChunkAddress, FileKind};

use crate::{
    progress::Progress,
    random::Random,
    store::{Filler, Store, fill},
};

/// Chunks so far apart are in different extents of a cache, whatever else is in the file.
const APART_BYTES: u64 = 1_280 * 1_024;

/// Design of a store of classic table files.
#[derive(Clone, Debug)]
pub struct Design {
    pub files: usize,
    /// Chunks of a table file.
    pub chunks: usize,
    pub chunk_bytes: u64,
    pub filler: Filler,
    /// Decides everything that is drawn.
    pub seed: u64,
}

impl Design {
    pub fn make(&self, directory: &Path) -> Result<Store> {
        let mut store = Store::create(directory)?;
        let mut contents = Vec::new();
        let mut numbers = 0_u64..;
        let bytes = usize::try_from(self.chunk_bytes).expect("chunks fit into memory");
        let total = u64::try_from(self.files * self.chunks).expect("chunks fit into memory");
        let mut progress = Progress::begin("making the store", "chunks", 0, total);
        for _ in 0..self.files {
            store.add_file(FileKind::Classic, |push| {
                for number in numbers.by_ref().take(self.chunks) {
                    let seed = self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    contents.clear();
                    contents.extend_from_slice(&number.to_le_bytes());
                    fill(&mut contents, seed, self.filler, bytes);
                    push(&contents)?;
                    progress.show(number + 1);
                }
                Ok(())
            })?;
        }
        store.write_manifest(*last(&store))?;
        Ok(store)
    }
}

/// Returns the chunk of a store that a server finds only once it has read all indexes.
pub fn last(store: &Store) -> &ChunkAddress {
    &store.chunks.last().expect("a store with chunks").address
}

/// Returns numbers of chunks that are in different extents each, in random order.
pub fn apart(store: &Store, seed: u64) -> Vec<u32> {
    let mut apart = Vec::new();
    let mut next = (0, 0);
    for (number, chunk) in (0..).zip(&store.chunks) {
        let offset = chunk.location.span.offset;
        if next <= (chunk.file, offset) {
            apart.push(number);
            next = (chunk.file, offset + APART_BYTES);
        }
    }
    Random::new(seed).shuffle(&mut apart);
    apart
}

/// Reads the number of the chunk whose contents these are.
pub fn number_in(contents: &[u8]) -> Option<u64> {
    contents.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cleanup::Cleanup;

    #[test]
    fn chunks_compress_by_half_and_those_apart_are_in_extents_of_their_own() {
        let directory = Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let filler = Filler::Half;
        let design = Design { files: 2, chunks: 1_500, chunk_bytes: 4_000, filler, seed: 1 };
        let store = design.make(&directory.path().join("store")).unwrap();
        let ratio = store.bytes() * 100 / store.contents_bytes();
        assert!((45..60).contains(&ratio), "{ratio}%");
        let extent = |number: &u32| {
            let chunk = store.chunk(*number);
            (chunk.file, chunk.location.span.offset / 1_047_552)
        };
        let apart = apart(&store, 1);
        let extents: HashSet<_> = apart.iter().map(extent).collect();
        assert!(extents.len() == apart.len() && 2 < apart.len());
    }
}
