//! Inspection of logs on which no server runs.

use busload_io::{Disk, sim::SimDisk};
use busload_log::{
    Lsn, OpenError, SyncPolicy,
    tools::{Lost, Salvaged, dump, salvage, verify},
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
    let report = verify(&disk, None).unwrap();
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
    let sound = verify(&disk, None).unwrap();
    let frame_bytes = (sound.segments[0].used_bytes - 4096 - 88) / 8;
    for corrupt in [2, 5] {
        disk.flip_bit(FIRST, 4096 + corrupt * frame_bytes + 200, 0);
    }
    let report = verify(&disk, None).unwrap();
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
    let report = dump(&disk, None, Lsn(33), &mut |record| {
        assert_eq!(record.bytes, [7; 500]);
        seen.push(record.lsn.0);
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, (33..=40).collect::<Vec<_>>());
    assert_eq!(report.last_lsn, Lsn(40));
}

/// Returns the positions of all records that can be read, and what is lost.
fn salvaged(disk: &SimDisk) -> (Vec<u64>, Vec<Lost>) {
    let (mut records, mut lost) = (Vec::new(), Vec::new());
    let before = disk.snapshot();
    salvage(disk, None, &mut |found| {
        match found {
            Salvaged::Record(record) => {
                assert_eq!(record.bytes, [7; 500]);
                records.push(record.lsn.0);
            }
            Salvaged::Lost(range) => lost.push(range.clone()),
        }
        Ok(())
    })
    .expect("the disk works");
    assert_eq!(disk.snapshot(), before);
    (records, lost)
}

#[test]
fn all_of_a_sound_log_is_salvaged() {
    let (records, lost) = salvaged(&log_of(40));
    assert_eq!(records, (1..=80).collect::<Vec<_>>());
    assert_eq!(lost, []);
}

#[test]
fn all_but_the_corrupt_frames_is_salvaged() {
    let disk = log_of(8);
    let sound = verify(&disk, None).unwrap();
    let frame_bytes = (sound.segments[0].used_bytes - 4096 - 88) / 8;
    for corrupt in [2, 5] {
        disk.flip_bit(FIRST, 4096 + corrupt * frame_bytes + 200, 0);
    }
    let (records, lost) = salvaged(&disk);
    assert_eq!(records, [1, 2, 3, 4, 7, 8, 9, 10, 13, 14, 15, 16]);
    let ranges: Vec<_> = lost.iter().map(|lost| (lost.first, lost.last)).collect();
    assert_eq!(ranges, [(Lsn(5), Some(Lsn(6))), (Lsn(11), Some(Lsn(12)))]);
}

#[test]
fn everything_but_a_missing_segment_is_salvaged() {
    let disk = log_of(40);
    let segments = verify(&disk, None).unwrap().segments;
    for missing in [0, 1, segments.len() - 2] {
        let disk = log_of(40);
        let gone = &segments[missing];
        disk.remove(&format!("{:020}.log", gone.number)).unwrap();
        assert!(verify(&disk, None).is_err());
        let (records, lost) = salvaged(&disk);
        let kept: Vec<_> =
            (1..=80).filter(|lsn| !(gone.first_lsn.0..=gone.last_lsn.0).contains(lsn)).collect();
        assert_eq!(records, kept);
        let ranges: Vec<_> = lost.iter().map(|lost| (lost.first, lost.last)).collect();
        assert_eq!(ranges, [(gone.first_lsn, Some(gone.last_lsn))]);
    }
}

#[test]
fn records_lost_at_the_end_are_named_as_far_as_they_are_known() {
    let disk = log_of(8);
    let sound = verify(&disk, None).unwrap();
    let frame_bytes = (sound.segments[0].used_bytes - 4096 - 88) / 8;
    // The last frame with records, and the mark of the clean shutdown.
    disk.flip_bit(FIRST, 4096 + 7 * frame_bytes + 200, 0);
    disk.flip_bit(FIRST, 4096 + 8 * frame_bytes + 20, 0);
    let (records, lost) = salvaged(&disk);
    assert_eq!(records, (1..=14).collect::<Vec<_>>());
    assert_eq!((lost.len(), lost[0].first, lost[0].last), (1, Lsn(15), Some(Lsn(16))));

    disk.remove("last-segment").unwrap();
    let (_, lost) = salvaged(&disk);
    assert_eq!((lost.len(), lost[0].first, lost[0].last), (1, Lsn(15), None));
}
