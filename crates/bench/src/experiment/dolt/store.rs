//! A store as Dolt writes one: a tree whose chunks name their children, written by several pushes,
//! each a table file.

pub mod contents;
mod tree;

use std::{collections::HashMap, fs, path::Path};

use anyhow::{Context, Result, bail};
use busload_chunks::{ChunkAddress, ChunkLocation, FileKind};

use self::tree::{Chunk, Growth, Tree};
use crate::{
    random::Random,
    stats::{float, float_of},
    table_files::{TableFile, Written, write, write_manifest},
};

/// Order of the chunks in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// As a push meets them: from the root down, level by level
    Walk,
    /// Any
    Random,
}

/// Design of a store.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// Pushes, so table files.
    pub pushes: usize,
    /// Leaves that each adds.
    pub leaves_per_push: usize,
    /// Share of the leaves before them that each replaces.
    pub replaced: f64,
    /// Mean bytes of a leaf, before it is compressed.
    pub leaf_bytes: usize,
    /// Share of the files that are classic; the others are archives.
    pub classic: f64,
    /// The order of chunks in a file.
    pub order: Order,
    /// Decides everything that is drawn.
    pub seed: u64,
}

impl Default for Design {
    /// About 200 MiB in six archives.
    fn default() -> Self {
        Self {
            pushes: 6,
            leaves_per_push: 16_000,
            replaced: 0.01,
            leaf_bytes: 4_096,
            classic: 0.0,
            order: Order::Walk,
            seed: 1,
        }
    }
}

/// Chunk of the store.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub file: usize,
    pub location: ChunkLocation,
    /// Bytes of its contents.
    pub contents_bytes: usize,
}

/// A store on disk, and what everybody who measures knows of it.
#[derive(Debug)]
pub struct Store {
    /// Address that the manifest names.
    pub root: ChunkAddress,
    /// The table files, in the order of the pushes.
    pub files: Vec<TableFile>,
    /// Leaves of the current version, in the order of a scan.
    pub leaves: Vec<ChunkAddress>,
    /// Chunks of the current version: what a scan reads.
    pub current: usize,
    entries: HashMap<ChunkAddress, Entry>,
}

impl Store {
    pub fn make(directory: &Path, design: &Design) -> Result<Self> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let mut store = Self {
            root: ChunkAddress::ZERO,
            files: Vec::with_capacity(design.pushes),
            leaves: Vec::new(),
            current: 0,
            entries: HashMap::new(),
        };
        let mut tree = Tree::new(design.seed);
        let mut random = Random::new(!design.seed);
        let mut specs = Vec::with_capacity(design.pushes);
        for push in 0..design.pushes {
            let mut chunks = tree.push(&growth(design));
            if design.order == Order::Random {
                random.shuffle(&mut chunks);
            }
            let written = write(directory, kind(design, push), |push| {
                chunks.iter().try_for_each(|chunk| push(&chunk.contents).map(drop))
            })?;
            specs.push(written.spec);
            store.add(written, &chunks)?;
        }
        write_manifest(directory, tree.root(), &specs)?;
        (store.root, store.current) = (tree.root(), tree.current());
        store.leaves = tree.leaves().to_vec();
        Ok(store)
    }

    fn add(&mut self, written: Written, chunks: &[Chunk]) -> Result<()> {
        let file = self.files.len();
        for chunk in chunks {
            let position = written.index.find(&chunk.address);
            let position = position.context("a chunk just written is not in its file's index")?;
            let location = written.index.location(position);
            let entry = Entry { file, location, contents_bytes: chunk.contents.len() };
            if self.entries.insert(chunk.address, entry).is_some() {
                bail!("two chunks of the store have the address {}", chunk.address);
            }
        }
        self.files.push(written.file);
        Ok(())
    }

    /// Returns where a chunk is.
    pub fn find(&self, address: &ChunkAddress) -> Option<&Entry> {
        self.entries.get(address)
    }

    /// Counts all chunks, those of earlier versions included.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Chunks that can be reached from the root and were not written by the first `had` pushes. All
    /// can be reached but the roots of earlier pushes, which nothing names any more.
    pub fn reachable(&self, had: usize) -> usize {
        let written = self.entries.values().filter(|entry| had <= entry.file).count();
        written - self.files.len().saturating_sub(had + 1)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Bytes of all contents.
    pub fn contents_bytes(&self) -> usize {
        self.entries.values().map(|entry| entry.contents_bytes).sum()
    }

    /// Mean bytes of contents, and of the files by those of all contents: how well the store is
    /// compressed.
    pub fn means(&self) -> (f64, f64) {
        let contents = float_of(self.contents_bytes());
        let count = float_of(self.count().max(1));
        (contents / count, float(self.bytes()) / contents.max(1.0))
    }
}

fn growth(design: &Design) -> Growth {
    let Design { leaves_per_push: leaves, replaced, leaf_bytes, .. } = *design;
    Growth { leaves, replaced, leaf_bytes }
}

/// Classic files are spread over the pushes.
fn kind(design: &Design, push: usize) -> FileKind {
    let until = |push: usize| (float_of(push) * design.classic.clamp(0.0, 1.0) + 1e-9).floor();
    if until(push) < until(push + 1) { FileKind::Classic } else { FileKind::Archive }
}

#[cfg(test)]
pub mod tests;
