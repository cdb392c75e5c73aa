//! Walks: which chunks are read in which order by a fetch, a scan, point reads.

use std::collections::HashSet;

use busload_chunks::ChunkAddress;
use bytes::Bytes;
use futures_util::future::try_join_all;

use super::failure::wrong;
use crate::{
    clock::now_ns,
    experiment::dolt::store::{
        Store,
        contents::{Kind, Node},
    },
    failures::Failure,
    random::Random,
};

/// Function that takes a chunk and returns the chunks to read because of it.
pub type Visit<'a> = dyn FnMut(ChunkAddress, Bytes) -> Result<Vec<ChunkAddress>, Failure> + 'a;

pub trait Reads {
    /// Reads these chunks and all those that `visit` wants with one fetch object, as they become
    /// known, until there are no more.
    async fn walk(&self, from: Vec<ChunkAddress>, visit: &mut Visit<'_>) -> Result<(), Failure>;

    /// Reads these chunks with one fetch object; their contents in the order of the addresses.
    async fn read(&self, addresses: &[ChunkAddress]) -> Result<Vec<Bytes>, Failure> {
        let mut contents = std::collections::HashMap::with_capacity(addresses.len());
        let mut keep = |address, bytes| {
            contents.insert(address, bytes);
            Ok(Vec::new())
        };
        self.walk(addresses.to_vec(), &mut keep).await?;
        let of = |address| {
            contents
                .get(address)
                .cloned()
                .ok_or_else(|| wrong(address, "the walk ended without it"))
        };
        addresses.iter().map(of).collect()
    }

    async fn one(&self, address: ChunkAddress) -> Result<Node, Failure> {
        let contents = self.read(&[address]).await?;
        contents
            .first()
            .map_or_else(|| Err(wrong(address, "nothing was read")), |contents| parse(contents))
    }
}

fn parse(contents: &[u8]) -> Result<Node, Failure> {
    Node::parse(contents).map_err(|error| wrong("contents", error))
}

/// Reads everything that can be reached from the root and was not written by the first `had`
/// pushes.
pub async fn fetch(
    reads: &impl Reads,
    store: &Store,
    root: ChunkAddress,
    had: usize,
) -> Result<(), Failure> {
    let is_had = |address: &ChunkAddress| store.find(address).is_some_and(|entry| entry.file < had);
    if is_had(&root) {
        return Ok(());
    }
    let mut asked = HashSet::from([root]);
    let mut visit = |_, contents: Bytes| {
        let children = parse(&contents)?.children;
        Ok(children.into_iter().filter(|child| !is_had(child) && asked.insert(*child)).collect())
    };
    reads.walk(vec![root], &mut visit).await?;
    let expected = store.reachable(had);
    if asked.len() == expected {
        return Ok(());
    }
    Err(wrong("fetch", format_args!("{} chunks, expected {expected}", asked.len())))
}

/// Reads the current version as a query over all rows does: for one node after the other all its
/// children at once. How long each took.
pub async fn scan(
    reads: &impl Reads,
    store: &Store,
    root: ChunkAddress,
) -> Result<Vec<u64>, Failure> {
    let mut parts_ns = Vec::new();
    let mut leaves = Vec::with_capacity(store.leaves.len());
    // The next to visit is the last.
    let mut nodes = vec![reads.one(root).await?];
    while let Some(node) = nodes.pop() {
        let children = node.current();
        let began_ns = now_ns();
        let contents = reads.read(children).await?;
        parts_ns.push(now_ns().saturating_sub(began_ns));
        let mut inner = Vec::new();
        for (address, contents) in children.iter().zip(&contents) {
            match parse(contents)? {
                Node { kind: Kind::Leaf, .. } => leaves.push(*address),
                node => inner.push(node),
            }
        }
        nodes.extend(inner.into_iter().rev());
    }
    if leaves == store.leaves {
        return Ok(parts_ns);
    }
    Err(wrong(
        "scan",
        format_args!("{} leaves, not the {} of the store", leaves.len(), store.leaves.len()),
    ))
}

#[derive(Clone, Copy, Debug)]
pub struct Points {
    pub chains: usize,
    /// by how many readers at once.
    pub readers: usize,
    pub seed: u64,
}

/// Reads chains of chunks from the root to a leaf, each named by the one before; how long each
/// chain took.
pub async fn point(
    reads: &impl Reads,
    store: &Store,
    root: ChunkAddress,
    points: &Points,
) -> Result<Vec<u64>, Failure> {
    let leaves: HashSet<_> = store.leaves.iter().copied().collect();
    let readers = points.readers.max(1);
    let read_by = |reader: usize| {
        let chains = points.chains / readers + usize::from(reader < points.chains % readers);
        let seed =
            points.seed.wrapping_add(u64::try_from(reader).expect("a count fits in 64 bits") << 32);
        chains_of(reads, root, chains, seed, &leaves)
    };
    Ok(try_join_all((0..readers).map(read_by)).await?.concat())
}

async fn chains_of(
    reads: &impl Reads,
    root: ChunkAddress,
    chains: usize,
    seed: u64,
    leaves: &HashSet<ChunkAddress>,
) -> Result<Vec<u64>, Failure> {
    let mut random = Random::new(seed);
    let mut parts_ns = Vec::with_capacity(chains);
    for _ in 0..chains {
        let began_ns = now_ns();
        let leaf = chain(reads, root, &mut random).await?;
        parts_ns.push(now_ns().saturating_sub(began_ns));
        if !leaves.contains(&leaf) {
            return Err(wrong("point", format_args!("{leaf} is no leaf of the store")));
        }
    }
    Ok(parts_ns)
}

async fn chain(
    reads: &impl Reads,
    root: ChunkAddress,
    random: &mut Random,
) -> Result<ChunkAddress, Failure> {
    let mut address = root;
    loop {
        let node = reads.one(address).await?;
        if node.kind == Kind::Leaf {
            return Ok(address);
        }
        let children = node.current();
        let count = u64::try_from(children.len()).expect("a count fits in 64 bits");
        let drawn = usize::try_from(random.below(count.max(1))).expect("below a count");
        address = *children.get(drawn).ok_or_else(|| wrong(address, "a node without children"))?;
    }
}
