//! Bytes that are not as they were written are noticed, told from a torn tail, and named.

use busload_io::sim::SimDisk;
use busload_log::{
    Lsn, OpenError, Options, SyncPolicy,
    format::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_USED_BYTES},
};

use crate::harness::{Oracle, Promise, Rig, open_log, short_segments};

const FIRST: &str = "00000000000000000001.log";
const SECOND: &str = "00000000000000000002.log";
const THIRD: &str = "00000000000000000003.log";

/// Creates one segment of a few frames, with a clean shutdown or left after a kill.
fn small_log(frames: u8, close: bool) -> (SimDisk, Oracle, Vec<u64>) {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    let mut ends = vec![SEGMENT_HEADER_BYTES as u64];
    for frame in 0..frames {
        for record in 0..3 {
            rig.append(&vec![frame * 16 + record; usize::from(frame) + 1], SyncPolicy::Always);
        }
        rig.flush();
        rig.step_stage();
        rig.step_stage();
        ends.push(SEGMENT_HEADER_BYTES as u64 + rig.log.progress.stats().bytes);
    }
    let oracle = if close { rig.close() } else { rig.oracle };
    (disk, oracle, ends)
}

/// Creates a disk with files of these contents.
fn disk_with(files: &[(&str, &[u8])]) -> SimDisk {
    let disk = SimDisk::new();
    for (name, contents) in files {
        disk.put_file(name, contents);
    }
    disk
}

fn recover(files: &[(&str, &[u8])]) -> Result<Vec<(Lsn, Vec<u8>)>, OpenError> {
    open_log(&disk_with(files), short_segments()).map(|(_, recovered)| recovered)
}

fn size(offset: u64) -> usize {
    usize::try_from(offset).expect("small files")
}

/// Returns the part of the segment in use, and a little more.
fn used(disk: &SimDisk, ends: &[u64]) -> Vec<u8> {
    let mut contents = disk.contents(FIRST).expect("it was begun");
    contents.truncate(size(ends[ends.len() - 1]) + 256);
    contents
}

type Files = std::collections::BTreeMap<String, Vec<u8>>;

#[test]
fn a_segment_cut_at_any_byte_gives_the_frames_wholly_before_the_cut() {
    let (disk, oracle, ends) = small_log(5, false);
    let contents = used(&disk, &ends);
    for length in 0..contents.len() {
        let recovered = recover(&[(FIRST, &contents[..length])]);
        if length < SEGMENT_HEADER_BYTES {
            let error = recovered.unwrap_err().to_string();
            assert!(error.contains("shorter than a segment's header"), "{error}");
            continue;
        }
        let frames = ends[1..].iter().filter(|&&end| end <= length as u64).count();
        let recovered = recovered.unwrap();
        assert_eq!(recovered.len(), 3 * frames, "cut at {length}");
        Oracle { durable: 3 * frames as u64, ..oracle.clone() }.check(&recovered, Promise::Durable);
    }
}

/// After a clean shutdown every record is known to be durable: a flipped bit in any of them is
/// corruption.
#[test]
fn every_flipped_bit_of_a_closed_segment_is_harmless_or_refused() {
    let (disk, oracle, ends) = small_log(4, true);
    let mut contents = disk.contents(FIRST).unwrap();
    let end = size(ends[ends.len() - 1]);
    assert_eq!(contents.len(), end + FRAME_HEADER_BYTES);
    for bit in 0..contents.len() * 8 {
        contents[bit / 8] ^= 1 << (bit % 8);
        let result = recover(&[(FIRST, &contents)]);
        let at = bit / 8;
        let reserved = (SEGMENT_HEADER_USED_BYTES..SEGMENT_HEADER_BYTES).contains(&at);
        if reserved || end <= at {
            // Bytes without a meaning, or the mark of the clean shutdown, without which nothing is
            // lost.
            oracle.clone().check(&result.unwrap(), Promise::Durable);
        } else {
            let error = result.unwrap_err();
            let named = matches!(error, OpenError::Corrupt { .. } | OpenError::Version { .. });
            assert!(named && error.to_string().contains(FIRST), "bit {bit}: {error}");
        }
        contents[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Without the mark only the loss of the last frame looks like a torn write: that frame names all
/// records before it as durable.
#[test]
fn every_flipped_bit_of_a_killed_segment_costs_at_most_the_last_frames() {
    let (disk, oracle, ends) = small_log(4, false);
    let mut contents = used(&disk, &ends);
    let last_two = ends[ends.len() - 3];
    for bit in SEGMENT_HEADER_BYTES * 8..contents.len() * 8 {
        contents[bit / 8] ^= 1 << (bit % 8);
        let at = bit as u64 / 8;
        match recover(&[(FIRST, &contents)]) {
            Err(OpenError::Corrupt { offset, lsn, .. }) => {
                let frame = ends.iter().rposition(|&end| end <= at).unwrap();
                assert_eq!((offset, lsn.0), (ends[frame], frame as u64 * 3 + 1), "bit {bit}");
                assert!(at < ends[ends.len() - 2], "bit {bit} is in the last frame");
            }
            Err(error) => panic!("bit {bit}: {error}"),
            Ok(recovered) => {
                assert!(last_two <= at, "bit {bit} went unnoticed");
                Oracle { durable: recovered.len() as u64, ..oracle.clone() }
                    .check(&recovered, Promise::Durable);
                let cut = if at < *ends.last().unwrap() { 1 } else { 0 };
                assert_eq!(recovered.len(), 3 * (4 - cut), "bit {bit}");
            }
        }
        contents[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Creates several segments with records, left as after a kill.
fn long_log(seed: u64) -> (SimDisk, Oracle) {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), seed);
    while rig.log.progress.stats().segments < 4 {
        let record = rig.random_record(400);
        rig.must_append(&record, SyncPolicy::Always);
        rig.flush();
        rig.step_stage();
    }
    rig.settle();
    (disk, rig.oracle)
}

#[test]
fn a_flipped_byte_in_an_earlier_segment_is_corruption_wherever_it_is() {
    let (disk, oracle) = long_log(5);
    for name in [FIRST, SECOND, THIRD] {
        let length = disk.contents(name).unwrap().len() as u64;
        for offset in (0..length).step_by(97) {
            disk.flip_bit(name, offset, 3);
            let twin = disk
                .crash(&mut busload_io::sim::SimRng::new(0), busload_io::sim::CrashKind::KeepAll);
            match open_log(&twin, short_segments()) {
                Ok((_, recovered)) => oracle.clone().check(&recovered, Promise::Durable),
                Err(error) => {
                    let named =
                        matches!(error, OpenError::Corrupt { .. } | OpenError::Version { .. });
                    assert!(named && error.to_string().contains(name), "{name} {offset}: {error}");
                    let twin = disk.crash(
                        &mut busload_io::sim::SimRng::new(0),
                        busload_io::sim::CrashKind::KeepAll,
                    );
                    open_log(&twin, short_segments()).unwrap_err();
                }
            }
            disk.flip_bit(name, offset, 3);
        }
    }
}

#[test]
fn a_refused_start_changes_nothing() {
    let (disk, _) = long_log(6);
    disk.flip_bit(SECOND, 5000, 0);
    let before = disk.snapshot();
    open_log(&disk, short_segments()).unwrap_err();
    assert_eq!(disk.snapshot(), before);
}

#[test]
fn a_segment_that_is_missing_doubled_foreign_or_newer_is_named() {
    let (disk, _) = long_log(8);
    let (other, _) = long_log(8);
    let files = disk.snapshot();
    let check = |change: &dyn Fn(&mut Files), expected: &[&str]| {
        let mut files = files.clone();
        change(&mut files);
        let files: Vec<_> =
            files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        let message = recover(&files).unwrap_err().to_string();
        for part in expected {
            assert!(message.contains(part), "{message}");
        }
    };
    check(&|files| drop(files.remove(SECOND)), &["segment 2 is missing", FIRST, THIRD]);
    check(&|files| drop(files.remove(FIRST)), &["begins with", SECOND]);
    check(
        &|files| {
            let copy = files[FIRST].clone();
            files.insert(SECOND.to_owned(), copy);
        },
        &[SECOND, "says that it is segment 1"],
    );
    check(
        &|files| {
            let copy = files[SECOND].clone();
            files.insert(format!("copy of {SECOND}"), copy);
        },
        &["copy of", "not named like a segment"],
    );
    check(
        &|files| files.get_mut(SECOND).unwrap()[8] = 2,
        &[SECOND, "format version 2", "reads version 1"],
    );
    check(&|files| files.get_mut(SECOND).unwrap()[..8].fill(b'x'), &[SECOND, "does not verify"]);
    check(
        &|files| files.get_mut(SECOND).unwrap()[..80].fill(0),
        &["corrupt", FIRST, "was durable"],
    );
    check(&|files| files.get_mut(FIRST).unwrap()[..80].fill(0), &["corrupt", FIRST, "was durable"]);
    drop(other);
}

#[test]
fn a_segment_of_another_log_is_refused() {
    let (disk, _) = long_log(8);
    let stranger = SimDisk::new();
    let mut ids = busload_io::sim::SimRng::new(1234);
    let mut log =
        busload_log::open(stranger.clone(), short_segments(), &mut ids, &mut |_| Ok(())).unwrap();
    log.writer.close();
    let mut files = disk.snapshot();
    let mut header = stranger.contents(FIRST).unwrap();
    header.resize(20_000, 0);
    files.insert(FIRST.to_owned(), header);
    let files: Vec<_> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let message = recover(&files).unwrap_err().to_string();
    assert!(message.contains(SECOND) && message.contains("belongs to another log"), "{message}");
}

/// A file system gives a new file old blocks, whose contents once verified in another segment or
/// another log.
#[test]
fn stale_frames_behind_the_end_are_never_taken_for_records() {
    let (disk, _) = long_log(9);
    let (small, oracle, ends) = small_log(3, false);
    let end = size(ends[ends.len() - 1]);
    for source in [FIRST, SECOND, THIRD] {
        let stale = disk.contents(source).unwrap();
        for from in (SEGMENT_HEADER_BYTES..SEGMENT_HEADER_BYTES + 3000).step_by(8) {
            let mut contents = small.contents(FIRST).unwrap();
            let count = (contents.len() - end).min(stale.len() - from);
            contents[end..end + count].copy_from_slice(&stale[from..from + count]);
            match recover(&[(FIRST, &contents)]) {
                Ok(recovered) => oracle.clone().check(&recovered, Promise::Durable),
                // The log id and the segment number agree: these frames verify alone, but are out
                // of order.
                Err(error) => {
                    assert!(
                        source == FIRST && matches!(error, OpenError::Corrupt { .. }),
                        "{error}"
                    )
                }
            }
        }
    }
}

/// Only the log id differs; the rest is what this very log would have written.
#[test]
fn records_of_another_log_at_the_very_place_are_not_taken() {
    let (mine, oracle, ends) = small_log(3, false);
    let other = SimDisk::new();
    let mut ids = busload_io::sim::SimRng::new(4321);
    let mut log =
        busload_log::open(other.clone(), short_segments(), &mut ids, &mut |_| Ok(())).unwrap();
    for _ in 0..6 {
        log.writer.begin();
        log.writer.record().push(b'!');
        log.writer.commit(SyncPolicy::Always);
        log.writer.flush(0);
        log.stage.step(std::time::Duration::ZERO);
    }
    let mut contents = mine.contents(FIRST).unwrap();
    let stale = other.contents(FIRST).unwrap();
    let end = size(ends[ends.len() - 1]);
    let length = contents.len();
    contents[end..].copy_from_slice(&stale[end..length]);
    oracle.clone().check(&recover(&[(FIRST, &contents)]).unwrap(), Promise::Durable);
    contents[SEGMENT_HEADER_BYTES..].copy_from_slice(&stale[SEGMENT_HEADER_BYTES..length]);
    assert_eq!(recover(&[(FIRST, &contents)]).unwrap(), []);
}

#[test]
fn an_absurd_length_is_not_believed() {
    let (disk, oracle, ends) = small_log(2, false);
    let mut contents = disk.contents(FIRST).unwrap();
    let end = size(ends[ends.len() - 1]);
    // The front of a frame's header, then a body of 13 PB.
    let header = contents[SEGMENT_HEADER_BYTES..SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES].to_vec();
    contents[end..end + FRAME_HEADER_BYTES].copy_from_slice(&header);
    contents[end + 16..end + 24].copy_from_slice(&(13_u64 << 50).to_le_bytes());
    oracle.clone().check(&recover(&[(FIRST, &contents)]).unwrap(), Promise::Durable);
}

#[test]
fn a_torn_tail_is_reported_with_its_place_and_cut_for_good() {
    let (disk, oracle, ends) = small_log(4, false);
    let last = ends[ends.len() - 2];
    disk.flip_bit(FIRST, last + 90, 1);
    let mut oracle = Oracle { durable: 9, written: 9, ..oracle };
    let (log, recovered) = open_log(&disk, short_segments()).unwrap();
    oracle.check(&recovered, Promise::Durable);
    let torn = log.report.torn_tail.clone().unwrap();
    assert_eq!((torn.offset, torn.lsn, torn.segments_removed), (last, Lsn(10), 0));
    assert!(torn.path.ends_with(FIRST));
    // The last byte is padding.
    assert_eq!(torn.bytes, ends[ends.len() - 1] - last - 1);
    drop(log);
    // The lost frame verifies again, but stays cut.
    disk.flip_bit(FIRST, last + 90, 1);
    let rig = Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Durable).unwrap();
    assert_eq!(rig.log.report.torn_tail, None);
}

#[test]
fn a_record_the_caller_refuses_is_named() {
    let (disk, _, ends) = small_log(3, false);
    let error = busload_log::open(
        disk,
        Options::default(),
        &mut busload_io::sim::SimRng::new(1),
        &mut |record| {
            if record.lsn == Lsn(5) { Err("no such effect".into()) } else { Ok(()) }
        },
    )
    .unwrap_err();
    let message = error.to_string();
    let place = format!("offset {}", ends[1]);
    for part in ["record 5", FIRST, &place, "no such effect"] {
        assert!(message.contains(part), "{message}");
    }
}

/// The mark comes before later frames, or names more than was there.
#[test]
fn a_mark_of_an_orderly_end_is_believed_only_as_far_as_it_adds_up() {
    let (disk, oracle, ends) = small_log(3, true);
    let mut contents = disk.contents(FIRST).unwrap();
    // The frame before the mark is gone, and the mark says that it was durable.
    let (from, to) = (size(ends[2]), size(ends[3]));
    contents[from..to].fill(0);
    let error = recover(&[(FIRST, &contents)]).unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { lsn: Lsn(7), .. }), "{error}");
    // The mark itself is gone, so nothing is missing.
    let mut contents = disk.contents(FIRST).unwrap();
    contents.truncate(to);
    oracle.clone().check(&recover(&[(FIRST, &contents)]).unwrap(), Promise::Durable);
}

/// Records for which nobody waits may be lost in the middle of a full segment; then everything in
/// later segments is removed, too.
#[test]
fn segments_behind_a_torn_one_are_removed() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    for _ in 0..40 {
        rig.must_append(&[4; 500], SyncPolicy::Os);
        rig.flush();
        rig.step_stage();
    }
    assert_eq!((rig.oracle.durable, rig.log.progress.stats().segments), (0, 2));
    disk.flip_bit(FIRST, 4096 + 592 * 10 + 300, 0);
    let mut oracle = rig.oracle.clone();
    drop(rig);
    let orphan = disk.contents(SECOND).unwrap();
    let (log, recovered) = open_log(&disk, short_segments()).unwrap();
    oracle.check(&recovered, Promise::Durable);
    assert_eq!(recovered.len(), 10);
    let torn = log.report.torn_tail.clone().unwrap();
    assert_eq!((torn.offset, torn.lsn, torn.segments_removed), (4096 + 592 * 10, Lsn(11), 1));
    drop(log);
    let removed = busload_io::DiskOperation::Remove;
    assert_eq!(disk.count(removed, SECOND), 1);
    assert_ne!(disk.contents(SECOND).unwrap(), orphan);
    Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Durable).unwrap();
}
