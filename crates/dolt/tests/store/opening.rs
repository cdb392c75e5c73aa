//! Opening, cold and warm.

use busload_bucket::{Bucket, FaultProxy, Faults, url};
use busload_dolt::{Attempt, Error, Form, Settings, Store};
use tokio::time::Instant;

use crate::support::{Lab, addresses, contents, contents_of, copy, open};

const FILES: usize = 1000;

/// A thousand files of two chunks; the addresses of their chunks.
fn many_files(lab: &Lab) -> (Vec<busload_dolt::ChunkAddress>, Vec<Vec<u8>>) {
    let chunks: Vec<Vec<u8>> = (0..2 * FILES).map(contents).collect();
    let files: Vec<_> = chunks.chunks(2).map(|chunks| lab.write_file(chunks)).collect();
    let known = addresses(&chunks);
    lab.write_manifest(known[0], &files);
    (known, chunks)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_files_are_opened_and_opened_again_with_one_or_two_requests() {
    let lab = Lab::new();
    let (known, chunks) = many_files(&lab);
    copy(&lab.store(), &lab.path().join("s3/bucket/db"));
    let bucket = Bucket::start(&lab.path().join("s3")).unwrap();
    let proxy = FaultProxy::start(bucket.address(), 1, Faults::default()).unwrap();
    let settings = || Settings { url: url(proxy.address(), "db"), fill_whole_max: 0, ..lab.settings() };
    let began = Instant::now();
    let store = open(settings()).await;
    let cold = began.elapsed();
    let stats = store.stats();
    assert_eq!((stats.files, stats.chunks), (FILES as u64, 2 * FILES as u64));
    for index in [0, 777, 2 * FILES - 1] {
        assert_eq!(contents_of(&store, known[index]).await, chunks[index]);
    }
    // What was kept is there when the store has been closed.
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
        let store = Lab::of_fixture(name).open().await;
        let stats = store.stats();
        assert_eq!(stats.chunks, 3000);
        // And what a file takes whatever is in it.
        let bytes_max = 40 * stats.chunks + 512;
        assert!(stats.index_bytes <= bytes_max, "{name}: {} bytes", stats.index_bytes);
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_of_another_version_is_of_no_use() {
    let lab = Lab::new();
    let chunks: Vec<Vec<u8>> = (0..40).map(contents).collect();
    let known = addresses(&chunks);
    let first = lab.write_file(&chunks[..20]);
    lab.write_manifest(known[0], &[first]);
    lab.open().await.close().await;
    let second = lab.write_file(&chunks[20..]);
    lab.write_manifest(known[1], &[first, second]);
    let store = lab.open().await;
    assert_eq!(contents_of(&store, known[30]).await, chunks[30]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_make_no_sense_are_refused_with_the_reason() {
    let lab = Lab::new();
    let refused = |settings: Settings| match Store::start(settings) {
        Err(Error::Refused(text)) => text,
        other => panic!("{other:?}"),
    };
    let text = refused(Settings { poll: std::time::Duration::ZERO, ..lab.settings() });
    assert!(text.contains("poll"), "{text}");
    assert!(refused(Settings { requests_max: 0, ..lab.settings() }).contains("requests"));
    refused(Settings { url: "nowhere".to_owned(), ..lab.settings() });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_opened_says_so_to_everybody_at_once() {
    let lab = Lab::new();
    std::fs::write(lab.store().join("manifest"), "9:__DOLT__:what").unwrap();
    let store = lab.start();
    let error = store.opened().await.unwrap_err();
    let address = busload_dolt::ChunkAddress([1; 20]);
    assert_eq!(store.try_get(&address, Form::Contents), Attempt::Ready(Err(error.clone())));
    assert_eq!(store.try_has(&address), Attempt::Ready(Err(error.clone())));
    assert_eq!(crate::support::get(&store, address).await, Err(error));
    store.close().await;
}
