//! Snapshots that were changed: they verify to what was written, or are refused.

#![no_main]

mod patches;

use std::{sync::LazyLock, time::Duration};

use busload_io::sim::{SimDisk, SimRng};
use busload_log::{Lsn, Options, SyncPolicy, open};
use busload_snapshot::{Pace, Snapshot, Stopped, Wanted, make};
use busload_tables::{TableId, effect};
use libfuzzer_sys::fuzz_target;

struct AtOnce;

impl Pace for AtOnce {
    fn pace(&mut self) -> Result<(), Stopped> {
        Ok(())
    }
}

/// Name, last record and contents of a snapshot.
static WRITTEN: LazyLock<(String, Lsn, Vec<u8>)> = LazyLock::new(|| {
    let disk = SimDisk::new();
    let mut log =
        open(disk.clone(), Options::default(), &mut SimRng::new(1), &mut |_| Ok(())).unwrap();
    for number in 0..200_u64 {
        log.writer.begin();
        let key = number.to_le_bytes();
        effect::put(log.writer.record(), TableId(0), &key, &[b'v'; 90], None);
        log.writer.commit(SyncPolicy::Always);
    }
    log.writer.flush(0);
    while log.progress.durable() < Lsn(200) {
        log.stage.step(Duration::ZERO);
        log.helper.step(Duration::ZERO);
    }
    let wanted = Wanted { durable: Lsn(200), seed: 7, partition_bits: 1 };
    let made = make(&disk, None, wanted, &mut AtOnce).unwrap().unwrap();
    let contents = disk.contents(&made.name).unwrap();
    (made.name, made.lsn, contents)
});

fuzz_target!(|changes: &[u8]| {
    let (name, lsn, written) = &*WRITTEN;
    let mut contents = written.clone();
    patches::patch(&mut contents, changes);
    let disk = SimDisk::new();
    disk.put_file(name, &contents);
    let verified = Snapshot::open(&disk, *lsn).and_then(|snapshot| snapshot.verify(&disk));
    assert_eq!(verified.is_ok(), contents == *written);
});
