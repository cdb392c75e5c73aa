//! Snapshots with random changes: one that loads is equal to what was written, any other is refused
//! by name, and a start takes the one before.

use busload_hostile::{Random, mutate, within};
use busload_io::sim::SimDisk;
use busload_snapshot::{MakeError, Snapshot, load};

use crate::world::{World, contents};

/// Number of changed snapshots.
const SEEDS: u64 = 800;
/// Most memory that a decompressed block takes for a byte of the file: repeated keys and values
/// compress well.
const MEMORY_FACTOR: usize = 400;

#[test]
fn a_changed_snapshot_is_equal_or_refused() {
    let mut world = World::start(SimDisk::new(), 11);
    world.work(600);
    let older = world.make().unwrap().unwrap();
    let expected_older = world.contents();
    world.work(300);
    let newer = world.make().unwrap().unwrap();
    let expected = world.contents();
    let whole = world.disk.contents(&newer.name).unwrap();
    let mut equal = 0;
    for seed in 0..SEEDS {
        let mut bytes = whole.clone();
        mutate(&mut bytes, &mut Random(seed));
        let what = format!("seed {seed}");
        let disk = SimDisk::new();
        disk.put_file(&older.name, &world.disk.contents(&older.name).unwrap());
        disk.put_file(&newer.name, &bytes);
        let opened = within(MEMORY_FACTOR * bytes.len(), &what, || {
            let snapshot = Snapshot::open(&disk, newer.lsn)?;
            snapshot.verify(&disk).map(|()| snapshot)
        });
        let loaded = Snapshot::open(&disk, newer.lsn)
            .map_err(MakeError::from)
            .and_then(|snapshot| load(&disk, &snapshot, &mut |_| {}));
        assert_eq!(opened.is_ok(), loaded.is_ok(), "{what}: {:?}", opened.err());
        match loaded {
            Ok(loaded) => {
                assert_eq!(bytes, whole, "{what}: a change that no checksum covers");
                assert_eq!(contents(&loaded.tables), expected, "{what}");
                equal += 1;
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(&newer.name), "{what}: {message}");
                if seed % 32 == 0 {
                    let snapshot = Snapshot::open(&disk, older.lsn).unwrap();
                    let loaded = load(&disk, &snapshot, &mut |_| {}).unwrap();
                    assert_eq!(contents(&loaded.tables), expected_older, "{what}");
                }
            }
        }
    }
    assert!(equal < SEEDS / 10, "the changes have to change something: {equal} are equal");
}
