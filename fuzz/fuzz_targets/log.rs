//! Logs whose only segment was changed: they open to records that were written, or are refused.

#![no_main]

mod patches;

use std::{sync::LazyLock, time::Duration};

use busload_io::sim::{SimDisk, SimRng};
use busload_log::{Options, Step, SyncPolicy, open};
use libfuzzer_sys::fuzz_target;

const SEGMENT: &str = "00000000000000000001.log";
const RECORDS: u8 = 24;

fn options() -> Options {
    Options { segment_bytes: 16 * 1024, first_segment_bytes: 16 * 1024, ..Options::default() }
}

fn record(number: u8) -> Vec<u8> {
    vec![number; 1 + usize::from(number) * 7]
}

/// Files of a log with a clean shutdown, and of one without.
static LOGS: LazyLock<[Files; 2]> = LazyLock::new(|| [written(true), written(false)]);

/// Names and contents of files.
type Files = Vec<(String, Vec<u8>)>;

fn written(close: bool) -> Files {
    let disk = SimDisk::new();
    let mut log = open(disk.clone(), options(), &mut SimRng::new(1), &mut |_| Ok(())).unwrap();
    for number in 0..RECORDS {
        log.writer.begin();
        log.writer.record().extend_from_slice(&record(number));
        log.writer.commit(SyncPolicy::Always);
        if number % 3 == 0 {
            log.writer.flush(0);
            log.stage.step(Duration::ZERO);
            log.stage.step(Duration::ZERO);
        }
    }
    log.writer.flush(0);
    if close {
        log.writer.close();
        while log.stage.step(Duration::ZERO) != Step::Ended {}
    } else {
        for _ in 0..8 {
            log.stage.step(Duration::ZERO);
        }
    }
    disk.snapshot().into_iter().collect()
}

fuzz_target!(|input: (bool, &[u8])| {
    let (closed, changes) = input;
    let disk = SimDisk::new();
    for (name, contents) in &LOGS[usize::from(!closed)] {
        let mut contents = contents.clone();
        if name == SEGMENT {
            patches::patch(&mut contents, changes);
        }
        disk.put_file(name, &contents);
    }
    let mut recovered = Vec::new();
    let opened = open(disk, options(), &mut SimRng::new(2), &mut |found| {
        recovered.push(found.bytes.to_vec());
        Ok(())
    });
    let expected: Vec<_> = (0..RECORDS).map(record).collect();
    assert!(expected.starts_with(&recovered));
    assert!(!closed || opened.is_err() || recovered.len() == expected.len());
});
