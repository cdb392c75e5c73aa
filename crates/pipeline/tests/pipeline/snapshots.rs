//! Snapshots as tx sees them; a thread of their own makes them.

use std::time::Duration;

use busload_io::sim::{SimDisk, SimRng};
use busload_log::{Lsn, Options, Reservation, SyncPolicy};
use busload_snapshot::{Pace, Reading, Stopped, Wanted, make};
use busload_tables::effect::{self, PartPosition};

use crate::common::Server;

struct AtOnce;

impl Pace for AtOnce {
    fn pace(&mut self) -> Result<(), Stopped> {
        Ok(())
    }
}

/// Returns the last record that a snapshot can cover.
fn covered(disk: &SimDisk, durable: Lsn) -> Lsn {
    let wanted = Wanted { durable, seed: 1, partition_bits: 0, reading: Reading::Spilled };
    make(disk, None, wanted, &mut AtOnce).unwrap().unwrap().lsn
}

#[test]
fn a_transaction_whose_last_part_never_came_does_not_keep_snapshots_back() {
    let disk = SimDisk::new();
    let mut log =
        busload_log::open(disk.clone(), Options::default(), &mut SimRng::new(1), &mut |_| Ok(()))
            .unwrap();
    assert_eq!(log.writer.reserve(100), Reservation::Granted);
    log.writer.begin();
    effect::part_header(log.writer.record(), PartPosition::First);
    log.writer.record().extend_from_slice(b"the beginning of a transaction");
    let first = log.writer.commit(SyncPolicy::Always);
    log.writer.flush(0);
    while log.progress.durable() < first {
        log.stage.step(Duration::ZERO);
    }
    drop(log);

    let mut server = Server::on(disk.clone());
    assert_eq!(server.run("SET a 1"), "OK");
    server.housekeep();
    assert_eq!(server.run("SET b 1"), "OK");
    let durable = server.durable();
    assert!(first.0 + 3 < durable.0);
    assert_eq!(covered(&disk, durable), durable);
    let mut server = server.reopen();
    assert_eq!(server.run("MGET a b"), "['1', '1']");
    assert_eq!(server.run("DBSIZE"), "2");
}
