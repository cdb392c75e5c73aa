//! Answers for stores that Dolt wrote: what clients would download matches the addresses.

use std::{fs, path::PathBuf};

use busload_chunks::{ChunkLocation, Dictionary, Stored, check};
use busload_proto::remotesapi::RootRequest;
use bytes::Bytes;
use tonic::Request;

use super::*;
use crate::{
    chunk_stores::ChunkStores,
    config::{ChunksSettings, Size},
    http::Front,
    remotesapi::limits::{RECORDS_CHUNK_STORED_BYTES_MAX, RECORDS_CHUNKS_MAX},
    status::Status,
};

const NOWHERE: ChunkAddress = ChunkAddress([0x5a; 20]);

/// A fixture, served as a table.
struct Harness {
    remotesapi: Arc<Remotesapi>,
    stores: Arc<ChunkStores>,
    store: PathBuf,
    addresses: Vec<ChunkAddress>,
}

impl Harness {
    fn new(fixture: &str) -> Self {
        let fixtures =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../chunks/tests/fixtures/dolt");
        let fixture = fixtures.join(fixture).canonicalize().unwrap();
        let store = fixture.join("store");
        let addresses = addresses(&fs::read_to_string(fixture.join("chunks.jsonl")).unwrap());
        let alone = ChunksSettings::of_store_alone(&format!("file://{}", store.display())).unwrap();
        assert_eq!(alone.disk_bytes_max, Size(0).0);
        let settings = ChunksSettings { name: "db".to_owned(), ..alone };
        let stores = Arc::new(ChunkStores::start(&[settings]).unwrap());
        let status = Arc::new(Status::default());
        status.serve_stores(Arc::clone(&stores));
        let remotesapi = Remotesapi::new(status, Arc::new(Front::default()));
        Self { remotesapi, stores, store, addresses }
    }

    fn target(&self) -> Target {
        let message = RootRequest { repo_path: "db".to_owned(), ..RootRequest::default() };
        let caller = self.remotesapi.caller(&Request::new(())).unwrap();
        self.remotesapi.target(&message, &caller).unwrap()
    }

    fn lay_out(&self, layout: Layout, addresses: &[ChunkAddress]) -> Laid {
        // A budget smaller than any group, so that groups are encoded one at a time.
        let (target, rooms) = (self.target(), Budgets::new(1));
        let laid = lay_out(&self.remotesapi, &rooms, &target, (layout, addresses));
        self.stores.handle().unwrap().block_on(laid).unwrap()
    }

    /// Returns the bytes of a resource, as a download has them.
    fn bytes(&self, resource: &Resource) -> Bytes {
        match resource {
            Resource::File(name) => {
                let suffix =
                    if name.kind == busload_dolt::FileKind::Archive { ".darc" } else { "" };
                fs::read(self.store.join(format!("{}{suffix}", name.id))).unwrap().into()
            }
            Resource::Records(bundle) => {
                let (target, handle) = (self.target(), self.stores.handle().unwrap());
                let until = target.deadline().of_batch();
                let records = self.remotesapi.records.get(target.store(), bundle, until);
                handle.block_on(records).unwrap().expect("it was given out")
            }
        }
    }

    /// Asserts that every chunk is where the answer says, and that no other has a location.
    fn check(&self, layout: Layout) -> Laid {
        let mut asked = self.addresses.clone();
        asked.insert(asked.len() / 2, NOWHERE);
        let laid = self.lay_out(layout, &asked);
        let resources: Vec<Bytes> =
            laid.resources.iter().map(|resource| self.bytes(resource)).collect();
        for (address, place) in asked.iter().zip(&laid.places) {
            match place {
                None => assert_eq!(*address, NOWHERE),
                Some(place) => {
                    check(address, &contents(&resources[place.resource], place)).unwrap()
                }
            }
        }
        assert_eq!(asked.len(), laid.places.len());
        assert_eq!(laid.places.iter().filter(|place| place.is_none()).count(), 1);
        laid
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.stores.stop();
    }
}

fn addresses(lines: &str) -> Vec<ChunkAddress> {
    let address = |line| -> ChunkAddress {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        entry["addr"].as_str().unwrap().parse().unwrap()
    };
    lines.lines().map(address).collect()
}

fn slice(bytes: &Bytes, span: Span) -> Bytes {
    let begin = usize::try_from(span.offset).unwrap();
    bytes.slice(begin..begin + span.length as usize)
}

/// Decodes a chunk as a client does.
fn contents(resource: &Bytes, place: &Place) -> Bytes {
    let Place { span, dictionary, .. } = *place;
    let with = dictionary.map(|span| Dictionary::decode(&slice(resource, span)).unwrap());
    let stored = Stored::parse(slice(resource, span), &ChunkLocation { span, dictionary }).unwrap();
    stored.decode(with.as_ref()).unwrap()
}

fn is_records(laid: &Laid, place: &Place) -> bool {
    matches!(laid.resources[place.resource], Resource::Records(_))
}

#[test]
fn in_files_chunks_are_where_dolt_put_them() {
    for fixture in ["real-classic", "real-archive-v3", "real-archive-conjoined", "real-bigchunk"] {
        let laid = Harness::new(fixture).check(Layout::Files);
        assert!(
            laid.resources.iter().all(|resource| matches!(resource, Resource::File(_))),
            "{fixture}"
        );
    }
}

#[test]
fn as_records_chunks_need_no_dictionary_and_follow_each_other() {
    for fixture in [
        "real-classic",
        "real-archive-v3",
        "real-archive-conjoined",
        "synth-many-archive",
        "rewritten-archive-v1",
    ] {
        let laid = Harness::new(fixture).check(Layout::RecordsIfSoon);
        let mut ends = vec![0; laid.resources.len()];
        let mut places: Vec<&Place> = laid.places.iter().flatten().collect();
        places.sort_by_key(|place| (place.resource, place.span.offset));
        for place in places {
            assert!(is_records(&laid, place) && place.dictionary.is_none(), "{fixture}: {place:?}");
            assert_eq!(place.span.offset, ends[place.resource], "{fixture}: no holes");
            ends[place.resource] += u64::from(place.span.length);
        }
        assert!(laid.resources.iter().all(|resource| match resource {
            Resource::Records(bundle) => bundle.addresses.len() <= RECORDS_CHUNKS_MAX,
            Resource::File(_) => false,
        }));
    }
}

#[test]
fn large_chunks_stay_in_their_file_if_they_are_records() {
    for fixture in ["real-bigchunk", "synth-sizes-classic", "synth-sizes-archive-zstd"] {
        let laid = Harness::new(fixture).check(Layout::RecordsIfSoon);
        let places = laid.places.iter().flatten();
        let in_files = places.filter(|place| !is_records(&laid, place)).collect::<Vec<_>>();
        assert!(
            in_files.iter().all(|place| RECORDS_CHUNK_STORED_BYTES_MAX < place.span.length),
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
            harness.lay_out(layout, &harness.addresses),
            harness.lay_out(layout, &harness.addresses),
        );
        assert_eq!(first, again);
    }
}

#[test]
fn nothing_is_asked_and_nothing_is_there() {
    let harness = Harness::new("synth-sizes-classic");
    for layout in [Layout::Files, Layout::RecordsIfSoon] {
        assert_eq!(harness.lay_out(layout, &[]), Laid::default());
        assert_eq!(
            harness.lay_out(layout, &[NOWHERE]),
            Laid { resources: vec![], places: vec![None] }
        );
    }
}
