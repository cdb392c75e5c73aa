//! Streams a range of an open table file; verifies each chunk before a byte of it leaves.
//!
//! ```text
//!  range --> parts, cut where chunks begin --+-- all verified, in the page cache --> as on disk
//!                                            +-- else a task: read and verify chunk by chunk
//!                                                --> RangeAssembly --> pieces
//! ```
//!
//! A piece leaves as soon as nothing before it is missing: over a slow link a part takes longer
//! than clients wait for a byte. The timeout bounds the silence between pieces. The bytes between
//! chunks, dictionaries above all, are sent as the object has them. The first range of a file sorts
//! the file's chunks by offset.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use busload_objects::ReadOptions;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::{sync::mpsc, task::coop::consume_budget};

use super::{
    file_bytes::Pieces,
    range_assembly::RangeAssembly,
    range_parts::{RangePart, cut, gaps},
};
use crate::{
    Error, Form,
    fault::Fault,
    limits::{
        PIECE_BYTES_MAX, PIECES_QUEUED_MAX, RANGE_PARTS_READAHEAD_MAX, RANGE_TIMEOUT,
        SLOW_LINK_BANDWIDTH,
    },
    read::{
        decode::{Decoded, Wanted},
        file_chunk_reader::{FileChunkReader, ReadRequest},
        window::{PlannedRead, Window},
    },
    stats::Origin,
    task::{AbortOnDrop, blocking},
    versions::{
        table_file::{TableFile, range},
        version::FileChunk,
    },
};

/// Streams a range that is within the file. Each piece may take the timeout.
pub(super) fn stream(
    file_chunks: &Arc<FileChunkReader>,
    file: &Arc<TableFile>,
    wanted: Range<u64>,
    timeout: Duration,
) -> Pieces {
    let (file_chunks, file) = (file_chunks.clone(), file.clone());
    let start = async move {
        let parts = match parts_of(&file_chunks, &file, wanted, deadline_in(timeout)).await {
            Ok(parts) => parts,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let reader = RangeReader {
            file_chunks,
            file,
            timeout,
            waiting: parts.into(),
            started: VecDeque::new(),
        };
        let next = async |mut reader: RangeReader| Some((reader.next().await?, reader));
        stream::unfold(reader, next).boxed()
    };
    end_at_error(stream::once(start).flatten().boxed())
}

fn deadline_in(timeout: Duration) -> Instant {
    (tokio::time::Instant::now() + timeout).into_std()
}

/// Ends a stream after its first error.
fn end_at_error(pieces: Pieces) -> Pieces {
    let next = async |state: Option<Pieces>| {
        let mut pieces = state?;
        let piece = pieces.next().await?;
        let rest = piece.is_ok().then_some(pieces);
        Some((piece, rest))
    };
    stream::unfold(Some(pieces), next).boxed()
}

async fn parts_of(
    file_chunks: &FileChunkReader,
    file: &Arc<TableFile>,
    wanted: Range<u64>,
    deadline: Instant,
) -> Result<Vec<RangePart>, Error> {
    if file.has_order() {
        return Ok(cut(file, wanted));
    }
    // Sorting millions of chunks takes long.
    let file = file.clone();
    file_chunks.lifecycle.run(deadline, blocking(move || cut(&file, wanted))).await
}

/// Reads the parts of one range, some ahead of the one that is being sent.
struct RangeReader {
    file_chunks: Arc<FileChunkReader>,
    file: Arc<TableFile>,
    timeout: Duration,
    /// Parts that are not started.
    waiting: VecDeque<RangePart>,
    /// Parts being read; the first one is being sent.
    started: VecDeque<StartedPart>,
}

/// Part of a range that is being read.
enum StartedPart {
    /// Bytes that were on local disk, verified.
    Ready(Bytes),
    /// Pieces that come from a task, which is aborted with the part.
    Reading { left: u64, pieces: mpsc::Receiver<Result<Bytes, Error>>, _task: AbortOnDrop<()> },
}

impl RangeReader {
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            while self.started.len() < self.parts_max()
                && let Some(part) = self.waiting.pop_front()
            {
                self.started.push_back(self.start(part));
            }
            if let Some(piece) = self.started.front_mut()?.next().await {
                return Some(piece);
            }
            self.started.pop_front();
        }
    }

    /// Returns how many parts to read at a time: one over a slow link, where readahead would take
    /// bandwidth from the part that the client waits for. A connection to a far store is slow, too,
    /// but several bring more.
    fn parts_max(&self) -> usize {
        let remote = &self.file_chunks.source.remote;
        let is_slow = remote.bandwidth().is_none_or(|bandwidth| bandwidth < SLOW_LINK_BANDWIDTH);
        if is_slow && !remote.gains_side_by_side() { 1 } else { RANGE_PARTS_READAHEAD_MAX }
    }

    fn start(&self, part: RangePart) -> StartedPart {
        if let Some(bytes) = try_read(&self.file, &part) {
            return StartedPart::Ready(bytes);
        }
        let left = part.range.end - part.range.start;
        let (sender, pieces) = mpsc::channel(PIECES_QUEUED_MAX);
        let (file_chunks, file, timeout) =
            (self.file_chunks.clone(), self.file.clone(), self.timeout);
        let task = self.file_chunks.lifecycle.spawn(async move {
            let read = read_part(&file_chunks, &file, part, timeout, &sender);
            if let Err(error) = file_chunks.lifecycle.until_closed(read).await {
                // Fails if the client is gone.
                let _ = sender.send(Err(error)).await;
            }
        });
        StartedPart::Reading { left, pieces, _task: AbortOnDrop::new(task) }
    }
}

impl StartedPart {
    /// Returns the next piece; none at the end of the part.
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        match self {
            Self::Ready(bytes) => {
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES_MAX));
                (!piece.is_empty()).then_some(Ok(piece))
            }
            Self::Reading { left: 0, .. } => None,
            Self::Reading { left, pieces, .. } => {
                // The runtime may end before the task does.
                let piece = pieces.recv().await.unwrap_or(Err(Error::Closed));
                *left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
                Some(piece)
            }
        }
    }
}

/// Reads a part from the page cache, if all of its chunks are verified as they are there.
fn try_read(file: &TableFile, part: &RangePart) -> Option<Bytes> {
    let writes = file.object.disk_writes();
    if !part.chunks.iter().all(|&position| file.verified.has(position, writes)) {
        return None;
    }
    let bytes = file.object.try_read(part.range.clone())?;
    (file.object.disk_writes() == writes).then_some(bytes)
}

/// Reads a part and sends all of it, unless the receiver is gone.
async fn read_part(
    file_chunks: &Arc<FileChunkReader>,
    file: &Arc<TableFile>,
    part: RangePart,
    timeout: Duration,
    sender: &mpsc::Sender<Result<Bytes, Error>>,
) -> Result<(), Error> {
    let mut assembly = RangeAssembly::new(&part.range);
    let mut covered = Vec::with_capacity(part.chunks.len());
    let mut reads = Vec::new();
    for &position in &part.chunks {
        let read = PlannedRead::new(0, FileChunk { file: file.clone(), position });
        covered.push(range(read.location.span));
        let address = file.index.address(position);
        match file_chunks.try_read(file, position, &address, stored_bytes(&read)) {
            Some(decoded) => assembly.put(&read, &decoded)?,
            None => {
                assembly.expect(&read);
                reads.push(read);
            }
        }
        consume_budget().await;
    }
    for gap in gaps(&part.range, &covered) {
        let bytes = match file.pinned.get(&gap) {
            Some(pinned) => pinned,
            None => read_gap(file_chunks, file, gap.clone(), deadline_in(timeout)).await?,
        };
        assembly.put_gap(&gap, &bytes);
    }
    let mut window = window(file_chunks, reads, deadline_in(RANGE_TIMEOUT));
    loop {
        let next = match window.next().now_or_never() {
            Some(next) => next,
            None => {
                if assembly.send(sender).await.is_err() {
                    return Ok(());
                }
                tokio::time::timeout(timeout, window.next())
                    .await
                    .map_err(|_| file_chunks.lifecycle.deadline_exceeded())?
            }
        };
        let Some((read, decoded)) = next else { break };
        assembly.put(&read, &decoded?)?;
    }
    // Fails if the receiver is gone.
    let _ = assembly.send(sender).await;
    Ok(())
}

async fn read_gap(
    file_chunks: &FileChunkReader,
    file: &TableFile,
    gap: Range<u64>,
    deadline: Instant,
) -> Result<Bytes, Error> {
    let read = file.object.read(gap, ReadOptions { deadline, local_only: false }).await;
    read.map_err(|error| error_of(file_chunks, file, Fault::from(error)))
}

/// Converts a fault. If the object is gone the next refresh opens the file again; the locations
/// that clients know are void.
fn error_of(file_chunks: &FileChunkReader, file: &TableFile, fault: Fault) -> Error {
    match fault {
        Fault::Error(error) => error,
        Fault::Corrupt(text) => Error::Corrupt(text),
        Fault::Gone => {
            file.set_gone();
            Error::Unreachable(format!(
                "{}: {} is not there any more in this version",
                file_chunks.lifecycle.url(),
                file.name()
            ))
        }
    }
}

/// Starts to read chunks, near ones together.
fn window(
    file_chunks: &Arc<FileChunkReader>,
    reads: Vec<PlannedRead>,
    deadline: Instant,
) -> Window<(PlannedRead, Result<Decoded, Error>)> {
    let file_chunks = file_chunks.clone();
    let finish = Arc::new(move |read: PlannedRead, started| {
        let (file_chunks, writes) = (file_chunks.clone(), read.chunk.file.object.disk_writes());
        async move {
            let FileChunk { file, position } = &read.chunk;
            let (address, wanted) = (file.index.address(*position), stored_bytes(&read));
            let request = ReadRequest { address, wanted, local_only: false, deadline };
            let outcome = file_chunks.read_verified(&read.chunk, Some(started), request).await;
            let is_on_disk = || file.object.is_local(range(read.location.span));
            let is_of_disk = matches!(outcome, Ok((_, Origin::Disk)));
            if is_of_disk && is_on_disk() && file.object.disk_writes() == writes {
                file.verified.set(*position, writes);
            }
            let decoded = outcome
                .map(|(decoded, _)| decoded)
                .map_err(|fault| error_of(&file_chunks, file, fault));
            (read, decoded)
        }
        .boxed()
    });
    let options = Box::new(move || ReadOptions { deadline, local_only: false });
    Window::new(options, reads, finish)
}

/// Asks for the bytes of the span as the file has them.
fn stored_bytes(read: &PlannedRead) -> Wanted {
    Wanted::Chunk(match read.location.dictionary {
        Some(_) => Form::Stored,
        None => Form::Record,
    })
}
