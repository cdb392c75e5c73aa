//! The disk cache as a whole, on a real directory, with a file system that fails on demand.

mod eviction;
mod failing_disk;
mod model;
mod page;
mod restart;
mod stores;

use std::{
    ops::Range,
    path::Path,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::runtime::{Handle, Runtime};

use super::{faulty::Faulty, *};
use crate::AccessHint;

/// Directory, options and file system of a cache.
pub(super) struct Scene {
    pub(super) directory: TempDir,
    pub(super) file_system: Faulty,
    pub(super) options: CacheOptions,
}

impl Scene {
    /// Makes a scene with room for so many MiB.
    pub(super) fn new(mib: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = CacheOptions {
            directory: directory.path().join("cache"),
            bytes_max: mib << 20,
            free_bytes_min: 0,
            fill_bytes_max: 0,
            fill_whole_max: 0,
            store_share: StoreShare::default(),
            runtime: runtime(),
        };
        Self { directory, file_system: Faulty::default(), options }
    }

    /// Opens the cache without a maintenance task.
    #[allow(clippy::disallowed_methods, reason = "deadlines of tests are real")]
    pub(super) fn open(&self) -> Arc<Disk> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match Disk::with_file_system(&self.options, Arc::new(self.file_system.clone())) {
                // A child that another test starts at this moment has the lock's descriptor until
                // it executes its program.
                Err(Error::Locked(_)) if Instant::now() < deadline => thread::yield_now(),
                outcome => return outcome.unwrap(),
            }
        }
    }

    /// Opens the cache beside one whose process was killed.
    pub(super) fn open_after_kill(&self, killed: Arc<Disk>) -> Arc<Disk> {
        // A process that ended holds no lock.
        *killed.lock.lock().unwrap() = None;
        drop(killed);
        self.open()
    }

    /// Paths of the cache files.
    pub(super) fn data_files(&self) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(&self.options.directory).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "data"));
        paths.sort();
        paths
    }
}

/// Runtime for the options; nothing runs on it here.
fn runtime() -> Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME
        .get_or_init(|| tokio::runtime::Builder::new_current_thread().build().unwrap())
        .handle()
        .clone()
}

/// Disk space of all files of a directory.
pub(super) fn allocated(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    // A file may be removed between listing and looking.
    entries
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .map(|metadata| metadata.blocks() * 512)
        .sum()
}

/// Makes an object. Its bytes follow from name, version and position.
pub(super) fn object(name: &str, size: u64) -> ObjectMeta {
    ObjectMeta { name: name.into(), size, etag: "\"v1\"".into() }
}

/// Size of so many whole extents and some bytes.
pub(super) fn size(extents: u64, bytes: u64) -> u64 {
    extents * EXTENT_DATA_BYTES + bytes
}

/// Right bytes of an object at a range.
pub(super) fn contents(meta: &ObjectMeta, range: Range<u64>) -> Vec<u8> {
    let seed = u64::from(crc32c::crc32c(format!("{}{}", meta.name, meta.etag).as_bytes()));
    let word =
        |index: u64| (index ^ (seed << 24)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let mut bytes = Vec::new();
    for index in range.start / 8..range.end.div_ceil(8) {
        bytes.extend_from_slice(&word(index).to_le_bytes());
    }
    let skip = usize::try_from(range.start % 8).unwrap();
    bytes.drain(..skip);
    bytes.truncate(usize::try_from(range.end - range.start).unwrap());
    bytes
}

/// Byte range of an extent.
pub(super) fn extent_range(meta: &ObjectMeta, extent: u64) -> Range<u64> {
    let start = extent * EXTENT_DATA_BYTES;
    start..meta.size.min(start + EXTENT_DATA_BYTES)
}

/// Writes an extent with its right bytes.
pub(super) fn write(file: &DiskObject, meta: &ObjectMeta, extent: u64) -> bool {
    file.write(extent, &contents(meta, extent_range(meta, extent)), Entrance::New)
}

/// Reads an extent and checks its bytes. Returns whether it was there.
pub(super) fn read(file: &DiskObject, meta: &ObjectMeta, range: Range<u64>) -> bool {
    let Some(bytes) = file.read(&range, AccessHint::Random) else { return false };
    assert!(bytes == contents(meta, range.clone()), "wrong bytes at {range:?} of {}", meta.name);
    true
}

#[test]
fn written_bytes_are_read_at_every_position() {
    let scene = Scene::new(16);
    let disk = scene.open();
    let meta = object("a", size(2, 5000));
    let file = disk.object("s3://b", &meta);
    assert!(
        file.try_read(&(0..1), AccessHint::Random).is_none()
            && file.read(&(0..1), AccessHint::Random).is_none()
            && !file.is_present(&(0..1))
    );
    for extent in 0..3 {
        assert!(write(&file, &meta, extent), "{extent}");
        assert!(write(&file, &meta, extent), "what is there is kept");
    }
    let ends =
        [0, 1, 4091, 4092, 4093, 8184, 70_000, EXTENT_DATA_BYTES - 1, EXTENT_DATA_BYTES, meta.size];
    for start in ends {
        for end in ends.into_iter().filter(|&end| start <= end) {
            assert!(read(&file, &meta, start..end), "{start}..{end}");
            let now =
                file.try_read(&(start..end), AccessHint::Random).expect("it was just written");
            assert!(now == contents(&meta, start..end), "{start}..{end}");
        }
    }
}

#[test]
fn ranges_that_are_none_of_the_object_are_not_there() {
    let scene = Scene::new(16);
    let disk = scene.open();
    let meta = object("a", size(1, 10));
    let file = disk.object("s3://b", &meta);
    assert!(write(&file, &meta, 0) && write(&file, &meta, 1));
    #[expect(clippy::reversed_empty_ranges, reason = "what a caller may get wrong")]
    let ranges = [0..meta.size + 1, 9..3, u64::MAX - 1..u64::MAX, meta.size + 1..meta.size + 2];
    for range in ranges {
        assert!(
            !file.is_present(&range)
                && file.read(&range, AccessHint::Random).is_none()
                && file.try_read(&range, AccessHint::Random).is_none()
        );
        if meta.size < range.start {
            file.remove(&range);
        }
    }
    assert!(file.is_present(&(0..meta.size)), "nothing was removed");
    assert!(!file.has_extent(2) && !file.has_extent(u64::MAX));
}

#[test]
fn objects_differ_by_store_name_version_and_size() {
    let scene = Scene::new(16);
    let disk = scene.open();
    let meta = object("a", 10_000);
    let file = disk.object("s3://b", &meta);
    assert!(write(&file, &meta, 0));
    assert!(Arc::ptr_eq(&file, &disk.object("s3://b", &meta)));
    let others = [
        ("s3://c", meta.clone()),
        ("s3://b", object("b", 10_000)),
        ("s3://b", object("a", 10_001)),
        ("s3://b", ObjectMeta { etag: "\"v2\"".into(), ..meta.clone() }),
    ];
    for (store, other) in others {
        assert!(
            disk.object(store, &other).read(&(0..10), AccessHint::Random).is_none(),
            "{store} {other:?}"
        );
    }
    drop(file);
    assert!(
        read(&disk.object("s3://b", &meta), &meta, 0..10_000),
        "a new handle finds what is there"
    );
}

#[test]
fn objects_that_the_disk_cannot_hold_are_refused() {
    let scene = Scene::new(16);
    let disk = scene.open();
    let huge = object("huge", crate::disk::limits::OBJECT_BYTES_MAX + 1);
    let file = disk.object("s3://b", &huge);
    assert!(!file.is_writable() && !file.write(0, &[0; EXTENT_DATA_BYTES as usize], Entrance::New));
    assert!(!file.is_present(&(0..1)));
    let named = object(&"n".repeat(crate::disk::limits::KEY_BYTES_MAX), 10);
    assert!(!write(&disk.object("s3://b", &named), &named, 0));
    let empty = object("empty", 0);
    let file = disk.object("s3://b", &empty);
    assert!(!file.write(0, &[], Entrance::New) && !file.is_present(&(0..0)));
    assert_eq!((disk.cache_files().len(), scene.data_files().len()), (0, 0));
}

#[test]
fn a_removed_extent_is_not_there_and_its_space_is_free() {
    let scene = Scene::new(16);
    let disk = scene.open();
    let meta = object("a", size(4, 0));
    let file = disk.object("s3://b", &meta);
    (0..4).for_each(|extent| assert!(write(&file, &meta, extent)));
    let before = allocated(&scene.options.directory);
    file.remove(&(EXTENT_DATA_BYTES - 1..EXTENT_DATA_BYTES + 1));
    assert_eq!(
        (0..4).map(|extent| file.has_extent(extent)).collect::<Vec<_>>(),
        [false, false, true, true]
    );
    assert!(allocated(&scene.options.directory) + (2 << 20) <= before);
    assert!(!read(&file, &meta, 0..10) && read(&file, &meta, extent_range(&meta, 3)));
    assert!(write(&file, &meta, 0) && read(&file, &meta, 0..10));
    file.remove(&(0..meta.size));
    assert!(scene.data_files().is_empty(), "with the last extent the file goes");
    assert_eq!(stats(&disk).bytes, 0);
    assert!(write(&file, &meta, 2) && read(&file, &meta, extent_range(&meta, 2)));
}

#[test]
fn dropped_objects_are_gone_and_their_bytes_are_reported() {
    let scene = Scene::new(32);
    let disk = scene.open();
    let (a, b) = (object("a", size(2, 0)), object("b", size(1, 0)));
    for meta in [&a, &b] {
        assert!(write(&disk.object("s3://b", meta), meta, 0));
    }
    assert_eq!(disk.list().len(), 2);
    let freed = disk.drop_files(|key| key.meta.name == "a");
    assert!((1 << 20..(1 << 20) + (16 << 10)).contains(&freed), "{freed}");
    let left: Vec<ObjectMeta> = disk.list().into_iter().map(|object| object.meta).collect();
    assert_eq!(left, std::slice::from_ref(&b));
    assert!(
        !read(&disk.object("s3://b", &a), &a, 0..10) && read(&disk.object("s3://b", &b), &b, 0..10)
    );
    disk.drop_files(|_| true);
    assert_eq!((stats(&disk).bytes, scene.data_files().len()), (0, 0));
}

#[test]
fn corruption_is_a_miss_is_counted_and_is_mended_by_the_next_write() {
    use std::os::unix::fs::FileExt;
    let scene = Scene::new(16);
    let disk = scene.open();
    let meta = object("a", size(2, 0));
    let file = disk.object("s3://b", &meta);
    (0..2).for_each(|extent| assert!(write(&file, &meta, extent)));
    let data = std::fs::File::options().write(true).open(&scene.data_files()[0]).unwrap();
    data.write_all_at(b"x", 5000).unwrap();
    assert!(read(&file, &meta, 0..4092), "another block");
    assert!(
        file.try_read(&(4092..4093), AccessHint::Random).is_none()
            && !read(&file, &meta, 4092..4093)
    );
    assert!(!file.has_extent(0) && file.has_extent(1));
    assert_eq!(stats(&disk).corrupt, 1);
    assert!(write(&file, &meta, 0) && read(&file, &meta, 0..meta.size));
    // A block at the position of another has a right checksum for its own.
    let block = std::fs::read(&scene.data_files()[0]).unwrap()[..BLOCK_BYTES].to_vec();
    data.write_all_at(&block, BLOCK_BYTES as u64).unwrap();
    assert!(!read(&file, &meta, 4092..4093));
}

#[test]
fn verify_reads_every_block_and_removes_what_is_corrupt() {
    use std::os::unix::fs::FileExt;
    let scene = Scene::new(16);
    let disk = scene.open();
    let meta = object("a", size(1, 100));
    let file = disk.object("s3://b", &meta);
    (0..2).for_each(|extent| assert!(write(&file, &meta, extent)));
    let cache_file = Arc::clone(&disk.cache_files()[0]);
    assert_eq!(disk.verify(&cache_file, 0), (EXTENT_DATA_BYTES, 0));
    assert_eq!(disk.verify(&cache_file, 1), (100, 0));
    let data = std::fs::File::options().write(true).open(&scene.data_files()[0]).unwrap();
    data.write_all_at(&[0xee; 6000], 255 * 4096 - 1000).unwrap();
    assert_eq!(disk.verify(&cache_file, 0), (EXTENT_DATA_BYTES, 2 * BLOCK_DATA_BYTES as u64));
    assert_eq!(disk.verify(&cache_file, 1), (100, 100));
    assert!(!file.has_extent(0) && !file.has_extent(1));
    assert_eq!((stats(&disk).corrupt, stats(&disk).bytes), (3, 0));
    assert_eq!(disk.verify(&cache_file, 0), (0, 0), "it is not there any more");
}

#[test]
fn a_sidecar_is_there_whole_or_not_at_all() {
    let scene = Scene::new(16);
    let disk = scene.open();
    assert_eq!(disk.read_sidecar("s3://b", "index"), None);
    disk.write_sidecar("s3://b", "index", b"first");
    disk.write_sidecar("s3://b", "index", &[7; 100_000]);
    disk.write_sidecar("s3://b", "other", b"");
    assert_eq!(disk.read_sidecar("s3://b", "index").unwrap(), vec![7; 100_000]);
    assert_eq!(disk.read_sidecar("s3://b", "other").unwrap(), b""[..]);
    assert_eq!(stats(&disk).bytes, sidecar::cost(100_017) + sidecar::cost(17));
    disk.close();
    let disk = {
        drop(disk);
        scene.open()
    };
    assert_eq!(disk.read_sidecar("s3://b", "index").unwrap(), vec![7; 100_000]);
    let file_name = StoreKey::of("s3://b").file_name("index");
    let path = scene.options.directory.join(format!("{file_name}.keep"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[50_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(disk.read_sidecar("s3://b", "index"), None);
    disk.retain_sidecars("s3://b", &|name| name == "index");
    assert_eq!(disk.read_sidecar("s3://b", "other"), None);
    disk.retain_sidecars("s3://b", &|_| false);
    assert!(!path.exists());
}

#[test]
fn sidecars_evict_extents_but_never_exceed_the_limit() {
    let scene = Scene::new(8);
    let disk = scene.open();
    disk.open_store(StoreKey::of("s3://b"));
    let meta = object("a", size(20, 0));
    let file = disk.object("s3://b", &meta);
    (0..20).for_each(|extent| assert!(write(&file, &meta, extent)));
    for index in 0..10 {
        disk.write_sidecar("s3://b", &format!("k{index}"), &vec![1; 1 << 20]);
        assert!(stats(&disk).bytes <= 8 << 20);
        assert!(allocated(&scene.options.directory) <= 8 << 20);
    }
    assert_eq!(
        (0..10).filter(|index| disk.read_sidecar("s3://b", &format!("k{index}")).is_some()).count(),
        3
    );
    assert_eq!(stats(&disk).bypassed, None, "no space is no sickness");
    assert!(disk.flush() && write(&file, &meta, 0), "journal and extents have room beside them");
}

#[test]
fn settings_that_hold_nothing_are_refused() {
    let mut scene = Scene::new(16);
    scene.options.bytes_max = crate::disk::limits::DISK_BYTES_MIN - 1;
    let error = Disk::open(&scene.options).unwrap_err();
    assert!(
        matches!(&error, Error::Settings(text) if text.contains("expected at least 2097152")),
        "{error}"
    );
    assert!(!scene.options.directory.exists());
}

impl Disk {
    /// Checks that the bytes of the stores, the journal and what could not be given back are those
    /// of the disk.
    pub(super) fn check_sums(&self) {
        let journal = self.journal.lock().unwrap().length();
        let accounting = self.accounting();
        let of = |cache_file: &Arc<CacheFile>| cache_file.present_cost() + FILE_OVERHEAD_BYTES;
        let files: u64 = accounting.cache_files.values().map(of).sum();
        let unpunched: u64 = accounting
            .unpunched
            .iter()
            .map(|(cache_file, extent)| cache_file.key.extent_cost(*extent))
            .sum();
        let unremoved: u64 = accounting.unremoved.iter().map(|(_, bytes)| bytes).sum();
        accounting.stores.check(files + unpunched);
        let sidecars = accounting.stores.sidecar_bytes();
        assert_eq!(accounting.bytes, files + unpunched + unremoved + sidecars + journal);
    }
}

/// Counters of the disk alone.
pub(super) fn stats(disk: &Disk) -> CacheStats {
    let mut stats = CacheStats::default();
    disk.add_stats(&mut stats);
    stats
}
