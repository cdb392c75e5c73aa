//! Fills of the disk cache: background reads that bring whole extents to disk, in parts.
//!
//! ```text
//!  miss --start_fill--> FillQueue --> FillDriver --budget--> FillPart: fetch, then write extents
//!  stream ------------------------------- readahead --> FillPart
//!  warm --------------------------------- budget -----> FillPart
//! ```
//!
//! * **Budget**: a part takes its bytes from the budget before its request is sent and gives them
//!   back when its extents are written. So the fills of a cache never hold more memory than that.
//! * **A part is a fetch** that others may join. Those of streams are in the fetch table even
//!   before they have their share of the budget, so that no two ask for the same bytes, and take it
//!   in a task of their own, so that no slow reader holds it.
//! * **Failure**: after a part fails, or the disk keeps none of it, misses start no fill for a
//!   while ([`FILL_PAUSE`], [`DISK_PAUSE`]).

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot, watch},
    time::{Instant, sleep},
};

use crate::{
    Error,
    disk::{BLOCK_DATA_BYTES, DiskAccess, DiskObject, EXTENT_BLOCKS, EXTENT_DATA_BYTES, Entrance},
    fetch::{Fetch, FetchPurpose, FetchTable, InterestGuard, ReadaheadLimiter, ReadaheadTurn},
    limits::{DISK_PAUSE, FILL_PAUSE, FIRST_BYTE_DEFAULT},
    object::ObjectCore,
    read::stopped,
    remote::Urgency,
};

mod queue;
mod scheduler;
mod warm;

pub(crate) use queue::FillQueue;
pub(crate) use scheduler::FillScheduler;
pub(crate) use warm::Warming;

const EXTENT_BYTES: usize = BLOCK_DATA_BYTES * EXTENT_BLOCKS;

/// Outcome of a part: its bytes that are on disk now.
pub(crate) type PartOutcome = oneshot::Receiver<Result<u64, Error>>;

impl ObjectCore {
    /// Queues ranges that a reader wants and that are not on disk: their extents, or the whole
    /// object if it is small enough.
    pub(crate) fn start_fill(self: &Arc<Self>, ranges: &[Range<u64>], start: FillStart) {
        if self.disk.is_none() || self.cache.fills.is_closed() || !self.is_filled() {
            return;
        }
        let now = Instant::now();
        let mut fetches = self.fetches();
        let is_whole = self.cache.fills.is_whole(self.meta.size) && fetches.queue.start_whole(now);
        let must_drive = if is_whole {
            // What was touched comes first, then what follows it.
            let first =
                ranges.iter().map(|range| range.start / EXTENT_DATA_BYTES).min().unwrap_or(0);
            fetches.queue.add([first..self.extents(), 0..first], now)
        } else {
            fetches.queue.add(ranges.iter().map(extents_of), now)
        };
        drop(fetches);
        if must_drive {
            let driver = FillDriver { object: Arc::clone(self), start, is_done: false };
            self.cache.fills.spawn(self.remote.runtime(), driver.run());
        }
    }

    /// Starts a part if none of its extents is there or under way. The permit is for their bytes.
    pub(crate) fn fill(
        self: &Arc<Self>,
        disk: &Arc<DiskObject>,
        run: Range<u64>,
        permit: OwnedSemaphorePermit,
    ) -> Option<(Arc<Fetch>, PartOutcome)> {
        let mut fetches = self.fetches();
        let is_missing = run
            .clone()
            .all(|extent| !disk.has_extent(extent) && fetches.part_of_extent(extent).is_none());
        if !is_missing {
            return None;
        }
        let mut part = self.add_part(&mut fetches, disk, run, FetchPurpose::Fill);
        drop(fetches);
        part.permit = Some(permit);
        Some((Arc::clone(&part.fetch), self.start_part(part)))
    }

    /// Adds a part for streams, whose extents are neither there nor under way. The caller starts it
    /// when it has released the table.
    pub(crate) fn add_stream_part(
        self: &Arc<Self>,
        fetches: &mut FetchTable,
        disk: &Arc<DiskObject>,
        run: Range<u64>,
        limiter: &mut ReadaheadLimiter,
    ) -> PendingPart {
        let mut part = self.add_part(fetches, disk, run, FetchPurpose::Streams);
        part.turn = Some(limiter.add(&part.fetch));
        let interest = part.fetch.interest().expect("a new fetch has not failed");
        PendingPart { part, interest }
    }

    fn add_part(
        self: &Arc<Self>,
        fetches: &mut FetchTable,
        disk: &Arc<DiskObject>,
        run: Range<u64>,
        purpose: FetchPurpose,
    ) -> FillPart {
        let fetch = Arc::new(Fetch::new(self.span(&run), purpose));
        let (over, ends) = watch::channel(());
        fetches.add_part(&fetch, ends);
        let entrance =
            if purpose == FetchPurpose::Streams { Entrance::Sequential } else { Entrance::New };
        let (object, disk) = (Arc::clone(self), Arc::clone(disk));
        FillPart { object, disk, fetch, run, entrance, turn: None, permit: None, _over: over }
    }

    fn start_part(&self, part: FillPart) -> PartOutcome {
        let (ended, kept) = oneshot::channel();
        self.cache.fills.spawn(self.remote.runtime(), async move {
            // Nobody but a warming waits for the end.
            drop(ended.send(part.run().await));
        });
        kept
    }
}

/// A part that is in the fetch table and still to be started.
pub(crate) struct PendingPart {
    part: FillPart,
    interest: Arc<InterestGuard>,
}

impl PendingPart {
    /// End of its run of extents.
    pub(crate) fn end(&self) -> u64 {
        self.part.run.end
    }

    /// Starts the part. The caller keeps the guard for as long as it wants the part.
    pub(crate) fn start(self) -> Arc<InterestGuard> {
        let object = Arc::clone(&self.part.object);
        drop(object.start_part(self.part));
        self.interest
    }
}

fn extents_of(range: &Range<u64>) -> Range<u64> {
    range.start / EXTENT_DATA_BYTES..range.end.div_ceil(EXTENT_DATA_BYTES)
}

/// Start time of the fill of a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FillStart {
    /// At once: the reader waits for no fetch.
    Now,
    /// As soon as the reader is likely to have its first bytes. By then other readers of the same
    /// moment have sent their requests, and the window starts fewer fills the more foreground reads
    /// it has.
    AfterFirstByte,
}

/// Takes runs from the fill queue of an object until it is empty.
struct FillDriver {
    object: Arc<ObjectCore>,
    start: FillStart,
    /// True if the queue was empty, and knows that it has no driver.
    is_done: bool,
}

impl FillDriver {
    async fn run(mut self) {
        let Some(disk) = self.object.disk.clone() else { return };
        let object = Arc::clone(&self.object);
        let (remote, fills) = (&object.remote, &object.cache.fills);
        if self.start == FillStart::AfterFirstByte {
            sleep(remote.pace().first_byte.unwrap_or(FIRST_BYTE_DEFAULT).min(FIRST_BYTE_DEFAULT))
                .await;
        }
        while let Some(run) = self.next_run(&disk) {
            let mut limiter = fills.limiter.lock().await;
            limiter.wait(remote).await;
            let span = self.object.span(&run);
            let permit = fills.reserve(span.end - span.start).await;
            // A part before it may have failed meanwhile.
            if self.object.fetches().queue.is_paused(Instant::now()) {
                continue;
            }
            // Others may have filled some of it meanwhile; the next miss queues the rest again.
            if let Some((part, _)) = self.object.fill(&disk, run, permit) {
                limiter.add(&part);
            }
        }
    }

    fn next_run(&mut self, disk: &DiskObject) -> Option<Range<u64>> {
        if !self.object.is_in_use() {
            return None;
        }
        let extents_max = self.object.cache.fills.part_extents(self.object.remote.pace());
        let run = self.object.fetches().next_run(extents_max, |extent| disk.has_extent(extent));
        self.is_done = run.is_none();
        run
    }
}

impl Drop for FillDriver {
    /// However it ends, the next miss can start another one.
    fn drop(&mut self) {
        if !self.is_done {
            self.object.fetches().queue.abandon();
        }
    }
}

/// One part under way: a fetch whose extents go to disk.
struct FillPart {
    object: Arc<ObjectCore>,
    disk: Arc<DiskObject>,
    fetch: Arc<Fetch>,
    run: Range<u64>,
    entrance: Entrance,
    /// Turn to wait for before anything else.
    turn: Option<ReadaheadTurn>,
    /// Share of the budget; none while the part still has to wait for it.
    permit: Option<OwnedSemaphorePermit>,
    /// Dropped with the part: that is how others notice its end.
    _over: watch::Sender<()>,
}

impl FillPart {
    async fn run(mut self) -> Result<u64, Error> {
        let length = self.fetch.range.end - self.fetch.range.start;
        if let Some(turn) = self.turn.take() {
            turn.wait(&self.fetch, &self.object.remote).await;
            // Nobody wants it: out of the table now, so that others may start it anew.
            if self.fetch.has_ended() {
                return Err(stopped(&self.object.what()));
            }
        }
        if self.permit.is_none() {
            self.permit = Some(self.object.cache.fills.reserve(length).await);
        }
        let ObjectCore { remote, meta, .. } = &*self.object;
        let mut sink = &*self.fetch;
        let read =
            remote.read_range(meta, self.fetch.range.clone(), Urgency::Fill, &mut sink).await;
        if let Err(error) = read {
            log::debug!("fill: {error}");
            // A fetch that nobody wants any more says nothing about the store.
            if !matches!(error, Error::DeadlineExceeded(_)) {
                self.object.fetches().queue.pause(Instant::now() + FILL_PAUSE);
            }
            self.fetch.fail(&error);
            return Err(error);
        }
        let bytes = self.fetch.received().expect("a read that succeeded has received");
        let kept = self.write(bytes).await;
        if kept == 0 && !self.fetch.is_invalidated() {
            self.object.fetches().queue.pause(Instant::now() + DISK_PAUSE);
        }
        self.object.fetches().remove_part(&self.fetch, kept == length);
        Ok(kept)
    }

    /// Returns the bytes that are on disk now.
    async fn write(&self, bytes: Bytes) -> u64 {
        let Some(guard) = self.object.cache.fills.may_write() else { return 0 };
        let (disk, fetch, run) =
            (Arc::clone(&self.disk), Arc::clone(&self.fetch), self.run.clone());
        let entrance = self.entrance;
        let write = move || {
            let _guard = guard;
            let extents = run.zip(bytes.chunks(EXTENT_BYTES));
            extents.map(|(extent, data)| write_extent(&disk, &fetch, extent, data, entrance)).sum()
        };
        self.disk.run(&self.object.cache.fills.runtime, DiskAccess::Write, write).await.unwrap_or(0)
    }
}

impl Drop for FillPart {
    /// A task that is aborted, or that panics, leaves nobody waiting.
    fn drop(&mut self) {
        self.object.fetches().remove_part(&self.fetch, false);
        self.fetch.fail(&stopped(&self.object.what()));
    }
}

/// Writes one extent, unless its bytes were invalidated. Returns the bytes that are on disk.
fn write_extent(
    disk: &DiskObject,
    fetch: &Fetch,
    extent: u64,
    data: &[u8],
    entrance: Entrance,
) -> u64 {
    if fetch.is_invalidated() || !disk.write(extent, data, entrance) {
        return 0;
    }
    if fetch.is_invalidated() {
        // The bytes were invalidated between the check and the write, which undid the removal.
        let start = extent * EXTENT_DATA_BYTES;
        disk.remove(&(start..start + data.len() as u64));
        return 0;
    }
    data.len() as u64
}
