//! Files of segments that a snapshot covers are segments again: nothing of what they held shows.

use busload_io::{
    Disk, DiskOperation,
    sim::{CrashKind, JournalEntry, SimDisk, SimRng},
};
use busload_log::{
    Base, Lsn, RecoveryReport, SyncPolicy, copy_lock,
    format::{SEGMENT_SUFFIX, SPARE_SUFFIX, TEMPORARY_SUFFIX},
    lock, open_behind, read_durable, remove_covered, tools,
};

use crate::harness::{Rig, short_segments};

/// Spares that are kept: two segments.
const SPARE_BYTES: u64 = 64 * 1024;

/// Log of which a snapshot covers the first records.
struct Trimmed {
    disk: SimDisk,
    rig: Rig<SimDisk>,
    base: Base,
}

impl Trimmed {
    /// Writes eight segments or so, of which most are then covered.
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new();
        let mut rig = Rig::new(&disk, short_segments(), seed);
        write_segments(&mut rig, 8);
        let covered = Lsn(rig.oracle.durable - 50);
        let read = read_durable(&disk, None, covered, &mut |_| Ok(()))
            .expect("it reads")
            .expect("there are records");
        let base = Base {
            log_id: read.log_id,
            lsn: covered,
            segment: read.segment,
            wall_ms: read.wall_ms,
        };
        Self { disk, rig, base }
    }

    fn trim(&self) -> u64 {
        let progress = &self.rig.log.progress;
        remove_covered(&self.disk, progress, self.base.lsn, SPARE_BYTES)
            .expect("nothing fails here")
    }

    fn spares(&self) -> usize {
        let names = self.disk.list().expect("nothing fails here");
        names.iter().filter(|name| name.ends_with(SPARE_SUFFIX)).count()
    }
}

fn write_segments(rig: &mut Rig<SimDisk>, count: usize) {
    for number in 0..count * 70 {
        rig.append(&[number as u8 | 1; 450], SyncPolicy::Always);
        rig.flush();
        rig.settle();
    }
}

/// Starts on what a crash left. Returns the report and the records behind the base.
fn start(disk: &SimDisk, base: &Base) -> (RecoveryReport, Vec<(Lsn, Vec<u8>)>) {
    let mut records = Vec::new();
    let lock = lock(disk).expect("nothing fails here");
    let opened = open_behind(
        disk.clone(),
        lock,
        short_segments(),
        &mut SimRng::new(1),
        Some(base),
        &mut |record| {
            records.push((record.lsn, record.bytes.to_vec()));
            Ok(())
        },
    );
    (opened.expect("nothing fails here").report, records)
}

#[test]
fn a_spare_becomes_a_segment_without_zeros_being_written() {
    let mut trimmed = Trimmed::new(1);
    assert!(4 <= trimmed.trim());
    assert_eq!(trimmed.spares(), 2);
    let count = |operation| {
        let journal = trimmed.disk.journal();
        let of_new = |entry: &&JournalEntry| entry.name.ends_with(TEMPORARY_SUFFIX);
        journal.iter().filter(of_new).filter(|entry| entry.operation == operation).count()
    };
    let (named, created) = (count(DiskOperation::Rename), count(DiskOperation::Create));
    write_segments(&mut trimmed.rig, 2);
    assert_eq!(trimmed.spares(), 0);
    let (named, created) =
        (count(DiskOperation::Rename) - named, count(DiskOperation::Create) - created);
    assert_eq!(named - created, 2);
}

#[test]
fn no_crash_shows_anything_of_what_a_segment_was_before() {
    for seed in 0..30 {
        let mut trimmed = Trimmed::new(seed);
        trimmed.trim();
        let Trimmed { disk, rig, base } = &mut trimmed;
        disk.crash_at(disk.operation_count() + 13 * seed);
        for number in 0..200_u64 {
            if disk.is_crashed() || rig.log.progress.failure().is_some() {
                break;
            }
            rig.append(&number.to_le_bytes().repeat(60), SyncPolicy::Always);
            rig.flush();
            rig.step_stage();
            rig.step_helper();
        }
        let durable = rig.log.progress.durable();
        for kind in [CrashKind::KeepAll, CrashKind::AnySubset, CrashKind::DropUnsynced] {
            let left = disk.crash(&mut SimRng::new(seed), kind);
            let report = tools::verify(&left, Some(base)).unwrap();
            report.verdict.unwrap();
            let (report, records) = start(&left, base);
            assert!(durable <= report.last_lsn, "seed {seed} {kind:?}");
            for (lsn, bytes) in records {
                let written = &rig.oracle.records[lsn.0 as usize - 1];
                assert_eq!(bytes, *written, "seed {seed} {kind:?}: record {lsn}");
            }
        }
    }
}

/// The bytes behind the frames are neither a torn tail nor a problem.
#[test]
fn after_a_kill_the_rest_of_a_segment_that_was_one_before_means_nothing() {
    let mut trimmed = Trimmed::new(1);
    trimmed.trim();
    write_segments(&mut trimmed.rig, 1);
    let last =
        trimmed.disk.list().unwrap().into_iter().filter(|name| name.ends_with(SEGMENT_SUFFIX));
    let contents = trimmed.disk.contents(&last.max().unwrap()).unwrap();
    assert!(contents.iter().any(|byte| *byte != 0), "the prepared segment is a former one");
    let left = trimmed.disk.crash(&mut SimRng::new(1), CrashKind::KeepAll);
    let report = tools::verify(&left, Some(&trimmed.base)).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let (report, _) = start(&left, &trimmed.base);
    assert_eq!(report.torn_tail, None);
    assert_eq!(report.last_lsn, trimmed.rig.log.progress.durable());
}

#[test]
fn while_another_process_copies_segments_none_is_used_again() {
    let trimmed = Trimmed::new(1);
    let lock = copy_lock(&trimmed.disk).unwrap();
    assert!(4 <= trimmed.trim());
    assert_eq!(trimmed.spares(), 0);
    drop(lock);
    assert!(copy_lock(&trimmed.disk).is_ok());
}

#[test]
fn a_full_disk_takes_the_space_of_spares_first() {
    let mut trimmed = Trimmed::new(1);
    trimmed.trim();
    let used: usize = trimmed.disk.snapshot().values().map(Vec::len).sum();
    trimmed.disk.set_space(Some(used as u64 + 1024));
    // It does not fit into the segment that is prepared, nor into a spare.
    trimmed.rig.append(&[1; 40_000], SyncPolicy::Always);
    trimmed.rig.flush();
    trimmed.rig.settle();
    assert_eq!(trimmed.rig.log.progress.durable().0, trimmed.rig.oracle.records.len() as u64);
    assert_eq!(trimmed.spares(), 0);
}

#[test]
fn a_start_removes_spares() {
    let trimmed = Trimmed::new(1);
    trimmed.trim();
    let left = trimmed.disk.crash(&mut SimRng::new(1), CrashKind::KeepAll);
    start(&left, &trimmed.base);
    assert!(!left.list().unwrap().iter().any(|name| name.ends_with(SPARE_SUFFIX)));
}
