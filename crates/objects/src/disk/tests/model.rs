//! Any operations in any order, with faults, corruption and restarts between them, against what the
//! objects hold.

use proptest::{prelude::*, sample::select};

use super::*;
use crate::disk::faulty::{FAULTS, Fault};

#[derive(Clone, Debug)]
enum Operation {
    Write { object: usize, extent: u64 },
    Read { object: usize, start: u64, length: u64 },
    Remove { object: usize, start: u64, length: u64 },
    Drop { object: usize },
    WriteSidecar { name: usize, length: usize },
    ReadSidecar { name: usize },
    RetainSidecars { name: usize },
    Flush,
    Check,
    Close,
    Kill,
    Fail { calls: u64, fault: Fault },
    Heal,
    Corruption { position: u64 },
    Vanish,
    OpenStore { store: usize },
    CloseStore { store: usize },
}

/// Objects with even numbers are of the first store, the others of the second.
const STORES: [&str; 2] = ["s3://a", "s3://b"];

fn store_of(object: usize) -> &'static str {
    STORES[object % 2]
}

fn metas() -> [ObjectMeta; 4] {
    [
        object("a", size(3, 1000)),
        object("b", 1),
        object("c", size(1, 0)),
        object("d", size(7, 4092 * 9)),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let object = 0..4_usize;
    prop_oneof![
        12 => (object.clone(), 0..8_u64)
            .prop_map(|(object, extent)| Operation::Write { object, extent }),
        12 => (object.clone(), 0..size(8, 0), 0..50_000_u64)
            .prop_map(|(object, start, length)| Operation::Read { object, start, length }),
        2 => (object.clone(), 0..size(8, 0), 0..2_000_000_u64)
            .prop_map(|(object, start, length)| Operation::Remove { object, start, length }),
        1 => object.prop_map(|object| Operation::Drop { object }),
        1 => (0..3_usize, 0..20_000_usize)
            .prop_map(|(name, length)| Operation::WriteSidecar { name, length }),
        1 => (0..3_usize).prop_map(|name| Operation::ReadSidecar { name }),
        1 => (0..3_usize).prop_map(|name| Operation::RetainSidecars { name }),
        3 => Just(Operation::Flush),
        3 => Just(Operation::Check),
        1 => Just(Operation::Close),
        1 => Just(Operation::Kill),
        3 => (0..60_u64, select(&FAULTS[..]))
            .prop_map(|(calls, fault)| Operation::Fail { calls, fault }),
        2 => Just(Operation::Heal),
        1 => any::<u64>().prop_map(|position| Operation::Corruption { position }),
        1 => Just(Operation::Vanish),
        1 => (0..2_usize).prop_map(|store| Operation::OpenStore { store }),
        1 => (0..2_usize).prop_map(|store| Operation::CloseStore { store }),
    ]
}

/// State of one run.
struct Run {
    scene: Scene,
    disk: Arc<Disk>,
    objects: Vec<Arc<DiskObject>>,
    metas: [ObjectMeta; 4],
}

impl Run {
    fn new() -> Self {
        let mut scene = Scene::new(8);
        // One floor fits half of the disk.
        scene.options.store_share = StoreShare { floor_bytes: 3 << 20, cap_bytes: 6 << 20 };
        let disk = scene.open();
        let mut run = Self { scene, disk, objects: Vec::new(), metas: metas() };
        run.open_objects();
        run
    }

    fn open_objects(&mut self) {
        let metas = self.metas.iter().enumerate();
        self.objects =
            metas.map(|(object, meta)| self.disk.object(store_of(object), meta)).collect();
    }

    fn reopen(&mut self) {
        self.objects.clear();
        self.disk = self.scene.open();
        self.open_objects();
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Write { object, extent } => self.write(object, extent),
            Operation::Read { object, start, length } => self.read(object, start, length),
            Operation::Remove { object, start, length } => {
                self.objects[object].remove(&(start..start + length))
            }
            Operation::Drop { object } => {
                let name = self.metas[object].name.clone();
                self.disk.drop_files(|key| key.meta.name == name);
                assert!(!self.objects[object].is_present(&(0..1)), "dropped");
            }
            Operation::WriteSidecar { name, length } => {
                let bytes = vec![name as u8; length];
                self.disk.write_sidecar(store_of(name), &name.to_string(), &bytes)
            }
            Operation::ReadSidecar { name } => {
                let kept = self.disk.read_sidecar(store_of(name), &name.to_string());
                assert!(kept.is_none_or(|bytes| bytes.iter().all(|&byte| byte == name as u8)));
            }
            Operation::RetainSidecars { name } => {
                self.disk.retain_sidecars(store_of(name), &|other| other == name.to_string());
            }
            Operation::Flush => drop(self.disk.flush()),
            Operation::Check => self.disk.check(),
            Operation::Close => {
                self.disk.close();
                self.reopen();
            }
            Operation::Kill => {
                // A process that ended holds no lock.
                *self.disk.lock.lock().unwrap() = None;
                self.reopen();
            }
            Operation::Fail { calls, fault } => self.scene.file_system.fail_after(calls, fault),
            Operation::Heal => self.scene.file_system.heal(),
            Operation::Corruption { position } => self.corrupt(position),
            Operation::Vanish => self.vanish(),
            Operation::OpenStore { store } => self.disk.open_store(StoreKey::of(STORES[store])),
            Operation::CloseStore { store } => self.disk.close_store(StoreKey::of(STORES[store])),
        }
    }

    fn write(&self, object: usize, extent: u64) {
        let meta = &self.metas[object];
        if extent * EXTENT_DATA_BYTES < meta.size {
            write(&self.objects[object], meta, extent);
        }
    }

    fn read(&self, object: usize, start: u64, length: u64) {
        let meta = &self.metas[object];
        let start = start.min(meta.size - 1);
        let range = start..meta.size.min(start + length);
        if let Some(bytes) = self.objects[object].try_read(&range, AccessHint::Random) {
            assert!(bytes == contents(meta, range.clone()), "{range:?} of {}", meta.name);
        }
        read(&self.objects[object], meta, range);
    }

    fn corrupt(&self, position: u64) {
        use std::os::unix::fs::FileExt;
        let paths = if self.scene.options.directory.exists() {
            self.scene.data_files()
        } else {
            Vec::new()
        };
        let Some(path) = paths.first() else { return };
        let file = std::fs::File::options().write(true).open(path).unwrap();
        // A file whose making failed is empty.
        let Some(offset) = position.checked_rem(file.metadata().unwrap().len()) else { return };
        file.write_all_at(&[position.to_le_bytes()[7]], offset).unwrap();
    }

    fn vanish(&self) {
        let _ = std::fs::remove_dir_all(&self.scene.options.directory);
    }

    fn check(&self) {
        let stats = stats(&self.disk);
        assert!(stats.bytes <= 8 << 20, "{stats:?}");
        let present: usize = self
            .disk
            .cache_files()
            .iter()
            .map(|cache_file| cache_file.extents.present().count())
            .sum();
        assert_eq!(stats.extents, present as u64);
        self.disk.check_sums();
        for store in STORES {
            assert!(self.object_bytes(store) <= (6 << 20) + 4 * FILE_OVERHEAD_BYTES);
        }
    }

    fn object_bytes(&self, store: &str) -> u64 {
        self.disk.accounting().stores.object_bytes(StoreKey::of(store))
    }

    /// Bytes below which nobody else may bring a store now.
    fn spared_bytes(&self, store: &str) -> u64 {
        let has_floor = self.disk.accounting().stores.has_floor(StoreKey::of(store));
        if has_floor { self.object_bytes(store).min(3 << 20) } else { 0 }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]

    /// Never a wrong byte, never a panic, never more than the limit, and in the end it works again.
    #[test]
    fn a_cache_is_right_or_silent(operations in proptest::collection::vec(operation(), 1..120)) {
        let mut run = Run::new();
        for operation in operations {
            run.apply(operation);
            run.check();
        }
        run.scene.file_system.heal();
        run.disk.check();
        run.disk.check();
        failing_disk::check_while_locked(&run.disk);
        let after = stats(&run.disk);
        prop_assert_eq!(after.bypassed, None);
        // The index lists extents that the test corrupted and nobody read since.
        run.objects[0].remove(&(0..run.metas[0].size));
        run.write(0, 1);
        prop_assert!(read(&run.objects[0], &run.metas[0], extent_range(&run.metas[0], 1)));
        run.check();
    }

    /// On a healthy disk no store brings another one below its floor.
    #[test]
    fn a_floor_holds_against_other_stores(
        operations in proptest::collection::vec(
            prop_oneof![
                16 => (0..4_usize, 0..8_u64)
                    .prop_map(|(object, extent)| Operation::Write { object, extent }),
                2 => (0..3_usize, 0..2_000_000_usize)
                    .prop_map(|(name, length)| Operation::WriteSidecar { name, length }),
                1 => Just(Operation::Close),
                3 => (0..2_usize).prop_map(|store| Operation::OpenStore { store }),
                1 => (0..2_usize).prop_map(|store| Operation::CloseStore { store }),
            ],
            1..200,
        ),
    ) {
        let mut run = Run::new();
        for operation in operations {
            let other = match operation {
                Operation::Write { object, .. } => Some(STORES[(object + 1) % 2]),
                _ => None,
            };
            let spared = other.map_or(0, |store| run.spared_bytes(store));
            run.apply(operation);
            prop_assert!(other.is_none_or(|store| spared <= run.object_bytes(store)));
            run.check();
        }
        let bytes = STORES.map(|store| run.disk.store_bytes(store));
        run.apply(Operation::Close);
        prop_assert_eq!(STORES.map(|store| run.disk.store_bytes(store)), bytes);
    }

    /// A healthy disk with room has what was written last.
    #[test]
    fn a_healthy_cache_keeps_what_was_written(
        writes in proptest::collection::vec((0..4_usize, 0..8_u64), 1..40),
        restarts in 1..4_usize,
    ) {
        let mut run = Run::new();
        for (object, extent) in writes {
            if extent * EXTENT_DATA_BYTES < run.metas[object].size {
                let meta = &run.metas[object];
                prop_assert!(write(&run.objects[object], meta, extent));
                prop_assert!(read(&run.objects[object], meta, extent_range(meta, extent)));
            }
            run.check();
        }
        let before = run.disk.list();
        for _ in 0..restarts {
            run.apply(Operation::Close);
            prop_assert_eq!(run.disk.list(), before.clone());
        }
        let used = allocated(&run.scene.options.directory);
        prop_assert!(used <= stats(&run.disk).bytes + 8192, "{} of {:?}", used, stats(&run.disk));
    }
}
