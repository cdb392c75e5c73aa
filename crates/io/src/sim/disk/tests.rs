//! The fault model, rule by rule. `disk::tests` checks the behaviour without faults.

use std::io::IoSlice;

use super::{contents::SECTOR_BYTES, *};

const SEEDS: std::ops::Range<u64> = 0..400;

fn write(disk: &SimDisk, file: &SimFile, offset: usize, bytes: &[u8]) -> Result<(), DiskError> {
    disk.write_at(file, offset as u64, &[IoSlice::new(bytes)])
}

/// Creates a disk with one durable file of `sectors` sectors, all of this byte.
fn disk_with(sectors: usize, byte: u8) -> (SimDisk, SimFile) {
    let disk = SimDisk::new();
    disk.put_file("file", &vec![byte; sectors * SECTOR_BYTES]);
    let file = disk.open("file").unwrap();
    (disk, file)
}

/// Returns what a crash with one seed leaves of the file.
fn left(disk: &SimDisk, seed: u64, kind: CrashKind) -> Vec<u8> {
    disk.crash(&mut SimRng::new(seed), kind).contents("file").unwrap()
}

/// Returns all contents that a crash may leave of the file.
fn outcomes(disk: &SimDisk) -> BTreeSet<Vec<u8>> {
    SEEDS.map(|seed| left(disk, seed, CrashKind::AnySubset)).collect()
}

fn failing(disk: &SimDisk, operation: DiskOperation) {
    disk.inject(Fault::once(operation, 0, DiskErrorKind::Failed));
}

#[test]
fn a_power_loss_takes_what_was_not_synced() {
    let (disk, file) = disk_with(1, b'a');
    write(&disk, &file, 0, b"bb").unwrap();
    disk.sync(&file).unwrap();
    write(&disk, &file, 1, b"cc").unwrap();
    write(&disk, &file, 600, b"c").unwrap();
    let left = left(&disk, 0, CrashKind::DropUnsynced);
    assert_eq!((&left[..4], left.len()), (&b"bbaa"[..], 512));
    assert_eq!(disk.durable_contents("file").unwrap(), left);
    assert_eq!(disk.contents("file").unwrap().len(), 601, "the old disk is untouched");
}

#[test]
fn a_killed_process_leaves_everything_and_the_unsynced_still_unsynced() {
    let (disk, file) = disk_with(1, b'a');
    disk.create("new").unwrap();
    write(&disk, &file, 0, b"b").unwrap();
    let killed = disk.crash(&mut SimRng::new(0), CrashKind::KeepAll);
    assert_eq!(killed.contents("file").unwrap()[0], b'b');
    assert_eq!(killed.list().unwrap(), ["file", "new"]);
    let without_sync = killed.crash(&mut SimRng::new(0), CrashKind::DropUnsynced);
    assert_eq!(without_sync.contents("file").unwrap()[0], b'a');
    assert_eq!(without_sync.list().unwrap(), ["file"]);
    killed.sync(&killed.open("file").unwrap()).unwrap();
    killed.sync_directory().unwrap();
    let with_sync = killed.crash(&mut SimRng::new(0), CrashKind::DropUnsynced);
    assert_eq!(with_sync.contents("file").unwrap()[0], b'b');
    assert_eq!(with_sync.list().unwrap(), ["file", "new"]);
}

#[test]
fn every_subset_of_unsynced_sectors_may_survive_and_no_sector_is_mixed() {
    let (disk, file) = disk_with(3, b'a');
    write(&disk, &file, 0, &[b'b'; 3 * SECTOR_BYTES]).unwrap();
    let outcomes: BTreeSet<Vec<u8>> = outcomes(&disk)
        .into_iter()
        .map(|left| {
            let sectors: Vec<_> = left.chunks(SECTOR_BYTES).collect();
            assert!(sectors.iter().all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            sectors.iter().map(|sector| sector[0]).collect()
        })
        .collect();
    let expected = ["aaa", "aab", "aba", "abb", "baa", "bab", "bba", "bbb"];
    assert_eq!(outcomes, expected.iter().map(|sectors| sectors.as_bytes().to_vec()).collect());
}

#[test]
fn of_several_writes_to_a_sector_the_first_ones_survive() {
    let (disk, file) = disk_with(1, b'.');
    for (offset, byte) in [(0, b"1"), (1, b"2"), (2, b"3")] {
        write(&disk, &file, offset, byte).unwrap();
    }
    let starts: BTreeSet<Vec<u8>> =
        outcomes(&disk).into_iter().map(|left| left[..3].to_vec()).collect();
    let expected = ["...", "1..", "12.", "123"];
    assert_eq!(starts, expected.iter().map(|start| start.as_bytes().to_vec()).collect());
}

#[test]
fn an_unsynced_extension_has_any_length_in_between_and_holes_are_zeros() {
    let (disk, file) = disk_with(1, b'a');
    write(&disk, &file, SECTOR_BYTES, &[b'b'; 2 * SECTOR_BYTES + 100]).unwrap();
    let outcomes = outcomes(&disk);
    let lengths: BTreeSet<usize> = outcomes.iter().map(Vec::len).collect();
    assert_eq!(lengths, [512, 1024, 1536, 1636].into());
    for left in &outcomes {
        assert!(left[..SECTOR_BYTES].iter().all(|byte| *byte == b'a'));
        for sector in left[SECTOR_BYTES..].chunks(SECTOR_BYTES) {
            assert!(
                sector.iter().all(|byte| *byte == b'b') || sector.iter().all(|byte| *byte == 0)
            );
        }
    }
    let hole =
        outcomes.iter().any(|left| left.len() == 1636 && left[600] == 0 && left[1100] == b'b');
    assert!(hole, "a later sector survives without an earlier one");
}

#[test]
fn a_cut_survives_or_not_and_nothing_written_behind_it_survives_without_it() {
    let (disk, file) = disk_with(4, b'a');
    disk.truncate(&file, SECTOR_BYTES as u64).unwrap();
    write(&disk, &file, SECTOR_BYTES, &[b'b'; SECTOR_BYTES]).unwrap();
    let sectors: BTreeSet<String> = outcomes(&disk)
        .iter()
        .map(|left| left.chunks(SECTOR_BYTES).map(|sector| char::from(sector[0])).collect())
        .collect();
    assert_eq!(sectors, ["aaaa", "a", "ab", "a\0"].map(String::from).into());
    disk.sync(&file).unwrap();
    assert_eq!(outcomes(&disk).len(), 1);
}

#[test]
fn after_a_sync_chance_changes_nothing() {
    let (disk, file) = disk_with(2, b'a');
    write(&disk, &file, 300, &[b'b'; 2000]).unwrap();
    disk.sync(&file).unwrap();
    assert_eq!(outcomes(&disk), [disk.contents("file").unwrap()].into());
}

#[test]
fn a_name_is_durable_only_after_a_sync_of_the_directory() {
    let disk = SimDisk::new();
    let file = disk.create("a").unwrap();
    write(&disk, &file, 0, b"bytes").unwrap();
    disk.sync(&file).unwrap();
    let names = |kind| disk.crash(&mut SimRng::new(0), kind).list().unwrap();
    assert_eq!(names(CrashKind::DropUnsynced), Vec::<FileName>::new());
    disk.sync_directory().unwrap();
    assert_eq!(names(CrashKind::DropUnsynced), ["a"]);
    disk.rename("a", "b").unwrap();
    assert_eq!(names(CrashKind::DropUnsynced), ["a"]);
    assert_eq!(
        disk.crash(&mut SimRng::new(0), CrashKind::DropUnsynced).contents("a").unwrap(),
        b"bytes"
    );
    disk.sync_directory().unwrap();
    disk.remove("b").unwrap();
    drop(file);
    let left = disk.crash(&mut SimRng::new(0), CrashKind::DropUnsynced);
    assert_eq!(left.contents("b").unwrap(), b"bytes", "a removal that was not synced is undone");
    disk.sync_directory().unwrap();
    assert_eq!(names(CrashKind::DropUnsynced), Vec::<FileName>::new());
}

#[test]
fn of_unsynced_directory_operations_a_prefix_survives() {
    let disk = SimDisk::new();
    disk.put_file("old", b"o");
    disk.create("new").unwrap();
    disk.rename("new", "old").unwrap();
    disk.create("last").unwrap();
    disk.remove("last").unwrap();
    let outcomes: BTreeSet<Vec<FileName>> = SEEDS
        .map(|seed| disk.crash(&mut SimRng::new(seed), CrashKind::AnySubset).list().unwrap())
        .collect();
    let expected = [vec!["old"], vec!["new", "old"], vec!["last", "old"]];
    assert_eq!(
        outcomes,
        expected.map(|names| names.iter().map(|name| name.to_string()).collect()).into()
    );
}

#[test]
fn after_a_failed_sync_the_data_is_lost_although_a_second_sync_succeeds() {
    let (disk, file) = disk_with(1, b'a');
    write(&disk, &file, 0, b"lost").unwrap();
    failing(&disk, DiskOperation::Sync);
    assert_eq!(disk.sync(&file).unwrap_err().operation, DiskOperation::Sync);
    assert!(1 < outcomes(&disk).len(), "until the next sync some of it may have reached the disk");
    write(&disk, &file, 100, b"kept").unwrap();
    disk.sync(&file).unwrap();
    let visible = disk.contents("file").unwrap();
    assert_eq!((&visible[..4], &visible[100..104]), (&b"lost"[..], &b"kept"[..]), "reads see both");
    let outcomes = outcomes(&disk);
    assert_eq!(outcomes.len(), 1);
    let left = outcomes.first().unwrap();
    assert_eq!((&left[..4], &left[100..104]), (&b"aaaa"[..], &b"kept"[..]));
    disk.evict_pages();
    assert_eq!(disk.contents("file").as_ref(), Some(left), "now reads see it too");
}

#[test]
fn the_nth_operation_fails_once_or_for_ever() {
    let (disk, file) = disk_with(8, b'a');
    disk.inject(Fault::once(DiskOperation::Write, 2, DiskErrorKind::Failed));
    let results: Vec<bool> = (0..5).map(|_| write(&disk, &file, 0, b"x").is_ok()).collect();
    assert_eq!(results, [true, true, false, true, true]);
    disk.inject(Fault::forever(DiskOperation::Read, 1, DiskErrorKind::Failed));
    let results: Vec<bool> = (0..4).map(|_| disk.read_at(&file, 0, &mut [0]).is_ok()).collect();
    assert_eq!(results, [true, false, false, false]);
    disk.clear_faults();
    disk.read_at(&file, 0, &mut [0]).unwrap();
}

#[test]
fn a_fault_on_a_prefix_leaves_other_files_alone() {
    let disk = SimDisk::new();
    disk.inject(Fault::forever(DiskOperation::Create, 0, DiskErrorKind::NoSpace).on("segment"));
    assert_eq!(disk.create("segment-1").unwrap_err().kind, DiskErrorKind::NoSpace);
    disk.create("other").unwrap();
    assert_eq!(disk.list().unwrap(), ["other"]);
}

#[test]
fn a_failed_write_leaves_half_of_its_sectors_and_one_without_space_nothing() {
    let (disk, file) = disk_with(4, b'a');
    failing(&disk, DiskOperation::Write);
    write(&disk, &file, 0, &[b'b'; 4 * SECTOR_BYTES]).unwrap_err();
    let visible = disk.contents("file").unwrap();
    assert_eq!((visible[1023], visible[1024]), (b'b', b'a'));
    disk.inject(Fault::once(DiskOperation::Write, 0, DiskErrorKind::NoSpace));
    let error = write(&disk, &file, 0, &[b'c'; 4 * SECTOR_BYTES]).unwrap_err();
    assert_eq!(
        (error.kind, error.source.kind()),
        (DiskErrorKind::NoSpace, io::ErrorKind::StorageFull)
    );
    assert_eq!(disk.contents("file").unwrap(), visible);
}

#[test]
fn a_full_disk_takes_what_fits_and_works_again_when_there_is_room() {
    let (disk, file) = disk_with(1, b'a');
    disk.set_space(Some(600));
    write(&disk, &file, 0, &[b'b'; 512]).unwrap();
    let error = write(&disk, &file, 500, &[b'c'; 200]).unwrap_err();
    assert_eq!(error.kind, DiskErrorKind::NoSpace);
    assert_eq!(disk.contents("file").unwrap().len(), 600);
    assert_eq!(disk.truncate(&file, 601).unwrap_err().kind, DiskErrorKind::NoSpace);
    let other = disk.create("other").unwrap();
    assert_eq!(write(&disk, &other, 0, b"x").unwrap_err().kind, DiskErrorKind::NoSpace);
    disk.set_space(Some(700));
    write(&disk, &file, 500, &[b'c'; 200]).unwrap();
    assert_eq!(write(&disk, &other, 0, b"x").unwrap_err().kind, DiskErrorKind::NoSpace);
    disk.remove("file").unwrap();
    assert_eq!(
        write(&disk, &other, 0, b"x").unwrap_err().kind,
        DiskErrorKind::NoSpace,
        "it is still open"
    );
    drop(file);
    disk.sync_directory().unwrap();
    write(&disk, &other, 0, b"x").unwrap();
}

#[test]
fn a_flipped_bit_is_there_now_and_after_a_crash() {
    let (disk, file) = disk_with(1, 0);
    write(&disk, &file, 512, &[0; 8]).unwrap();
    disk.flip_bit("file", 10, 3);
    disk.flip_bit("file", 515, 0);
    disk.sync(&file).unwrap();
    for bytes in [disk.contents("file").unwrap(), left(&disk, 0, CrashKind::DropUnsynced)] {
        assert_eq!((bytes[10], bytes[515]), (8, 1));
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 2);
    }
}

/// Runs a small program with every changing operation.
fn run(disk: &SimDisk) -> Result<(), DiskError> {
    let file = disk.create("a")?;
    disk.write_at(&file, 0, &[IoSlice::new(&[b'1'; 1024])])?;
    disk.sync(&file)?;
    disk.sync_directory()?;
    disk.truncate(&file, 600)?;
    disk.rename("a", "b")?;
    disk.create("c")?;
    disk.remove("c")?;
    disk.write_at(&file, 100, &[IoSlice::new(&[b'2'; 1024])])?;
    disk.sync(&file)?;
    disk.sync_directory()
}

#[test]
fn a_crash_at_an_operation_keeps_those_before_and_stops_everything() {
    let whole = SimDisk::new();
    run(&whole).unwrap();
    let count = whole.operation_count();
    assert_eq!(count, 11);
    for ordinal in 0..count {
        let disk = SimDisk::new();
        disk.crash_at(ordinal);
        assert!(!disk.is_crashed());
        run(&disk).unwrap_err();
        assert!(disk.is_crashed());
        assert_eq!(disk.operation_count(), ordinal);
        assert_eq!(disk.journal(), whole.journal()[..usize::try_from(ordinal).unwrap()]);
        disk.list().unwrap_err();
        // The remaining disk works.
        let left = disk.crash(&mut SimRng::new(ordinal), CrashKind::AnySubset);
        left.create("after").unwrap();
        assert!(!left.is_crashed());
    }
    let disk = SimDisk::new();
    disk.crash_at(count);
    run(&disk).unwrap();
    assert_eq!(disk.snapshot(), whole.snapshot());
}

#[test]
fn the_same_seed_leaves_the_same() {
    let survivors = |seed| {
        let disk = SimDisk::new();
        disk.crash_at(9);
        run(&disk).unwrap_err();
        disk.crash(&mut SimRng::new(seed), CrashKind::AnySubset).snapshot()
    };
    let all: BTreeSet<_> = (0..50).map(survivors).collect();
    assert_eq!(all, (0..50).map(survivors).collect());
    assert!(10 < all.len(), "{}", all.len());
}

#[test]
fn operations_are_counted_by_file() {
    let disk = SimDisk::new();
    run(&disk).unwrap();
    assert_eq!(disk.count(DiskOperation::Sync, "a"), 2);
    assert_eq!(disk.count(DiskOperation::Sync, "b"), 0);
    assert_eq!(disk.count(DiskOperation::SyncDirectory, ""), 2);
}

#[test]
fn a_crash_releases_locks() {
    let disk = SimDisk::new();
    let _held = disk.lock("lock").unwrap();
    for kind in [CrashKind::DropUnsynced, CrashKind::AnySubset, CrashKind::KeepAll] {
        disk.crash(&mut SimRng::new(0), kind).lock("lock").unwrap();
    }
    disk.lock("lock").unwrap_err();
}
