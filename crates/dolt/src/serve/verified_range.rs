//! A range of an open table file, each chunk of it compared with its address before a byte of it
//! leaves.
//!
//! ```text
//!  range --> segments, cut where chunks begin --+-- all compared before, in memory of the system --> as they are on disk
//!                                               +-- else a task: chunk by chunk, read and compared --> put together --> pieces
//! ```
//!
//! What is put together leaves as soon as nothing before it is missing: over a slow link a segment
//! takes longer than clients wait for a byte. The timeout is for silence. Between chunks there are
//! dictionaries and what no index names; these bytes are those of the object. The order of a file's
//! chunks is found once, when the first range of the file is asked for.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use busload_objects::ReadOptions;
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::mpsc;

use super::file_bytes::Pieces;
use crate::{
    Chunk, Error, Form,
    fault::Fault,
    limits::{
        PIECE_BYTES_MAX, PIECES_QUEUED_MAX, RANGE_PART_BYTES, RANGE_PARTS_READAHEAD_MAX,
        RANGE_TIMEOUT, SLOW_LINK_BANDWIDTH,
    },
    read::decode::{Decoded, Wanted},
    read::reader::ReadRequest,
    read::window::{PlannedRead, Window},
    shared::Shared,
    stats::Origin,
    task::{Owned, blocking},
    versions::table_file::{TableFile, range},
    versions::version::ChunkCopy,
};

/// What is read at once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RangePart {
    pub range: Range<u64>,
    /// Positions of the chunks that have bytes in it.
    pub chunks: Vec<u32>,
}

/// Pieces of a range that is within the file. Each may take the timeout.
pub(super) fn stream(
    shared: &Arc<Shared>,
    file: &Arc<TableFile>,
    wanted: Range<u64>,
    timeout: Duration,
) -> Pieces {
    let (shared, file) = (shared.clone(), file.clone());
    let begin = async move {
        let segments = match segments_of(&shared, &file, wanted, in_time(timeout)).await {
            Ok(segments) => segments,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let segments =
            Segments { shared, file, timeout, rest: segments.into(), begun: VecDeque::new() };
        let next = async |mut segments: Segments| Some((segments.next().await?, segments));
        stream::unfold(segments, next).boxed()
    };
    ended_by_error(stream::once(begin).flatten().boxed())
}

/// Segments of a range.
struct Segments {
    shared: Arc<Shared>,
    file: Arc<TableFile>,
    timeout: Duration,
    /// Not begun yet.
    rest: VecDeque<RangePart>,
    /// The first one is being given.
    begun: VecDeque<Begun>,
}

/// A segment that is being read.
enum Begun {
    /// It was there.
    Here(Bytes),
    /// Comes from a task that ends with it.
    Coming { left: u64, pieces: mpsc::Receiver<Result<Bytes, Error>>, _task: Owned<()> },
}

impl Segments {
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            while self.begun.len() < self.ahead()
                && let Some(segment) = self.rest.pop_front()
            {
                self.begun.push_back(self.begin(segment));
            }
            if let Some(piece) = self.begun.front_mut()?.next().await {
                return Some(piece);
            }
            self.begun.pop_front();
        }
    }

    /// Segments at a time.
    fn ahead(&self) -> usize {
        let is_slow =
            self.shared.remote.bandwidth().is_none_or(|bandwidth| bandwidth < SLOW_LINK_BANDWIDTH);
        if is_slow { 1 } else { RANGE_PARTS_READAHEAD_MAX }
    }

    fn begin(&self, segment: RangePart) -> Begun {
        if let Some(bytes) = try_read(&self.file, &segment) {
            return Begun::Here(bytes);
        }
        let left = segment.range.end - segment.range.start;
        let (sender, pieces) = mpsc::channel(PIECES_QUEUED_MAX);
        let (shared, file, timeout) = (self.shared.clone(), self.file.clone(), self.timeout);
        let task = self.shared.runtime.spawn(async move {
            let outcome = tokio::select! {
                biased;
                () = shared.closed() => Err(Error::Closed),
                read = shared.read_segment(&file, segment, timeout, &sender) => read,
            };
            if let Err(error) = outcome {
                // Nobody may be there any more.
                let _ = sender.send(Err(error)).await;
            }
        });
        Begun::Coming { left, pieces, _task: Owned::new(task) }
    }
}

impl Begun {
    /// None: that was all of it.
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        match self {
            Self::Here(bytes) => {
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES_MAX));
                (!piece.is_empty()).then_some(Ok(piece))
            }
            Self::Coming { left: 0, .. } => None,
            Self::Coming { left, pieces, .. } => {
                // The runtime may end before the task does.
                let piece = pieces.recv().await.unwrap_or(Err(Error::Closed));
                *left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
                Some(piece)
            }
        }
    }
}

fn in_time(timeout: Duration) -> Instant {
    (tokio::time::Instant::now() + timeout).into_std()
}

/// After an error there is nothing.
fn ended_by_error(pieces: Pieces) -> Pieces {
    let next = async |state: Option<Pieces>| {
        let mut pieces = state?;
        let piece = pieces.next().await?;
        let rest = piece.is_ok().then_some(pieces);
        Some((piece, rest))
    };
    stream::unfold(Some(pieces), next).boxed()
}

async fn segments_of(
    shared: &Arc<Shared>,
    file: &Arc<TableFile>,
    wanted: Range<u64>,
    deadline: Instant,
) -> Result<Vec<RangePart>, Error> {
    if file.has_order() {
        return Ok(cut(file, wanted));
    }
    // Takes long for a file of millions of chunks.
    let file = file.clone();
    shared.run(deadline, blocking(move || cut(&file, wanted))).await
}

/// Segments begin where the range does or where a chunk does, and cover the range.
pub(super) fn cut(file: &TableFile, wanted: Range<u64>) -> Vec<RangePart> {
    let order = file.order();
    let span_of = |position: u32| range(file.location(position).span);
    let first = order.partition_point(|&position| span_of(position).end <= wanted.start);
    let mut segments = Vec::new();
    let mut segment = RangePart { range: wanted.start..wanted.start, chunks: Vec::new() };
    let mut last = None;
    for &position in &order[first..] {
        let span = span_of(position);
        if wanted.end <= span.start {
            break;
        }
        // A chunk may have two entries.
        if last.replace(span.clone()) == Some(span.clone()) {
            continue;
        }
        if RANGE_PART_BYTES < span.end.saturating_sub(segment.range.start)
            && segment.range.start < span.start
        {
            segment.range.end = span.start;
            let next = RangePart { range: span.start..span.start, chunks: Vec::new() };
            segments.push(std::mem::replace(&mut segment, next));
        }
        segment.chunks.push(position);
    }
    // What lies behind the last chunk, the index above all, may be long.
    let chunks_end =
        last.map_or(wanted.start, |span| span.end).clamp(segment.range.start, wanted.end);
    if !segment.chunks.is_empty() && RANGE_PART_BYTES < wanted.end - chunks_end {
        segment.range.end = chunks_end;
        let rest = RangePart { range: chunks_end..chunks_end, chunks: Vec::new() };
        segments.push(std::mem::replace(&mut segment, rest));
    }
    segment.range.end = wanted.end;
    segments.push(segment);
    segments.into_iter().flat_map(without_long_gaps).collect()
}

/// What lies behind the last chunk, the index above all, is cut as it comes.
fn without_long_gaps(segment: RangePart) -> Vec<RangePart> {
    let RangePart { range, chunks } = segment;
    if !chunks.is_empty() || range.end - range.start <= RANGE_PART_BYTES {
        return vec![RangePart { range, chunks }];
    }
    let step = usize::try_from(RANGE_PART_BYTES).expect("a segment fits into memory");
    let part = |start: u64| RangePart {
        range: start..range.end.min(start + RANGE_PART_BYTES),
        chunks: Vec::new(),
    };
    range.clone().step_by(step).map(part).collect()
}

/// What was compared before and is there as it was.
fn try_read(file: &TableFile, segment: &RangePart) -> Option<Bytes> {
    let writes = file.object.disk_writes();
    if !segment.chunks.iter().all(|&position| file.verified.has(position, writes)) {
        return None;
    }
    let bytes = file.object.try_read(segment.range.clone())?;
    (file.object.disk_writes() == writes).then_some(bytes)
}

impl Shared {
    /// Gives all of a segment, unless nobody takes it any more.
    async fn read_segment(
        self: &Arc<Self>,
        file: &Arc<TableFile>,
        segment: RangePart,
        timeout: Duration,
        sender: &mpsc::Sender<Result<Bytes, Error>>,
    ) -> Result<(), Error> {
        let mut assembly = Assembly::new(&segment.range);
        let mut covered = Vec::with_capacity(segment.chunks.len());
        let mut far = Vec::new();
        for &position in &segment.chunks {
            let place = ChunkCopy { file: file.clone(), position };
            let item = PlannedRead::new(0, place);
            covered.push(range(item.location.span));
            let address = file.index.address(position);
            match self.try_read(file, position, &address, want(&item)) {
                Some(answer) => assembly.put(&item, &answer)?,
                None => {
                    assembly.expect(&item);
                    far.push(item);
                }
            }
            tokio::task::coop::consume_budget().await;
        }
        for gap in gaps(&segment.range, &covered) {
            let read = match file.pins.get(&gap) {
                Some(pinned) => pinned,
                None => self.read_gap(file, gap.clone(), in_time(timeout)).await?,
            };
            assembly.put_gap(&gap, &read);
        }
        let mut window = self.window(far, in_time(RANGE_TIMEOUT));
        loop {
            let next = match window.next().now_or_never() {
                Some(next) => next,
                None => {
                    if assembly.give(sender).await.is_err() {
                        return Ok(());
                    }
                    tokio::time::timeout(timeout, window.next())
                        .await
                        .map_err(|_| self.too_late())?
                }
            };
            let Some((item, answer)) = next else { break };
            assembly.put(&item, &answer?)?;
        }
        // An error: nobody is there any more.
        let _ = assembly.give(sender).await;
        Ok(())
    }

    async fn read_gap(
        &self,
        file: &TableFile,
        gap: Range<u64>,
        deadline: Instant,
    ) -> Result<Bytes, Error> {
        let read = file.object.read(gap, ReadOptions { deadline, local_only: false }).await;
        read.map_err(|error| self.noted(file, Fault::from(error)))
    }

    /// The object is opened anew at the next look at the manifest; what its clients were told is
    /// void.
    fn noted(&self, file: &TableFile, fault: Fault) -> Error {
        match fault {
            Fault::Error(error) => error,
            Fault::Corrupt(text) => Error::Corrupt(text),
            Fault::Gone => {
                file.set_gone();
                let url = self.remote.url();
                Error::Unreachable(format!(
                    "{url}: {} is not there any more in this version",
                    file.name()
                ))
            }
        }
    }

    /// Reads of chunks, near ones together.
    fn window(
        self: &Arc<Self>,
        items: Vec<PlannedRead>,
        deadline: Instant,
    ) -> Window<(PlannedRead, Result<Decoded, Error>)> {
        let shared = self.clone();
        let finish = Arc::new(move |item: PlannedRead, started| {
            let (shared, writes) = (shared.clone(), item.place.file.object.disk_writes());
            async move {
                let ChunkCopy { file, position } = &item.place;
                let address = file.index.address(*position);
                let job = ReadRequest { address, want: want(&item), local_only: false, deadline };
                let read = shared.read_copy_unless_corrupt(&item.place, Some(started), job).await;
                let is_on_disk = || file.object.is_local(range(item.location.span));
                let is_of_disk = matches!(read, Ok((_, Origin::Disk)));
                if is_of_disk && is_on_disk() && file.object.disk_writes() == writes {
                    file.verified.set(*position, writes);
                }
                let answer =
                    read.map(|(answer, _)| answer).map_err(|fault| shared.noted(file, fault));
                (item, answer)
            }
            .boxed()
        });
        let options = Box::new(move || ReadOptions { deadline, local_only: false });
        Window::new(options, items, finish)
    }
}

/// The bytes of the span as the file has them.
fn want(item: &PlannedRead) -> Wanted {
    Wanted::Chunk(match item.location.dictionary {
        Some(_) => Form::Stored,
        None => Form::Record,
    })
}

/// A segment while it is put together, in any order.
struct Assembly {
    /// What has not been given.
    rest: Range<u64>,
    bytes: BytesMut,
    /// Chunks that are to come, by where they begin.
    missing: BTreeSet<(u64, u32)>,
}

impl Assembly {
    fn new(segment: &Range<u64>) -> Self {
        let bytes = BytesMut::zeroed(within(segment.end - segment.start));
        Self { rest: segment.clone(), bytes, missing: BTreeSet::new() }
    }

    /// Nothing from where it begins is given before it has come.
    fn expect(&mut self, item: &PlannedRead) {
        self.missing.insert((item.location.span.offset, item.place.position));
    }

    /// A chunk that may begin before the segment or end behind it.
    fn put(&mut self, item: &PlannedRead, answer: &Decoded) -> Result<(), Error> {
        self.missing.remove(&(item.location.span.offset, item.place.position));
        let span = range(item.location.span);
        let own = match answer {
            Decoded::Chunk(Chunk::Contents(own) | Chunk::Snappy(own) | Chunk::Zstd(own, _)) => own,
            Decoded::Length(_) => unreachable!("its bytes were asked for"),
        };
        if own.len() as u64 != span.end - span.start {
            let (name, length) = (item.place.file.name(), own.len());
            return Err(Error::Corrupt(format!("{name}: {length} bytes for the span {span:?}")));
        }
        let (start, end) = (span.start.max(self.rest.start), span.end.min(self.rest.end));
        // Chunks of a strange file may overlap, so that it may have been given as a part of another
        // one.
        if start < end {
            let part = &own[within(start - span.start)..within(end - span.start)];
            self.bytes[within(start - self.rest.start)..within(end - self.rest.start)]
                .copy_from_slice(part);
        }
        Ok(())
    }

    /// Before anything is given.
    fn put_gap(&mut self, gap: &Range<u64>, bytes: &[u8]) {
        let start = within(gap.start - self.rest.start);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Gives all before the first chunk that is missing. An error: nobody takes it any more.
    async fn give(
        &mut self,
        sender: &mpsc::Sender<Result<Bytes, Error>>,
    ) -> Result<(), mpsc::error::SendError<Result<Bytes, Error>>> {
        let until = self.missing.first().map_or(self.rest.end, |(start, _)| *start);
        while self.rest.start < until {
            let piece = self.bytes.split_to(within(until - self.rest.start).min(PIECE_BYTES_MAX));
            self.rest.start += piece.len() as u64;
            sender.send(Ok(piece.freeze())).await?;
        }
        Ok(())
    }
}

/// What of a range is in none of these, which are in order.
fn gaps(whole: &Range<u64>, covered: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut end = whole.start;
    for span in covered {
        if end < span.start {
            gaps.push(end..span.start);
        }
        end = end.max(span.end);
    }
    if end < whole.end {
        gaps.push(end..whole.end);
    }
    gaps
}

fn within(offset: u64) -> usize {
    usize::try_from(offset).expect("a segment fits into memory")
}
