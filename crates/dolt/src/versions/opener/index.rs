//! Reads the index of one table file: from its sidecar on local disk, else from the object store.

use std::{ops::Range, sync::Arc};

use busload_chunks::{ChunkAddress, FileKind, FormatError, TableIndex};
use busload_objects::{Cache, ObjectMeta};
use bytes::{Bytes, BytesMut};
use futures_util::future::join;
use tokio::sync::SemaphorePermit;

use crate::{
    Error,
    fault::Fault,
    limits::{
        ARCHIVE_GUESS_BYTES_MIN, ARCHIVE_GUESS_BYTES_MORE, ARCHIVE_GUESS_BYTES_PER_CHUNK,
        OPENING_ATTEMPTS_MAX, TAIL_REREAD_BYTES_MAX,
    },
    versions::opener::Opener,
};

/// Names the sidecar that holds the index of one version of an object.
pub(crate) fn index_sidecar_name(meta: &ObjectMeta) -> String {
    let version = format!("{}\n{}\n{}", meta.name, meta.size, meta.etag);
    format!("index-{}", ChunkAddress::of(version.as_bytes()))
}

/// Copies of an archive's index in memory at once: the two parts that are joined, or the joined
/// bytes and the parsed index.
const ARCHIVE_COPIES: u64 = 2;

/// Memory reserved for one index.
type Reservation<'a> = Option<SemaphorePermit<'a>>;

/// Table file whose index is read.
#[derive(Clone)]
struct Target {
    kind: FileKind,
    meta: ObjectMeta,
    chunk_count: u32,
}

impl Opener {
    pub(super) async fn read_index(
        &self,
        kind: FileKind,
        meta: &ObjectMeta,
        chunk_count: u32,
    ) -> Result<TableIndex, Fault> {
        let target = Target { kind, meta: meta.clone(), chunk_count };
        // Held until the bytes have become an index, whose memory the version accounts for.
        let mut reservation = Some(self.budget.reserve(target.memory_guess()).await);
        if let Some(index) = self.index_sidecar(target.clone()).await {
            return Ok(index);
        }
        let tail = self.read_confirmed_tail(&target, &mut reservation).await?;
        self.keep(target, tail).await
    }

    /// Reads the index of a file of which only the name is known, without a round trip to look for
    /// it. None: there is no such file, its index is long, or the two reads differ.
    pub(super) async fn read_index_by_name(
        &self,
        kind: FileKind,
        name: String,
        chunk_count: u32,
    ) -> Option<(ObjectMeta, TableIndex)> {
        let bytes = match kind {
            FileKind::Classic => TableIndex::classic_tail_bytes(chunk_count),
            FileKind::Archive => archive_guess(chunk_count),
        };
        if TAIL_REREAD_BYTES_MAX < bytes {
            return None;
        }
        let _reservation = self.budget.reserve(bytes * ARCHIVE_COPIES).await;
        let read = || self.source.remote.fetch_end(&name, bytes);
        let (end, again) = join(read(), read()).await;
        let (meta, end) =
            end.ok()?.filter(|end| again.is_ok_and(|again| again.as_ref() == Some(end)))?;
        let tail = match kind {
            FileKind::Classic => end,
            FileKind::Archive => {
                let needed = TableIndex::archive_tail_bytes(&end, meta.size).ok()?;
                end.slice(end.len().checked_sub(usize::try_from(needed).ok()?)?..)
            }
        };
        let target = Target { kind, meta: meta.clone(), chunk_count };
        Some((meta, self.keep(target, tail).await.ok()?))
    }

    /// Parses an index of which two reads agreed, and writes its sidecar.
    async fn keep(&self, target: Target, tail: Bytes) -> Result<TableIndex, Fault> {
        let remote = Arc::clone(&self.source.remote);
        let keep = move |cache: &Cache| {
            let index = target.parse(tail.clone())?;
            cache.write_sidecar(remote.url(), &index_sidecar_name(&target.meta), &tail);
            Ok(index)
        };
        self.source.cache.run_blocking(keep).await.ok_or(Error::Closed)?
    }

    async fn index_sidecar(&self, target: Target) -> Option<TableIndex> {
        let remote = Arc::clone(&self.source.remote);
        let parse = move |cache: &Cache| target.parse_sidecar(cache, remote.url());
        self.source.cache.run_blocking(parse).await.flatten()
    }

    /// Reads the end of a file until two reads agree.
    async fn read_confirmed_tail<'a>(
        &'a self,
        target: &Target,
        reservation: &mut Reservation<'a>,
    ) -> Result<Bytes, Fault> {
        let mut was_corrupt = false;
        for _ in 0..OPENING_ATTEMPTS_MAX {
            let (tail, again) =
                join(self.read_tail(target, reservation), self.reread_end(target)).await;
            match tail {
                Ok(tail)
                    if !self.source.is_remote
                        || self.is_reread_equal(target, &tail, again).await? =>
                {
                    return Ok(tail);
                }
                // A footer corrupted in transit makes no sense, so it is read again, too.
                Err(Fault::Corrupt(_)) if self.source.is_remote && !was_corrupt => {
                    was_corrupt = true
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Fault::Error(Error::Unreachable(format!(
            "{}: no two reads of the end of {} give the same bytes",
            self.source.remote.url(),
            target.meta.name
        ))))
    }

    /// Reads a short end of the file for the second time, while the first read is under way: that
    /// saves a round trip. None if it is long, or if one read is enough.
    async fn reread_end(&self, target: &Target) -> Option<Result<Bytes, Fault>> {
        let bytes = target.first_read_bytes();
        let is_short = self.source.is_remote && bytes <= TAIL_REREAD_BYTES_MAX;
        let range = target.end(bytes).filter(|_| is_short)?;
        Some(self.source.remote.read(&target.meta, range).await.map_err(Fault::from))
    }

    /// Compares the index with a second read of it. It reads a long one in pieces, so that memory
    /// never holds two copies of a large index.
    async fn is_reread_equal(
        &self,
        target: &Target,
        tail: &Bytes,
        again: Option<Result<Bytes, Fault>>,
    ) -> Result<bool, Fault> {
        match again {
            Some(Ok(again)) if tail.len() <= again.len() => return Ok(again.ends_with(tail)),
            Some(Err(error)) => return Err(error),
            _ => {}
        }
        let piece_bytes = usize::try_from(TAIL_REREAD_BYTES_MAX).expect("it fits into memory");
        let tail_bytes = u64::try_from(tail.len()).expect("lengths have at most 64 bits");
        let mut start = target.meta.size - tail_bytes;
        for piece in tail.chunks(piece_bytes) {
            let end = start + u64::try_from(piece.len()).expect("lengths have at most 64 bits");
            if self.source.remote.read(&target.meta, start..end).await? != piece {
                return Ok(false);
            }
            start = end;
        }
        Ok(true)
    }

    async fn read_tail<'a>(
        &'a self,
        target: &Target,
        reservation: &mut Reservation<'a>,
    ) -> Result<Bytes, Fault> {
        match target.kind {
            FileKind::Classic => self.read_classic_tail(target).await,
            FileKind::Archive => self.read_archive_tail(target, reservation).await,
        }
    }

    async fn read_classic_tail(&self, target: &Target) -> Result<Bytes, Fault> {
        let bytes = TableIndex::classic_tail_bytes(target.chunk_count);
        let Some(range) = target.end(bytes) else {
            return Err(Fault::Corrupt(format!(
                "it has {} bytes, but the index of {} chunks alone has {bytes}",
                target.meta.size, target.chunk_count
            )));
        };
        Ok(self.source.remote.read(&target.meta, range).await?)
    }

    /// Reads an archive's index, mostly in one read: the footer says how long the index is.
    async fn read_archive_tail<'a>(
        &'a self,
        target: &Target,
        reservation: &mut Reservation<'a>,
    ) -> Result<Bytes, Fault> {
        let Target { meta, .. } = target;
        let guess = target.archive_guess();
        let end = self.source.remote.read(meta, meta.size - guess..meta.size).await?;
        let needed = TableIndex::archive_tail_bytes(&end, meta.size)?;
        if let Some(more) = guess.checked_sub(needed) {
            let more = usize::try_from(more).expect("it was read into memory");
            return Ok(end.slice(more..));
        }
        // Released before the next reservation: files that wait for each other's would deadlock.
        drop(reservation.take());
        *reservation = Some(self.budget.reserve(needed * ARCHIVE_COPIES).await);
        let front = self.source.remote.read(meta, meta.size - needed..meta.size - guess).await?;
        let mut tail = BytesMut::with_capacity(front.len() + end.len());
        tail.extend_from_slice(&front);
        tail.extend_from_slice(&end);
        Ok(tail.freeze())
    }
}

impl Target {
    fn parse(&self, tail: Bytes) -> Result<TableIndex, FormatError> {
        match self.kind {
            FileKind::Classic => TableIndex::parse_classic(tail, self.chunk_count, self.meta.size),
            FileKind::Archive => TableIndex::parse_archive(tail, self.meta.size),
        }
    }

    /// Parses the sidecar; one that makes no sense counts as missing.
    fn parse_sidecar(&self, cache: &Cache, store: &str) -> Option<TableIndex> {
        self.parse(cache.read_sidecar(store, &index_sidecar_name(&self.meta))?).ok()
    }

    /// Range of the last bytes, if the object has that many.
    fn end(&self, bytes: u64) -> Option<Range<u64>> {
        Some(self.meta.size.checked_sub(bytes)?..self.meta.size)
    }

    /// Estimates the memory that reading the index takes.
    fn memory_guess(&self) -> u64 {
        match self.kind {
            FileKind::Classic => {
                TableIndex::classic_tail_bytes(self.chunk_count).min(self.meta.size)
            }
            FileKind::Archive => self.archive_guess() * ARCHIVE_COPIES,
        }
    }

    /// Number of bytes from the end that the first read asks for.
    fn first_read_bytes(&self) -> u64 {
        match self.kind {
            FileKind::Classic => TableIndex::classic_tail_bytes(self.chunk_count),
            FileKind::Archive => self.archive_guess(),
        }
    }

    /// Estimates how many bytes from the end hold the index.
    fn archive_guess(&self) -> u64 {
        archive_guess(self.chunk_count).min(self.meta.size)
    }
}

/// Estimates how many bytes from the end of a large archive hold the index.
fn archive_guess(chunk_count: u32) -> u64 {
    let index = u64::from(chunk_count) * ARCHIVE_GUESS_BYTES_PER_CHUNK + ARCHIVE_GUESS_BYTES_MORE;
    index.max(ARCHIVE_GUESS_BYTES_MIN)
}
