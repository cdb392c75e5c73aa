//! References of chunks: a store is reached from its root by them.

use std::collections::{HashMap, HashSet};

use busload_chunks::{ChunkAddress, REFERENCES_MAX, references};
use busload_hostile::{Random, mutate};
use bytes::Bytes;

use crate::support::Fixture;

/// Mutations of each chunk.
const MUTATIONS: u64 = 20;

/// Returns the contents of all chunks of a fixture.
fn contents_of(fixture: &Fixture) -> HashMap<ChunkAddress, Bytes> {
    let mut all = HashMap::new();
    for file in fixture.files() {
        for position in 0..file.index.chunk_count() {
            let location = file.index.location(position);
            let dictionary = file.dictionary(&location);
            let contents = file.stored(&location).unwrap().decode(dictionary.as_ref()).unwrap();
            all.insert(file.index.address(position), contents);
        }
    }
    all
}

/// Returns how many chunks are there, and how many of them references lead to from the root.
fn reached(name: &str) -> (usize, usize) {
    let fixture = Fixture::open(name);
    let chunks = contents_of(&fixture);
    let (mut seen, mut next) = (HashSet::new(), vec![fixture.manifest.root]);
    while let Some(address) = next.pop() {
        if let Some(contents) = chunks.get(&address)
            && seen.insert(address)
        {
            next.extend(references(contents));
        }
    }
    (chunks.len(), seen.len())
}

#[test]
fn references_lead_from_the_root_to_every_chunk_that_is_in_use() {
    // The others are roots of former states of the store, which nothing names any more.
    assert_eq!(reached("real-classic"), (1_120, 1_113));
}

#[test]
fn contents_that_are_no_message_refer_to_nothing() {
    for contents in [&b""[..], b"\x1b", b"\x1b\0\0", &[27; 8], &[0; 400], b"text of a blob"] {
        assert_eq!(references(contents), [], "{contents:?}");
    }
}

#[test]
fn hostile_messages_give_a_bounded_number_of_addresses() {
    for (address, contents) in contents_of(&Fixture::open("real-classic")) {
        for seed in 0..MUTATIONS {
            let mut bytes = contents.to_vec();
            mutate(&mut bytes, &mut Random(seed));
            assert!(references(&bytes).len() <= REFERENCES_MAX, "{address}, seed {seed}");
        }
    }
}
