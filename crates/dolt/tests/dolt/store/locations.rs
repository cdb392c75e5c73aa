//! Locations of chunks, and the bytes at these locations.

use std::{collections::HashMap, fs};

use busload_bucket::{Fault, Rule};
use busload_chunks::{ChunkLocation, Dictionary, Span, Stored, check};
use busload_dolt::{ChunkAddress, Error, Located, Location, Settings, Store, StoreStatus};
use busload_objects::{AccessHint, StreamOptions};
use bytes::Bytes;
use futures_util::StreamExt;

use crate::store::{
    archives::{DICTIONARY_CHUNKS_MIN, archive, write_conjoined},
    fixtures::{list, with_lists},
    remote_store::{RemoteStore, deadline, stream},
    support::{
        Harness, LONG, addresses, contents, fixture, noise, open, write_file, write_manifest,
    },
};

async fn locate(store: &Store, addresses: &[ChunkAddress]) -> Located {
    store.locate(addresses, deadline()).await.unwrap()
}

/// Locates chunks that all exist.
async fn locations_of(store: &Store, addresses: &[ChunkAddress]) -> Vec<Location> {
    let located = locate(store, addresses).await;
    assert_eq!(located.locations.len(), addresses.len());
    located.locations.into_iter().map(|location| location.expect("the chunk is there")).collect()
}

fn cut(bytes: &[u8], span: Span) -> Bytes {
    let start = usize::try_from(span.offset).unwrap();
    Bytes::copy_from_slice(&bytes[start..start + span.length as usize])
}

/// Decodes the bytes at a location, the way a client does.
fn decode(location: &Location, span: Bytes, dictionary: Option<&Bytes>) -> Bytes {
    let Location { span: at, dictionary: with, .. } = *location;
    let stored = Stored::parse(span, &ChunkLocation { span: at, dictionary: with }).unwrap();
    let dictionary = dictionary.map(|bytes| Dictionary::decode(bytes).unwrap());
    stored.decode(dictionary.as_ref()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_at_the_location_of_every_chunk_of_every_fixture_are_the_chunk() {
    for name in with_lists() {
        let harness = Harness::of_fixture(name);
        let store = harness.open().await;
        let known: Vec<_> = list(name).iter().map(|listed| listed.address).collect();
        let mut files = HashMap::new();
        for (address, location) in known.iter().zip(locations_of(&store, &known).await) {
            let file = location.file.name().to_owned();
            let bytes = files
                .entry(file)
                .or_insert_with_key(|file| fs::read(harness.store().join(file)).unwrap());
            let dictionary = location.dictionary.map(|span| cut(bytes, span));
            let contents = decode(&location, cut(bytes, location.span), dictionary.as_ref());
            check(address, &contents).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(location.file.index.address(location.position), *address);
        }
        store.close().await;
    }
}

/// Does what a client does: locates chunks, then reads ranges of files by name and version.
#[tokio::test(flavor = "multi_thread")]
async fn every_chunk_of_every_fixture_comes_out_right_by_ranges() {
    for name in with_lists() {
        let harness = Harness::of_fixture(name);
        let store = harness.open().await;
        let known: Vec<_> = list(name).iter().map(|listed| listed.address).collect();
        let located = locate(&store, &known).await;
        store.prefetch(&located);
        store.pin_dictionaries(&located, deadline()).await.unwrap();
        for (address, location) in known.iter().zip(located.locations) {
            let location = location.unwrap();
            let (file, version) = (&location.file, location.file.version());
            let bytes =
                store.file_bytes(file.id, file.kind, version, deadline()).await.unwrap().unwrap();
            assert_eq!(bytes.size(), file.object.meta().size);
            let read = async |span: Span| {
                let range = span.offset..span.offset + u64::from(span.length);
                Bytes::from(stream(&bytes, range).await.unwrap())
            };
            let dictionary = match location.dictionary {
                Some(span) => Some(read(span).await),
                None => None,
            };
            let contents = decode(&location, read(location.span).await, dictionary.as_ref());
            check(address, &contents).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_with_addresses_that_are_made_up_are_where_the_fixtures_say() {
    for name in ["synth-collide-classic", "synth-collide-archive"] {
        let harness = Harness::of_fixture(name);
        let store = harness.open().await;
        let text = fs::read_to_string(fixture(name).join("chunks.jsonl")).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let known: Vec<_> =
            lines.iter().map(|line| line["addr"].as_str().unwrap().parse().unwrap()).collect();
        for (line, location) in lines.iter().zip(locations_of(&store, &known).await) {
            assert_eq!(line["offset"], location.span.offset);
            assert_eq!(line["length"], location.span.length);
            assert_eq!(line["file"], location.file.name());
        }
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_an_archive_of_several_have_the_dictionary_they_were_made_with() {
    let harness = Harness::new();
    // The contents of each part have their own words, so the dictionaries differ; the last part has
    // too few chunks for one.
    let sets: [Vec<Vec<u8>>; 3] = [
        (0..DICTIONARY_CHUNKS_MIN).map(contents).collect(),
        (0..DICTIONARY_CHUNKS_MIN + 7)
            .map(|number| format!("row {number} of the other table; ").repeat(9).into_bytes())
            .collect(),
        (0..3).map(|seed| noise(seed, 500)).collect(),
    ];
    let spec = write_conjoined(&harness.store(), &sets.each_ref().map(|chunks| archive(chunks)));
    harness.write_manifest(ChunkAddress::ZERO, &[spec]);
    let store = harness.open().await;
    let mut dictionaries = Vec::new();
    for chunks in &sets {
        let found = locations_of(&store, &addresses(chunks)).await;
        let of_set: Vec<_> = found.iter().map(|location| location.dictionary).collect();
        assert!(of_set.iter().all(|span| *span == of_set[0]), "{of_set:?}");
        dictionaries.push(of_set[0]);
        let bytes = fs::read(harness.store().join(found[0].file.name())).unwrap();
        let dictionary = of_set[0].map(|span| cut(&bytes, span));
        for (chunk, location) in chunks.iter().zip(&found) {
            assert_eq!(decode(location, cut(&bytes, location.span), dictionary.as_ref()), *chunk);
        }
    }
    assert!(
        dictionaries[0].is_some()
            && dictionaries[1].is_some()
            && dictionaries[0] != dictionaries[1]
    );
    assert_eq!(dictionaries[2], None);
    let all = sets.concat();
    let located = locate(&store, &addresses(&all)).await;
    store.pin_dictionaries(&located, deadline()).await.unwrap();
    store.close().await;
}

fn chunks(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    numbers.map(contents).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn known_chunks_take_no_request_and_all_others_takes_one_refresh() {
    let harness = Harness::new();
    let known = addresses(&chunks(0..600));
    harness.write_manifest(known[0], &[harness.write_file(&chunks(0..600))]);
    let far = RemoteStore::of(harness);
    let store = far.open_without_disk().await;
    let root = store.snapshot().unwrap().manifest.root;
    far.proxy.forget();
    assert_eq!(locations_of(&store, &known).await.len(), 600);
    assert!(far.proxy.seen().is_empty(), "{:?}", far.proxy.seen());
    let absent = |number: usize| ChunkAddress::of(format!("absent {number}").as_bytes());
    let asked: Vec<_> = known.iter().copied().chain((0..100).map(absent)).collect();
    let located = locate(&store, &asked).await;
    assert_eq!(located.snapshot.manifest.root, root);
    assert!(located.locations[..600].iter().all(Option::is_some));
    assert!(located.locations[600..].iter().all(Option::is_none));
    assert_eq!(far.count("GET", "manifest"), 1, "{:?}", far.proxy.seen());
    assert_eq!(locate(&store, &[]).await.locations.len(), 0);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_in_an_answer_is_of_the_version_that_the_refresh_found() {
    let harness = Harness::new();
    let (old, new) = (chunks(0..20), chunks(20..30));
    harness.write_manifest(addresses(&old)[0], &[harness.write_file(&old)]);
    // Without a grace period.
    let store =
        open(Settings { grace_period: std::time::Duration::ZERO, ..harness.settings() }).await;
    let all = [old.clone(), new.clone()].concat();
    // The same chunks in another file, as after a conjoin.
    let spec = harness.write_file(&all);
    harness.write_manifest(addresses(&new)[0], &[spec]);
    assert!(
        locations_of(&store, &addresses(&old))
            .await
            .iter()
            .all(|location| location.file.id != spec.id)
    );
    let located = locate(&store, &addresses(&all)).await;
    assert_eq!(located.snapshot.manifest.root, addresses(&new)[0]);
    for location in &located.locations {
        assert_eq!(location.as_ref().unwrap().file.id, spec.id);
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_a_file_dropped_lately_are_found_in_it() {
    let harness = Harness::new();
    let (old, new) = (chunks(0..20), chunks(20..30));
    let first = harness.write_file(&old);
    harness.write_manifest(addresses(&old)[0], &[first]);
    let store = harness.open().await;
    harness.write_manifest(addresses(&new)[0], &[harness.write_file(&new)]);
    store.refresh().await.unwrap();
    let located = locate(&store, &addresses(&[old, new].concat())).await;
    assert_eq!(located.snapshot.files.len(), 1);
    assert_eq!(located.locations[0].as_ref().unwrap().file.id, first.id);
    assert!(located.locations.iter().all(Option::is_some));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_in_no_known_file_is_an_error_while_the_store_is_away() {
    let harness = Harness::new();
    let known = addresses(&chunks(0..20));
    harness.write_manifest(known[0], &[harness.write_file(&chunks(0..20))]);
    let far = RemoteStore::of(harness);
    let store = far.open_without_disk().await;
    far.proxy.go_away();
    let asked = [known[3], ChunkAddress([9; 20])];
    let error = store.locate(&asked, deadline()).await.unwrap_err();
    assert!(
        matches!(&error, Error::Unreachable(text) if text.contains(&asked[1].to_string())),
        "{error:?}"
    );
    assert_eq!(locations_of(&store, &known).await.len(), 20, "what is known is known");
    far.proxy.come_back();
    assert!(locate(&store, &asked).await.locations[1].is_none());
    store.close().await;
    assert_eq!(store.locate(&known, deadline()).await.unwrap_err(), Error::Closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_open_in_time_exceeds_the_deadline() {
    let harness = Harness::new();
    harness.write_manifest(ChunkAddress::ZERO, &[]);
    let far = RemoteStore::of(harness);
    far.rules(vec![Rule::always(Fault::Stall(0))]);
    let store = Store::start(far.settings()).unwrap();
    let soon = (tokio::time::Instant::now() + std::time::Duration::from_millis(20)).into_std();
    let error = store.locate(&[ChunkAddress::ZERO], soon).await.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded(_)), "{error:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_refused_says_why_and_what_to_do_to_clients_that_ask_for_locations() {
    let harness = Harness::of_fixture("real-journal");
    let store = harness.start();
    let error = store.locate(&[ChunkAddress::ZERO], deadline()).await.unwrap_err();
    let Error::Refused(text) = &error else { panic!("{error:?}") };
    assert!(
        text.contains(&harness.url()) && text.contains("journal") && text.contains("dolt push"),
        "{text}"
    );
    assert_eq!(store.status(), StoreStatus::Failed(error.clone()));
    assert_eq!(store.opened().await, Err(error));
    store.close().await;
    let harness = Harness::new();
    fs::write(harness.store().join("manifest"), format!("6:__DOLT__:{0}:{0}:{0}", "0".repeat(32)))
        .unwrap();
    let store = harness.start();
    let error = store.locate(&[ChunkAddress::ZERO], deadline()).await.unwrap_err();
    let Error::Refused(text) = &error else { panic!("{error:?}") };
    assert!(
        text.contains(&harness.url()) && text.contains("version \"6\"") && text.contains("4 and 5"),
        "{text}"
    );
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_gone_is_looked_for_again_before_chunks_are_said_to_be_in_it() {
    let harness = Harness::new();
    let all = chunks(0..20);
    let known = addresses(&all);
    let spec = harness.write_file(&all);
    harness.write_manifest(known[0], &[spec]);
    let far = RemoteStore::of(harness);
    let store = far.open_without_disk().await;
    let old = locations_of(&store, &known).await.remove(0);
    let name = spec.id.to_string();
    // The same chunks in another order: a file of the same name and length, with another ETag.
    let next = far.harness.path().join("next");
    fs::create_dir(&next).unwrap();
    let reversed: Vec<_> = all.iter().rev().cloned().collect();
    let other = write_file(&next, &reversed);
    far.put(&name, &fs::read(next.join(other.id.to_string())).unwrap());
    let bytes = store
        .file_bytes(spec.id, old.file.kind, old.file.version(), deadline())
        .await
        .unwrap()
        .unwrap();
    let error = stream(&bytes, 0..10).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    let now = locations_of(&store, &known).await;
    assert!(now.iter().all(|location| location.file.version() != old.file.version()));
    let version = now[0].file.version();
    let bytes =
        store.file_bytes(spec.id, old.file.kind, version, deadline()).await.unwrap().unwrap();
    for (location, chunk) in now.iter().zip(&all) {
        let (start, length) = (location.span.offset, u64::from(location.span.length));
        let span = Bytes::from(stream(&bytes, start..start + length).await.unwrap());
        assert_eq!(decode(location, span, None), *chunk);
    }
    let gone =
        store.file_bytes(spec.id, old.file.kind, old.file.version(), deadline()).await.unwrap();
    assert!(gone.is_none(), "what is there now are other bytes");
    store.close().await;
}

#[test]
fn places_can_be_asked_for_and_bytes_be_taken_from_threads_that_know_no_runtime() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let harness = Harness::of_fixture("real-archive-v3");
    let store = runtime.block_on(harness.open());
    let known: Vec<_> = list("real-archive-v3").iter().map(|listed| listed.address).collect();
    let asking = std::thread::spawn({
        let store = store.clone();
        move || {
            crate::store::closing::block_on(async move {
                let asked: Vec<_> = known.iter().copied().chain([ChunkAddress([9; 20])]).collect();
                let located = locate(&store, &asked).await;
                assert_eq!(located.locations.iter().flatten().count(), known.len());
                store.prefetch(&located);
                store.pin_dictionaries(&located, deadline()).await.unwrap();
                let location = located.locations[0].as_ref().unwrap();
                let (file, start) = (&location.file, location.span.offset);
                let bytes = store
                    .file_bytes(file.id, file.kind, file.version(), deadline())
                    .await
                    .unwrap()
                    .unwrap();
                let options = StreamOptions { hint: AccessHint::Sequential, timeout: LONG };
                let pieces: Vec<_> = bytes.stream(start..start + 1, options).collect().await;
                assert_eq!(pieces.into_iter().map(|piece| piece.unwrap().len()).sum::<usize>(), 1);
                let other = file.version() ^ 1;
                assert!(
                    store
                        .file_bytes(file.id, file.kind, other, deadline())
                        .await
                        .unwrap()
                        .is_none()
                );
            })
        }
    });
    asking.join().unwrap();
    runtime.block_on(store.close());
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_the_same_in_every_process_and_for_every_way_of_opening() {
    let harness = Harness::new();
    let (first, second) = (chunks(0..5), chunks(5..9));
    let files = [harness.write_file(&first), harness.write_file(&second)];
    harness.write_manifest(addresses(&first)[0], &files[..1]);
    let far = RemoteStore::of(harness);
    let versions = |store: &Store| -> HashMap<_, _> {
        store.snapshot().unwrap().files.iter().map(|file| (file.id, file.version())).collect()
    };
    let store = open(far.settings()).await;
    write_manifest(&far.path(""), addresses(&second)[0], &files);
    store.refresh().await.unwrap();
    // One store found the file in a listing, the other by its name.
    let before = versions(&store);
    assert_eq!(before.len(), 2);
    store.close().await;
    drop(store);
    for rules in [Vec::new(), vec![Rule::always(Fault::Status(403)).to("list-type")]] {
        far.rules(rules);
        // Writes to disk may still be in progress.
        crate::store::remote_store::until("the cache is gone", || {
            fs::remove_dir_all(far.settings().directory).is_ok()
        })
        .await;
        let store = open(far.settings()).await;
        assert_eq!(versions(&store), before);
        store.close().await;
    }
}
