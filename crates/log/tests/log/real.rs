//! The same parts with threads and files of the operating system.

use std::{thread, time::Duration};

use busload_io::{OsRng, RealDisk, handover::ThreadWaker};
use busload_log::{Lsn, Opened, Options, Reservation, SyncPolicy, open};

const OPTIONS: fn() -> Options =
    || Options { segment_bytes: 256 * 1024, first_segment_bytes: 128 * 1024, ..Options::default() };

fn record(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    // Now and then a record that is kept by reference, and one longer than a segment.
    let length = match number % 1000 {
        0 => 300_000,
        500 => 20_000,
        rest => rest as usize % 90,
    };
    bytes.resize(8 + length, number as u8);
    bytes
}

#[test]
fn records_written_by_threads_come_back_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(directory.path()).unwrap();
    let mut total = 0;
    for (round, policy) in
        [SyncPolicy::Always, SyncPolicy::Os, SyncPolicy::Interval(Duration::from_millis(1))]
            .into_iter()
            .enumerate()
    {
        let mut expected = 0;
        let Opened { mut writer, progress, stage, helper, report } =
            open(disk.clone(), OPTIONS(), &mut OsRng::new(), &mut |found| {
                expected += 1;
                assert_eq!(found.lsn, Lsn(expected));
                assert_eq!(found.bytes, record(expected));
                Ok(())
            })
            .unwrap();
        assert_eq!(expected, total);
        assert_eq!((report.records, report.clean_shutdown), (total, 0 < round));
        let stage = thread::spawn(move || stage.run());
        let helper = thread::spawn(move || helper.run());
        let waker = ThreadWaker::current();
        progress.set_waker(waker.waker());
        for number in total + 1..=total + 3000 {
            let bytes = record(number);
            loop {
                match writer.reserve(bytes.len() as u64) {
                    Reservation::Granted => break,
                    Reservation::Behind => {
                        progress.wake_when_moved();
                        if writer.reserve(bytes.len() as u64) == Reservation::Granted {
                            break;
                        }
                        waker.park(None);
                    }
                    refused => panic!("{refused:?}"),
                }
            }
            writer.begin();
            writer.record().extend_from_slice(&bytes[..8]);
            writer.append_shared(bytes[8..].to_vec().into());
            let lsn = writer.commit(policy);
            if number % 7 == 0 {
                writer.flush(1);
            }
            if number % 100 == 0 {
                writer.flush(1);
                while policy == SyncPolicy::Always && !progress.wake_when_durable(lsn) {
                    waker.park(None);
                }
            }
        }
        total += 3000;
        writer.close();
        stage.join().unwrap();
        helper.join().unwrap();
        assert_eq!(progress.failure(), None);
        assert_eq!((progress.written(), progress.durable()), (Lsn(total), Lsn(total)));
        if policy == SyncPolicy::Always {
            assert!(30 <= progress.stats().syncs, "syncs really happen");
        }
    }
    let report = busload_log::tools::verify(&disk, None).unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.verdict.unwrap().records, total);
}

#[test]
fn an_interval_passes_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(directory.path()).unwrap();
    let Opened { mut writer, progress, stage, helper, .. } =
        open(disk, OPTIONS(), &mut OsRng::new(), &mut |_| Ok(())).unwrap();
    let stage = thread::spawn(move || stage.run());
    let helper = thread::spawn(move || helper.run());
    let waker = ThreadWaker::current();
    progress.set_waker(waker.waker());
    writer.begin();
    writer.record().push(1);
    let lsn = writer.commit(SyncPolicy::Interval(Duration::from_millis(5)));
    writer.flush(0);
    while !progress.wake_when_durable(lsn) {
        waker.park(None);
    }
    drop(writer);
    stage.join().unwrap();
    helper.join().unwrap();
}
