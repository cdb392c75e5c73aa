//! The part of one object that is on disk: reads and writes of it.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tokio::runtime::Handle;

use super::{
    Disk, DiskAccess, EXTENT_DATA_BYTES,
    cache_file::{CacheFile, ObjectKey},
    health::Bypass,
    read::{self, ReadMode, ReadOutcome},
    s3_fifo::Entrance,
};
use crate::AccessHint;

/// The part of one object that is on disk.
#[derive(Debug)]
pub(crate) struct DiskObject {
    disk: Arc<Disk>,
    key: Arc<ObjectKey>,
    /// Cache file of the object; none while nothing of it is on disk.
    cache_file: ArcSwapOption<CacheFile>,
    /// Held while the cache file is made.
    making: Mutex<()>,
    /// Counts writes, each before its bytes can be read.
    writes: AtomicU64,
}

impl DiskObject {
    pub(super) fn new(disk: Arc<Disk>, key: Arc<ObjectKey>) -> Self {
        Self {
            disk,
            key,
            cache_file: ArcSwapOption::empty(),
            making: Mutex::new(()),
            writes: AtomicU64::new(0),
        }
    }

    pub(super) fn attach(&self, cache_file: Option<Arc<CacheFile>>) {
        self.writes.fetch_add(1, AcqRel);
        self.cache_file.store(cache_file);
    }

    /// Runs blocking work as [`Disk::run`] does.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        runtime: &Handle,
        access: DiskAccess,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.disk.run(runtime, access, work).await
    }

    /// Returns whether the disk takes writes now; a degraded one refuses them.
    pub(crate) fn is_writable(&self) -> bool {
        self.disk.is_writable() && self.key.is_keepable()
    }

    /// Number of new extents that the disk takes before it evicts the first of them.
    pub(crate) fn new_extents_max(&self) -> u64 {
        self.disk.new_extents_max()
    }

    /// Returns whether the index says that all of a range of the object is there.
    pub(crate) fn is_present(&self, range: &Range<u64>) -> bool {
        let cache_file = self.cache_file.load();
        cache_file.as_ref().is_some_and(|cache_file| is_present(cache_file, range))
            && self.disk.health.is_readable()
    }

    /// Returns whether the index says that an extent is there.
    pub(crate) fn has_extent(&self, extent: u64) -> bool {
        let Ok(extent) = u32::try_from(extent) else { return false };
        self.cache_file
            .load()
            .as_ref()
            .is_some_and(|cache_file| cache_file.extents.is_present(extent))
            && self.disk.health.is_readable()
    }

    /// Reads and checks what is in the page cache; never blocks.
    #[inline]
    pub(crate) fn try_read(&self, range: &Range<u64>, hint: AccessHint) -> Option<Bytes> {
        let cache_file = self.cache_file.load();
        let cache_file = cache_file.as_ref().filter(|cache_file| is_present(cache_file, range))?;
        if !self.disk.health.is_readable() {
            return None;
        }
        let handle = cache_file.handle.load();
        match read::read(cache_file, handle.as_ref()?.as_ref().as_ref(), range, ReadMode::Now) {
            ReadOutcome::Read(bytes) => {
                self.mark_read(cache_file, range, hint);
                Some(bytes)
            }
            _ => None,
        }
    }

    /// Reads and checks; blocks for the device. None: the bytes have to come from the store.
    /// Removes an extent that is corrupt.
    pub(crate) fn read(&self, range: &Range<u64>, hint: AccessHint) -> Option<Bytes> {
        let cache_file =
            self.cache_file.load_full().filter(|cache_file| is_present(cache_file, range))?;
        if !self.disk.health.is_readable() {
            return None;
        }
        let bytes = self.disk.read(&cache_file, range)?;
        self.mark_read(&cache_file, range, hint);
        Some(bytes)
    }

    /// Bypasses the disk for a while: a read that has begun does not end.
    pub(crate) fn mark_hung(&self, timeout: Duration) {
        self.disk.health.fail(
            Bypass::All,
            "reading",
            &format_args!("nothing came for {timeout:?}"),
        );
    }

    /// Marks extents as read for the eviction, and the file as used for [`super::handles`].
    fn mark_read(&self, cache_file: &CacheFile, range: &Range<u64>, hint: AccessHint) {
        if hint == AccessHint::Random {
            let tick = self.disk.tick.load(Relaxed);
            for extent in extents(range) {
                cache_file.extents.touch(extent, tick);
            }
        }
        if !cache_file.is_used.load(Relaxed) {
            cache_file.is_used.store(true, Relaxed);
        }
    }

    /// Writes a whole extent (the last one of an object is shorter); blocks for the device. Returns
    /// whether it is on disk; if not, that is no error.
    pub(crate) fn write(&self, extent: u64, data: &[u8], entrance: Entrance) -> bool {
        let expected = self.key.extent_data_bytes(extent);
        assert_eq!(data.len() as u64, expected, "an extent is written whole");
        if expected == 0 || !self.is_writable() {
            return false;
        }
        self.writes.fetch_add(1, AcqRel);
        let extent = u32::try_from(extent).expect("limits say so");
        let write = || self.disk.write(&self.cache_file_for_write()?, extent, data, entrance);
        // The eviction may drop the file to make space for its own new extent; it is made again
        // once.
        write().or_else(write).unwrap_or(false)
    }

    /// Counts whatever may have replaced bytes on disk, each before the new bytes can be read: for
    /// a caller that must know whether bytes it has checked are still the same.
    #[inline]
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Acquire)
    }

    fn cache_file_for_write(&self) -> Option<Arc<CacheFile>> {
        if let Some(cache_file) = self.live_cache_file() {
            return Some(cache_file);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cache_file) = self.live_cache_file() {
            return Some(cache_file);
        }
        let cache_file = self.disk.make_cache_file(&self.key)?;
        self.cache_file.store(Some(Arc::clone(&cache_file)));
        Some(cache_file)
    }

    fn live_cache_file(&self) -> Option<Arc<CacheFile>> {
        self.cache_file.load_full().filter(|cache_file| !cache_file.is_gone.load(Acquire))
    }

    /// Removes the extents that a range touches.
    pub(crate) fn remove(&self, range: &Range<u64>) {
        let Some(cache_file) = self.live_cache_file().filter(|_| range.start < range.end) else {
            return;
        };
        for extent in extents(&(range.start..range.end.min(self.key.meta.size))) {
            self.disk.remove_extent(&cache_file, extent);
        }
    }
}

/// Returns whether the index says that all of a range is there. A range beyond the object is not.
fn is_present(cache_file: &CacheFile, range: &Range<u64>) -> bool {
    range.start <= range.end
        && range.end <= cache_file.key.meta.size
        && extents(range).all(|extent| cache_file.extents.is_present(extent))
}

/// Extents that a range of an object touches. Objects on disk have few enough for a `u32`; those of
/// other objects are never there.
pub(super) fn extents(range: &Range<u64>) -> Range<u32> {
    if range.end <= range.start {
        return 0..0;
    }
    let first = u32::try_from(range.start / EXTENT_DATA_BYTES).unwrap_or(u32::MAX);
    let end = u32::try_from(range.end.div_ceil(EXTENT_DATA_BYTES)).unwrap_or(u32::MAX);
    first..end
}
