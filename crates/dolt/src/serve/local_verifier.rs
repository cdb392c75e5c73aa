//! Verifies what is on local disk of a table file.
//!
//! busload sends a download of a whole file as the bytes come from the store, without waiting for
//! hashes. But bytes that came wrong once would stay on disk with a good checksum, and go into all
//! later downloads. So when a download has ended, the local verifier checks once, in the
//! background, all bytes of the file that came to disk. It takes one file at a time and a quarter
//! of a thread, and reads wrong bytes again from the store. Its reads do not count as use for
//! eviction. It does not verify bytes that an earlier process brought to disk: `cache verify` does.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use busload_chunks::Span;
use busload_objects::{AccessHint, StreamOptions};
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use log::Level;
use tokio::{
    sync::Semaphore,
    task::yield_now,
    time::{self, sleep},
};

use super::range_parts::{RangePart, cut};
use crate::{
    Error,
    fault::Fault,
    limits::{
        INLINE_CONTENTS_BYTES_MAX, LOCAL_VERIFICATION_CORRUPT_MAX, LOCAL_VERIFICATION_DELAY,
        LOCAL_VERIFICATION_RESTS, LOCAL_VERIFICATION_TIMEOUT, LOCAL_VERIFICATIONS_MAX,
    },
    read::{
        decode::{RawChunk, Trust, Wanted},
        dictionaries::LoadedDictionary,
        file_chunk_reader::{FileChunkReader, ReadRequest},
    },
    task::blocking,
    versions::{
        opener::index_sidecar_name,
        table_file::{TableFile, range},
        version::FileChunk,
    },
};

/// Bytes of an index sidecar that are compared at once with the file on disk.
const TAIL_PART_BYTES: usize = 1 << 20;

/// Verifies files on local disk after their downloads, one at a time.
pub(crate) struct LocalVerifier {
    file_chunks: Arc<FileChunkReader>,
    turn: Semaphore,
}

/// Bytes on disk that were verified, and how many of them were wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VerifiedBytes {
    pub bytes: u64,
    pub corrupt: u64,
    corrupt_chunks: u32,
}

/// Download of a whole file by a client. When it ends or is dropped, the verification of the
/// file is scheduled.
pub(super) struct WholeFileDownload {
    verifier: Arc<LocalVerifier>,
    file: Arc<TableFile>,
}

impl WholeFileDownload {
    pub fn new(verifier: &Arc<LocalVerifier>, file: &Arc<TableFile>) -> Self {
        Self { verifier: verifier.clone(), file: file.clone() }
    }
}

impl Drop for WholeFileDownload {
    fn drop(&mut self) {
        self.verifier.schedule(&self.file);
    }
}

/// Verification of a file that is scheduled or in progress; a file has at most one.
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

impl LocalVerifier {
    pub fn new(file_chunks: Arc<FileChunkReader>) -> Self {
        Self { file_chunks, turn: Semaphore::new(1) }
    }

    fn schedule(self: &Arc<Self>, file: &Arc<TableFile>) {
        let lifecycle = &self.file_chunks.lifecycle;
        if lifecycle.is_closed() || file.object.disk_writes() == 0 {
            return;
        }
        let Some(scheduled) = ScheduledVerification::new(file) else { return };
        let verifier = self.clone();
        lifecycle.spawn(async move {
            tokio::select! {
                biased;
                () = verifier.file_chunks.lifecycle.closed() => {}
                () = verifier.verify_after_download(&scheduled.0) => {}
            }
        });
    }

    async fn verify_after_download(&self, file: &Arc<TableFile>) {
        // The last bytes of the download are still being written to disk.
        sleep(LOCAL_VERIFICATION_DELAY).await;
        let _turn = self.turn.acquire().await;
        for _ in 0..LOCAL_VERIFICATIONS_MAX {
            let writes = file.object.disk_writes();
            let verified = self.verify_file(file, LOCAL_VERIFICATION_RESTS, &mut |_| {}).await;
            if let Err(error) = &verified {
                log::warn!(
                    "table {}: a verification of local bytes ended early: {error}",
                    self.file_chunks.lifecycle.name()
                );
            }
            if verified.is_err() || file.object.disk_writes() == writes {
                return;
            }
        }
    }

    /// Verifies what is on disk of a file, except chunks that are verified already. Removes wrong
    /// bytes from disk and reads them again. Sleeps `rests` times as long as it works.
    pub async fn verify_file(
        &self,
        file: &Arc<TableFile>,
        rests: u32,
        report: &mut (dyn FnMut(VerifiedBytes) + Send),
    ) -> Result<VerifiedBytes, Error> {
        let all = file.clone();
        let parts = blocking(move || cut(&all, 0..all.object.meta().size)).await?;
        let (mut verified, mut dictionaries) = (VerifiedBytes::default(), BTreeSet::new());
        for part in parts {
            let (started, before) = (time::Instant::now(), verified);
            self.verify_part(file, &part, (&mut verified, &mut dictionaries)).await?;
            report(verified);
            if rests != 0 && before != verified {
                sleep(started.elapsed() * rests).await;
            }
        }
        for span in dictionaries {
            self.verify_dictionary(file, span, &mut verified).await?;
        }
        self.verify_tail(file, &mut verified).await?;
        Ok(verified)
    }

    async fn verify_part(
        &self,
        file: &Arc<TableFile>,
        part: &RangePart,
        (verified, dictionaries): (&mut VerifiedBytes, &mut BTreeSet<Span>),
    ) -> Result<(), Error> {
        let writes = file.object.disk_writes();
        let is_new = |position: &u32| !file.verified.has(*position, writes);
        let new: Vec<u32> = part.chunks.iter().copied().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let whole = local_bytes(file, part.range.clone()).await;
        for position in new {
            let location = file.location(position);
            let span = range(location.span);
            dictionaries.extend(location.dictionary);
            let bytes = match &whole {
                // Chunks of a malformed file may reach beyond the part.
                Some(whole) if span.end <= part.range.end => {
                    whole.slice(offsets(&span, part.range.start))
                }
                _ => match local_bytes(file, span.clone()).await {
                    Some(bytes) => bytes,
                    None => continue,
                },
            };
            verified.bytes += span.end - span.start;
            if self.is_right(file, position, bytes).await? {
                if file.object.disk_writes() == writes && file.object.is_local(span) {
                    file.verified.set(position, writes);
                }
            } else {
                verified.corrupt += span.end - span.start;
                verified.corrupt_chunks += 1;
                if LOCAL_VERIFICATION_CORRUPT_MAX < verified.corrupt_chunks {
                    return Err(Error::Corrupt(format!(
                        "more than {LOCAL_VERIFICATION_CORRUPT_MAX} chunks of {} are wrong on \
                         disk; the rest is not verified",
                        file.name()
                    )));
                }
                // Only the first corrupt chunk is worth a warning.
                let is_first = verified.corrupt_chunks == 1;
                let level = if is_first { Level::Warn } else { Level::Debug };
                self.read_again(file, position, level).await;
            }
            // Requests that came meanwhile go first.
            yield_now().await;
        }
        Ok(())
    }

    /// Returns whether bytes are those of the chunk.
    async fn is_right(
        &self,
        file: &Arc<TableFile>,
        position: u32,
        bytes: Bytes,
    ) -> Result<bool, Error> {
        let (location, request) = (file.location(position), request(file, position));
        let dictionary = match location.dictionary {
            None => None,
            Some(span) => {
                let load = self.file_chunks.dictionaries.load(file, span, request.read_options());
                match load.await {
                    Ok(dictionary) => Some(dictionary),
                    // `read_again` replaces the dictionary and verifies with the new one.
                    Err(Fault::Corrupt(_)) => return Ok(false),
                    Err(Fault::Error(error)) => return Err(error),
                    Err(Fault::Gone) => {
                        file.set_gone();
                        return Err(Error::Unreachable(format!(
                            "{} was replaced while it was verified",
                            file.name()
                        )));
                    }
                }
            }
        };
        let Ok(raw) = RawChunk::parse(bytes, location) else { return Ok(false) };
        let is_large = raw.contents_bytes().is_ok_and(|bytes| INLINE_CONTENTS_BYTES_MAX < bytes);
        let id = file.id;
        let verify = move || {
            let with = dictionary.as_deref().map(LoadedDictionary::dictionary);
            let how = (Wanted::Length, Trust::Unverified);
            let is_right = raw.decode(&request.address, &id, with, how).is_ok();
            dictionary.iter().filter(|_| is_right).for_each(|loaded| loaded.mark_verified());
            is_right
        };
        if is_large { blocking(verify).await } else { Ok(verify()) }
    }

    /// Reads a wrong chunk like any other reader, which replaces it on disk.
    async fn read_again(&self, file: &Arc<TableFile>, position: u32, level: Level) {
        let chunk = FileChunk { file: file.clone(), position };
        let request = request(file, position);
        log::log!(
            level,
            "table {}: chunk {} in {} is wrong on disk; read again from the store",
            self.file_chunks.lifecycle.name(),
            request.address,
            file.name()
        );
        // If the chunk is wrong in the store, too, the read has logged it; later requests for it
        // get the error.
        let _ = self.file_chunks.read_even_if_known_corrupt(&chunk, None, request).await;
    }

    /// Compares a dictionary on disk with the loaded one, which chunks have verified.
    async fn verify_dictionary(
        &self,
        file: &Arc<TableFile>,
        span: Span,
        verified: &mut VerifiedBytes,
    ) -> Result<(), Error> {
        let loaded = self.file_chunks.dictionaries.try_load(file, span);
        let (Some(loaded), Some(bytes)) = (loaded, local_bytes(file, range(span)).await) else {
            return Ok(());
        };
        let is_same = blocking(move || {
            LoadedDictionary::decode(&bytes)
                .is_ok_and(|local| local.dictionary().bytes() == loaded.dictionary().bytes())
        });
        if is_same.await? {
            verified.bytes += u64::from(span.length);
        } else {
            self.remove_corrupt(file, range(span), verified);
        }
        Ok(())
    }

    /// Compares the end of the file with the index sidecar, of which two reads agreed when the file
    /// was opened.
    async fn verify_tail(
        &self,
        file: &Arc<TableFile>,
        verified: &mut VerifiedBytes,
    ) -> Result<(), Error> {
        let meta = file.object.meta().clone();
        let remote = Arc::clone(&self.file_chunks.source.remote);
        let read = move |cache: &busload_objects::Cache| {
            cache.read_sidecar(remote.url(), &index_sidecar_name(&meta))
        };
        let sidecar = self.file_chunks.source.cache.run_blocking(read).await;
        let Some(sidecar) = sidecar.flatten() else { return Ok(()) };
        let mut start = file.object.meta().size.saturating_sub(sidecar.len() as u64);
        for part in sidecar.chunks(TAIL_PART_BYTES) {
            let part_range = start..start + part.len() as u64;
            start = part_range.end;
            match local_bytes(file, part_range.clone()).await {
                Some(bytes) if bytes == part => verified.bytes += part.len() as u64,
                Some(_) => self.remove_corrupt(file, part_range, verified),
                None => {}
            }
        }
        Ok(())
    }

    /// Removes bytes from disk; the next read gets them from the store.
    fn remove_corrupt(&self, file: &TableFile, corrupt: Range<u64>, verified: &mut VerifiedBytes) {
        let bytes = corrupt.end - corrupt.start;
        verified.bytes += bytes;
        verified.corrupt += bytes;
        self.file_chunks.count_corrupt();
        log::warn!(
            "table {}: bytes {corrupt:?} of {} are wrong on disk and are removed",
            self.file_chunks.lifecycle.name(),
            file.name()
        );
        file.object.invalidate(corrupt);
    }
}

/// Reads a range from disk, if all of it is there.
async fn local_bytes(file: &TableFile, range: Range<u64>) -> Option<Bytes> {
    if !file.object.is_local(range.clone()) {
        return None;
    }
    let options =
        StreamOptions { hint: AccessHint::Sequential, timeout: LOCAL_VERIFICATION_TIMEOUT };
    let mut pieces = file.object.stream(range, options);
    let mut bytes = BytesMut::new();
    while let Some(piece) = pieces.try_next().await.ok()? {
        bytes.extend_from_slice(&piece);
    }
    Some(bytes.freeze())
}

fn request(file: &TableFile, position: u32) -> ReadRequest {
    let (address, deadline) = (file.index.address(position), deadline());
    ReadRequest { address, wanted: Wanted::Length, local_only: false, deadline }
}

fn deadline() -> Instant {
    (time::Instant::now() + LOCAL_VERIFICATION_TIMEOUT).into_std()
}

fn offsets(span: &Range<u64>, start: u64) -> Range<usize> {
    let offset = |at: u64| usize::try_from(at - start).expect("a part fits into memory");
    offset(span.start)..offset(span.end)
}
