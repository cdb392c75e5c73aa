//! A full disk refuses writes before anything has changed, and recovers by itself.

use std::time::Duration;

use busload_io::{
    DiskErrorKind, DiskOperation,
    sim::{CrashKind, Fault, SimDisk, SimRng},
};
use busload_log::{Options, Reservation, Step, SyncPolicy};

use crate::harness::{Promise, Rig, segments_of, short_segments};

/// Fills the log until it refuses for lack of space.
fn fill(rig: &mut Rig<SimDisk>) -> String {
    for _ in 0..10_000 {
        match rig.try_append(&[5; 700], SyncPolicy::Always) {
            Reservation::Granted => {}
            Reservation::Behind => {
                rig.step_stage();
                rig.step_helper();
            }
            Reservation::NoSpace { message } => return message.to_string(),
            Reservation::Failed { message } => panic!("{message}"),
        }
    }
    panic!("the disk never fills up");
}

#[test]
fn a_full_disk_refuses_and_resumes_by_itself() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    rig.settle();
    disk.set_space(Some(200_000));
    let message = fill(&mut rig);
    assert!(message.contains("/simulated") && message.contains("Write"), "{message}");
    assert!(rig.log.progress.no_space().is_some());
    // What was granted before is written.
    rig.flush();
    rig.settle_for(Duration::from_millis(500));
    assert_eq!(rig.oracle.durable, rig.oracle.records.len() as u64);
    assert_eq!(rig.log.progress.failure(), None);
    // Space comes back: a second later writes go on.
    disk.set_space(Some(400_000));
    rig.settle_for(Duration::from_millis(1000));
    assert_eq!(rig.try_append(b"again", SyncPolicy::Always), Reservation::Granted);
    assert_eq!(rig.log.progress.no_space(), None);
    let oracle = rig.close();
    Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Durable).unwrap();
}

#[test]
fn whatever_the_space_every_granted_record_is_written() {
    let shrinking = Options { segment_bytes: 200 * 1024, ..short_segments() };
    let cases = [short_segments(), shrinking].into_iter().enumerate();
    for (options, space) in cases.flat_map(|(index, options)| {
        (40_000 + index as u64 * 1000..260_000).step_by(3_001).map(move |space| (options, space))
    }) {
        let disk = SimDisk::new();
        disk.set_space(Some(space));
        let mut rig = Rig::new(&disk, options, space);
        for _ in 0..2_500 {
            rig.random_event();
            rig.now += Duration::from_micros(300);
        }
        assert_eq!(rig.log.progress.failure(), None, "space {space}");
        rig.flush();
        rig.settle_for(Duration::from_millis(3));
        assert_eq!(rig.oracle.written, rig.oracle.records.len() as u64, "space {space}");
        let left = disk.crash(&mut SimRng::new(space), CrashKind::AnySubset);
        let oracle = rig.oracle.clone();
        Rig::reopen(&left, options, 1, oracle, Promise::Durable).unwrap();
    }
}

#[test]
fn a_log_opens_on_a_full_disk_and_takes_writes_when_there_is_room() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    rig.must_append(b"before", SyncPolicy::Always);
    let oracle = rig.close();
    disk.set_space(Some(1));
    let mut rig = Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Durable).unwrap();
    assert!(matches!(rig.try_append(b"no", SyncPolicy::Always), Reservation::NoSpace { .. }));
    disk.set_space(None);
    rig.settle_for(Duration::from_millis(1001));
    assert_eq!(rig.try_append(b"yes", SyncPolicy::Always), Reservation::Granted);
    let oracle = rig.close();
    assert_eq!(oracle.records.len(), 2);
    Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Durable).unwrap();
}

#[test]
fn a_record_too_large_for_the_disk_is_refused_alone() {
    let disk = SimDisk::new();
    let options = Options { queue_bytes_limit: 20_000, ..short_segments() };
    let mut rig = Rig::new(&disk, options, 1);
    rig.settle();
    disk.set_space(Some(300_000));
    let reserve = |rig: &mut Rig<SimDisk>, bytes| {
        let reservation = rig.log.writer.reserve(bytes);
        rig.settle_for(Duration::from_millis(1));
        if reservation == Reservation::Behind { rig.log.writer.reserve(bytes) } else { reservation }
    };
    assert!(matches!(reserve(&mut rig, 1 << 20), Reservation::NoSpace { .. }));
    assert_eq!(rig.try_append(&[1; 1000], SyncPolicy::Always), Reservation::Granted);
    rig.settle_for(Duration::from_millis(2000));
    assert!(matches!(reserve(&mut rig, 1 << 20), Reservation::NoSpace { .. }));
    // A smaller record fits, and with more space the large one does.
    rig.settle_for(Duration::from_millis(2000));
    assert_eq!(reserve(&mut rig, 100_000), Reservation::Granted);
    disk.set_space(None);
    rig.settle_for(Duration::from_millis(2000));
    assert_eq!(reserve(&mut rig, 1 << 20), Reservation::Granted);
    rig.append(&vec![9; 1 << 20], SyncPolicy::Always);
    let oracle = rig.close();
    Rig::reopen(&disk, options, 1, oracle, Promise::Durable).unwrap();
}

/// Bytes of a segment being prepared are neither free nor prepared: the answer waits for them. It
/// promises no more than then fits, record by record.
#[test]
fn space_for_many_records_is_what_they_then_find() {
    let options = Options { queue_bytes_limit: 20_000, ..short_segments() };
    for space in (100_000..400_000).step_by(10_007) {
        let disk = SimDisk::new();
        let mut rig = Rig::new(&disk, options, 1);
        disk.set_space(Some(space));
        rig.step_helper();
        assert_eq!(rig.log.writer.space_for(1), Reservation::Behind, "never without an answer");
        rig.step_stage();
        assert_eq!(
            rig.log.writer.space_for(space),
            Reservation::Behind,
            "a segment is in the making"
        );
        rig.settle_for(Duration::from_millis(1));
        let has_space = |rig: &mut Rig<SimDisk>, bytes| {
            let reservation = rig.log.writer.space_for(bytes);
            rig.settle_for(Duration::from_millis(1));
            (if reservation == Reservation::Behind {
                rig.log.writer.space_for(bytes)
            } else {
                reservation
            }) == Reservation::Granted
        };
        let (mut fits, mut fits_not) = (0, space);
        while fits + 1 < fits_not {
            let middle = fits.midpoint(fits_not);
            if has_space(&mut rig, middle) { fits = middle } else { fits_not = middle }
        }
        assert!(space < fits + 20_000 + fits / 4 + 60_000, "{fits} of {space}");
        for _ in 0..fits / 1200 {
            rig.must_append(&[7; 1000], SyncPolicy::Always);
        }
        assert_eq!(rig.log.progress.no_space(), None, "{fits} of {space}");
    }
}

/// Every operation of preparing the second segment: how many of its kind succeed before it, and the
/// name of its file.
const PREPARING: [(DiskOperation, u64, &str); 10] = [
    (DiskOperation::Create, 0, "00000000000000000002.log.new"),
    (DiskOperation::Write, 0, "00000000000000000002.log.new"),
    (DiskOperation::Sync, 0, "00000000000000000002.log.new"),
    (DiskOperation::Rename, 0, "00000000000000000002.log.new"),
    (DiskOperation::SyncDirectory, 0, ""),
    (DiskOperation::Create, 0, "last-segment.new"),
    (DiskOperation::Write, 0, "last-segment.new"),
    (DiskOperation::Sync, 0, "last-segment.new"),
    (DiskOperation::Rename, 0, "last-segment.new"),
    (DiskOperation::SyncDirectory, 1, ""),
];

/// With quotas and on some file systems a later operation than the write fails.
#[test]
fn no_space_at_any_step_of_preparing_a_segment_passes() {
    for (operation, after, name) in PREPARING {
        let disk = SimDisk::new();
        let mut rig = Rig::new(&disk, short_segments(), 1);
        disk.inject(Fault::forever(operation, after, DiskErrorKind::NoSpace).on(name));
        rig.settle_for(Duration::from_millis(3));
        assert!(rig.log.progress.no_space().is_some(), "{operation:?} {name}");
        disk.clear_faults();
        rig.settle_for(Duration::from_millis(1000));
        assert_eq!(rig.log.progress.no_space(), None, "{operation:?} {name}");
        assert_eq!(rig.log.progress.failure(), None);
        for _ in 0..100 {
            rig.must_append(&[3; 700], SyncPolicy::Always);
        }
        let oracle = rig.close();
        Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Durable).unwrap();
    }
}

/// A shorter segment fits, so no write is refused.
#[test]
fn no_space_for_a_whole_segment_makes_a_shorter_one_at_once() {
    for (operation, _, name) in PREPARING.into_iter().take(9) {
        let disk = SimDisk::new();
        let mut rig = Rig::new(&disk, short_segments(), 1);
        disk.inject(Fault::once(operation, 0, DiskErrorKind::NoSpace).on(name));
        rig.settle();
        assert_eq!(rig.log.progress.no_space(), None, "{operation:?} {name}");
        assert_eq!(disk.contents("00000000000000000002.log").unwrap().len(), 16 * 1024);
        for _ in 0..100 {
            rig.must_append(&[3; 700], SyncPolicy::Always);
        }
        assert_eq!(
            disk.contents("00000000000000000003.log").unwrap().len(),
            32 * 1024,
            "there is room again"
        );
        let oracle = rig.close();
        Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Durable).unwrap();
    }
}

/// The sizes of a product's log (8 MiB, then 64 MiB, on a file system of 64 MiB), divided by 64.
/// Once such a log took writes for the first 8 MiB and refused them with 56 MiB free.
#[test]
fn the_log_of_a_small_disk_takes_nearly_all_of_it() {
    let options =
        Options { segment_bytes: 1 << 20, first_segment_bytes: 128 << 10, ..Options::default() };
    let space = 1_u64 << 20;
    let disk = SimDisk::new();
    disk.set_space(Some(space));
    let mut rig = Rig::new(&disk, options, 1);
    fill(&mut rig);
    let bytes: usize = rig.oracle.records.iter().map(Vec::len).sum();
    assert!(space as usize * 3 / 4 < bytes, "{bytes} of {space}");
    let lengths = || {
        let segments =
            segments_of(&disk).into_iter().map(|name| disk.contents(&name).unwrap().len() >> 10);
        segments.collect::<Vec<_>>()
    };
    assert_eq!(lengths(), [128, 512, 256], "the file that names the last one takes the rest");
    rig.flush();
    rig.settle_for(Duration::from_millis(3));
    assert_eq!(rig.oracle.durable, rig.oracle.records.len() as u64);
    disk.set_space(None);
    rig.settle_for(Duration::from_millis(1001));
    assert_eq!(lengths()[3], 1024, "there is room again");
    let oracle = rig.close();
    Rig::reopen(&disk, options, 1, oracle, Promise::Durable).unwrap();
}

#[test]
fn a_large_record_needs_room_for_itself_and_no_whole_segment_more() {
    let options = Options { queue_bytes_limit: 10_000, ..short_segments() };
    for (space, granted) in [(120_000, true), (90_000, false)] {
        let disk = SimDisk::new();
        let mut rig = Rig::new(&disk, options, 1);
        rig.settle();
        disk.set_space(Some(space));
        let mut reservation = Reservation::Behind;
        while reservation == Reservation::Behind {
            reservation = rig.log.writer.reserve(70_000);
            rig.settle_for(Duration::from_millis(1));
        }
        assert_eq!(reservation == Reservation::Granted, granted, "{reservation:?}");
        if granted {
            rig.append(&[6; 70_000], SyncPolicy::Always);
        }
        let oracle = rig.close();
        Rig::reopen(&disk, options, 1, oracle, Promise::Durable).unwrap();
    }
}

/// The promise of `Granted` is exact: whatever the log and its helper were doing, everything
/// granted is written without another segment.
#[test]
fn a_granted_record_never_needs_a_segment_that_is_not_prepared() {
    for seed in 0..300 {
        let disk = SimDisk::new();
        // Segments also get shorter and shorter where space runs out.
        let segment_bytes = [32, 32, 256][seed as usize % 4 % 3] * 1024;
        let options = Options {
            queue_bytes_limit: 200_000,
            frame_bytes_max: 3_000,
            segment_bytes,
            ..short_segments()
        };
        disk.set_space((seed % 5 == 0).then_some(100_000 + seed * 1_500));
        let mut rig = Rig::new(&disk, options, seed);
        let sizes: &[u64] = match seed % 3 {
            0 => &[60, 1000, 1024],
            1 => &[60, 1000, 5_000, 40_000],
            _ => &[[980, 1000, 1010, 1023][rig.rng.index(4)]],
        };
        for _ in 0..200 {
            append_one(&mut rig, sizes);
            rig.now += Duration::from_micros(100);
            for _ in 0..rig.rng.below(4) {
                rig.step_stage();
                rig.step_helper();
            }
        }
        while seed % 8 < 6 && rig.step_helper() == Step::Worked {}
        rig.step_stage();
        // The log is stuck in a write, the helper perhaps in another, and the writer goes on until
        // it is refused.
        let mut refused = 0;
        while refused < 20 {
            refused += u32::from(append_one(&mut rig, sizes) != Reservation::Granted);
        }
        disk.set_space(Some(0));
        rig.flush();
        rig.settle_for(Duration::from_millis(3));
        assert_eq!(rig.oracle.written, rig.oracle.records.len() as u64, "seed {seed}");
    }
}

fn append_one(rig: &mut Rig<SimDisk>, sizes: &[u64]) -> Reservation {
    let bytes_max = sizes[rig.rng.index(sizes.len())];
    // Records of one length, handed over only when the batch is full, have as little overhead as
    // was charged.
    let tight = sizes.len() == 1;
    let record = if tight { vec![1; bytes_max as usize] } else { rig.random_record(bytes_max) };
    let reservation = rig.try_append(&record, SyncPolicy::Os);
    if !tight && rig.rng.chance(1, 2) {
        rig.flush();
    }
    reservation
}

/// A writer that reserves less than it then needs is a bug, but no reason to fill the disk with
/// empty segments.
#[test]
fn a_record_longer_than_its_bound_is_written_as_soon_as_there_is_room() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    for _ in 0..3 {
        rig.append(&[8; 300_000], SyncPolicy::Always);
        rig.flush();
        rig.settle();
        assert_eq!(rig.oracle.durable, rig.oracle.records.len() as u64);
    }
    assert!(rig.log.progress.stats().segments <= 5);
    disk.set_space(Some(0));
    rig.append(&[8; 300_000], SyncPolicy::Always);
    rig.flush();
    rig.settle_for(Duration::from_millis(3));
    assert_eq!(rig.oracle.written, 3);
    disk.set_space(None);
    rig.settle_for(Duration::from_millis(2500));
    assert_eq!(rig.oracle.durable, 4);
    let oracle = rig.close();
    Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Durable).unwrap();
}
