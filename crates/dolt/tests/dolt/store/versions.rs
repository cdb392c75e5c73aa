//! New versions, and files that they drop.

use std::{fs, sync::Arc, time::Duration};

use busload_bucket::{Bucket, FaultProxy, Faults, url};
use busload_dolt::{Attempt, ChunkAddress, Error, Form, Settings, StoreStatus};

use crate::store::support::{
    Harness, addresses, contents, contents_of, copy, get, local, open, request, until, write_file,
    write_manifest,
};

fn chunks(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    numbers.map(contents).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_a_manifest_is_empty_until_there_is_one() {
    let harness = Harness::new();
    let store = harness.open().await;
    let first = chunks(0..5);
    let known = addresses(&first);
    assert_eq!(store.stats().root, Some(ChunkAddress::ZERO));
    assert_eq!(get(&store, known[0]).await, Ok(None));
    let spec = harness.write_file(&first);
    harness.write_manifest(known[0], &[spec]);
    assert_eq!(
        contents_of(&store, known[0]).await,
        first[0],
        "asking for it looks at the manifest"
    );
    assert_eq!(store.stats().root, Some(known[0]));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_manifest_vanishes_is_still_served_but_fails_for_unknown_chunks() {
    let harness = Harness::new();
    let first = chunks(0..5);
    let known = addresses(&first);
    harness.write_manifest(known[0], &[harness.write_file(&first)]);
    let store = harness.open().await;
    let unknown = ChunkAddress([9; 20]);
    assert_eq!(get(&store, unknown).await, Ok(None));
    fs::rename(harness.store(), harness.path().join("elsewhere")).unwrap();
    store.refresh().await.unwrap_err();
    assert!(
        matches!(store.status(), StoreStatus::Failed(Error::Unreachable(_))),
        "{:?}",
        store.status()
    );
    assert!(matches!(get(&store, unknown).await, Err(Error::Unreachable(_))));
    let has = store.has_many(&[known[1], unknown], request(Form::Contents)).await;
    assert!(matches!(has, Err(Error::Unreachable(_))), "{has:?}");
    assert_eq!(store.has_many(&known, request(Form::Contents)).await, Ok(vec![true; 5]));
    fs::rename(harness.path().join("elsewhere"), harness.store()).unwrap();
    assert_eq!(get(&store, unknown).await, Ok(None));
    assert_eq!(store.status(), StoreStatus::Open);
    assert_eq!(contents_of(&store, known[2]).await, first[2]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_whose_file_is_missing_is_not_switched_to() {
    let harness = Harness::new();
    let (first, second) = (chunks(0..5), chunks(5..9));
    let (old, new) = (addresses(&first), addresses(&second));
    let first_file = harness.write_file(&first);
    harness.write_manifest(old[0], &[first_file]);
    let store = harness.open().await;
    let second_file = harness.write_file(&second);
    let path = harness.store().join(second_file.id.to_string());
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    harness.write_manifest(new[0], &[first_file, second_file]);
    let Err(Error::Unreachable(text)) = store.refresh().await else {
        panic!("{:?}", store.status())
    };
    assert!(text.contains(&second_file.id.to_string()), "{text}");
    assert_eq!(store.stats().root, Some(old[0]), "the old version goes on");
    assert_eq!(contents_of(&store, old[3]).await, first[3]);
    assert!(matches!(get(&store, new[0]).await, Err(Error::Unreachable(_))), "it may exist");
    fs::write(path, bytes).unwrap();
    assert_eq!(contents_of(&store, new[0]).await, second[0]);
    assert_eq!((store.stats().root, store.stats().versions), (Some(new[0]), 2));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_and_new_roots_stay_readable_while_versions_change_under_load() {
    let harness = Harness::new();
    let all = chunks(0..60);
    let known = addresses(&all);
    let files: Vec<_> = all.chunks(10).map(|chunks| harness.write_file(chunks)).collect();
    harness.write_manifest(known[0], &files[..1]);
    let store = harness.open().await;
    let seen = Arc::new(std::sync::atomic::AtomicUsize::new(10));
    let readers: Vec<_> = (0..4)
        .map(|reader| {
            let (store, known, seen) = (store.clone(), known.clone(), seen.clone());
            tokio::spawn(async move {
                for turn in 0..400 {
                    let count = seen.load(std::sync::atomic::Ordering::Acquire);
                    let address = known[(turn * 7 + reader * 13) % count];
                    let answer = get(&store, address).await;
                    assert!(matches!(answer, Ok(Some(_))), "{address}: {answer:?}");
                }
            })
        })
        .collect();
    for version in 1..files.len() {
        // Each version has one file only, so it drops the others.
        harness.write_manifest(known[version * 10], &files[version..=version]);
        store.refresh().await.unwrap();
        let snapshot = store.snapshot().unwrap();
        assert_eq!(snapshot.manifest.root, known[version * 10]);
        assert_eq!(snapshot.files.len(), 1, "root and files belong together");
        seen.store((version + 1) * 10, std::sync::atomic::Ordering::Release);
    }
    for reader in readers {
        reader.await.unwrap();
    }
    for (address, contents) in known.iter().zip(&all) {
        assert_eq!(contents_of(&store, *address).await, *contents);
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_dropped_from_the_manifest_is_closed_after_its_grace_period() {
    let harness = Harness::new();
    let (first, second) = (chunks(0..5), chunks(5..9));
    let (old, new) = (addresses(&first), addresses(&second));
    harness.write_manifest(old[0], &[harness.write_file(&first)]);
    let store = open(Settings { grace_period: Duration::ZERO, ..harness.settings() }).await;
    harness.write_manifest(new[0], &[harness.write_file(&second)]);
    store.refresh().await.unwrap();
    assert_eq!(store.stats().root, Some(new[0]));
    assert_eq!(get(&store, old[0]).await, Ok(None));
    assert_eq!(contents_of(&store, new[0]).await, second[0]);
    store.close().await;
}

/// A conjoin in a directory replaces several files by one and removes them.
#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_a_file_that_is_removed_are_found_in_the_one_that_took_its_place() {
    let harness = Harness::new();
    let all = chunks(0..20);
    let known = addresses(&all);
    let small: Vec<_> = all.chunks(10).map(|chunks| harness.write_file(chunks)).collect();
    harness.write_manifest(known[0], &small);
    // Without a disk cache, so that every read touches the store.
    let store = open(Settings { disk_bytes_max: 0, ..harness.settings() }).await;
    let large = harness.write_file(&all);
    harness.write_manifest(known[0], &[large]);
    for file in small {
        fs::remove_file(harness.store().join(file.id.to_string())).unwrap();
    }
    for (address, contents) in known.iter().zip(&all) {
        assert_eq!(contents_of(&store, *address).await, *contents);
    }
    assert_eq!(store.stats().files, 1);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_old_generation_is_seen_with_the_outer_manifest() {
    let harness = Harness::new();
    let (young, old) = (chunks(0..5), chunks(5..9));
    let young_file = harness.write_file(&young);
    harness.write_manifest(addresses(&young)[0], &[young_file]);
    let store = harness.open().await;
    let generation = harness.store().join("oldgen");
    fs::create_dir(&generation).unwrap();
    write_manifest(&generation, ChunkAddress::ZERO, &[write_file(&generation, &old)]);
    harness.write_manifest(addresses(&young)[1], &[young_file]);
    assert_eq!(contents_of(&store, addresses(&old)[0]).await, old[0]);
    let more = chunks(9..12);
    write_manifest(&generation, ChunkAddress::ZERO, &[write_file(&generation, &more)]);
    assert_eq!(
        contents_of(&store, addresses(&more)[0]).await,
        more[0],
        "it is looked at by itself, too"
    );
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_cannot_be_reached_is_an_error_and_never_an_absent_chunk() {
    let harness = Harness::new();
    let all = chunks(0..20);
    let known = addresses(&all);
    harness.write_manifest(known[0], &[harness.write_file(&all)]);
    copy(&harness.store(), &harness.path().join("s3/bucket/db"));
    let bucket = Bucket::start(&harness.path().join("s3")).unwrap();
    let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
    let store = open(Settings { url: url(proxy.address(), "db"), ..harness.settings() }).await;
    assert_eq!(contents_of(&store, known[0]).await, all[0]);
    store.warm(&mut |_| {}).await.unwrap();
    proxy.go_away();
    let unknown = ChunkAddress([9; 20]);
    let answer = get(&store, unknown).await;
    assert!(
        matches!(answer, Err(Error::Unreachable(_) | Error::DeadlineExceeded(_))),
        "{answer:?}"
    );
    assert_eq!(store.get(unknown, local(Form::Contents)).await, Err(Error::NotLocal));
    assert_eq!(contents_of(&store, known[7]).await, all[7], "what is on disk is still served");
    assert_eq!(store.try_has(&known[7]), Attempt::Ready(Ok(true)));
    assert_eq!(store.try_has(&unknown), Attempt::Wait);
    proxy.come_back();
    until(&store, |state| *state == StoreStatus::Open).await;
    assert_eq!(get(&store, unknown).await, Ok(None));
    store.close().await;
}
