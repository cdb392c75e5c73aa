//! What a stream starts ahead of where it is: parts of the fill, or reads past the disk.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    disk::{DiskFile, EXTENT_DATA_BYTES},
    object::{
        Foreground, Shared,
        fetch::{Fetch, InterestGuard, Purpose},
        fill::Promised,
        limits::{
            EXTENTS_AHEAD_MIN, PARTS_AHEAD, PASSING_AHEAD_MAX, PASSING_READ_EXTENTS, PASSING_SHARE,
            RECEIVED_BYTES_MAX, ROOM_SHARE,
        },
        plan,
        readahead_limiter::{ReadaheadLimiter, Turn},
        table::Table,
    },
};

/// See the module. Positions are extents.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Up to here the disk had them, or they were brought there for the stream: none is a second
    /// time.
    to_disk: u64,
    /// Up to here those that were to be on disk, and were not, came past it: none does a second
    /// time.
    past_disk: u64,
    passing: Option<Passing>,
    /// That the stream will want fetches that are not behind it, by the extent at which they end.
    interests: Vec<(u64, Arc<InterestGuard>)>,
    /// What is under way ahead of the stream, whoever started it.
    limiter: ReadaheadLimiter,
}

/// How far ahead.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// Of one read.
    read: u64,
    /// Of all.
    all: u64,
}

/// A stream that reads past the disk, as long as it lives.
#[derive(Debug)]
struct Passing(Arc<Shared>);

impl Ahead {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { limiter: ReadaheadLimiter::of_stream(timeout), ..Self::default() }
    }

    /// Starts what the stream, which goes on with `rest`, will need soon.
    pub(super) fn advance(&mut self, shared: &Arc<Shared>, rest: &Range<u64>) {
        let here = rest.start / EXTENT_DATA_BYTES;
        self.interests.retain(|(end, _)| here < *end);
        let takes_parts = self.bring_to_disk(shared, here, rest);
        self.bring_past_disk(shared, here, rest, takes_parts);
    }

    /// Whether the disk takes parts now.
    fn bring_to_disk(&mut self, shared: &Arc<Shared>, here: u64, rest: &Range<u64>) -> bool {
        let Some(file) = shared.file.as_ref().filter(|file| file.is_writable()) else {
            return false;
        };
        let Some(reach) = Reach::to_disk(shared, file).filter(|_| !shared.fills.is_closed()) else {
            return false;
        };
        let extents = self.to_disk.max(here)..reach.until(here, rest);
        if extents.is_empty() {
            return true;
        }
        let promised = {
            let mut table = shared.table();
            if table.queue.is_paused(Instant::now()) {
                return false;
            }
            self.to_disk = extents.end;
            self.promise(shared, &mut table, file, extents, reach.read)
        };
        self.interests.extend(promised.into_iter().map(|part| (part.end(), part.start())));
        true
    }

    /// Under the table's lock, so that of many streams one starts a part.
    fn promise(
        &mut self,
        shared: &Arc<Shared>,
        table: &mut Table,
        file: &Arc<DiskFile>,
        extents: Range<u64>,
        part_extents: u64,
    ) -> Vec<Promised> {
        let mut promised = Vec::new();
        let mut next = extents.start;
        while next < extents.end {
            if let Some((part, _)) = table.part_of_extent(next) {
                next = self.interest_for(part);
            } else if file.has_extent(next) {
                next += 1;
            } else {
                let is_taken = |extent: &u64| {
                    file.has_extent(*extent) || table.part_of_extent(*extent).is_some()
                };
                let limit = (next + 1).next_multiple_of(part_extents).min(extents.end);
                let end = (next + 1..limit).find(is_taken).unwrap_or(limit);
                promised.push(shared.promise(table, file, next..end, &mut self.limiter));
                next = end;
            }
        }
        promised
    }

    /// What the disk does not have although it was brought there, or all if it takes nothing.
    fn bring_past_disk(
        &mut self,
        shared: &Arc<Shared>,
        here: u64,
        rest: &Range<u64>,
        takes_parts: bool,
    ) {
        let reach = Reach::past_disk(shared);
        let until = reach.until(here, rest).min(if takes_parts { self.to_disk } else { u64::MAX });
        let extents = self.past_disk.max(here)..until;
        if extents.is_empty() {
            return;
        }
        self.past_disk = extents.end;
        let fetches = {
            let mut table = shared.table();
            self.start(shared, &mut table, extents, rest, reach.read)
        };
        for (fetch, turn) in fetches {
            self.passing.get_or_insert_with(|| Passing::new(shared));
            let task = Foreground { object: Arc::clone(shared), fetch };
            shared.remote.runtime().spawn(task.run_ahead(turn));
        }
    }

    /// Under the table's lock, too.
    fn start(
        &mut self,
        shared: &Shared,
        table: &mut Table,
        extents: Range<u64>,
        rest: &Range<u64>,
        read_extents: u64,
    ) -> Vec<(Arc<Fetch>, Turn)> {
        let mut fetches = Vec::new();
        let wanted = plan::blocks_of(rest, shared.meta.size);
        let of = |run: Range<u64>| {
            let span = shared.span(&run);
            span.start.max(wanted.start)..span.end.min(wanted.end)
        };
        let is_there = |table: &Table, extent: u64| {
            table.part_of_extent(extent).is_some() || shared.is_present(&of(extent..extent + 1))
        };
        let mut next = extents.start;
        while next < extents.end {
            if is_there(table, next) {
                next += 1;
            } else if let Some(fetch) = table.foreground(&of(next..next + 1)) {
                next = self.interest_for(fetch).max(next + 1);
            } else {
                let limit = (next + 1).next_multiple_of(read_extents).min(extents.end);
                let end =
                    (next + 1..limit).find(|&extent| is_there(table, extent)).unwrap_or(limit);
                let fetch = Arc::new(Fetch::new(of(next..end), Purpose::Streams));
                table.add_foreground(&fetch);
                let turn = self.limiter.add(&fetch);
                self.interest_own(&fetch);
                fetches.push((fetch, turn));
                next = end;
            }
        }
        fetches
    }

    /// The extent behind a fetch of others, which comes before what this stream starts next.
    fn interest_for(&mut self, fetch: &Arc<Fetch>) -> u64 {
        self.limiter.add(fetch);
        self.interest_own(fetch)
    }

    /// The extent behind a fetch, which leaves although nobody waits for bytes of it yet.
    fn interest_own(&mut self, fetch: &Fetch) -> u64 {
        let end = fetch.range.end.div_ceil(EXTENT_DATA_BYTES);
        self.interests.extend(fetch.interest().map(|interest| (end, interest)));
        end
    }
}

impl Reach {
    /// None: what a stream brings would not stay until it gets there.
    fn to_disk(shared: &Shared, file: &DiskFile) -> Option<Self> {
        let part = shared.fills.part_extents();
        let all = (part * PARTS_AHEAD).min(file.room() / ROOM_SHARE);
        (EXTENTS_AHEAD_MIN <= all).then_some(Self { read: part.min(all / PARTS_AHEAD), all })
    }

    /// Streams of different objects share what may be in memory; those of one object have the same
    /// there.
    fn past_disk(shared: &Shared) -> Self {
        let objects = shared.fills.passing.load(Relaxed).max(1);
        let all = RECEIVED_BYTES_MAX / PASSING_SHARE / EXTENT_DATA_BYTES / objects;
        let read = PASSING_READ_EXTENTS.min(shared.fills.part_extents());
        Self { read, all: all.clamp(EXTENTS_AHEAD_MIN, PASSING_AHEAD_MAX) }
    }

    /// Where what is started now ends: at the end of a read, if that is not behind the end of all.
    fn until(self, here: u64, rest: &Range<u64>) -> u64 {
        let (end, until) = (rest.end.div_ceil(EXTENT_DATA_BYTES), here + self.all);
        if end <= until { end } else { until / self.read * self.read }
    }
}

impl Passing {
    fn new(shared: &Arc<Shared>) -> Self {
        if shared.passing.fetch_add(1, Relaxed) == 0 {
            shared.fills.passing.fetch_add(1, Relaxed);
        }
        Self(Arc::clone(shared))
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if self.0.passing.fetch_sub(1, Relaxed) == 1 {
            self.0.fills.passing.fetch_sub(1, Relaxed);
        }
    }
}
