//! A disk that fails never fails a read, is bypassed, and is used again when it works.

use super::*;
use crate::disk::faulty::{FAULTS, Fault};

/// Makes a cache with some extents.
fn filled() -> (Scene, Arc<Disk>, ObjectMeta, Arc<DiskObject>) {
    let scene = Scene::new(16);
    let disk = scene.open();
    let meta = object("a", size(10, 0));
    let file = disk.object("s3://b", &meta);
    (0..4).for_each(|extent| assert!(write(&file, &meta, extent)));
    assert!(disk.flush());
    (scene, disk, meta, file)
}

#[test]
fn a_full_disk_is_left_alone_for_a_while_but_read() {
    let scene = Scene::new(16);
    let disk = scene.open();
    let meta = object("a", size(10, 0));
    let file = disk.object("s3://b", &meta);
    scene.file_system.fail_after(0, Fault::Full);
    assert!(!write(&file, &meta, 0));
    let why = stats(&disk).bypassed.expect("nothing of ours could go");
    assert!(why.contains("No space left"), "{why}");
    scene.file_system.heal();
    assert!(!write(&file, &meta, 0), "until it is tried again");
    disk.check();
    assert_eq!(stats(&disk).bypassed, None);
    assert!(write(&file, &meta, 0) && read(&file, &meta, 0..10));
}

#[test]
fn a_file_system_smaller_than_the_limit_is_used_as_far_as_it_goes() {
    let (scene, disk, meta, file) = filled();
    let before = stats(&disk).bytes;
    // The first write of the next extent finds the disk full, the one after an eviction does not.
    scene.file_system.fail_after(3, Fault::FullInside);
    let data = contents(&meta, extent_range(&meta, 5));
    let writing = std::thread::scope(|scope| {
        let writer = scope.spawn(|| file.write(5, &data, Entrance::New));
        // Evicted space is there for the second attempt.
        while stats(&disk).evicted == 0 && !writer.is_finished() {
            std::thread::yield_now();
        }
        scene.file_system.heal();
        writer.join().unwrap()
    });
    // Either all is well, or the disk was bypassed and is tried again.
    if !writing {
        disk.check();
    }
    assert_eq!(stats(&disk).bypassed, None);
    (5..10).for_each(|extent| assert!(write(&file, &meta, extent), "{extent}"));
    assert!(stats(&disk).bytes <= before + (1 << 20) + 8192, "what did not fit is the limit now");
    assert!(1 <= stats(&disk).evicted && 1 <= stats(&disk).disk_errors);
}

#[test]
fn a_read_only_disk_is_read() {
    let (scene, disk, meta, file) = filled();
    scene.file_system.fail_after(0, Fault::ReadOnly);
    assert!(!write(&file, &meta, 5));
    assert!(read(&file, &meta, 0..size(4, 0)));
    assert!(stats(&disk).bypassed.is_some_and(|why| why.contains("Read-only")));
    disk.check();
    assert!(stats(&disk).bypassed.is_some());
    scene.file_system.heal();
    disk.check();
    assert!(stats(&disk).bypassed.is_none() && write(&file, &meta, 5));
}

#[test]
fn a_disk_whose_reads_fail_is_left_alone_and_a_bad_sector_costs_an_extent() {
    let (scene, disk, meta, file) = filled();
    scene.file_system.fail_after(0, Fault::ReadsFail);
    assert!(!read(&file, &meta, 0..10));
    scene.file_system.heal();
    assert!(!file.has_extent(0) && read(&file, &meta, extent_range(&meta, 1)));
    assert_eq!(stats(&disk).bypassed, None);
    scene.file_system.fail_after(0, Fault::ReadsFail);
    for extent in 1..4 {
        assert!(!read(&file, &meta, extent_range(&meta, extent)));
        assert!(file.try_read(&extent_range(&meta, extent), AccessHint::Random).is_none());
    }
    assert!(write(&file, &meta, 6) && !read(&file, &meta, extent_range(&meta, 6)));
    assert!(stats(&disk).bypassed.is_some_and(|why| why.contains("reading")), "{:?}", stats(&disk));
    scene.file_system.heal();
    assert!(!write(&file, &meta, 5) && !file.is_present(&(0..1)));
    disk.check();
    assert!(write(&file, &meta, 5) && read(&file, &meta, extent_range(&meta, 5)));
}

#[test]
fn a_directory_that_was_removed_is_made_again() {
    let (scene, disk, meta, file) = filled();
    std::fs::remove_dir_all(&scene.options.directory).unwrap();
    assert!(read(&file, &meta, 0..10), "the open file is still right");
    disk.check();
    assert!(stats(&disk).bypassed.is_some_and(|why| why.contains("removed or replaced")));
    assert!(!read(&file, &meta, 0..10) && !write(&file, &meta, 1));
    assert_eq!((stats(&disk).bytes, stats(&disk).extents), (0, 0));
    disk.check();
    assert_eq!(stats(&disk).bypassed, None);
    assert!(write(&file, &meta, 1) && read(&file, &meta, extent_range(&meta, 1)));
    disk.close();
    drop((file, disk));
    let disk = scene.open();
    assert!(
        read(&disk.object("s3://b", &meta), &meta, extent_range(&meta, 1)),
        "and is journaled there"
    );
}

#[test]
fn a_new_file_in_a_removed_directory_is_no_error() {
    let (scene, disk, _, _) = filled();
    std::fs::remove_dir_all(&scene.options.directory).unwrap();
    let other = object("b", 100);
    assert!(!write(&disk.object("s3://b", &other), &other, 0));
    disk.check();
    disk.check();
    assert!(write(&disk.object("s3://b", &other), &other, 0));
}

#[test]
fn a_directory_that_another_process_took_is_left_to_it() {
    let (scene, disk, meta, file) = filled();
    std::fs::rename(&scene.options.directory, scene.directory.path().join("moved")).unwrap();
    let other = Disk::open(&scene.options).unwrap();
    disk.check();
    disk.check();
    assert!(stats(&disk).bypassed.is_some_and(|why| why.contains("is in use by process")));
    assert!(!write(&file, &meta, 1));
    other.close();
    check_while_locked(&disk);
    assert!(stats(&disk).bypassed.is_none() && write(&file, &meta, 1));
}

#[test]
fn a_data_file_that_was_removed_is_a_miss() {
    let (scene, disk, meta, _) = filled();
    disk.close();
    let disk = {
        drop(disk);
        scene.open()
    };
    std::fs::remove_file(&scene.data_files()[0]).unwrap();
    let file = disk.object("s3://b", &meta);
    assert!(file.is_present(&(0..1)) && !read(&file, &meta, 0..1) && !file.is_present(&(0..1)));
    assert_eq!((stats(&disk).extents, stats(&disk).disk_errors), (0, 1));
    assert!(write(&file, &meta, 0) && read(&file, &meta, 0..10));
}

/// For want of a descriptor an extent's hole could not be punched, and nothing retried it while the
/// disk was healthy.
#[test]
fn space_of_a_file_that_could_not_be_opened_is_given_back_later() {
    let (scene, disk, meta, _) = filled();
    disk.close();
    let disk = {
        drop(disk);
        scene.open()
    };
    let file = disk.object("s3://b", &meta);
    scene.file_system.fail_after(0, Fault::NoDescriptors);
    file.remove(&(0..1));
    scene.file_system.heal();
    assert!(!write(&file, &meta, 0) && stats(&disk).bypassed.is_none(), "its space is still taken");
    disk.check();
    assert!(write(&file, &meta, 0) && read(&file, &meta, 0..10));
}

#[test]
fn a_truncated_data_file_is_corruption() {
    let (scene, disk, meta, file) = filled();
    std::fs::File::options()
        .write(true)
        .open(&scene.data_files()[0])
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    assert!(
        !read(&file, &meta, extent_range(&meta, 2)) && read(&file, &meta, extent_range(&meta, 0))
    );
    assert!(file.try_read(&extent_range(&meta, 1), AccessHint::Random).is_none());
    assert!(write(&file, &meta, 2) && read(&file, &meta, extent_range(&meta, 2)));
    assert_eq!(stats(&disk).bypassed, None);
}

#[test]
fn a_file_that_cannot_be_removed_still_counts_until_it_can() {
    let (scene, disk, meta, file) = filled();
    let before = stats(&disk).bytes;
    scene.file_system.fail_after(0, Fault::RemoveFails);
    disk.drop_files(|_| true);
    assert!(!read(&file, &meta, 0..10));
    assert_eq!(stats(&disk).bytes, before);
    disk.check();
    assert!(stats(&disk).bypassed.is_some_and(|why| why.contains("removing")));
    scene.file_system.heal();
    disk.check();
    assert!(stats(&disk).bytes < 4096 && stats(&disk).bypassed.is_none());
    assert!(scene.data_files().is_empty());
}

/// A fault at the start leaves a cache that uses the disk when it works.
#[test]
fn a_disk_that_fails_at_the_start_is_tried_again() {
    let (scene, disk, meta, _) = filled();
    disk.close();
    drop(disk);
    for fault in FAULTS {
        for calls in 0..14 {
            scene.file_system.fail_after(calls, fault);
            let disk = scene.open();
            let file = disk.object("s3://b", &meta);
            read(&file, &meta, 0..10);
            write(&file, &meta, 0);
            scene.file_system.heal();
            disk.check();
            check_while_locked(&disk);
            assert_eq!(stats(&disk).bypassed, None, "{fault:?} after {calls}");
            let context = format!("{fault:?} after {calls}");
            assert!(write(&file, &meta, 0) && read(&file, &meta, 0..10), "{context}");
            assert!(allocated(&scene.options.directory) <= 16 << 20, "{context}");
            disk.close();
        }
    }
}

/// Checks the disk until it is ours: a process that another test starts may hold the lock for a
/// moment (see [`Scene::open`]).
#[allow(clippy::disallowed_methods, reason = "deadlines of tests are real")]
pub(super) fn check_while_locked(disk: &Disk) {
    let deadline = Instant::now() + Duration::from_secs(20);
    disk.check();
    while stats(disk).bypassed.is_some_and(|why| why.contains("in use by"))
        && Instant::now() < deadline
    {
        thread::yield_now();
        disk.check();
    }
}

/// Fills a real file system. Where a tmpfs cannot be mounted, the faults above stand for it.
#[test]
fn a_small_tmpfs_is_filled_and_goes_on() {
    let mut scene = Scene::new(64);
    let mounted = Tmpfs::mount(scene.directory.path(), 6);
    if mounted.is_none() {
        scene.options.bytes_max = 5 << 20;
    }
    let disk = scene.open();
    let meta = object("a", size(30, 0));
    let file = disk.object("s3://b", &meta);
    let mut kept = 0;
    for extent in 0..30 {
        kept += u32::from(write(&file, &meta, extent));
        assert!(
            (0..30).filter(|&extent| read(&file, &meta, extent_range(&meta, extent))).count() <= 6
        );
    }
    assert_eq!(kept, 30, "{:?}", stats(&disk));
    let stats = stats(&disk);
    assert!(3 <= stats.extents && stats.bypassed.is_none() && 20 <= stats.evicted, "{stats:?}");
    assert_eq!(mounted.is_some(), 0 < stats.disk_errors, "{stats:?}");
    disk.close();
    drop((file, disk));
    let disk = scene.open();
    assert!(3 <= super::stats(&disk).extents);
    drop(disk);
}

/// A small file system in memory, unmounted in the end.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn mount(path: &Path, mib: u32) -> Option<Self> {
        let size = format!("size={mib}m");
        let mut command = std::process::Command::new("mount");
        let mounted = command.args(["-t", "tmpfs", "-o", &size, "busload-test"]).arg(path).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(path.to_owned()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "what was mounted is unmounted");
    }
}
