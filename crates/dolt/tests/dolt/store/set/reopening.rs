//! Stores that were closed: what they ask the bucket for when they are opened again.

use std::{fs, path::PathBuf};

use busload_bucket::{Bucket, FaultProxy, Faults, Seen, url};

use super::*;
use crate::store::{
    remote_store::until,
    support::{copy, fixture, fixture_list},
};

/// The stores of [`Stores`] in a bucket behind a proxy, which records the requests.
struct RemoteStores {
    stores: Stores,
    proxy: FaultProxy,
    _bucket: Bucket,
}

impl RemoteStores {
    fn new(count: usize) -> Self {
        let stores = Stores::new(count);
        let root = stores.harness.path().join("s3");
        copy(&stores.harness.store(), &root.join("bucket/dolt"));
        let bucket = Bucket::start(&root).unwrap();
        let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
        Self { stores, proxy, _bucket: bucket }
    }

    /// Starts a set that has one store open at a time.
    fn start(&self) -> StoreSet {
        let url = url(self.proxy.address(), "dolt/{name}");
        let template = StoreTemplate::parse(&url, 2).unwrap();
        StoreSet::start(SetSettings { template, stores_max: 1, ..self.stores.settings() }).unwrap()
    }

    /// Directory of a store in the bucket.
    fn directory(&self, number: usize) -> PathBuf {
        self.stores.harness.path().join("s3/bucket/dolt/org").join(number.to_string())
    }

    /// Files of the cache with this suffix.
    fn cached(&self, suffix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.stores.harness.path().join("cache")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.to_string_lossy().ends_with(suffix)).collect()
    }

    /// Opens a store, and returns when all that it keeps is on disk.
    async fn open(&self, set: &StoreSet, number: usize) {
        let store = set.get(&name(number)).unwrap();
        read(&store, number).await.unwrap();
        let cache = set.cache();
        until("the listing and the file are kept", || {
            let is_of = |object: &busload_objects::CachedObject| object.store == store.url();
            cache.read_sidecar(store.url(), "files").is_some() && cache.list().iter().any(is_of)
        })
        .await;
    }

    /// Reads the first chunk of a store, and returns the requests for it.
    async fn reopen(&self, set: &StoreSet, number: usize) -> Vec<Seen> {
        self.proxy.forget();
        read_from(set, number).await.unwrap();
        self.proxy.seen()
    }
}

/// Returns whether a request brings what the store needs, and not only where that is.
fn is_direct(seen: &Seen) -> bool {
    seen.method == "GET" && !seen.path.contains("list-type")
}

fn is_one_manifest(seen: &[Seen]) -> bool {
    matches!(seen, [seen] if seen.method == "GET" && seen.path.ends_with("/manifest"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_opened_again_asks_for_its_manifest_only() {
    let stores = RemoteStores::new(2);
    let set = stores.start();
    stores.open(&set, 0).await;
    stores.open(&set, 1).await;
    assert!(set.find("org/0").is_none(), "one store is open at a time");
    let seen = stores.reopen(&set, 0).await;
    assert!(is_one_manifest(&seen), "{seen:?}");
    set.close().await;
    drop(set);
    let set = stores.start();
    for number in 0..2 {
        let seen = stores.reopen(&set, number).await;
        assert!(is_one_manifest(&seen), "after a restart: {seen:?}");
    }
    set.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_to_a_closed_store_is_seen_and_costs_the_new_index_only() {
    let stores = RemoteStores::new(2);
    let set = stores.start();
    stores.open(&set, 0).await;
    stores.open(&set, 1).await;
    let directory = stores.directory(0);
    let old: Vec<_> = (0..10).map(contents).collect();
    let pushed: Vec<_> = (500..510).map(contents).collect();
    let files = [write_file(&directory, &old), write_file(&directory, &pushed)];
    write_manifest(&directory, ChunkAddress::of(&pushed[0]), &files);
    stores.proxy.forget();
    let store = set.get("org/0").unwrap();
    store.opened().await.unwrap();
    assert_eq!(store.snapshot().unwrap().manifest.root, ChunkAddress::of(&pushed[0]));
    let of = |seen: &Seen, number: usize| seen.path.contains(&files[number].id.to_string());
    let seen = stores.proxy.seen();
    assert!(!seen.iter().any(|seen| of(seen, 0)), "{seen:?}");
    assert!(seen.iter().any(|seen| of(seen, 1)), "{seen:?}");
    assert!(seen.iter().all(is_direct), "a round trip more: {seen:?}");
    let deadline = (Instant::now() + LONG).into_std();
    let request =
        Request { form: Form::Contents, local_only: false, deadline, requester: Requester::Client };
    for chunk in old.iter().chain(&pushed) {
        assert!(store.get(ChunkAddress::of(chunk), request).await.unwrap().is_some());
    }
    // An archive takes the place of all, as after a collection of garbage.
    drop(store);
    read_from(&set, 1).await.unwrap();
    copy(&fixture("real-archive-v3").join("store"), &directory);
    stores.proxy.forget();
    let store = set.get("org/0").unwrap();
    store.opened().await.unwrap();
    assert!(store.stats().files <= 8, "as many as are read by name");
    let seen = stores.proxy.seen();
    assert!(seen.iter().any(|seen| seen.path.contains(".darc")), "{seen:?}");
    assert!(seen.iter().all(is_direct), "a round trip more: {seen:?}");
    for listed in fixture_list("real-archive-v3", "chunks.jsonl") {
        assert!(store.get(listed.address, request).await.unwrap().is_some());
    }
    set.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_sidecar_is_read_again_from_the_bucket() {
    let stores = RemoteStores::new(2);
    let set = stores.start();
    // A flipped bit, or half the file: of the listing alone, then of everything.
    for suffix in ["-files.keep", ".keep"] {
        for is_cut in [false, true] {
            stores.open(&set, 0).await;
            stores.open(&set, 1).await;
            let paths = stores.cached(suffix);
            assert!(!paths.is_empty());
            for path in paths {
                let mut bytes = fs::read(&path).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                bytes.truncate(if is_cut { middle } else { bytes.len() });
                fs::write(&path, bytes).unwrap();
            }
            let seen = stores.reopen(&set, 0).await;
            assert!(seen.iter().any(|seen| seen.path.contains("list-type")), "{seen:?}");
            assert_eq!(seen.iter().any(|seen| seen.range.is_some()), suffix == ".keep");
            stores.open(&set, 0).await;
            stores.open(&set, 1).await;
            let seen = stores.reopen(&set, 0).await;
            assert!(is_one_manifest(&seen), "it is kept again: {seen:?}");
        }
    }
    set.close().await;
}

/// A file whose id another store has, too, but with other chunks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_file_ids_of_two_stores_stay_apart() {
    let stores = RemoteStores::new(2);
    let [first, second] = [0, 1].map(|number| stores.directory(number));
    let chunks: Vec<_> = (10..20).map(contents).collect();
    let own = write_file(&second, &chunks);
    let chunks_of_first: Vec<_> = (0..10).map(contents).collect();
    let other = write_file(&first, &chunks_of_first);
    fs::rename(second.join(own.id.to_string()), second.join(other.id.to_string())).unwrap();
    write_manifest(&second, ChunkAddress::of(&chunks[0]), &[other]);
    let set = stores.start();
    for _ in 0..3 {
        stores.open(&set, 0).await;
        stores.open(&set, 1).await;
    }
    let names: Vec<String> = set.cache().list().into_iter().map(|file| file.meta.name).collect();
    assert_eq!(names, [other.id.to_string(), other.id.to_string()]);
    for (number, chunks) in [chunks_of_first, chunks].iter().enumerate() {
        stores.proxy.forget();
        let store = set.get(&name(number)).unwrap();
        store.opened().await.unwrap();
        for chunk in chunks {
            let deadline = (Instant::now() + LONG).into_std();
            let request = Request {
                form: Form::Contents,
                local_only: true,
                deadline,
                requester: Requester::Client,
            };
            let read = store.get(ChunkAddress::of(chunk), request).await.unwrap();
            assert_eq!(read, Some(busload_dolt::Chunk::Contents(chunk.clone().into())));
        }
        assert!(is_one_manifest(&stores.proxy.seen()));
        assert_eq!(store.stats().cache.corrupt, 0);
    }
    set.close().await;
}
