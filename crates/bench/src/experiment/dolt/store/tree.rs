//! The tree of a store as it grows: what each push adds to it.
//!
//! ```text
//!   root --> commit --> root value --> table --> levels of nodes --> leaves
//!              |
//!              +--> the commit of the push before
//! ```
//!
//! Where a node ends is decided by the addresses of its children, as in a prolly tree: what a push
//! does not touch keeps its nodes, and so their addresses.

use std::collections::HashSet;

use busload_chunks::ChunkAddress;

use super::contents::{Kind, make};
use crate::random::Random;

/// Fewest children of a node that is not the last of its level.
pub const CHILDREN_MIN: usize = 100;

/// Most children of a node.
pub const CHILDREN_MAX: usize = 650;

/// Between the two a node ends at one child in so many.
const CHILDREN_STEP: u64 = 200;

/// Bytes of a node per child: an address and a short key.
const CHILD_BYTES: usize = 30;

/// Sizes of chunks that are in no level: root, commit, root value, table.
const ROOT_BYTES: usize = 60;
const COMMIT_BYTES: usize = 300;
const ROOT_VALUE_BYTES: usize = 500;
const TABLE_BYTES: usize = 400;

/// A chunk that a push adds.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub address: ChunkAddress,
    pub contents: Vec<u8>,
}

impl Chunk {
    fn new(contents: Vec<u8>) -> Self {
        Self { address: ChunkAddress::of(&contents), contents }
    }
}

/// Growth of a tree by one push.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Leaves that a push adds behind the last.
    pub leaves: usize,
    /// Share of the leaves before them that it replaces.
    pub replaced: f64,
    /// Mean bytes of a leaf.
    pub leaf_bytes: usize,
}

/// The current version, and what is needed for the next.
#[derive(Debug)]
pub struct Tree {
    random: Random,
    /// Decides the contents of leaves; none is used twice.
    seed: u64,
    made: u64,
    /// The leaves of the current version.
    leaves: Vec<ChunkAddress>,
    /// Inner nodes of all versions.
    known: HashSet<ChunkAddress>,
    commit: Option<ChunkAddress>,
    root: ChunkAddress,
    current: usize,
}

impl Tree {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            seed,
            made: 0,
            leaves: Vec::new(),
            known: HashSet::new(),
            commit: None,
            root: ChunkAddress::ZERO,
            current: 0,
        }
    }

    /// Address that the manifest names.
    pub fn root(&self) -> ChunkAddress {
        self.root
    }

    /// Leaves of the current version, in order.
    pub fn leaves(&self) -> &[ChunkAddress] {
        &self.leaves
    }

    /// Chunks of the current version.
    pub fn current(&self) -> usize {
        self.current
    }

    /// The chunks that a push adds, in the order of a walk from the root, level by level.
    pub fn push(&mut self, growth: &Growth) -> Vec<Chunk> {
        let mut levels = vec![self.grow(growth)];
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

    /// Replaces some leaves and adds others; the new ones, in order.
    fn grow(&mut self, growth: &Growth) -> Vec<Chunk> {
        let before = self.leaves.len();
        let mut positions: Vec<usize> =
            (0..before).filter(|_| self.draws(growth.replaced)).collect();
        positions.extend(before..before + growth.leaves);
        self.leaves.resize(before + growth.leaves, ChunkAddress::ZERO);
        let mut added = Vec::with_capacity(positions.len());
        for position in positions {
            let leaf = self.leaf(growth.leaf_bytes);
            self.leaves[position] = leaf.address;
            added.push(leaf);
        }
        added
    }

    fn draws(&mut self, share: f64) -> bool {
        // 53 bits are what an f64 holds.
        let drawn = crate::stats::float(self.random.next() >> 11) / crate::stats::float(1 << 53);
        drawn < share
    }

    /// Makes a leaf of a quarter of the mean to seven quarters, most of them near the mean.
    fn leaf(&mut self, mean_bytes: usize) -> Chunk {
        let mean = u64::try_from(mean_bytes).expect("a size fits in 64 bits");
        let bytes =
            mean / 4 + self.random.below(mean * 3 / 4 + 1) + self.random.below(mean * 3 / 4 + 1);
        self.made += 1;
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.made;
        Chunk::new(make(
            Kind::Leaf,
            seed,
            &[],
            usize::try_from(bytes).expect("less than two means"),
        ))
    }

    /// The nodes above these, and those of them that are new.
    fn level(&mut self, children: &[ChunkAddress]) -> (Vec<ChunkAddress>, Vec<Chunk>) {
        let (mut addresses, mut added) = (Vec::new(), Vec::new());
        let mut rest = children;
        while !rest.is_empty() {
            let (children, after) = rest.split_at(node_children(rest));
            rest = after;
            // The contents are those of the children and of nothing else, so that the same node has
            // the same address.
            let seed = children[0].prefix();
            let node = Chunk::new(make(Kind::Inner, seed, children, children.len() * CHILD_BYTES));
            addresses.push(node.address);
            if self.known.insert(node.address) {
                added.push(node);
            }
        }
        (addresses, added)
    }

    /// Makes the chunks above the tree of rows.
    fn top(&mut self, nodes: &[ChunkAddress]) -> Vec<Chunk> {
        self.made += 1;
        let seed = self.made;
        let table = Chunk::new(make(Kind::Table, seed, nodes, TABLE_BYTES));
        let value = Chunk::new(make(Kind::RootValue, seed, &[table.address], ROOT_VALUE_BYTES));
        let of_commit: Vec<_> = [Some(value.address), self.commit].into_iter().flatten().collect();
        let commit = Chunk::new(make(Kind::Commit, seed, &of_commit, COMMIT_BYTES));
        let root = Chunk::new(make(Kind::Root, seed, &[commit.address], ROOT_BYTES));
        self.commit = Some(commit.address);
        self.root = root.address;
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::experiment::dolt::store::contents::Node;

    const GROWTH: Growth = Growth { leaves: 3_000, replaced: 0.0, leaf_bytes: 256 };

    fn nodes(chunks: &[Chunk]) -> HashMap<ChunkAddress, Node> {
        chunks.iter().map(|chunk| (chunk.address, Node::parse(&chunk.contents).unwrap())).collect()
    }

    /// Walks everything below an address, depth first.
    fn walk(
        nodes: &HashMap<ChunkAddress, Node>,
        from: ChunkAddress,
        leaves: &mut Vec<ChunkAddress>,
    ) -> usize {
        let node = &nodes[&from];
        if node.kind == Kind::Leaf {
            leaves.push(from);
        }
        1 + node.current().iter().map(|child| walk(nodes, *child, leaves)).sum::<usize>()
    }

    #[test]
    fn a_walk_from_the_root_finds_every_leaf_in_order() {
        let mut tree = Tree::new(1);
        let mut all = tree.push(&GROWTH);
        all.extend(tree.push(&Growth { replaced: 0.05, ..GROWTH }));
        let (nodes, mut leaves) = (nodes(&all), Vec::new());
        assert_eq!(nodes.len(), all.len());
        let count = walk(&nodes, tree.root(), &mut leaves);
        assert_eq!(count, tree.current());
        assert_eq!(leaves, tree.leaves());
        assert_eq!(leaves.len(), 6_000);
    }

    #[test]
    fn nodes_have_100_to_650_children_but_for_the_last_of_a_level() {
        let mut tree = Tree::new(2);
        let chunks = tree.push(&Growth { leaves: 20_000, ..GROWTH });
        let nodes = nodes(&chunks);
        let inner = |node: &&Node| node.kind == Kind::Inner;
        let counts: Vec<_> = nodes.values().filter(inner).map(|node| node.children.len()).collect();
        assert!(counts.iter().all(|count| *count <= CHILDREN_MAX));
        // Two levels, one of them a single node.
        assert!(counts.iter().filter(|count| **count < CHILDREN_MIN).count() <= 2);
        assert!((20_000 / 400..20_000 / 200).contains(&counts.len()), "{}", counts.len());
        let sizes = chunks.iter().filter(|chunk| nodes[&chunk.address].kind == Kind::Inner);
        assert!(sizes.map(|chunk| chunk.contents.len()).all(|bytes| bytes <= 20_000));
    }

    #[test]
    fn a_push_adds_only_what_is_new() {
        let mut tree = Tree::new(3);
        let first = tree.push(&Growth { leaves: 10_000, ..GROWTH });
        let second = tree.push(&Growth { leaves: 1, ..GROWTH });
        // One leaf, the last node of each level, and what is above.
        assert!((5..12).contains(&second.len()), "{}", second.len());
        let known: HashSet<_> = first.iter().map(|chunk| chunk.address).collect();
        assert!(second.iter().all(|chunk| !known.contains(&chunk.address)));
        assert!(Node::parse(&second[1].contents).unwrap().children.contains(&first[1].address));
    }

    #[test]
    fn parents_come_before_their_children() {
        let mut tree = Tree::new(4);
        let chunks = tree.push(&GROWTH);
        let mut seen: HashSet<ChunkAddress> = [tree.root()].into();
        for chunk in &chunks {
            assert!(seen.contains(&chunk.address));
            seen.extend(Node::parse(&chunk.contents).unwrap().children);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_tree() {
        let made = |seed| {
            let mut tree = Tree::new(seed);
            tree.push(&GROWTH);
            tree.push(&Growth { replaced: 0.1, ..GROWTH });
            tree.root()
        };
        assert_eq!(made(5), made(5));
        assert_ne!(made(5), made(6));
    }
}
