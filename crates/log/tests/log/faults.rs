//! Failing operations: the log stops and promises nothing more, and a restart recovers.

use busload_io::{
    DiskErrorKind, DiskOperation,
    sim::{CrashKind, Fault, Repeat, SimDisk, SimRng},
};
use busload_log::{Reservation, Step, SyncPolicy};

use crate::harness::{Oracle, Rig, promise_of, short_segments};

/// Runs with a fault; returns what was promised, and whether the log failed.
fn live(disk: &SimDisk, seed: u64, fault: Fault) -> (Oracle, bool) {
    let Ok(mut rig) = Rig::reopen(
        disk,
        short_segments(),
        seed,
        Oracle::default(),
        promise_of(CrashKind::KeepAll),
    ) else {
        panic!("faults begin after the start");
    };
    disk.inject(fault);
    for _ in 0..1500 {
        rig.random_event();
        if rig.log.progress.failure().is_some() {
            after_failure(&mut rig);
            return (rig.oracle, true);
        }
    }
    (rig.oracle, false)
}

/// Checks that nothing moves any more, even if all operations now succeed.
fn after_failure(rig: &mut Rig<SimDisk>) {
    let (written, durable) = (rig.oracle.written, rig.oracle.durable);
    assert!(matches!(rig.log.writer.reserve(1 << 20), Reservation::Failed { .. }));
    rig.append(b"late", SyncPolicy::Always);
    rig.flush();
    for _ in 0..20 {
        assert_eq!(rig.step_stage(), Step::Ended);
        assert_eq!(rig.step_helper(), Step::Ended);
    }
    assert_eq!((rig.oracle.written, rig.oracle.durable), (written, durable));
}

fn every_nth_fails(operation: DiskOperation, error: DiskErrorKind) -> u64 {
    let mut failures = 0;
    for seed in 0..3 {
        for after in 0.. {
            let disk = SimDisk::new();
            let fault =
                Fault { operation, name_prefix: String::new(), after, repeat: Repeat::Once, error };
            let (oracle, failed) = live(&disk, seed, fault);
            if !failed {
                break;
            }
            failures += 1;
            let mut rng = SimRng::new(after);
            for kind in [CrashKind::DropUnsynced, CrashKind::AnySubset, CrashKind::KeepAll] {
                let left = disk.crash(&mut rng, kind);
                // What a failed sync left in the page cache may be gone when it is read again.
                let promise = promise_of(CrashKind::AnySubset);
                Rig::reopen(&left, short_segments(), 0, oracle.clone(), promise)
                    .unwrap_or_else(|error| panic!("{operation:?} {after} {kind:?}: {error}"));
            }
        }
    }
    failures
}

#[test]
fn every_failing_write_stops_the_log_and_loses_nothing_durable() {
    assert!(50 < every_nth_fails(DiskOperation::Write, DiskErrorKind::Failed));
}

#[test]
fn every_failing_sync_stops_the_log_and_loses_nothing_durable() {
    assert!(50 < every_nth_fails(DiskOperation::Sync, DiskErrorKind::Failed));
}

#[test]
fn every_failing_change_of_the_directory_stops_the_log() {
    for operation in [DiskOperation::Create, DiskOperation::Rename, DiskOperation::SyncDirectory] {
        assert!(3 < every_nth_fails(operation, DiskErrorKind::Failed));
    }
}

/// The pages of a failed sync are clean: a second sync would succeed and make nothing durable.
#[test]
fn after_a_failed_sync_there_is_no_further_sync() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    rig.append(b"a", SyncPolicy::Always);
    rig.flush();
    disk.inject(
        Fault::once(DiskOperation::Sync, 0, DiskErrorKind::Failed).on("00000000000000000001.log"),
    );
    assert_eq!(rig.step_stage(), Step::Worked);
    let count = disk.operation_count();
    assert_eq!(rig.step_stage(), Step::Ended);
    after_failure(&mut rig);
    assert_eq!(disk.operation_count(), count);
    let message = rig.log.progress.failure().unwrap();
    for part in ["Sync", "00000000000000000001.log", "after LSN 0", "restart"] {
        assert!(message.contains(part), "{message}");
    }
    disk.evict_pages();
    let oracle = rig.oracle.clone();
    drop(rig);
    let rig = Rig::reopen(&disk, short_segments(), 1, oracle, promise_of(CrashKind::DropUnsynced))
        .unwrap();
    assert_eq!(rig.log.report.records, 0);
}

/// The next process reads those pages, acts on what they hold, and may not lose it to a power loss
/// later: the system would never write them by itself.
#[test]
fn a_start_makes_durable_what_a_failed_sync_left_in_memory() {
    for sync in [SyncPolicy::Always, SyncPolicy::Os] {
        let disk = SimDisk::new();
        let mut rig = Rig::new(&disk, short_segments(), 1);
        rig.append(b"synced", SyncPolicy::Always);
        rig.settle();
        for _ in 0..90 {
            rig.append(&[1; 500], sync);
            rig.flush();
        }
        disk.inject(Fault::forever(DiskOperation::Sync, 0, DiskErrorKind::Failed).on("0"));
        rig.settle();
        assert!(rig.log.progress.failure().is_some());
        let written = rig.log.progress.written().0;
        drop(rig);
        disk.clear_faults();

        let after_kill = disk.crash(&mut SimRng::new(1), CrashKind::KeepAll);
        let (log, _) = crate::harness::open_log(&after_kill, short_segments()).unwrap();
        assert!(written <= log.report.records && 1 < written, "{written}");
        let records = log.report.records;
        drop(log);
        let after_power_loss = after_kill.crash(&mut SimRng::new(2), CrashKind::DropUnsynced);
        let (log, _) = crate::harness::open_log(&after_power_loss, short_segments()).unwrap();
        assert_eq!(log.report.records, records);
    }
}

/// Segments that follow name the checksum of the mark of a clean shutdown.
#[test]
fn a_start_makes_the_mark_of_a_clean_shutdown_durable() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    rig.append(b"first", SyncPolicy::Always);
    rig.flush();
    rig.settle();
    disk.inject(Fault::forever(DiskOperation::Sync, 0, DiskErrorKind::Failed).on("0"));
    rig.writer().close();
    rig.settle();
    assert!(rig.log.progress.failure().is_some());
    let oracle = rig.oracle.clone();
    drop(rig);
    disk.clear_faults();

    let mut rig =
        Rig::reopen(&disk, short_segments(), 1, oracle, promise_of(CrashKind::KeepAll)).unwrap();
    rig.append(b"second", SyncPolicy::Always);
    rig.flush();
    rig.settle();
    assert_eq!(rig.log.progress.durable().0, 2);
    let oracle = rig.oracle.clone();
    drop(rig);
    disk.evict_pages();
    let left = disk.crash(&mut SimRng::new(1), CrashKind::DropUnsynced);
    let rig = Rig::reopen(&left, short_segments(), 1, oracle, promise_of(CrashKind::DropUnsynced))
        .unwrap();
    assert_eq!(rig.log.report.records, 2);
}

/// This holds even where the log itself syncs nothing: the helper syncs the segments that the log
/// has left.
#[test]
fn a_failed_sync_of_a_full_segment_stops_the_log() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    rig.settle();
    disk.inject(
        Fault::once(DiskOperation::Sync, 0, DiskErrorKind::Failed).on("00000000000000000001.log"),
    );
    for _ in 0..40 {
        rig.append(&[1; 500], SyncPolicy::Os);
        rig.flush();
        rig.step_stage();
        rig.step_stage();
    }
    rig.settle();
    let message = rig.log.progress.failure().unwrap();
    assert!(message.contains("00000000000000000001.log"), "{message}");
    assert_eq!(rig.oracle.durable, 0);
}

#[test]
fn a_failing_read_refuses_the_start() {
    let disk = SimDisk::new();
    Rig::new(&disk, short_segments(), 1).close();
    disk.inject(Fault::forever(DiskOperation::Read, 0, DiskErrorKind::Failed));
    let error = crate::harness::open_log(&disk, short_segments()).unwrap_err();
    assert!(error.to_string().contains("Read of"), "{error}");
}

#[test]
fn every_operation_of_a_start_may_fail_and_the_next_start_recovers() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 3);
    for _ in 0..900 {
        rig.random_event();
    }
    let oracle = rig.oracle.clone();
    drop(rig);
    let operations = [
        DiskOperation::Lock,
        DiskOperation::List,
        DiskOperation::Create,
        DiskOperation::Open,
        DiskOperation::Length,
        DiskOperation::Read,
        DiskOperation::Write,
        DiskOperation::Truncate,
        DiskOperation::Sync,
        DiskOperation::Rename,
        DiskOperation::Remove,
        DiskOperation::SyncDirectory,
    ];
    let mut failures = 0;
    for operation in operations {
        for after in 0.. {
            let disk = disk.crash(&mut SimRng::new(1), CrashKind::KeepAll);
            disk.inject(Fault::once(operation, after, DiskErrorKind::Failed));
            let promise = promise_of(CrashKind::KeepAll);
            if Rig::reopen(&disk, short_segments(), 0, oracle.clone(), promise).is_ok() {
                break;
            }
            failures += 1;
            disk.clear_faults();
            disk.evict_pages();
            let promise = promise_of(CrashKind::AnySubset);
            Rig::reopen(&disk, short_segments(), 0, oracle.clone(), promise)
                .unwrap_or_else(|error| panic!("{operation:?} {after}: {error}"));
        }
    }
    assert!(20 < failures, "{failures}");
}
