//! Crashes at every step of a backup and of a restore.

use busload_backup::{Event, read_manifest, restore, take, verify};
use busload_io::{
    Disk,
    sim::{CrashKind, SimDisk, SimRng},
};
use busload_log::format::LogId;

use crate::{
    KEEP_ALL, make_and_trim, no_warning, restored, states::work_long, take_at, world::World,
};

const KINDS: [CrashKind; 3] = [CrashKind::DropUnsynced, CrashKind::AnySubset, CrashKind::KeepAll];

#[test]
fn a_backup_is_resumed_wherever_it_was_interrupted() {
    let mut steps = 0;
    for seed in 0..3 {
        for at in 0.. {
            let mut world = World::start(SimDisk::new(), seed);
            let to = SimDisk::new();
            world.work(150);
            let first = take_at(&world, &to, 1).manifest;
            let of_first = world.contents();
            make_and_trim(&mut world);
            world.work(150);
            make_and_trim(&mut world);
            world.work(20);
            to.crash_at(to.operation_count() + at);
            let ended = take(&world.disk, &to, KEEP_ALL, &|| 2, &mut no_warning).is_ok();
            for kind in KINDS {
                let left = to.crash(&mut SimRng::new(seed * 1_000 + at), kind);
                let manifest = read_manifest(&left).unwrap().unwrap();
                assert!(ended || manifest.lsn == first.lsn || manifest.lsn > first.lsn);
                assert_eq!(verify(&left, &manifest, &mut no_warning).unwrap(), [""; 0]);
                assert_eq!(restored(&left, &manifest, first.lsn), of_first, "{seed} {at} {kind:?}");
                let resumed = take_at(&world, &left, 3).manifest;
                assert_eq!(verify(&left, &resumed, &mut no_warning).unwrap(), [""; 0]);
                assert_eq!(restored(&left, &resumed, resumed.lsn), world.contents());
                assert_eq!(restored(&left, &resumed, first.lsn), of_first);
                assert_eq!(left.list().unwrap().len(), resumed.files().count() + 2);
            }
            steps += 1;
            if ended {
                break;
            }
        }
    }
    assert!(30 < steps, "{steps} steps");
}

#[test]
fn a_first_backup_that_was_interrupted_goes_on_with_the_files_that_are_there() {
    let mut world = work_long(World::start(SimDisk::new(), 1));
    world.work(20);
    let all = take_at(&world, &SimDisk::new(), 1).copied_files;
    assert!(3 < all, "several segments");
    let mut least = all;
    for at in 0.. {
        let to = SimDisk::new();
        to.crash_at(at);
        if take(&world.disk, &to, KEEP_ALL, &|| 1, &mut no_warning).is_ok() {
            break;
        }
        let left = to.crash(&mut SimRng::new(at), CrashKind::KeepAll);
        let resumed = take_at(&world, &left, 2);
        least = least.min(resumed.copied_files);
        assert_eq!(restored(&left, &resumed.manifest, resumed.manifest.lsn), world.contents());
    }
    assert_eq!(least, 1, "of {all} files all but the last segment are taken over");
}

#[test]
fn a_restore_that_was_interrupted_is_refused_by_a_start_and_done_again() {
    let mut world = World::start(SimDisk::new(), 2);
    world.work(150);
    make_and_trim(&mut world);
    world.work(150);
    let backup = SimDisk::new();
    let manifest = take_at(&world, &backup, 1).manifest;
    let mut steps = 0;
    for at in 0.. {
        let to = SimDisk::new();
        to.crash_at(at);
        let mut no_event = |_: Event| {};
        let ended = restore(&backup, &manifest, manifest.lsn, &to, LogId(8), &mut no_event).is_ok();
        for kind in KINDS {
            let left = to.crash(&mut SimRng::new(at), kind);
            let is_whole = World::try_start(left.clone(), 1);
            match is_whole {
                Ok(world_again) => {
                    let is_new = world_again.report.records == 0 && world_again.loaded.is_none();
                    assert!(
                        world_again.contents() == world.contents() || (is_new && at < 4),
                        "step {at} {kind:?}"
                    );
                }
                Err(error) => {
                    assert!(error.contains("has not ended"), "step {at} {kind:?}: {error}");
                    let mut again = |_: Event| {};
                    restore(&backup, &manifest, manifest.lsn, &left, LogId(8), &mut again).unwrap();
                    assert_eq!(World::start(left, 2).contents(), world.contents());
                }
            }
        }
        steps += 1;
        if ended {
            break;
        }
    }
    assert!(15 < steps, "{steps} steps");
}
