use std::fs;

use super::*;

fn slices(bytes: &[u8]) -> [io::IoSlice<'_>; 1] {
    [io::IoSlice::new(bytes)]
}

/// Makes a directory with one file of 10,000 sevens.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a"), [7; 10_000]).unwrap();
    directory
}

fn contents(disk: &CopyOnWriteDisk, file: &CopyOnWriteFile) -> Vec<u8> {
    let mut bytes = vec![0xee; 100_000];
    let count = disk.read_at(file, 0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

#[test]
fn changes_are_seen_through_the_layer_and_the_file_stays_as_it_is() {
    let directory = directory();
    let disk = CopyOnWriteDisk::open(directory.path()).unwrap();
    let file = disk.open("a").unwrap();
    // Model: the same steps on plain bytes.
    let mut model = vec![7_u8; 10_000];
    for (offset, bytes) in
        [(5, vec![1; 3]), (4000, vec![2; 5000]), (9_999, vec![3; 10]), (30_000, vec![0; 9000])]
    {
        disk.write_at(&file, offset, &slices(&bytes)).unwrap();
        let offset = usize::try_from(offset).unwrap();
        model.resize(model.len().max(offset + bytes.len()), 0);
        model[offset..offset + bytes.len()].copy_from_slice(&bytes);
        assert_eq!(contents(&disk, &file), model);
    }
    for length in [9_000_u64, 20_000, 100, 8_192, 8_193, 0, 5] {
        disk.truncate(&file, length).unwrap();
        model.resize(usize::try_from(length).unwrap(), 0);
        assert_eq!(contents(&disk, &file), model, "cut to {length}");
    }
    assert_eq!(fs::read(directory.path().join("a")).unwrap(), [7; 10_000]);
}

#[test]
fn names_change_in_the_layer_only() {
    let directory = directory();
    let disk = CopyOnWriteDisk::open(directory.path()).unwrap();
    disk.create("b").unwrap();
    assert_eq!(disk.create("b").unwrap_err().kind, DiskErrorKind::Exists);
    disk.rename("a", "c").unwrap();
    disk.remove("b").unwrap();
    assert_eq!(disk.list().unwrap(), ["c"]);
    assert_eq!(disk.open("a").unwrap_err().kind, DiskErrorKind::NotFound);
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a"]);
}

/// `check` once said that a start in such a directory would succeed.
#[test]
fn a_rehearsal_fails_where_the_directory_below_would() {
    let error = CopyOnWriteDisk::rehearse(Path::new("/proc/busload/log")).unwrap_err();
    assert_eq!(
        (error.operation, error.path),
        (DiskOperation::Create, PathBuf::from("/proc/busload/log"))
    );
    let disk = CopyOnWriteDisk::rehearse(Path::new("/proc/self/task")).unwrap();
    for (error, operation) in [
        (disk.create("new").unwrap_err(), DiskOperation::Create),
        (disk.lock("lock").unwrap_err(), DiskOperation::Lock),
    ] {
        assert_eq!(
            (error.operation, error.path.parent()),
            (operation, Some(Path::new("/proc/self/task")))
        );
    }
    // Not even root can write a running program (ETXTBSY).
    let directory = directory();
    let program = directory.path().join("program");
    fs::copy("/bin/sleep", &program).unwrap();
    let mut child = std::process::Command::new(&program).arg("1000").spawn().unwrap();
    let disk = CopyOnWriteDisk::rehearse(directory.path()).unwrap();
    let errors = [disk.open("program").unwrap_err(), disk.lock("program").unwrap_err()];
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        errors.map(|error| (error.operation, error.source.kind())),
        [
            (DiskOperation::Open, io::ErrorKind::ExecutableFileBusy),
            (DiskOperation::Lock, io::ErrorKind::ExecutableFileBusy),
        ]
    );
    // A disk that is only read does not ask whether files can be written.
    CopyOnWriteDisk::open(directory.path()).unwrap().open("program").unwrap();
    CopyOnWriteDisk::open(Path::new("/proc/busload/log")).unwrap().lock("lock").unwrap();
}

#[test]
fn a_rehearsal_has_the_space_of_the_file_system() {
    let directory = directory();
    let disk = CopyOnWriteDisk::rehearse(directory.path()).unwrap();
    let error = disk.truncate(&disk.open("a").unwrap(), u64::MAX / 2).unwrap_err();
    assert_eq!((error.kind, error.operation), (DiskErrorKind::NoSpace, DiskOperation::Truncate));
    let rehearsal = Arc::new(Rehearsal::with_free_bytes(1000));
    let disk = CopyOnWriteDisk::open_for(directory.path(), Some(rehearsal)).unwrap();
    for _ in 0..4 {
        let file = disk.create("new").unwrap();
        disk.write_at(&file, 0, &slices(&[0; 600])).unwrap();
        disk.write_at(&file, 0, &slices(&[1; 600])).unwrap();
        let error = disk.write_at(&file, 590, &slices(&[0; 411])).unwrap_err();
        assert_eq!((error.kind, error.operation), (DiskErrorKind::NoSpace, DiskOperation::Write));
        disk.truncate(&file, 1000).unwrap();
        disk.remove("new").unwrap();
    }
    // Bytes that exist below take no further space.
    disk.truncate(&disk.open("a").unwrap(), 9_000).unwrap();
    disk.write_at(&disk.create("new").unwrap(), 0, &slices(&[0; 2000])).unwrap();
    let disk = CopyOnWriteDisk::open(directory.path()).unwrap();
    disk.truncate(&disk.open("a").unwrap(), u64::MAX / 2).unwrap();
}

#[test]
fn zeros_where_nothing_is_take_no_memory() {
    let disk = CopyOnWriteDisk::open(Path::new("/nowhere/at/all")).unwrap();
    let file = disk.create("zeros").unwrap();
    disk.write_at(&file, 0, &slices(&vec![0; 1 << 20])).unwrap();
    assert_eq!(disk.length(&file).unwrap(), 1 << 20);
    assert!(file.contents().pages.is_empty());
}

#[test]
fn a_directory_in_use_cannot_be_looked_at() {
    let directory = directory();
    let disk = CopyOnWriteDisk::open(directory.path()).unwrap();
    let writer = File::create(directory.path().join("a")).unwrap();
    writer.try_lock().unwrap();
    assert_eq!(disk.lock("a").unwrap_err().kind, DiskErrorKind::Exists);
    drop(writer);
    disk.lock("a").unwrap();
    CopyOnWriteDisk::open(directory.path()).unwrap().lock("a").unwrap();
    disk.lock("not there yet").unwrap();
}
