//! Fetches of one object, and the extents that wait to be filled.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use tokio::{sync::watch, time::Instant};

use super::{
    fetch::Fetch,
    limits::{LOOK_BACK_MAX, QUEUE_RANGES_MAX},
};
use crate::disk::EXTENT_DATA_BYTES;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// By start and end. Under way, or arrived and not yet forgotten.
    foreground: BTreeMap<(u64, u64), Arc<Fetch>>,
    /// Parts of the fill by start, until they are on disk.
    parts: BTreeMap<u64, (Arc<Fetch>, watch::Receiver<()>)>,
    pub(super) queue: Queue,
}

/// What is to be filled.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Of extents.
    ranges: VecDeque<Range<u64>>,
    /// Whether a task takes from it.
    is_driven: bool,
    /// The whole object was asked for once: what is missing later was evicted, and comes back by
    /// what is touched.
    whole_was_asked: bool,
    paused_until: Option<Instant>,
}

impl Table {
    /// A foreground fetch that brings all of a range.
    pub(super) fn foreground(&self, blocks: &Range<u64>) -> Option<&Arc<Fetch>> {
        let before = self.foreground.range(..=(blocks.start, u64::MAX)).rev().take(LOOK_BACK_MAX);
        let exact = self.foreground.get(&(blocks.start, blocks.end));
        exact.or_else(|| before.map(|(_, fetch)| fetch).find(|fetch| fetch.covers(blocks)))
    }

    pub(super) fn add_foreground(&mut self, fetch: &Arc<Fetch>) {
        self.foreground.insert(key(fetch), Arc::clone(fetch));
    }

    /// Another fetch of the same range is left alone.
    pub(super) fn remove_foreground(&mut self, fetch: &Arc<Fetch>) {
        if self.foreground.get(&key(fetch)).is_some_and(|other| Arc::ptr_eq(other, fetch)) {
            self.foreground.remove(&key(fetch));
        }
    }

    /// A part of the fill that brings all of a range.
    pub(super) fn part(&self, range: &Range<u64>) -> Option<&Arc<Fetch>> {
        let (_, (part, _)) = self.parts.range(..=range.start).next_back()?;
        part.covers(range).then_some(part)
    }

    /// `ends` closes when the part has ended, written or not.
    pub(super) fn add_part(&mut self, part: &Arc<Fetch>, ends: watch::Receiver<()>) {
        self.parts.insert(part.range.start, (Arc::clone(part), ends));
    }

    /// What arrived of the part by foreground reads is forgotten too when the part is on disk.
    pub(super) fn remove_part(&mut self, part: &Arc<Fetch>, is_on_disk: bool) {
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

    /// Nobody joins fetches of this range any more, and what they bring is not written.
    pub(super) fn invalidate(&mut self, range: &Range<u64>) {
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

    /// The part under way that has this extent, and its end.
    pub(super) fn part_of_extent(&self, extent: u64) -> Option<&(Arc<Fetch>, watch::Receiver<()>)> {
        let start = extent * EXTENT_DATA_BYTES;
        let (_, part) = self.parts.range(..=start).next_back()?;
        (start < part.0.range.end).then_some(part)
    }

    /// The next extents to bring, at most so many, none of which is present or under way; the last
    /// caller that gets none stops driving.
    pub(super) fn next_run(
        &mut self,
        extents_max: u64,
        is_present: impl Fn(u64) -> bool,
    ) -> Option<Range<u64>> {
        while let Some(mut range) = self.queue.ranges.pop_front() {
            let is_there =
                |extent: &u64| is_present(*extent) || self.part_of_extent(*extent).is_some();
            let Some(start) = range.clone().find(|extent| !is_there(extent)) else { continue };
            // Parts end at multiples of their size, so that neighbours do not overlap by chance.
            let limit = (start + 1).next_multiple_of(extents_max).min(range.end);
            let end = (start..limit).find(is_there).unwrap_or(limit);
            range.start = end;
            if !range.is_empty() {
                self.queue.ranges.push_front(range);
            }
            return Some(start..end);
        }
        self.queue.is_driven = false;
        None
    }
}

#[cfg(test)]
impl Table {
    /// Bytes of foreground fetches that have arrived.
    pub(super) fn received_bytes(&self) -> u64 {
        let received = self.foreground.values().filter_map(|fetch| fetch.received());
        received.map(|bytes| bytes.len() as u64).sum()
    }
}

#[cfg(test)]
impl Queue {
    pub(super) fn is_busy(&self) -> bool {
        self.is_driven
    }
}

impl Queue {
    /// Returns whether somebody has to start to take from the queue.
    pub(super) fn add(
        &mut self,
        ranges: impl IntoIterator<Item = Range<u64>>,
        now: Instant,
    ) -> bool {
        if self.is_paused(now) {
            return false;
        }
        for range in ranges {
            self.add_one(range);
        }
        !self.ranges.is_empty() && !std::mem::replace(&mut self.is_driven, true)
    }

    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    fn add_one(&mut self, range: Range<u64>) {
        let is_queued =
            self.ranges.iter().any(|other| other.start <= range.start && range.end <= other.end);
        if range.is_empty() || is_queued {
            return;
        }
        let count = self.ranges.len();
        match self.ranges.back_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if QUEUE_RANGES_MAX <= count => {}
            _ => self.ranges.push_back(range),
        }
    }

    /// Whether this is the first time that the whole object is asked for.
    pub(super) fn ask_for_whole(&mut self, now: Instant) -> bool {
        !self.is_paused(now) && !std::mem::replace(&mut self.whole_was_asked, true)
    }

    /// The store or the disk does not want: what waits is given up, and asked for anew later.
    pub(super) fn pause(&mut self, until: Instant) {
        self.paused_until = Some(until);
        self.forget();
    }

    /// As if nothing had been asked for.
    pub(super) fn forget(&mut self) {
        self.ranges.clear();
        self.whole_was_asked = false;
    }

    /// The task that takes from it ends before it is empty.
    pub(super) fn abandon(&mut self) {
        self.forget();
        self.is_driven = false;
    }
}

fn key(fetch: &Fetch) -> (u64, u64) {
    (fetch.range.start, fetch.range.end)
}
