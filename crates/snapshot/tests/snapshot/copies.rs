//! A directory that is copied file by file while the log is written, snapshots are made and
//! segments removed, as `cp -r` does: the copy opens to the contents at one moment, with everything
//! that was acknowledged before the copying began, or it is refused.

use busload_io::{Disk, sim::SimDisk};
use busload_log::{Lsn, SyncPolicy, remove_covered};
use busload_snapshot::{format::snapshot_name, newest_first};
use busload_tables::{
    TableId, Tables,
    effect::{self, Replayer},
};

use crate::world::{Contents, World, contents};

/// Number of copies that are made.
const SEEDS: u64 = 100;

/// Makes a snapshot and removes what the older of two covers, as the maintenance thread does.
fn save(world: &mut World) {
    world.make().expect("nothing fails here");
    let lsns = newest_first(&world.disk).expect("nothing fails here");
    if let [_, older, superfluous @ ..] = &lsns[..] {
        superfluous
            .iter()
            .for_each(|lsn| world.disk.remove(&snapshot_name(*lsn)).expect("nothing fails here"));
        remove_covered(&world.disk, &world.progress, *older, 128 << 10)
            .expect("nothing fails here");
    }
}

/// Lets the server go on for a while, mostly a short one.
fn go_on(world: &mut World) {
    match world.draw(12) {
        0..5 => {}
        5..7 => (0..1 + world.draw(20)).for_each(|_| world.transact_by_chance()),
        7 | 8 => {
            let steps = world.draw(200);
            world.drive_some(steps);
        }
        9 => fill_a_segment(world),
        10 => save(world),
        _ => (0..2).for_each(|_| {
            fill_a_segment(world);
            save(world);
        }),
    }
    acknowledge(world);
}

/// Appends transactions until another segment is begun and one more is prepared.
fn fill_a_segment(world: &mut World) {
    let segments = world.progress.stats().segments;
    while world.progress.stats().segments == segments {
        let mut record = Vec::new();
        let key = world.draw(20).to_string().into_bytes();
        effect::put(&mut record, TableId(0), &key, &[b'x'; 3_000], None);
        world.transact(&record);
        acknowledge(world);
    }
    world.drive_some(200);
}

/// Waits until everything is acknowledged.
fn acknowledge(world: &mut World) {
    if world.policy == SyncPolicy::Always { world.sync() } else { world.write() }
}

/// Reads a file in up to three pieces while the server goes on, which may remove the file or use
/// it as another segment; `None` if it is gone.
fn read(world: &mut World, name: &str) -> Option<Vec<u8>> {
    let disk = world.disk.clone();
    let file = disk.open(name).ok()?;
    let contents_from = |at: usize| {
        let length = disk.length(&file).expect("nothing fails here");
        let mut bytes = vec![0; usize::try_from(length).expect("short files").saturating_sub(at)];
        disk.read_at(&file, at as u64, &mut bytes).expect("nothing fails here");
        bytes
    };
    let mut read = contents_from(0);
    for _ in 0..world.draw(4) / 2 {
        let at = world.draw(read.len() + 1);
        go_on(world);
        read.truncate(at);
        read.extend(contents_from(at));
    }
    Some(read)
}

/// Copies the directory in an order by chance, or the last names first. A listing may also find
/// files that are new.
fn copy(world: &mut World) -> SimDisk {
    let copied = SimDisk::new();
    let mut names = world.disk.list().expect("nothing fails here");
    names.sort_unstable();
    let in_order = world.draw(3) == 0;
    let mut late_lists = world.draw(4) / 2;
    let mut done = Vec::new();
    while !names.is_empty() {
        let index = if in_order { names.len() - 1 } else { world.draw(names.len()) };
        let name = names.remove(index);
        go_on(world);
        if let Some(bytes) = read(world, &name) {
            copied.put_file(&name, &bytes);
        }
        done.push(name);
        if 0 < late_lists && world.draw(3) == 0 {
            late_lists -= 1;
            names = world.disk.list().expect("nothing fails here");
            names.retain(|name| !done.contains(name));
        }
    }
    copied
}

fn replayed(records: &[Vec<u8>]) -> Contents {
    let mut tables = Tables::new(1);
    let mut replayer = Replayer::new(&mut tables);
    records.iter().for_each(|record| replayer.push(record).expect("nothing fails here"));
    replayer.finish();
    contents(&tables)
}

#[test]
fn a_copy_made_meanwhile_opens_to_one_moment_or_is_refused() {
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let mut world = World::start(SimDisk::new(), seed);
        world.work(30);
        if seed % 3 == 0 {
            world.policy = SyncPolicy::Os;
        }
        for _ in 0..world.draw(4) {
            if world.draw(2) == 0 {
                fill_a_segment(&mut world);
            }
            acknowledge(&mut world);
            save(&mut world);
        }
        (0..world.draw(30)).for_each(|_| world.transact_by_chance());
        acknowledge(&mut world);
        let acknowledged = Lsn(world.writer.next_lsn().0 - 1);
        let copied = copy(&mut world);
        let before = copied.snapshot();
        match World::try_start(copied.clone(), seed) {
            Ok(copy) => {
                opened += 1;
                let last = copy.report.last_lsn;
                assert!(acknowledged <= last, "seed {seed}: {last} of {acknowledged}");
                let records = &world.records[..usize::try_from(last.0).unwrap()];
                assert_eq!(copy.contents(), replayed(records), "seed {seed}: up to {last}");
            }
            Err(message) => {
                refused += 1;
                let is_named =
                    ["segment", "the log ends"].iter().any(|part| message.contains(part));
                assert!(is_named || message.contains("the log is corrupt"), "{message}");
                assert_eq!(copied.snapshot(), before, "seed {seed}: a refused start changed it");
            }
        }
    }
    assert!(SEEDS / 10 < opened && SEEDS / 10 < refused, "{opened} opened, {refused} refused");
}
