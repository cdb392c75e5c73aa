//! Streams through a real client, against a store that counts requests and fails on demand.

use std::{ops::Range, sync::Arc, time::Duration};

use crate::support::{
    AMPLE, MIB, Numbers, Sizes, Store, TIMEOUT, TOUCHED, cache, contents, meta,
    remote_without_stalls, slice, until,
};
use busload_bucket::{Fault, Faults, Rule};
use busload_objects::{AccessHint, Cache, Error, Object, StreamOptions};
use futures_util::StreamExt;
use tempfile::TempDir;
use tokio::{runtime::Handle, task::JoinSet};

const SIZE: u64 = 40 * MIB + 17;

/// Streams a range and checks its bytes.
async fn follow(
    object: &Object,
    contents: &[u8],
    range: Range<u64>,
    hint: AccessHint,
) -> Result<(), Error> {
    let mut stream = object.stream(range.clone(), StreamOptions { hint, timeout: TIMEOUT });
    let mut next = range.start;
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        let end = next + piece.len() as u64;
        assert!(!piece.is_empty() && end <= range.end, "{next}..{end} of {range:?}");
        assert!(*piece == *slice(contents, &(next..end)), "wrong bytes in {next}..{end}");
        next = end;
    }
    assert_eq!(next, range.end, "it ended early");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_copies_at_once_cost_the_store_one() {
    let store = Store::start(1);
    let contents = contents(1, SIZE);
    store.put("object", &contents);
    store.proxy.set(Faults { first_byte: Duration::from_millis(20), ..Faults::default() });
    let remote = remote_without_stalls(&store.url());
    let meta = meta(&remote, "object").await;
    let directory = TempDir::new().unwrap();
    let cache = cache(directory.path(), TOUCHED);
    let object = cache.object(&remote, &meta);
    store.proxy.forget();
    let mut copies = JoinSet::new();
    for index in 0..20 {
        let (object, contents) = (Arc::clone(&object), contents.clone());
        copies.spawn(async move {
            if index % 2 == 1 {
                // Half of them begin when some extents are on disk.
                until("the first bytes are there", || object.is_local(0..1)).await;
            }
            follow(&object, &contents, 0..SIZE, AccessHint::Sequential).await.unwrap();
        });
    }
    copies.join_all().await;
    // The proxy forwards bytes before it counts them.
    until("the last request is over", || remote.stats().in_flight == 0).await;
    let mut gets = store.gets();
    gets.sort_by_key(|range| range.start);
    assert!(gets.windows(2).all(|pair| pair[0].end == pair[1].start), "{gets:?}");
    assert_eq!((gets[0].start, gets[gets.len() - 1].end), (0, SIZE), "{gets:?}");
    assert_eq!(remote.stats().bytes, SIZE);
    cache.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_the_middle_never_show_in_the_bytes() {
    let faults = [
        Fault::Truncate(300_000),
        Fault::Reset(500_000),
        Fault::Stall(400_000),
        Fault::Status(503),
        Fault::WrongRange,
        Fault::WholeForRange,
        Fault::NoAnswer,
    ];
    for (seed, fault) in (0..).zip(faults) {
        let store = Store::start(seed);
        let contents = contents(seed, 12 * MIB + 5);
        store.put("object", &contents);
        let directory = TempDir::new().unwrap();
        let tight = Sizes { disk: 5 * MIB, ..TOUCHED };
        let caches = [
            Cache::none(8 * MIB, Handle::current()),
            cache(&directory.path().join("a"), AMPLE),
            cache(&directory.path().join("b"), tight),
        ];
        for cache in caches {
            let remote = store.remote();
            let object = cache.object(&remote, &meta(&remote, "object").await);
            store.rules(vec![Rule::sometimes(0.3, fault.clone())]);
            let mut numbers = Numbers(seed);
            for hint in [AccessHint::Sequential, AccessHint::Random] {
                follow(&object, &contents, 0..12 * MIB + 5, hint).await.unwrap();
                let start = numbers.below(12 * MIB);
                follow(&object, &contents, start..(start + MIB).min(12 * MIB), hint).await.unwrap();
            }
            store.rules(Vec::new());
            cache.close().await;
        }
    }
}

/// A connection that brought little was taken for a link that brings little: one range followed the
/// other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_from_a_far_store_has_several_requests_in_flight() {
    let store = Store::start(2);
    let contents = contents(2, SIZE);
    store.put("object", &contents);
    let far =
        Faults { first_byte: Duration::from_millis(100), bandwidth: 300_000, ..Faults::default() };
    store.proxy.set(far);
    let remote = remote_without_stalls(&store.url());
    let directory = TempDir::new().unwrap();
    let cache = cache(directory.path(), TOUCHED);
    let object = cache.object(&remote, &meta(&remote, "object").await);
    // A range is sent when those before it are due within a quarter of the timeout, or when several
    // come sooner than one.
    let options = StreamOptions { hint: AccessHint::Sequential, timeout: Duration::from_secs(8) };
    let download = tokio::spawn(async move {
        let (mut stream, mut next) = (object.stream(0..SIZE, options), 0);
        while let Some(piece) = stream.next().await {
            let piece = piece.unwrap();
            let end = next + piece.len() as u64;
            assert!(*piece == *slice(&contents, &(next..end)), "wrong bytes in {next}..{end}");
            next = end;
        }
        assert_eq!(next, SIZE, "it ended early");
    });
    until("four requests are under way", || 4 <= remote.stats().in_flight).await;
    assert!(remote.gains_side_by_side());
    // The rest comes at once.
    store.proxy.set(Faults::default());
    download.await.unwrap();
    assert_eq!(remote.stats().bytes, SIZE);
    cache.close().await;
}
