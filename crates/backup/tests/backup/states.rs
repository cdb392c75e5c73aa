//! States that a backup holds, and directories that it refuses.

use std::collections::BTreeMap;

use busload_backup::{BackupError, Event, Range, Settings, Target, restore, take, verify};
use busload_io::{
    Disk,
    sim::{SimDisk, SimRng},
};
use busload_log::{Lsn, format::LogId};

use crate::{
    KEEP_ALL, make_and_trim, no_warning, restored, take_at,
    world::{Contents, World},
};

/// Works, makes snapshots and takes a backup after each step. Returns the backup and the states at
/// the end of each step.
fn stepwise(seed: u64) -> (World, SimDisk, BTreeMap<Lsn, Contents>) {
    let mut world = World::start(SimDisk::new(), seed);
    let (to, mut states) = (SimDisk::new(), BTreeMap::new());
    for step in 0..6 {
        world.work(200);
        if step % 2 == 1 {
            make_and_trim(&mut world);
            world.work(50);
        }
        let taken = take_at(&world, &to, 10_000 + step);
        assert_eq!(taken.manifest.lsn, world.progress.durable());
        states.insert(taken.manifest.lsn, world.contents());
    }
    (world, to, states)
}

#[test]
fn every_state_that_was_backed_up_can_be_restored() {
    for seed in 0..10 {
        let (world, to, states) = stepwise(seed);
        let manifest = busload_backup::read_manifest(&to).unwrap().unwrap();
        assert_eq!(verify(&to, &manifest, &mut no_warning).unwrap(), Vec::<String>::new());
        let last = *states.keys().next_back().unwrap();
        let [Range { first, last: reached, last_ms, .. }] = manifest.ranges()[..] else { panic!() };
        assert_eq!((first, reached, last_ms), (Lsn(1), last, 10_005));
        assert!(!world.disk.list().unwrap().contains(&"00000000000000000001.log".to_owned()));
        for (lsn, contents) in &states {
            assert_eq!(restored(&to, &manifest, *lsn), *contents, "seed {seed} {lsn}");
        }
    }
}

#[test]
fn every_record_can_be_the_last() {
    let mut world = World::start(SimDisk::new(), 3);
    let to = SimDisk::new();
    world.work(40);
    make_and_trim(&mut world);
    world.work(40);
    let manifest = take_at(&world, &to, 10_000).manifest;
    let mut oracle = World::start(SimDisk::new(), 3);
    oracle.work(1);
    for lsn in 1..=manifest.lsn.0 {
        let target = Target::Record(Lsn(lsn));
        assert_eq!(manifest.resolve(&to, target).unwrap(), Some(Lsn(lsn)));
        let once = restored(&to, &manifest, Lsn(lsn));
        // The copy is cut in the middle of frames and of transactions in parts; a backup of a
        // restored log holds the same.
        let again = SimDisk::new();
        restore(&to, &manifest, Lsn(lsn), &again, LogId(7), &mut no_warning).unwrap();
        let started = World::start(again, 8);
        assert_eq!(started.contents(), once);
        let second = SimDisk::new();
        let of_restored = take_at(&started, &second, 10_000).manifest;
        assert_eq!(of_restored.log_id, LogId(7));
        assert_eq!(restored(&second, &of_restored, of_restored.lsn), once);
    }
    for lsn in [0, manifest.lsn.0 + 1] {
        assert_eq!(manifest.resolve(&to, Target::Record(Lsn(lsn))).unwrap(), None);
    }
}

#[test]
fn a_second_backup_copies_only_what_is_new() {
    let mut world = World::start(SimDisk::new(), 1);
    let to = SimDisk::new();
    world = work_long(world);
    let first = take_at(&world, &to, 1);
    assert!(3 < first.copied_files, "{first:?}");
    world.work(10);
    let second = take_at(&world, &to, 2);
    assert!((1..=2).contains(&second.copied_files), "{second:?}");
    assert!(second.copied_bytes < first.copied_bytes / 2);
    let third = take_at(&world, &to, 3);
    assert_eq!(third.copied_files, 1, "the last segment is copied anew");
    assert_eq!(third.manifest.segments, second.manifest.segments);
}

#[test]
fn a_log_that_was_trimmed_between_two_backups_leaves_two_ranges() {
    let mut world = World::start(SimDisk::new(), 2);
    let to = SimDisk::new();
    world.work(100);
    let before = (take_at(&world, &to, 10_000).manifest.lsn, world.contents());
    for _ in 0..4 {
        world = work_long(world);
        make_and_trim(&mut world);
    }
    let manifest = take_at(&world, &to, 20_000).manifest;
    let ranges = manifest.ranges();
    let [first, second] = ranges[..] else { panic!("{ranges:?}") };
    assert_eq!((first.last, second.last), (before.0, manifest.lsn));
    assert_eq!(restored(&to, &manifest, before.0), before.1);
    assert_eq!(restored(&to, &manifest, manifest.lsn), world.contents());
    let between = Target::Record(Lsn(before.0.0 + 1));
    assert_eq!(manifest.resolve(&to, between).unwrap(), None);
}

#[test]
fn what_is_older_than_is_kept_is_removed() {
    let mut world = World::start(SimDisk::new(), 4);
    let to = SimDisk::new();
    for _ in 0..5 {
        world.work(300);
        make_and_trim(&mut world);
        take_at(&world, &to, 10_000);
    }
    let all = take_at(&world, &to, 10_000).manifest;
    assert_eq!(all.snapshots.len(), 5);
    let keep = |keep_ms, now_ms| {
        let settings = Settings { keep_ms: Some(keep_ms) };
        take(&world.disk, &to, settings, &|| now_ms, &mut no_warning).unwrap()
    };
    // All records are of the time 1000.
    assert_eq!(keep(10_000, 10_000).removed_files, 0, "nothing is so old");
    let kept = keep(1_000, 10_000);
    assert_eq!(kept.manifest.snapshots[..], all.snapshots[3..], "two stay");
    assert!(kept.removed_files > 3);
    let named = kept.manifest.files().count();
    assert_eq!(to.list().unwrap().len(), named + 2, "with lock and manifest");
    let [range] = kept.manifest.ranges()[..] else { panic!("{:?}", kept.manifest.ranges()) };
    assert_eq!((range.first, range.last), (all.snapshots[3].lsn, all.lsn));
    for lsn in [range.first, range.last] {
        restored(&to, &kept.manifest, lsn);
    }
    assert_eq!(restored(&to, &kept.manifest, all.lsn), world.contents());
}

#[test]
fn another_log_and_another_history_are_refused() {
    let mut world = World::start(SimDisk::new(), 5);
    world.work(300);
    let to = SimDisk::new();
    take_at(&world, &to, 1);
    let mut other = World::start(SimDisk::new(), 6);
    other.work(50);
    let refused = |world: &World, to: &SimDisk| {
        take(&world.disk, to, KEEP_ALL, &|| 1, &mut no_warning).unwrap_err()
    };
    assert!(matches!(refused(&other, &to), BackupError::OtherLog { .. }));

    // The data directory is replaced by an older copy of it and written on.
    let copy = world.disk.crash(&mut SimRng::new(1), busload_io::sim::CrashKind::KeepAll);
    world.work(300);
    take_at(&world, &to, 2);
    let back = World::start(copy, 7);
    assert!(matches!(refused(&back, &to), BackupError::Diverged { .. }));
    let mut forked = back;
    for _ in 0..20 {
        forked.work(60);
        let error = refused(&forked, &to);
        assert!(matches!(error, BackupError::Diverged { .. }), "{error}");
    }
    take_at(&world, &to, 3);

    let foreign = SimDisk::new();
    foreign.put_file("notes.txt", b"mine");
    let error = refused(&world, &foreign);
    assert!(error.to_string().contains("notes.txt"), "{error}");
    assert_eq!(foreign.list().unwrap(), ["notes.txt"]);
    // Beside a backup it may lie.
    to.put_file("notes.txt", b"mine");
    take_at(&world, &to, 4);
    assert!(to.open("notes.txt").is_ok());
}

#[test]
fn a_corrupt_file_of_a_backup_is_named() {
    let (world, to, _) = stepwise(8);
    let manifest = busload_backup::read_manifest(&to).unwrap().unwrap();
    for (name, written) in manifest.files() {
        for at in [0, written.bytes / 2, written.bytes - 1] {
            to.flip_bit(&name, at, 0);
            let problems = verify(&to, &manifest, &mut no_warning).unwrap();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(&name), "{problems:?}");
            to.flip_bit(&name, at, 0);
        }
    }
    // Another snapshot takes the place of the newest, but nothing that of the log behind both.
    let newest = manifest.snapshots.last().unwrap();
    to.flip_bit(&newest.name(), 1_000, 0);
    let mut warnings = Vec::new();
    let mut say = |event| {
        if let Event::Warning(warning) = event {
            warnings.push(warning);
        }
    };
    let target = SimDisk::new();
    restore(&to, &manifest, manifest.lsn, &target, LogId(9), &mut say).unwrap();
    assert!(warnings[0].contains(&newest.name()), "{warnings:?}");
    assert_eq!(World::start(target, 1).contents(), world.contents());
    let last = manifest.segments.last().unwrap();
    to.flip_bit(&last.name(), last.written.bytes - 12, 0);
    let error = restore(&to, &manifest, manifest.lsn, &SimDisk::new(), LogId(9), &mut |_| {});
    let error = error.unwrap_err().to_string();
    assert!(error.contains(&newest.name()) || error.contains(&last.name()), "{error}");
}

#[test]
fn a_corrupt_original_is_noticed_and_left_out_where_a_snapshot_covers_it() {
    let mut world = World::start(SimDisk::new(), 11);
    for _ in 0..2 {
        world = work_long(world);
        make_and_trim(&mut world);
    }
    world = work_long(world);
    let (oldest, contents) = (segment_names(&world)[0].clone(), world.contents());
    // The part behind the snapshot's record is needed from the older snapshot only.
    world.disk.flip_bit(&oldest, 4096 + 20, 0);
    let mut warnings = 0;
    let to = SimDisk::new();
    let mut say = |event| warnings += usize::from(matches!(event, Event::Warning(_)));
    let taken = take(&world.disk, &to, KEEP_ALL, &|| 1, &mut say).unwrap();
    assert_eq!(warnings, 1);
    assert_eq!(restored(&to, &taken.manifest, taken.manifest.lsn), contents);
    assert_eq!(verify(&to, &taken.manifest, &mut no_warning).unwrap(), Vec::<String>::new());

    let newest = taken.manifest.segments.last().unwrap().name();
    world.disk.flip_bit(&newest, 4096 + 20, 0);
    // The backup has it already.
    take(&world.disk, &to, KEEP_ALL, &|| 1, &mut |_| {}).unwrap();
    let anew = SimDisk::new();
    let error = take(&world.disk, &anew, KEEP_ALL, &|| 1, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains(&newest), "{error}");
}

/// Works in several segments: each start begins one.
pub fn work_long(mut world: World) -> World {
    for start in 0..6 {
        world.work(50);
        world = world.restart(start);
    }
    world
}

/// Returns the names of the segments that a backup takes.
fn segment_names(world: &World) -> Vec<String> {
    let manifest = take_at(world, &SimDisk::new(), 1).manifest;
    manifest.segments.iter().map(|segment| segment.name()).collect()
}

#[test]
fn a_directory_that_is_not_empty_is_no_target() {
    let (_, to, _) = stepwise(9);
    let manifest = busload_backup::read_manifest(&to).unwrap().unwrap();
    let target = SimDisk::new();
    target.put_file("mine", b"1");
    let error = restore(&to, &manifest, manifest.lsn, &target, LogId(1), &mut no_warning);
    assert!(matches!(error.unwrap_err(), BackupError::NotEmpty { .. }));
    assert!(target.open("mine").is_ok());
}
