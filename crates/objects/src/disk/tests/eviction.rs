//! The limit, and which extents are evicted when it is reached.

use std::sync::atomic::{AtomicBool, AtomicU64};

use super::*;
use crate::disk::faulty::Fault;

#[test]
fn the_limit_is_never_passed() {
    let scene = Scene::new(10);
    let disk = scene.open();
    let metas: Vec<ObjectMeta> = (0..8)
        .map(|index| object(&format!("o{index}"), size(index % 4 * 2, 4096 * index + 1)))
        .collect();
    let mut kept = 0;
    for round in 0..6 {
        for meta in &metas {
            let file = disk.object("s3://b", meta);
            for extent in 0..meta.size.div_ceil(EXTENT_DATA_BYTES) {
                // In an order that leaves many runs.
                let count = meta.size.div_ceil(EXTENT_DATA_BYTES);
                kept += u32::from(write(&file, meta, (extent * 5 + round) % count));
                disk.flush();
                let (bytes, used) = (stats(&disk).bytes, allocated(&scene.options.directory));
                assert!(bytes <= 10 << 20, "{bytes}");
                assert!(used <= 10 << 20, "{used}");
            }
        }
    }
    assert_eq!(kept, 6 * 32, "something else went each time");
    let stats = stats(&disk);
    assert!(7 <= stats.extents && 50 < stats.evicted && stats.corrupt == 0, "{stats:?}");
}

#[test]
fn a_scan_does_not_drive_out_what_is_read_again_and_again() {
    let scene = Scene::new(42);
    let disk = scene.open();
    let (hot, scanned) = (object("hot", size(20, 0)), object("scanned", size(200, 0)));
    let (hot_file, scan_file) = (disk.object("s3://b", &hot), disk.object("s3://b", &scanned));
    (0..20).for_each(|extent| assert!(write(&hot_file, &hot, extent)));
    for extent in 0..200 {
        assert!(write(&scan_file, &scanned, extent));
        let start = extent_range(&scanned, extent).start;
        (0..10).for_each(|block| {
            assert!(read(&scan_file, &scanned, start + block * 4092..start + block * 4092 + 10))
        });
        let hot_start = extent_range(&hot, extent % 20).start;
        assert!(read(&hot_file, &hot, hot_start..hot_start + 10), "{extent}");
    }
    assert!((0..20).all(|extent| hot_file.has_extent(extent)));
    assert!(160 < stats(&disk).evicted);
}

/// Readers of extents that come and go see right bytes or none.
#[test]
fn sixteen_readers_under_eviction_never_see_a_wrong_byte() {
    let scene = Scene::new(8);
    let disk = scene.open();
    let metas = [object("a", size(10, 0)), object("b", size(6, 500))];
    let (is_over, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..16_u64 {
            let (disk, metas, is_over, hits) = (&disk, &metas, &is_over, &hits);
            scope.spawn(move || read_at_random(disk, metas, reader, is_over, hits));
        }
        let writers: Vec<_> = metas
            .iter()
            .map(|meta| {
                let file = disk.object("s3://b", meta);
                let extents = meta.size.div_ceil(EXTENT_DATA_BYTES);
                scope.spawn(move || {
                    (0..200).filter(|round| write(&file, meta, round * 7 % extents)).count()
                })
            })
            .collect();
        let written: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        // Readers on a busy machine may have slept all the while.
        while hits.load(Acquire) < 100 {
            for meta in &metas {
                write(&disk.object("s3://b", meta), meta, 0);
            }
            std::thread::yield_now();
        }
        is_over.store(true, Release);
        assert!(300 < written, "{written}");
    });
    let stats = stats(&disk);
    assert!(50 < stats.evicted && stats.corrupt == 0 && stats.disk_errors == 0, "{stats:?}");
    assert!(allocated(&scene.options.directory) <= 8 << 20);
}

fn read_at_random(
    disk: &Arc<Disk>,
    metas: &[ObjectMeta],
    seed: u64,
    is_over: &AtomicBool,
    hits: &AtomicU64,
) {
    let files: Vec<Arc<DiskObject>> =
        metas.iter().map(|meta| disk.object("s3://b", meta)).collect();
    let mut state = seed + 1;
    while !is_over.load(Acquire) {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let which = usize::try_from(state >> 60).unwrap() % metas.len();
        let (meta, file) = (&metas[which], &files[which]);
        let start = (state >> 20) % (meta.size - 1);
        let range = start..meta.size.min(start + 1 + (state >> 7) % 20_000);
        let now = file.try_read(&range, AccessHint::Random);
        let bytes = now.or_else(|| file.read(&range, AccessHint::Random));
        if let Some(bytes) = bytes {
            assert!(bytes == contents(meta, range.clone()), "{range:?} of {}", meta.name);
            hits.fetch_add(1, Relaxed);
        }
    }
}

#[test]
fn where_holes_are_not_taken_whole_files_go() {
    let scene = Scene::new(8);
    scene.file_system.fail_after(0, Fault::NoHoles);
    let disk = scene.open();
    for round in 0..5 {
        for index in 0..4 {
            let meta = object(&format!("o{index}"), size(3, 0));
            let file = disk.object("s3://b", &meta);
            for extent in 0..3 {
                // Its own file may be the one that is evicted for it.
                if write(&file, &meta, extent) {
                    assert!(
                        read(&file, &meta, extent_range(&meta, extent)),
                        "{round} {index} {extent}"
                    );
                }
                assert!(allocated(&scene.options.directory) <= 8 << 20);
            }
        }
    }
    let stats = stats(&disk);
    assert!(stats.bypassed.is_none() && 3 <= stats.extents && 10 <= stats.evicted, "{stats:?}");
}

#[test]
fn below_the_floor_nothing_grows_and_others_get_space() {
    let mut scene = Scene::new(64);
    scene.options.free_bytes_min = 1 << 30;
    scene.file_system.set_free((1 << 30) + (20 << 20));
    let disk = scene.open();
    let meta = object("a", size(40, 0));
    let file = disk.object("s3://b", &meta);
    (0..10).for_each(|extent| assert!(write(&file, &meta, extent)));
    scene.file_system.set_free(1 << 30);
    (10..20).for_each(|extent| assert!(write(&file, &meta, extent), "one goes, one comes"));
    assert_eq!(stats(&disk).extents, 10);
    scene.file_system.set_free((1 << 30) - (4 << 20));
    disk.check();
    assert_eq!(stats(&disk).extents, 6, "what is missing is given back");
    scene.file_system.set_free(1 << 20);
    disk.check();
    assert_eq!(stats(&disk).extents, 0);
    assert!(!write(&file, &meta, 30));
    let why = stats(&disk).bypassed.expect("nothing can be kept");
    assert!(why.contains("1073741824 bytes of the file system are free"), "{why}");
    scene.file_system.set_free(2 << 30);
    assert!(write(&file, &meta, 30) && stats(&disk).bypassed.is_none());
}
