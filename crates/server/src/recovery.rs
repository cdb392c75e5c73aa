//! Recovers the tables at a start from the newest snapshot and the log, reports progress and
//! outcome to the user, and starts the threads of the log and of the snapshots.

use std::{
    fs,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use busload_io::{Clock, Disk, OsRng, RealClock, RealDisk, Rng};
use busload_log::{OpenError, Options, Progress, RecoveryReport, format::LOCK_NAME};
use busload_pipeline::tx::{self, Now, RecoveryProgress, SnapshotReport, StartError, Tx};
use busload_snapshot::{Control, Maintenance};

use crate::{
    cli::progress::Meter,
    config::{Config, Size},
    failure::Failure,
    logger, open_files,
    service_manager::ServiceManager,
    status::{ServerState, Status},
};

/// Warning for a log whose end could be lost without notice.
pub const END_UNNAMED: &str = "no file `last-segment`, as in the log of an older version: \
    it cannot be told whether segments are missing at the end";

/// Results of a recovery that the server runs on.
pub struct Recovered {
    pub tx: Tx,
    pub progress: Progress,
    pub log_threads: Vec<JoinHandle<()>>,
    pub snapshots: SnapshotThread,
}

/// The thread that makes snapshots.
pub struct SnapshotThread {
    control: Arc<Control>,
    thread: JoinHandle<()>,
}

impl SnapshotThread {
    /// Ends the thread. A snapshot that is being made is given up.
    pub fn stop(self) -> Result<(), Failure> {
        self.control.stop();
        self.thread.join().map_err(|_| Failure::run("the thread of the snapshots panicked"))
    }
}

/// Recovers the log and starts its threads.
pub fn recover(
    config: &Config,
    clock: &RealClock,
    status: &Status,
    manager: &ServiceManager,
) -> Result<Recovered, Failure> {
    let directory = config.log_directory();
    open_files::fit_log(&directory);
    let disk = RealDisk::open(&directory).map_err(|error| Failure::run(error.to_string()))?;
    announce_recovery(&disk);
    let started = clock.now();
    let now = Now { monotonic: started, wall_ms: clock.wall_ms() };
    let (stats, signals) = (Arc::clone(&status.stats), Arc::clone(&status.signals));
    let settings = config.settings.clone();
    let mut meter = RecoveryMeter::default();
    manager.status(&ServerState::Recovering);
    let mut told = RecoveryStatus::default();
    let opened = tx::open(
        disk.clone(),
        Options::default(),
        settings,
        stats,
        signals,
        Box::new(OsRng::new()),
        now,
        &mut |progress| {
            meter.show(progress);
            told.tell(progress, manager);
        },
    );
    meter.clear();
    let opened = opened.map_err(|error| start_failure(error, &config.data))?;
    note_process(&directory);
    say_recovered(&opened.report, opened.snapshot.as_ref(), (clock.now() - started).as_secs_f64());
    status.recovered(opened.progress.clone(), Arc::clone(&opened.snapshots));
    let maintenance = Maintenance::new(
        disk,
        RealClock::new(),
        opened.progress.clone(),
        Arc::clone(&opened.snapshots),
        config.snapshots,
        Box::new({
            let stats = Arc::clone(&status.stats);
            move || stats.memory_logged_bytes.get()
        }),
        busload_snapshot::Recovered {
            newest: opened.snapshot.as_ref().map(|snapshot| snapshot.lsn),
            log_bytes: opened.report.bytes,
            seed: OsRng::new().next_u64(),
        },
    )
    .map_err(|error| Failure::run(error.to_string()))?;
    let thread = spawn("snapshots", || maintenance.run(lower_priority))?;
    let snapshots = SnapshotThread { control: opened.snapshots, thread };
    let (stage, helper) = (opened.stage, opened.helper);
    let log_threads = vec![spawn("log", || stage.run())?, spawn("zero-ahead", || helper.run())?];
    Ok(Recovered { tx: opened.tx, progress: opened.progress, log_threads, snapshots })
}

/// Lets every other thread go first.
fn lower_priority() {
    // Elsewhere it would concern the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(10) {
        log::debug!("the thread of the snapshots keeps its priority: {error}");
    }
}

/// Shows how far a recovery has come. One that takes a moment shows nothing.
#[derive(Default)]
pub struct RecoveryMeter {
    /// The meter of the present part, by its name.
    part: Option<(&'static str, Meter)>,
}

impl RecoveryMeter {
    /// Shows how far the recovery has come.
    pub fn show(&mut self, progress: RecoveryProgress) {
        let (what, bytes, total) = parts(progress);
        if self.part.as_ref().is_some_and(|(shown, _)| *shown != what) {
            self.clear();
        }
        let (_, meter) = self.part.get_or_insert_with(|| (what, Meter::new(what)));
        let done = bytes.min(total);
        meter.show(busload_objects::Progress { done, total, ..Default::default() });
    }

    /// Removes the bar from the terminal.
    pub fn clear(&mut self) {
        if let Some((_, meter)) = self.part.take() {
            meter.clear();
        }
    }
}

/// Returns what a recovery does, the bytes that are done, and all of them.
fn parts(progress: RecoveryProgress) -> (&'static str, u64, u64) {
    match progress {
        RecoveryProgress::Snapshot(bytes, total) => ("loading the snapshot", bytes, total),
        RecoveryProgress::Log(bytes, total) => ("recovering the log", bytes, total),
    }
}

/// Tells the service manager how far a recovery has come, once for each percent.
#[derive(Default)]
struct RecoveryStatus {
    told: Option<(&'static str, u64)>,
}

impl RecoveryStatus {
    fn tell(&mut self, progress: RecoveryProgress, manager: &ServiceManager) {
        let (what, bytes, total) = parts(progress);
        let percent = bytes.min(total).saturating_mul(100) / total.max(1);
        if self.told.replace((what, percent)) != Some((what, percent)) {
            manager.status(&format_args!("{what}: {percent} %"));
        }
    }
}

/// Explains to people why the log or the tables refuse a start.
pub fn start_failure(error: StartError, data: &Path) -> Failure {
    match error {
        StartError::Log(OpenError::Locked { path }) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            let process = match holder.trim().parse::<u32>() {
                Ok(process) => format!("process {process}"),
                Err(_) => "another process".to_owned(),
            };
            Failure::run(format!(
                "{} is in use by {process}; expected a directory of its own for each server",
                data.display()
            ))
        }
        StartError::Log(error) => Failure::run(error.to_string()),
        StartError::Snapshot(error) => Failure::run(error.to_string()),
        StartError::Catalogue(message) => Failure::usage(message),
        StartError::Failed(message) => Failure::run(message),
    }
}

/// Says how large the log is, because a large one takes a while.
fn announce_recovery(disk: &RealDisk) {
    let lengths =
        disk.list().into_iter().flatten().filter_map(|name| fs::metadata(disk.path(&name)).ok());
    let bytes: u64 = lengths.map(|metadata| metadata.len()).sum();
    log::debug!("reading {} of log in {}", Size(bytes), disk.directory().display());
}

/// Writes the process id for the error message of a second process. Nothing else needs it, so a
/// failure is ignored.
fn note_process(directory: &Path) {
    let _ = fs::write(directory.join(LOCK_NAME), format!("{}\n", std::process::id()));
}

fn say_recovered(report: &RecoveryReport, snapshot: Option<&SnapshotReport>, seconds: f64) {
    if let Some(torn) = &report.torn_tail {
        log::warn!(
            "the end of the log was torn: {} is cut at offset {} (LSN {}), {} behind it were never \
             acknowledged as synced",
            torn.path.display(),
            torn.offset,
            torn.lsn,
            Size(torn.bytes)
        );
    }
    if 0 < report.segments && !report.end_is_named {
        log::warn!("{}; from now on it can", END_UNNAMED);
    }
    let loaded = snapshot.map_or(String::new(), |snapshot| {
        format!(
            "a snapshot of {} entries, {}, up to LSN {}, and ",
            snapshot.entries,
            Size(snapshot.file_bytes),
            snapshot.lsn
        )
    });
    logger::say(&format!(
        "recovered {loaded}{} records, {} in {} segments, in {seconds:.3} s ({:.0} records/s); {}",
        report.records,
        Size(report.bytes),
        report.segments,
        report.records as f64 / seconds.max(1e-6),
        ended_before(report)
    ));
}

/// Says how the last run on this log ended.
pub fn ended_before(report: &RecoveryReport) -> &'static str {
    match (report.segments, report.clean_shutdown) {
        (0, _) => "the log is new",
        (_, true) => "the last run ended with a clean shutdown",
        (_, false) => "the last run did not end with a clean shutdown",
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let spawned = thread::Builder::new().name(name.into()).spawn(body);
    spawned.map_err(|error| Failure::run(format!("cannot start the thread {name}: {error}")))
}
