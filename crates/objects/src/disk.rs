//! Files of the cache: self-checking blocks, which extents are there, the journal, eviction.
//!
//! ```text
//!           DiskFile (one object)                       Accounting (one lock)
//!  read  -> is it there? (a byte each, no lock)         bytes, queues, who is busy with what
//!           pread, check, mark          write, evict ->       |
//!             |                              |                | changes
//!             v                              v                v
//!   directory/0000002a.data  pwrite, punch a hole      Maintenance (a task)   --> directory/journal
//!             /NAME.keep     small things by name         flush, look, try again
//!             /lock          one process only
//! ```
//!
//! * **Truth** is in the blocks: each has a checksum that no other block, place, life of the file
//!   or hole has. What memory and journal say of presence may be wrong in both directions, at any
//!   time, without a wrong byte: eviction needs to know nothing of readers, and no data is ever
//!   synced.
//! * **Order of a write**: space is set aside, blocks are written, the extent is shown to readers,
//!   the journal learns of it. **Of an eviction**: readers are shown nothing any more, space is
//!   given back, the bytes are free to be set aside.
//! * **Failure**: what fails is counted and leads to a pause in which the disk is left alone
//!   ([`health`]). Nothing is an error to a reader.

mod accounting;
mod block;
mod body;
mod extents;
mod file;
mod files;
mod ghosts;
mod handles;
mod health;
mod journal;
mod kept;
mod load;
mod log_file;
mod maintenance;
mod queues;
mod read;
mod space;
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
    body::Key,
    files::{Files, Open, OpenFile, System},
    handles::Handles,
    health::Health,
    log_file::LogFile,
    maintenance::Notifier,
    read::{How, Outcome},
    threads::DiskThreads,
};
pub(crate) use self::{
    body::Body,
    file::{Count, DiskFile},
    queues::Entrance,
    threads::Access,
};
use crate::{
    CacheOptions, CacheStats, CachedObject, Error, ObjectMeta,
    limits::{DISK_BYTES_MIN, FILE_OVERHEAD_BYTES},
};

/// Bytes of a block on disk, checksum included.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Bytes of an object that a block holds; its CRC-32C follows.
pub(crate) const BLOCK_DATA_BYTES: usize = BLOCK_BYTES - 4;
/// Blocks of an extent: 1 MiB of disk.
pub(crate) const EXTENT_BLOCKS: usize = 256;
/// Bytes of an object that an extent holds.
pub(crate) const EXTENT_DATA_BYTES: u64 = (BLOCK_DATA_BYTES * EXTENT_BLOCKS) as u64;

/// The directory.
#[derive(Debug)]
pub(crate) struct Disk {
    directory: PathBuf,
    bytes_max: u64,
    free_bytes_min: u64,
    files: Arc<dyn Files>,
    accounting: Mutex<Accounting>,
    /// Taken before the accounting's lock, never under it.
    journal: Mutex<LogFile>,
    /// Held while something is kept by name.
    keeping: Mutex<()>,
    /// None: the directory is not ours (yet).
    lock: Mutex<Option<Box<dyn OpenFile>>>,
    health: Health,
    handles: Handles,
    notifier: Arc<Notifier>,
    threads: DiskThreads,
    /// The queues' period, for readers.
    tick: AtomicU8,
    /// Whether the file system takes holes.
    can_punch: AtomicBool,
    /// Whether too little of the file system is free and nothing can be given up for it.
    is_low: AtomicBool,
    is_closed: AtomicBool,
    evicted: AtomicU64,
    corrupt: AtomicU64,
}

impl Disk {
    /// See [`crate::Cache::open`].
    pub(crate) fn open(options: &CacheOptions) -> Result<Arc<Self>, Error> {
        let disk = Self::with_files(options, Arc::new(System))?;
        maintenance::start(&disk, &options.runtime);
        Ok(disk)
    }

    /// On a file system of its own, and with nobody who looks after it.
    fn with_files(options: &CacheOptions, files: Arc<dyn Files>) -> Result<Arc<Self>, Error> {
        check_options(options)?;
        let room = usize::try_from(options.bytes_max >> 20).unwrap_or(usize::MAX >> 8);
        let disk = Self {
            directory: options.directory.clone(),
            bytes_max: options.bytes_max,
            free_bytes_min: options.free_bytes_min,
            files,
            accounting: Mutex::new(Accounting::new(options.bytes_max, room)),
            journal: Mutex::new(LogFile::new(options.bytes_max)),
            keeping: Mutex::new(()),
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

    /// Of a version of an object of a store; made when its first extent is written.
    pub(crate) fn file(self: &Arc<Self>, store: &str, meta: &ObjectMeta) -> Arc<DiskFile> {
        let key = Key { store: store.to_owned(), meta: meta.clone() };
        self.accounting().file(key, |key| Arc::new(DiskFile::new(Arc::clone(self), key)))
    }

    /// Runs work that blocks for the device where it holds up nobody but this disk. None: the
    /// runtime ended before.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        runtime: &Handle,
        access: Access,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.threads.run(runtime, access, work).await
    }

    /// Whether writes have a chance now.
    pub(crate) fn is_writable(&self) -> bool {
        self.health.is_writable() && !self.is_closed.load(Acquire)
    }

    /// Bytes of objects that fit at most, so that not even an object alone drives itself out.
    pub(crate) fn data_bytes_max(&self) -> u64 {
        // What is not data: checksums (a thousandth), bookkeeping and the journal, which is less
        // than a hundredth together.
        (self.bytes_max - self.bytes_max / 64).saturating_sub(DISK_BYTES_MIN / 2)
    }

    fn accounting(&self) -> MutexGuard<'_, Accounting> {
        self.accounting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All data files.
    pub(crate) fn bodies(&self) -> Vec<Arc<Body>> {
        self.accounting().bodies.values().cloned().collect()
    }

    /// Everything of which something is on disk.
    pub(crate) fn list(&self) -> Vec<CachedObject> {
        let objects = self.bodies().into_iter().map(|body| CachedObject {
            store: body.key.store.clone(),
            meta: body.key.meta.clone(),
            present: body.present_data_bytes(),
        });
        objects.filter(|object| 0 < object.present).collect()
    }

    /// Removes the objects of which the predicate is true. Returns bytes freed.
    pub(crate) fn drop_files(&self, is_meant: impl Fn(&ObjectMeta) -> bool) -> u64 {
        let bodies = self.bodies();
        let freed = bodies
            .iter()
            .filter(|body| is_meant(&body.key.meta))
            .map(|body| self.drop_body(body))
            .sum();
        self.notifier.notify();
        freed
    }

    /// Reads and checks; blocks for the device.
    fn read(&self, body: &Arc<Body>, range: &Range<u64>) -> Option<Bytes> {
        let file = self.handle(body)?;
        match read::read(body, file.as_ref().as_ref(), range, How::Wait) {
            Outcome::Read(bytes) => {
                self.health.read_went_well();
                Some(bytes)
            }
            Outcome::WouldWait | Outcome::Evicted => None,
            Outcome::Wrong { block, is_hole } => {
                self.forget_wrong(body, extent_of_block(block), u64::from(!is_hole));
                None
            }
            Outcome::Failed(error) => {
                self.health.read_failed(&error);
                file::extents(range).for_each(|extent| self.remove_extent(body, extent));
                None
            }
        }
    }

    /// Reads every block of an extent and forgets it if one is wrong. Returns bytes of the object
    /// read, and bytes of those in wrong blocks.
    pub(crate) fn verify(&self, body: &Arc<Body>, extent: u32) -> (u64, u64) {
        let Some(file) = self.handle(body).filter(|_| body.extents.is_present(extent)) else {
            return (0, 0);
        };
        let bytes = body.key.extent_data_bytes(extent.into());
        let evictions = body.evictions.load(Acquire);
        match read::check_extent(body, file.as_ref().as_ref(), extent) {
            Ok((0, 0)) => (bytes, 0),
            // Its space was given back while it was read.
            Ok(_) if body.evictions.load(Acquire) != evictions => (bytes, 0),
            Ok((corrupt, holes)) => {
                self.forget_wrong(body, extent, corrupt);
                (bytes, bytes.min((corrupt + holes) * BLOCK_DATA_BYTES as u64))
            }
            Err(error) => {
                self.health.read_failed(&error);
                self.remove_extent(body, extent);
                (bytes, bytes)
            }
        }
    }

    /// Blocks of an extent were wrong; holes are no corruption but what a crash leaves.
    fn forget_wrong(&self, body: &Arc<Body>, extent: u32, corrupt: u64) {
        if 0 < corrupt {
            self.corrupt.fetch_add(corrupt, Relaxed);
            let Key { store, meta } = &*body.key;
            log::warn!(
                "cache {}: corrupt on disk: extent {extent} of {} of {store}; read again from the store",
                self.directory.display(),
                meta.name
            );
        }
        self.remove_extent(body, extent);
    }

    /// The open file of a body. None: it cannot be had.
    fn handle(&self, body: &Arc<Body>) -> Option<Arc<Box<dyn OpenFile>>> {
        if let Some(file) = body.handle.load_full() {
            return Some(file);
        }
        let path = body.path(&self.directory);
        let opened = self.files.open(&path, Open::Write).or_else(|error| match error.kind() {
            std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
                self.files.open(&path, Open::Read)
            }
            _ => Err(error),
        });
        match opened {
            Ok(file) => {
                self.handles.keep(body, file);
                self.close_if_gone(body)
            }
            Err(error) => {
                self.open_failed(body, &error);
                None
            }
        }
    }

    /// A body that was given up while its file was opened keeps no file open.
    fn close_if_gone(&self, body: &Body) -> Option<Arc<Box<dyn OpenFile>>> {
        let file = body.handle.load_full();
        if body.is_gone.load(Acquire) {
            body.handle.store(None);
        }
        file
    }

    fn open_failed(&self, body: &Arc<Body>, error: &std::io::Error) {
        // Somebody has removed the file.
        if error.kind() == std::io::ErrorKind::NotFound {
            self.health.count_error();
            self.drop_body(body);
            return;
        }
        self.health.read_failed(&format_args!("{}: {error}", body.path(&self.directory).display()));
    }

    /// Adds what it knows.
    pub(crate) fn add_stats(&self, stats: &mut CacheStats) {
        let accounting = self.accounting();
        stats.bytes = accounting.bytes;
        stats.bytes_max = self.bytes_max;
        stats.objects =
            accounting.bodies.values().filter(|body| !body.extents.is_empty()).count() as u64;
        stats.extents = accounting.extents;
        drop(accounting);
        stats.evicted = self.evicted.load(Relaxed);
        stats.corrupt = self.corrupt.load(Relaxed);
        stats.disk_errors = self.health.errors();
        stats.bypassed = self.health.reason().or_else(|| self.low());
    }

    /// Writes what is not written yet and lets another process have the directory. Reads go on.
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
            "disk: {bytes_max} bytes hold nothing; expected at least {DISK_BYTES_MIN}, or no disk at all"
        )));
    }
    Ok(())
}

fn extent_of_block(block: u64) -> u32 {
    u32::try_from(block / EXTENT_BLOCKS as u64).expect("limits say so")
}

const _: () = assert!(FILE_OVERHEAD_BYTES < DISK_BYTES_MIN);
