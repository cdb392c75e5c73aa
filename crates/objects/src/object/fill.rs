//! Brings extents to disk in the background, in parts, within the budget of the cache.
//!
//! A part takes its bytes from the budget before it is asked for and gives them back when its
//! extents are written: what all fills of a cache have in memory never exceeds the budget. A part
//! is a fetch that others may join; those of streams can be joined even before they have their
//! share of the budget, so that no two ask for it, and take it in a task of their own, so that no
//! slow reader holds it.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot, watch},
    time::{Instant, sleep},
};

use super::{
    Shared,
    fetch::{Fetch, InterestGuard, Purpose},
    limits::{DISK_PAUSE, FILL_PAUSE, FIRST_BYTE_DEFAULT},
    readahead_limiter::{ReadaheadLimiter, Turn},
    reading::given_up,
    table::Table,
};
use crate::{
    Error,
    disk::{Access, BLOCK_DATA_BYTES, DiskFile, EXTENT_BLOCKS, EXTENT_DATA_BYTES, Entrance},
    remote::Urgency,
};

const EXTENT_BYTES: usize = BLOCK_DATA_BYTES * EXTENT_BLOCKS;

/// Bytes of a part that are on disk now.
pub(super) type Kept = oneshot::Receiver<Result<u64, Error>>;

impl Shared {
    /// Somebody wants these bytes and they are not on disk.
    pub(super) fn touch(self: &Arc<Self>, ranges: &[Range<u64>], start: Start) {
        if self.file.is_none() || self.fills.is_closed() {
            return;
        }
        let now = Instant::now();
        let mut table = self.table();
        let is_whole = self.meta.size <= self.fills.whole_max && table.queue.ask_for_whole(now);
        let must_drive = if is_whole {
            // What was touched comes first, then what follows it.
            let first =
                ranges.iter().map(|range| range.start / EXTENT_DATA_BYTES).min().unwrap_or(0);
            table.queue.add([first..self.extents(), 0..first], now)
        } else {
            table.queue.add(ranges.iter().map(extents_of), now)
        };
        drop(table);
        if must_drive {
            let driver = Driver { object: Arc::clone(self), start, is_done: false };
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

    /// Starts to bring extents if none of them is there or under way. The permit is for their
    /// bytes.
    pub(super) fn bring(
        self: &Arc<Self>,
        file: &Arc<DiskFile>,
        run: Range<u64>,
        permit: OwnedSemaphorePermit,
    ) -> Option<(Arc<Fetch>, Kept)> {
        let mut table = self.table();
        let is_missing = run
            .clone()
            .all(|extent| !file.has_extent(extent) && table.part_of_extent(extent).is_none());
        if !is_missing {
            return None;
        }
        let mut part = self.add_part(&mut table, file, run, Purpose::Fill);
        drop(table);
        part.permit = Some(permit);
        Some((Arc::clone(&part.fetch), self.start_part(part)))
    }

    /// A part for streams, which are neither there nor under way. To be started when the table is
    /// free again.
    pub(super) fn promise(
        self: &Arc<Self>,
        table: &mut Table,
        file: &Arc<DiskFile>,
        run: Range<u64>,
        limiter: &mut ReadaheadLimiter,
    ) -> Promised {
        let mut part = self.add_part(table, file, run, Purpose::Streams);
        part.turn = Some(limiter.add(&part.fetch));
        let interest = part.fetch.interest().expect("a new fetch has not failed");
        Promised { part, interest }
    }

    fn add_part(
        self: &Arc<Self>,
        table: &mut Table,
        file: &Arc<DiskFile>,
        run: Range<u64>,
        purpose: Purpose,
    ) -> Part {
        let fetch = Arc::new(Fetch::new(self.span(&run), purpose));
        let (over, ends) = watch::channel(());
        table.add_part(&fetch, ends);
        let entrance = if purpose == Purpose::Streams { Entrance::Once } else { Entrance::New };
        let (object, file) = (Arc::clone(self), Arc::clone(file));
        Part { object, file, fetch, run, entrance, turn: None, permit: None, _over: over }
    }

    fn start_part(&self, part: Part) -> Kept {
        let (ended, kept) = oneshot::channel();
        self.fills.spawn(self.remote.runtime(), async move {
            // Nobody but a warming waits for the end.
            drop(ended.send(part.run().await));
        });
        kept
    }
}

/// See [`Shared::promise`].
pub(super) struct Promised {
    part: Part,
    interest: Arc<InterestGuard>,
}

impl Promised {
    /// The extent behind its last one.
    pub(super) fn end(&self) -> u64 {
        self.part.run.end
    }

    /// What comes back has to be kept for as long as the part is wanted.
    pub(super) fn start(self) -> Arc<InterestGuard> {
        let object = Arc::clone(&self.part.object);
        drop(object.start_part(self.part));
        self.interest
    }
}

fn extents_of(range: &Range<u64>) -> Range<u64> {
    range.start / EXTENT_DATA_BYTES..range.end.div_ceil(EXTENT_DATA_BYTES)
}

/// When a fill starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// At once: who touched it waits for nothing else.
    Now,
    /// When who touched it is likely to have the first bytes. With these come what others ask for
    /// at the same moment, and what there is of that decides how much is filled beside it.
    AfterFirstByte,
}

/// Takes from the queue of an object until it is empty.
struct Driver {
    object: Arc<Shared>,
    start: Start,
    /// The queue was empty, and the table knows that nobody drives it.
    is_done: bool,
}

impl Driver {
    async fn run(mut self) {
        let Some(file) = self.object.file.clone() else { return };
        let Shared { remote, fills, .. } = &*Arc::clone(&self.object);
        if self.start == Start::AfterFirstByte {
            sleep(remote.pace().first_byte.unwrap_or(FIRST_BYTE_DEFAULT).min(FIRST_BYTE_DEFAULT))
                .await;
        }
        while let Some(run) = self.next_run(&file) {
            let mut limiter = fills.limiter.lock().await;
            limiter.clear(remote).await;
            let span = self.object.span(&run);
            let permit = fills.reserve(span.end - span.start).await;
            // Others may have brought it meanwhile; what is still missing is asked for again by its
            // next miss.
            if let Some((part, _)) = self.object.bring(&file, run, permit) {
                limiter.add(&part);
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
    fetch: Arc<Fetch>,
    run: Range<u64>,
    entrance: Entrance,
    /// To be waited for before anything else.
    turn: Option<Turn>,
    /// None: it is still to be waited for.
    permit: Option<OwnedSemaphorePermit>,
    /// Dropped with it: that is how others notice the end.
    _over: watch::Sender<()>,
}

impl Part {
    async fn run(mut self) -> Result<u64, Error> {
        let length = self.fetch.range.end - self.fetch.range.start;
        if let Some(turn) = self.turn.take() {
            turn.come(&self.fetch, &self.object.remote).await;
            // Given up: out of the table now, so that others may begin it anew.
            if self.fetch.has_ended() {
                return Err(given_up(&self.object.what()));
            }
        }
        if self.permit.is_none() {
            self.permit = Some(self.object.fills.reserve(length).await);
        }
        let Shared { remote, meta, .. } = &*self.object;
        let mut sink = &*self.fetch;
        let read =
            remote.read_range(meta, self.fetch.range.clone(), Urgency::Fill, &mut sink).await;
        if let Err(error) = read {
            log::debug!("fill: {error}");
            // That nobody wants it any more says nothing about the store.
            if !matches!(error, Error::TooLate(_)) {
                self.object.table().queue.pause(Instant::now() + FILL_PAUSE);
            }
            self.fetch.fail(&error);
            return Err(error);
        }
        let bytes = self.fetch.received().expect("a read that succeeded has received");
        let kept = self.write(bytes).await;
        if kept == 0 && !self.fetch.is_invalidated() {
            self.object.table().queue.pause(Instant::now() + DISK_PAUSE);
        }
        self.object.table().remove_part(&self.fetch, kept == length);
        Ok(kept)
    }

    /// Returns the bytes that are on disk now.
    async fn write(&self, bytes: Bytes) -> u64 {
        let Some(guard) = self.object.fills.may_write() else { return 0 };
        let (file, fetch, run) =
            (Arc::clone(&self.file), Arc::clone(&self.fetch), self.run.clone());
        let entrance = self.entrance;
        let write = move || {
            let _guard = guard;
            let extents = run.zip(bytes.chunks(EXTENT_BYTES));
            extents.map(|(extent, data)| write_extent(&file, &fetch, extent, data, entrance)).sum()
        };
        self.file.run(&self.object.fills.runtime, Access::Write, write).await.unwrap_or(0)
    }
}

impl Drop for Part {
    /// A task that is given up, or that panics, leaves nobody waiting.
    fn drop(&mut self) {
        self.object.table().remove_part(&self.fetch, false);
        self.fetch.fail(&given_up(&self.object.what()));
    }
}

/// Returns the bytes kept.
fn write_extent(
    file: &DiskFile,
    fetch: &Fetch,
    extent: u64,
    data: &[u8],
    entrance: Entrance,
) -> u64 {
    if fetch.is_invalidated() || !file.write(extent, data, entrance) {
        return 0;
    }
    if fetch.is_invalidated() {
        // The doubt came between the look and the write, and what it removed was written again.
        let start = extent * EXTENT_DATA_BYTES;
        file.remove(&(start..start + data.len() as u64));
        return 0;
    }
    data.len() as u64
}
