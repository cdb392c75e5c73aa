//! New versions of the manifest while the old ones are read.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use busload_bucket::{Fault, Rule};
use busload_chunks::ChunkAddress;
use busload_dolt::{Error, StoreStatus};
use tokio::task::JoinSet;

use crate::faults::{
    open,
    support::{Counters, World, mix, patiently, read_by_many, read_each, until},
};

/// Addresses that readers may ask for: those of all versions seen so far.
type Known = Arc<Mutex<Vec<ChunkAddress>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_switched_under_load_leave_old_and_new_chunks_readable() {
    let world = World::new(1);
    let (first, addresses) = world.put_file(0, 100);
    world.put_manifest(addresses[0], &[first]);
    let store = world.start();
    open(&store).await;
    let known: Known = Arc::new(Mutex::new(addresses));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for reader in 0..8u64 {
        let (store, known, is_over) = (store.clone(), Arc::clone(&known), Arc::clone(&is_over));
        readers.spawn(async move {
            let (mut counters, mut turn) = (Counters::default(), 0);
            while !is_over.load(Ordering::Relaxed) {
                turn += 1;
                let address = {
                    let known = known.lock().unwrap();
                    known[usize::try_from(mix(reader ^ mix(turn)) % known.len() as u64).unwrap()]
                };
                counters.count(&address, true, store.get(address, patiently()).await);
                // Reads from local disk do not wait, and would leave other tasks no turn.
                tokio::task::yield_now().await;
            }
            counters
        });
    }

    let faults = [
        Fault::Status(503),
        Fault::Reset(100),
        Fault::HalfListing,
        Fault::Truncate(10),
        Fault::NoAnswer,
    ];
    world.rules(faults.into_iter().map(|fault| Rule::sometimes(0.05, fault)).collect());
    let mut files = vec![first];
    for version in 1..=12u64 {
        let (spec, added) = world.put_file(version, 100);
        files.push(spec);
        if version % 4 == 0 {
            // A collection: some files are no longer named.
            files.drain(..2);
        }
        world.put_manifest(added[0], &files);
        until(&format!("version {version} is served: {:?}", store.status()), || {
            store.snapshot().is_some_and(|snapshot| snapshot.manifest.root == added[0])
        })
        .await;
        let snapshot = store.snapshot().unwrap();
        assert_eq!(snapshot.files.len(), files.len(), "root and files belong together");
        known.lock().unwrap().extend(added);
    }
    is_over.store(true, Ordering::Relaxed);
    let (mut right, mut errors) = (0, Vec::new());
    for counters in readers.join_all().await {
        right += counters.right;
        errors.extend(counters.errors);
    }
    assert!(errors.is_empty(), "{errors:?}");
    assert!(right > 0);
    assert!(store.stats().versions >= 13);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_whose_file_is_missing_is_not_switched_to() {
    let world = World::new(2);
    let (first, old) = world.put_file(1, 50);
    world.put_manifest(old[0], &[first]);
    let store = world.start();
    open(&store).await;
    let (second, new) = world.put_file(2, 50);
    let name = second.id.to_string();
    let bytes = fs::read(world.path(&name)).unwrap();
    world.bucket.delete(&format!("db/{name}")).unwrap();
    world.put_manifest(new[0], &[first, second]);
    until("it says why there is no newer version", || {
        matches!(store.status(), StoreStatus::Failed(_))
    })
    .await;
    assert_eq!(store.snapshot().unwrap().manifest.root, old[0]);
    let counters = read_by_many(&store, &Arc::new(old), 2, 3).await;
    let is_nil_uncertain =
        |error: &Error| matches!(error, Error::Unreachable(_) | Error::Corrupt(_));
    assert!(
        counters.errors.iter().all(is_nil_uncertain),
        "only for what may be in the new version: {:?}",
        counters.errors
    );
    assert!(counters.right > 0);
    let error = store.get(new[1], patiently()).await.unwrap_err();
    assert!(is_nil_uncertain(&error), "it exists, in a version that cannot be opened: {error:?}");

    world.put(&name, &bytes);
    until("the new version is served", || store.status() == StoreStatus::Open).await;
    let counters = read_each(&store, &new).await;
    assert!(counters.errors.is_empty(), "{:?}", counters.errors);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_missing_in_a_listing_are_found_by_name() {
    let world = World::new(3);
    let (mut files, mut addresses) = (Vec::new(), Vec::new());
    for seed in 0..20 {
        let (spec, added) = world.put_file(seed, 20);
        files.push(spec);
        addresses.extend(added);
    }
    world.put_manifest(addresses[0], &files);
    world.rules(vec![Rule::always(Fault::HalfListing)]);
    let store = world.start();
    store.opened().await.unwrap();
    let counters = read_each(&store, &addresses).await;
    assert!(counters.errors.is_empty(), "{:?}", counters.errors);
    store.close().await;
}

/// A garbage collection in the store deletes the objects as well; readers of the old root have what
/// came to disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_file_that_is_deleted_stays_readable_from_disk() {
    let world = World::new(4);
    let (old, old_addresses) = world.put_file(1, 200);
    world.put_manifest(old_addresses[0], &[old]);
    let store = world.start();
    open(&store).await;
    store.warm(&mut |_| {}).await.unwrap();
    let (new, new_addresses) = world.put_file(2, 200);
    world.put_manifest(new_addresses[0], &[new]);
    world.bucket.delete(&format!("db/{}", old.id)).unwrap();
    store.refresh().await.unwrap();
    assert_eq!(store.snapshot().unwrap().manifest.root, new_addresses[0]);
    let counters = read_each(&store, old_addresses.iter().chain(&new_addresses)).await;
    assert!(counters.errors.is_empty(), "{:?}", counters.errors);
    store.close().await;
}

/// A writer adds a chunk and tells a reader, who asks at once: the read finds it, although no poll
/// read the manifest meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_written_before_it_was_asked_for_is_never_nil() {
    let world = World::new(5);
    let (first, addresses) = world.put_file(0, 20);
    world.put_manifest(addresses[0], &[first]);
    let store = world.start_with(|settings| settings.poll = Duration::from_secs(3600));
    open(&store).await;
    let mut files = vec![first];
    for version in 1..=20u64 {
        let (spec, added) = world.put_file(version, 20);
        files.push(spec);
        world.put_manifest(added[0], &files);
        let counters = read_each(&store, [&added[3]]).await;
        assert!(counters.errors.is_empty(), "version {version}: {:?}", counters.errors);
    }
    store.close().await;
}

/// A manifest that is corrupt, empty or gone is no newer version, and no reason to drop the one
/// that is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_that_is_no_manifest_leaves_the_version_before_it() {
    let world = World::new(6);
    let (first, addresses) = world.put_file(0, 20);
    world.put_manifest(addresses[0], &[first]);
    let good = fs::read(world.path("manifest")).unwrap();
    let store = world.start();
    open(&store).await;
    for bad in
        [&b""[..], b"5:__DOLT__:", b"\xff\xfe", &good[..good.len() - ":20".len()], &[b'5'; 100]]
    {
        world.put("manifest", bad);
        let shown = String::from_utf8_lossy(bad);
        until(&format!("it says what is wrong with {shown}"), || {
            matches!(store.status(), StoreStatus::Failed(_))
        })
        .await;
        let counters = read_each(&store, &addresses).await;
        assert!(counters.errors.is_empty(), "{:?}", counters.errors);
        world.put("manifest", &good);
        until(&format!("it is well again after {shown}"), || store.status() == StoreStatus::Open)
            .await;
    }
    store.close().await;
}
