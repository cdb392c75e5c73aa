//! Disks that are full, read-only, or gone: reads go on from the store, and the cache says so.
//!
//! Each of these disks is a small tmpfs in a mount namespace of its own, which ends with the
//! process that plays there. Where a namespace is not to be had, files are limited in size instead,
//! which fails writes in the same places.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use crate::support::{
    AMPLE, MIB, Sizes, Store, assert_right, cache, child, child::Player, contents, disk_usage,
    locally, meta, patiently, read_by_many, remote, until,
};
use busload_objects::{Cache, Object};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// Size of the tmpfs.
const DISK: u64 = 8 * MIB;
const SIZE: u64 = 20 * MIB + 99;
const SEED: u64 = 8;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Commands that start this test again where the disk is small, the best one first.
fn places(directory: &Path) -> [(&'static str, Command); 3] {
    let shell = |words: &[&str], script: &str| {
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args(["sh", "-c", script, "sh"])
            .arg(directory)
            .arg(env::current_exe().unwrap());
        command
    };
    let tmpfs = r#"mount -t tmpfs -o size=8m tmpfs "$1" && shift && exec "$@""#;
    // The signal of a file that grew too large is ignored, so that the write fails.
    let limited = r#"trap '' XFSZ; ulimit -f 3072; shift; exec "$@""#;
    [
        ("tmpfs", shell(&["unshare", "--mount"], tmpfs)),
        ("tmpfs", shell(&["unshare", "--map-root-user", "--mount"], tmpfs)),
        ("limit", shell(&["env"], limited)),
    ]
}

/// Runs a test's other part where the disk is small.
fn play(test: &str) {
    let store = Store::start(1);
    store.put("object", &contents(SEED, SIZE));
    let url = store.url();
    let directory = TempDir::new().unwrap();
    for (kind, mut place) in places(directory.path()) {
        let mut attempt = Command::new(place.get_program());
        attempt.args(place.get_args()).arg("--list").stdout(Stdio::null()).stderr(Stdio::null());
        if !attempt.status().is_ok_and(|status| status.success()) {
            continue;
        }
        place.env("PLACE", kind);
        let given = [("URL", OsStr::new(&url)), ("DIRECTORY", directory.path().as_os_str())];
        let mut player = Player::start_in(place, test, "player", &given);
        let mut said = Vec::new();
        while let Some(line) = player.listen() {
            said.push(line);
        }
        assert!(player.end().success(), "in a {kind}, after {said:?}");
        assert_eq!(said.last().map(String::as_str), Some("done"), "in a {kind}");
        return;
    }
    panic!("no place with a small disk could be made, not even by limiting the size of files");
}

/// Store, object and cache with which all of these tests start.
struct Scene {
    cache: Arc<Cache>,
    object: Arc<Object>,
    contents: Bytes,
}

impl Scene {
    async fn new(directory: &Path, sizes: Sizes) -> Self {
        let remote = remote(&child::given("URL"));
        let meta = meta(&remote, "object").await;
        let cache = cache(directory, sizes);
        let object = cache.object(&remote, &meta);
        Self { cache, object, contents: contents(SEED, SIZE) }
    }

    async fn read_all_right(&self, seed: u64, why: &str) {
        let counters = read_by_many(&self.object, &self.contents, seed, 8).await;
        assert!(counters.errors.is_empty(), "{why}: {:?}", counters.errors);
    }

    /// Checks the bytes that are on disk, and counts them.
    async fn local(&self) -> u64 {
        let mut local = 0;
        for start in (0..SIZE).step_by(100_000) {
            let range = start..(start + 100_000).min(SIZE);
            if let Ok(bytes) = self.object.read(range.clone(), locally()).await {
                assert_right(&bytes, &self.contents, &range, "on disk");
                local += range.end - range.start;
            }
        }
        local
    }
}

fn place() -> std::path::PathBuf {
    child::given("DIRECTORY").into()
}

#[test]
fn a_full_disk_is_left_alone_and_reads_go_on() {
    if child::role().is_none() {
        return play("disk_full::a_full_disk_is_left_alone_and_reads_go_on");
    }
    runtime().block_on(async {
        let scene = Scene::new(&place().join("cache"), AMPLE).await;
        scene.read_all_right(1, "while the disk fills up").await;
        scene.object.read(0..SIZE, patiently()).await.unwrap();
        // The cache either bypasses the disk or makes do with its space; both show.
        until("the disk is full", || {
            let stats = scene.cache.stats();
            stats.bypassed.is_some() || 0 < stats.disk_errors || 0 < stats.evicted
        })
        .await;
        assert!(disk_usage(&place()) <= DISK || child::given("PLACE") == "limit");
        scene.read_all_right(2, "with a full disk").await;
        scene.local().await;
        scene.cache.close().await;

        // The next process finds the disk full, or the extents that the last one could write.
        let scene = Scene::new(&place().join("cache"), AMPLE).await;
        scene.read_all_right(3, "after a restart with a full disk").await;
        scene.cache.close().await;
        child::say("done");
    });
}

#[test]
fn a_disk_full_of_other_files_leaves_a_cache_without_extents() {
    if child::role().is_none() {
        return play("disk_full::a_disk_full_of_other_files_leaves_a_cache_without_extents");
    }
    runtime().block_on(async {
        let is_limited = child::given("PLACE") == "limit";
        if !is_limited {
            let full =
                fs::write(place().join("other"), vec![1; usize::try_from(DISK).unwrap() + 1]);
            assert!(full.is_err(), "the disk is full now");
        }
        let scene = Scene::new(&place().join("cache"), AMPLE).await;
        scene.read_all_right(4, "with a disk full of other files").await;
        scene.cache.write_sidecar("s3://b", "name", &vec![7; 5 << 20]);
        assert_eq!(scene.cache.read_sidecar("s3://b", "name"), None);
        assert!(is_limited || scene.local().await == 0);
        scene.cache.close().await;
        child::say("done");
    });
}

#[test]
fn the_floor_of_free_space_is_left_to_others() {
    if child::role().is_none() {
        return play("disk_full::the_floor_of_free_space_is_left_to_others");
    }
    runtime().block_on(async {
        let sizes = match &*child::given("PLACE") {
            "limit" => Sizes { free: u64::MAX / 2, ..AMPLE },
            _ => Sizes { free: 5 * MIB, ..AMPLE },
        };
        let scene = Scene::new(&place().join("cache"), sizes).await;
        scene.read_all_right(5, "with a floor").await;
        scene.object.read(0..SIZE, patiently()).await.unwrap();
        let free_for_us = DISK.saturating_sub(sizes.free);
        // Concurrent writes may each find the same space free; the next check evicts for it. The
        // floor counts whole extents, and the cache does not count blocks of directories and small
        // files.
        let most = free_for_us + MIB + 256 * 1024;
        until("the floor is free", || disk_usage(&place()) <= most).await;
        scene.read_all_right(6, "at the floor").await;
        scene.cache.close().await;
        child::say("done");
    });
}

/// The cache was filled while the disk took writes; a disk that turned read-only still returns its
/// bytes, or nothing.
#[test]
fn a_disk_that_is_read_only_breaks_no_read() {
    if child::role().is_none() {
        return play("disk_full::a_disk_that_is_read_only_breaks_no_read");
    }
    runtime().block_on(async {
        let sizes = Sizes { disk: 5 * MIB, ..AMPLE };
        let directory = place().join("cache");
        let scene = Scene::new(&directory, sizes).await;
        scene.read_all_right(7, "while it can be written to").await;
        scene.cache.close().await;
        drop(scene);

        // Reads without waiters may have files open for a moment more.
        until("the disk is read-only", || is_made_read_only(&directory)).await;
        let scene = Scene::new(&directory, sizes).await;
        scene.read_all_right(8, "read-only").await;
        scene.object.read(0..SIZE, patiently()).await.unwrap();
        scene.cache.write_sidecar("s3://b", "name", b"value");
        scene.cache.close().await;
        drop(scene);

        // Also an object that has nothing there yet.
        let scene = Scene::new(&directory.join("new"), sizes).await;
        scene.read_all_right(9, "read-only and new").await;
        assert!(scene.cache.stats().bypassed.is_some(), "{:?}", scene.cache.stats());
        scene.cache.close().await;
        child::say("done");
    });
}

/// Makes the disk read-only. Returns false while a file there is still open for writes.
fn is_made_read_only(directory: &Path) -> bool {
    if child::given("PLACE") == "tmpfs" {
        Command::new("mount").args(["-o", "remount,ro"]).arg(place()).status().unwrap().success()
    } else {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o500)).unwrap();
        true
    }
}

#[test]
fn a_directory_removed_under_a_running_cache_breaks_no_read() {
    runtime().block_on(async {
        let store = Store::start(2);
        let contents = contents(SEED, SIZE);
        store.put("object", &contents);
        let remote = store.remote();
        let directory = TempDir::new().unwrap();
        let cache = cache(&directory.path().join("cache"), Sizes { disk: 10 * MIB, ..AMPLE });
        let object = cache.object(&remote, &meta(&remote, "object").await);
        let readers = tokio::spawn({
            let (object, contents) = (Arc::clone(&object), contents.clone());
            async move { read_by_many(&object, &contents, 10, 40).await }
        });
        until("something is on disk", || cache.stats().extents > 0).await;
        // The journal may be written into it while it is removed.
        until("it is removed", || fs::remove_dir_all(directory.path()).is_ok()).await;
        let counters = readers.await.unwrap();
        assert!(counters.errors.is_empty(), "while it is removed: {:?}", counters.errors);
        let other = store.put_and_open(&cache, "other", &contents).await;
        let counters = read_by_many(&other, &contents, 11, 10).await;
        assert!(
            counters.errors.is_empty(),
            "a new object in a directory that is gone: {:?}",
            counters.errors
        );
        cache.write_sidecar("s3://b", "name", b"value");
        cache.close().await;
    });
}

#[test]
fn data_files_removed_or_cut_under_a_running_cache_break_no_read() {
    runtime().block_on(async {
        for is_cut in [false, true] {
            let store = Store::start(3);
            let contents = contents(SEED, SIZE);
            store.put("object", &contents);
            let remote = store.remote();
            let directory = TempDir::new().unwrap();
            let cache = cache(directory.path(), AMPLE);
            let object = cache.object(&remote, &meta(&remote, "object").await);
            object.warm(&mut |_| {}).await.unwrap();
            for entry in fs::read_dir(directory.path()).unwrap() {
                let path = entry.unwrap().path();
                if is_cut && path.is_file() {
                    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(5000).unwrap();
                } else if path.is_file() {
                    fs::remove_file(path).unwrap();
                }
            }
            let counters = read_by_many(&object, &contents, 12, 10).await;
            assert!(counters.errors.is_empty(), "cut: {is_cut}: {:?}", counters.errors);
            cache.close().await;
        }
    });
}
