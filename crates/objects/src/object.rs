//! One object: reads from disk, from reads under way, from the store.
//!
//! ```text
//!  read --> on disk, in memory of the system? ---------------------------> answered at once
//!            | no      on disk? --> a thread that may block -------------> answered
//!            |            | corrupt, evicted
//!            v            v
//!          missing --> a fetch that covers it (under way or arrived)? ---> waits for its bytes, not for its end
//!            |         a part of the fill whose bytes are due sooner? ---> the same
//!            v
//!          reads: missing ranges near each other --> one fetch each ----> waits
//!            |
//!            +--> fill: the whole object, or the extents touched, in parts, to disk
//! ```
//!
//! * **One foreground read per missing range**, however many wait: finding a fetch and making one
//!   is one step under the table's lock.
//! * **Fetches belong to the runtime**, not to who asked first. Whoever waits has a deadline of its
//!   own; giving up costs the others nothing. A fetch for which nobody waits does not leave, is not
//!   tried again, and ends within two seconds: a store that hung is not asked for what nobody
//!   wants.
//! * **Bytes are checked** before they get here: the range, the version and the length of an answer
//!   by [`Remote`], blocks on disk by their checksums. That contents are what an address promises
//!   only the caller can tell, and says so by [`Object::invalidate`].
//! * **Nobody waits for ever**: a fetch that ends in whatever way, a panic or the end of the
//!   runtime included, answers all who wait.
//! * **Memory**: a fetch holds its bytes, at most four times what was asked for; arrived ones up to
//!   [`limits::RECEIVED_BYTES_MAX`] per cache; fills their budget.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use bytes::Bytes;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    Error, ObjectMeta, Progress, Remote,
    disk::{Access, Count, DiskFile},
    remote::Urgency,
};

mod due;
mod fetch;
mod fill;
mod fills;
mod limits;
mod plan;
mod readahead_limiter;
mod reading;
mod stream;
mod table;
mod warm;

use fetch::{Fetch, Purpose, Waiter};
use fill::Start;
use limits::DISK_TIMEOUT;
use readahead_limiter::Turn;
use reading::{Deadline, Timer, given_up};
use table::Table;

pub(crate) use fills::Fills;
pub use reading::Reading;
pub use stream::{ObjectStream, StreamOptions, Use};

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// When it is too late.
    pub deadline: Instant,
    /// Only from disk; what is missing is brought there in the background.
    pub local_only: bool,
}

/// One object of a store, in one version. Dropping the last handle ends its fill; reads under way
/// go on.
#[derive(Debug)]
pub struct Object {
    shared: Arc<Shared>,
}

/// What fetches and fills need of an object.
#[derive(Debug)]
struct Shared {
    meta: ObjectMeta,
    remote: Arc<Remote>,
    file: Option<Arc<DiskFile>>,
    fills: Arc<Fills>,
    table: Mutex<Table>,
    has_handle: AtomicBool,
    /// Streams that read past the disk.
    passing: AtomicUsize,
}

/// Ranges that somebody waits for.
type Wanted = Vec<(Range<u64>, Waiter)>;

/// Where a read was looked for in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missed {
    /// The disk is not said to have it.
    Presence,
    /// The disk was said to have it, but could not give it.
    Disk,
}

/// What to do when the disk does not have it after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnMiss {
    /// The caller wants no more than the disk.
    Tell,
    /// Ask the store.
    Ask(Use),
}

impl OnMiss {
    fn count(self) -> Count {
        match self {
            Self::Tell => Count::AsUse,
            Self::Ask(purpose) => purpose.count(),
        }
    }
}

impl Object {
    /// Of a remote; without a file nothing of it is kept.
    pub(crate) fn new(
        fills: &Arc<Fills>,
        remote: &Arc<Remote>,
        meta: &ObjectMeta,
        file: Option<Arc<DiskFile>>,
    ) -> Self {
        let shared = Shared {
            meta: meta.clone(),
            remote: Arc::clone(remote),
            file,
            fills: Arc::clone(fills),
            table: Mutex::default(),
            has_handle: AtomicBool::new(true),
            passing: AtomicUsize::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Which.
    pub fn meta(&self) -> &ObjectMeta {
        &self.shared.meta
    }

    /// What is on disk and can be had without waiting for a device; never blocks. None: use
    /// [`Object::read`].
    pub fn try_read(&self, range: Range<u64>) -> Option<Bytes> {
        self.shared.try_read(&range, Use::Again)
    }

    /// Counts writes of this object to disk in this process, each before its bytes can be read:
    /// while it stays the same, what [`Object::try_read`] gives for a range does not become other
    /// bytes. Takes one load.
    pub fn disk_writes(&self) -> u64 {
        self.shared.file.as_ref().map_or(0, |file| file.writes())
    }

    /// Whether all of a range is on disk.
    pub fn is_local(&self, range: Range<u64>) -> bool {
        self.shared.is_present(&range)
    }

    /// Starts reads of several ranges, in any order and overlapping; nearby ones share a read. May
    /// be called from any thread. The answers come as they arrive; what nobody waits for any more
    /// is given up before its request is sent, and not afterwards. Also starts the fill that the
    /// cache's options want.
    ///
    /// # Errors
    /// Of each reading: [`Error::Settings`] for a range that is not within the object,
    /// [`Error::NotLocal`], [`Error::TooLate`], and what the store answered.
    pub fn read_many(&self, ranges: &[Range<u64>], options: ReadOptions) -> Vec<Reading> {
        let mut call = Call { shared: &self.shared, options, deadline: None, missing: Vec::new() };
        let readings = ranges.iter().map(|range| call.read(range)).collect();
        let Call { missing, .. } = call;
        self.shared.read_missing(missing, Missed::Presence, Use::Again);
        readings
    }

    /// One read.
    ///
    /// # Errors
    /// As [`Object::read_many`].
    pub fn read(&self, range: Range<u64>, options: ReadOptions) -> Reading {
        let mut call = Call { shared: &self.shared, options, deadline: None, missing: Vec::new() };
        let reading = call.read(&range);
        let Call { missing, .. } = call;
        self.shared.read_missing(missing, Missed::Presence, Use::Again);
        reading
    }

    /// Brings the whole object to disk and waits for it. The result says how much is there: less
    /// than all if the disk does not take it.
    ///
    /// # Errors
    /// [`Error::Settings`]: there is no disk. Otherwise what the store answered; what has come stays.
    pub async fn warm(&self, report: &mut (dyn FnMut(Progress) + Send)) -> Result<Progress, Error> {
        let Some(file) = &self.shared.file else {
            let what = self.shared.what();
            return Err(Error::Settings(format!(
                "{what}: cannot be brought to disk, because there is none"
            )));
        };
        warm::Warming::new(&self.shared, file, report).run().await
    }

    /// The bytes are not what they should be, although they came as the store sent them or as they
    /// were on disk: what is on disk of them is removed.
    pub fn invalidate(&self, range: Range<u64>) {
        self.shared.table().invalidate(&range);
        if let Some(file) = &self.shared.file {
            file.remove(&range);
        }
    }

    /// What is on its way or arrived lately is not given to anybody any more, nor written to disk:
    /// called when the object is dropped from disk.
    pub(crate) fn forget(&self) {
        let mut table = self.shared.table();
        table.invalidate(&(0..self.shared.meta.size));
        table.queue.forget();
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.shared.has_handle.store(false, Relaxed);
    }
}

/// One call of [`Object::read_many`].
struct Call<'a> {
    shared: &'a Arc<Shared>,
    options: ReadOptions,
    deadline: Option<Deadline>,
    missing: Wanted,
}

impl Call<'_> {
    fn read(&mut self, range: &Range<u64>) -> Reading {
        let shared = self.shared;
        if let Err(error) = shared.check(range) {
            return Reading::ready(Err(error));
        }
        if range.is_empty() {
            return Reading::ready(Ok(Bytes::new()));
        }
        if let Some(bytes) = shared.try_read(range, Use::Again) {
            return Reading::ready(Ok(bytes));
        }
        let is_present = shared.is_present(range);
        if self.options.local_only && !is_present {
            shared.touch(std::slice::from_ref(range), Start::Now);
            return Reading::ready(Err(Error::NotLocal));
        }
        let (waiter, answer) = oneshot::channel();
        if is_present {
            let missed =
                if self.options.local_only { OnMiss::Tell } else { OnMiss::Ask(Use::Again) };
            shared.read_disk(range.clone(), waiter, missed);
        } else {
            self.missing.push((range.clone(), waiter));
        }
        let runtime = shared.remote.runtime();
        let deadline =
            self.deadline.get_or_insert_with(|| Timer::start(runtime, self.options.deadline));
        Reading::waiting(answer, deadline.clone(), Arc::clone(shared))
    }
}

impl Shared {
    /// A miss that joined a part of the fill.
    fn count_joined(&self) {
        self.fills.misses.fetch_add(1, Relaxed);
        self.fills.joined.fetch_add(1, Relaxed);
    }

    /// For errors.
    fn what(&self) -> String {
        format!("{} of {}", self.meta.name, self.remote.url())
    }

    fn is_present(&self, range: &Range<u64>) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_present(range))
    }

    fn is_in_use(&self) -> bool {
        self.has_handle.load(Relaxed) && !self.fills.is_closed()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When bytes came last of what is under way and brings all of a range.
    fn brought(&self, range: &Range<u64>) -> Option<tokio::time::Instant> {
        let table = self.table();
        let fetches =
            [table.part(range), table.foreground(&plan::blocks_of(range, self.meta.size))];
        fetches.into_iter().flatten().filter_map(|fetch| fetch.brought()).max()
    }

    /// That a range is one of the object.
    fn check(&self, range: &Range<u64>) -> Result<(), Error> {
        if range.start <= range.end && range.end <= self.meta.size {
            return Ok(());
        }
        let text = format!(
            "{}: expected a range within 0..{}, got {range:?}",
            self.what(),
            self.meta.size
        );
        Err(Error::Settings(text))
    }

    /// Never blocks.
    #[inline]
    fn try_read(&self, range: &Range<u64>, purpose: Use) -> Option<Bytes> {
        let bytes = self.file.as_ref()?.try_read(range, purpose.count())?;
        self.fills.hits.fetch_add(1, Relaxed);
        Some(bytes)
    }

    /// On a thread that may block for the device.
    fn read_disk(self: &Arc<Self>, range: Range<u64>, waiter: Waiter, on_miss: OnMiss) {
        let Some(file) = self.file.clone() else { return };
        let (shared, count) = (Arc::clone(self), on_miss.count());
        self.remote.runtime().spawn(async move {
            let (wanted, reader) = (range.clone(), Arc::clone(&file));
            let has_begun = Arc::new(AtomicBool::new(false));
            let begins = Arc::clone(&has_begun);
            let read = file.run(&shared.fills.runtime, Access::Read, move || {
                begins.store(true, Relaxed);
                reader.read(&wanted, count)
            });
            let read = timeout(DISK_TIMEOUT, read).await;
            if read.is_err() && has_begun.load(Relaxed) {
                file.hangs(DISK_TIMEOUT);
            }
            match (read.ok().flatten().flatten(), on_miss) {
                (Some(bytes), _) => {
                    shared.fills.hits.fetch_add(1, Relaxed);
                    drop(waiter.send(Ok(bytes)));
                }
                (None, OnMiss::Tell) => {
                    shared.touch(&[range], Start::Now);
                    drop(waiter.send(Err(Error::NotLocal)));
                }
                (None, OnMiss::Ask(purpose)) => {
                    shared.read_missing(vec![(range, waiter)], Missed::Disk, purpose);
                }
            }
        });
    }

    /// Joins fetches or starts some.
    fn read_missing(self: &Arc<Self>, missing: Wanted, missed: Missed, purpose: Use) {
        if missing.is_empty() {
            return;
        }
        self.fills.misses.fetch_add(missing.len() as u64, Relaxed);
        let touched: Vec<_> = missing.iter().map(|(range, _)| range.clone()).collect();
        let (fetches, received) = self.join_or_plan(missing, missed, purpose);
        for fetch in fetches {
            let task = Foreground { object: Arc::clone(self), fetch };
            self.remote.runtime().spawn(task.run(Urgency::Foreground));
        }
        for (range, waiter) in received {
            self.read_disk(range, waiter, OnMiss::Ask(purpose));
        }
        if purpose == Use::Again {
            self.touch(&touched, Start::AfterFirstByte);
        }
    }

    /// Under one lock, so that of many who miss the same bytes one starts the fetch. Returns the
    /// fetches to start, and what has come to disk just now.
    fn join_or_plan(
        &self,
        missing: Wanted,
        missed: Missed,
        purpose: Use,
    ) -> (Vec<Arc<Fetch>>, Wanted) {
        let (pace, now) = (self.remote.pace(), tokio::time::Instant::now());
        let (mut alone, mut received) = (Wanted::new(), Wanted::new());
        let mut table = self.table();
        for (range, waiter) in missing {
            let blocks = plan::blocks_of(&range, self.meta.size);
            let is_sooner = |fetch: &&Arc<Fetch>| due::is_sooner(fetch.course(), &range, pace, now);
            let is_soon = |fetch: &&Arc<Fetch>| match fetch.is_urgent() {
                true => due::is_near(fetch.course(), &range, now),
                false => is_sooner(fetch),
            };
            let under_way = table.foreground(&blocks).filter(is_soon);
            // A stream that could do with a part has joined it before it comes here.
            let part =
                || table.part(&range).filter(|part| purpose == Use::Again && is_sooner(part));
            let waiter = match under_way.or_else(part) {
                None => waiter,
                Some(fetch) => match fetch.join(range.clone(), waiter) {
                    Err(waiter) => waiter,
                    Ok(()) => {
                        self.fills.joined.fetch_add(1, Relaxed);
                        continue;
                    }
                },
            };
            // A part leaves the table after it is on disk: what was missing a moment ago may be
            // there now.
            if missed == Missed::Presence && self.is_present(&range) {
                received.push((range, waiter));
            } else {
                alone.push((range, waiter));
            }
        }
        (self.start(&mut table, alone, plan::gap_of(pace)), received)
    }

    fn start(&self, table: &mut Table, alone: Wanted, gap_max: u64) -> Vec<Arc<Fetch>> {
        let ranges: Vec<_> = alone.iter().map(|(range, _)| range.clone()).collect();
        let mut waiters: Vec<_> = alone.into_iter().map(|(_, waiter)| Some(waiter)).collect();
        let mut fetches = Vec::new();
        for read in plan::reads(&ranges, self.meta.size, gap_max) {
            let fetch = Arc::new(Fetch::new(read.range, Purpose::Waiters));
            for index in read.members {
                let waiter = waiters[index].take().expect("a range is in one read");
                fetch.join(ranges[index].clone(), waiter).expect("a new fetch has not failed");
            }
            table.add_foreground(&fetch);
            fetches.push(fetch);
        }
        fetches
    }
}

/// A fetch that somebody waits for, as long as its task lives.
struct Foreground {
    object: Arc<Shared>,
    fetch: Arc<Fetch>,
}

impl Foreground {
    /// Within the budget of fills, and as patient: a read ahead of a stream, whose bytes go to no
    /// disk.
    async fn run_ahead(self, turn: Turn) {
        turn.come(&self.fetch, &self.object.remote).await;
        if self.fetch.has_ended() {
            return;
        }
        let bytes = self.fetch.range.end - self.fetch.range.start;
        let _permit = self.object.fills.reserve(bytes).await;
        self.run(Urgency::Fill).await;
    }

    async fn run(self, urgency: Urgency) {
        let Shared { remote, meta, .. } = &*self.object;
        let mut sink = &*self.fetch;
        let read = remote.read_range(meta, self.fetch.range.clone(), urgency, &mut sink).await;
        match read {
            Ok(()) => self.object.fills.keep_received(&self.object, &self.fetch),
            Err(error) => {
                // Out of the table first: whoever comes now starts anew.
                self.object.table().remove_foreground(&self.fetch);
                self.fetch.fail(&error);
            }
        }
    }
}

impl Drop for Foreground {
    /// A task that is given up, or that panics, leaves nobody waiting.
    fn drop(&mut self) {
        if self.fetch.received().is_none() {
            self.object.table().remove_foreground(&self.fetch);
            self.fetch.fail(&given_up(&self.object.what()));
        }
    }
}

#[cfg(test)]
mod tests;
