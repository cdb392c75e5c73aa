//! Fetches that a stream starts ahead of its position: parts of a fill, or reads that bypass the
//! disk. How far and in which pieces is the policy of [`crate::readahead`].

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    disk::{DiskObject, EXTENT_DATA_BYTES},
    fetch::{
        Fetch, FetchPurpose, FetchTable, ForegroundFetch, InterestGuard, ReadaheadLimiter,
        ReadaheadTurn,
    },
    fill::PendingPart,
    object::ObjectCore,
    readahead::{self, Reach},
};

/// Fetches ahead of a stream. Positions are extents.
#[derive(Debug, Default)]
pub(super) struct Lookahead {
    /// End of the extents that were on disk or that the stream had brought there; it starts none a
    /// second time.
    to_disk: u64,
    /// End of the extents that were to be on disk, were not, and came past it; the stream starts
    /// none a second time.
    bypassed: u64,
    bypass: Option<CacheBypass>,
    /// Guards of fetches that are not behind the stream, by the extent at which they end.
    interests: Vec<(u64, Arc<InterestGuard>)>,
    /// Fetches under way ahead of the stream, also those that other readers started.
    limiter: ReadaheadLimiter,
}

/// Counts a stream that bypasses the disk, for as long as it lives.
#[derive(Debug)]
struct CacheBypass(Arc<ObjectCore>);

impl Lookahead {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { limiter: ReadaheadLimiter::of_stream(timeout), ..Self::default() }
    }

    /// Starts the fetches that the stream, which goes on with `rest`, needs soon.
    pub(super) fn advance(&mut self, core: &Arc<ObjectCore>, rest: &Range<u64>) {
        let here = rest.start / EXTENT_DATA_BYTES;
        self.interests.retain(|(end, _)| here < *end);
        let takes_parts = self.bring_to_disk(core, here, rest);
        self.bypass_disk(core, here, rest, takes_parts);
    }

    /// Starts parts. Returns whether the disk takes parts now.
    fn bring_to_disk(&mut self, core: &Arc<ObjectCore>, here: u64, rest: &Range<u64>) -> bool {
        let Some(disk) = core.disk.as_ref().filter(|disk| disk.is_writable()) else {
            return false;
        };
        if !core.is_filled() {
            return false;
        }
        let fills = &core.cache.fills;
        let reach = Reach::to_disk(fills.part_extents(core.remote.pace()), disk.new_extents_max());
        let Some(reach) = reach.filter(|_| !fills.is_closed()) else { return false };
        let extents = self.to_disk.max(here)..reach.end(here, extent_end(rest));
        if extents.is_empty() {
            return true;
        }
        let parts = {
            let mut fetches = core.fetches();
            if fetches.queue.is_paused(Instant::now()) {
                return false;
            }
            self.to_disk = extents.end;
            self.add_parts(core, &mut fetches, disk, extents, reach.read)
        };
        self.interests.extend(parts.into_iter().map(|part| (part.end(), part.start())));
        true
    }

    /// Works under the table's lock, so that of many streams one adds a part.
    fn add_parts(
        &mut self,
        core: &Arc<ObjectCore>,
        fetches: &mut FetchTable,
        disk: &Arc<DiskObject>,
        extents: Range<u64>,
        part_extents: u64,
    ) -> Vec<PendingPart> {
        let mut parts = Vec::new();
        let mut next = extents.start;
        while next < extents.end {
            if let Some((part, _)) = fetches.part_of_extent(next) {
                next = self.follow(part);
            } else if disk.has_extent(next) {
                next += 1;
            } else {
                let is_taken =
                    |extent| disk.has_extent(extent) || fetches.part_of_extent(extent).is_some();
                let end = readahead::run_end(next, extents.end, part_extents, is_taken);
                parts.push(core.add_stream_part(fetches, disk, next..end, &mut self.limiter));
                next = end;
            }
        }
        parts
    }

    /// Starts reads of what the disk does not have although it was brought there, or of everything
    /// if the disk takes nothing.
    fn bypass_disk(
        &mut self,
        core: &Arc<ObjectCore>,
        here: u64,
        rest: &Range<u64>,
        takes_parts: bool,
    ) {
        let objects = core.cache.bypassing.load(Relaxed);
        let reach = Reach::bypassing(core.cache.fills.part_extents(core.remote.pace()), objects);
        let limit = if takes_parts { self.to_disk } else { u64::MAX };
        let end = reach.end(here, extent_end(rest)).min(limit);
        let extents = self.bypassed.max(here)..end;
        if extents.is_empty() {
            return;
        }
        self.bypassed = extents.end;
        let added = {
            let mut fetches = core.fetches();
            self.add_reads(core, &mut fetches, extents, rest, reach.read)
        };
        for (fetch, turn) in added {
            self.bypass.get_or_insert_with(|| CacheBypass::new(core));
            let task = ForegroundFetch::new(core, fetch);
            core.remote.runtime().spawn(task.run_ahead(turn));
        }
    }

    /// Works under the table's lock, as [`Lookahead::add_parts`] does.
    fn add_reads(
        &mut self,
        core: &ObjectCore,
        fetches: &mut FetchTable,
        extents: Range<u64>,
        rest: &Range<u64>,
        read_extents: u64,
    ) -> Vec<(Arc<Fetch>, ReadaheadTurn)> {
        let mut added = Vec::new();
        let wanted = readahead::blocks_of(rest, core.meta.size);
        let bytes_of = |run: Range<u64>| {
            let span = core.span(&run);
            span.start.max(wanted.start)..span.end.min(wanted.end)
        };
        let is_there = |fetches: &FetchTable, extent: u64| {
            fetches.part_of_extent(extent).is_some()
                || core.is_present(&bytes_of(extent..extent + 1))
        };
        let mut next = extents.start;
        while next < extents.end {
            if is_there(fetches, next) {
                next += 1;
            } else if let Some(fetch) = fetches.foreground(&bytes_of(next..next + 1)) {
                next = self.follow(fetch).max(next + 1);
            } else {
                let end = readahead::run_end(next, extents.end, read_extents, |extent| {
                    is_there(fetches, extent)
                });
                let fetch = Arc::new(Fetch::new(bytes_of(next..end), FetchPurpose::Streams));
                fetches.add_foreground(&fetch);
                let turn = self.limiter.add(&fetch);
                self.keep_interest(&fetch);
                added.push((fetch, turn));
                next = end;
            }
        }
        added
    }

    /// Waits for a fetch of others, which comes before what this stream starts next. Returns the
    /// extent behind it.
    fn follow(&mut self, fetch: &Arc<Fetch>) -> u64 {
        self.limiter.add(fetch);
        self.keep_interest(fetch)
    }

    /// Keeps a fetch wanted although nobody waits for bytes of it yet. Returns the extent behind
    /// it.
    fn keep_interest(&mut self, fetch: &Fetch) -> u64 {
        let end = extent_end(&fetch.range);
        self.interests.extend(fetch.interest().map(|interest| (end, interest)));
        end
    }
}

/// Extent behind the last one of a byte range.
fn extent_end(range: &Range<u64>) -> u64 {
    range.end.div_ceil(EXTENT_DATA_BYTES)
}

impl CacheBypass {
    fn new(core: &Arc<ObjectCore>) -> Self {
        if core.bypassing.fetch_add(1, Relaxed) == 0 {
            core.cache.bypassing.fetch_add(1, Relaxed);
        }
        Self(Arc::clone(core))
    }
}

impl Drop for CacheBypass {
    fn drop(&mut self) {
        if self.0.bypassing.fetch_sub(1, Relaxed) == 1 {
            self.0.cache.bypassing.fetch_sub(1, Relaxed);
        }
    }
}
