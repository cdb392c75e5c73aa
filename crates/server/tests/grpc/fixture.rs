//! Stores that Dolt wrote, and what they hold.

use std::path::PathBuf;

use busload_chunks::ChunkAddress;

use super::support::fixtures;

/// One of the stores that Dolt wrote.
pub struct Fixture {
    name: &'static str,
    /// Each of its chunks.
    pub chunks: Vec<Expected>,
}

/// A chunk as the fixture's list has it.
#[derive(Clone, Debug)]
pub struct Expected {
    pub address: [u8; 20],
    pub bytes: usize,
}

impl Fixture {
    /// With its list.
    pub fn new(name: &'static str) -> Self {
        let listed = fixtures::listed(name).into_iter();
        let chunks =
            listed.map(|chunk| Expected { address: address(&chunk.address), bytes: chunk.bytes });
        Self { name, chunks: chunks.collect() }
    }

    /// One that has no list, since it is not served.
    pub fn unlisted(name: &'static str) -> Self {
        Self { name, chunks: Vec::new() }
    }

    /// Where its objects are.
    pub fn store(&self) -> PathBuf {
        fixtures::store(self.name)
    }

    /// For `--table`.
    pub fn url(&self) -> String {
        format!("chunks+{}", fixtures::url(self.name))
    }

    /// Of all chunks.
    pub fn addresses(&self) -> Vec<[u8; 20]> {
        self.chunks.iter().map(|chunk| chunk.address).collect()
    }
}

fn address(text: &str) -> [u8; 20] {
    text.parse::<ChunkAddress>().unwrap().0
}

/// That contents are those of an address.
#[track_caller]
pub fn check(address: [u8; 20], contents: &[u8]) {
    busload_chunks::check(&ChunkAddress(address), contents).unwrap();
}
