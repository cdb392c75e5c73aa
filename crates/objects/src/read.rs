//! Reads of a range: from memory, from disk, from a fetch under way, from the store.
//!
//! ```text
//!  read --> on disk and in the page cache? ------------------> answered at once
//!            | no    on disk? --> a thread that may block ---> answered
//!            |          | corrupt, evicted, timeout
//!            v          v
//!          missing --> a fetch covers it (under way or just completed)? --> joins it
//!            |         a part of a fill brings it sooner than a new fetch? --> joins that
//!            v
//!          coalesce: missing ranges near each other --> one fetch each --> waits
//!            |
//!            +--> fill: the whole object, or the extents touched, in parts, to disk
//! ```
//!
//! * **One foreground fetch per missing range**, however many wait: finding a fetch and adding one
//!   is one step under the fetch table's lock. A waiter gets its bytes when they arrive, before the
//!   fetch completes.
//! * **Fetches belong to the runtime**, not to the first caller. Each caller has a deadline of its
//!   own; giving up costs the others nothing. A fetch that nobody waits for is not sent, is not
//!   retried, and ends within two seconds: a hung store gets no requests that nobody wants.
//! * **Bytes are checked** before they get here: [`Remote`](crate::Remote) checks range, version
//!   and length of an answer, the disk the checksums of its blocks. Whether the contents match
//!   their address only the caller can tell, who says so with [`Object::invalidate`].
//! * **Nobody waits for ever**: a fetch that ends in whatever way, a panic or the end of the
//!   runtime included, answers all its waiters.
//! * **Memory**: a fetch holds its bytes, at most four times what was asked for; completed ones up
//!   to [`RECEIVED_BYTES_MAX`](crate::limits::RECEIVED_BYTES_MAX) per cache; fills their budget.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use bytes::Bytes;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    Error, Object,
    disk::{DiskAccess, DiskObject},
    fetch::{Fetch, FetchPurpose, FetchTable, ForegroundFetch, Waiter},
    fill::FillStart,
    limits::DISK_TIMEOUT,
    object::ObjectCore,
    readahead,
    remote::Urgency,
};

mod pending;

pub use pending::Reading;
pub(crate) use pending::{Deadline, Timer, deadline_exceeded, stopped};

/// Deadline and reach of a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Time at which the read fails with [`Error::DeadlineExceeded`].
    pub deadline: Instant,
    /// Reads only from disk; the cache brings what is missing there in the background.
    pub local_only: bool,
}

/// Pattern of access, which decides what the eviction learns from a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessHint {
    /// Parts of the range again and again: reads count for the eviction, as with [`Object::read`].
    Random,
    /// The whole range once, as a download does: it must not evict blocks that others read again.
    Sequential,
}

/// Ranges that were not on disk, each with its waiter.
pub(crate) type WaitingReads = Vec<(Range<u64>, Waiter)>;

/// Reason why a read is not answered from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissCause {
    /// The index says that the disk does not have it.
    NotOnDisk,
    /// The index says that the disk has it, but the disk could not give it.
    ReadFailed,
}

/// Action when the disk does not have the bytes after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnMiss {
    /// Answer the caller with [`Error::NotLocal`].
    Report,
    /// Fetch them from the store.
    Fetch(AccessHint),
}

impl OnMiss {
    fn hint(self) -> AccessHint {
        match self {
            Self::Report => AccessHint::Random,
            Self::Fetch(hint) => hint,
        }
    }
}

impl Object {
    /// Starts reads of several ranges, in any order and overlapping; nearby ones share a fetch. May
    /// be called from any thread. Answers come as they arrive. A request that has lost its last
    /// waiter is not sent; one that was sent goes on for a while. Also starts the fill that the
    /// cache's options want.
    ///
    /// # Errors
    /// Of each reading: [`Error::Settings`] for a range that is not within the object,
    /// [`Error::NotLocal`], [`Error::DeadlineExceeded`], and what the store answered.
    pub fn read_many(&self, ranges: &[Range<u64>], options: ReadOptions) -> Vec<Reading> {
        let mut call = ReadCall::new(&self.core, options);
        let readings = ranges.iter().map(|range| call.read(range)).collect();
        call.fetch_missing();
        readings
    }

    /// Starts the read of one range.
    ///
    /// # Errors
    /// As [`Object::read_many`].
    pub fn read(&self, range: Range<u64>, options: ReadOptions) -> Reading {
        let mut call = ReadCall::new(&self.core, options);
        let reading = call.read(&range);
        call.fetch_missing();
        reading
    }
}

/// One call of [`Object::read_many`].
struct ReadCall<'a> {
    core: &'a Arc<ObjectCore>,
    options: ReadOptions,
    /// Shared by all readings of the call, made for the first that has to wait.
    deadline: Option<Deadline>,
    missing: WaitingReads,
}

impl<'a> ReadCall<'a> {
    fn new(core: &'a Arc<ObjectCore>, options: ReadOptions) -> Self {
        Self { core, options, deadline: None, missing: Vec::new() }
    }

    fn read(&mut self, range: &Range<u64>) -> Reading {
        let core = self.core;
        if let Err(error) = core.check_range(range) {
            return Reading::ready(Err(error));
        }
        if range.is_empty() {
            return Reading::ready(Ok(Bytes::new()));
        }
        if let Some(bytes) = core.try_read(range, AccessHint::Random) {
            return Reading::ready(Ok(bytes));
        }
        let is_present = core.is_present(range);
        if self.options.local_only && !is_present {
            core.start_fill(std::slice::from_ref(range), FillStart::Now);
            return Reading::ready(Err(Error::NotLocal));
        }
        let (waiter, answer) = oneshot::channel();
        if is_present {
            let on_miss = if self.options.local_only {
                OnMiss::Report
            } else {
                OnMiss::Fetch(AccessHint::Random)
            };
            core.read_disk(range.clone(), waiter, on_miss);
        } else {
            self.missing.push((range.clone(), waiter));
        }
        let runtime = core.remote.runtime();
        let deadline =
            self.deadline.get_or_insert_with(|| Timer::start(runtime, self.options.deadline));
        Reading::waiting(answer, deadline.clone(), Arc::clone(core))
    }

    fn fetch_missing(self) {
        self.core.read_missing(self.missing, MissCause::NotOnDisk, AccessHint::Random);
    }
}

impl ObjectCore {
    /// Reads what is on disk and in the page cache; never blocks.
    #[inline]
    pub(crate) fn try_read(&self, range: &Range<u64>, hint: AccessHint) -> Option<Bytes> {
        let bytes = self.disk.as_ref()?.try_read(range, hint)?;
        self.cache.counters.hits.fetch_add(1, Relaxed);
        Some(bytes)
    }

    /// Reads from disk on a thread that may block for the device.
    pub(crate) fn read_disk(self: &Arc<Self>, range: Range<u64>, waiter: Waiter, on_miss: OnMiss) {
        let Some(disk) = self.disk.clone() else { return };
        let core = Arc::clone(self);
        self.remote.runtime().spawn(async move {
            match (core.read_disk_in_time(&disk, &range, on_miss.hint()).await, on_miss) {
                (Some(bytes), _) => {
                    core.cache.counters.hits.fetch_add(1, Relaxed);
                    drop(waiter.send(Ok(bytes)));
                }
                (None, OnMiss::Report) => {
                    core.start_fill(&[range], FillStart::Now);
                    drop(waiter.send(Err(Error::NotLocal)));
                }
                (None, OnMiss::Fetch(hint)) => {
                    core.read_missing(vec![(range, waiter)], MissCause::ReadFailed, hint);
                }
            }
        });
    }

    /// Returns none if the disk does not have the bytes or takes longer than [`DISK_TIMEOUT`]. A
    /// disk that has begun the read and does not end it counts as hung.
    async fn read_disk_in_time(
        &self,
        disk: &Arc<DiskObject>,
        range: &Range<u64>,
        hint: AccessHint,
    ) -> Option<Bytes> {
        let (wanted, reader) = (range.clone(), Arc::clone(disk));
        let has_begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&has_begun);
        let read = disk.run(&self.cache.fills.runtime, DiskAccess::Read, move || {
            begins.store(true, Relaxed);
            reader.read(&wanted, hint)
        });
        let read = timeout(DISK_TIMEOUT, read).await;
        if read.is_err() && has_begun.load(Relaxed) {
            disk.mark_hung(DISK_TIMEOUT);
        }
        read.ok().flatten().flatten()
    }

    /// Joins fetches that bring the ranges, or starts new ones.
    pub(crate) fn read_missing(
        self: &Arc<Self>,
        missing: WaitingReads,
        cause: MissCause,
        hint: AccessHint,
    ) {
        if missing.is_empty() {
            return;
        }
        self.cache.counters.misses.fetch_add(missing.len() as u64, Relaxed);
        let touched: Vec<_> = missing.iter().map(|(range, _)| range.clone()).collect();
        let (fetches, on_disk) = self.join_or_add(missing, cause, hint);
        for fetch in fetches {
            let task = ForegroundFetch::new(self, fetch);
            self.remote.runtime().spawn(task.run(Urgency::Foreground));
        }
        for (range, waiter) in on_disk {
            self.read_disk(range, waiter, OnMiss::Fetch(hint));
        }
        if hint == AccessHint::Random {
            self.start_fill(&touched, FillStart::AfterFirstByte);
        }
    }

    /// Works under one lock, so that of many who miss the same bytes one adds the fetch. Returns
    /// the fetches to start, and the reads whose bytes a part has just brought to disk.
    fn join_or_add(
        &self,
        missing: WaitingReads,
        cause: MissCause,
        hint: AccessHint,
    ) -> (Vec<Arc<Fetch>>, WaitingReads) {
        let (pace, now) = (self.remote.pace(), tokio::time::Instant::now());
        let (mut alone, mut on_disk) = (WaitingReads::new(), WaitingReads::new());
        let mut fetches = self.fetches();
        for (range, waiter) in missing {
            let is_sooner =
                |fetch: &&Arc<Fetch>| readahead::is_sooner(fetch.progress(), &range, pace, now);
            let is_soon = |fetch: &&Arc<Fetch>| match fetch.is_urgent() {
                true => readahead::is_near(fetch.progress(), &range, now),
                false => is_sooner(fetch),
            };
            let blocks = readahead::blocks_of(&range, self.meta.size);
            let under_way = fetches.foreground(&blocks).filter(is_soon);
            // A stream that wants to wait for a part has joined it before it comes here.
            let part = || {
                fetches.part(&range).filter(|part| hint == AccessHint::Random && is_sooner(part))
            };
            let joined = match under_way.or_else(part) {
                None => Err(waiter),
                Some(fetch) => fetch.join(range.clone(), waiter),
            };
            let Err(waiter) = joined else {
                self.cache.counters.joined.fetch_add(1, Relaxed);
                continue;
            };
            // A part leaves the table after it is on disk: what was missing a moment ago may be
            // there now.
            if cause == MissCause::NotOnDisk && self.is_present(&range) {
                on_disk.push((range, waiter));
            } else {
                alone.push((range, waiter));
            }
        }
        (self.add_fetches(&mut fetches, alone, readahead::gap_max(pace)), on_disk)
    }

    fn add_fetches(
        &self,
        fetches: &mut FetchTable,
        alone: WaitingReads,
        gap_max: u64,
    ) -> Vec<Arc<Fetch>> {
        let ranges: Vec<_> = alone.iter().map(|(range, _)| range.clone()).collect();
        let mut waiters: Vec<_> = alone.into_iter().map(|(_, waiter)| Some(waiter)).collect();
        let mut added = Vec::new();
        for read in readahead::coalesce(&ranges, self.meta.size, gap_max) {
            let fetch = Arc::new(Fetch::new(read.range, FetchPurpose::Waiters));
            for index in read.members {
                let waiter = waiters[index].take().expect("a range is in one read");
                fetch.join(ranges[index].clone(), waiter).expect("a new fetch has not failed");
            }
            fetches.add_foreground(&fetch);
            added.push(fetch);
        }
        added
    }
}
