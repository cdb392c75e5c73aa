//! Answers for stores that Dolt wrote: what clients would download matches the addresses.

use std::fs;

use busload_chunks::{ChunkLocation, Dictionary, Stored, check};
use busload_proto::remotesapi::RootRequest;
use bytes::Bytes;
use tonic::Request;

use super::*;
use crate::{
    limits::{RECORDS_CHUNK_STORED_BYTES_MAX, RECORDS_CHUNKS_MAX},
    testing::{Served, TABLE},
};

const ABSENT: ChunkAddress = ChunkAddress([0x5a; 20]);

/// A fixture, served as a table.
struct Harness {
    served: Served,
}

impl Harness {
    fn new(fixture: &str) -> Self {
        Self { served: Served::new(fixture) }
    }

    fn target(&self) -> Target {
        let message = RootRequest { repo_path: TABLE.to_owned(), ..RootRequest::default() };
        let remotesapi = &self.served.remotesapi;
        remotesapi.target(&message, &remotesapi.caller(&Request::new(())).unwrap()).unwrap()
    }

    fn locate(&self, layout: Layout, addresses: &[ChunkAddress]) -> ChunkLocations {
        // A budget smaller than any group, so that groups are encoded one at a time.
        let (target, memory) = (self.target(), TableBudgets::new(1));
        let encoder = Encoder { bundles: &self.served.remotesapi.bundles, memory: &memory };
        self.served.wait(locate(encoder, &target, (layout, addresses))).unwrap()
    }

    /// Returns the bytes of a resource, as a download has them.
    fn bytes(&self, resource: &Resource) -> Bytes {
        match resource {
            Resource::File(name) => {
                let suffix =
                    if name.kind == busload_dolt::FileKind::Archive { ".darc" } else { "" };
                fs::read(self.served.path(&format!("{}{suffix}", name.id))).unwrap().into()
            }
            Resource::Records(bundle) => {
                let (target, bundles) = (self.target(), &self.served.remotesapi.bundles);
                let until = target.deadline().of_batch();
                let bytes = self.served.wait(bundles.get(target.store(), bundle, until));
                bytes.unwrap().expect("it was advertised")
            }
        }
    }

    /// Asserts that every chunk is where the answer says, and that no other has a location.
    fn check(&self, layout: Layout) -> ChunkLocations {
        let mut asked = self.served.addresses.clone();
        asked.insert(asked.len() / 2, ABSENT);
        let chunks = self.locate(layout, &asked);
        let resources: Vec<Bytes> =
            chunks.resources.iter().map(|resource| self.bytes(resource)).collect();
        for (address, location) in asked.iter().zip(&chunks.locations) {
            match location {
                None => assert_eq!(*address, ABSENT),
                Some(location) => {
                    check(address, &contents(&resources[location.resource], location)).unwrap()
                }
            }
        }
        assert_eq!(asked.len(), chunks.locations.len());
        assert_eq!(chunks.locations.iter().filter(|location| location.is_none()).count(), 1);
        chunks
    }
}

fn slice(bytes: &Bytes, span: Span) -> Bytes {
    let begin = usize::try_from(span.offset).unwrap();
    bytes.slice(begin..begin + span.length as usize)
}

/// Decodes a chunk as a client does.
fn contents(resource: &Bytes, location: &ResourceLocation) -> Bytes {
    let ResourceLocation { span, dictionary, .. } = *location;
    let with = dictionary.map(|span| Dictionary::decode(&slice(resource, span)).unwrap());
    let stored = Stored::parse(slice(resource, span), &ChunkLocation { span, dictionary }).unwrap();
    stored.decode(with.as_ref()).unwrap()
}

fn is_in_bundle(chunks: &ChunkLocations, location: &ResourceLocation) -> bool {
    matches!(chunks.resources[location.resource], Resource::Records(_))
}

#[test]
fn what_a_peer_owns_is_located_and_not_prefetched() {
    let harness = Harness::new("real-archive-v3");
    let mut membership = busload_peers::Membership::new("http://me");
    let urls = (0..100).map(|number| format!("http://peer-{number}"));
    membership.handle_listed(urls, std::time::Duration::ZERO).unwrap();
    harness.served.host.set_peers(membership.view());
    let (target, addresses) = (harness.target(), &harness.served.addresses);
    let until = target.deadline().of_batch();
    let located = harness.served.wait(target.store().locate(addresses, until)).unwrap();
    let own = of_own_files(&target, &located);
    assert_eq!(own.locations.len(), located.locations.len());
    for (own, location) in own.locations.iter().zip(&located.locations) {
        let location = location.as_ref().unwrap();
        let is_mine = membership.view().is_mine(TABLE, &location.file.id.0);
        assert_eq!(own.is_some(), is_mine);
        assert!(!is_mine, "one in a hundred is, and not these");
    }
    harness.check(Layout::Files);
}

#[test]
fn locations_in_files_are_where_dolt_put_the_chunks() {
    for fixture in ["real-classic", "real-archive-v3", "real-archive-conjoined", "real-bigchunk"] {
        let chunks = Harness::new(fixture).check(Layout::Files);
        assert!(
            chunks.resources.iter().all(|resource| matches!(resource, Resource::File(_))),
            "{fixture}"
        );
    }
}

#[test]
fn records_of_bundles_need_no_dictionary_and_follow_each_other() {
    for fixture in [
        "real-classic",
        "real-archive-v3",
        "real-archive-conjoined",
        "synth-many-archive",
        "rewritten-archive-v1",
    ] {
        let chunks = Harness::new(fixture).check(Layout::RecordsIfSoon);
        let mut ends = vec![0; chunks.resources.len()];
        let mut locations: Vec<&ResourceLocation> = chunks.locations.iter().flatten().collect();
        locations.sort_by_key(|location| (location.resource, location.span.offset));
        for location in locations {
            assert!(
                is_in_bundle(&chunks, location) && location.dictionary.is_none(),
                "{fixture}: {location:?}"
            );
            assert_eq!(location.span.offset, ends[location.resource], "{fixture}: no holes");
            ends[location.resource] += u64::from(location.span.length);
        }
        assert!(chunks.resources.iter().all(|resource| match resource {
            Resource::Records(bundle) => bundle.addresses.len() <= RECORDS_CHUNKS_MAX,
            Resource::File(_) => false,
        }));
    }
}

#[test]
fn large_chunks_stay_in_their_file_if_they_are_records() {
    for fixture in ["real-bigchunk", "synth-sizes-classic", "synth-sizes-archive-zstd"] {
        let chunks = Harness::new(fixture).check(Layout::RecordsIfSoon);
        let locations = chunks.locations.iter().flatten();
        let in_files =
            locations.filter(|location| !is_in_bundle(&chunks, location)).collect::<Vec<_>>();
        assert!(
            in_files.iter().all(|location| RECORDS_CHUNK_STORED_BYTES_MAX < location.span.length),
            "{fixture}"
        );
        let expected = if fixture == "synth-sizes-archive-zstd" { 0 } else { 1 };
        assert_eq!(in_files.len(), expected, "{fixture}");
    }
}

#[test]
fn the_same_question_has_the_same_answer() {
    let harness = Harness::new("real-archive-v3");
    for layout in [Layout::Files, Layout::RecordsIfSoon] {
        let (first, again) = (
            harness.locate(layout, &harness.served.addresses),
            harness.locate(layout, &harness.served.addresses),
        );
        assert_eq!(first, again);
    }
}

#[test]
fn no_addresses_and_absent_ones_need_no_resources() {
    let harness = Harness::new("synth-sizes-classic");
    for layout in [Layout::Files, Layout::RecordsIfSoon] {
        assert_eq!(harness.locate(layout, &[]), ChunkLocations::default());
        assert_eq!(
            harness.locate(layout, &[ABSENT]),
            ChunkLocations { resources: vec![], locations: vec![None] }
        );
    }
}
