//! Parts of the fill that a stream starts ahead of where it is.

use std::{ops::Range, sync::Arc};

use tokio::time::Instant;

use crate::{
    disk::{DiskFile, EXTENT_DATA_BYTES},
    object::{
        Shared,
        fill::Promised,
        flight::Wish,
        limits::{PARTS_AHEAD, ROOM_SHARE},
    },
};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Extents before this one were brought for the stream, or were there, or on their way: none is brought for it twice.
    seen: u64,
    /// Of parts that are not behind the stream, by the extent at which they end.
    wishes: Vec<(u64, Arc<Wish>)>,
}

/// How far ahead, in extents.
#[derive(Clone, Copy, Debug)]
struct Reach {
    part: u64,
    all: u64,
}

impl Ahead {
    /// Starts the parts that the stream, which goes on with `rest`, will need soon.
    pub(super) fn advance(&mut self, shared: &Arc<Shared>, rest: &Range<u64>) {
        let here = rest.start / EXTENT_DATA_BYTES;
        self.wishes.retain(|(end, _)| here < *end);
        let Some(file) = shared.file.as_ref().filter(|file| file.is_writable()) else { return };
        let Some(reach) = reach(shared, file).filter(|_| !shared.fills.is_closed()) else { return };
        let end = rest.end.div_ceil(EXTENT_DATA_BYTES);
        let until = reach.until(here, end);
        for promised in self.promise(shared, file, self.seen.max(here)..until, reach.part) {
            let end = promised.end();
            self.wishes.push((end, promised.start()));
        }
    }

    /// Under one lock, so that of many streams one starts a part.
    fn promise(
        &mut self,
        shared: &Arc<Shared>,
        file: &Arc<DiskFile>,
        extents: Range<u64>,
        part_extents: u64,
    ) -> Vec<Promised> {
        let mut promised = Vec::new();
        if extents.is_empty() {
            return promised;
        }
        let mut table = shared.table();
        if table.queue.is_paused(Instant::now()) {
            return promised;
        }
        let mut next = extents.start;
        while next < extents.end {
            if let Some((part, _)) = table.part_of_extent(next) {
                let end = part.range.end.div_ceil(EXTENT_DATA_BYTES);
                self.wishes.extend(part.wish().map(|wish| (end, wish)));
                next = end;
                continue;
            }
            if file.has_extent(next) {
                next += 1;
                continue;
            }
            let limit = (next + 1).next_multiple_of(part_extents).min(extents.end);
            let is_taken = |extent: &u64| file.has_extent(*extent) || table.part_of_extent(*extent).is_some();
            let end = (next + 1..limit).find(is_taken).unwrap_or(limit);
            promised.push(shared.promise(&mut table, file, next..end));
            next = end;
        }
        self.seen = next;
        promised
    }
}

/// None: what a stream brings would not stay until it gets there.
fn reach(shared: &Shared, file: &DiskFile) -> Option<Reach> {
    let whole = shared.fills.part_extents();
    let all = (whole * PARTS_AHEAD).min(file.room() / ROOM_SHARE);
    let part = (all / PARTS_AHEAD).clamp(1, whole);
    (0 < all).then_some(Reach { part, all })
}

impl Reach {
    /// Up to the end of a part, if that is not beyond the end.
    fn until(self, here: u64, end: u64) -> u64 {
        let until = here + self.all;
        if end <= until { end } else { until / self.part * self.part }
    }
}
