//! Many readers of objects that are much larger than the disk they may use.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::support::{
    AMPLE, MIB, Numbers, READERS, Sizes, Store, assert_right, cache, contents, disk_usage, meta,
    mix, patiently, read_by_many, until,
};
use tempfile::TempDir;
use tokio::task::JoinSet;

const SIZE: u64 = 30 * MIB + 17;

/// Bytes of the directory itself and of blocks that files begin.
const SLACK: u64 = 128 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eviction_under_pressure_breaks_no_read_and_the_limit_is_hard() {
    for (seed, disk, fill_whole_max) in [(1, 4 * MIB, u64::MAX), (2, 6 * MIB, 0), (3, 2 * MIB, 0)] {
        let store = Store::start(seed);
        let contents = contents(seed, SIZE);
        store.put("object", &contents);
        let directory = TempDir::new().unwrap();
        let cache = cache(directory.path(), Sizes { disk, fill_whole_max, ..AMPLE });
        let remote = store.remote();
        let object = cache.object(&remote, &meta(&remote, "object").await);

        let is_over = Arc::new(AtomicBool::new(false));
        let watcher = thread::spawn({
            let (is_over, path) = (Arc::clone(&is_over), directory.path().to_owned());
            move || {
                let mut most = 0;
                while !is_over.load(Ordering::Relaxed) {
                    most = most.max(disk_usage(&path));
                    thread::yield_now();
                }
                most
            }
        });
        let counters = read_by_many(&object, &contents, seed, 40).await;
        is_over.store(true, Ordering::Relaxed);
        let most = watcher.join().unwrap();

        assert!(counters.errors.is_empty(), "{:?}", counters.errors);
        assert!(most <= disk + SLACK, "{most} bytes of disk were used, with a limit of {disk}");
        let stats = cache.stats();
        assert!(stats.bytes <= disk, "{stats:?}");
        assert!(stats.evicted > 0, "the pressure was real: {stats:?}");
        assert_eq!(stats.corrupt, 0, "what is evicted under a reader is not corrupt: {stats:?}");
        cache.close().await;
    }
}

/// Several objects compete, some of them read far more often: those stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_often_outlives_a_scan() {
    let store = Store::start(4);
    let directory = TempDir::new().unwrap();
    let cache = cache(directory.path(), Sizes { disk: 12 * MIB, fill_whole_max: 0, ..AMPLE });
    let remote = store.remote();
    let hot_contents = contents(5, 4 * MIB);
    store.put("hot", &hot_contents);
    let hot = cache.object(&remote, &meta(&remote, "hot").await);
    let scanned_contents = contents(6, SIZE);
    store.put("scanned", &scanned_contents);
    let scanned = cache.object(&remote, &meta(&remote, "scanned").await);

    hot.warm(&mut |_| {}).await.unwrap();
    let mut numbers = Numbers(7);
    let mut is_hot_local = 0;
    let mut rounds = 0;
    for start in (0..SIZE - 5000).step_by(300_000) {
        let range = start..start + 5000;
        let bytes = scanned.read(range.clone(), patiently()).await.unwrap();
        assert_right(&bytes, &scanned_contents, &range, "the scan");
        for _ in 0..20 {
            let range = numbers.range(4 * MIB);
            is_hot_local += u64::from(hot.is_local(range.clone()));
            rounds += 1;
            let bytes = hot.read(range.clone(), patiently()).await.unwrap();
            assert_right(&bytes, &hot_contents, &range, "the hot object");
        }
    }
    assert!(
        is_hot_local > rounds * 9 / 10,
        "{is_hot_local} of {rounds} reads of the hot object found it on disk"
    );
    cache.close().await;
}

/// Objects come and go while others are read: handles dropped and opened again, versions replaced,
/// objects dropped from the cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_dropped_under_readers_break_no_read() {
    let store = Store::start(8);
    let directory = TempDir::new().unwrap();
    let cache = cache(directory.path(), Sizes { disk: 8 * MIB, ..AMPLE });
    let remote = store.remote();
    let mut objects = Vec::new();
    for index in 0..4u64 {
        let contents = contents(index, 3 * MIB);
        store.put(&index.to_string(), &contents);
        objects.push((meta(&remote, &index.to_string()).await, contents));
    }
    let objects = Arc::new(objects);
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let (cache, remote, objects) =
            (Arc::clone(&cache), Arc::clone(&remote), Arc::clone(&objects));
        readers.spawn(async move {
            let mut numbers = Numbers(mix(reader));
            for _ in 0..60 {
                let (meta, contents) = &objects[usize::try_from(numbers.below(4)).unwrap()];
                if numbers.below(10) == 0 {
                    cache.drop_object(remote.url(), &meta.name).await;
                }
                let object = cache.object(&remote, meta);
                let range = numbers.range(meta.size);
                let bytes = object.read(range.clone(), patiently()).await.unwrap();
                assert_right(&bytes, contents, &range, &meta.name);
            }
        });
    }
    readers.join_all().await;
    until("fills that nobody waits for are over", || cache.stats().fill_bytes == 0).await;
    cache.drop_all().await;
    let stats = cache.stats();
    assert_eq!((stats.objects, stats.extents), (0, 0), "{stats:?}");
    cache.close().await;
}
