use std::fs;

use super::*;

fn slices(bytes: &[u8]) -> [io::IoSlice<'_>; 1] {
    [io::IoSlice::new(bytes)]
}

/// A directory with one file of 10,000 sevens.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a"), [7; 10_000]).unwrap();
    directory
}

fn contents(disk: &OverlayDisk, file: &OverlayFile) -> Vec<u8> {
    let mut bytes = vec![0xee; 100_000];
    let count = disk.read_at(file, 0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

#[test]
fn changes_are_seen_through_the_layer_and_the_file_stays_as_it_is() {
    let directory = directory();
    let disk = OverlayDisk::open(directory.path()).unwrap();
    let file = disk.open("a").unwrap();
    // The same steps on plain bytes.
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
    let disk = OverlayDisk::open(directory.path()).unwrap();
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

#[test]
fn zeros_where_nothing_is_take_no_memory() {
    let disk = OverlayDisk::open(Path::new("/nowhere/at/all")).unwrap();
    let file = disk.create("zeros").unwrap();
    disk.write_at(&file, 0, &slices(&vec![0; 1 << 20])).unwrap();
    assert_eq!(disk.length(&file).unwrap(), 1 << 20);
    assert!(file.contents().pages.is_empty());
}

#[test]
fn a_directory_in_use_cannot_be_looked_at() {
    let directory = directory();
    let disk = OverlayDisk::open(directory.path()).unwrap();
    let writer = File::create(directory.path().join("a")).unwrap();
    writer.try_lock().unwrap();
    assert_eq!(disk.lock("a").unwrap_err().kind, DiskErrorKind::Exists);
    drop(writer);
    disk.lock("a").unwrap();
    OverlayDisk::open(directory.path()).unwrap().lock("a").unwrap();
    disk.lock("not there yet").unwrap();
}
