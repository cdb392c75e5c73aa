//! Records of every shape come back, in order.

use busload_io::sim::SimDisk;
use busload_log::{Lsn, Options, Reservation, Step, SyncPolicy};

use crate::harness::{Promise, Rig, open_log, short_segments};

#[test]
fn an_empty_directory_becomes_an_empty_log() {
    let (log, recovered) = open_log(&SimDisk::new(), Options::default()).unwrap();
    assert_eq!(recovered, []);
    assert_eq!(log.report.last_lsn, Lsn(0));
    assert_eq!(log.writer.next_lsn(), Lsn(1));
    assert_eq!(log.progress.durable(), Lsn(0));
}

#[test]
fn one_flush_is_one_frame_and_one_sync() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, Options::default(), 1);
    rig.settle();
    let before = disk.operation_count();
    let syncs_before = rig.log.progress.stats().syncs;
    for index in 0..50 {
        rig.append(&[index; 30], SyncPolicy::Always);
    }
    assert_eq!(rig.writer().first_open_lsn(), Lsn(1));
    rig.flush();
    assert_eq!(rig.writer().first_open_lsn(), Lsn(51));
    assert_eq!(rig.step_stage(), Step::Worked);
    assert_eq!((rig.oracle.written, rig.oracle.durable), (50, 0));
    assert_eq!(rig.step_stage(), Step::Synced);
    assert_eq!((rig.oracle.written, rig.oracle.durable), (50, 50));
    assert_eq!(rig.step_stage(), Step::Idle);
    assert_eq!(disk.operation_count() - before, 2);
    let stats = rig.log.progress.stats();
    assert_eq!((stats.frames, stats.records, stats.frame_records_max), (1, 50, 50));
    assert_eq!(stats.syncs - syncs_before, 1);
}

#[test]
fn what_is_flushed_during_a_sync_makes_one_further_frame() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, Options::default(), 1);
    rig.append(b"first", SyncPolicy::Always);
    rig.flush();
    rig.step_stage();
    for _ in 0..1000 {
        rig.append(b"later", SyncPolicy::Always);
        rig.flush();
    }
    rig.settle();
    assert_eq!(rig.log.progress.stats().frames, 2);
    assert_eq!(rig.oracle.durable, 1001);
}

#[test]
fn records_of_every_length_come_back() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, Options::default(), 1);
    let edges = [
        1,
        2,
        126,
        127,
        128,
        129,
        16_383,
        16_384,
        32_767,
        32_768,
        40_000,
        70_000,
        1 << 20,
        3 << 20,
    ];
    for bytes in edges {
        rig.must_append(&vec![b'x'; bytes], SyncPolicy::Os);
        rig.must_append(b"between", SyncPolicy::Os);
    }
    rig.flush();
    let oracle = rig.close();
    let rig = Rig::reopen(&disk, Options::default(), 1, oracle, Promise::Written).unwrap();
    assert!(rig.log.report.clean_shutdown);
    assert_eq!(rig.log.report.torn_tail, None);
}

#[test]
fn records_larger_than_a_frame_and_than_a_segment_come_back() {
    let disk = SimDisk::new();
    let options = Options { frame_bytes_max: 8 * 1024, ..short_segments() };
    let mut rig = Rig::new(&disk, options, 1);
    for bytes in [9 * 1024, 31 * 1024, 32 * 1024, 33 * 1024, 300 * 1024, 1, 200 * 1024, 5000] {
        rig.must_append(&vec![bytes as u8; bytes], SyncPolicy::Always);
        rig.must_append(b"small", SyncPolicy::Os);
        if bytes % 2 == 0 {
            rig.settle();
        }
    }
    let oracle = rig.close();
    Rig::reopen(&disk, options, 1, oracle, Promise::Written).unwrap();
}

#[test]
fn a_cancelled_record_leaves_no_trace() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, Options::default(), 1);
    rig.append(b"one", SyncPolicy::Os);
    let writer = rig.writer();
    writer.begin();
    writer.record().extend_from_slice(b"no");
    writer.append_shared(vec![1; 50_000].into());
    assert_eq!(writer.record_bytes(), 50_002);
    writer.cancel();
    rig.append(b"two", SyncPolicy::Os);
    let oracle = rig.close();
    Rig::reopen(&disk, Options::default(), 1, oracle, Promise::Written).unwrap();
}

#[test]
fn many_segments_follow_each_other() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 7);
    for _ in 0..2000 {
        let (record, policy) = (rig.random_record(500), rig.random_policy());
        rig.must_append(&record, policy);
        if rig.rng.chance(1, 5) {
            rig.flush();
        }
    }
    assert!(10 < rig.log.progress.stats().segments);
    let log_bytes = rig.log.progress.stats().log_bytes;
    let oracle = rig.close();
    let rig = Rig::reopen(&disk, short_segments(), 7, oracle, Promise::Written).unwrap();
    assert_eq!(rig.log.report.records, 2000);
    assert!(log_bytes <= rig.log.report.bytes);
}

#[test]
fn a_log_that_is_only_opened_and_closed_does_not_grow() {
    let disk = SimDisk::new();
    let mut oracle = Rig::new(&disk, short_segments(), 1).close();
    for _ in 0..5 {
        oracle = Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap().close();
    }
    let segments = disk.snapshot().into_keys().filter(|name| name.ends_with(".log")).count();
    assert!(segments <= 2, "{:?}", disk.snapshot().keys());
    let mut rig = Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap();
    rig.must_append(b"a", SyncPolicy::Always);
    let oracle = rig.close();
    Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap();
}

#[test]
fn a_second_process_is_kept_out() {
    let disk = SimDisk::new();
    let (log, _) = open_log(&disk, Options::default()).unwrap();
    let error = open_log(&disk, Options::default()).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    drop(log);
    open_log(&disk, Options::default()).unwrap();
}

#[test]
fn an_interval_is_kept_and_not_shortened() {
    use std::time::Duration;
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, Options::default(), 1);
    rig.settle();
    let start = rig.now;
    rig.append(b"a", SyncPolicy::Interval(Duration::from_millis(10)));
    rig.flush();
    assert_eq!(rig.step_stage(), Step::Worked);
    rig.now = start + Duration::from_millis(4);
    rig.append(b"b", SyncPolicy::Interval(Duration::from_millis(10)));
    rig.flush();
    assert_eq!(rig.step_stage(), Step::Worked);
    assert_eq!(rig.step_stage(), Step::IdleUntil(start + Duration::from_millis(10)));
    assert_eq!(rig.oracle.durable, 0);
    rig.now = start + Duration::from_millis(10);
    assert_eq!(rig.step_stage(), Step::Synced);
    assert_eq!(rig.oracle.durable, 2);
    assert_eq!(rig.step_stage(), Step::Idle);
}

#[test]
fn more_than_the_queue_holds_is_refused_until_the_log_has_moved() {
    let disk = SimDisk::new();
    let options = Options { queue_bytes_limit: 100_000, ..Options::default() };
    let mut rig = Rig::new(&disk, options, 1);
    let mut granted = 0;
    while rig.try_append(&[7; 1000], SyncPolicy::Os) == Reservation::Granted {
        granted += 1;
        assert!(granted < 200);
    }
    assert!(90 < granted);
    rig.settle();
    assert_eq!(rig.oracle.written, granted);
    assert_eq!(rig.try_append(&[7; 1000], SyncPolicy::Os), Reservation::Granted);
}

#[test]
fn records_that_just_fit_a_segment_or_just_do_not_come_back() {
    let space = 16 * 1024 - 4096 - 88 - 88;
    for bytes in (space - 130..space + 20).chain(2 * space..2 * space + 4) {
        let disk = SimDisk::new();
        let mut rig = Rig::new(&disk, short_segments(), 1);
        for _ in 0..3 {
            rig.must_append(&vec![1; bytes], SyncPolicy::Always);
            rig.must_append(&[2; 40], SyncPolicy::Always);
        }
        let oracle = rig.close();
        Rig::reopen(&disk, short_segments(), 1, oracle, Promise::Written).unwrap();
    }
}

#[test]
fn the_latest_time_in_the_log_is_remembered_though_the_clock_steps_back() {
    let disk = SimDisk::new();
    let (mut log, _) = open_log(&disk, Options::default()).unwrap();
    for wall_ms in [5_000, 1_000, -7, i64::MIN] {
        log.writer.begin();
        log.writer.record().push(1);
        log.writer.commit(SyncPolicy::Always);
        log.writer.flush(wall_ms);
        while log.stage.step(std::time::Duration::ZERO) != Step::Idle {}
    }
    drop(log);
    let mut times = Vec::new();
    let mut ids = busload_io::sim::SimRng::new(1);
    let log = busload_log::open(disk, Options::default(), &mut ids, &mut |record| {
        times.push(record.wall_ms);
        Ok(())
    })
    .unwrap();
    assert_eq!(times, [5_000, 1_000, -7, i64::MIN]);
    assert_eq!(log.report.wall_ms, Some(5_000));
}

#[test]
fn bytes_waiting_for_a_slow_disk_are_bounded() {
    let disk = SimDisk::new();
    let options = Options { queue_bytes_limit: 1 << 20, ..Options::default() };
    let mut rig = Rig::new(&disk, options, 1);
    rig.settle();
    // The log is in a sync that never ends; the writer goes on, turn by turn.
    let mut granted_bytes = 0;
    for _ in 0..100_000 {
        if rig.try_append(&[1; 100], SyncPolicy::Always) == Reservation::Granted {
            granted_bytes += 100;
        }
        rig.flush();
    }
    assert!(granted_bytes <= 1 << 20 && (1 << 18) < granted_bytes, "{granted_bytes}");
    rig.settle();
    assert_eq!(rig.oracle.durable, rig.oracle.records.len() as u64);
    assert_eq!(rig.log.progress.stats().frames, 1, "one frame for all of them");
}

/// FNV-1a hash of 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// If this fails the format has changed: then the format version must change, and old logs must
/// stay readable.
#[test]
fn the_bytes_of_a_segment_are_what_they_were() {
    let disk = SimDisk::new();
    let mut rig = Rig::new(&disk, short_segments(), 1);
    for length in [1, 127, 128, 700, 3] {
        rig.append(&vec![length as u8; length], SyncPolicy::Always);
        rig.append(b"with another", SyncPolicy::Os);
        rig.flush();
        rig.settle();
    }
    rig.now = std::time::Duration::from_millis(1_700_000_000_000);
    rig.append(b"later", SyncPolicy::Os);
    rig.close();
    let contents = disk.contents("00000000000000000001.log").unwrap();
    assert_eq!((contents.len(), hash(&contents)), (5768, 1_939_509_656_918_628_240));
}
