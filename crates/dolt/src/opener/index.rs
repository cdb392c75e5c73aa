//! Reads the index of one file: from local disk, where it was kept, else from the store.

use std::ops::Range;

use busload_chunks::{ChunkAddress, FileKind, FormatError, TableIndex};
use busload_objects::{Cache, ObjectMeta};
use bytes::{Bytes, BytesMut};
use futures_util::future;

use crate::{
    Error,
    fault::Fault,
    limits::{
        ARCHIVE_GUESS_BYTES_MIN, ARCHIVE_GUESS_BYTES_MORE, ARCHIVE_GUESS_BYTES_PER_CHUNK,
        OPENING_ATTEMPTS_MAX,
    },
    opener::Opener,
    task::blocking,
};

/// The name under which the end of a version of an object is kept.
pub(super) fn kept_name(meta: &ObjectMeta) -> String {
    let version = format!("{}\n{}\n{}", meta.name, meta.size, meta.etag);
    format!("index-{}", ChunkAddress::of(version.as_bytes()))
}

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
        if let Some(index) = self.kept_index(target.clone()).await {
            return Ok(index);
        }
        let tail = self.read_tail_believed(&target).await?;
        let cache = self.cache.clone();
        blocking(move || {
            let index = target.parse(tail.clone())?;
            cache.keep(&kept_name(&target.meta), &tail);
            Ok(index)
        })
        .await?
    }

    async fn kept_index(&self, target: Target) -> Option<TableIndex> {
        let cache = self.cache.clone();
        blocking(move || target.parse_kept(&cache)).await.ok().flatten()
    }

    /// The end of a file, as two reads agree that it is.
    async fn read_tail_believed(&self, target: &Target) -> Result<Bytes, Fault> {
        if !self.is_remote {
            return self.read_tail(target).await;
        }
        for _ in 0..OPENING_ATTEMPTS_MAX {
            match future::join(self.read_tail(target), self.read_tail(target)).await {
                (Ok(one), Ok(other)) if one == other => return Ok(one),
                (Err(Fault::Gone), _) | (_, Err(Fault::Gone)) => return Err(Fault::Gone),
                // A footer damaged on its way makes no sense; so it is read again, like what differs.
                (Ok(_) | Err(Fault::Damaged(_)), Ok(_)) | (Ok(_), Err(Fault::Damaged(_))) => {}
                (Err(error), _) | (_, Err(error)) => return Err(error),
            }
        }
        Err(Fault::Error(Error::Unreachable(format!(
            "{}: no two reads of the end of {} give the same bytes",
            self.remote.url(),
            target.meta.name
        ))))
    }

    async fn read_tail(&self, target: &Target) -> Result<Bytes, Fault> {
        match target.kind {
            FileKind::Classic => self.read_classic_tail(target).await,
            FileKind::Archive => self.read_archive_tail(target).await,
        }
    }

    async fn read_classic_tail(&self, target: &Target) -> Result<Bytes, Fault> {
        let bytes = TableIndex::classic_tail_bytes(target.chunk_count);
        let Some(range) = target.end(bytes) else {
            return Err(Fault::Damaged(format!(
                "it has {} bytes, but the index of {} chunks alone has {bytes}",
                target.meta.size, target.chunk_count
            )));
        };
        Ok(self.remote.read(&target.meta, range).await?)
    }

    /// One read in most cases: what is before the footer depends on the footer.
    async fn read_archive_tail(&self, target: &Target) -> Result<Bytes, Fault> {
        let Target { meta, .. } = target;
        let guess = target.archive_guess();
        let end = self.remote.read(meta, meta.size - guess..meta.size).await?;
        let needed = TableIndex::archive_tail_bytes(&end, meta.size)?;
        if let Some(more) = guess.checked_sub(needed) {
            let more = usize::try_from(more).expect("it was read into memory");
            return Ok(end.slice(more..));
        }
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
        self.parse(cache.kept(&kept_name(&self.meta))?).ok()
    }

    /// The last bytes, if there are so many.
    fn end(&self, bytes: u64) -> Option<Range<u64>> {
        Some(self.meta.size.checked_sub(bytes)?..self.meta.size)
    }

    /// How many bytes from the end most likely hold the index.
    fn archive_guess(&self) -> u64 {
        let index = u64::from(self.chunk_count) * ARCHIVE_GUESS_BYTES_PER_CHUNK + ARCHIVE_GUESS_BYTES_MORE;
        index.max(ARCHIVE_GUESS_BYTES_MIN).min(self.meta.size)
    }
}
