//! A range of an open table file, each chunk of it compared with its address before a byte of it leaves.
//!
//! ```text
//!  range --> segments, cut where chunks begin --+-- all compared before, in memory of the system --> as they are on disk
//!                                               +-- else a task: chunk by chunk, read and compared --> put together
//! ```
//!
//! Between chunks there are dictionaries and what no index names; these bytes are those of the object. The order of a file's chunks is found once,
//! when the first range of the file is asked for.

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Instant};

use busload_objects::ReadOptions;
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, StreamExt, stream};

use super::files::Pieces;
use crate::{
    Chunk, Error, Form,
    decode::{Answer, Want},
    fault::Fault,
    limits::{PIECE_BYTES_MAX, SEGMENT_BYTES, SEGMENTS_AHEAD_MAX},
    reader::Job,
    shared::Shared,
    stats::Origin,
    table_file::{TableFile, range},
    task::blocking,
    view::Place,
    window::{Item, Window},
};

/// What is read at once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub range: Range<u64>,
    /// Positions of the chunks that have bytes in it.
    pub chunks: Vec<u32>,
}

/// Pieces of a range that is within the file. Each may take the patience.
pub(super) fn stream(
    shared: &Arc<Shared>,
    file: &Arc<TableFile>,
    wanted: Range<u64>,
    patience: std::time::Duration,
) -> Pieces {
    let (shared, file) = (shared.clone(), file.clone());
    let begin = async move {
        let segments = match segments_of(&shared, &file, wanted, in_time(patience)).await {
            Ok(segments) => segments,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let read = move |segment| read(shared.clone(), file.clone(), segment, patience);
        stream::iter(segments).map(read).buffered(SEGMENTS_AHEAD_MAX).flat_map(pieces).boxed()
    };
    ended_by_error(stream::once(begin).flatten().boxed())
}

fn in_time(patience: std::time::Duration) -> Instant {
    (tokio::time::Instant::now() + patience).into_std()
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

fn pieces(
    bytes: Result<Bytes, Error>,
) -> stream::Iter<std::collections::vec_deque::IntoIter<Result<Bytes, Error>>> {
    let mut pieces = VecDeque::new();
    match bytes {
        Err(error) => pieces.push_back(Err(error)),
        Ok(mut bytes) => {
            while PIECE_BYTES_MAX < bytes.len() {
                pieces.push_back(Ok(bytes.split_to(PIECE_BYTES_MAX)));
            }
            if !bytes.is_empty() {
                pieces.push_back(Ok(bytes));
            }
        }
    }
    stream::iter(pieces)
}

async fn segments_of(
    shared: &Arc<Shared>,
    file: &Arc<TableFile>,
    wanted: Range<u64>,
    deadline: Instant,
) -> Result<Vec<Segment>, Error> {
    if file.has_order() {
        return Ok(cut(file, wanted));
    }
    // Takes long for a file of millions of chunks.
    let file = file.clone();
    shared.run(deadline, blocking(move || cut(&file, wanted))).await
}

/// Segments begin where the range does or where a chunk does, and cover the range.
pub(super) fn cut(file: &TableFile, wanted: Range<u64>) -> Vec<Segment> {
    let order = file.order();
    let span_of = |position: u32| range(file.location(position).span);
    let first = order.partition_point(|&position| span_of(position).end <= wanted.start);
    let mut segments = Vec::new();
    let mut segment = Segment { range: wanted.start..wanted.start, chunks: Vec::new() };
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
        if SEGMENT_BYTES < span.end.saturating_sub(segment.range.start) && segment.range.start < span.start {
            segment.range.end = span.start;
            let next = Segment { range: span.start..span.start, chunks: Vec::new() };
            segments.push(std::mem::replace(&mut segment, next));
        }
        segment.chunks.push(position);
    }
    // What lies behind the last chunk, the index above all, may be long.
    let chunks_end = last.map_or(wanted.start, |span| span.end).clamp(segment.range.start, wanted.end);
    if !segment.chunks.is_empty() && SEGMENT_BYTES < wanted.end - chunks_end {
        segment.range.end = chunks_end;
        let rest = Segment { range: chunks_end..chunks_end, chunks: Vec::new() };
        segments.push(std::mem::replace(&mut segment, rest));
    }
    segment.range.end = wanted.end;
    segments.push(segment);
    segments.into_iter().flat_map(without_long_gaps).collect()
}

/// What lies behind the last chunk, the index above all, is cut as it comes.
fn without_long_gaps(segment: Segment) -> Vec<Segment> {
    let Segment { range, chunks } = segment;
    if !chunks.is_empty() || range.end - range.start <= SEGMENT_BYTES {
        return vec![Segment { range, chunks }];
    }
    let step = usize::try_from(SEGMENT_BYTES).expect("a segment fits into memory");
    let part =
        |start: u64| Segment { range: start..range.end.min(start + SEGMENT_BYTES), chunks: Vec::new() };
    range.clone().step_by(step).map(part).collect()
}

async fn read(
    shared: Arc<Shared>,
    file: Arc<TableFile>,
    segment: Segment,
    patience: std::time::Duration,
) -> Result<Bytes, Error> {
    if let Some(bytes) = try_read(&file, &segment) {
        return Ok(bytes);
    }
    let deadline = in_time(patience);
    let reading = shared.clone();
    shared.run(deadline, async move { reading.read_segment(&file, segment, deadline).await }).await
}

/// What was compared before and is there as it was.
fn try_read(file: &TableFile, segment: &Segment) -> Option<Bytes> {
    let writes = file.object.disk_writes();
    if !segment.chunks.iter().all(|&position| file.checked.has(position, writes)) {
        return None;
    }
    let bytes = file.object.try_read(segment.range.clone())?;
    (file.object.disk_writes() == writes).then_some(bytes)
}

impl Shared {
    async fn read_segment(
        self: &Arc<Self>,
        file: &Arc<TableFile>,
        segment: Segment,
        deadline: Instant,
    ) -> Result<Bytes, Error> {
        let mut bytes = BytesMut::zeroed(within(segment.range.end - segment.range.start));
        let mut covered = Vec::with_capacity(segment.chunks.len());
        let mut far = Vec::new();
        for &position in &segment.chunks {
            let place = Place { file: file.clone(), position };
            let item = Item::new(0, place);
            covered.push(range(item.location.span));
            let address = file.index.address(position);
            match self.try_read(file, position, &address, want(&item)) {
                Some(answer) => put(&mut bytes, &segment.range, &item, &answer)?,
                None => far.push(item),
            }
            tokio::task::coop::consume_budget().await;
        }
        for gap in gaps(&segment.range, &covered) {
            let start = within(gap.start - segment.range.start);
            let read = match file.pins.get(&gap) {
                Some(pinned) => pinned,
                None => self.read_gap(file, gap, deadline).await?,
            };
            bytes[start..start + read.len()].copy_from_slice(&read);
        }
        let mut window = self.window(far, deadline);
        while let Some((item, answer)) = window.next().await {
            put(&mut bytes, &segment.range, &item, &answer?)?;
        }
        Ok(bytes.freeze())
    }

    async fn read_gap(&self, file: &TableFile, gap: Range<u64>, deadline: Instant) -> Result<Bytes, Error> {
        let read = file.object.read(gap, ReadOptions { deadline, local_only: false }).await;
        read.map_err(|error| self.noted(file, Fault::from(error)))
    }

    /// The object is opened anew at the next look at the manifest; what its clients were told is void.
    fn noted(&self, file: &TableFile, fault: Fault) -> Error {
        match fault {
            Fault::Error(error) => error,
            Fault::Damaged(text) => Error::Damaged(text),
            Fault::Gone => {
                file.set_gone();
                let url = self.remote.url();
                Error::Unreachable(format!("{url}: {} is not there any more in this version", file.name()))
            }
        }
    }

    /// Reads of chunks, near ones together.
    fn window(
        self: &Arc<Self>,
        items: Vec<Item>,
        deadline: Instant,
    ) -> Window<(Item, Result<Answer, Error>)> {
        let shared = self.clone();
        let finish = Arc::new(move |item: Item, started| {
            let (shared, writes) = (shared.clone(), item.place.file.object.disk_writes());
            async move {
                let Place { file, position } = &item.place;
                let address = file.index.address(*position);
                let job = Job { address, want: want(&item), local_only: false, deadline };
                let read = shared.read_copy_unless_damaged(&item.place, Some(started), job).await;
                let is_on_disk = || file.object.is_local(range(item.location.span));
                let is_of_disk = matches!(read, Ok((_, Origin::Disk)));
                if is_of_disk && is_on_disk() && file.object.disk_writes() == writes {
                    file.checked.set(*position, writes);
                }
                let answer = read.map(|(answer, _)| answer).map_err(|fault| shared.noted(file, fault));
                (item, answer)
            }
            .boxed()
        });
        let options = Box::new(move || ReadOptions { deadline, local_only: false });
        Window::new(options, items, finish)
    }
}

/// The bytes of the span as the file has them.
fn want(item: &Item) -> Want {
    Want::Chunk(match item.location.dictionary {
        Some(_) => Form::Stored,
        None => Form::Record,
    })
}

/// Of a chunk that may begin before the segment or end behind it.
fn put(bytes: &mut [u8], segment: &Range<u64>, item: &Item, answer: &Answer) -> Result<(), Error> {
    let span = range(item.location.span);
    let own = match answer {
        Answer::Chunk(Chunk::Contents(own) | Chunk::Snappy(own) | Chunk::Zstd(own, _)) => own,
        Answer::Length(_) => unreachable!("its bytes were asked for"),
    };
    if own.len() as u64 != span.end - span.start {
        let (name, length) = (item.place.file.name(), own.len());
        return Err(Error::Damaged(format!("{name}: {length} bytes for the span {span:?}")));
    }
    let (start, end) = (span.start.max(segment.start), span.end.min(segment.end));
    let part = &own[within(start - span.start)..within(end - span.start)];
    bytes[within(start - segment.start)..within(end - segment.start)].copy_from_slice(part);
    Ok(())
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
