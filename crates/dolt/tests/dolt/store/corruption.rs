//! Table files whose bytes changed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use busload_bucket::{Bucket, Fault, FaultProxy, Faults, Rule, url};
use busload_chunks::FileSpec;
use busload_dolt::{ChunkAddress, Error, Form, Settings, Store};
use busload_objects::Progress;

use crate::store::support::{
    Harness, addresses, collect, contents_of, copy, get, noise, open, request,
};

fn flip(path: &Path, offset: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn chunks(numbers: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    numbers.map(|seed| noise(seed, 3000)).collect()
}

/// A store with two files, of which the second holds the last chunks of the first as well.
struct Twice {
    harness: Harness,
    chunks: Vec<Vec<u8>>,
    addresses: Vec<ChunkAddress>,
    files: [FileSpec; 2],
}

impl Twice {
    fn new() -> Self {
        let harness = Harness::new();
        let chunks = chunks(0..6);
        let files = [harness.write_file(&chunks), harness.write_file(&chunks[3..])];
        let addresses = addresses(&chunks);
        harness.write_manifest(addresses[0], &files);
        Self { harness, chunks, addresses, files }
    }

    /// Flips a bit in the middle of a chunk of the first file.
    fn corrupt(&self, chunk: usize) {
        let path = self.harness.store().join(self.files[0].id.to_string());
        flip(&path, chunk * 3010 + 1500);
    }
}

async fn assert_corrupt(store: &Store, address: ChunkAddress, file: FileSpec) {
    for form in [Form::Contents, Form::Stored, Form::Record] {
        match store.get(address, request(form)).await {
            Err(Error::Corrupt(text)) => {
                assert!(
                    text.contains(&file.id.to_string()) && text.contains(&address.to_string()),
                    "{text}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_is_corrupt_in_its_only_file_is_an_error_and_the_others_are_served() {
    let twice = Twice::new();
    twice.corrupt(1);
    let store = twice.harness.open().await;
    assert_corrupt(&store, twice.addresses[1], twice.files[0]).await;
    for healthy in [0, 2, 3, 4, 5] {
        assert_eq!(contents_of(&store, twice.addresses[healthy]).await, twice.chunks[healthy]);
    }
    assert_eq!(store.stats().corrupt, 3);
    let many = store.get_many(twice.addresses.clone(), request(Form::Contents));
    let many = collect(many, 6).await;
    for (index, answer) in many.iter().enumerate() {
        assert_eq!(matches!(answer, Err(Error::Corrupt(_))), index == 1, "{index}: {answer:?}");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_is_corrupt_in_one_file_is_served_from_another() {
    let twice = Twice::new();
    twice.corrupt(4);
    for disk_bytes_max in [0, 1 << 30] {
        let store = open(Settings { disk_bytes_max, ..twice.harness.settings() }).await;
        assert_eq!(contents_of(&store, twice.addresses[4]).await, twice.chunks[4]);
        assert_eq!(store.stats().corrupt, 1);
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_names_what_is_corrupt_and_nothing_else() {
    let twice = Twice::new();
    twice.corrupt(1);
    twice.corrupt(4);
    let store = open(Settings { disk_bytes_max: 0, ..twice.harness.settings() }).await;
    let mut wrong = Vec::new();
    let mut report = |_: Progress, found: Option<(ChunkAddress, Error)>| wrong.extend(found);
    let end = store.verify(&mut report).await.unwrap();
    assert_eq!(end.done, end.total);
    assert!((6000..6100).contains(&end.corrupt), "{end:?}");
    let mut named: Vec<_> = wrong.iter().map(|(address, _)| *address).collect();
    named.sort_unstable();
    // The copy in the second file does not excuse the one in the first.
    let mut expected = [twice.addresses[1], twice.addresses[4]];
    expected.sort_unstable();
    assert_eq!(named, expected);
    assert!(wrong.iter().all(|(_, error)| matches!(error, Error::Corrupt(_))));
    store.close().await;
}

/// Wrong bytes came to local disk before the store was repaired.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_came_to_disk_corrupt_is_read_again_from_the_store() {
    let twice = Twice::new();
    let path = twice.harness.store().join(twice.files[0].id.to_string());
    let whole = fs::read(&path).unwrap();
    twice.corrupt(1);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let store = twice.harness.open().await;
    store.warm(&mut |_| {}).await.unwrap();
    // In place and with the same time: the version of the object looks unchanged.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &whole, 0).unwrap();
    file.set_modified(modified).unwrap();
    assert_eq!(contents_of(&store, twice.addresses[1]).await, twice.chunks[1]);
    assert_eq!(store.stats().corrupt, 1);
    assert_eq!(contents_of(&store, twice.addresses[1]).await, twice.chunks[1]);
    assert_eq!(store.stats().corrupt, 1, "it was wrong once");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_makes_no_sense_is_corruption_until_it_is_put_right() {
    let twice = Twice::new();
    let path = twice.harness.store().join(twice.files[0].id.to_string());
    let length = fs::read(&path).unwrap().len();
    flip(&path, length - 1);
    let store = twice.harness.start();
    let Err(Error::Corrupt(text)) = store.opened().await else { panic!("{:?}", store.status()) };
    assert!(text.contains(&twice.files[0].id.to_string()), "{text}");
    assert!(matches!(get(&store, twice.addresses[0]).await, Err(Error::Corrupt(_))));
    flip(&path, length - 1);
    store.refresh().await.unwrap();
    assert_eq!(contents_of(&store, twice.addresses[0]).await, twice.chunks[0]);
    store.close().await;
}

/// Copy of a harness's store in a bucket, behind a proxy that counts requests.
struct Counted {
    harness: Harness,
    _bucket: Bucket,
    proxy: FaultProxy,
}

impl Counted {
    fn new(harness: Harness) -> Self {
        copy(&harness.store(), &harness.path().join("s3/bucket/db"));
        let bucket = Bucket::start(&harness.path().join("s3")).unwrap();
        let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
        Self { harness, _bucket: bucket, proxy }
    }

    fn object(&self, name: &str) -> PathBuf {
        self.harness.path().join("s3/bucket/db").join(name)
    }

    async fn open(&self) -> Store {
        let url = url(self.proxy.address(), "db");
        open(Settings { url, disk_bytes_max: 0, ..self.harness.settings() }).await
    }
}

/// Each request once read a chunk three times that was corrupt in the store, and evicted its
/// neighbours from disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_was_found_corrupt_is_not_read_again_at_once() {
    let Twice { harness, chunks, addresses, files } = Twice::new();
    let counted = Counted::new(harness);
    flip(&counted.object(&files[0].id.to_string()), 3010 + 1500);
    let store = counted.open().await;
    let first = get(&store, addresses[1]).await;
    assert!(matches!(&first, Err(Error::Corrupt(_))), "{first:?}");
    counted.proxy.forget();
    for _ in 0..5 {
        assert_eq!(get(&store, addresses[1]).await, first);
    }
    let seen = counted.proxy.seen();
    assert!(seen.is_empty(), "{seen:?}");
    assert_eq!(store.stats().corrupt, 6);
    assert_eq!(contents_of(&store, addresses[0]).await, chunks[0]);
    // A verification asks for what the store has now.
    let mut wrong = Vec::new();
    store.verify(&mut |_, found| wrong.extend(found)).await.unwrap();
    assert!(!counted.proxy.seen().is_empty());
    assert_eq!(wrong.iter().map(|(address, _)| *address).collect::<Vec<_>>(), [addresses[1]]);
    store.close().await;
}

/// Bytes that differ from read to read are corrupted in transit.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_comes_corrupt_differently_each_time_is_read_again_at_once() {
    let Twice { harness, chunks, addresses, files } = Twice::new();
    let counted = Counted::new(harness);
    let store = counted.open().await;
    // In the same byte, but in another bit.
    let rule = Rule::always(Fault::Flip(1500)).to(&files[0].id.to_string());
    counted.proxy.set(Faults { rules: vec![rule], ..Faults::default() });
    assert!(matches!(get(&store, addresses[0]).await, Err(Error::Corrupt(_))));
    counted.proxy.set(Faults::default());
    assert_eq!(contents_of(&store, addresses[0]).await, chunks[0]);
    store.close().await;
}

/// One corrupt chunk once evicted the dictionary of all chunks of the archive.
#[tokio::test(flavor = "multi_thread")]
async fn a_dictionary_with_which_chunks_were_verified_outlives_a_corrupt_chunk() {
    let counted = Counted::new(Harness::of_fixture("real-archive-v3"));
    let store = counted.open().await;
    let snapshot = store.snapshot().unwrap();
    let located = snapshot.files.iter().flat_map(|file| {
        let locations =
            (0..file.index.chunk_count()).map(|position| (position, file.index.location(position)));
        locations.filter_map(move |(position, location)| {
            Some((file, file.index.address(position), location.span, location.dictionary?))
        })
    });
    let mut located: Vec<_> = located.collect();
    located.sort_by_key(|(_, _, span, _)| span.offset);
    let (file, good, near, dictionary) = located[0];
    let (_, bad, far, of_bad) = *located.last().unwrap();
    assert_eq!(dictionary, of_bad, "one dictionary for all");
    assert!(near.offset + 20_000 < far.offset, "they share no block");
    assert!(matches!(get(&store, good).await, Ok(Some(_))));
    // In transit, so that the version of the object stays the same.
    let block = far.offset / 4092 * 4092;
    let at = far.offset - block + u64::from(far.length) / 2;
    let rule = Rule::always(Fault::Flip(at)).to(file.name());
    counted.proxy.set(Faults { rules: vec![rule], ..Faults::default() });
    assert!(matches!(get(&store, bad).await, Err(Error::Corrupt(_))));
    counted.proxy.forget();
    assert!(
        matches!(get(&store, good).await, Ok(Some(_))),
        "with the dictionary that was right before"
    );
    let wanted = dictionary.offset..dictionary.offset + u64::from(dictionary.length);
    let reads_dictionary =
        |range: &std::ops::Range<u64>| range.start < wanted.end && wanted.start < range.end;
    let seen = counted.proxy.seen();
    assert!(!seen.iter().filter_map(|seen| seen.range.as_ref()).any(reads_dictionary), "{seen:?}");
    store.close().await;
}
