//! What is on local disk of a file, compared with the addresses of its chunks after the file was
//! copied whole.
//!
//! A copy is given as the store gives it, without waiting for a comparison. But what came wrong
//! once would be on disk with a good checksum, and in every copy that is made later. So when a copy
//! has ended, all that has come to disk is compared once, in the background, one file after the
//! other, with a quarter of a thread; what is wrong is read again from the store. Reads for this do
//! not count as use. What an earlier process brought is not compared again: `cache verify` does
//! that.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use busload_chunks::Span;
use busload_objects::{StreamOptions, Use};
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use log::Level;
use tokio::{
    sync::Semaphore,
    task::yield_now,
    time::{self, sleep},
};

use super::verified_range::{RangePart, cut};
use crate::{
    Error,
    fault::Fault,
    limits::{
        INLINE_CONTENTS_BYTES_MAX, LOCAL_VERIFICATION_CORRUPT_MAX, LOCAL_VERIFICATION_DELAY,
        LOCAL_VERIFICATION_RESTS, LOCAL_VERIFICATION_TIMEOUT, LOCAL_VERIFICATIONS_MAX,
    },
    read::decode::{RawChunk, Trust, Wanted},
    read::dictionaries::LoadedDictionary,
    read::reader::ReadRequest,
    shared::Shared,
    task::blocking,
    versions::opener::index_sidecar_name,
    versions::table_file::{TableFile, range},
    versions::version::ChunkCopy,
};

/// So much of a kept index is compared at once.
const TAIL_PART_BYTES: usize = 1 << 20;

/// Comparisons after copies: one at a time.
#[derive(Debug)]
pub(crate) struct LocalVerifier {
    turn: Semaphore,
}

impl Default for LocalVerifier {
    fn default() -> Self {
        Self { turn: Semaphore::new(1) }
    }
}

/// Bytes on disk that were compared, and how many of them were wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalVerification {
    pub bytes: u64,
    pub corrupt: u64,
    corrupt_chunks: u32,
}

/// A copy of a file, until it has ended or was given up.
pub(super) struct CopyGuard {
    pub shared: Arc<Shared>,
    pub file: Arc<TableFile>,
}

impl Drop for CopyGuard {
    fn drop(&mut self) {
        self.shared.compare_later(&self.file);
    }
}

/// The comparison of a file, from when it is intended.
struct ScheduledVerification(Arc<TableFile>);

impl ScheduledVerification {
    fn new(file: &Arc<TableFile>) -> Option<Self> {
        (!file.is_verification_scheduled.swap(true, Relaxed)).then(|| Self(file.clone()))
    }
}

impl Drop for ScheduledVerification {
    fn drop(&mut self) {
        self.0.is_verification_scheduled.store(false, Relaxed);
    }
}

impl Shared {
    fn compare_later(self: &Arc<Self>, file: &Arc<TableFile>) {
        if self.is_closed() || file.object.disk_writes() == 0 {
            return;
        }
        let Some(intent) = ScheduledVerification::new(file) else { return };
        let shared = self.clone();
        self.runtime.spawn(async move {
            tokio::select! {
                biased;
                () = shared.closed() => {}
                () = shared.compare_copy(&intent.0) => {}
            }
        });
    }

    async fn compare_copy(self: &Arc<Self>, file: &Arc<TableFile>) {
        // The last of it is on its way to the disk.
        sleep(LOCAL_VERIFICATION_DELAY).await;
        let _turn = self.copies.turn.acquire().await;
        for _ in 0..LOCAL_VERIFICATIONS_MAX {
            let writes = file.object.disk_writes();
            let compared = self.compare_local(file, LOCAL_VERIFICATION_RESTS, &mut |_| {}).await;
            if let Err(error) = &compared {
                log::warn!("table {}: a comparison ended early: {error}", self.name);
            }
            if compared.is_err() || file.object.disk_writes() == writes {
                return;
            }
        }
    }

    /// Compares what is on disk of a file, but for what was compared already, and rests so many
    /// times as long as it works. Wrong bytes are taken from there and read again.
    pub(crate) async fn compare_local(
        self: &Arc<Self>,
        file: &Arc<TableFile>,
        rests: u32,
        tell: &mut (dyn FnMut(LocalVerification) + Send),
    ) -> Result<LocalVerification, Error> {
        let all = file.clone();
        let segments = blocking(move || cut(&all, 0..all.object.meta().size)).await?;
        let (mut compared, mut dictionaries) = (LocalVerification::default(), BTreeSet::new());
        for segment in segments {
            let (began, before) = (time::Instant::now(), compared);
            self.compare_segment(file, &segment, (&mut compared, &mut dictionaries)).await?;
            tell(compared);
            if rests != 0 && before != compared {
                sleep(began.elapsed() * rests).await;
            }
        }
        for span in dictionaries {
            self.compare_dictionary(file, span, &mut compared).await?;
        }
        self.compare_tail(file, &mut compared).await?;
        Ok(compared)
    }

    async fn compare_segment(
        self: &Arc<Self>,
        file: &Arc<TableFile>,
        segment: &RangePart,
        (compared, dictionaries): (&mut LocalVerification, &mut BTreeSet<Span>),
    ) -> Result<(), Error> {
        let writes = file.object.disk_writes();
        let is_news = |position: &u32| !file.verified.has(*position, writes);
        let news: Vec<u32> = segment.chunks.iter().copied().filter(is_news).collect();
        if news.is_empty() {
            return Ok(());
        }
        let whole = local_bytes(file, segment.range.clone()).await;
        for position in news {
            let location = file.location(position);
            let span = range(location.span);
            dictionaries.extend(location.dictionary);
            let bytes = match &whole {
                // Those of a strange file may overlap.
                Some(whole) if span.end <= segment.range.end => {
                    whole.slice(within(&span, segment.range.start))
                }
                _ => match local_bytes(file, span.clone()).await {
                    Some(bytes) => bytes,
                    None => continue,
                },
            };
            compared.bytes += span.end - span.start;
            if self.is_right(file, position, bytes).await? {
                if file.object.disk_writes() == writes && file.object.is_local(span) {
                    file.verified.set(position, writes);
                }
            } else {
                compared.corrupt += span.end - span.start;
                compared.corrupt_chunks += 1;
                if LOCAL_VERIFICATION_CORRUPT_MAX < compared.corrupt_chunks {
                    let name = file.name();
                    return Err(Error::Corrupt(format!(
                        "more than {LOCAL_VERIFICATION_CORRUPT_MAX} chunks of {name} are wrong on disk; the rest is not compared"
                    )));
                }
                // The first one is worth a line.
                let level = if compared.corrupt_chunks == 1 { Level::Warn } else { Level::Debug };
                self.read_again(file, position, level).await;
            }
            // Others have come meanwhile who wait for a chunk.
            yield_now().await;
        }
        Ok(())
    }

    /// Whether bytes are those of the chunk.
    async fn is_right(
        self: &Arc<Self>,
        file: &Arc<TableFile>,
        position: u32,
        bytes: Bytes,
    ) -> Result<bool, Error> {
        let (location, job) = (file.location(position), job(file, position));
        let dictionary = match location.dictionary {
            None => None,
            Some(span) => match self.read_dictionary(file, span, job).await {
                Ok(dictionary) => Some(dictionary),
                // With what is to be read instead, its chunks are looked at again.
                Err(Fault::Corrupt(_)) => return Ok(false),
                Err(Fault::Error(error)) => return Err(error),
                Err(Fault::Gone) => {
                    file.set_gone();
                    return Err(Error::Unreachable(format!(
                        "{} was replaced while it was compared",
                        file.name()
                    )));
                }
            },
        };
        let Ok(raw) = RawChunk::parse(bytes, location) else { return Ok(false) };
        let is_large = raw.contents_bytes().is_ok_and(|bytes| INLINE_CONTENTS_BYTES_MAX < bytes);
        let id = file.id;
        let compare = move || {
            let with = dictionary.as_deref().map(LoadedDictionary::dictionary);
            let is_right =
                raw.answer(&job.address, &id, with, (Wanted::Length, Trust::Unverified)).is_ok();
            dictionary
                .iter()
                .filter(|_| is_right)
                .for_each(|dictionary| dictionary.mark_verified());
            is_right
        };
        if is_large { blocking(compare).await } else { Ok(compare()) }
    }

    /// As any other reader finds that it is wrong.
    async fn read_again(self: &Arc<Self>, file: &Arc<TableFile>, position: u32, level: Level) {
        let place = ChunkCopy { file: file.clone(), position };
        let job = job(file, position);
        log::log!(
            level,
            "table {}: chunk {} in {} is wrong on disk; read again from the store",
            self.name,
            job.address,
            file.name()
        );
        // What the store has may be wrong, too: that was logged, and whoever asks for it is told.
        let _ = self.read_copy(&place, None, job).await;
    }

    /// Chunks say whether the dictionary in use is right, and that says whether the one on disk is.
    async fn compare_dictionary(
        self: &Arc<Self>,
        file: &Arc<TableFile>,
        span: Span,
        compared: &mut LocalVerification,
    ) -> Result<(), Error> {
        let used = self.try_dictionary(file, span);
        let (Some(used), Some(bytes)) = (used, local_bytes(file, range(span)).await) else {
            return Ok(());
        };
        let is_same = blocking(move || {
            LoadedDictionary::decode(&bytes)
                .is_ok_and(|own| own.dictionary().bytes() == used.dictionary().bytes())
        });
        if is_same.await? {
            compared.bytes += u64::from(span.length);
        } else {
            self.remove_wrong(file, range(span), compared);
        }
        Ok(())
    }

    /// The index was read twice when the file was opened, and kept.
    async fn compare_tail(
        &self,
        file: &Arc<TableFile>,
        compared: &mut LocalVerification,
    ) -> Result<(), Error> {
        let meta = file.object.meta().clone();
        let kept =
            self.cache.run_blocking(move |cache| cache.kept(&index_sidecar_name(&meta))).await;
        let Some(kept) = kept.flatten() else { return Ok(()) };
        let mut start = file.object.meta().size.saturating_sub(kept.len() as u64);
        for part in kept.chunks(TAIL_PART_BYTES) {
            let part_range = start..start + part.len() as u64;
            start = part_range.end;
            match local_bytes(file, part_range.clone()).await {
                Some(bytes) if bytes == part => compared.bytes += part.len() as u64,
                Some(_) => self.remove_wrong(file, part_range, compared),
                None => {}
            }
        }
        Ok(())
    }

    /// Whoever wants it next has it from the store.
    fn remove_wrong(&self, file: &TableFile, wrong: Range<u64>, compared: &mut LocalVerification) {
        let bytes = wrong.end - wrong.start;
        compared.bytes += bytes;
        compared.corrupt += bytes;
        self.counters.count_corrupt();
        log::warn!(
            "table {}: bytes {wrong:?} of {} are wrong on disk and are removed",
            self.name,
            file.name()
        );
        file.object.invalidate(wrong);
    }
}

/// What is on disk of a range, if all of it is.
async fn local_bytes(file: &TableFile, range: Range<u64>) -> Option<Bytes> {
    if !file.object.is_local(range.clone()) {
        return None;
    }
    let options = StreamOptions { purpose: Use::Once, timeout: LOCAL_VERIFICATION_TIMEOUT };
    let mut pieces = file.object.stream(range, options);
    let mut bytes = BytesMut::new();
    while let Some(piece) = pieces.try_next().await.ok()? {
        bytes.extend_from_slice(&piece);
    }
    Some(bytes.freeze())
}

fn job(file: &TableFile, position: u32) -> ReadRequest {
    let deadline = deadline();
    ReadRequest {
        address: file.index.address(position),
        want: Wanted::Length,
        local_only: false,
        deadline,
    }
}

fn deadline() -> Instant {
    (time::Instant::now() + LOCAL_VERIFICATION_TIMEOUT).into_std()
}

fn within(span: &Range<u64>, start: u64) -> Range<usize> {
    let offset = |at: u64| usize::try_from(at - start).expect("a segment fits into memory");
    offset(span.start)..offset(span.end)
}
