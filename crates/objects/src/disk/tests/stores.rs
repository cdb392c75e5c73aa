//! Stores of one cache: sidecars of their own, floors and caps.

use std::collections::HashSet;

use super::*;
use crate::CachedStore;

const ONE: &str = "s3://one";
const OTHER: &str = "s3://other";

/// Makes a scene with room for so many MiB whose stores have these shares.
fn scene(mib: u64, floor_mib: u64, cap_mib: u64) -> Scene {
    let mut scene = Scene::new(mib);
    scene.options.store_share =
        StoreShare { floor_bytes: floor_mib << 20, cap_bytes: cap_mib << 20 };
    scene
}

/// Writes so many extents of an object named like its store, as valuable as those that are there.
/// Returns how many are on disk then.
fn fill(disk: &Arc<Disk>, store: &str, extents: u64) -> usize {
    let meta = object(store, size(extents, 0));
    let file = disk.object(store, &meta);
    for extent in 0..extents {
        let contents = contents(&meta, extent_range(&meta, extent));
        file.write(extent, &contents, Entrance::Restored);
    }
    count(disk, store, extents)
}

/// Number of extents on disk of an object that [`fill`] wrote.
fn count(disk: &Arc<Disk>, store: &str, extents: u64) -> usize {
    let file = disk.object(store, &object(store, size(extents, 0)));
    (0..extents).filter(|extent| file.has_extent(*extent)).count()
}

fn reopened(scene: &Scene, disk: Arc<Disk>) -> Arc<Disk> {
    disk.close();
    drop(disk);
    scene.open()
}

#[test]
fn sidecars_and_bytes_belong_to_their_store() {
    let scene = Scene::new(16);
    let disk = scene.open();
    for store in [ONE, OTHER] {
        disk.write_sidecar(store, "files", store.as_bytes());
        disk.write_sidecar(store, "index", b"index");
    }
    let meta = object("same", 100);
    assert!(write(&disk.object(ONE, &meta), &meta, 0));
    let bytes = [ONE, OTHER].map(|store| disk.store_bytes(store));
    assert!(bytes[1] < bytes[0]);
    let disk = reopened(&scene, disk);
    assert_eq!([ONE, OTHER].map(|store| disk.store_bytes(store)), bytes);
    for store in [ONE, OTHER] {
        assert_eq!(disk.read_sidecar(store, "files").unwrap(), store.as_bytes());
    }
    disk.retain_sidecars(ONE, &|name| name == "files");
    assert!(disk.read_sidecar(ONE, "index").is_none());
    assert!(disk.read_sidecar(OTHER, "index").is_some());
    assert!(disk.object(ONE, &meta).has_extent(0) && !disk.object(OTHER, &meta).has_extent(0));
}

/// A sidecar has no note but its name: a process that ends before the rename leaves a file that
/// nobody reads, and everything else is there.
#[test]
fn a_sidecar_without_its_name_is_all_that_a_crash_loses() {
    let scene = Scene::new(16);
    let mut disk = scene.open();
    let meta = object("a", size(2, 0));
    assert!(write(&disk.object(ONE, &meta), &meta, 0) && disk.flush());
    disk.write_sidecar(ONE, "files", b"listing");
    disk.write_sidecar(ONE, "index", b"before");
    let path = |suffix| {
        let name = StoreKey::of(ONE).file_name("index");
        scene.options.directory.join(format!("{name}{suffix}"))
    };
    let written = std::fs::read(path(".keep")).unwrap();
    for torn in [0, 1, written.len() / 2, written.len()] {
        std::fs::write(path(".keep.new"), &written[..torn]).unwrap();
        disk = scene.open_after_kill(disk);
        assert!(!path(".keep.new").exists());
        assert_eq!(disk.read_sidecar(ONE, "index").unwrap(), b"before"[..]);
        assert_eq!(disk.read_sidecar(ONE, "files").unwrap(), b"listing"[..]);
        assert!(read(&disk.object(ONE, &meta), &meta, extent_range(&meta, 0)));
        disk.check_sums();
    }
}

#[test]
fn sidecars_of_an_earlier_release_are_removed_and_extents_stay() {
    let scene = Scene::new(16);
    let disk = scene.open();
    assert_eq!(fill(&disk, ONE, 2), 2);
    let bytes = disk.store_bytes(ONE);
    disk.close();
    drop(disk);
    let old = ["files.keep", "index-00000000000000000000000000000001.keep", "files.keep.new"];
    let old = old.map(|name| scene.options.directory.join(name));
    old.iter().for_each(|path| std::fs::write(path, b"BUSK\x01 and more").unwrap());
    let disk = scene.open();
    assert!(old.iter().all(|path| !path.exists()));
    assert_eq!((count(&disk, ONE, 2), disk.store_bytes(ONE)), (2, bytes));
    assert_eq!(disk.read_sidecar(ONE, "files"), None);
}

#[test]
fn sidecars_of_closed_stores_go_first_and_those_of_open_ones_stay() {
    let scene = Scene::new(16);
    let disk = scene.open();
    disk.open_store(StoreKey::of("s3://open"));
    disk.write_sidecar("s3://open", "index", &[1; 3 << 20]);
    for store in ["s3://first", "s3://last"] {
        disk.write_sidecar(store, "index", &[1; 2 << 20]);
    }
    disk.write_sidecar("s3://new", "index", &[1; 2 << 20]);
    let is_there = |store| disk.read_sidecar(store, "index").is_some();
    assert!(is_there("s3://open") && is_there("s3://last") && is_there("s3://new"));
    assert!(!is_there("s3://first"), "all sidecars take half the disk at most");
    fill(&disk, "s3://open", 20);
    assert!(is_there("s3://open") && !is_there("s3://last"));
    // Opening and closing a store puts it behind the others.
    disk.write_sidecar("s3://next", "index", b"a");
    disk.write_sidecar("s3://after", "index", b"a");
    disk.open_store(StoreKey::of("s3://next"));
    disk.close_store(StoreKey::of("s3://next"));
    while is_there("s3://after") {
        assert!(is_there("s3://next") && disk.evict_closed_sidecar());
    }
    assert!(is_there("s3://next"));
}

#[test]
fn no_other_store_evicts_one_below_its_floor() {
    let scene = scene(16, 3, 1000);
    let disk = scene.open();
    disk.open_store(StoreKey::of(ONE));
    // A MiB and what the file takes is above the floor.
    assert_eq!(fill(&disk, ONE, 4), 4);
    assert!(14 < fill(&disk, OTHER, 200) + count(&disk, ONE, 4));
    assert!((3..=4).contains(&count(&disk, ONE, 4)));
    assert!(150 < stats(&disk).evicted);
    disk.close_store(StoreKey::of(ONE));
    fill(&disk, "s3://third", 40);
    assert_eq!(count(&disk, ONE, 4), 0, "a closed store has no floor");
}

#[test]
fn floors_beyond_half_the_disk_count_for_the_stores_opened_first() {
    let scene = scene(16, 4, 1000);
    let disk = scene.open();
    let stores = ["s3://a", "s3://b", "s3://c"];
    for store in stores {
        disk.open_store(StoreKey::of(store));
        assert!(3 < fill(&disk, store, 4));
    }
    fill(&disk, OTHER, 40);
    let counts = || stores.map(|store| count(&disk, store, 4));
    assert_eq!(counts(), [4, 4, 0]);
    // The next one has its floor as soon as another is closed.
    disk.close_store(StoreKey::of("s3://a"));
    assert_eq!(fill(&disk, "s3://c", 4), 4);
    fill(&disk, "s3://more", 40);
    assert_eq!(counts(), [0, 4, 4]);
}

/// A store that has nothing else to evict makes room for itself below its floor, too, and what a
/// disk that is too full needs comes before all floors.
#[test]
fn floors_stop_neither_their_own_store_nor_a_disk_that_is_too_full() {
    let mut scene = scene(16, 8, 1000);
    let disk = scene.open();
    disk.open_store(StoreKey::of(ONE));
    disk.write_sidecar(ONE, "index", &vec![1; (8 << 20) - (64 << 10)]);
    let meta = object("a", size(20, 0));
    let file = disk.object(ONE, &meta);
    (0..20).for_each(|extent| assert!(write(&file, &meta, extent)));
    let other = object("b", size(3, 0));
    assert!(!write(&disk.object(OTHER, &other), &other, 0), "nothing may go for another store");
    drop(file);
    disk.close();
    drop(disk);
    scene.options.bytes_max = 12 << 20;
    let disk = scene.open();
    assert!(stats(&disk).bytes <= 12 << 20);
}

#[test]
fn a_store_at_its_cap_evicts_its_own_extents() {
    let scene = scene(32, 0, 5);
    let disk = scene.open();
    let other = ["s3://b", "s3://c", "s3://d"];
    other.iter().for_each(|store| assert_eq!(fill(&disk, store, 4), 4));
    let meta = object("a", size(2000, 0));
    let file = disk.object(ONE, &meta);
    for extent in 0..60 {
        assert!(write(&file, &meta, extent));
        assert!(disk.store_bytes(ONE) <= 5 << 20);
        // What is read again stays.
        assert!(read(&file, &meta, extent_range(&meta, 0)), "{extent}");
    }
    other.iter().for_each(|store| assert_eq!(count(&disk, store, 4), 4));
    assert!(file.has_extent(59) && !file.has_extent(1));
    // It holds after a restart, for the closed and the smaller, too.
    let mut scene = scene;
    disk.close();
    drop((file, disk));
    scene.options.store_share.cap_bytes = 3 << 20;
    let disk = scene.open();
    assert!(3 << 20 < disk.store_bytes(ONE));
    assert!(write(&disk.object(ONE, &meta), &meta, 100));
    assert!(disk.store_bytes(ONE) <= 3 << 20);
}

#[test]
fn what_a_cap_evicts_leaves_the_queues_short() {
    let scene = scene(32, 0, 2);
    let disk = scene.open();
    for index in 0..2000 {
        let meta = object(&format!("object-{index}"), 100);
        assert!(write(&disk.object(ONE, &meta), &meta, 0));
    }
    let count = disk.accounting().queues.len();
    assert!(count < 1500, "{count} entries for {} extents", stats(&disk).extents);
}

#[test]
fn thousands_of_stores_survive_a_restart() {
    const COUNT: usize = 3000;
    let scene = Scene::new(128);
    let disk = scene.open();
    let url = |index: usize| format!("s3://bucket/dolt/organisation-{index}/database");
    let meta = object("0123456789abcdefghijklmnopqrstuv", 100);
    for index in 0..COUNT {
        assert!(write(&disk.object(&url(index), &meta), &meta, 0));
        disk.write_sidecar(&url(index), "index", b"index");
    }
    let bytes = disk.store_bytes(&url(77));
    let disk = reopened(&scene, disk);
    let same = |index: &usize| {
        disk.store_bytes(&url(*index)) == bytes
            && disk.read_sidecar(&url(*index), "index").is_some()
    };
    assert_eq!((0..COUNT).filter(same).count(), COUNT);
    disk.check_sums();
}

/// Table files of two stores may have one name, one size and, in the end, one ETag.
#[test]
fn equal_objects_of_two_stores_stay_apart() {
    let scene = Scene::new(16);
    let mut disk = scene.open();
    let meta = object("same", size(1, 100));
    let write_bytes = |disk: &Arc<Disk>, store: &str, byte: u8| {
        let file = disk.object(store, &meta);
        for extent in 0..2 {
            let range = extent_range(&meta, extent);
            let bytes = vec![byte; usize::try_from(range.end - range.start).unwrap()];
            assert!(file.write(extent, &bytes, Entrance::New));
        }
    };
    write_bytes(&disk, ONE, 1);
    assert!(!disk.object(OTHER, &meta).has_extent(0));
    write_bytes(&disk, OTHER, 2);
    for _ in 0..2 {
        for (store, byte) in [(ONE, 1), (OTHER, 2)] {
            let read = disk.object(store, &meta).read(&(0..meta.size), AccessHint::Random);
            assert!(read.unwrap().iter().all(|read| *read == byte), "{store}");
        }
        disk = reopened(&scene, disk);
    }
    disk.object(ONE, &meta).remove(&(0..meta.size));
    assert!(disk.object(OTHER, &meta).has_extent(0) && disk.object(OTHER, &meta).has_extent(1));
}

#[test]
fn stores_are_listed_by_their_urls_after_a_restart_too_and_dropped_alone() {
    let scene = Scene::new(16);
    let mut disk = scene.open();
    let meta = object("a", 100);
    assert!(write(&disk.object(ONE, &meta), &meta, 0));
    disk.write_sidecar(ONE, "files", b"listing");
    // Nothing but a sidecar is there of the other one.
    disk.write_sidecar(OTHER, "index", b"index");
    for _ in 0..2 {
        let mut listed = disk.list_stores();
        listed.sort_by(|one, other| one.url.cmp(&other.url));
        let store = |url: &str, files| CachedStore {
            url: url.to_owned(),
            files,
            bytes: disk.store_bytes(url),
        };
        assert_eq!(listed, [store(ONE, 1), store(OTHER, 0)]);
        disk = reopened(&scene, disk);
    }
    let bytes = disk.store_bytes(ONE);
    assert_eq!(disk.drop_stores(&HashSet::from([ONE.to_owned()])), bytes);
    let left: Vec<_> = disk.list_stores().into_iter().map(|store| store.url).collect();
    assert_eq!(left, [OTHER]);
    assert!(disk.read_sidecar(OTHER, "index").is_some() && disk.store_bytes(ONE) == 0);
    disk.check_sums();
}

/// The name of a sidecar has a hash of the URL: a file whose URL has another one is nobody's.
#[test]
fn a_sidecar_with_the_url_of_another_store_is_not_believed() {
    let scene = Scene::new(16);
    let disk = scene.open();
    disk.write_sidecar(ONE, "files", b"listing");
    let path = |url| {
        let name = StoreKey::of(url).file_name("files");
        scene.options.directory.join(format!("{name}.keep"))
    };
    std::fs::rename(path(ONE), path(OTHER)).unwrap();
    std::fs::write(path("s3://old"), b"BUSK\x02 of an earlier release").unwrap();
    let disk = reopened(&scene, disk);
    assert_eq!(disk.list_stores(), []);
    assert!([ONE, OTHER, "s3://old"].iter().all(|url| disk.read_sidecar(url, "files").is_none()));
}

#[test]
fn a_changed_share_counts_for_open_stores_at_once() {
    let scene = scene(16, 0, 1000);
    let disk = scene.open();
    for store in [ONE, OTHER] {
        disk.open_store(StoreKey::of(store));
        assert_eq!(fill(&disk, store, 4), 4);
    }
    let share = |floor_mib: u64, cap_mib: u64| StoreShare {
        floor_bytes: floor_mib << 20,
        cap_bytes: cap_mib << 20,
    };
    // One floor of this size fits half of the disk.
    disk.set_store_share(share(5, 1000));
    let floors =
        || [ONE, OTHER].map(|store| disk.accounting().stores.has_floor(StoreKey::of(store)));
    assert_eq!(floors().iter().filter(|has| **has).count(), 1);
    disk.check_sums();
    disk.set_store_share(share(2, 1000));
    assert_eq!(floors(), [true, true]);
    fill(&disk, "s3://third", 40);
    assert!([ONE, OTHER].iter().all(|store| 2 <= count(&disk, store, 4)));
    disk.set_store_share(share(0, 3));
    assert_eq!(floors(), [false, false]);
    assert!(fill(&disk, "s3://third", 60) <= 3);
    fill(&disk, ONE, 8);
    assert!(disk.store_bytes(ONE) <= 3 << 20 && disk.store_bytes("s3://third") <= 3 << 20);
    [ONE, OTHER].iter().for_each(|store| disk.close_store(StoreKey::of(store)));
    disk.check_sums();
}
