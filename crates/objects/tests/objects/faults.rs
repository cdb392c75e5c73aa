//! Reads through a store that delays, corrupts and refuses: never a wrong byte, and an error only
//! where the right bytes cannot be had.

use std::{ops::Range, sync::Arc, time::Duration};

use crate::support::{
    AMPLE, MIB, Numbers, READERS, Sizes, Store, TOUCHED, assert_right, cache, contents, meta, mix,
    now, patiently, read_by_many, slice, until,
};
use busload_bucket::{Fault, Faults, Rule};
use busload_objects::{Cache, Error, Object, ReadOptions};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::{runtime::Handle, task::JoinSet};

/// Size of the object: not a whole number of blocks or extents.
const SIZE: u64 = 5 * MIB + 4321;

/// Bytes of an object in an extent on disk: 256 blocks of 4,092 bytes.
const EXTENT_BYTES: u64 = 256 * 4092;

/// Faults that the header or the length of a response shows, and after which a retry helps.
fn noticeable() -> Vec<Fault> {
    vec![
        Fault::Delay(Duration::from_millis(50)),
        Fault::Stall(10_000),
        Fault::Stall(0),
        Fault::Truncate(0),
        Fault::Truncate(5_000),
        Fault::Reset(0),
        Fault::Reset(40_000),
        Fault::Status(503),
        Fault::Status(500),
        Fault::Status(429),
        Fault::WholeForRange,
        Fault::WrongRange,
        Fault::OtherEtag,
        Fault::NoAnswer,
    ]
}

/// One object behind a proxy, and a cache with room for half of it.
async fn one_object(seed: u64) -> (Store, TempDir, Arc<Cache>, Arc<Object>, Bytes) {
    let store = Store::start(seed);
    let contents = contents(seed, SIZE);
    store.put("object", &contents);
    let directory = TempDir::new().unwrap();
    let cache = cache(directory.path(), Sizes { disk: 3 * MIB, ..AMPLE });
    let remote = store.remote();
    let object = cache.object(&remote, &meta(&remote, "object").await);
    (store, directory, cache, object, contents)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_alone_costs_time_only() {
    for (index, fault) in noticeable().into_iter().enumerate() {
        let seed = index as u64;
        let (store, _directory, cache, object, contents) = one_object(seed).await;
        store.rule(fault.clone(), 0.2);
        let counters = read_by_many(&object, &contents, seed, 4).await;
        assert!(counters.errors.is_empty(), "{fault:?}: {:?}", counters.errors);
        assert!(counters.right > 0);
        cache.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_mixed_by_seed_cost_time_only() {
    for seed in 100..103 {
        let (store, _directory, cache, object, contents) = one_object(seed).await;
        let first_byte = Duration::from_millis(2);
        let rules = noticeable().into_iter().map(|fault| Rule::sometimes(0.03, fault)).collect();
        store.proxy.set(Faults {
            first_byte,
            jitter: first_byte,
            bandwidth: 50_000_000,
            line: 0,
            rules,
        });
        let counters = read_by_many(&object, &contents, seed, 8).await;
        assert!(counters.errors.is_empty(), "seed {seed}: {:?}", counters.errors);
        cache.close().await;
    }
}

/// Corruption that no header shows: the caller, who knows the right bytes, finds it and invalidates
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_not_trusted_are_read_again_from_the_store() {
    for (seed, fault) in [(1, Fault::Flip(777)), (2, Fault::LyingRange)] {
        for sizes in [AMPLE, TOUCHED] {
            let (store, directory) = (Store::start(seed), TempDir::new().unwrap());
            let contents = contents(seed, 3 * MIB);
            store.put("object", &contents);
            let cache = cache(directory.path(), sizes);
            let remote = store.remote();
            let object = cache.object(&remote, &meta(&remote, "object").await);
            store.rules(vec![Rule::times(20, fault.clone())]);
            let (mut numbers, mut invalidated) = (Numbers(seed), 0);
            for round in 0..200 {
                // The first read looks where the first flipped bit is.
                let range = if round == 0 { 700..900 } else { numbers.range(3 * MIB) };
                let mut bytes = object.read(range.clone(), patiently()).await.unwrap();
                // The caller finds each of the 20 corrupt GETs once.
                for _ in 0..21 {
                    if *bytes == *slice(&contents, &range) {
                        break;
                    }
                    invalidated += 1;
                    object.invalidate(range.clone());
                    bytes = object.read(range.clone(), patiently()).await.unwrap();
                }
                assert_right(&bytes, &contents, &range, &format!("{fault:?}"));
            }
            assert!(invalidated > 0, "the fault happened where somebody looked");
            cache.close().await;
        }
    }
}

/// Bytes of one version or an error, never of another one.
async fn old_or_gone(object: &Arc<Object>, contents: &Bytes, seed: u64) -> (u64, u64) {
    let counters = read_by_many(object, contents, seed, 10).await;
    for error in &counters.errors {
        assert!(matches!(error, Error::Gone(_)), "expected Gone: {error:?}");
    }
    (counters.right, counters.errors.len() as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_replaced_in_the_middle_of_a_fill_is_read_as_it_was_or_gone() {
    let store = Store::start(3);
    let (old, new) = (contents(30, 20 * MIB), contents(31, 20 * MIB));
    store.put("object", &old);
    let directory = TempDir::new().unwrap();
    let cache = cache(directory.path(), AMPLE);
    let remote = store.remote();
    let before = meta(&remote, "object").await;
    let object = cache.object(&remote, &before);
    store.proxy.set(Faults { bandwidth: 20_000_000, ..Faults::default() });
    object.read(0..100, patiently()).await.unwrap();
    until("the fill is under way", || store.gets().len() > 1 || cache.stats().extents > 0).await;
    store.put("object", &new);
    store.proxy.set(Faults::default());
    old_or_gone(&object, &old, 1).await;

    let after = meta(&remote, "object").await;
    assert_ne!(before.etag, after.etag);
    let replaced = cache.object(&remote, &after);
    let counters = read_by_many(&replaced, &new, 2, 10).await;
    assert!(counters.errors.is_empty(), "{:?}", counters.errors);
    old_or_gone(&object, &old, 3).await;
    cache.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_deleted_in_the_middle_of_a_fill_is_read_as_it_was_or_gone() {
    let store = Store::start(4);
    let old = contents(40, 20 * MIB);
    store.put("object", &old);
    let directory = TempDir::new().unwrap();
    let cache = cache(directory.path(), TOUCHED);
    let remote = store.remote();
    let object = cache.object(&remote, &meta(&remote, "object").await);
    let first = object.read(0..100_000, patiently()).await.unwrap();
    assert_right(&first, &old, &(0..100_000), "before");
    until("it is on disk", || object.is_local(0..100_000)).await;

    store.bucket.delete("store/object").unwrap();
    let (right, gone) = old_or_gone(&object, &old, 1).await;
    assert!(right + gone > 0 && gone > 0, "most of it was never read");
    let again = object.read(50_000..100_000, patiently()).await.unwrap();
    assert_right(&again, &old, &(50_000..100_000), "what is on disk stays");
    assert_eq!(remote.head("object").await.unwrap(), None);
    cache.close().await;
}

/// A store whose answers never carry the expected ETag yields no bytes, and does not count as one
/// that lost the object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_etag_in_every_answer_is_an_error_and_never_bytes() {
    let (store, _directory, cache, _, _) = one_object(5).await;
    let remote = crate::support::remote_with(&store.url(), 3);
    let object = cache.object(&remote, &meta(&remote, "object").await);
    store.rule(Fault::OtherEtag, 1.0);
    let error = object.read(0..10, patiently()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_) | Error::Gone(_)), "{error:?}");
    assert!(remote.stats().wrong_responses > 0);
    cache.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_503_slows_down_and_passes() {
    let (store, _directory, cache, object, contents) = one_object(6).await;
    let remote = crate::support::remote_without_stalls(&store.url());
    let window = remote.stats().window;
    let object = Cache::none(8 * MIB, Handle::current()).object(&remote, object.meta());
    store.rules(vec![Rule::times(6, Fault::Status(503))]);
    for _ in 0..3 {
        let range = 0..100;
        assert_right(
            &object.read(range.clone(), patiently()).await.unwrap(),
            &contents,
            &range,
            "in the storm",
        );
    }
    let stats = remote.stats();
    assert_eq!((stats.slow_downs, stats.retries), (6, 6), "{stats:?}");
    assert!(stats.window < window, "{stats:?}, was {window}");
    let counters = read_by_many(&object, &contents, 6, 20).await;
    assert!(counters.errors.is_empty(), "{:?}", counters.errors);
    assert!(remote.stats().window > stats.window, "it recovers: {:?}", remote.stats());
    cache.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_only_refuses_is_unreachable_and_works_again_later() {
    for fault in [
        Fault::Status(503),
        Fault::Status(500),
        Fault::NoAnswer,
        Fault::Truncate(0),
        Fault::WrongRange,
    ] {
        let store = Store::start(7);
        let contents = contents(7, SIZE);
        store.put("object", &contents);
        let cache = Cache::none(8 * MIB, Handle::current());
        let remote = crate::support::remote_with(&store.url(), 3);
        let object = cache.object(&remote, &meta(&remote, "object").await);
        store.rule(fault.clone(), 1.0);
        let error = object.read(1000..2000, patiently()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable(_)), "{fault:?}: {error:?}");
        assert!(error.to_string().contains("object"), "it names the object: {error}");
        store.rules(Vec::new());
        let bytes = object.read(1000..2000, patiently()).await.unwrap();
        assert_right(&bytes, &contents, &(1000..2000), "afterwards");
        cache.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_says_no_is_not_one_that_is_empty() {
    let (store, _directory, cache, object, _) = one_object(8).await;
    store.rule(Fault::Status(403), 1.0);
    let error = object.read(0..10, patiently()).await.unwrap_err();
    assert!(matches!(error, Error::Denied(_)), "{error:?}");
    let remote = store.remote();
    for outcome in [
        remote.head("object").await.map(drop),
        remote.fetch("object", None, SIZE).await.map(drop),
        remote.list("").await.map(drop),
    ] {
        assert!(matches!(outcome, Err(Error::Denied(_))), "{outcome:?}");
    }
    cache.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_gone_leaves_what_is_local_and_comes_back() {
    let store = Store::start(9);
    let contents = contents(9, SIZE);
    store.put("object", &contents);
    let directory = TempDir::new().unwrap();
    let cache = cache(directory.path(), TOUCHED);
    let remote = crate::support::remote_with(&store.url(), 2);
    let object = cache.object(&remote, &meta(&remote, "object").await);
    let local = 10_000..20_000;
    object.read(local.clone(), patiently()).await.unwrap();
    until("it is on disk", || object.is_local(local.clone())).await;

    store.proxy.go_away();
    for _ in 0..20 {
        let bytes = object.read(local.clone(), patiently()).await.unwrap();
        assert_right(&bytes, &contents, &local, "while the store is gone");
    }
    let missing = 4 * MIB..4 * MIB + 100;
    let error = object.read(missing.clone(), patiently()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert!(matches!(remote.head("object").await, Err(Error::Unreachable(_))));
    assert!(matches!(remote.list("").await, Err(Error::Unreachable(_))));
    assert!(matches!(remote.fetch("object", None, SIZE).await, Err(Error::Unreachable(_))));

    store.proxy.come_back();
    let bytes = object.read(missing.clone(), patiently()).await.unwrap();
    assert_right(&bytes, &contents, &missing, "after it came back");
    cache.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_deadline_is_exceeded_and_a_longer_one_gets_the_same_fetch() {
    let (store, _directory, cache, object, contents) = one_object(10).await;
    store.rule(Fault::Status(500), 1.0);
    let hasty = ReadOptions { deadline: now() + Duration::from_millis(20), local_only: false };
    let (early, late) = (object.read(0..10, hasty), object.read(0..10, patiently()));
    let error = early.await.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded(_)), "{error:?}");
    // Until now the store answered nothing, however early the read began.
    store.rules(Vec::new());
    assert_right(&late.await.unwrap(), &contents, &(0..10), "the other one");
    cache.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_and_fifty_six_callers_of_one_cold_range_make_one_get() {
    for is_on_disk in [false, true] {
        let store = Store::start(11);
        let contents = contents(11, SIZE);
        store.put("object", &contents);
        let directory = TempDir::new().unwrap();
        let cache = if is_on_disk {
            cache(directory.path(), AMPLE)
        } else {
            Cache::none(8 * MIB, Handle::current())
        };
        let remote = crate::support::remote_without_stalls(&store.url());
        let object = cache.object(&remote, &meta(&remote, "object").await);
        let first_byte = Duration::from_millis(30);
        store.proxy.set(Faults { first_byte, ..Faults::default() });
        store.proxy.forget();
        let range = 1_234_567..1_238_663;
        let mut callers = JoinSet::new();
        for _ in 0..256 {
            let (object, range) = (Arc::clone(&object), range.clone());
            callers.spawn(async move { object.read(range, patiently()).await });
        }
        for bytes in callers.join_all().await {
            assert_right(&bytes.unwrap(), &contents, &range, "one of 256");
        }
        assert_eq!(remote.stats().foreground_reads, 1);
        let gets = store.gets();
        let foreground: Vec<_> = gets.iter().filter(|get| get.end - get.start < 100_000).collect();
        assert_eq!(foreground.len(), 1, "{gets:?}");
        cache.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_survives_its_first_waiter() {
    let store = Store::start(12);
    let contents = contents(12, SIZE);
    store.put("object", &contents);
    let cache = Cache::none(8 * MIB, Handle::current());
    let remote = crate::support::remote_without_stalls(&store.url());
    let object = cache.object(&remote, &meta(&remote, "object").await);
    store.proxy.set(Faults { first_byte: Duration::from_millis(200), ..Faults::default() });
    store.proxy.forget();
    let first = object.read(0..4096, patiently());
    let second = object.read(0..4096, patiently());
    drop(first);
    assert_right(&second.await.unwrap(), &contents, &(0..4096), "the second");
    let third = object.read(3 * MIB..3 * MIB + 10, patiently());
    until("it is sent", || remote.stats().foreground_reads == 2).await;
    drop(third);
    until("the read that nobody waits for is over", || store.gets().len() == 2).await;
    assert_eq!(remote.stats().foreground_reads, 2);
    cache.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cold_random_reads_of_a_whole_file_cost_little_more_than_the_file() {
    let store = Store::start(13);
    let size = 24 * MIB;
    let contents = contents(13, size);
    store.put("object", &contents);
    let directory = TempDir::new().unwrap();
    let cache = cache(directory.path(), AMPLE);
    let remote = crate::support::remote_without_stalls(&store.url());
    let object = cache.object(&remote, &meta(&remote, "object").await);
    // So late that even while a slow machine fills for ten seconds, sixteen readers ask for less
    // than a third.
    let first_byte = Duration::from_millis(300);
    store.proxy.set(Faults { first_byte, bandwidth: 60_000_000, ..Faults::default() });
    store.proxy.forget();

    let chunks = size / 4096;
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let (object, contents) = (Arc::clone(&object), contents.clone());
        readers.spawn(async move {
            for turn in (reader..chunks).step_by(usize::try_from(READERS).unwrap()) {
                // A factor without a common divisor permutes: every chunk is read once, as if at
                // random.
                let chunk = turn * 2_654_435_761 % chunks;
                let range = chunk * 4096..chunk * 4096 + 4096;
                let bytes = object.read(range.clone(), patiently()).await.unwrap();
                assert_right(&bytes, &contents, &range, "a chunk");
            }
        });
    }
    readers.join_all().await;
    until("everything is on disk", || object.is_local(0..size)).await;
    let sent = store.bytes_sent();
    assert!(sent <= size * 13 / 10, "{sent} bytes sent for an object of {size}");
    // Fills are of whole extents.
    let is_bound = |at: u64| at.is_multiple_of(EXTENT_BYTES) || at == size;
    let is_fill = |get: &Range<u64>| is_bound(get.start) && is_bound(get.end);
    let mut foreground: Vec<_> = store.gets().into_iter().filter(|get| !is_fill(get)).collect();
    foreground.sort_by_key(|get| get.start);
    let twice = foreground.windows(2).filter(|pair| pair[1].start < pair[0].end).count();
    assert_eq!(twice, 0, "a range is read in the foreground once: {foreground:?}");
    cache.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_seed_decides_what_readers_read() {
    let (mut one, mut same, mut other) = (Numbers(mix(1)), Numbers(mix(1)), Numbers(mix(2)));
    let ranges: Vec<_> = (0..20).map(|_| one.range(SIZE)).collect();
    assert_eq!(ranges, (0..20).map(|_| same.range(SIZE)).collect::<Vec<_>>());
    assert_ne!(ranges, (0..20).map(|_| other.range(SIZE)).collect::<Vec<_>>());
    assert!(ranges.iter().all(|range| range.start < range.end && range.end <= SIZE));
}
