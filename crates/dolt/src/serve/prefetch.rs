//! Prefetches chunks whose locations were advertised, because a client is about to ask for them.

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
    limits::{
        PREFETCH_AHEAD_TIME, PREFETCH_BYTES_MAX, PREFETCH_BYTES_MIN, PREFETCH_DISK_READS_MAX,
        PREFETCH_TIMEOUT, PREFETCHES_MAX,
    },
    read::{
        decode::Wanted,
        file_chunk_reader::{FileChunkReader, ReadRequest},
        window::{PlannedRead, Window, sort},
    },
    versions::{table_file::range, version::FileChunk},
};

/// Starts prefetches and bounds what all of them take together. Chunks beyond the bounds are
/// skipped, and read when a client asks for them.
pub(crate) struct Prefetcher {
    file_chunks: Arc<FileChunkReader>,
    budget: PrefetchBudget,
}

/// Prefetches in progress and their bytes, bounded.
#[derive(Debug)]
struct PrefetchBudget {
    tasks: Arc<Semaphore>,
    /// Stored bytes of chunks.
    bytes: Arc<Semaphore>,
    /// Number of chunks skipped for want of budget.
    skipped: AtomicU64,
}

/// Budget that one prefetch holds.
struct Reservation {
    _task: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl Prefetcher {
    pub fn new(file_chunks: Arc<FileChunkReader>) -> Self {
        Self { file_chunks, budget: PrefetchBudget::new() }
    }

    /// Number of prefetches in progress.
    pub fn in_progress(&self) -> u64 {
        (PREFETCHES_MAX - self.budget.tasks.available_permits()) as u64
    }

    /// Number of chunks skipped so far.
    pub fn skipped(&self) -> u64 {
        self.budget.skipped.load(Relaxed)
    }

    /// Starts to bring chunks to where they can be read at once, and verifies them. Returns at
    /// once; skips chunks for which there is no budget.
    pub fn prefetch(&self, located: &Located) {
        self.start(located, |_| ());
    }

    /// Does the same as [`Prefetcher::prefetch`], and returns the chunks that were not skipped.
    pub fn prefetch_some(&self, located: &Located) -> Vec<ChunkAddress> {
        let mut started = Vec::new();
        self.start(located, |reads| started.extend(reads.iter().map(PlannedRead::address)));
        started
    }

    fn start(&self, located: &Located, handle_started: impl FnOnce(&[PlannedRead])) {
        let located = located.locations.iter().flatten();
        let mut reads: Vec<PlannedRead> =
            located.filter(|location| !is_ready(location)).map(plan_read).collect();
        if reads.is_empty() || self.file_chunks.lifecycle.is_closed() {
            return;
        }
        let bytes_max = bytes_ahead(self.file_chunks.source.remote.bandwidth());
        let Some(reservation) = self.budget.reserve(&mut reads, bytes_max) else { return };
        handle_started(&reads);
        let (file_chunks, deadline) = (self.file_chunks.clone(), deadline());
        self.file_chunks.lifecycle.spawn(async move {
            let lifecycle = &file_chunks.lifecycle;
            let read = prefetch(&file_chunks, reads, deadline).map(Ok);
            if let Err(error) = lifecycle.within_deadline(deadline, read).await {
                log::debug!("table {}: prefetch: {error}", lifecycle.name());
            }
            drop(reservation);
        });
    }
}

impl PrefetchBudget {
    fn new() -> Self {
        let bytes = usize::try_from(PREFETCH_BYTES_MAX).expect("limits say so");
        Self {
            tasks: Arc::new(Semaphore::new(PREFETCHES_MAX)),
            bytes: Arc::new(Semaphore::new(bytes)),
            skipped: AtomicU64::new(0),
        }
    }

    /// Reserves budget for some of these chunks, and removes the others. All prefetches together
    /// read at most `bytes_max` bytes from the store.
    fn reserve(&self, reads: &mut Vec<PlannedRead>, bytes_max: u64) -> Option<Reservation> {
        let count = reads.len();
        let reservation = self.try_reserve(reads, bytes_max);
        let prefetched = if reservation.is_some() { reads.len() } else { 0 };
        self.skipped.fetch_add((count - prefetched) as u64, Relaxed);
        reservation
    }

    fn try_reserve(&self, reads: &mut Vec<PlannedRead>, bytes_max: u64) -> Option<Reservation> {
        let task = self.tasks.clone().try_acquire_owned().ok()?;
        let kept_free =
            usize::try_from(PREFETCH_BYTES_MAX.saturating_sub(bytes_max)).expect("limits say so");
        let (free, mut taken) = (self.bytes.available_permits(), 0);
        reads.retain(|read| {
            let bytes =
                usize::try_from(read.location.span.length).expect("a chunk fits into memory");
            // Chunks on disk take no bandwidth of the store.
            let free = if read.is_local() { free } else { free.saturating_sub(kept_free) };
            let fits = taken + bytes <= free;
            taken += if fits { bytes } else { 0 };
            fits
        });
        // Fails if concurrent prefetches reserved the bytes first.
        let bytes = self.bytes.clone().try_acquire_many_owned(u32::try_from(taken).ok()?).ok()?;
        (!reads.is_empty()).then_some(Reservation { _task: task, _bytes: bytes })
    }
}

/// Returns how many bytes the store brings soon, at the bytes per second of a read. Prefetches in
/// progress share the link, so they do not count extra.
fn bytes_ahead(bandwidth: Option<f64>) -> u64 {
    let bytes = bandwidth.unwrap_or(0.0) * PREFETCH_AHEAD_TIME.as_secs_f64();
    // A float cast saturates.
    (bytes as u64).clamp(PREFETCH_BYTES_MIN, PREFETCH_BYTES_MAX)
}

/// Returns whether a chunk is on local disk and was verified there.
fn is_ready(location: &Location) -> bool {
    let object = &location.file.object;
    let is_verified = location.file.verified.has(location.position, object.disk_writes());
    is_verified && object.is_local(range(location.span))
}

fn plan_read(location: &Location) -> PlannedRead {
    let chunk = FileChunk { file: location.file.clone(), position: location.position };
    let Location { span, dictionary, .. } = *location;
    PlannedRead { index: 0, chunk, location: ChunkLocation { span, dictionary } }
}

fn deadline() -> Instant {
    (time::Instant::now() + PREFETCH_TIMEOUT).into_std()
}

impl PlannedRead {
    fn address(&self) -> ChunkAddress {
        self.chunk.file.index.address(self.chunk.position)
    }

    fn is_local(&self) -> bool {
        self.chunk.file.object.is_local(range(self.location.span))
    }

    fn request(&self, from: From, deadline: Instant) -> ReadRequest {
        let local_only = from == From::Disk;
        ReadRequest { address: self.address(), wanted: Wanted::Length, local_only, deadline }
    }
}

/// Source from which a prefetch reads a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Disk,
    Anywhere,
}

async fn prefetch(file_chunks: &Arc<FileChunkReader>, reads: Vec<PlannedRead>, deadline: Instant) {
    let (local, remote) = reads.into_iter().partition(PlannedRead::is_local);
    let local = verify_on_disk(file_chunks, local, deadline);
    let (again, ()) = join(local, read_all(file_chunks, remote, deadline)).await;
    read_all(file_chunks, again, deadline).await;
}

/// Verifies chunks on disk. Returns those that are missing or wrong there after all.
async fn verify_on_disk(
    file_chunks: &FileChunkReader,
    reads: Vec<PlannedRead>,
    deadline: Instant,
) -> Vec<PlannedRead> {
    let mut slow = Vec::new();
    for read in reads {
        let FileChunk { file, position } = &read.chunk;
        if file_chunks.try_read(file, *position, &read.address(), Wanted::Length).is_none() {
            slow.push(read);
        }
        consume_budget().await;
    }
    let verified = stream::iter(slow).map(|read| verify_one_on_disk(file_chunks, read, deadline));
    verified.buffer_unordered(PREFETCH_DISK_READS_MAX).filter_map(future::ready).collect().await
}

/// Returns the chunk if it has to be read elsewhere.
async fn verify_one_on_disk(
    file_chunks: &FileChunkReader,
    read: PlannedRead,
    deadline: Instant,
) -> Option<PlannedRead> {
    let FileChunk { file, position } = &read.chunk;
    let writes = file.object.disk_writes();
    let request = read.request(From::Disk, deadline);
    if file_chunks.read_even_if_known_corrupt(&read.chunk, None, request).await.is_err() {
        return Some(read);
    }
    if file.object.disk_writes() == writes {
        file.verified.set(*position, writes);
    }
    None
}

async fn read_all(
    file_chunks: &Arc<FileChunkReader>,
    mut reads: Vec<PlannedRead>,
    deadline: Instant,
) {
    sort(&mut reads);
    let file_chunks = file_chunks.clone();
    let finish = Arc::new(move |read: PlannedRead, started| {
        let file_chunks = file_chunks.clone();
        async move {
            let request = read.request(From::Anywhere, deadline);
            // An error is for the client that asks for the bytes; a prefetch only notes it.
            file_chunks.read_verified(&read.chunk, Some(started), request).await.is_ok()
        }
        .boxed()
    });
    let options = Box::new(move || ReadOptions { deadline, local_only: false });
    let mut window = Window::new(options, reads, finish);
    while window.next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prefetches once took the whole link for a minute, while requests waited.
    #[test]
    fn no_more_is_prefetched_than_the_store_brings_soon() {
        assert_eq!(bytes_ahead(None), PREFETCH_BYTES_MIN);
        assert_eq!(bytes_ahead(Some(5_000.0)), PREFETCH_BYTES_MIN);
        assert_eq!(bytes_ahead(Some(3e6)), 6_000_000);
        assert_eq!(bytes_ahead(Some(80e6)), PREFETCH_BYTES_MAX);
        assert_eq!(bytes_ahead(Some(f64::INFINITY)), PREFETCH_BYTES_MAX);
    }
}
