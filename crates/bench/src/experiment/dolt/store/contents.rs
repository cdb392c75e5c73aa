//! Contents of chunks: a kind, the addresses of their children, filler. Nobody who walks needs to
//! know more than a chunk's contents.
//!
//! ```text
//!   kind (1) | children (2, big-endian) | seed of the filler (8) | addresses of the children
//!   (20 each) | filler that compresses about 2:1
//! ```

use anyhow::{Context, Result, bail};
use busload_chunks::ChunkAddress;

use crate::random::Random;

/// Bytes before the addresses.
const HEADER_BYTES: usize = 11;

/// Bytes of a piece of filler.
const PIECE_BYTES: usize = 64;

/// Random bytes of a piece; the rest is one of a few phrases.
const RANDOM_BYTES: usize = 28;

/// Phrases that rows of a table have in common, and a dictionary can learn.
const PHRASES: [&[u8; PIECE_BYTES - RANDOM_BYTES]; 4] = [
    b"{\"state\":\"shipped\",\"country\":\"Norway",
    b"{\"state\":\"ordered\",\"country\":\"Sweden",
    b"{\"state\":\"returned\",\"country\":\"Spain",
    b"{\"state\":\"invoiced\",\"country\":\"Italy",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
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
const KINDS: [Kind; 6] =
    [Kind::Root, Kind::Commit, Kind::RootValue, Kind::Table, Kind::Inner, Kind::Leaf];

/// Contents of a chunk.
///
/// # Panics
///
/// More than 65,535 children.
pub fn make(kind: Kind, seed: u64, children: &[ChunkAddress], bytes: usize) -> Vec<u8> {
    let mut contents = Vec::with_capacity(bytes.max(HEADER_BYTES) + PIECE_BYTES);
    let byte = KINDS.iter().position(|known| *known == kind).expect("all kinds are in the list");
    contents.push(u8::try_from(byte).expect("few kinds"));
    let count = u16::try_from(children.len()).expect("nodes have hundreds of children");
    contents.extend_from_slice(&count.to_be_bytes());
    contents.extend_from_slice(&seed.to_be_bytes());
    contents.extend(children.iter().flat_map(|child| child.0));
    fill(&mut contents, seed, bytes);
    contents
}

fn fill(contents: &mut Vec<u8>, seed: u64, bytes: usize) {
    let shortest = contents.len();
    let mut random = Random::new(seed);
    while contents.len() < bytes {
        let piece = contents.len();
        while contents.len() < piece + RANDOM_BYTES {
            contents.extend_from_slice(&random.next().to_le_bytes());
        }
        contents.truncate(piece + RANDOM_BYTES);
        let phrase = usize::try_from(random.below(4)).expect("below 4");
        contents.extend_from_slice(PHRASES[phrase]);
    }
    contents.truncate(bytes.max(shortest));
}

/// Parsed contents of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
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
        Ok(Self {
            kind: *kind,
            children: addresses.iter().map(|bytes| ChunkAddress(*bytes)).collect(),
        })
    }

    /// The children that belong to the same version of the store: a commit's parents do not.
    pub fn current(&self) -> &[ChunkAddress] {
        match self.kind {
            Kind::Commit => &self.children[..self.children.len().min(1)],
            _ => &self.children,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_read_from_contents() {
        let children: Vec<_> =
            (0..300u16).map(|number| ChunkAddress::of(&number.to_be_bytes())).collect();
        let contents = make(Kind::Inner, 7, &children, 9_000);
        assert_eq!(contents.len(), 9_000);
        assert_eq!(Node::parse(&contents).unwrap(), Node { kind: Kind::Inner, children });
        let leaf = make(Kind::Leaf, 1, &[], 100);
        assert_eq!(Node::parse(&leaf).unwrap(), Node { kind: Kind::Leaf, children: Vec::new() });
        // Never shorter than what it has to hold.
        let commit = make(Kind::Commit, 1, &[ChunkAddress::ZERO; 2], 0);
        assert_eq!(commit.len(), 51);
        let node = Node::parse(&commit).unwrap();
        assert_eq!((node.children.len(), node.current().len()), (2, 1));
    }

    #[test]
    fn what_is_no_chunk_of_a_store_is_an_error() {
        let contents = make(Kind::Inner, 7, &[ChunkAddress::ZERO; 3], 0);
        assert!(Node::parse(&contents[..contents.len() - 1]).is_err());
        assert!(Node::parse(&contents[..5]).is_err());
        assert!(Node::parse(&[9; 100]).is_err());
    }
}
