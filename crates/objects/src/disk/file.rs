//! What is on disk of one object: reads and writes of it.

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
    Access, Disk, EXTENT_DATA_BYTES,
    body::{Body, Key},
    health::Bypass,
    queues::Entrance,
    read::{self, How, Outcome},
};

/// What the eviction is told of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// What was read is in use.
    AsUse,
    /// Nothing: it is read to be copied.
    Not,
}

/// What is on disk of one object.
#[derive(Debug)]
pub(crate) struct DiskFile {
    disk: Arc<Disk>,
    key: Arc<Key>,
    /// None: nothing of it is on disk.
    body: ArcSwapOption<Body>,
    /// Held while a body is made.
    making: Mutex<()>,
    /// Counts writes, each before its bytes can be read.
    writes: AtomicU64,
}

impl DiskFile {
    pub(super) fn new(disk: Arc<Disk>, key: Arc<Key>) -> Self {
        Self {
            disk,
            key,
            body: ArcSwapOption::empty(),
            making: Mutex::new(()),
            writes: AtomicU64::new(0),
        }
    }

    pub(super) fn attach(&self, body: Option<Arc<Body>>) {
        self.writes.fetch_add(1, AcqRel);
        self.body.store(body);
    }

    /// As [`Disk::run`].
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        runtime: &Handle,
        access: Access,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.disk.run(runtime, access, work).await
    }

    /// Whether writes have a chance now: while the disk is degraded they are refused.
    pub(crate) fn is_writable(&self) -> bool {
        self.disk.is_writable() && self.key.is_keepable()
    }

    /// Extents that may come before the first of them goes again, if nothing else comes meanwhile.
    pub(crate) fn room(&self) -> u64 {
        self.disk.room()
    }

    /// Whether all of a range of the object is said to be there.
    pub(crate) fn is_present(&self, range: &Range<u64>) -> bool {
        let body = self.body.load();
        body.as_ref().is_some_and(|body| is_present(body, range)) && self.disk.health.is_readable()
    }

    /// Whether an extent is said to be there.
    pub(crate) fn has_extent(&self, extent: u64) -> bool {
        let Ok(extent) = u32::try_from(extent) else { return false };
        self.body.load().as_ref().is_some_and(|body| body.extents.is_present(extent))
            && self.disk.health.is_readable()
    }

    /// Reads and checks what is in memory of the system already; never blocks.
    #[inline]
    pub(crate) fn try_read(&self, range: &Range<u64>, count: Count) -> Option<Bytes> {
        let body = self.body.load();
        let body = body.as_ref().filter(|body| is_present(body, range))?;
        if !self.disk.health.is_readable() {
            return None;
        }
        let handle = body.handle.load();
        match read::read(body, handle.as_ref()?.as_ref().as_ref(), range, How::Now) {
            Outcome::Read(bytes) => {
                self.mark_read(body, range, count);
                Some(bytes)
            }
            _ => None,
        }
    }

    /// Reads and checks; blocks for the device. None: it has to come from the store. What was
    /// corrupt is forgotten.
    pub(crate) fn read(&self, range: &Range<u64>, count: Count) -> Option<Bytes> {
        let body = self.body.load_full().filter(|body| is_present(body, range))?;
        if !self.disk.health.is_readable() {
            return None;
        }
        let bytes = self.disk.read(&body, range)?;
        self.mark_read(&body, range, count);
        Some(bytes)
    }

    /// A read that has begun does not end: the disk is left alone for a while.
    pub(crate) fn hangs(&self, timeout: Duration) {
        self.disk.health.fail(
            Bypass::All,
            "reading",
            &format_args!("nothing came for {timeout:?}"),
        );
    }

    /// For the queues, and for those who look for a file to close.
    fn mark_read(&self, body: &Body, range: &Range<u64>, count: Count) {
        if count == Count::AsUse {
            let tick = self.disk.tick.load(Relaxed);
            for extent in extents(range) {
                body.extents.touch(extent, tick);
            }
        }
        if !body.is_used.load(Relaxed) {
            body.is_used.store(true, Relaxed);
        }
    }

    /// Keeps a whole extent (the last one of an object is shorter); blocks for the device. False:
    /// not kept, which is no error.
    pub(crate) fn write(&self, extent: u64, data: &[u8], entrance: Entrance) -> bool {
        let expected = self.key.extent_data_bytes(extent);
        assert_eq!(data.len() as u64, expected, "an extent is written whole");
        if expected == 0 || !self.is_writable() {
            return false;
        }
        self.writes.fetch_add(1, AcqRel);
        let extent = u32::try_from(extent).expect("limits say so");
        let write = || self.disk.write(&self.body_for_write()?, extent, data, entrance);
        // A file may go to make room for its own new extent; it is made again once.
        write().or_else(write).unwrap_or(false)
    }

    /// Counts what may have put other bytes here than were here before, each before they can be
    /// read: for who must know whether bytes that were checked may have been replaced.
    #[inline]
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Acquire)
    }

    fn body_for_write(&self) -> Option<Arc<Body>> {
        if let Some(body) = self.live_body() {
            return Some(body);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(body) = self.live_body() {
            return Some(body);
        }
        let body = self.disk.make_body(&self.key)?;
        self.body.store(Some(Arc::clone(&body)));
        Some(body)
    }

    fn live_body(&self) -> Option<Arc<Body>> {
        self.body.load_full().filter(|body| !body.is_gone.load(Acquire))
    }

    /// Forgets the extents that a range touches.
    pub(crate) fn remove(&self, range: &Range<u64>) {
        let Some(body) = self.live_body().filter(|_| range.start < range.end) else { return };
        for extent in extents(&(range.start..range.end.min(self.key.meta.size))) {
            self.disk.remove_extent(&body, extent);
        }
    }
}

/// Whether all of a range is said to be there. A range that is not one of the object is not.
fn is_present(body: &Body, range: &Range<u64>) -> bool {
    range.start <= range.end
        && range.end <= body.key.meta.size
        && extents(range).all(|extent| body.extents.is_present(extent))
}

/// Extents that a range of an object touches. Objects on disk have few enough for the cast to hold;
/// others are never there.
pub(super) fn extents(range: &Range<u64>) -> Range<u32> {
    if range.end <= range.start {
        return 0..0;
    }
    let first = u32::try_from(range.start / EXTENT_DATA_BYTES).unwrap_or(u32::MAX);
    let end = u32::try_from(range.end.div_ceil(EXTENT_DATA_BYTES)).unwrap_or(u32::MAX);
    first..end
}
