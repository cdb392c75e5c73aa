//! One object in one version: the handle that callers hold, and what its reads, fills and streams
//! share.
//!
//! ```text
//!  read ---> read.rs: in memory, on disk, under way, else from the store
//!  stream -> stream.rs: the same for a whole range in order, with readahead
//!  warm ---> fill/warm.rs: the whole object to disk
//!               |
//!               v
//!  FetchTable: every fetch of this object under way or just completed, and the fill queue
//! ```

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;

use crate::{
    Error, ObjectMeta, Progress, Remote,
    cache::{CacheContext, FillFilter},
    disk::{DiskObject, EXTENT_DATA_BYTES},
    fetch::FetchTable,
    fill::Warming,
    read::AccessHint,
};

/// One object of a store, in one version. Dropping the last handle ends its fill; fetches under way
/// go on.
#[derive(Debug)]
pub struct Object {
    pub(crate) core: Arc<ObjectCore>,
}

/// Part of an object that its fetches, fills and streams hold.
#[derive(Debug)]
pub(crate) struct ObjectCore {
    pub(crate) meta: ObjectMeta,
    pub(crate) remote: Arc<Remote>,
    /// The part of the object on disk; none if the cache has no disk.
    pub(crate) disk: Option<Arc<DiskObject>>,
    pub(crate) cache: Arc<CacheContext>,
    filter: FillFilter,
    fetches: Mutex<FetchTable>,
    has_handle: AtomicBool,
    /// Streams that bypass the disk now.
    pub(crate) bypassing: AtomicUsize,
}

impl Object {
    /// Makes a handle; without a `disk` nothing of the object is cached.
    pub(crate) fn new(
        (cache, filter): (&Arc<CacheContext>, &FillFilter),
        remote: &Arc<Remote>,
        meta: &ObjectMeta,
        disk: Option<Arc<DiskObject>>,
    ) -> Self {
        let core = ObjectCore {
            meta: meta.clone(),
            remote: Arc::clone(remote),
            disk,
            cache: Arc::clone(cache),
            filter: filter.clone(),
            fetches: Mutex::default(),
            has_handle: AtomicBool::new(true),
            bypassing: AtomicUsize::new(0),
        };
        Self { core: Arc::new(core) }
    }

    /// Name, size and version of the object.
    pub fn meta(&self) -> &ObjectMeta {
        &self.core.meta
    }

    /// Reads a range that is on disk and in the page cache; never blocks. None: use
    /// [`Object::read`].
    pub fn try_read(&self, range: Range<u64>) -> Option<Bytes> {
        self.core.try_read(&range, AccessHint::Random)
    }

    /// Counts writes of this object to disk in this process, each before its bytes can be read:
    /// while the count stays the same, [`Object::try_read`] gives the same bytes for a range. Takes
    /// one load.
    pub fn disk_writes(&self) -> u64 {
        self.core.disk.as_ref().map_or(0, |disk| disk.writes())
    }

    /// Returns whether all of a range is on disk.
    pub fn is_local(&self, range: Range<u64>) -> bool {
        self.core.is_present(&range)
    }

    /// Returns whether reads and streams bring the object to disk: the filter of its store decides.
    pub fn is_filled(&self) -> bool {
        self.core.is_filled()
    }

    /// Returns whether the first read of the object starts to bring all of it to disk.
    pub fn comes_whole(&self) -> bool {
        let core = &self.core;
        core.disk.is_some() && core.is_filled() && core.cache.fills.is_whole(core.meta.size)
    }

    /// Brings the whole object to disk and waits for it. The result says how much is there: less
    /// than all if the disk does not take it.
    ///
    /// # Errors
    /// [`Error::Settings`]: there is no disk. Otherwise what the store answered; what has come
    /// stays.
    pub async fn warm(&self, report: &mut (dyn FnMut(Progress) + Send)) -> Result<Progress, Error> {
        let Some(disk) = &self.core.disk else {
            let what = self.core.what();
            return Err(Error::Settings(format!(
                "{what}: cannot be brought to disk, because there is none"
            )));
        };
        Warming::new(&self.core, disk, report).run().await
    }

    /// Removes a range from disk and gives it to no new reader: the caller found that the bytes are
    /// wrong, although they came as the store sent them or passed the disk's checksums.
    pub fn invalidate(&self, range: Range<u64>) {
        self.core.fetches().invalidate(&range);
        if let Some(disk) = &self.core.disk {
            disk.remove(&range);
        }
    }

    /// Gives nobody the bytes that are under way or were received lately, and writes none of them
    /// to disk: called when the object is dropped from disk.
    pub(crate) fn forget(&self) {
        let mut fetches = self.core.fetches();
        fetches.invalidate(&(0..self.core.meta.size));
        fetches.queue.forget();
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.core.has_handle.store(false, Relaxed);
    }
}

impl ObjectCore {
    /// Names the object in errors.
    pub(crate) fn what(&self) -> String {
        format!("{} of {}", self.meta.name, self.remote.url())
    }

    pub(crate) fn fetches(&self) -> MutexGuard<'_, FetchTable> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_present(&self, range: &Range<u64>) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.is_present(range))
    }

    /// Returns whether a fill of the object makes sense: somebody has a handle and the cache is
    /// open.
    pub(crate) fn is_in_use(&self) -> bool {
        self.has_handle.load(Relaxed) && !self.cache.fills.is_closed()
    }

    pub(crate) fn is_filled(&self) -> bool {
        self.filter.is_wanted(&self.meta)
    }

    /// Number of extents of the object.
    pub(crate) fn extents(&self) -> u64 {
        self.meta.size.div_ceil(EXTENT_DATA_BYTES)
    }

    /// Byte range of a run of extents.
    pub(crate) fn span(&self, run: &Range<u64>) -> Range<u64> {
        run.start * EXTENT_DATA_BYTES..(run.end * EXTENT_DATA_BYTES).min(self.meta.size)
    }

    /// Refuses a range that is not within the object.
    pub(crate) fn check_range(&self, range: &Range<u64>) -> Result<(), Error> {
        if range.start <= range.end && range.end <= self.meta.size {
            return Ok(());
        }
        let text = format!(
            "{}: expected a range within 0..{}, got {range:?}",
            self.what(),
            self.meta.size
        );
        Err(Error::Settings(text))
    }
}

#[cfg(test)]
mod tests;
