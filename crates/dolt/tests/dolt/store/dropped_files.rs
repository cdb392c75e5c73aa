//! Table files by their names, also those that the manifest dropped.

use std::{fs, time::Duration};

use busload_bucket::{Fault, Rule};
use busload_chunks::{FileId, FileKind};
use busload_dolt::{ChunkAddress, Error, FileBytes, Settings, Store, TableFile};

use crate::store::{
    remote_store::{RemoteStore, deadline, stream},
    support::{Harness, addresses, contents, open, write_file, write_manifest},
};

fn chunks(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    numbers.map(contents).collect()
}

/// Name and version of a file, as a URL gives them.
#[derive(Clone, Copy)]
struct Named(FileId, FileKind, u64);

impl Named {
    fn of(file: &TableFile) -> Self {
        Self(file.id, file.kind, file.version())
    }

    async fn ask(self, store: &Store) -> Result<Option<FileBytes>, Error> {
        store.file_bytes(self.0, self.1, self.2, deadline()).await
    }

    async fn whole(self, store: &Store) -> Vec<u8> {
        let file = self.ask(store).await.unwrap().expect("the file is there");
        stream(&file, 0..file.size()).await.unwrap()
    }
}

/// Settings without a grace period.
fn without_grace_period(settings: Settings) -> Settings {
    Settings { grace_period: Duration::ZERO, disk_bytes_max: 0, ..settings }
}

/// Makes a store with a file that the manifest just dropped, and another one.
async fn dropped() -> (RemoteStore, Store, Named, String) {
    let harness = Harness::new();
    let (old, new) = (chunks(0..200), chunks(200..205));
    let spec = harness.write_file(&old);
    harness.write_manifest(addresses(&old)[0], &[spec]);
    let far = RemoteStore::of(harness);
    let store = open(without_grace_period(far.settings())).await;
    let named = Named::of(&store.snapshot().unwrap().files[0]);
    let next = write_file(&far.path(""), &new);
    write_manifest(&far.path(""), addresses(&new)[0], &[next]);
    store.refresh().await.unwrap();
    let names: Vec<_> = store.snapshot().unwrap().files.iter().map(|file| file.id).collect();
    assert_eq!(names, [next.id]);
    (far, store, named, spec.id.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_manifest_dropped_is_served_as_long_as_the_store_has_it() {
    let (far, store, named, name) = dropped().await;
    let bytes = fs::read(far.path(&name)).unwrap();
    assert_eq!(named.whole(&store).await, bytes);
    let file = named.ask(&store).await.unwrap().unwrap();
    assert_eq!(stream(&file, 100..700).await.unwrap(), &bytes[100..700]);
    assert_eq!(stream(&file, 5..5).await.unwrap(), b"");
    // The same for a process that never saw a manifest with the file.
    let other = open(without_grace_period(far.settings())).await;
    assert_eq!(named.whole(&other).await, bytes);
    other.close().await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_ranges_of_an_dropped_file_ask_for_it_once() {
    let (far, store, named, name) = dropped().await;
    let bytes = fs::read(far.path(&name)).unwrap();
    far.proxy.forget();
    let reads: Vec<_> = (0..64u64)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let file = named.ask(&store).await.unwrap().unwrap();
                stream(&file, number * 10..number * 10 + 10).await.unwrap()
            })
        })
        .collect();
    for (number, read) in reads.into_iter().enumerate() {
        assert_eq!(read.await.unwrap(), &bytes[number * 10..number * 10 + 10]);
    }
    assert_eq!(far.count("HEAD", &name), 1, "{:?}", far.proxy.seen());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_dropped_file_that_is_removed_is_none_and_one_that_comes_back_is_there() {
    let (far, store, named, name) = dropped().await;
    let bytes = fs::read(far.path(&name)).unwrap();
    assert!(named.ask(&store).await.unwrap().is_some());
    far.bucket.delete(&format!("db/{name}")).unwrap();
    let file = named.ask(&store).await.unwrap().expect("it was there a moment ago");
    let error = stream(&file, 0..10).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert!(named.ask(&store).await.unwrap().is_none(), "it has been noticed");
    far.put(&name, &bytes);
    assert_eq!(named.whole(&store).await, bytes);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_file_and_version_that_are_named_are_served() {
    let (far, store, named, name) = dropped().await;
    let Named(id, kind, version) = named;
    let mut other_id = id;
    other_id.0[7] ^= 1;
    for wrong in [
        Named(id, kind, version ^ 1),
        Named(id, FileKind::Archive, version),
        Named(other_id, kind, version),
        Named(FileId::JOURNAL, kind, version),
    ] {
        assert!(wrong.ask(&store).await.unwrap().is_none());
    }
    // The store never serves a journal, whatever object has its name.
    far.put(&FileId::JOURNAL.to_string(), &fs::read(far.path(&name)).unwrap());
    assert!(Named(FileId::JOURNAL, kind, version).ask(&store).await.unwrap().is_none());
    let current = Named::of(&store.snapshot().unwrap().files[0]);
    assert!(current.ask(&store).await.unwrap().is_some());
    assert!(Named(current.0, current.1, current.2 ^ 1).ask(&store).await.unwrap().is_none());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_dropped_file_that_cannot_be_asked_for_is_an_error_and_not_none() {
    let (far, store, named, _) = dropped().await;
    for fault in [Fault::Status(403), Fault::Status(503)] {
        far.rules(vec![Rule::always(fault)]);
        let error = named.ask(&store).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    }
    far.rules(vec![Rule::always(Fault::Delay(Duration::from_secs(3600)))]);
    let soon = (tokio::time::Instant::now() + Duration::from_millis(30)).into_std();
    let error = store.file_bytes(named.0, named.1, named.2, soon).await.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded(_)), "{error:?}");
    far.rules(Vec::new());
    assert!(named.ask(&store).await.unwrap().is_some(), "the failure is not remembered");
    store.close().await;
    assert_eq!(named.ask(&store).await.unwrap_err(), Error::Closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_dropped_file_that_was_replaced_is_none_in_its_old_version() {
    let (far, store, named, name) = dropped().await;
    assert!(named.ask(&store).await.unwrap().is_some());
    let mut bytes = fs::read(far.path(&name)).unwrap();
    bytes[40] ^= 1;
    far.put(&name, &bytes);
    let file = named.ask(&store).await.unwrap().expect("nobody has noticed yet");
    let error = stream(&file, 0..bytes.len() as u64).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert!(named.ask(&store).await.unwrap().is_none(), "it has been noticed");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_files_have_the_names_of_the_store_they_are_in() {
    // All names of this store end in `.bs`.
    let harness = Harness::of_fixture("real-localbs");
    let store = open(without_grace_period(harness.settings())).await;
    let files = store.snapshot().unwrap().files.clone();
    store.close().await;
    let manifest = harness.store().join("manifest.bs");
    let text = fs::read_to_string(&manifest).unwrap();
    let head: Vec<_> = text.split(':').take(5).collect();
    fs::write(&manifest, head.join(":")).unwrap();
    let store = open(without_grace_period(harness.settings())).await;
    assert_eq!(store.stats().files, 0);
    for file in &files {
        assert_eq!(
            Named::of(file).whole(&store).await,
            fs::read(harness.store().join(file.name())).unwrap()
        );
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_files_of_the_old_generation_are_found() {
    let harness = Harness::new();
    let (young, old) = (chunks(0..5), chunks(5..9));
    harness.write_manifest(addresses(&young)[0], &[harness.write_file(&young)]);
    let generation = harness.store().join("oldgen");
    fs::create_dir(&generation).unwrap();
    let spec = write_file(&generation, &old);
    write_manifest(&generation, ChunkAddress::ZERO, &[spec]);
    let store = open(without_grace_period(harness.settings())).await;
    let file = store.snapshot().unwrap().files[1].clone();
    let next = write_file(&generation, &chunks(9..12));
    write_manifest(&generation, ChunkAddress::ZERO, &[next]);
    store.refresh().await.unwrap();
    assert!(store.snapshot().unwrap().files.iter().all(|file| file.id != spec.id));
    let bytes = fs::read(generation.join(spec.id.to_string())).unwrap();
    assert_eq!(Named::of(&file).whole(&store).await, bytes);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_its_grace_period_is_served_without_asking_for_it() {
    let harness = Harness::new();
    let (old, new) = (chunks(0..200), chunks(200..205));
    harness.write_manifest(addresses(&old)[0], &[harness.write_file(&old)]);
    let far = RemoteStore::of(harness);
    let store = far.open_without_disk().await;
    let named = Named::of(&store.snapshot().unwrap().files[0]);
    let next = write_file(&far.path(""), &new);
    write_manifest(&far.path(""), addresses(&new)[0], &[next]);
    store.refresh().await.unwrap();
    far.proxy.forget();
    assert!(named.ask(&store).await.unwrap().is_some());
    assert!(far.proxy.seen().is_empty(), "{:?}", far.proxy.seen());
    store.close().await;
}
