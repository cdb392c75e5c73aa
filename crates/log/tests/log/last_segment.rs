//! A start notices the loss of a log's end: the file `last-segment` says how far the log went.

use busload_io::{
    DiskErrorKind, DiskOperation,
    sim::{CrashKind, Fault, SimDisk, SimRng},
};
use busload_log::{
    Lsn, OpenError, Reservation, Step, SyncPolicy,
    format::{LAST_SEGMENT_BYTES, LAST_SEGMENT_NAME, LAST_SEGMENT_TEMPORARY_NAME},
    tools::{dump, verify},
};

use crate::harness::{
    Oracle, Promise, Rig, open_log, promise_of, segments_of, short_segments, without,
};

/// Creates three segments with records, and perhaps one of zeros behind them.
fn log_of_three(close: bool) -> (SimDisk, Oracle) {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    while rig.log.progress.stats().segments < 3 {
        rig.must_append(&[7; 700], SyncPolicy::Always);
        rig.flush();
        rig.step_stage();
    }
    rig.settle();
    let oracle = if close { rig.close() } else { rig.oracle };
    (disk, oracle)
}

/// Checks that every way to read a log reports this segment as missing and changes nothing.
fn assert_missing(disk: &SimDisk, number: u64) {
    let before = disk.snapshot();
    let verdict =
        verify(disk, None).expect("the segments are there").verdict.expect_err("verified");
    let dumped = dump(disk, None, Lsn(0), &mut |_| Ok(())).expect_err("dumped");
    let opened = open_log(disk, short_segments()).expect_err("opened");
    for error in [opened, verdict, dumped] {
        assert!(
            matches!(error, OpenError::MissingEnd { number: missing, .. } if missing == number),
            "{error}"
        );
        let message = error.to_string();
        let named = format!("segment {number} is missing: /simulated/{LAST_SEGMENT_NAME}");
        assert!(message.starts_with(&named), "{message}");
    }
    assert_eq!(disk.snapshot(), before);
}

/// Without the file the log would look as if its second segment were the last, and sound.
#[test]
fn the_loss_of_the_last_segments_is_refused_after_a_clean_end_and_after_a_kill() {
    for close in [true, false] {
        let (disk, oracle) = log_of_three(close);
        let segments = segments_of(&disk);
        for number in 1..=3_u64 {
            let lost = &segments[usize::try_from(number - 1).unwrap()..];
            assert_missing(&without(&disk, lost), number);
        }
        // A clean shutdown does not name a segment that was only prepared.
        if close {
            let left = without(&disk, &segments[3..]);
            Rig::reopen(&left, short_segments(), 1, oracle, Promise::Written).unwrap();
        }
    }
}

/// With the file gone, too, nothing records how far the log went.
#[test]
fn a_log_without_the_file_opens_and_says_so_and_has_it_from_then_on() {
    let (disk, oracle) = log_of_three(true);
    let left = without(&disk, &[LAST_SEGMENT_NAME.to_owned()]);
    assert!(!verify(&left, None).unwrap().verdict.unwrap().end_is_named);
    let rig = Rig::reopen(&left, short_segments(), 1, oracle, Promise::Written).unwrap();
    assert!(!rig.log.report.end_is_named);
    let oracle = rig.oracle.clone();
    drop(rig);
    let rig = Rig::reopen(&left, short_segments(), 1, oracle, Promise::Written).unwrap();
    assert!(rig.log.report.end_is_named);
    drop(rig);
    let segments = segments_of(&left);
    assert_missing(&without(&left, &segments[2..]), 3);
}

#[test]
fn a_corrupt_file_is_refused_wherever_it_is_corrupt() {
    let (disk, oracle) = log_of_three(true);
    let refused = |contents: &[u8]| {
        let left = without(&disk, &[]);
        left.put_file(LAST_SEGMENT_NAME, contents);
        let before = left.snapshot();
        let message = open_log(&left, short_segments()).unwrap_err().to_string();
        assert!(message.contains(LAST_SEGMENT_NAME), "{message}");
        assert_eq!(verify(&left, None).unwrap_err().to_string(), message);
        assert_eq!(left.snapshot(), before);
        message
    };
    let mut contents = disk.contents(LAST_SEGMENT_NAME).unwrap();
    for bit in 0..LAST_SEGMENT_BYTES * 8 {
        contents[bit / 8] ^= 1 << (bit % 8);
        refused(&contents);
        contents[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..LAST_SEGMENT_BYTES {
        assert!(refused(&contents[..length]).contains("does not verify"));
    }
    refused(&[&contents[..], b"x"].concat());
    // A flipped version is not taken for a newer format, which would have another length or a valid
    // checksum.
    contents[8] = 9;
    assert!(refused(&contents).contains("does not verify"));
    assert!(refused(&[&contents[..], b"x"].concat()).contains("format version 9"));
    Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap();
}

#[test]
fn the_file_of_another_log_is_refused() {
    let (disk, _) = log_of_three(true);
    let other = SimDisk::new();
    let mut ids = SimRng::new(1234);
    drop(busload_log::open(other.clone(), short_segments(), &mut ids, &mut |_| Ok(())).unwrap());
    disk.put_file(LAST_SEGMENT_NAME, &other.contents(LAST_SEGMENT_NAME).unwrap());
    let message = open_log(&disk, short_segments()).unwrap_err().to_string();
    assert!(message.contains(LAST_SEGMENT_NAME) && message.contains("another log"), "{message}");
}

/// The mark of the clean shutdown may be gone with the records.
#[test]
fn records_missing_at_the_end_of_the_last_segment_are_corruption() {
    let (disk, oracle) = log_of_three(true);
    let last = segments_of(&disk).swap_remove(2);
    let contents = disk.contents(&last).unwrap();
    let frame_bytes = 88 + 704;
    for length in [4096, contents.len() - 88 - frame_bytes] {
        let left = without(&disk, &[]);
        left.put_file(&last, &contents[..length]);
        let error = open_log(&left, short_segments()).unwrap_err();
        assert_eq!(
            verify(&left, None).unwrap().verdict.unwrap_err().to_string(),
            error.to_string()
        );
        let OpenError::Corrupt { path, offset, lsn, what } = error else { panic!("{error}") };
        assert!(path.ends_with(&last) && offset == length as u64, "{offset}");
        assert!(lsn.0 <= oracle.durable && what.contains(LAST_SEGMENT_NAME), "{what}");
    }
    // If only the mark is gone, nothing is lost.
    disk.put_file(&last, &contents[..contents.len() - 88]);
    Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap();
}

/// Runs several lives with many records, few or none, each with a clean shutdown, until the machine
/// stops.
fn lives(disk: &SimDisk) -> Oracle {
    let mut oracle = Oracle::default();
    for record_count in [60, 0, 3, 0, 40] {
        let kept = oracle.clone();
        let mut rig = match Rig::reopen(disk, short_segments(), 1, oracle, Promise::Written) {
            Ok(rig) => rig,
            Err(error) => {
                assert!(disk.is_crashed(), "{error}");
                return kept;
            }
        };
        for _ in 0..record_count {
            while rig.try_append(&[5; 700], SyncPolicy::Always) == Reservation::Behind {
                rig.step_stage();
                rig.step_helper();
            }
            rig.flush();
            rig.step_stage();
        }
        rig.log.writer.close();
        while rig.step_stage() != Step::Ended {
            rig.step_helper();
        }
        oracle = rig.oracle;
    }
    oracle
}

/// Whatever a crash interrupted: if segments are then taken away, a start refuses the log unless
/// nothing promised was in them; and a log from which nothing was taken away opens.
#[test]
fn after_a_crash_at_any_operation_the_loss_of_segments_is_noticed() {
    let whole = SimDisk::new();
    lives(&whole);
    let (mut refused, mut harmless) = (0, 0);
    for ordinal in 0..=whole.operation_count() {
        let disk = SimDisk::new();
        disk.crash_at(ordinal);
        let oracle = lives(&disk);
        let mut rng = SimRng::new(ordinal);
        for kind in [
            CrashKind::DropUnsynced,
            CrashKind::AnySubset,
            CrashKind::AnySubset,
            CrashKind::KeepAll,
        ] {
            let left = disk.crash(&mut rng, kind);
            let segments = segments_of(&left);
            for kept_count in 0..=segments.len() {
                let taken = without(&left, &segments[kept_count..]);
                let promise = promise_of(kind);
                match Rig::reopen(&taken, short_segments(), 0, oracle.clone(), promise) {
                    Ok(_) => harmless += u32::from(kept_count < segments.len()),
                    Err(error) => {
                        let missing = matches!(error, OpenError::MissingEnd { .. });
                        let all_there = kept_count == segments.len();
                        assert!(
                            missing && !all_there,
                            "operation {ordinal} {kind:?} {kept_count}: {error}"
                        );
                        refused += 1;
                    }
                }
            }
        }
    }
    // Both happen, the first far more often.
    assert!(1000 < refused && 10 < harmless, "{refused} {harmless}");
}

#[test]
fn a_clean_end_that_finds_no_room_for_the_file_leaves_what_it_said_before() {
    for operation in
        [DiskOperation::Create, DiskOperation::Write, DiskOperation::Sync, DiskOperation::Rename]
    {
        let (disk, oracle) = log_of_three(false);
        let rig = Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap();
        let before = disk.contents(LAST_SEGMENT_NAME);
        let fault = Fault::forever(operation, 0, DiskErrorKind::NoSpace);
        disk.inject(fault.on(LAST_SEGMENT_TEMPORARY_NAME));
        let oracle = rig.close();
        assert_eq!(disk.contents(LAST_SEGMENT_NAME), before);
        assert_eq!(disk.contents(LAST_SEGMENT_TEMPORARY_NAME), None);
        disk.clear_faults();
        Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap();
    }
}

#[test]
fn a_clean_end_whose_file_fails_is_a_failure_and_loses_nothing() {
    for operation in
        [DiskOperation::Create, DiskOperation::Write, DiskOperation::Sync, DiskOperation::Rename]
    {
        let (disk, oracle) = log_of_three(false);
        let mut rig = Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap();
        rig.settle();
        disk.inject(
            Fault::once(operation, 0, DiskErrorKind::Failed).on(LAST_SEGMENT_TEMPORARY_NAME),
        );
        rig.log.writer.close();
        rig.settle();
        let message = rig.log.progress.failure().unwrap();
        assert!(message.contains(LAST_SEGMENT_TEMPORARY_NAME), "{message}");
        let oracle = rig.oracle.clone();
        drop(rig);
        Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap();
    }
}

/// A start on a full disk must lower the number in the file before it removes segments. Where there
/// is no space for that it removes the file, and the next segment is named again.
#[test]
fn a_full_disk_at_the_start_leaves_a_log_that_opens() {
    let (disk, oracle) = log_of_three(false);
    disk.set_space(Some(1));
    let rig = Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap();
    let mut oracle = rig.oracle.clone();
    drop(rig);
    for space in [Some(1), None] {
        disk.set_space(space);
        let rig = Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap();
        let message = rig.log.progress.no_space();
        assert_eq!(message.is_some(), space.is_some(), "{message:?}");
        oracle = rig.oracle.clone();
    }
    let segments = segments_of(&disk);
    assert_missing(&without(&disk, &segments[2..]), 3);
}
