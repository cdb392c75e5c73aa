//! Brings extents to disk in the background, in parts, within the budget of the cache.
//!
//! A part takes its bytes from the budget before it is asked for and gives them back when its extents are written: what all fills of a
//! cache have in memory never exceeds the budget. A part is a flight that others may join.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot, watch},
    time::Instant,
};

use super::{
    Shared,
    flight::{Flight, Purpose},
    limits::{DISK_PAUSE, FILL_PAUSE},
    reading::given_up,
};
use crate::{
    Error,
    disk::{BLOCK_DATA_BYTES, DiskFile, EXTENT_BLOCKS, EXTENT_DATA_BYTES},
    remote::Urgency,
};

const EXTENT_BYTES: usize = BLOCK_DATA_BYTES * EXTENT_BLOCKS;

/// Bytes of a part that are on disk now.
pub(super) type Kept = oneshot::Receiver<Result<u64, Error>>;

impl Shared {
    /// Somebody wants these bytes and they are not on disk.
    pub(super) fn touch(self: &Arc<Self>, ranges: &[Range<u64>]) {
        if self.file.is_none() || self.fills.is_closed() {
            return;
        }
        let now = Instant::now();
        let mut table = self.table();
        let is_whole = self.meta.size <= self.fills.whole_max && table.queue.ask_for_whole(now);
        let must_drive = if is_whole {
            // What was touched comes first, then what follows it.
            let first = ranges.iter().map(|range| range.start / EXTENT_DATA_BYTES).min().unwrap_or(0);
            table.queue.add([first..self.extents(), 0..first], now)
        } else {
            table.queue.add(ranges.iter().map(extents_of), now)
        };
        drop(table);
        if must_drive {
            let driver = Driver { object: Arc::clone(self), is_done: false };
            self.fills.spawn(self.remote.runtime(), driver.run());
        }
    }

    pub(super) fn extents(&self) -> u64 {
        self.meta.size.div_ceil(EXTENT_DATA_BYTES)
    }

    /// Bytes of some extents.
    pub(super) fn span(&self, run: &Range<u64>) -> Range<u64> {
        run.start * EXTENT_DATA_BYTES..(run.end * EXTENT_DATA_BYTES).min(self.meta.size)
    }

    /// Whether none of these extents is there or under way.
    pub(super) fn is_missing(&self, file: &DiskFile, run: &Range<u64>) -> bool {
        let table = self.table();
        run.clone().all(|extent| !file.has_extent(extent) && table.part_of_extent(extent).is_none())
    }

    /// Starts to bring extents that are neither there nor under way. The permit is for their bytes.
    pub(super) fn bring(
        self: &Arc<Self>,
        file: &Arc<DiskFile>,
        run: Range<u64>,
        permit: OwnedSemaphorePermit,
    ) -> Kept {
        let flight = Arc::new(Flight::new(self.span(&run), Purpose::Fill));
        let (over, ends) = watch::channel(());
        self.table().add_part(&flight, ends);
        let (ended, kept) = oneshot::channel();
        let (object, file) = (Arc::clone(self), Arc::clone(file));
        let part = Part { object, file, flight, run, _permit: permit, _over: over };
        self.fills.spawn(self.remote.runtime(), async move {
            // Nobody but a warming waits for the end.
            drop(ended.send(part.fly().await));
        });
        kept
    }
}

fn extents_of(range: &Range<u64>) -> Range<u64> {
    range.start / EXTENT_DATA_BYTES..range.end.div_ceil(EXTENT_DATA_BYTES)
}

/// Takes from the queue of an object until it is empty.
struct Driver {
    object: Arc<Shared>,
    /// The queue was empty, and the table knows that nobody drives it.
    is_done: bool,
}

impl Driver {
    async fn run(mut self) {
        let Some(file) = self.object.file.clone() else { return };
        while let Some(run) = self.next_run(&file) {
            let span = self.object.span(&run);
            let permit = self.object.fills.reserve(span.end - span.start).await;
            // Others may have brought it meanwhile; what is still missing is asked for again by its next miss.
            if self.object.is_missing(&file, &run) {
                drop(self.object.bring(&file, run, permit));
            }
        }
    }

    fn next_run(&mut self, file: &DiskFile) -> Option<Range<u64>> {
        if !self.object.is_in_use() {
            return None;
        }
        let extents_max = self.object.fills.part_extents();
        let run = self.object.table().next_run(extents_max, |extent| file.has_extent(extent));
        self.is_done = run.is_none();
        run
    }
}

impl Drop for Driver {
    /// However it ends, the next miss can start another one.
    fn drop(&mut self) {
        if !self.is_done {
            self.object.table().queue.abandon();
        }
    }
}

/// One part under way.
struct Part {
    object: Arc<Shared>,
    file: Arc<DiskFile>,
    flight: Arc<Flight>,
    run: Range<u64>,
    _permit: OwnedSemaphorePermit,
    /// Dropped with it: that is how others notice the end.
    _over: watch::Sender<()>,
}

impl Part {
    async fn fly(self) -> Result<u64, Error> {
        let Shared { remote, meta, .. } = &*self.object;
        let mut sink = &*self.flight;
        let read = remote.read_range(meta, self.flight.range.clone(), Urgency::Fill, &mut sink).await;
        if let Err(error) = read {
            log::debug!("fill: {error}");
            self.object.table().queue.pause(Instant::now() + FILL_PAUSE);
            self.flight.fail(&error);
            return Err(error);
        }
        let bytes = self.flight.landed().expect("a read that succeeded has landed");
        let kept = self.write(bytes).await;
        if kept == 0 && !self.flight.is_distrusted() {
            self.object.table().queue.pause(Instant::now() + DISK_PAUSE);
        }
        let length = self.flight.range.end - self.flight.range.start;
        self.object.table().remove_part(&self.flight, kept == length);
        Ok(kept)
    }

    /// Returns the bytes that are on disk now.
    async fn write(&self, bytes: Bytes) -> u64 {
        let Some(guard) = self.object.fills.may_write() else { return 0 };
        let (file, flight, run) = (Arc::clone(&self.file), Arc::clone(&self.flight), self.run.clone());
        let write = move || {
            let _guard = guard;
            let extents = run.zip(bytes.chunks(EXTENT_BYTES));
            extents.map(|(extent, data)| write_extent(&file, &flight, extent, data)).sum()
        };
        self.object.fills.runtime.spawn_blocking(write).await.unwrap_or(0)
    }
}

impl Drop for Part {
    /// A task that is given up, or that panics, leaves nobody waiting.
    fn drop(&mut self) {
        self.object.table().remove_part(&self.flight, false);
        self.flight.fail(&given_up(&self.object.what()));
    }
}

/// Returns the bytes kept.
fn write_extent(file: &DiskFile, flight: &Flight, extent: u64, data: &[u8]) -> u64 {
    if flight.is_distrusted() || !file.write(extent, data) {
        return 0;
    }
    if flight.is_distrusted() {
        // The doubt came between the look and the write, and what it removed was written again.
        let start = extent * EXTENT_DATA_BYTES;
        file.remove(&(start..start + data.len() as u64));
        return 0;
    }
    data.len() as u64
}
