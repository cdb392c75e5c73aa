//! Fetches of one object by range, and its fill queue: all that one lock protects.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use tokio::sync::watch;

use super::Fetch;
use crate::{disk::EXTENT_DATA_BYTES, fill::FillQueue, limits::LOOK_BACK_MAX, readahead};

/// Fetches of one object that others can join, and its fill queue.
#[derive(Debug, Default)]
pub(crate) struct FetchTable {
    /// Foreground fetches by start and end: under way, or completed and not yet forgotten.
    foreground: BTreeMap<(u64, u64), Arc<Fetch>>,
    /// Parts of fills by start, until they are on disk. The channel closes when the part has ended.
    parts: BTreeMap<u64, (Arc<Fetch>, watch::Receiver<()>)>,
    pub(crate) queue: FillQueue,
}

impl FetchTable {
    /// Finds a foreground fetch that brings all of a range.
    pub(crate) fn foreground(&self, blocks: &Range<u64>) -> Option<&Arc<Fetch>> {
        let before = self.foreground.range(..=(blocks.start, u64::MAX)).rev().take(LOOK_BACK_MAX);
        let exact = self.foreground.get(&(blocks.start, blocks.end));
        exact.or_else(|| before.map(|(_, fetch)| fetch).find(|fetch| fetch.covers(blocks)))
    }

    pub(crate) fn add_foreground(&mut self, fetch: &Arc<Fetch>) {
        self.foreground.insert(key(fetch), Arc::clone(fetch));
    }

    /// Removes a fetch; another one of the same range stays.
    pub(crate) fn remove_foreground(&mut self, fetch: &Arc<Fetch>) {
        if self.foreground.get(&key(fetch)).is_some_and(|other| Arc::ptr_eq(other, fetch)) {
            self.foreground.remove(&key(fetch));
        }
    }

    /// Finds a part of a fill that brings all of a range.
    pub(crate) fn part(&self, range: &Range<u64>) -> Option<&Arc<Fetch>> {
        let (_, (part, _)) = self.parts.range(..=range.start).next_back()?;
        part.covers(range).then_some(part)
    }

    /// Adds a part; `ends` closes when it has ended, written or not.
    pub(crate) fn add_part(&mut self, part: &Arc<Fetch>, ends: watch::Receiver<()>) {
        self.parts.insert(part.range.start, (Arc::clone(part), ends));
    }

    /// Removes a part. When it is on disk, completed foreground fetches of the same bytes go too.
    pub(crate) fn remove_part(&mut self, part: &Arc<Fetch>, is_on_disk: bool) {
        let start = part.range.start;
        if self.parts.get(&start).is_some_and(|(other, _)| Arc::ptr_eq(other, part)) {
            self.parts.remove(&start);
        }
        if is_on_disk {
            let within = self.foreground.range((start, 0)..(part.range.end, 0));
            let old: Vec<_> = within
                .filter(|(_, fetch)| part.covers(&fetch.range) && fetch.received().is_some())
                .map(|(key, _)| *key)
                .collect();
            old.iter().for_each(|key| drop(self.foreground.remove(key)));
        }
    }

    /// Removes the fetches that overlap a range; what they bring is not written to disk.
    pub(crate) fn invalidate(&mut self, range: &Range<u64>) {
        let take = |fetch: &Arc<Fetch>| {
            let is_hit = fetch.overlaps(range);
            if is_hit {
                fetch.invalidate();
            }
            !is_hit
        };
        self.foreground.retain(|_, fetch| take(fetch));
        self.parts.retain(|_, (part, _)| take(part));
    }

    /// The part under way that brings this extent, and the channel that closes at its end.
    pub(crate) fn part_of_extent(&self, extent: u64) -> Option<&(Arc<Fetch>, watch::Receiver<()>)> {
        let start = extent * EXTENT_DATA_BYTES;
        let (_, part) = self.parts.range(..=start).next_back()?;
        (start < part.0.range.end).then_some(part)
    }

    /// Takes the next extents to fill, at most `extents_max`, none of which is present or under
    /// way. None: the queue is empty, and the caller is its driver no more.
    pub(crate) fn next_run(
        &mut self,
        extents_max: u64,
        is_present: impl Fn(u64) -> bool,
    ) -> Option<Range<u64>> {
        while let Some(mut range) = self.queue.pop() {
            let is_taken = |extent| is_present(extent) || self.part_of_extent(extent).is_some();
            let Some(start) = range.clone().find(|&extent| !is_taken(extent)) else { continue };
            let end = readahead::run_end(start, range.end, extents_max, is_taken);
            range.start = end;
            self.queue.push_front(range);
            return Some(start..end);
        }
        self.queue.stop_driving();
        None
    }
}

#[cfg(test)]
impl FetchTable {
    /// Bytes of completed foreground fetches.
    pub(crate) fn received_bytes(&self) -> u64 {
        let received = self.foreground.values().filter_map(|fetch| fetch.received());
        received.map(|bytes| bytes.len() as u64).sum()
    }
}

fn key(fetch: &Fetch) -> (u64, u64) {
    (fetch.range.start, fetch.range.end)
}
