//! Stores that Dolt wrote, and what they hold.

use std::{fs, path::PathBuf};

use busload_chunks::ChunkAddress;

/// One of `crates/chunks/tests/fixtures/dolt`.
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
        let mut fixture = Self { name, chunks: Vec::new() };
        let list = fs::read_to_string(fixture.path("chunks.jsonl")).unwrap();
        fixture.chunks = list.lines().map(expected).collect();
        fixture
    }

    /// One that has no list, since it is not served.
    pub fn unlisted(name: &'static str) -> Self {
        Self { name, chunks: Vec::new() }
    }

    fn path(&self, file: &str) -> PathBuf {
        let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../chunks/tests/fixtures/dolt");
        fixtures.canonicalize().unwrap().join(self.name).join(file)
    }

    /// Where its objects are.
    pub fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// For `--table`.
    pub fn url(&self) -> String {
        format!("chunks+file://{}", self.store().display())
    }

    /// Of all chunks.
    pub fn addresses(&self) -> Vec<[u8; 20]> {
        self.chunks.iter().map(|chunk| chunk.address).collect()
    }
}

fn expected(line: &str) -> Expected {
    let entry: serde_json::Value = serde_json::from_str(line).unwrap();
    let address = entry["addr"].as_str().unwrap().parse::<ChunkAddress>().unwrap();
    Expected { address: address.0, bytes: entry["len"].as_u64().unwrap().try_into().unwrap() }
}

/// That contents are those of an address.
#[track_caller]
pub fn check(address: [u8; 20], contents: &[u8]) {
    busload_chunks::check(&ChunkAddress(address), contents).unwrap();
}
