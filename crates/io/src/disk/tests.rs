//! Behaviour common to all disks, checked on the real one and the simulated one.

use std::io::IoSlice;

use super::*;
use crate::sim::SimDisk;

macro_rules! on_both_disks {
    ($($property:ident)*) => {
        mod real_disk {
            $(
                #[test]
                fn $property() {
                    let folder = tempfile::tempdir().unwrap();
                    super::$property(&super::RealDisk::open(folder.path()).unwrap());
                }
            )*
        }
        mod simulated_disk {
            $(
                #[test]
                fn $property() {
                    super::$property(&super::SimDisk::new());
                }
            )*
        }
    };
}

on_both_disks! {
    what_was_written_is_read
    a_read_behind_the_end_gives_what_there_is
    a_write_behind_the_end_leaves_zeros_between
    a_length_set_cuts_and_extends_with_zeros
    names_are_listed_renamed_and_removed
    a_removed_or_replaced_file_stays_readable_while_open
    a_name_in_use_and_a_missing_one_are_told_apart
    a_lock_excludes_others_until_it_is_dropped
    syncs_of_files_and_directories_succeed
    errors_name_operation_and_file
    handles_work_on_several_threads
}

fn write<D: Disk>(disk: &D, file: &D::File, offset: u64, bytes: &[u8]) {
    disk.write_at(file, offset, &[IoSlice::new(bytes)]).unwrap();
}

fn read<D: Disk>(disk: &D, file: &D::File) -> Vec<u8> {
    let length = usize::try_from(disk.length(file).unwrap()).unwrap();
    let mut bytes = vec![0xee; length];
    assert_eq!(disk.read_at(file, 0, &mut bytes).unwrap(), length);
    bytes
}

fn names<D: Disk>(disk: &D) -> Vec<FileName> {
    let mut names = disk.list().unwrap();
    names.sort();
    names
}

/// Returns the error of an operation that must fail; files do not implement `Debug`.
fn error_of<T>(result: Result<T, DiskError>) -> DiskError {
    match result {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error,
    }
}

fn what_was_written_is_read<D: Disk>(disk: &D) {
    let file = disk.create("file").unwrap();
    assert_eq!(disk.length(&file).unwrap(), 0);
    disk.write_at(&file, 0, &[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cdef")])
        .unwrap();
    write(disk, &file, 3, b"DE");
    disk.write_at(&file, 1, &[]).unwrap();
    assert_eq!(read(disk, &file), b"abcDEf");
    let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let parts: Vec<_> = bytes.chunks(2).map(IoSlice::new).collect();
    disk.write_at(&file, 6, &parts).unwrap();
    assert_eq!(read(disk, &file), [b"abcDEf", &bytes[..]].concat());
    drop(file);
    let again = disk.open("file").unwrap();
    assert_eq!(read(disk, &again).len(), 5006);
    write(disk, &again, 0, b"A");
    let clone = disk.clone();
    assert_eq!(read(&clone, &clone.open("file").unwrap())[..2], *b"Ab");
}

fn a_read_behind_the_end_gives_what_there_is<D: Disk>(disk: &D) {
    let file = disk.create("file").unwrap();
    write(disk, &file, 0, b"0123456789");
    let mut into = [b'.'; 6];
    assert_eq!(disk.read_at(&file, 7, &mut into).unwrap(), 3);
    assert_eq!(&into, b"789...");
    assert_eq!(disk.read_at(&file, 10, &mut into).unwrap(), 0);
    assert_eq!(disk.read_at(&file, 1 << 40, &mut into).unwrap(), 0);
    assert_eq!(disk.read_at(&file, 2, &mut []).unwrap(), 0);
}

fn a_write_behind_the_end_leaves_zeros_between<D: Disk>(disk: &D) {
    let file = disk.create("file").unwrap();
    write(disk, &file, 4, b"end");
    assert_eq!(read(disk, &file), b"\0\0\0\0end");
}

fn a_length_set_cuts_and_extends_with_zeros<D: Disk>(disk: &D) {
    let file = disk.create("file").unwrap();
    write(disk, &file, 0, b"0123456789");
    disk.truncate(&file, 4).unwrap();
    disk.truncate(&file, 6).unwrap();
    assert_eq!(read(disk, &file), b"0123\0\0");
}

fn names_are_listed_renamed_and_removed<D: Disk>(disk: &D) {
    assert_eq!(names(disk), Vec::<FileName>::new());
    for name in ["a", "b", "c"] {
        let file = disk.create(name).unwrap();
        write(disk, &file, 0, name.as_bytes());
    }
    disk.rename("a", "d").unwrap();
    disk.rename("b", "c").unwrap();
    assert_eq!(names(disk), ["c", "d"]);
    assert_eq!(read(disk, &disk.open("c").unwrap()), b"b", "a rename replaces");
    disk.remove("d").unwrap();
    assert_eq!(names(disk), ["c"]);
}

fn a_removed_or_replaced_file_stays_readable_while_open<D: Disk>(disk: &D) {
    let [removed, replaced] = ["removed", "replaced"].map(|name| {
        let file = disk.create(name).unwrap();
        write(disk, &file, 0, name.as_bytes());
        file
    });
    disk.remove("removed").unwrap();
    disk.create("other").unwrap();
    disk.rename("other", "replaced").unwrap();
    disk.sync_directory().unwrap();
    assert_eq!(read(disk, &removed), b"removed");
    assert_eq!(read(disk, &replaced), b"replaced");
    assert_eq!(read(disk, &disk.open("replaced").unwrap()), b"");
    let removed_again = disk.create("removed").unwrap();
    assert_eq!(read(disk, &removed_again), b"");
}

fn a_name_in_use_and_a_missing_one_are_told_apart<D: Disk>(disk: &D) {
    disk.create("there").unwrap();
    assert_eq!(error_of(disk.create("there")).kind, DiskErrorKind::Exists);
    assert_eq!(error_of(disk.open("missing")).kind, DiskErrorKind::NotFound);
    assert_eq!(error_of(disk.remove("missing")).kind, DiskErrorKind::NotFound);
    assert_eq!(error_of(disk.rename("missing", "there")).kind, DiskErrorKind::NotFound);
    assert_eq!(names(disk), ["there"]);
}

fn a_lock_excludes_others_until_it_is_dropped<D: Disk>(disk: &D) {
    let lock = disk.lock("lock").unwrap();
    let error = error_of(disk.clone().lock("lock"));
    assert_eq!((error.kind, error.operation), (DiskErrorKind::Exists, DiskOperation::Lock));
    assert!(error.to_string().contains("another process holds the lock"), "{error}");
    disk.lock("other").unwrap();
    drop(lock);
    disk.lock("lock").unwrap();
    assert_eq!(names(disk), ["lock", "other"]);
}

fn syncs_of_files_and_directories_succeed<D: Disk>(disk: &D) {
    let file = disk.create("file").unwrap();
    write(disk, &file, 0, b"bytes");
    disk.sync(&file).unwrap();
    disk.sync_directory().unwrap();
    assert_eq!(read(disk, &file), b"bytes");
}

fn errors_name_operation_and_file<D: Disk>(disk: &D) {
    let error = error_of(disk.open("missing"));
    assert_eq!((error.operation, &error.path), (DiskOperation::Open, &disk.path("missing")));
    let text = error.to_string();
    assert!(text.starts_with(&format!("Open of {} failed: ", error.path.display())), "{text}");
}

fn handles_work_on_several_threads<D>(disk: &D)
where
    D: Disk + Send + Sync,
    D::File: Send,
{
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let disk = disk.clone();
            scope.spawn(move || {
                let file = disk.create(name).unwrap();
                for offset in 0..100 {
                    write(&disk, &file, offset, name.as_bytes());
                    disk.sync(&file).unwrap();
                }
            });
        }
    });
    for name in ["a", "b", "c", "d"] {
        assert_eq!(read(disk, &disk.open(name).unwrap()), name.repeat(100).as_bytes());
    }
}

#[test]
fn a_missing_directory_is_made_with_its_parents() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some/where");
    let disk = RealDisk::open(&path).unwrap();
    disk.create("file").unwrap();
    assert_eq!(disk.directory(), path);
    assert!(path.join("file").exists());
    assert_eq!(names(&RealDisk::open(&path).unwrap()), ["file"]);
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = RealDisk::open(&path).unwrap_err();
        assert_eq!(error.path, path, "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn folders_are_no_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    assert_eq!(names(&disk), Vec::<FileName>::new());
}

/// Every write to `/dev/full` finds the disk full.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_as_such() {
    let disk = RealDisk::open("/dev").unwrap();
    let file = disk.open("full").unwrap();
    let error = disk.write_at(&file, 0, &[IoSlice::new(b"x")]).unwrap_err();
    assert_eq!((error.kind, error.operation), (DiskErrorKind::NoSpace, DiskOperation::Write));
}

#[test]
fn a_directory_opened_for_reading_is_only_read_and_synced() {
    let folder = tempfile::tempdir().unwrap();
    let writable = RealDisk::open(folder.path()).unwrap();
    let file = writable.create("a").unwrap();
    write(&writable, &file, 0, b"abc");
    let disk = RealDisk::open_for_reading(folder.path()).unwrap();
    let file = disk.open("a").unwrap();
    assert_eq!(read(&disk, &file), b"abc");
    disk.sync(&file).unwrap();
    assert!(disk.write_at(&file, 0, &[IoSlice::new(b"x")]).is_err());
    assert!(disk.truncate(&file, 0).is_err());
    assert!(disk.create("b").is_err());
    assert_eq!(names(&disk), ["a"]);
    assert!(RealDisk::open_for_reading(folder.path().join("missing")).is_err());
    assert!(!folder.path().join("missing").exists());
}
