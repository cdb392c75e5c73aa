//! Inspection of logs on which no server runs.

use busload_io::sim::SimDisk;
use busload_log::{
    Lsn, OpenError, SyncPolicy,
    tools::{dump, verify},
};

use crate::harness::{Rig, short_segments};

const FIRST: &str = "00000000000000000001.log";

fn log_of(frames: u64) -> SimDisk {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    for _ in 0..frames {
        for _ in 0..2 {
            rig.must_append(&[7; 500], SyncPolicy::Always);
        }
        rig.flush();
        rig.settle();
    }
    rig.close();
    disk
}

#[test]
fn a_sound_log_has_no_problems_and_every_record_is_counted() {
    let disk = log_of(40);
    let before = disk.snapshot();
    let report = verify(&disk).unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.segments.iter().map(|segment| segment.records).sum::<u64>(), 80);
    assert_eq!(report.segments.iter().map(|segment| segment.frames).sum::<u64>(), 41);
    for pair in report.segments.windows(2) {
        if pair[1].log_id.is_some() {
            assert_eq!(pair[0].last_lsn.0 + 1, pair[1].first_lsn.0);
        }
    }
    let begun = report.segments.iter().filter(|segment| segment.log_id.is_some());
    let last = begun.max_by_key(|segment| segment.number).unwrap();
    assert!(last.clean_shutdown);
    assert_eq!((last.last_lsn, last.durable), (Lsn(80), Lsn(80)));
    let verdict = report.verdict.unwrap();
    assert_eq!((verdict.records, verdict.clean_shutdown), (80, true));
    assert_eq!(disk.snapshot(), before);
}

#[test]
fn every_problem_is_listed_with_its_place() {
    let disk = log_of(8);
    let sound = verify(&disk).unwrap();
    let frame_bytes = (sound.segments[0].used_bytes - 4096 - 88) / 8;
    for corrupt in [2, 5] {
        disk.flip_bit(FIRST, 4096 + corrupt * frame_bytes + 200, 0);
    }
    let report = verify(&disk).unwrap();
    let places: Vec<_> =
        report.problems.iter().map(|problem| (problem.offset, problem.lsn)).collect();
    assert_eq!(places, [(4096 + 2 * frame_bytes, Lsn(5)), (4096 + 5 * frame_bytes, Lsn(11))]);
    assert!(report.problems.iter().all(|problem| problem.path.ends_with(FIRST)));
    assert_eq!(report.segments[0].records, 12);
    let verdict = report.verdict.unwrap_err();
    assert!(matches!(verdict, OpenError::Corrupt { lsn: Lsn(5), .. }), "{verdict}");
}

#[test]
fn a_dump_begins_where_it_is_told() {
    let disk = log_of(20);
    let mut seen = Vec::new();
    let report = dump(&disk, Lsn(33), &mut |record| {
        assert_eq!(record.bytes, [7; 500]);
        seen.push(record.lsn.0);
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, (33..=40).collect::<Vec<_>>());
    assert_eq!(report.last_lsn, Lsn(40));
}
