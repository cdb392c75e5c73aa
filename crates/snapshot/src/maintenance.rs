//! The thread that makes snapshots when the log has grown, removes old ones and the log behind
//! them.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use busload_io::{Clock, Disk, DiskErrorKind, DiskOperation};
use busload_log::{Lsn, Progress, remove_covered, remove_spares};

use crate::{
    MakeError, Pacer, Reading, Snapshot, SnapshotError, Stopped, Summary, Wanted,
    format::lsn_of_name,
    limits::{
        CATCH_UP_PERCENT, CPU_PERCENT, DURABLE_LOOK_MS, DURABLE_WAIT_MS, GIVE_WAY_BYTES_MAX,
        GIVE_WAY_FACTOR, KEPT_COUNT, LOG_BYTES_MIN, LOOK_INTERVAL_MS, NOTED_FRACTION,
        NOTED_RECORDS_MAX, PROGRESS_INTERVAL_MS, RETRY_INTERVAL_MS,
    },
    make, newest_first, partition_bits,
    writer::discard,
};

/// Settings of the snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Snapshots are made without being asked for.
    pub automatic: bool,
    /// Least length of the log behind the last snapshot at which another is made. If that snapshot
    /// is longer, its length counts.
    pub log_bytes_min: u64,
    /// Share of one processor that making a snapshot takes, in percent.
    pub cpu_percent: u32,
    /// Length of the log behind the last snapshot, in percent of the contents, from which the share
    /// grows with it, and above which the log is sorted into a file first.
    pub catch_up_percent: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            automatic: true,
            log_bytes_min: LOG_BYTES_MIN,
            cpu_percent: CPU_PERCENT,
            catch_up_percent: CATCH_UP_PERCENT,
        }
    }
}

/// State of the snapshots, for INFO and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// A snapshot is being made.
    pub running: bool,
    /// Share of the snapshot that is being made that is done, in thousandths; 0 if none is.
    pub done_permille: u32,
    /// Number of snapshots made since the start.
    pub made: u64,
    /// Number of attempts since the start that failed.
    pub failed: u64,
    /// Last record that the newest snapshot covers; 0 if there is none.
    pub lsn: Lsn,
    /// Time of day at which the newest snapshot was finished since the start, in milliseconds
    /// since 1970.
    pub finished_ms: Option<i64>,
    /// Duration of the making of the last snapshot.
    pub took: Option<Duration>,
    /// Number of entries of the newest snapshot.
    pub entries: u64,
    /// Length of the newest snapshot's file.
    pub file_bytes: u64,
    /// Why the last attempt failed; `None` if it did not.
    pub error: Option<Arc<str>>,
    /// Number of requests for a snapshot.
    pub requested: u64,
    /// Number of requests that were carried out or failed.
    pub answered: u64,
}

/// Handle by which any thread asks for a snapshot and reads the state.
#[derive(Debug, Default)]
pub struct Control {
    state: Mutex<MaintenanceState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct MaintenanceState {
    status: Status,
    /// Last record that the requests so far ask for.
    requested_lsn: Lsn,
    stop: bool,
}

impl Control {
    /// Asks for a snapshot of everything up to `lsn`. What of it does not become durable within
    /// [`limits::DURABLE_WAIT_MS`](crate::limits::DURABLE_WAIT_MS) is left out. Returns the number
    /// of the request: it is done when [`Status::answered`] has reached it.
    pub fn request(&self, lsn: Lsn) -> u64 {
        let mut state = self.lock();
        state.status.requested += 1;
        state.requested_lsn = state.requested_lsn.max(lsn);
        self.changed.notify_all();
        state.status.requested
    }

    /// Returns the current state.
    pub fn status(&self) -> Status {
        self.lock().status.clone()
    }

    /// Waits until a request was carried out or has failed, or the thread was asked to end. Returns
    /// the state by then.
    pub fn wait_for(&self, request: u64) -> Status {
        let pending = |state: &mut MaintenanceState| !state.stop && state.status.answered < request;
        let waited = self.changed.wait_while(self.lock(), pending);
        waited.unwrap_or_else(PoisonError::into_inner).status.clone()
    }

    /// Ends the thread; a snapshot that is being made is given up.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, MaintenanceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock().status);
        self.changed.notify_all();
    }

    /// Waits until a snapshot is requested, or for this long.
    fn wait(&self, timeout: Duration) -> Result<(), Stopped> {
        let idle = |state: &mut MaintenanceState| {
            !state.stop && state.status.requested <= state.status.answered
        };
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, idle);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.stop { Err(Stopped) } else { Ok(()) }
    }

    /// Waits until what the requests ask for is durable, but not long: the log may have stopped, or
    /// a table may leave it to the system when to sync.
    fn wait_until_durable(&self, progress: &Progress, pause: Pause<'_>) -> Result<(), Stopped> {
        for _ in 0..DURABLE_WAIT_MS / DURABLE_LOOK_MS {
            if self.lock().requested_lsn <= progress.durable() {
                break;
            }
            pause(Duration::from_millis(DURABLE_LOOK_MS))?;
        }
        Ok(())
    }

    /// Waits for this long.
    fn pause(&self, pause: Duration) -> Result<(), Stopped> {
        let waited = self.changed.wait_timeout_while(self.lock(), pause, |state| !state.stop);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.stop { Err(Stopped) } else { Ok(()) }
    }
}

/// Waits for this long, or fails if the work must stop.
pub type Pause<'a> = &'a mut dyn FnMut(Duration) -> Result<(), Stopped>;

/// Facts about the recovery that the thread goes on from.
#[derive(Clone, Copy, Debug)]
pub struct Recovered {
    /// Snapshot that was loaded.
    pub newest: Option<Lsn>,
    /// Length of the log behind it.
    pub log_bytes: u64,
    /// Random number for the hash of a first snapshot.
    pub seed: u64,
}

/// Returns the memory that the logged tables take.
pub type MemoryBytes = Box<dyn Fn() -> u64 + Send>;

/// State of the thread that makes snapshots.
pub struct Maintenance<D: Disk, C> {
    disk: D,
    clock: C,
    progress: Progress,
    control: Arc<Control>,
    settings: Settings,
    memory_bytes: MemoryBytes,
    /// Snapshots that are kept, the newest first. Their headers and indexes verify.
    kept: Vec<Snapshot<D::File>>,
    seed: u64,
    /// Length of the log behind the newest snapshot when the process started.
    recovered_bytes: u64,
    /// Bytes written since the start that the newest snapshot covers.
    covered_bytes: u64,
    retry_at: Duration,
    /// The attempt has a low priority, and is given up when the log becomes long meanwhile.
    gives_way: bool,
}

impl<D: Disk, C: Clock> Maintenance<D, C> {
    /// Prepares the thread for a log that was recovered.
    pub fn new(
        disk: D,
        clock: C,
        progress: Progress,
        control: Arc<Control>,
        settings: Settings,
        memory_bytes: MemoryBytes,
        recovered: Recovered,
    ) -> Result<Self, SnapshotError> {
        let Recovered { newest, log_bytes, seed } = recovered;
        discard(&disk)?;
        let mut kept = Vec::new();
        for lsn in newest_first(&disk)? {
            if newest.is_some_and(|newest| lsn <= newest) && kept.len() < KEPT_COUNT {
                match Snapshot::open(&disk, lsn) {
                    Ok(snapshot) => kept.push(snapshot),
                    // A start reads over a bad sector, too.
                    Err(SnapshotError::Disk(error)) if error.operation != DiskOperation::Read => {
                        return Err(error.into());
                    }
                    Err(error) => log::warn!("{error}"),
                }
            }
        }
        if let Some(newest) = kept.first() {
            let (lsn, entries) = (newest.header().lsn, newest.entries());
            let file_bytes = newest.file_bytes();
            control.change(|status| {
                (status.lsn, status.entries, status.file_bytes) = (lsn, entries, file_bytes);
            });
        }
        Ok(Self {
            disk,
            clock,
            progress,
            control,
            settings,
            memory_bytes,
            kept,
            seed,
            recovered_bytes: log_bytes,
            covered_bytes: 0,
            retry_at: Duration::ZERO,
            gives_way: false,
        })
    }

    /// Makes snapshots until [`Control::stop`], each in a thread of its own that first calls
    /// `lower_priority`. While the log is long beside the contents, this thread makes them, and one
    /// that was begun before is given up when the log is [`GIVE_WAY_FACTOR`] times as long as that:
    /// a thread with a lower priority than busy ones would never keep up, and cannot raise it.
    pub fn run(mut self, lower_priority: fn())
    where
        D: Send,
        D::File: Send,
        C: Send,
    {
        let control = Arc::clone(&self.control);
        while control.wait(Duration::from_millis(LOOK_INTERVAL_MS)).is_ok() {
            if !self.has_work() {
                continue;
            }
            let mut pause = |pause| control.pause(pause);
            if self.is_behind() || !self.turn_in_thread(lower_priority, &mut pause) {
                self.turn(&mut pause);
            }
        }
    }

    /// Makes a snapshot in a thread of its own. Returns false if there can be none.
    fn turn_in_thread(
        &mut self,
        lower_priority: fn(),
        pause: &mut (dyn FnMut(Duration) -> Result<(), Stopped> + Send),
    ) -> bool
    where
        D: Send,
        D::File: Send,
        C: Send,
    {
        self.gives_way = true;
        let is_done = thread::scope(|scope| {
            let turn = || {
                lower_priority();
                self.turn(pause);
            };
            thread::Builder::new().name("snapshots".into()).spawn_scoped(scope, turn).is_ok()
        });
        self.gives_way = false;
        is_done
    }

    /// Makes a snapshot if one is due or was asked for.
    pub fn turn(&mut self, pause: Pause<'_>) {
        if self.has_work() {
            self.attempt(self.control.status().requested, pause);
        }
    }

    /// Returns whether a snapshot is due or was asked for.
    fn has_work(&self) -> bool {
        let Status { requested, answered, .. } = self.control.status();
        let is_due = self.settings.automatic
            && self.due_bytes() <= self.log_bytes()
            && self.retry_at <= self.clock.now();
        self.progress.failure().is_none() && (answered < requested || is_due)
    }

    /// Returns whether the log is long beside the contents.
    fn is_behind(&self) -> bool {
        self.catch_up_bytes() < self.log_bytes()
    }

    /// Returns whether a snapshot that gives way to the other threads has fallen so far behind that
    /// it must begin anew without doing so.
    fn must_begin_anew(&self) -> bool {
        self.gives_way && give_way_bytes(self.catch_up_bytes()) < self.log_bytes()
    }

    /// Returns the length of the log from which the share of the processor grows.
    fn catch_up_bytes(&self) -> u64 {
        // There may be no snapshot yet whose length says how much there is to do.
        let contents_bytes = self.due_bytes().max((self.memory_bytes)());
        (contents_bytes / 100).saturating_mul(self.settings.catch_up_percent)
    }

    /// Returns the length of the log behind the newest snapshot.
    fn log_bytes(&self) -> u64 {
        (self.recovered_bytes + self.progress.stats().bytes).saturating_sub(self.covered_bytes)
    }

    /// Returns the length of the log at which a snapshot is made.
    fn due_bytes(&self) -> u64 {
        let newest = self.kept.first().map_or(0, Snapshot::file_bytes);
        self.settings.log_bytes_min.max(newest)
    }

    /// Makes a snapshot, which answers the requests up to this one, and removes what it makes
    /// superfluous.
    fn attempt(&mut self, request: u64, pause: Pause<'_>) {
        let began = self.clock.now();
        self.control.change(|status| status.running = true);
        let made = self.make(pause);
        if self.must_begin_anew() && matches!(made, Err(MakeError::Stopped(_))) {
            log::debug!("the log grows faster than a snapshot is made beside: it begins anew");
            return self.control.change(|status| status.running = false);
        }
        let took = self.clock.now().saturating_sub(began);
        let now_ms = self.clock.wall_ms();
        match &made {
            Ok(Some(summary)) => log::info!(
                "snapshot {}: {} entries, {} bytes, in {:.1} s",
                summary.name,
                summary.entries,
                summary.file_bytes,
                took.as_secs_f64()
            ),
            // What is behind the newest cannot be covered yet: look again later.
            Ok(None) => self.retry_later(),
            Err(MakeError::Stopped(_)) => {}
            Err(error) => {
                log::error!("no snapshot was made, the log keeps everything: {error}");
                self.retry_later();
                if matches!(error, MakeError::Disk(error) if error.kind == DiskErrorKind::NoSpace)
                    && let Err(error) = remove_spares(&self.disk, &self.progress)
                {
                    log::warn!("{error}");
                }
            }
        }
        if let Ok(Some(_)) = made
            && let Err(error) = self.trim()
        {
            log::error!("the log behind the older snapshot is kept for now: {error}");
        }
        self.control.change(|status| {
            (status.running, status.done_permille, status.answered) = (false, 0, request);
            match made {
                Err(error) => {
                    status.failed += 1;
                    status.error = Some(error.to_string().into());
                }
                Ok(None) => status.error = None,
                Ok(Some(summary)) => {
                    status.made += 1;
                    (status.error, status.finished_ms) = (None, Some(now_ms));
                    (status.lsn, status.entries) = (summary.lsn, summary.entries);
                    (status.file_bytes, status.took) = (summary.file_bytes, Some(took));
                }
            }
        });
    }

    fn retry_later(&mut self) {
        self.retry_at = self.clock.now() + Duration::from_millis(RETRY_INTERVAL_MS);
    }

    /// Makes a snapshot from the newest one that can be read and verifies.
    fn make(&mut self, pause: Pause<'_>) -> Result<Option<Summary>, MakeError> {
        self.control.wait_until_durable(&self.progress, pause)?;
        let covered_bytes = self.recovered_bytes + self.progress.stats().bytes;
        let durable = self.progress.durable();
        let partition_bits = partition_bits((self.memory_bytes)());
        loop {
            let reading = self.reading(durable, partition_bits);
            let wanted = Wanted { durable, seed: self.seed, partition_bits, reading };
            match self.make_paced(wanted, pause) {
                Ok(Some(summary)) => {
                    self.kept.insert(0, Snapshot::open(&self.disk, summary.lsn)?);
                    self.kept.truncate(KEPT_COUNT);
                    self.covered_bytes = covered_bytes;
                    return Ok(Some(summary));
                }
                Err(MakeError::Snapshot(error))
                    if !self.kept.is_empty() && !matches!(error, SnapshotError::Version { .. }) =>
                {
                    log::error!("{error}; the snapshot before it takes its place");
                    self.kept.remove(0);
                }
                made => return made,
            }
        }
    }

    /// Decides how the log up to `durable` is read.
    fn reading(&self, durable: Lsn, partition_bits: u32) -> Reading {
        let base = self.kept.first().map_or(Lsn(0), |newest| newest.header().lsn);
        let records = durable.0.saturating_sub(base.0);
        let fraction =
            usize::try_from((self.memory_bytes)() / NOTED_FRACTION).unwrap_or(usize::MAX);
        let noted_max = NOTED_RECORDS_MAX.max(fraction);
        if 0 < partition_bits && (self.is_behind() || (noted_max as u64) < records) {
            Reading::Spilled
        } else {
            Reading::Repeated { noted_max }
        }
    }

    fn make_paced(&self, wanted: Wanted, pause: Pause<'_>) -> Result<Option<Summary>, MakeError> {
        let catch_up_bytes = self.catch_up_bytes();
        let grows_from =
            if self.gives_way { give_way_bytes(catch_up_bytes) } else { catch_up_bytes }.max(1);
        let share = || {
            let growth = self.log_bytes() as f64 / grows_from as f64;
            f64::from(self.settings.cpu_percent) / 100.0 * growth.max(1.0)
        };
        let mut pause = |time| match self.must_begin_anew() {
            true => Err(Stopped),
            false => pause(time),
        };
        let mut told = ToldProgress::new(&self.clock, &self.control);
        let mut progress = |done| told.note(done);
        let mut pacer = Pacer::new(&self.clock, &share, &mut pause, &mut progress);
        make(&self.disk, self.kept.first(), wanted, &mut pacer)
    }

    /// Removes the snapshots that are not kept, and the log that the older of the kept ones covers.
    /// Called when the newer one was just made from the older one: every block of both is as it
    /// should be.
    fn trim(&self) -> Result<(), MakeError> {
        let [_, oldest] = &self.kept[..] else { return Ok(()) };
        let oldest = oldest.header().lsn;
        let mut removed = false;
        for name in self.disk.list()? {
            if lsn_of_name(&name).is_some_and(|lsn| lsn < oldest) {
                self.disk.remove(&name)?;
                removed = true;
            }
        }
        if removed {
            self.disk.sync_directory()?;
        }
        remove_covered(&self.disk, &self.progress, oldest, self.due_bytes())?;
        Ok(())
    }
}

/// Returns the length of the log up to which a snapshot gives way to the other threads.
fn give_way_bytes(catch_up_bytes: u64) -> u64 {
    catch_up_bytes.max(catch_up_bytes.saturating_mul(GIVE_WAY_FACTOR).min(GIVE_WAY_BYTES_MAX))
}

/// Says how far a snapshot is that is being made: in the status, and in the log if it takes long.
struct ToldProgress<'a, C> {
    clock: &'a C,
    control: &'a Control,
    began: Duration,
    /// Time of the last line of the log.
    logged: Duration,
    permille: u32,
}

impl<'a, C: Clock> ToldProgress<'a, C> {
    fn new(clock: &'a C, control: &'a Control) -> Self {
        let began = clock.now();
        Self { clock, control, began, logged: began, permille: 0 }
    }

    /// Learns which share is done, from 0 to 1.
    fn note(&mut self, done: f64) {
        let done = done.clamp(0.0, 1.0);
        let permille = (done * 1e3) as u32;
        if self.permille != permille {
            self.permille = permille;
            self.control.change(|status| status.done_permille = permille);
        }
        let now = self.clock.now();
        if Duration::from_millis(PROGRESS_INTERVAL_MS) <= now.saturating_sub(self.logged) {
            self.logged = now;
            let took_s = now.saturating_sub(self.began).as_secs_f64();
            let left_s = took_s * (1.0 - done) / done.max(1e-3);
            log::info!(
                "making a snapshot: {:.1} % in {took_s:.0} s, about {left_s:.0} s left",
                done * 1e2
            );
        }
    }
}

impl<D: Disk, C> std::fmt::Debug for Maintenance<D, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Maintenance").field("settings", &self.settings).finish_non_exhaustive()
    }
}
