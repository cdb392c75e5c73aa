//! Stores that Dolt wrote, and the lists of their chunks.

use std::path::PathBuf;

use busload_chunks::ChunkAddress;

use crate::support::fixtures;

/// A store written by Dolt.
pub struct Fixture {
    name: &'static str,
    /// Expected chunks of the store.
    pub chunks: Vec<Expected>,
}

/// A chunk as the fixture's list describes it.
#[derive(Clone, Debug)]
pub struct Expected {
    pub address: [u8; 20],
    pub bytes: usize,
}

impl Fixture {
    /// Reads a fixture and its list.
    pub fn new(name: &'static str) -> Self {
        let listed = fixtures::listed(name).into_iter();
        let chunks =
            listed.map(|chunk| Expected { address: address(&chunk.address), bytes: chunk.bytes });
        Self { name, chunks: chunks.collect() }
    }

    /// Returns a fixture without a list, since it cannot be served.
    pub fn unlisted(name: &'static str) -> Self {
        Self { name, chunks: Vec::new() }
    }

    /// Returns the directory of the store's objects.
    pub fn store(&self) -> PathBuf {
        fixtures::store(self.name)
    }

    /// Returns the URL for `--table`.
    pub fn url(&self) -> String {
        format!("chunks+{}", fixtures::url(self.name))
    }

    /// Returns the addresses of all chunks.
    pub fn addresses(&self) -> Vec<[u8; 20]> {
        self.chunks.iter().map(|chunk| chunk.address).collect()
    }
}

fn address(text: &str) -> [u8; 20] {
    text.parse::<ChunkAddress>().unwrap().0
}

/// Asserts that the contents match the address.
#[track_caller]
pub fn check(address: [u8; 20], contents: &[u8]) {
    busload_chunks::check(&ChunkAddress(address), contents).unwrap();
}
