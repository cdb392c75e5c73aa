//! Every chunk of every fixture, in every form.

use busload_chunks::{ChunkLocation, Span, Stored};
use busload_dolt::{Attempt, Chunk, ChunkAddress, Error, Form, Settings, Store, StoreStatus};
use busload_objects::Progress;

use crate::store::support::{Harness, Listed, collect, fixture_list, get, open, request, until};

pub fn with_lists() -> impl Iterator<Item = &'static str> {
    include_str!("../../../../chunks/tests/fixtures/dolt/sound.txt").lines()
}

pub fn list(name: &str) -> Vec<Listed> {
    let mut listed = fixture_list(name, "chunks.jsonl");
    if name == "real-generational" {
        listed.extend(fixture_list(name, "chunks-oldgen.jsonl"));
    }
    listed
}

/// Decodes a chunk in any form, the way a client does.
async fn contents(store: &Store, chunk: Chunk, form: Form) -> Vec<u8> {
    let unsnap = |block: &[u8]| snap::raw::Decoder::new().decompress_vec(block).unwrap();
    match chunk {
        Chunk::Contents(contents) => contents.to_vec(),
        Chunk::Snappy(bytes) if form == Form::Record => {
            let length = u32::try_from(bytes.len()).unwrap();
            let location = ChunkLocation { span: Span { offset: 0, length }, dictionary: None };
            Stored::parse(bytes.clone(), &location).unwrap();
            unsnap(&bytes[..bytes.len() - 4])
        }
        Chunk::Snappy(bytes) => unsnap(&bytes),
        Chunk::Zstd(bytes, id) => {
            assert_eq!(form, Form::Stored);
            let dictionary = store.dictionary(&id, request(form)).await.unwrap().unwrap();
            let mut decoder = zstd::bulk::Decompressor::with_dictionary(&dictionary).unwrap();
            decoder.decompress(&bytes, 16 << 20).unwrap()
        }
    }
}

async fn check_one(store: &Store, listed: &Listed, form: Form) {
    let address = listed.address;
    let chunk = store
        .get(address, request(form))
        .await
        .unwrap_or_else(|error| panic!("{address}: {error}"));
    check_chunk(store, listed, form, chunk.unwrap_or_else(|| panic!("{address} is absent"))).await;
}

async fn check_chunk(store: &Store, listed: &Listed, form: Form, chunk: Chunk) {
    let contents = contents(store, chunk, form).await;
    assert_eq!(contents.len() as u64, listed.length, "{}", listed.address);
    assert_eq!(ChunkAddress::of(&contents), listed.address);
}

const FORMS: [Form; 3] = [Form::Contents, Form::Stored, Form::Record];

pub async fn check_store(settings: Settings, listed: &[Listed]) {
    let store = open(settings).await;
    for form in FORMS {
        for chunk in listed {
            check_one(&store, chunk, form).await;
        }
        let addresses: Vec<_> = listed.iter().map(|listed| listed.address).collect();
        let many = store.get_many(addresses, request(form));
        for (listed, answer) in listed.iter().zip(collect(many, listed.len()).await) {
            check_chunk(&store, listed, form, answer.unwrap().unwrap()).await;
        }
    }
    for listed in listed {
        let length = store.length(listed.address, request(Form::Contents)).await;
        assert_eq!(length, Ok(Some(listed.length)), "{}", listed.address);
    }
    assert_eq!(store.stats().corrupt, 0);
    assert_eq!(get(&store, ChunkAddress([7; 20])).await, Ok(None));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_chunk_of_every_fixture_comes_out_right_by_way_of_the_disk() {
    for name in with_lists() {
        check_store(Harness::of_fixture(name).settings(), &list(name)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_chunk_of_every_fixture_comes_out_right_without_a_disk() {
    for name in with_lists() {
        let harness = Harness::of_fixture(name);
        let settings =
            Settings { disk_bytes_max: 0, memory_bytes_max: 1 << 20, ..harness.settings() };
        check_store(settings, &list(name)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_chunk_of_a_warm_store_can_be_had_without_waiting() {
    for name in with_lists() {
        let harness = Harness::of_fixture(name);
        let store = harness.open().await;
        let warmed = store.warm(&mut |_| {}).await.unwrap();
        assert_eq!(warmed.done, warmed.total, "{name}");
        let (listed, mut waits) = (list(name), 0);
        for form in FORMS {
            for listed in &listed {
                match store.try_get(&listed.address, form) {
                    Attempt::Ready(answer) => {
                        check_chunk(&store, listed, form, answer.unwrap().unwrap()).await;
                    }
                    // The runtime reads large chunks, and those that are not in the page cache.
                    Attempt::Wait => waits += u64::from(listed.length < 64 << 10),
                }
            }
        }
        let few = listed.len() as u64 / 10;
        assert!(
            waits <= few,
            "{name}: {waits} of {} small chunks had to be waited for",
            listed.len()
        );
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_is_served_as_its_record_from_where_it_is() {
    let harness = Harness::of_fixture("real-classic");
    let store = harness.open().await;
    for listed in list("real-classic") {
        let record = store.get(listed.address, request(Form::Record)).await.unwrap().unwrap();
        let stored = store.get(listed.address, request(Form::Stored)).await.unwrap().unwrap();
        let (record, stored) = (record.bytes().clone(), stored.bytes().clone());
        assert_eq!(record[..record.len() - 4], stored[..], "the block comes before its checksum");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dictionary_is_given_only_where_there_is_one() {
    let harness = Harness::of_fixture("real-archive-v3");
    let store = harness.open().await;
    let mut ids = Vec::new();
    for listed in list("real-archive-v3") {
        if let Some(Chunk::Zstd(_, id)) =
            store.get(listed.address, request(Form::Stored)).await.unwrap()
        {
            ids.push(id);
        }
    }
    ids.sort_by_key(|id| id.0);
    ids.dedup();
    let [id] = ids[..] else { panic!("{ids:?}") };
    let dictionary = store.dictionary(&id, request(Form::Stored)).await.unwrap().unwrap();
    assert_eq!(dictionary[..4], [0x37, 0xa4, 0x30, 0xec]);
    for wrong in [0, 19, 27, 31] {
        let mut other = id;
        other.0[wrong] ^= 1;
        assert_eq!(store.dictionary(&other, request(Form::Stored)).await, Ok(None), "{other:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_whose_contents_are_not_those_of_the_address_are_refused_one_by_one() {
    for name in ["synth-collide-classic", "synth-collide-archive"] {
        let harness = Harness::of_fixture(name);
        let store = harness.open().await;
        let listed = list(name);
        for form in FORMS {
            for listed in &listed {
                match store.get(listed.address, request(form)).await {
                    Err(Error::Corrupt(text)) => {
                        assert!(text.contains(&listed.address.to_string()), "{text}")
                    }
                    other => panic!("{name}: {}: {other:?}", listed.address),
                }
                assert_eq!(
                    store.try_get(&listed.address, form),
                    Attempt::Wait,
                    "it is not remembered as right"
                );
            }
        }
        let length = store.length(listed[0].address, request(Form::Contents)).await;
        assert!(matches!(length, Err(Error::Corrupt(_))), "{length:?}");
        assert_eq!(store.stats().corrupt, listed.len() as u64 * 3 + 1);
        let has = listed.iter().map(|listed| listed.address).collect::<Vec<_>>();
        let has = store.has_many(&has, request(Form::Contents)).await.unwrap();
        assert_eq!(has, vec![true; listed.len()], "there they are, though");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_a_journal_is_refused_with_the_reason() {
    let harness = Harness::of_fixture("real-journal");
    let store = harness.start();
    let Err(Error::Refused(text)) = store.opened().await else { panic!("{:?}", store.status()) };
    assert!(text.contains("journal"), "{text}");
    assert_eq!(store.status(), StoreStatus::Failed(Error::Refused(text.clone())));
    let address = ChunkAddress([1; 20]);
    assert_eq!(get(&store, address).await, Err(Error::Refused(text.clone())));
    assert_eq!(store.try_get(&address, Form::Contents), Attempt::Ready(Err(Error::Refused(text))));
    assert!(store.snapshot().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_beside_a_manifest_that_does_not_name_it_is_refused_as_well() {
    let harness = Harness::of_fixture("real-classic");
    let journal = harness.store().join("v".repeat(32));
    std::fs::write(&journal, b"x").unwrap();
    let store = harness.start();
    assert!(matches!(store.opened().await, Err(Error::Refused(text)) if text.contains("journal")));
    std::fs::remove_file(journal).unwrap();
    until(&store, |state| *state == StoreStatus::Open).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_4_manifest_is_as_good() {
    let harness = Harness::of_fixture("real-classic");
    let text = std::fs::read(crate::store::support::fixture("manifest-v4.txt")).unwrap();
    std::fs::write(harness.store().join("manifest"), text).unwrap();
    let store = harness.open().await;
    let root = store.stats().root.unwrap();
    assert!(matches!(get(&store, root).await, Ok(Some(_))));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_generation_is_a_part_of_the_store_under_the_outer_root() {
    let harness = Harness::of_fixture("real-generational");
    let store = harness.open().await;
    let snapshot = store.snapshot().unwrap();
    let names: Vec<&str> = snapshot.files.iter().map(|file| file.name()).collect();
    assert_eq!(
        names,
        [
            "tu2sc06nlvn0d1767m1o058s2f8tv95h.darc",
            "oldgen/44p41tsdkpguv8boq6kj0jr7iagt10be.darc",
            "oldgen/cao709a1rsns98svhan9ggi72ehrkeat.darc"
        ]
    );
    assert_eq!(snapshot.manifest.root.to_string(), "6g6p58eeeun095h0jia1a0lo2nsrgqf0");
    assert_eq!(snapshot.specs().count(), 3);
    assert_eq!(store.stats().chunks, 5 + 1111 + 3);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_chunk_of_every_fixture_is_verified() {
    for name in with_lists() {
        let harness = Harness::of_fixture(name);
        let store = open(Settings { disk_bytes_max: 0, ..harness.settings() }).await;
        let mut last = None;
        let mut report = |progress: Progress, wrong: Option<_>| {
            assert_eq!(wrong, None, "{name}");
            assert!(progress.done <= progress.total);
            last = Some(progress);
        };
        let end = store.verify(&mut report).await.unwrap();
        assert_eq!((end.done, end.corrupt, Some(end)), (end.total, 0, last), "{name}");
    }
}
