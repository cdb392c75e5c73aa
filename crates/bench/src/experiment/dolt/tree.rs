//! A store as pushes of Dolt make it: a tree whose chunks name their children; each push is a
//! table file with what it adds.
//!
//! ```text
//!   root --> commit --> root value --> table --> levels of nodes --> leaves
//!              |
//!              +--> the commit of the push before
//!
//!   a chunk: kind (1) | children (2, big-endian) | seed of the filler (8) | addresses of the
//!            children (20 each) | filler that compresses about 2:1
//! ```
//!
//! Where a node ends is decided by the addresses of its children, as in a prolly tree: what a push
//! does not touch keeps its nodes, and so their addresses.

use std::{collections::HashSet, path::Path};

use anyhow::{Context, Result, bail};
use busload_chunks::{ChunkAddress, FileKind};

use crate::{
    random::Random,
    stats::{float, float_of},
    store::{Filler, Store, fill, index},
};

/// Fewest children of a node that is not the last of its level.
const CHILDREN_MIN: usize = 100;

/// Most children of a node.
const CHILDREN_MAX: usize = 650;

/// Between the two a node ends at one child in so many.
const CHILDREN_STEP: u64 = 200;

/// Bytes of a node per child: an address and a short key.
const CHILD_BYTES: usize = 30;

/// Share of the leaves before it that a push replaces.
const REPLACED: f64 = 0.01;

/// Bytes of a chunk before the addresses.
const HEADER_BYTES: usize = 11;

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
    /// Mean bytes of a leaf, before it is compressed.
    pub leaf_bytes: usize,
    /// Share of the files that are classic, spread over the pushes; the others are archives.
    pub classic: f64,
    pub order: Order,
    /// Decides everything that is drawn.
    pub seed: u64,
}

impl Design {
    fn kind(&self, push: usize) -> FileKind {
        let until = |push: usize| (float_of(push) * self.classic.clamp(0.0, 1.0) + 1e-9).floor();
        if until(push) < until(push + 1) { FileKind::Classic } else { FileKind::Archive }
    }
}

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
}

impl TreeStore {
    pub fn make(directory: &Path, design: &Design) -> Result<Self> {
        let mut store = Store::create(directory)?;
        let mut tree = Tree::new(design);
        let mut random = Random::new(!design.seed);
        for push in 0..design.pushes {
            let mut chunks = tree.push();
            if design.order == Order::Random {
                random.shuffle(&mut chunks);
            }
            store.add_file(design.kind(push), |push| {
                chunks.iter().try_for_each(|contents| push(contents).map(drop))
            })?;
        }
        store.write_manifest(tree.root)?;
        Ok(Self { store, root: tree.root, leaves: tree.leaves, current: tree.current })
    }

    /// Counts the chunks that can be reached from the root and were not written by the first `had`
    /// pushes. All can be reached but the roots of earlier pushes, which nothing names any more.
    pub fn reachable(&self, had: usize) -> usize {
        let chunk_counts = self.store.files.iter().skip(had).map(|file| file.chunk_count);
        let written: u32 = chunk_counts.sum();
        index(written) - self.store.files.len().saturating_sub(had + 1)
    }

    /// Returns the bytes of all leaves of the current version as they are in the files.
    pub fn leaves_bytes(&self) -> u64 {
        let chunks = self.leaves.iter().filter_map(|leaf| self.store.find(leaf));
        chunks.map(|chunk| u64::from(chunk.location.span.length)).sum()
    }
}

/// The current version, and what is needed for the next.
struct Tree<'a> {
    design: &'a Design,
    random: Random,
    /// Chunks made so far: none has the contents of another.
    made: u64,
    /// Inner nodes of all versions.
    known: HashSet<ChunkAddress>,
    leaves: Vec<ChunkAddress>,
    commit: Option<ChunkAddress>,
    root: ChunkAddress,
    current: usize,
}

impl<'a> Tree<'a> {
    fn new(design: &'a Design) -> Self {
        Self {
            design,
            random: Random::new(design.seed),
            made: 0,
            known: HashSet::new(),
            leaves: Vec::new(),
            commit: None,
            root: ChunkAddress::ZERO,
            current: 0,
        }
    }

    /// Returns the contents of the chunks that a push adds, in the order of a walk from the root,
    /// level by level.
    fn push(&mut self) -> Vec<Vec<u8>> {
        let mut levels = vec![self.grow()];
        let mut nodes = self.leaves.clone();
        self.current = nodes.len() + 4;
        // One leaf alone gets a node, too.
        loop {
            let (addresses, added) = self.level(&nodes);
            self.current += addresses.len();
            nodes = addresses;
            levels.push(added);
            if nodes.len() <= 1 {
                break;
            }
        }
        levels.push(self.top(&nodes));
        levels.into_iter().rev().flatten().collect()
    }

    /// Replaces some leaves and adds others; returns the new ones, in order.
    fn grow(&mut self) -> Vec<Vec<u8>> {
        let before = self.leaves.len();
        // 53 bits are what an f64 holds.
        let mut draws = |_: &usize| float(self.random.next() >> 11) / float(1 << 53) < REPLACED;
        let mut positions: Vec<usize> = (0..before).filter(|leaf| draws(leaf)).collect();
        positions.extend(before..before + self.design.leaves_per_push);
        self.leaves.resize(before + self.design.leaves_per_push, ChunkAddress::ZERO);
        let mut added = Vec::with_capacity(positions.len());
        for position in positions {
            let leaf = self.leaf();
            self.leaves[position] = ChunkAddress::of(&leaf);
            added.push(leaf);
        }
        added
    }

    /// Makes a leaf of a quarter of the mean to seven quarters, most of them near the mean.
    fn leaf(&mut self) -> Vec<u8> {
        let mean = u64::try_from(self.design.leaf_bytes).expect("a size fits in 64 bits");
        let mut part = || self.random.below(mean * 3 / 4 + 1);
        let bytes = usize::try_from(mean / 4 + part() + part()).expect("less than two means");
        self.made += 1;
        let seed = self.design.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.made;
        make(TreeKind::Leaf, seed, &[], bytes)
    }

    /// Returns the nodes above these, and the contents of those of them that are new.
    fn level(&mut self, mut rest: &[ChunkAddress]) -> (Vec<ChunkAddress>, Vec<Vec<u8>>) {
        let (mut addresses, mut added) = (Vec::new(), Vec::new());
        while !rest.is_empty() {
            let (children, after) = rest.split_at(node_children(rest));
            rest = after;
            // The contents are those of the children and of nothing else, so that the same node has
            // the same address.
            let seed = children[0].prefix();
            let node = make(TreeKind::Inner, seed, children, children.len() * CHILD_BYTES);
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
        self.made += 1;
        let seed = self.made;
        let table = make(TreeKind::Table, seed, nodes, 400);
        let value = make(TreeKind::RootValue, seed, &[ChunkAddress::of(&table)], 500);
        let parents = [Some(ChunkAddress::of(&value)), self.commit];
        let parents: Vec<_> = parents.into_iter().flatten().collect();
        let commit = make(TreeKind::Commit, seed, &parents, 300);
        let of_commit = ChunkAddress::of(&commit);
        let root = make(TreeKind::Root, seed, &[of_commit], 60);
        self.commit = Some(of_commit);
        self.root = ChunkAddress::of(&root);
        vec![root, commit, value, table]
    }
}

/// Returns how many of these the first node takes.
fn node_children(rest: &[ChunkAddress]) -> usize {
    let most = rest.len().min(CHILDREN_MAX);
    let ends = |child: &ChunkAddress| child.prefix().is_multiple_of(CHILDREN_STEP);
    let among = rest[..most].iter().skip(CHILDREN_MIN - 1).position(ends);
    among.map_or(most, |position| position + CHILDREN_MIN)
}

/// Kind of a chunk: the first byte of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// The chunk that the manifest names; its child is a commit.
    Root,
    /// The root value first, then parents.
    Commit,
    RootValue,
    /// The root of its rows.
    Table,
    /// A node of the tree of rows, above others or above leaves.
    Inner,
    Leaf,
}

/// Kinds in the order of their bytes.
const KINDS: [TreeKind; 6] = [
    TreeKind::Root,
    TreeKind::Commit,
    TreeKind::RootValue,
    TreeKind::Table,
    TreeKind::Inner,
    TreeKind::Leaf,
];

/// Makes the contents of a chunk, of so many bytes or as many as it needs.
fn make(kind: TreeKind, seed: u64, children: &[ChunkAddress], bytes: usize) -> Vec<u8> {
    let kind = KINDS.iter().position(|known| *known == kind).expect("all kinds are in the list");
    let count = u16::try_from(children.len()).expect("nodes have hundreds of children");
    let mut contents = vec![u8::try_from(kind).expect("few kinds")];
    contents.extend_from_slice(&count.to_be_bytes());
    contents.extend_from_slice(&seed.to_be_bytes());
    contents.extend(children.iter().flat_map(|child| child.0));
    fill(&mut contents, seed, Filler::Half, bytes);
    contents
}

/// Parsed contents of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: TreeKind,
    /// The chunks it names, in order.
    pub children: Vec<ChunkAddress>,
}

impl Node {
    /// Parses a chunk's contents.
    pub fn parse(contents: &[u8]) -> Result<Self> {
        let header: &[u8; HEADER_BYTES] =
            contents.first_chunk().context("a chunk without a header")?;
        let kind = KINDS.get(usize::from(header[0])).context("a chunk of no known kind")?;
        let count = usize::from(u16::from_be_bytes([header[1], header[2]]));
        let addresses = contents[HEADER_BYTES..].as_chunks::<{ ChunkAddress::BYTES }>().0;
        let Some(addresses) = addresses.get(..count) else {
            bail!("a chunk of {} bytes with {count} children", contents.len())
        };
        let children = addresses.iter().map(|bytes| ChunkAddress(*bytes)).collect();
        Ok(Self { kind: *kind, children })
    }

    /// Returns the children that belong to the same version of the store: a commit's parents do
    /// not.
    pub fn current(&self) -> &[ChunkAddress] {
        match self.kind {
            TreeKind::Commit => &self.children[..self.children.len().min(1)],
            _ => &self.children,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Three files with some 1,300 small leaves each, two of them archives with dictionaries.
    pub fn small() -> Design {
        Design {
            pushes: 3,
            leaves_per_push: 1_300,
            leaf_bytes: 700,
            classic: 0.34,
            order: Order::Walk,
            seed: 1,
        }
    }

    fn parsed(chunks: &[Vec<u8>]) -> Vec<(ChunkAddress, Node)> {
        let node = |chunk: &Vec<u8>| (ChunkAddress::of(chunk), Node::parse(chunk).unwrap());
        chunks.iter().map(node).collect()
    }

    #[test]
    fn parents_come_before_their_children_and_a_push_adds_only_what_is_new() {
        let design = Design { leaves_per_push: 20_000, leaf_bytes: 64, ..small() };
        let mut tree = Tree::new(&design);
        let first = parsed(&tree.push());
        let mut seen = HashSet::from([tree.root]);
        for (address, node) in &first {
            assert!(seen.contains(address));
            seen.extend(node.children.iter().copied());
        }
        assert_eq!((seen.len(), first.len()), (tree.current, tree.current));
        // But for the last of each of two levels, nodes have 100 to 650 children.
        let inner = first.iter().filter(|(_, node)| node.kind == TreeKind::Inner);
        let counts: Vec<_> = inner.map(|(_, node)| node.children.len()).collect();
        assert!(counts.iter().all(|count| *count <= CHILDREN_MAX));
        assert!(counts.iter().filter(|count| **count < CHILDREN_MIN).count() <= 2);
        let one_more = Design { leaves_per_push: 1, ..design };
        tree.design = &one_more;
        let second = parsed(&tree.push());
        assert!(second.iter().all(|(address, _)| !seen.contains(address)));
        // A hundredth of the leaves is replaced, the nodes above them are new.
        assert!((100..400).contains(&second.len()), "{}", second.len());
        assert_eq!(second[1].1.children[1], first[1].0);
        assert_eq!(second[1].1.current().len(), 1);
    }

    #[test]
    fn contents_that_are_no_chunk_of_a_store_are_an_error() {
        let contents = make(TreeKind::Inner, 7, &[ChunkAddress::ZERO; 3], 0);
        assert_eq!(Node::parse(&contents).unwrap().children, [ChunkAddress::ZERO; 3]);
        for wrong in [&contents[..contents.len() - 1], &contents[..5], &[9; 100]] {
            assert!(Node::parse(wrong).is_err());
        }
    }
}
