//! Opening stores, cold and warm.

use std::time::Duration;

use busload_bucket::{Bucket, Fault, FaultProxy, Faults, Rule, url};
use busload_dolt::{Attempt, Error, Form, Settings, Store, StoreStatus};
use tokio::time::Instant;

use crate::store::support::{
    Harness, addresses, contents, contents_of, copy, fixture_list, get, open, until,
};

const FILES: usize = 1000;

/// Makes a thousand files of two chunks; returns the addresses of their chunks.
fn many_files(harness: &Harness) -> (Vec<busload_dolt::ChunkAddress>, Vec<Vec<u8>>) {
    let chunks: Vec<Vec<u8>> = (0..2 * FILES).map(contents).collect();
    let files: Vec<_> = chunks.chunks(2).map(|chunks| harness.write_file(chunks)).collect();
    let known = addresses(&chunks);
    harness.write_manifest(known[0], &files);
    (known, chunks)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_files_are_opened_and_reopened_with_one_or_two_requests() {
    let harness = Harness::new();
    let (known, chunks) = many_files(&harness);
    copy(&harness.store(), &harness.path().join("s3/bucket/db"));
    let bucket = Bucket::start(&harness.path().join("s3")).unwrap();
    let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
    let settings =
        || Settings { url: url(proxy.address(), "db"), fill_whole_max: 0, ..harness.settings() };
    let began = Instant::now();
    let store = open(settings()).await;
    let cold = began.elapsed();
    let stats = store.stats();
    assert_eq!((stats.files, stats.chunks), (FILES as u64, 2 * FILES as u64));
    for index in [0, 777, 2 * FILES - 1] {
        assert_eq!(contents_of(&store, known[index]).await, chunks[index]);
    }
    // Fills and sidecars come to disk in the background: closing does not wait for them, and the
    // proxy would see their requests later.
    crate::store::remote_store::until("three files are on disk", || {
        store.stats().cache.extents == 3
    })
    .await;
    crate::store::remote_store::until("the listing is kept", || {
        store.cache().read_sidecar(store.url(), "files").is_some()
    })
    .await;
    store.close().await;
    drop(store);
    proxy.forget();
    let began = Instant::now();
    let store = open(settings()).await;
    println!("cold {cold:?}, warm {:?}", began.elapsed());
    let seen = proxy.seen();
    let of_table_files = seen.iter().filter(|seen| !seen.path.contains("manifest")).count();
    assert_eq!(of_table_files, 0, "neither listed nor read: {seen:?}");
    assert!(seen.len() <= 4, "{seen:?}");
    assert_eq!(contents_of(&store, known[1234]).await, chunks[1234]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_take_forty_bytes_of_memory_for_a_chunk() {
    for name in ["synth-many-classic", "synth-many-archive"] {
        let store = Harness::of_fixture(name).open().await;
        let stats = store.stats();
        assert_eq!(stats.chunks, 3000);
        // And the memory of a file without chunks.
        let bytes_max = 40 * stats.chunks + 512;
        assert!(stats.index_bytes <= bytes_max, "{name}: {} bytes", stats.index_bytes);
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_of_another_version_are_of_no_use() {
    let harness = Harness::new();
    let chunks: Vec<Vec<u8>> = (0..40).map(contents).collect();
    let known = addresses(&chunks);
    let first = harness.write_file(&chunks[..20]);
    harness.write_manifest(known[0], &[first]);
    harness.open().await.close().await;
    let second = harness.write_file(&chunks[20..]);
    harness.write_manifest(known[1], &[first, second]);
    let store = harness.open().await;
    assert_eq!(contents_of(&store, known[30]).await, chunks[30]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_make_no_sense_are_refused_with_the_reason() {
    let harness = Harness::new();
    let refused = |settings: Settings| match Store::start(settings) {
        Err(Error::Refused(text)) => text,
        other => panic!("{other:?}"),
    };
    let text = refused(Settings { poll: Duration::ZERO, ..harness.settings() });
    assert!(text.contains("poll"), "{text}");
    assert!(refused(Settings { requests_max: 0, ..harness.settings() }).contains("requests"));
    refused(Settings { url: "nowhere".to_owned(), ..harness.settings() });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_opened_says_so_to_everybody_at_once() {
    let harness = Harness::new();
    std::fs::write(harness.store().join("manifest"), "9:__DOLT__:what").unwrap();
    let store = harness.start();
    let error = store.opened().await.unwrap_err();
    let address = busload_dolt::ChunkAddress([1; 20]);
    assert_eq!(store.try_get(&address, Form::Contents), Attempt::Ready(Err(error.clone())));
    assert_eq!(store.try_has(&address), Attempt::Ready(Err(error.clone())));
    assert_eq!(crate::store::support::get(&store, address).await, Err(error));
    store.close().await;
}

/// Store in a bucket behind a proxy.
struct RemoteStore {
    harness: Harness,
    _bucket: Bucket,
    proxy: FaultProxy,
}

impl RemoteStore {
    /// Copies a harness's store into a bucket.
    fn new(harness: Harness) -> Self {
        copy(&harness.store(), &harness.path().join("s3/bucket/db"));
        let bucket = Bucket::start(&harness.path().join("s3")).unwrap();
        let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
        Self { harness, _bucket: bucket, proxy }
    }

    fn settings(&self) -> Settings {
        Settings { url: url(self.proxy.address(), "db"), ..self.harness.settings() }
    }

    fn rules(&self, rules: Vec<Rule>) {
        self.proxy.set(Faults { rules, ..Faults::default() });
    }

    fn object(&self, name: &str) -> std::path::PathBuf {
        self.harness.path().join("s3/bucket/db").join(name)
    }
}

/// A mistyped prefix looks like an empty store; only this tells them apart.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_tells_whether_there_is_a_manifest() {
    let harness = Harness::new();
    let store = harness.open().await;
    assert!(!store.snapshot().unwrap().has_manifest);
    let chunks: Vec<Vec<u8>> = (0..3).map(contents).collect();
    harness.write_manifest(addresses(&chunks)[0], &[harness.write_file(&chunks)]);
    store.refresh().await.unwrap();
    assert!(store.snapshot().unwrap().has_manifest);
    store.close().await;
}

/// The store once missed the manifest (or it was not written yet), and every chunk was nil from
/// then on.
#[tokio::test(flavor = "multi_thread")]
async fn table_files_without_a_manifest_are_no_empty_store() {
    let chunks: Vec<Vec<u8>> = (0..3).map(contents).collect();
    let known = addresses(&chunks);
    for far in [false, true] {
        let harness = Harness::new();
        let file = harness.write_file(&chunks);
        let harness = RemoteStore::new(harness);
        let settings = if far { harness.settings() } else { harness.harness.settings() };
        let store = Store::start(settings).unwrap();
        let Err(Error::Unreachable(text)) = store.opened().await else {
            panic!("{:?}", store.status())
        };
        assert!(text.contains("no manifest") && text.contains(&file.id.to_string()), "{text}");
        assert!(matches!(get(&store, known[0]).await, Err(Error::Unreachable(_))));
        harness.harness.write_manifest(known[0], &[file]);
        std::fs::copy(harness.harness.store().join("manifest"), harness.object("manifest"))
            .unwrap();
        until(&store, |state| *state == StoreStatus::Open).await;
        assert_eq!(contents_of(&store, known[0]).await, chunks[0]);
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_or_two_reads_that_miss_the_manifest_are_not_believed() {
    for count in [1, 2] {
        let harness = Harness::new();
        let chunks: Vec<Vec<u8>> = (0..3).map(contents).collect();
        harness.write_manifest(addresses(&chunks)[0], &[harness.write_file(&chunks)]);
        let far = RemoteStore::new(harness);
        far.rules(vec![Rule::times(count, Fault::Status(404)).to("db/manifest")]);
        let store = open(far.settings()).await;
        assert_eq!(store.stats().root, Some(addresses(&chunks)[0]), "{count}");
        store.close().await;
    }
}

/// With credentials that may get objects but not list them, S3 answers "denied" for missing
/// objects.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_may_not_be_listed_is_opened_by_name() {
    for name in ["real-archive-v3", "real-classic"] {
        let harness = Harness::of_fixture(name);
        let far = RemoteStore::new(harness);
        let denied = |path: &str| Rule::always(Fault::Status(403)).to(path);
        let mut rules =
            vec![denied("list-type"), denied("oldgen/manifest"), denied(&"v".repeat(32))];
        for entry in std::fs::read_dir(far.harness.store()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            match name.strip_suffix(".darc") {
                // The first rule that applies decides, so this rule spares the archive itself.
                Some(id) => {
                    rules.extend([Rule::always(Fault::Delay(Duration::ZERO)).to(&name), denied(id)])
                }
                None => rules.push(denied(&format!("{name}.darc"))),
            }
        }
        far.rules(rules);
        let store = open(far.settings()).await;
        for listed in fixture_list(name, "chunks.jsonl") {
            let contents = contents_of(&store, listed.address).await;
            assert_eq!(contents.len() as u64, listed.length);
        }
        assert!(store.snapshot().unwrap().has_manifest);
        store.close().await;
    }
}

/// The prefix holds very many other objects.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_listing_does_not_end_is_opened_by_name() {
    let far = RemoteStore::new(Harness::of_fixture("real-classic"));
    far.rules(vec![Rule::always(Fault::Delay(Duration::from_secs(3600))).to("list-type")]);
    let store = open(far.settings()).await;
    let first = &fixture_list("real-classic", "chunks.jsonl")[0];
    assert_eq!(contents_of(&store, first.address).await.len() as u64, first.length);
    store.close().await;
}

/// Expired credentials give "denied", which must not pass for "there is no old generation".
#[tokio::test(flavor = "multi_thread")]
async fn an_old_generation_that_is_denied_while_it_can_be_listed_is_an_error() {
    let far = RemoteStore::new(Harness::of_fixture("real-generational"));
    far.rules(vec![Rule::always(Fault::Status(403)).to("oldgen/manifest")]);
    let store = Store::start(far.settings()).unwrap();
    assert!(matches!(store.opened().await, Err(Error::Unreachable(_))), "{:?}", store.status());
    far.rules(Vec::new());
    until(&store, |state| *state == StoreStatus::Open).await;
    assert!(store.snapshot().unwrap().old_generation.is_some());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_is_refused_also_where_nothing_may_be_listed() {
    let far = RemoteStore::new(Harness::of_fixture("real-classic"));
    std::fs::write(far.object(&"v".repeat(32)), b"x").unwrap();
    far.rules(vec![Rule::always(Fault::Status(403)).to("list-type")]);
    let store = Store::start(far.settings()).unwrap();
    assert!(matches!(store.opened().await, Err(Error::Refused(text)) if text.contains("journal")));
    store.close().await;
}

/// The store once took it for removed when the outer manifest changed at the same time, and its
/// chunks were nil after the grace period.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_generation_that_was_seen_is_never_taken_for_gone() {
    let harness = Harness::of_fixture("real-generational");
    let store = harness.open().await;
    let path = harness.store().join("oldgen/manifest");
    let manifest = std::fs::read(&path).unwrap();
    let files = store.stats().files;
    std::fs::remove_file(&path).unwrap();
    let snapshot = store.snapshot().unwrap();
    let outer: Vec<_> = snapshot.manifest.lookup_order().collect();
    let another_root = busload_dolt::ChunkAddress([3; 20]);
    harness.write_manifest(another_root, &outer);
    let Err(Error::Unreachable(text)) = store.refresh().await else {
        panic!("{:?}", store.status())
    };
    assert!(text.contains("oldgen/manifest"), "{text}");
    assert_eq!(store.stats().files, files, "the last version is still served");
    std::fs::write(&path, manifest).unwrap();
    store.refresh().await.unwrap();
    assert_eq!((store.stats().files, store.stats().root), (files, Some(another_root)));
    store.close().await;
}

/// Two copies of each index in transit once took twice the memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_index_is_read_again_in_pieces_and_as_a_whole_if_they_differ() {
    const PIECE: u64 = 1 << 20;
    let harness = Harness::new();
    let chunks: Vec<Vec<u8>> = (0..40_000u32).map(|number| number.to_le_bytes().to_vec()).collect();
    let known = addresses(&chunks);
    let file = harness.write_file(&chunks);
    harness.write_manifest(known[0], &[file]);
    let far = RemoteStore::new(harness);
    let id = file.id.to_string();
    // The second of three reads: its first piece differs from the whole.
    for (flip, wholes_expected) in [(false, 1), (true, 2)] {
        let rule = Rule::times(u64::from(flip), Fault::Flip(70_000)).to(&id).after(1);
        far.rules(vec![rule]);
        far.proxy.forget();
        let store = open(Settings { disk_bytes_max: 0, ..far.settings() }).await;
        let seen = far.proxy.seen();
        let ranges = seen
            .iter()
            .filter(|seen| seen.path.contains(&id))
            .filter_map(|seen| seen.range.clone());
        let (wholes, pieces): (Vec<_>, Vec<_>) =
            ranges.partition(|range| PIECE < range.end - range.start);
        assert_eq!(wholes.len(), wholes_expected, "{wholes:?}");
        assert_eq!(pieces.len(), if flip { 3 } else { 2 }, "{pieces:?}");
        for index in [0, 20_000, 39_999] {
            assert_eq!(contents_of(&store, known[index]).await, chunks[index]);
        }
        store.close().await;
    }
}
