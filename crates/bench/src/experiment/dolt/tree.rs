//! A store as pushes of Dolt make it: a tree whose chunks name their children; each push is a
//! table file with what it adds.
//!
//! ```text
//!   root --> commit --> root value --> table --> levels of nodes --> leaves
//!
//!   a chunk: count of children (2, big-endian) | seed of the filler (8) | addresses of the
//!            children (20 each) | filler that compresses about 2:1
//! ```
//!
//! A push replaces leaves and adds others at the end: nodes above leaves that it does not touch
//! keep their contents, and so their addresses.

use std::{collections::HashSet, path::Path};

use anyhow::Result;
use busload_chunks::{ChunkAddress, FileKind};

use super::arguments::Design;
use crate::{
    progress::Progress,
    random::Random,
    stats::float_of,
    store::{Filler, Store, fill},
};

/// Children of a node that is not the last of its level.
const CHILDREN: usize = 300;

/// Bytes of a node per child: an address and a short key.
const CHILD_BYTES: usize = 30;

/// Number of leaves of which a push replaces one.
const REPLACED: u64 = 100;

/// Bytes of a chunk before the addresses.
const HEADER_BYTES: usize = 10;

/// A tree on disk, and what everybody who measures knows of it.
#[derive(Debug)]
pub struct TreeStore {
    pub store: Store,
    /// Address that the manifest names.
    pub root: ChunkAddress,
    /// Leaves of the current version, in the order of a scan.
    pub leaves: Vec<ChunkAddress>,
    /// Chunks of the current version: what a scan reads.
    pub current: usize,
    /// Bytes of all leaves of the current version as they are in the files.
    pub leaves_bytes: u64,
    /// Inner nodes of all versions.
    known: HashSet<ChunkAddress>,
    random: Random,
}

impl TreeStore {
    pub fn make(directory: &Path, design: &Design) -> Result<Self> {
        let mut tree = Self {
            store: Store::create(directory)?,
            root: ChunkAddress::ZERO,
            leaves: Vec::new(),
            current: 0,
            leaves_bytes: 0,
            known: HashSet::new(),
            random: Random::new(design.seed),
        };
        let total = u64::try_from(design.pushes).expect("a number of pushes");
        let mut progress = Progress::begin("making the store", "pushes", 0, total);
        for (done, push) in (1..).zip(0..design.pushes) {
            let is_classic = float_of(push) + 0.5 < float_of(design.pushes) * design.classic;
            let kind = if is_classic { FileKind::Classic } else { FileKind::Archive };
            let chunks = tree.push(design);
            tree.store.add_file(kind, |push| {
                chunks.iter().try_for_each(|contents| push(contents).map(drop))
            })?;
            progress.show(done);
        }
        tree.store.write_manifest(tree.root)?;
        let leaves = tree.leaves.iter().filter_map(|leaf| tree.store.find(leaf));
        tree.leaves_bytes = leaves.map(|leaf| u64::from(leaf.location.span.length)).sum();
        Ok(tree)
    }

    /// Returns the contents of the chunks that a push adds, in the order of a walk from the root,
    /// level by level.
    fn push(&mut self, design: &Design) -> Vec<Vec<u8>> {
        let mut levels = vec![self.grow(design)];
        let mut nodes = self.leaves.clone();
        self.current = nodes.len() + 4;
        while 1 < nodes.len() {
            let (addresses, added) = self.level(&nodes);
            self.current += addresses.len();
            nodes = addresses;
            levels.push(added);
        }
        levels.push(self.top(&nodes));
        levels.into_iter().rev().flatten().collect()
    }

    /// Replaces some leaves and adds others; returns the new ones, in order.
    fn grow(&mut self, design: &Design) -> Vec<Vec<u8>> {
        let before = self.leaves.len();
        self.leaves.resize(before + design.leaves, ChunkAddress::ZERO);
        let mut added = Vec::new();
        for (position, address) in self.leaves.iter_mut().enumerate() {
            if before <= position || self.random.below(REPLACED) == 0 {
                // A quarter of the mean to seven quarters, most of them near the mean.
                let mut part = || self.random.below(design.leaf_bytes * 3 / 4 + 1);
                let bytes = design.leaf_bytes / 4 + part() + part();
                let bytes = usize::try_from(bytes).expect("less than two means");
                let leaf = make(self.random.next(), &[], bytes);
                *address = ChunkAddress::of(&leaf);
                added.push(leaf);
            }
        }
        added
    }

    /// Returns the nodes above these, and the contents of those of them that are new.
    fn level(&mut self, below: &[ChunkAddress]) -> (Vec<ChunkAddress>, Vec<Vec<u8>>) {
        let (mut addresses, mut added) = (Vec::new(), Vec::new());
        for children in below.chunks(CHILDREN) {
            // The contents are those of the children and of nothing else, so that the same node has
            // the same address.
            let node = make(children[0].prefix(), children, children.len() * CHILD_BYTES);
            let address = ChunkAddress::of(&node);
            addresses.push(address);
            if self.known.insert(address) {
                added.push(node);
            }
        }
        (addresses, added)
    }

    /// Makes the chunks above the tree of rows: root, commit, root value, table.
    fn top(&mut self, nodes: &[ChunkAddress]) -> Vec<Vec<u8>> {
        let seed = self.random.next();
        let table = make(seed, nodes, 400);
        let value = make(seed, &[ChunkAddress::of(&table)], 500);
        let commit = make(seed, &[ChunkAddress::of(&value)], 300);
        let root = make(seed, &[ChunkAddress::of(&commit)], 60);
        self.root = ChunkAddress::of(&root);
        vec![root, commit, value, table]
    }
}

/// Makes the contents of a chunk, of so many bytes or as many as it needs.
fn make(seed: u64, children: &[ChunkAddress], bytes: usize) -> Vec<u8> {
    let count = u16::try_from(children.len()).expect("nodes have hundreds of children");
    let mut contents = Vec::with_capacity(bytes);
    contents.extend(count.to_be_bytes());
    contents.extend(seed.to_be_bytes());
    contents.extend(children.iter().flat_map(|child| child.0));
    fill(&mut contents, seed, Filler::Half, bytes);
    contents
}

/// Returns the children that a chunk names, in order; a leaf has none. `None`: this is no chunk.
pub fn children(contents: &[u8]) -> Option<Vec<ChunkAddress>> {
    let (header, rest) = contents.split_first_chunk::<HEADER_BYTES>()?;
    let count = usize::from(u16::from_be_bytes([header[0], header[1]]));
    let (addresses, _) = rest.as_chunks::<{ ChunkAddress::BYTES }>();
    Some(addresses.get(..count)?.iter().map(|address| ChunkAddress(*address)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_are_no_chunk_of_a_store_are_refused() {
        let named = [ChunkAddress::of(b"one"), ChunkAddress::of(b"two")];
        let contents = make(7, &named, 0);
        assert_eq!(children(&contents), Some(named.to_vec()));
        for wrong in [&contents[..contents.len() - 1], &contents[..5], &[9; 100]] {
            assert_eq!(children(wrong), None);
        }
    }
}
