//! Walks: which chunks are read in which order by a fetch, a scan, point reads.

use std::collections::{HashMap, HashSet};

use busload_chunks::ChunkAddress;
use bytes::Bytes;

use super::{
    http::{count, wrong},
    since,
};
use crate::{
    clock::now_ns,
    experiment::dolt::tree::{Node, TreeKind, TreeStore},
    failures::Failure,
    random::Random,
};

/// Command of Dolt that is replayed.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Downloads of whole files.
    Clone,
    /// All chunks of the current version, node by node.
    Scan,
    /// So many chains from the root to a leaf.
    Point { chains: usize, seed: u64 },
    /// Everything that was not written by the first `had` pushes.
    Fetch { had: usize },
}

/// Function that takes a chunk and returns the chunks to read because of it.
pub type Visit<'a> = dyn FnMut(ChunkAddress, Bytes) -> Result<Vec<ChunkAddress>, Failure> + 'a;

pub trait Reads {
    /// Reads these chunks and all those that `visit` wants with one fetch object, as they become
    /// known, until there are no more.
    async fn walk(&self, from: Vec<ChunkAddress>, visit: &mut Visit<'_>) -> Result<(), Failure>;

    /// Reads these chunks with one fetch object and parses them, in the order of the addresses.
    async fn read(&self, addresses: &[ChunkAddress]) -> Result<Vec<Node>, Failure> {
        let mut nodes = HashMap::with_capacity(addresses.len());
        let mut keep = |address, contents: Bytes| {
            nodes.insert(address, parse(&contents)?);
            Ok(Vec::new())
        };
        self.walk(addresses.to_vec(), &mut keep).await?;
        let missing = |address| wrong(address, "the walk ended without it");
        let of = |address| nodes.remove(address).ok_or_else(|| missing(address));
        addresses.iter().map(of).collect()
    }

    async fn one(&self, address: ChunkAddress) -> Result<Node, Failure> {
        let node = self.read(&[address]).await?.pop();
        node.ok_or_else(|| wrong(address, "nothing was read"))
    }
}

fn parse(contents: &[u8]) -> Result<Node, Failure> {
    Node::parse(contents).map_err(|error| wrong("contents", error))
}

/// Reads chunk by chunk; how long each part took.
pub async fn walk(reads: &impl Reads, tree: &TreeStore, work: Work) -> Result<Vec<u64>, Failure> {
    match work {
        Work::Clone => Err(wrong("clone", "whole files are downloaded, not walked")),
        Work::Scan => scan(reads, tree).await,
        Work::Point { chains, seed } => point(reads, tree, chains, seed).await,
        Work::Fetch { had } => fetch(reads, tree, had).await.map(|()| Vec::new()),
    }
}

/// Reads everything that can be reached from the root and was not written by the first pushes.
async fn fetch(reads: &impl Reads, tree: &TreeStore, had: usize) -> Result<(), Failure> {
    let is_had = |address: &ChunkAddress| {
        tree.store.find(address).is_some_and(|chunk| count(had) > u64::from(chunk.file))
    };
    let mut asked = HashSet::from([tree.root]);
    let mut visit = |_, contents: Bytes| {
        let children = parse(&contents)?.children;
        Ok(children.into_iter().filter(|child| !is_had(child) && asked.insert(*child)).collect())
    };
    reads.walk(vec![tree.root], &mut visit).await?;
    let expected = tree.reachable(had);
    if asked.len() == expected {
        return Ok(());
    }
    Err(wrong("fetch", format_args!("{} chunks, expected {expected}", asked.len())))
}

/// Reads the current version as a query over all rows does: for one node after the other all its
/// children at once. Returns how long each node took.
async fn scan(reads: &impl Reads, tree: &TreeStore) -> Result<Vec<u64>, Failure> {
    let mut parts_ns = Vec::new();
    let mut leaves = Vec::with_capacity(tree.leaves.len());
    // The next to visit is the last.
    let mut nodes = vec![reads.one(tree.root).await?];
    while let Some(node) = nodes.pop() {
        let began_ns = now_ns();
        let children = reads.read(node.current()).await?;
        parts_ns.push(since(began_ns));
        let is_leaf = |child: &Node| child.kind == TreeKind::Leaf;
        let named = node.current().iter().zip(&children);
        leaves.extend(named.filter(|(_, child)| is_leaf(child)).map(|(address, _)| *address));
        nodes.extend(children.into_iter().rev().filter(|child| !is_leaf(child)));
    }
    if leaves == tree.leaves {
        return Ok(parts_ns);
    }
    let expected = tree.leaves.len();
    Err(wrong("scan", format_args!("{} leaves, not the {expected} of the store", leaves.len())))
}

/// Reads chains of chunks from the root to a leaf, each named by the one before; how long each
/// chain took.
async fn point(
    reads: &impl Reads,
    tree: &TreeStore,
    chains: usize,
    seed: u64,
) -> Result<Vec<u64>, Failure> {
    let leaves: HashSet<_> = tree.leaves.iter().collect();
    let mut random = Random::new(seed);
    let mut parts_ns = Vec::with_capacity(chains);
    for _ in 0..chains {
        let began_ns = now_ns();
        let mut address = tree.root;
        loop {
            let node = reads.one(address).await?;
            if node.kind == TreeKind::Leaf {
                break;
            }
            let children = node.current();
            let drawn = random.below(count(children.len()).max(1));
            let drawn = children.get(usize::try_from(drawn).expect("below a count"));
            address = *drawn.ok_or_else(|| wrong(address, "a node without children"))?;
        }
        parts_ns.push(since(began_ns));
        if !leaves.contains(&address) {
            return Err(wrong("point", format_args!("{address} is no leaf of the store")));
        }
    }
    Ok(parts_ns)
}
