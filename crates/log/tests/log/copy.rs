//! Copies of segments: the same bytes, cut where they should be, and never of a corrupt frame.

use busload_io::{Disk, sim::SimDisk};
use busload_log::{
    Lsn, OpenError, SyncPolicy,
    copy::{CopyId, Scanned, SegmentFile, Until, copy, name_last_segment, scan, segment_numbers},
    format::LogId,
};

use crate::harness::{Rig, open_log, segments_of, short_segments};

/// Makes a log of several segments, with two records in each frame.
fn rig(disk: &SimDisk, frames: u64) -> Rig<SimDisk> {
    let mut rig = Rig::new(disk, short_segments(), 1);
    for frame in 0..frames {
        for record in 0..2 {
            rig.must_append(&[frame as u8; 300][..250 + 50 * record], SyncPolicy::Always);
        }
        rig.flush();
        rig.settle();
    }
    rig
}

fn segments<D: Disk>(disk: &D) -> Vec<SegmentFile<D::File>> {
    let numbers = segment_numbers(disk).expect("nothing fails here");
    numbers
        .into_iter()
        .filter_map(|number| SegmentFile::open(disk, number).expect("nothing fails here"))
        .collect()
}

/// Scans the last segment, which may be written.
fn scan_last(disk: &SimDisk) -> Result<Scanned, OpenError> {
    scan(disk, segments(disk).last().expect("nothing fails here"), Until::End)
}

/// Copies everything up to this record with another log id.
fn copied(disk: &SimDisk, last: Lsn) -> SimDisk {
    let to = SimDisk::new();
    let (mut previous, mut number) = (0, 0);
    for segment in segments(disk).iter().filter(|segment| segment.begin().next_lsn <= last) {
        let id = CopyId { log_id: LogId(77), previous };
        // Only the last one to be copied holds records that are not.
        let until = match scan(disk, segment, Until::End).expect("nothing fails here").end {
            end if end.next_lsn <= last => Until::Point(end),
            _ => Until::Record(last),
        };
        let copied = copy(disk, segment, until, &to, id, &mut |_| {}).expect("nothing fails here");
        (previous, number) = (copied.end.checksum, segment.number());
        copied.file.finish(&copied.name).expect("nothing fails here");
    }
    name_last_segment(&to, LogId(77), number, last).expect("nothing fails here");
    to
}

#[test]
fn a_copy_with_the_same_id_has_the_same_bytes() {
    let disk = SimDisk::new();
    rig(&disk, 100).close();
    assert!(2 < segments(&disk).len());
    for segment in segments(&disk) {
        let to = SimDisk::new();
        let id = CopyId { log_id: segment.log_id(), previous: segment.begin().checksum };
        let mut reported = 0;
        let copied =
            copy(&disk, &segment, Until::End, &to, id, &mut |bytes| reported += bytes).unwrap();
        assert_eq!(copied.end, copied.scanned.end);
        let (name, scanned) = (copied.name.clone(), copied.scanned);
        let written = copied.file.finish(&name).unwrap();
        let (original, copy) = (&disk.snapshot()[&name], &to.snapshot()[&name]);
        let used = usize::try_from(scanned.bytes).unwrap();
        assert!(original[..used] == copy[..], "{name}");
        assert!(original[used..].iter().all(|&byte| byte == 0), "only zeros are left out");
        assert_eq!((written.bytes, reported), (scanned.bytes, scanned.bytes));
        assert_eq!(written.checksum, crc32c::crc32c(copy));
    }
}

#[test]
fn a_copy_with_another_id_opens_with_the_records_up_to_its_end() {
    let disk = SimDisk::new();
    let records = rig(&disk, 60).close().records;
    for last in (1..=records.len()).rev() {
        let (opened, recovered) =
            open_log(&copied(&disk, Lsn(last as u64)), short_segments()).unwrap();
        let contents: Vec<_> = recovered.into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(contents, records[..last], "up to {last}");
        assert!(opened.report.end_is_named && opened.report.torn_tail.is_none());
    }
}

#[test]
fn no_flipped_bit_is_copied() {
    let disk = SimDisk::new();
    rig(&disk, 12).close();
    let name = &segments_of(&disk)[0];
    let end = scan_last(&disk).unwrap();
    for offset in (0..80).chain(4096..end.bytes) {
        disk.flip_bit(name, offset, (offset % 8) as u8);
        let scanned = SegmentFile::open(&disk, 1)
            .and_then(|segment| scan(&disk, &segment.unwrap(), Until::Point(end.end)));
        assert!(scanned.is_err(), "offset {offset}");
        disk.flip_bit(name, offset, (offset % 8) as u8);
    }
}

#[test]
fn a_torn_last_frame_is_left_out_and_a_corrupt_durable_one_is_an_error() {
    let disk = SimDisk::new();
    let rig = rig(&disk, 12);
    let end = scan_last(&disk).unwrap();
    assert_eq!((end.records, end.end.next_lsn), (24, Lsn(25)));
    let frame_bytes = (end.bytes - 4096) / 12;
    let name = segments_of(&disk)[0].clone();
    // The last frame was answered, but nothing behind it says so: it may be one being written.
    disk.flip_bit(&name, end.bytes - 20, 0);
    let torn = scan_last(&disk).unwrap();
    assert_eq!((torn.records, torn.bytes), (22, end.bytes - frame_bytes));
    disk.flip_bit(&name, end.bytes - 20, 0);
    disk.flip_bit(&name, end.bytes - 3 * frame_bytes + 90, 0);
    let corrupt = scan_last(&disk).unwrap_err().to_string();
    assert!(corrupt.contains(&name) && corrupt.contains("LSN 19"), "{corrupt}");
    drop(rig);
}

#[test]
fn a_scan_ends_before_the_first_frame_that_is_later() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    for ms in [10_u64, 20, 20, 30] {
        rig.now = std::time::Duration::from_millis(ms);
        rig.must_append(&[1; 50], SyncPolicy::Always);
        rig.flush();
        rig.settle();
    }
    let segment = segments(&disk).remove(0);
    for (ms, expected) in [(9, 0), (10, 1), (19, 1), (20, 3), (29, 3)] {
        assert_eq!(scan(&disk, &segment, Until::Time(ms)).unwrap().records, expected, "{ms}");
    }
    let all = scan(&disk, &segment, Until::End).unwrap();
    assert_eq!((all.first_ms, all.last_ms), (10, 30));
}
