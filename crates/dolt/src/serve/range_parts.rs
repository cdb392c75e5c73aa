//! Cuts ranges of a table file into parts where chunks begin.

use std::ops::Range;

use crate::{
    limits::RANGE_PART_BYTES,
    versions::table_file::{TableFile, range},
};

/// Part of a range that is read and verified at once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RangePart {
    pub range: Range<u64>,
    /// Index positions of the chunks that have bytes in the part.
    pub chunks: Vec<u32>,
}

/// Cuts a range into parts that cover it. Each begins where the range or a chunk begins.
pub(super) fn cut(file: &TableFile, wanted: Range<u64>) -> Vec<RangePart> {
    let order = file.order();
    let span_of = |position: u32| range(file.location(position).span);
    let first = order.partition_point(|&position| span_of(position).end <= wanted.start);
    let mut parts = Vec::new();
    let mut part = RangePart { range: wanted.start..wanted.start, chunks: Vec::new() };
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
        if RANGE_PART_BYTES < span.end.saturating_sub(part.range.start)
            && part.range.start < span.start
        {
            part.range.end = span.start;
            let next = RangePart { range: span.start..span.start, chunks: Vec::new() };
            parts.push(std::mem::replace(&mut part, next));
        }
        part.chunks.push(position);
    }
    // The bytes behind the last chunk, the index above all, may be many.
    let chunks_end = last.map_or(wanted.start, |span| span.end).clamp(part.range.start, wanted.end);
    if !part.chunks.is_empty() && RANGE_PART_BYTES < wanted.end - chunks_end {
        part.range.end = chunks_end;
        let rest = RangePart { range: chunks_end..chunks_end, chunks: Vec::new() };
        parts.push(std::mem::replace(&mut part, rest));
    }
    part.range.end = wanted.end;
    parts.push(part);
    parts.into_iter().flat_map(cut_if_empty).collect()
}

/// Cuts a long part without chunks at fixed offsets.
fn cut_if_empty(part: RangePart) -> Vec<RangePart> {
    let RangePart { range, chunks } = part;
    if !chunks.is_empty() || range.end - range.start <= RANGE_PART_BYTES {
        return vec![RangePart { range, chunks }];
    }
    let step = usize::try_from(RANGE_PART_BYTES).expect("a part fits into memory");
    let part = |start: u64| RangePart {
        range: start..range.end.min(start + RANGE_PART_BYTES),
        chunks: Vec::new(),
    };
    range.clone().step_by(step).map(part).collect()
}

/// Lists the ranges of a whole that none of the sorted spans covers.
pub(super) fn gaps(whole: &Range<u64>, covered: &[Range<u64>]) -> Vec<Range<u64>> {
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
