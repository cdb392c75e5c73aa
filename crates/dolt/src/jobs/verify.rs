//! Verifies all chunks of a version: from the object store where need be, or on local disk only.

use std::sync::Arc;

use busload_chunks::ChunkAddress;
use busload_objects::{Progress, ReadOptions};
use futures_util::FutureExt;
use tokio::time::Instant;

use super::Reporter;
use crate::{
    Error,
    fault::Fault,
    limits::VERIFYING_TIMEOUT,
    read::{
        decode::Wanted,
        file_chunk_reader::{FileChunkReader, ReadRequest},
        window::{PlannedRead, Window, sort},
    },
    serve::local_verifier::{LocalVerifier, VerifiedBytes},
    task::blocking,
    versions::{Versions, table_file::TableFile, version::FileChunk},
};

/// Outcome of verifying one chunk.
struct VerifiedChunk {
    address: ChunkAddress,
    bytes: u64,
    outcome: Result<(), Fault>,
}

/// Reads and verifies every chunk of the current version, file by file, each from front to end.
/// Bytes of an index count as done with their file.
pub(crate) async fn verify_all(
    versions: Arc<Versions>,
    file_chunks: Arc<FileChunkReader>,
    reporter: Reporter,
) -> Result<Progress, Error> {
    let snapshot = versions.opened().await?.snapshot.clone();
    let mut progress = Progress { total: snapshot.file_bytes(), ..Progress::default() };
    let mut end = 0;
    for file in &snapshot.files {
        end += file.object.meta().size;
        verify_file(&file_chunks, file, &mut progress, &reporter).await?;
        progress.done = end;
        reporter.send((progress, None)).await;
    }
    Ok(progress)
}

/// Verifies what is on local disk of the current version.
pub(crate) async fn verify_local(
    versions: Arc<Versions>,
    verifier: Arc<LocalVerifier>,
    reporter: Reporter,
) -> Result<Progress, Error> {
    let snapshot = versions.opened().await?.snapshot.clone();
    let mut progress = Progress::default();
    for file in &snapshot.files {
        let before = progress;
        let after = |verified: VerifiedBytes| Progress {
            done: before.done + verified.bytes,
            corrupt: before.corrupt + verified.corrupt,
            ..before
        };
        let mut report = |verified| reporter.try_send(after(verified));
        progress = after(verifier.verify_file(file, 0, &mut report).await?);
    }
    Ok(Progress { total: progress.done, ..progress })
}

async fn verify_file(
    file_chunks: &Arc<FileChunkReader>,
    file: &Arc<TableFile>,
    progress: &mut Progress,
    reporter: &Reporter,
) -> Result<(), Error> {
    let of = file.clone();
    let reads = blocking(move || plan_reads(&of)).await?;
    let file_chunks = file_chunks.clone();
    let finish = Arc::new(move |read: PlannedRead, started| {
        let (file_chunks, request) = (file_chunks.clone(), request(&read));
        async move {
            // In this file, whatever other files have.
            let outcome =
                file_chunks.read_even_if_known_corrupt(&read.chunk, Some(started), request).await;
            let bytes = u64::from(read.location.span.length);
            VerifiedChunk { address: request.address, bytes, outcome: outcome.map(|_| ()) }
        }
        .boxed()
    });
    let mut window = Window::new(Box::new(options), reads, finish);
    while let Some(verified) = window.next().await {
        let corrupt = verified.add_to(progress, file)?;
        reporter.send((*progress, corrupt)).await;
    }
    Ok(())
}

impl VerifiedChunk {
    /// Adds the chunk to the progress and returns it if it is corrupt. Fails if the chunk could not
    /// be read.
    fn add_to(
        self,
        progress: &mut Progress,
        file: &TableFile,
    ) -> Result<Option<(ChunkAddress, Error)>, Error> {
        progress.done = (progress.done + self.bytes).min(progress.total);
        match self.outcome {
            Ok(()) => Ok(None),
            Err(Fault::Corrupt(text)) => {
                progress.corrupt += self.bytes;
                Ok(Some((self.address, Error::Corrupt(text))))
            }
            Err(Fault::Gone) => Err(Error::Unreachable(format!(
                "{} was replaced while it was verified",
                file.name()
            ))),
            Err(Fault::Error(error)) => Err(error),
        }
    }
}

fn plan_reads(file: &Arc<TableFile>) -> Vec<PlannedRead> {
    let chunk = |position| FileChunk { file: file.clone(), position };
    let mut reads: Vec<PlannedRead> =
        file.positions().map(|position| PlannedRead::new(0, chunk(position))).collect();
    sort(&mut reads);
    reads
}

fn request(read: &PlannedRead) -> ReadRequest {
    let address = read.chunk.file.index.address(read.chunk.position);
    let ReadOptions { deadline, local_only } = options();
    ReadRequest { address, wanted: Wanted::Length, local_only, deadline }
}

fn options() -> ReadOptions {
    let deadline = (Instant::now() + VERIFYING_TIMEOUT).into_std();
    ReadOptions { deadline, local_only: false }
}
