//! A start finds with snapshots what it would find with the whole log.

use busload_hostile::rounds;
use busload_io::{Disk, sim::SimDisk};
use busload_log::{Lsn, remove_covered};
use busload_snapshot::{Pace, Snapshot, Stopped, format::snapshot_name};
use busload_tables::{
    KeyHash, TableId,
    effect::{self, PartPosition},
};

use crate::world::{World, part};

#[test]
fn a_start_from_a_snapshot_finds_what_the_whole_log_holds() {
    for seed in 0..rounds(15, 40) {
        let mut world = World::start(SimDisk::new(), seed);
        for round in 0..5 {
            let count = 100 + world.draw(400);
            world.work(count);
            if world.draw(3) != 0 {
                let made = world.make().unwrap().expect("there are further records");
                assert_eq!(made.lsn, world.progress.durable(), "seed {seed}");
                assert_eq!(made.entries, world.contents().len() as u64);
            }
            let (contents, catalogue) = (world.contents(), world.catalogue.clone());
            let newest = world.newest().map(|newest| newest.header().lsn);
            world = world.restart(seed * 10 + round);
            assert_eq!(world.loaded, newest, "seed {seed} round {round}");
            assert_eq!(world.contents(), contents, "seed {seed} round {round}");
            assert_eq!(world.catalogue, catalogue, "seed {seed} round {round}");
        }
    }
}

#[test]
fn the_log_behind_the_older_of_two_snapshots_goes_and_either_one_suffices() {
    for seed in 0..20 {
        let mut world = World::start(SimDisk::new(), seed);
        let mut made = Vec::new();
        for _ in 0..6 {
            world.work(900);
            made.push(world.make().unwrap().unwrap().lsn);
            if let [.., dropped, older, _] = made[..] {
                world.disk.remove(&snapshot_name(dropped)).unwrap();
                remove_covered(&world.disk, &world.progress, older, 128 << 10).unwrap();
            }
        }
        world.work(50);
        let segments = world.progress.stats().segments;
        assert!(segments < 30, "seed {seed}: {segments} segments are kept");
        assert!(!busload_log::is_whole(&world.disk).unwrap(), "the first segments are gone");
        let contents = world.contents();
        let mut world = world.restart(seed + 100);
        assert_eq!(world.contents(), contents, "seed {seed}");
        // The newest does not verify any more: the one before and the log behind it are as good.
        let newest = made[made.len() - 1];
        assert_eq!(world.loaded, Some(newest));
        let name = snapshot_name(newest);
        let offset = world.draw(world.disk.contents(&name).unwrap().len()) as u64;
        world.disk.flip_bit(&name, offset, 3);
        let world = world.restart(seed + 200);
        assert_eq!(world.loaded, Some(made[made.len() - 2]), "seed {seed}: byte {offset}");
        assert_eq!(world.contents(), contents, "seed {seed}");
    }
}

/// Pacer that notes the progress.
#[derive(Default)]
struct Noted(Vec<f64>);

impl Pace for Noted {
    fn pace(&mut self) -> Result<(), Stopped> {
        Ok(())
    }

    fn progress(&mut self, done: f64) {
        self.0.push(done);
    }
}

#[test]
fn progress_rises_to_the_whole_while_a_snapshot_is_made() {
    let mut world = World::start(SimDisk::new(), 3);
    // With two partitions: the log once for all; for each the snapshot before, the log, writing.
    for steps in [1 + 2 * 2, 1 + 2 * 3] {
        world.work(9_000);
        let mut noted = Noted::default();
        world.make_paced(1, &mut noted).unwrap().expect("there are further records");
        let Noted(noted) = noted;
        assert!(noted.is_sorted(), "{noted:?}");
        assert_eq!(noted.last(), Some(&1.0));
        assert!(noted[0] < 1.0 / f64::from(steps), "within the first reading: {noted:?}");
    }
}

#[test]
fn a_snapshot_ends_before_a_transaction_that_is_open() {
    let mut world = World::start(SimDisk::new(), 1);
    world.work(20);
    let before = Lsn(world.writer.next_lsn().0 - 1);
    let mut whole = Vec::new();
    effect::put(&mut whole, TableId(0), b"in parts", b"value", None);
    effect::put(&mut whole, TableId(0), b"in parts, too", b"value", None);
    world.append(&part(PartPosition::First, &whole[..10]));
    let mut between = Vec::new();
    effect::put(&mut between, TableId(0), b"between", b"value", None);
    world.transact(&between);
    world.sync();
    assert_eq!(world.make().unwrap().unwrap().lsn, before);
    assert!(world.make().unwrap().is_none(), "nothing more can be covered");
    world.append(&part(PartPosition::Last, &whole[10..]));
    world.sync();
    let world = world.restart(2);
    assert_eq!(world.loaded, Some(before));
    let hash: KeyHash = world.tables.hash(b"in parts");
    assert!(world.tables.get(TableId(0), hash, b"in parts", 0).is_some());
    let hash: KeyHash = world.tables.hash(b"between");
    assert!(world.tables.get(TableId(0), hash, b"between", 0).is_some());
}

#[test]
fn every_block_of_a_snapshot_is_verified() {
    let mut world = World::start(SimDisk::new(), 3);
    world.work(400);
    let made = world.make().unwrap().unwrap();
    let snapshot = world.newest().unwrap();
    snapshot.verify(&world.disk).unwrap();
    drop(snapshot);
    for offset in 0..made.file_bytes {
        let bit = (offset % 8) as u8;
        world.disk.flip_bit(&made.name, offset, bit);
        let verified =
            Snapshot::open(&world.disk, made.lsn).and_then(|snapshot| snapshot.verify(&world.disk));
        assert!(verified.is_err(), "byte {offset} of {}", made.file_bytes);
        world.disk.flip_bit(&made.name, offset, bit);
    }
}
