//! A store as Dolt writes it: classic table files and a manifest, with a chain of chunks that name
//! each other.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use busload_bucket::Seen;
use busload_chunks::{ChunkAddress, ChunkLocation, FileKind, FileSpec};

use super::contents::{Filler, Generator};
use crate::{
    random::Random,
    stats::float,
    table_files::{TableFile, write, write_manifest},
    traffic::Traffic,
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

/// Chunk of the store.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub address: ChunkAddress,
    pub file: u32,
    pub location: ChunkLocation,
    /// Bytes of its contents.
    pub contents_bytes: u32,
}

/// A store on disk, and what everybody who measures knows of it.
#[derive(Debug)]
pub struct Store {
    /// Directory in which its objects are files.
    pub directory: PathBuf,
    /// Chunks of all files; their numbers are positions.
    pub entries: Vec<Entry>,
    /// Positions of the chunks that name each other, in this order.
    pub chain: Vec<u32>,
    /// Chunks that are in different extents each, in random order.
    pub apart: Vec<u32>,
    pub files: Vec<TableFile>,
    by_address: HashMap<ChunkAddress, u32>,
}

impl Store {
    pub fn make(directory: &Path, design: &Design) -> Result<Self> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let maker = Maker::new(design)?;
        let mut store = Self {
            directory: directory.to_owned(),
            entries: Vec::with_capacity(design.files * design.chunks_per_file),
            chain: maker.chain.clone(),
            apart: maker.apart.clone(),
            files: Vec::with_capacity(design.files),
            by_address: HashMap::new(),
        };
        let mut specs = Vec::with_capacity(design.files);
        for _ in 0..design.files {
            specs.push(store.add_file(&maker)?);
        }
        let root = store.entries.first().map_or(ChunkAddress::ZERO, |entry| entry.address);
        write_manifest(directory, root, &specs)?;
        store.by_address =
            (0..).zip(&store.entries).map(|(number, entry)| (entry.address, number)).collect();
        if store.by_address.len() != store.entries.len() {
            bail!("two chunks of the store have one address");
        }
        Ok(store)
    }

    fn add_file(&mut self, maker: &Maker<'_>) -> Result<FileSpec> {
        let first = u64::try_from(self.entries.len()).context("a count")?;
        let count = u64::try_from(maker.design.chunks_per_file).context("a count")?;
        let mut contents = Vec::new();
        let mut addresses = Vec::with_capacity(maker.design.chunks_per_file);
        let written = write(&self.directory, FileKind::Classic, |push| {
            for number in first..first + count {
                maker.generator.make(number, maker.next(number), &mut contents);
                addresses.push(push(&contents)?);
            }
            Ok(())
        })?;
        let file = u32::try_from(self.files.len()).context("a count of files")?;
        for (number, address) in (first..).zip(addresses) {
            let position = written.index.find(&address);
            let position = position.context("a chunk just written is not in its file's index")?;
            let contents_bytes = maker.generator.bytes(number);
            let contents_bytes = u32::try_from(contents_bytes).context("a chunk's size")?;
            let location = written.index.location(position);
            self.entries.push(Entry { address, file, location, contents_bytes });
        }
        self.files.push(written.file);
        Ok(written.spec)
    }

    /// The chunk with this address.
    pub fn find(&self, address: &ChunkAddress) -> Option<u32> {
        self.by_address.get(address).copied()
    }

    /// A chunk by its number.
    pub fn entry(&self, number: u32) -> &Entry {
        &self.entries[index(number)]
    }

    /// Addresses of these chunks, one after the other.
    pub fn addresses(&self, numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| self.entry(*number).address.0).collect()
    }

    /// Sorts requests for its table files.
    pub fn traffic(&self, seen: &[Seen]) -> Traffic {
        Traffic::of(seen, &self.files)
    }

    pub fn count(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("checked when it was made")
    }

    /// Numbers of the chunks of one file.
    pub fn of_file(&self, file: u32) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.entries)
            .filter(move |(_, entry)| entry.file == file)
            .map(|(number, _)| number)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Bytes of all contents.
    pub fn contents_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.contents_bytes)).sum()
    }

    /// Mean bytes of contents, and of the stored form by those: how well the store is compressed.
    pub fn means(&self) -> (f64, f64) {
        let stored: u64 =
            self.entries.iter().map(|entry| u64::from(entry.location.span.length)).sum();
        let contents = float(self.contents_bytes());
        (contents / float(u64::from(self.count().max(1))), float(stored) / contents.max(1.0))
    }
}

/// A number as a position.
pub fn index(number: u32) -> usize {
    usize::try_from(number).expect("32 bits fit")
}

/// Decisions that are made before the first chunk is written. The address of a chunk depends on
/// its contents, so the chain is made from its end.
struct Maker<'a> {
    design: &'a Design,
    generator: Generator,
    chain: Vec<u32>,
    apart: Vec<u32>,
    next: HashMap<u64, ChunkAddress>,
}

impl<'a> Maker<'a> {
    fn new(design: &'a Design) -> Result<Self> {
        let generator = Generator {
            chunk_bytes: design.chunk_bytes.clone(),
            filler: design.filler,
            seed: design.seed,
        };
        let count = design.files * design.chunks_per_file;
        let count = u32::try_from(count).context("a store has fewer than 4 billion chunks")?;
        let mut random = Random::new(design.seed);
        let apart = apart(design, count, &mut random)?;
        let chain = chain(design, count, &apart, &mut random)?;
        let mut next = HashMap::with_capacity(chain.len());
        let mut contents = Vec::new();
        let mut following = ChunkAddress::ZERO;
        for number in chain.iter().rev() {
            let number = u64::from(*number);
            next.insert(number, following);
            generator.make(number, following, &mut contents);
            following = ChunkAddress::of(&contents);
        }
        Ok(Self { design, generator, chain, apart, next })
    }

    fn next(&self, number: u64) -> ChunkAddress {
        self.next.get(&number).copied().unwrap_or(ChunkAddress::ZERO)
    }
}

/// Every so many chunks one, shuffled.
fn apart(design: &Design, count: u32, random: &mut Random) -> Result<Vec<u32>> {
    let contents: usize = design.chunk_bytes.iter().sum();
    let mean =
        u64::try_from(contents / design.chunk_bytes.len().max(1)).context("sizes of chunks")?;
    let stored = match design.filler {
        Filler::Half => mean / 2,
        Filler::Random => mean,
    };
    let stride = u32::try_from(APART_BYTES.div_ceil(stored.max(1))).context("a stride")?;
    let mut numbers: Vec<u32> = (0..count).step_by(index(stride)).collect();
    random.shuffle(&mut numbers);
    Ok(numbers)
}

/// First the chunks that are apart, then others at random.
fn chain(design: &Design, count: u32, apart: &[u32], random: &mut Random) -> Result<Vec<u32>> {
    let length = design.chain.min(index(count));
    let mut seen: std::collections::HashSet<u32> = apart.iter().copied().collect();
    let mut chain: Vec<u32> = apart.iter().copied().take(length).collect();
    if index(count) / 2 < length {
        bail!("the chain has at most half of the {count} chunks");
    }
    while chain.len() < length {
        let number = u32::try_from(random.below(u64::from(count))).context("below 32 bits")?;
        if seen.insert(number) {
            chain.push(number);
        }
    }
    Ok(chain)
}

#[cfg(test)]
pub mod tests {
    use std::os::unix::fs::FileExt;

    use busload_chunks::Stored;
    use bytes::Bytes;

    use super::*;
    use crate::{
        cleanup::{Cleanup, Directory},
        experiment::chunks::contents,
    };

    /// A store of two files, 600 chunks and a chain of 50.
    pub fn small() -> (Directory, Store) {
        let directory = Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let design = Design {
            files: 2,
            chunks_per_file: 300,
            chunk_bytes: vec![4_096, 1_000],
            filler: Filler::Half,
            chain: 50,
            seed: 1,
        };
        let store = Store::make(&directory.path().join("store"), &design).unwrap();
        (directory, store)
    }

    fn read(store: &Store, number: u32) -> Bytes {
        let entry = store.entry(number);
        let path = store.directory.join(&store.files[index(entry.file)].name);
        let span = entry.location.span;
        let mut bytes = vec![0; index(span.length)];
        fs::File::open(&path).unwrap().read_exact_at(&mut bytes, span.offset).unwrap();
        Stored::parse(bytes.into(), &entry.location).unwrap().decode(None).unwrap()
    }

    #[test]
    fn every_chunk_is_where_the_store_says() {
        let (_directory, store) = small();
        assert_eq!((store.count(), store.files.len()), (600, 2));
        for number in 0..600 {
            let contents = read(&store, number);
            assert_eq!(contents::number(&contents), Some(u64::from(number)));
            assert_eq!(ChunkAddress::of(&contents), store.entry(number).address);
            assert_eq!(store.find(&store.entry(number).address), Some(number));
        }
        let (mean, ratio) = store.means();
        assert!(
            (2_547.9..2_548.1).contains(&mean) && (0.45..0.58).contains(&ratio),
            "{mean} {ratio}"
        );
        assert_eq!(std::fs::read_dir(&store.directory).unwrap().count(), 3);
    }

    #[test]
    fn the_chain_leads_through_every_of_its_chunks() {
        let (_directory, store) = small();
        let mut followed = vec![store.chain[0]];
        while let Some(address) = contents::next(&read(&store, *followed.last().unwrap())) {
            followed.push(store.find(&address).unwrap());
        }
        assert_eq!(followed, store.chain);
        assert_eq!(followed.len(), 50);
    }

    #[test]
    fn chunks_that_are_apart_are_in_extents_of_their_own() {
        let design = Design {
            files: 1,
            chunks_per_file: 4_000,
            chunk_bytes: vec![4_096],
            filler: Filler::Half,
            chain: 0,
            seed: 1,
        };
        let directory = Cleanup::default().directory(&std::env::temp_dir()).unwrap();
        let store = Store::make(directory.path(), &design).unwrap();
        let mut extents: Vec<_> = store
            .apart
            .iter()
            .map(|number| store.entry(*number).location.span.offset / 1_047_552)
            .collect();
        assert!(5 < extents.len());
        extents.sort_unstable();
        extents.dedup();
        assert_eq!(extents.len(), store.apart.len());
    }
}
