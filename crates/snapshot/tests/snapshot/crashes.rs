//! Crashes and faults while a snapshot is made and the log behind the older one is removed.

use busload_hostile::rounds;
use busload_io::{
    Disk, DiskErrorKind, DiskOperation,
    sim::{CrashKind, Fault, SimDisk, SimRng},
};
use busload_log::remove_covered;
use busload_snapshot::format::SPILL_NAME;

use crate::world::World;

/// Builds a world with one snapshot and a log behind it.
fn prepared(seed: u64) -> World {
    let mut world = World::start(SimDisk::new(), seed);
    world.work(700);
    world.make().expect("nothing fails here").expect("nothing fails here");
    world.work(700);
    world.spills = Some(seed % 2 == 1);
    world
}

/// Makes the next snapshot and removes what is covered, as the maintenance thread does.
fn make_and_trim(world: &mut World) -> Result<(), String> {
    let older = world.newest().expect("nothing fails here").header().lsn;
    world.make().map_err(|error| error.to_string())?;
    remove_covered(&world.disk, &world.progress, older, 128 << 10)
        .map_err(|error| error.to_string())?;
    Ok(())
}

#[test]
fn a_crash_at_any_step_loses_nothing() {
    let mut steps = 0;
    let seeds = rounds(2, 6);
    for seed in 0..seeds {
        for at in 0.. {
            let mut world = prepared(seed);
            let contents = world.contents();
            world.disk.crash_at(world.disk.operation_count() + at);
            let ended = make_and_trim(&mut world).is_ok();
            for kind in [CrashKind::DropUnsynced, CrashKind::AnySubset, CrashKind::KeepAll] {
                let left = world.disk.crash(&mut SimRng::new(seed * 1_000 + at), kind);
                let mut again = World::start(left, 5);
                assert_eq!(again.contents(), contents, "seed {seed} step {at} {kind:?}");
                // The next process replaces what an unfinished snapshot left.
                again.make().unwrap();
            }
            steps += 1;
            if ended {
                break;
            }
        }
    }
    assert!(10 * seeds < steps, "{steps} steps");
}

#[test]
fn a_snapshot_that_cannot_be_written_changes_nothing_and_is_made_later() {
    for (operation, kind) in [
        (DiskOperation::Write, DiskErrorKind::NoSpace),
        (DiskOperation::Write, DiskErrorKind::Failed),
        (DiskOperation::Sync, DiskErrorKind::Failed),
        (DiskOperation::Rename, DiskErrorKind::Failed),
        (DiskOperation::Create, DiskErrorKind::NoSpace),
        (DiskOperation::SyncDirectory, DiskErrorKind::Failed),
    ] {
        // A full disk while the log is sorted is no failure of the snapshot.
        let mut world = prepared(9);
        world.spills = Some(false);
        let contents = world.contents();
        world.disk.inject(Fault::once(operation, 0, kind));
        assert!(make_and_trim(&mut world).is_err(), "{operation:?} {kind:?}");
        let left = world.disk.crash(&mut SimRng::new(1), CrashKind::DropUnsynced);
        assert_eq!(World::start(left, 2).contents(), contents, "{operation:?} {kind:?}");
        world.make().unwrap();
        assert_eq!(world.restart(3).contents(), contents, "{operation:?} {kind:?}");
    }
}

#[test]
fn a_disk_too_full_to_sort_the_log_makes_a_snapshot_without_that() {
    for at in 0..3 {
        for operation in [DiskOperation::Create, DiskOperation::Write] {
            let mut world = prepared(11);
            world.spills = Some(true);
            let fault = Fault::once(operation, at, DiskErrorKind::NoSpace).on(SPILL_NAME);
            world.disk.inject(fault);
            let contents = world.contents();
            assert!(world.make().unwrap().is_some(), "{operation:?} {at}");
            assert!(!world.disk.list().unwrap().iter().any(|name| name == SPILL_NAME));
            assert_eq!(world.restart(2).contents(), contents, "{operation:?} {at}");
        }
    }
}

#[test]
fn any_other_failure_of_the_sorted_log_changes_nothing_and_the_next_attempt_succeeds() {
    for operation in [DiskOperation::Create, DiskOperation::Write, DiskOperation::Read] {
        let mut world = prepared(12);
        world.spills = Some(true);
        let contents = world.contents();
        world.disk.inject(Fault::once(operation, 0, DiskErrorKind::Failed).on(SPILL_NAME));
        let error = world.make().unwrap_err().to_string();
        assert!(error.contains(SPILL_NAME), "{operation:?}: {error}");
        assert!(!world.disk.list().unwrap().iter().any(|name| name == SPILL_NAME));
        world.make().unwrap().unwrap();
        assert_eq!(world.restart(3).contents(), contents, "{operation:?}");
    }
}
