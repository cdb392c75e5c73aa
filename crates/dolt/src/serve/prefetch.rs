//! Reads and checks chunks whose places were told, because their bytes are about to be asked for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use busload_chunks::{ChunkAddress, ChunkLocation};
use busload_objects::ReadOptions;
use futures_util::{
    FutureExt, StreamExt,
    future::{self, join},
    stream,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::coop::consume_budget,
    time,
};

use super::{Located, Location};
use crate::{
    Store,
    limits::{
        PREFETCH_AHEAD_TIME, PREFETCH_BYTES_MAX, PREFETCH_BYTES_MIN, PREFETCH_DISK_READS_MAX,
        PREFETCH_TIMEOUT, PREFETCHES_MAX,
    },
    read::decode::Wanted,
    read::reader::ReadRequest,
    read::window::{PlannedRead, Window, sort},
    shared::Shared,
    versions::table_file::range,
    versions::version::ChunkCopy,
};

/// What prefetches of a store may take together. What they may not is read when it is asked for.
#[derive(Debug)]
pub(crate) struct Prefetches {
    tasks: Arc<Semaphore>,
    /// Stored bytes of chunks.
    bytes: Arc<Semaphore>,
    /// Chunks.
    skipped: AtomicU64,
}

/// Held by one prefetch.
struct Room {
    _task: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl Prefetches {
    pub fn new() -> Self {
        Self {
            tasks: Arc::new(Semaphore::new(PREFETCHES_MAX)),
            bytes: Arc::new(Semaphore::new(
                usize::try_from(PREFETCH_BYTES_MAX).expect("limits say so"),
            )),
            skipped: AtomicU64::new(0),
        }
    }

    pub fn under_way(&self) -> u64 {
        (PREFETCHES_MAX - self.tasks.available_permits()) as u64
    }

    pub fn skipped(&self) -> u64 {
        self.skipped.load(Relaxed)
    }

    /// Room for some of these chunks; those for which there is none are taken out. All prefetches
    /// together take at most so many bytes.
    fn room(&self, items: &mut Vec<PlannedRead>, bytes_max: u64) -> Option<Room> {
        let count = items.len();
        let room = self.find_room(items, bytes_max);
        let prefetched = if room.is_some() { items.len() } else { 0 };
        self.skipped.fetch_add((count - prefetched) as u64, Relaxed);
        room
    }

    fn find_room(&self, items: &mut Vec<PlannedRead>, bytes_max: u64) -> Option<Room> {
        let task = self.tasks.clone().try_acquire_owned().ok()?;
        let kept_free =
            usize::try_from(PREFETCH_BYTES_MAX.saturating_sub(bytes_max)).expect("limits say so");
        let (room, mut taken) = (self.bytes.available_permits(), 0);
        items.retain(|item| {
            let bytes =
                usize::try_from(item.location.span.length).expect("a chunk fits into memory");
            // What is on disk takes nothing from the store's link.
            let room = if item.is_local() { room } else { room.saturating_sub(kept_free) };
            let fits = taken + bytes <= room;
            taken += if fits { bytes } else { 0 };
            fits
        });
        // Others may have been faster.
        let bytes = self.bytes.clone().try_acquire_many_owned(u32::try_from(taken).ok()?).ok()?;
        (!items.is_empty()).then_some(Room { _task: task, _bytes: bytes })
    }
}

impl Store {
    /// Starts to bring chunks to where they can be had at once, and checks them: somebody was told
    /// where they are. Returns at once; does nothing when too much of the like is under way.
    pub fn prefetch(&self, located: &Located) {
        let shared = self.shared();
        let mut items: Vec<PlannedRead> = located
            .locations
            .iter()
            .flatten()
            .filter(|location| !is_ready(location))
            .map(item)
            .collect();
        if items.is_empty() || shared.is_closed() {
            return;
        }
        let bytes_max = bytes_ahead(shared.remote.bandwidth());
        let Some(room) = shared.prefetches.room(&mut items, bytes_max) else { return };
        let (reading, deadline) = (shared.clone(), in_time());
        shared.runtime.spawn(async move {
            let read = reading.prefetch(items, deadline).map(Ok);
            if let Err(error) = reading.within_time(deadline, read).await {
                log::debug!("table {}: prefetch: {error}", reading.name);
            }
            drop(room);
        });
    }
}

/// What the store brings soon, when a read brings so much per second. Those under way share a link,
/// so they are not counted.
fn bytes_ahead(bandwidth: Option<f64>) -> u64 {
    let bytes = bandwidth.unwrap_or(0.0) * PREFETCH_AHEAD_TIME.as_secs_f64();
    // A cast of what is out of bounds gives the bound.
    (bytes as u64).clamp(PREFETCH_BYTES_MIN, PREFETCH_BYTES_MAX)
}

/// Whether a chunk is on local disk as it was when it was compared with its address.
fn is_ready(location: &Location) -> bool {
    let object = &location.file.object;
    let is_refreshed = location.file.verified.has(location.position, object.disk_writes());
    is_refreshed && object.is_local(range(location.span))
}

fn item(location: &Location) -> PlannedRead {
    let place = ChunkCopy { file: location.file.clone(), position: location.position };
    let Location { span, dictionary, .. } = *location;
    PlannedRead { index: 0, place, location: ChunkLocation { span, dictionary } }
}

fn in_time() -> Instant {
    (time::Instant::now() + PREFETCH_TIMEOUT).into_std()
}

impl PlannedRead {
    fn address(&self) -> ChunkAddress {
        self.place.file.index.address(self.place.position)
    }

    fn is_local(&self) -> bool {
        self.place.file.object.is_local(range(self.location.span))
    }

    fn job(&self, from: From, deadline: Instant) -> ReadRequest {
        ReadRequest {
            address: self.address(),
            want: Wanted::Length,
            local_only: from == From::Disk,
            deadline,
        }
    }
}

/// Where a chunk is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Disk,
    Anywhere,
}

impl Shared {
    async fn prefetch(self: &Arc<Self>, items: Vec<PlannedRead>, deadline: Instant) {
        let (local, far) = items.into_iter().partition(PlannedRead::is_local);
        let (again, ()) =
            join(self.check_local(local, deadline), self.read_far(far, deadline)).await;
        self.read_far(again, deadline).await;
    }

    /// Compares what is on disk with addresses. Returns what is not there after all, or was wrong
    /// there.
    async fn check_local(
        self: &Arc<Self>,
        items: Vec<PlannedRead>,
        deadline: Instant,
    ) -> Vec<PlannedRead> {
        let mut slow = Vec::new();
        for item in items {
            let ChunkCopy { file, position } = &item.place;
            if self.try_read(file, *position, &item.address(), Wanted::Length).is_none() {
                slow.push(item);
            }
            consume_budget().await;
        }
        let checked = stream::iter(slow).map(|item| self.check_on_disk(item, deadline));
        checked.buffer_unordered(PREFETCH_DISK_READS_MAX).filter_map(future::ready).collect().await
    }

    /// Returns what is to be read elsewhere.
    async fn check_on_disk(
        self: &Arc<Self>,
        item: PlannedRead,
        deadline: Instant,
    ) -> Option<PlannedRead> {
        let ChunkCopy { file, position } = &item.place;
        let writes = file.object.disk_writes();
        if self.read_copy(&item.place, None, item.job(From::Disk, deadline)).await.is_err() {
            return Some(item);
        }
        if file.object.disk_writes() == writes {
            file.verified.set(*position, writes);
        }
        None
    }

    async fn read_far(self: &Arc<Self>, mut items: Vec<PlannedRead>, deadline: Instant) {
        sort(&mut items);
        let shared = self.clone();
        let finish = Arc::new(move |item: PlannedRead, started| {
            let shared = shared.clone();
            async move {
                let job = item.job(From::Anywhere, deadline);
                // Whoever comes for the bytes is told what is wrong; here it is enough that they
                // were looked at.
                shared.read_copy_unless_corrupt(&item.place, Some(started), job).await.is_ok()
            }
            .boxed()
        });
        let options = Box::new(move || ReadOptions { deadline, local_only: false });
        let mut window = Window::new(options, items, finish);
        while window.next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was prefetched had the line to itself for a minute, and what was asked for waited.
    #[test]
    fn no_more_is_prefetched_than_the_store_brings_soon() {
        assert_eq!(bytes_ahead(None), PREFETCH_BYTES_MIN);
        assert_eq!(bytes_ahead(Some(5_000.0)), PREFETCH_BYTES_MIN);
        assert_eq!(bytes_ahead(Some(3e6)), 6_000_000);
        assert_eq!(bytes_ahead(Some(80e6)), PREFETCH_BYTES_MAX);
        assert_eq!(bytes_ahead(Some(f64::INFINITY)), PREFETCH_BYTES_MAX);
    }
}
