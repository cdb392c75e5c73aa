//! Reads the index of one file: from local disk, where it was kept, else from the store.

use std::ops::Range;

use busload_chunks::{ChunkAddress, FileKind, FormatError, TableIndex};
use busload_objects::{Cache, ObjectMeta};
use bytes::{Bytes, BytesMut};
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

/// The name under which the end of a version of an object is kept.
pub(crate) fn index_sidecar_name(meta: &ObjectMeta) -> String {
    let version = format!("{}\n{}\n{}", meta.name, meta.size, meta.etag);
    format!("index-{}", ChunkAddress::of(version.as_bytes()))
}

/// What is in memory of an archive's end at once: the two parts that it is put together from, or it
/// and what is made of it.
const ARCHIVE_COPIES: u64 = 2;

/// For the memory of one end.
type Permit<'a> = Option<SemaphorePermit<'a>>;

/// A file whose index is wanted.
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
        // Until it has become an index, which is counted elsewhere.
        let mut permit = Some(self.room.take(target.memory_guess()).await);
        if let Some(index) = self.kept_index(target.clone()).await {
            return Ok(index);
        }
        let tail = self.read_tail_believed(&target, &mut permit).await?;
        let keep = move |cache: &Cache| {
            let index = target.parse(tail.clone())?;
            cache.keep(&index_sidecar_name(&target.meta), &tail);
            Ok(index)
        };
        self.cache.run_blocking(keep).await.ok_or(Error::Closed)?
    }

    async fn kept_index(&self, target: Target) -> Option<TableIndex> {
        self.cache.run_blocking(move |cache| target.parse_kept(cache)).await.flatten()
    }

    /// The end of a file, as two reads agree that it is.
    async fn read_tail_believed<'a>(
        &'a self,
        target: &Target,
        permit: &mut Permit<'a>,
    ) -> Result<Bytes, Fault> {
        let mut was_corrupt = false;
        for _ in 0..OPENING_ATTEMPTS_MAX {
            match self.read_tail(target, permit).await {
                Ok(tail) if !self.is_remote || self.is_read_again(target, &tail).await? => {
                    return Ok(tail);
                }
                // A footer corrupt on its way makes no sense; so it is read again, like what
                // differs.
                Err(Fault::Corrupt(_)) if self.is_remote && !was_corrupt => was_corrupt = true,
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Fault::Error(Error::Unreachable(format!(
            "{}: no two reads of the end of {} give the same bytes",
            self.remote.url(),
            target.meta.name
        ))))
    }

    /// Whether a second read gives the same bytes: in pieces, so that there are never two copies of
    /// a large index.
    async fn is_read_again(&self, target: &Target, tail: &Bytes) -> Result<bool, Fault> {
        let piece_bytes = usize::try_from(TAIL_REREAD_BYTES_MAX).expect("it fits into memory");
        let tail_bytes = u64::try_from(tail.len()).expect("lengths have at most 64 bits");
        let mut start = target.meta.size - tail_bytes;
        for piece in tail.chunks(piece_bytes) {
            let end = start + u64::try_from(piece.len()).expect("lengths have at most 64 bits");
            if self.remote.read(&target.meta, start..end).await? != piece {
                return Ok(false);
            }
            start = end;
        }
        Ok(true)
    }

    async fn read_tail<'a>(
        &'a self,
        target: &Target,
        permit: &mut Permit<'a>,
    ) -> Result<Bytes, Fault> {
        match target.kind {
            FileKind::Classic => self.read_classic_tail(target).await,
            FileKind::Archive => self.read_archive_tail(target, permit).await,
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
        Ok(self.remote.read(&target.meta, range).await?)
    }

    /// One read in most cases: what is before the footer depends on the footer.
    async fn read_archive_tail<'a>(
        &'a self,
        target: &Target,
        permit: &mut Permit<'a>,
    ) -> Result<Bytes, Fault> {
        let Target { meta, .. } = target;
        let guess = target.archive_guess();
        let end = self.remote.read(meta, meta.size - guess..meta.size).await?;
        let needed = TableIndex::archive_tail_bytes(&end, meta.size)?;
        if let Some(more) = guess.checked_sub(needed) {
            let more = usize::try_from(more).expect("it was read into memory");
            return Ok(end.slice(more..));
        }
        // Given back before more is waited for: those who wait for each other would wait for ever.
        drop(permit.take());
        *permit = Some(self.room.take(needed * ARCHIVE_COPIES).await);
        let front = self.remote.read(meta, meta.size - needed..meta.size - guess).await?;
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

    /// What was kept and makes no sense is as good as not kept.
    fn parse_kept(&self, cache: &Cache) -> Option<TableIndex> {
        self.parse(cache.kept(&index_sidecar_name(&self.meta))?).ok()
    }

    /// The last bytes, if there are so many.
    fn end(&self, bytes: u64) -> Option<Range<u64>> {
        Some(self.meta.size.checked_sub(bytes)?..self.meta.size)
    }

    /// Memory that reading the index most likely takes.
    fn memory_guess(&self) -> u64 {
        match self.kind {
            FileKind::Classic => {
                TableIndex::classic_tail_bytes(self.chunk_count).min(self.meta.size)
            }
            FileKind::Archive => self.archive_guess() * ARCHIVE_COPIES,
        }
    }

    /// How many bytes from the end most likely hold the index.
    fn archive_guess(&self) -> u64 {
        let index =
            u64::from(self.chunk_count) * ARCHIVE_GUESS_BYTES_PER_CHUNK + ARCHIVE_GUESS_BYTES_MORE;
        index.max(ARCHIVE_GUESS_BYTES_MIN).min(self.meta.size)
    }
}
