//! The disk cache: self-checking blocks in cache files, an index of their extents, the journal,
//! space accounting and S3-FIFO eviction.
//!
//! ```text
//!           DiskObject                              Accounting (one lock)
//!  read  -> is it there? (a byte each, no lock)     bytes, S3-FIFO, busy extents
//!           pread, check, mark      write, evict ->       |
//!             |                          |                | changes
//!             v                          v                v
//!   directory/0000002a.data  pwrite, punch a hole   maintenance task --> directory/journal
//!             /KEY-NAME.keep sidecars                 flush, check, retry
//!             /lock          one process only
//! ```
//!
//! * **Truth** is in the blocks: each has a checksum that no other block, position, generation of
//!   the file or hole has. Index and journal may be wrong about what is there, in both directions,
//!   at any time, without a wrong byte: eviction needs to know nothing of readers, and the cache
//!   never syncs data.
//! * **Order of a write**: reserve space, write the blocks, mark the extent present, journal it.
//!   **Of an eviction**: mark the extent absent, punch its hole, release its space.
//! * **Failure**: the cache counts what fails and bypasses the disk for a while ([`health`]).
//!   Nothing is an error to a reader.

mod accounting;
mod block;
mod cache_file;
mod extents;
mod file_system;
mod ghosts;
mod handles;
mod health;
mod journal;
mod journal_file;
mod limits;
mod load;
mod maintenance;
mod object;
mod read;
mod s3_fifo;
mod sidecar;
mod space;
mod store_list;
mod stores;
mod threads;

#[cfg(test)]
mod faulty;
#[cfg(test)]
mod tests;

use std::{
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use bytes::Bytes;
use tokio::runtime::Handle;

pub(crate) use self::load::check_unused;
use self::{
    accounting::Accounting,
    file_system::{FileSystem, OpenFile, OpenMode, RealFileSystem},
    handles::Handles,
    health::Health,
    journal_file::JournalFile,
    maintenance::Notifier,
    read::{ReadMode, ReadOutcome},
    threads::DiskThreads,
};
pub(crate) use self::{
    cache_file::{CacheFile, ObjectKey},
    limits::FLOORS_SHARE,
    object::DiskObject,
    s3_fifo::Entrance,
    stores::StoreKey,
    threads::DiskAccess,
};
use crate::{
    CacheOptions, CacheStats, CachedObject, Error, ObjectMeta, StoreShare,
    disk::limits::{DISK_BYTES_MIN, FILE_OVERHEAD_BYTES},
};

/// Bytes of a block on disk, checksum included.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Bytes of an object that a block holds; its CRC-32C follows.
pub(crate) const BLOCK_DATA_BYTES: usize = BLOCK_BYTES - 4;
/// Blocks of an extent: 1 MiB of disk.
pub(crate) const EXTENT_BLOCKS: usize = 256;
/// Bytes of an object that an extent holds.
pub(crate) const EXTENT_DATA_BYTES: u64 = (BLOCK_DATA_BYTES * EXTENT_BLOCKS) as u64;

/// The disk cache of one directory.
#[derive(Debug)]
pub(crate) struct Disk {
    directory: PathBuf,
    bytes_max: u64,
    free_bytes_min: u64,
    file_system: Arc<dyn FileSystem>,
    accounting: Mutex<Accounting>,
    /// Locked before the accounting, never under it.
    journal: Mutex<JournalFile>,
    /// Held while sidecars are written or removed.
    sidecar_writes: Mutex<()>,
    /// Lock file; none while the directory is not ours.
    lock: Mutex<Option<Box<dyn OpenFile>>>,
    health: Health,
    handles: Handles,
    notifier: Arc<Notifier>,
    threads: DiskThreads,
    /// Period of the S3-FIFO queues, for readers.
    tick: AtomicU8,
    /// True if the file system can punch holes.
    can_punch: AtomicBool,
    /// True while too little of the file system is free and the cache has nothing to evict for it.
    is_low: AtomicBool,
    is_closed: AtomicBool,
    evicted: AtomicU64,
    corrupt: AtomicU64,
}

impl Disk {
    /// Opens a directory and starts its maintenance task. See [`crate::Cache::open`].
    pub(crate) fn open(options: &CacheOptions) -> Result<Arc<Self>, Error> {
        let disk = Self::with_file_system(options, Arc::new(RealFileSystem))?;
        maintenance::start(&disk, &options.runtime);
        Ok(disk)
    }

    /// Opens a directory of any file system, without a maintenance task.
    fn with_file_system(
        options: &CacheOptions,
        file_system: Arc<dyn FileSystem>,
    ) -> Result<Arc<Self>, Error> {
        check_options(options)?;
        let extents_max = usize::try_from(options.bytes_max >> 20).unwrap_or(usize::MAX >> 8);
        let disk = Self {
            directory: options.directory.clone(),
            bytes_max: options.bytes_max,
            free_bytes_min: options.free_bytes_min,
            file_system,
            accounting: Mutex::new(Accounting::new(
                options.bytes_max,
                extents_max,
                options.store_share,
            )),
            journal: Mutex::new(JournalFile::new(options.bytes_max)),
            sidecar_writes: Mutex::new(()),
            lock: Mutex::new(None),
            health: Health::new(options.directory.clone()),
            handles: Handles::new(),
            notifier: Arc::new(Notifier::default()),
            threads: DiskThreads::new(),
            tick: AtomicU8::new(0),
            can_punch: AtomicBool::new(true),
            is_low: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            evicted: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
        };
        disk.load()?;
        Ok(Arc::new(disk))
    }

    /// Returns the part on disk of an object. Its file is made when its first extent is written.
    pub(crate) fn object(self: &Arc<Self>, store: &str, meta: &ObjectMeta) -> Arc<DiskObject> {
        let key = ObjectKey { store: store.to_owned(), meta: meta.clone() };
        self.accounting().object(key, |key| Arc::new(DiskObject::new(Arc::clone(self), key)))
    }

    /// Runs work that blocks for the device on a thread of this disk's share. None: the runtime
    /// ended before.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        runtime: &Handle,
        access: DiskAccess,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.threads.run(runtime, access, work).await
    }

    /// Returns whether the disk takes writes now.
    pub(crate) fn is_writable(&self) -> bool {
        self.health.is_writable() && !self.is_closed.load(Acquire)
    }

    /// Bytes of objects that fit the share of their store, so that not even a single object evicts
    /// itself.
    pub(crate) fn data_bytes_max(&self) -> u64 {
        let bytes_max = self.bytes_max.min(self.accounting().stores.share().cap_bytes);
        // Checksums (a thousandth), bookkeeping and the journal take less than a hundredth
        // together.
        (bytes_max - bytes_max / 64).saturating_sub(DISK_BYTES_MIN / 2)
    }

    fn accounting(&self) -> MutexGuard<'_, Accounting> {
        self.accounting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all cache files.
    pub(crate) fn cache_files(&self) -> Vec<Arc<CacheFile>> {
        self.accounting().cache_files.values().cloned().collect()
    }

    /// Lists the objects of which something is on disk.
    pub(crate) fn list(&self) -> Vec<CachedObject> {
        let objects = self.cache_files().into_iter().map(|cache_file| CachedObject {
            store: cache_file.key.store.clone(),
            meta: cache_file.key.meta.clone(),
            present: cache_file.present_data_bytes(),
        });
        objects.filter(|object| 0 < object.present).collect()
    }

    /// Removes the objects for which the predicate is true. Returns the bytes freed.
    pub(crate) fn drop_files(&self, is_meant: impl Fn(&ObjectKey) -> bool) -> u64 {
        let cache_files = self.cache_files();
        let freed = cache_files
            .iter()
            .filter(|cache_file| is_meant(&cache_file.key))
            .map(|cache_file| self.drop_cache_file(cache_file))
            .sum();
        self.notifier.notify();
        freed
    }

    /// Counts a handle of a store. See [`crate::Cache::open_store`].
    pub(crate) fn open_store(&self, key: StoreKey) {
        self.accounting().stores.open(key);
    }

    /// Drops a handle of a store.
    pub(crate) fn close_store(&self, key: StoreKey) {
        self.accounting().stores.close(key);
    }

    /// Changes the share of each store.
    pub(crate) fn set_store_share(&self, share: StoreShare) {
        self.accounting().stores.set_share(self.bytes_max, share);
    }

    /// Bytes of a store's objects and sidecars.
    pub(crate) fn store_bytes(&self, url: &str) -> u64 {
        self.accounting().stores.bytes(StoreKey::of(url))
    }

    /// Reads and checks blocks; waits for the device.
    fn read(&self, cache_file: &Arc<CacheFile>, range: &Range<u64>) -> Option<Bytes> {
        let file = self.handle(cache_file)?;
        match read::read(cache_file, file.as_ref().as_ref(), range, ReadMode::Wait) {
            ReadOutcome::Read(bytes) => {
                self.health.read_went_well();
                Some(bytes)
            }
            ReadOutcome::WouldWait | ReadOutcome::Evicted => None,
            ReadOutcome::Wrong { block, is_hole } => {
                self.forget_wrong(cache_file, extent_of_block(block), u64::from(!is_hole));
                None
            }
            ReadOutcome::Failed(error) => {
                self.health.read_failed(&error);
                object::extents(range).for_each(|extent| self.remove_extent(cache_file, extent));
                None
            }
        }
    }

    /// Checks every block of an extent and removes the extent if one is wrong. Returns the bytes of
    /// the object that it read, and those in wrong blocks.
    pub(crate) fn verify(&self, cache_file: &Arc<CacheFile>, extent: u32) -> (u64, u64) {
        let Some(file) = self.handle(cache_file).filter(|_| cache_file.extents.is_present(extent))
        else {
            return (0, 0);
        };
        let bytes = cache_file.key.extent_data_bytes(extent.into());
        let evictions = cache_file.evictions.load(Acquire);
        match read::check_extent(cache_file, file.as_ref().as_ref(), extent) {
            Ok((0, 0)) => (bytes, 0),
            // It was evicted while it was read.
            Ok(_) if cache_file.evictions.load(Acquire) != evictions => (bytes, 0),
            Ok((corrupt, holes)) => {
                self.forget_wrong(cache_file, extent, corrupt);
                (bytes, bytes.min((corrupt + holes) * BLOCK_DATA_BYTES as u64))
            }
            Err(error) => {
                self.health.read_failed(&error);
                self.remove_extent(cache_file, extent);
                (bytes, bytes)
            }
        }
    }

    /// Removes an extent with wrong blocks. Holes are not corruption: a crash leaves them.
    fn forget_wrong(&self, cache_file: &Arc<CacheFile>, extent: u32, corrupt: u64) {
        if 0 < corrupt {
            self.corrupt.fetch_add(corrupt, Relaxed);
            let ObjectKey { store, meta } = &*cache_file.key;
            log::warn!(
                "cache {}: corrupt on disk: extent {extent} of {} of {store}; read again from the \
                 store",
                self.directory.display(),
                meta.name
            );
        }
        self.remove_extent(cache_file, extent);
    }

    /// Returns the open file of a cache file, or none if it cannot be opened.
    fn handle(&self, cache_file: &Arc<CacheFile>) -> Option<Arc<Box<dyn OpenFile>>> {
        if let Some(file) = cache_file.handle.load_full() {
            return Some(file);
        }
        let path = cache_file.path(&self.directory);
        let opened =
            self.file_system.open(&path, OpenMode::Write).or_else(|error| match error.kind() {
                std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
                    self.file_system.open(&path, OpenMode::Read)
                }
                _ => Err(error),
            });
        match opened {
            Ok(file) => {
                self.handles.keep(cache_file, file);
                self.close_if_gone(cache_file)
            }
            Err(error) => {
                self.open_failed(cache_file, &error);
                None
            }
        }
    }

    /// Closes a file that was dropped while it was opened.
    fn close_if_gone(&self, cache_file: &CacheFile) -> Option<Arc<Box<dyn OpenFile>>> {
        let file = cache_file.handle.load_full();
        if cache_file.is_gone.load(Acquire) {
            cache_file.handle.store(None);
        }
        file
    }

    fn open_failed(&self, cache_file: &Arc<CacheFile>, error: &std::io::Error) {
        // Somebody has removed the file.
        if error.kind() == std::io::ErrorKind::NotFound {
            self.health.count_error();
            self.drop_cache_file(cache_file);
            return;
        }
        self.health
            .read_failed(&format_args!("{}: {error}", cache_file.path(&self.directory).display()));
    }

    /// Sets all fields but those of [`crate::cache::CacheContext::add_stats`].
    pub(crate) fn add_stats(&self, stats: &mut CacheStats) {
        let accounting = self.accounting();
        stats.bytes = accounting.bytes;
        stats.bytes_max = self.bytes_max;
        stats.objects = accounting
            .cache_files
            .values()
            .filter(|cache_file| !cache_file.extents.is_empty())
            .count() as u64;
        stats.extents = accounting.extents;
        drop(accounting);
        stats.evicted = self.evicted.load(Relaxed);
        stats.corrupt = self.corrupt.load(Relaxed);
        stats.disk_errors = self.health.errors();
        stats.bypassed = self.health.reason().or_else(|| self.low());
    }

    /// Writes the rest of the journal and unlocks the directory. Reads go on.
    pub(crate) fn close(&self) {
        if self.is_closed.swap(true, Release) {
            return;
        }
        self.notifier.stop();
        self.flush();
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.notifier.stop();
    }
}

fn check_options(options: &CacheOptions) -> Result<(), Error> {
    if options.bytes_max < DISK_BYTES_MIN {
        let bytes_max = options.bytes_max;
        return Err(Error::Settings(format!(
            "disk: {bytes_max} bytes hold nothing; expected at least {DISK_BYTES_MIN}, or no disk \
             at all"
        )));
    }
    Ok(())
}

fn extent_of_block(block: u64) -> u32 {
    u32::try_from(block / EXTENT_BLOCKS as u64).expect("limits say so")
}

const _: () = assert!(FILE_OVERHEAD_BYTES < DISK_BYTES_MIN);
