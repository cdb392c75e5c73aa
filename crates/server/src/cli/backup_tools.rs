//! `busload backup`, `busload backup verify` and `busload restore`: copy the log and its snapshots
//! while a server writes them, and make a new data directory of such a copy.

use std::{
    fs,
    path::{Path, PathBuf},
};

use busload_backup::{
    BackupError, Event, Manifest, Range, Restored, Settings, Taken, Target, read_manifest,
};
use busload_io::{Clock, OsRng, RealClock, RealDisk, Rng};
use busload_log::format::LogId;
use busload_objects::Progress;

use super::{
    arguments::{BackupArgs, RestoreArgs},
    log_tools::{Out, no_log},
    progress::Meter,
};
use crate::{
    config::{Config, Options, Size, TableChanges, log_directory},
    failure::Failure,
    logger::{self, Utc},
    machine::Machine,
    open_files,
};

/// Takes a backup, or goes on with one.
pub fn backup(to: &Path, arguments: BackupArgs) -> Result<(), Failure> {
    let data = data_directory(arguments.config.as_deref(), arguments.data)?;
    let directory = log_directory(Some(&data));
    if !directory.is_dir() {
        return Err(no_log(&directory));
    }
    check_has_no_folders(to)?;
    open_files::fit_log(&directory);
    let source = RealDisk::open_for_reading(&directory).map_err(run)?;
    let target = RealDisk::open(to).map_err(run)?;
    let keep_ms = arguments.keep.map(|keep| i64::try_from(keep.as_millis()).unwrap_or(i64::MAX));
    let clock = RealClock::new();
    let mut shown = Shown::new("backup");
    let taken = busload_backup::take(
        &source,
        &target,
        Settings { keep_ms },
        &|| clock.wall_ms(),
        &mut |event| shown.event(event),
    );
    shown.end();
    let taken = taken.map_err(failure)?;
    let mut out = Out::new();
    say_taken(&mut out, &taken);
    out.finish();
    Ok(())
}

fn say_taken(out: &mut Out, taken: &Taken) {
    let Taken { manifest, copied_files, copied_bytes, removed_files } = taken;
    out.line(format_args!(
        "backup   up to LSN {} of {}, taken at {}",
        manifest.lsn,
        Utc(manifest.wall_ms()),
        Utc(manifest.taken_ms)
    ));
    out.line(format_args!(
        "files    {} snapshots and {} segments, {}; copied {copied_files}, {}; removed \
         {removed_files}",
        manifest.snapshots.len(),
        manifest.segments.len(),
        Size(manifest.bytes()),
        Size(*copied_bytes)
    ));
    say_ranges(out, manifest);
}

fn say_ranges(out: &mut Out, manifest: &Manifest) {
    for range in manifest.ranges() {
        out.line(format_args!("restore  --to {}", Shows(range)));
    }
}

/// Displays a range with its times.
struct Shows(Range);

impl std::fmt::Display for Shows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Range { first, first_ms, last, last_ms } = self.0;
        write!(f, "{first} to {last}, or {} to {}", Utc(first_ms), Utc(last_ms))
    }
}

/// Verifies every file of a backup.
pub fn verify(from: &Path) -> Result<(), Failure> {
    let (disk, manifest) = open_backup(from)?;
    let mut shown = Shown::new("verify");
    let verified = busload_backup::verify(&disk, &manifest, &mut |event| shown.event(event));
    shown.end();
    let problems = verified.map_err(failure)?;
    let mut out = Out::new();
    for problem in &problems {
        out.line(format_args!("problem  {problem}"));
    }
    let files = manifest.files().count();
    if problems.is_empty() {
        out.line(format_args!("sound    {files} files, {}", Size(manifest.bytes())));
        say_ranges(&mut out, &manifest);
    }
    out.finish();
    match problems.len() {
        0 => Ok(()),
        count => {
            Err(Failure::run(format!("{count} of {files} files in {} are corrupt", from.display())))
        }
    }
}

/// Makes a new data directory with a state of the backup.
pub fn restore(arguments: &RestoreArgs) -> Result<(), Failure> {
    let RestoreArgs { from, data, to } = arguments;
    let (disk, manifest) = open_backup(from)?;
    let target = to.unwrap_or(Target::Latest);
    let lsn = manifest.resolve(&disk, target).map_err(failure)?;
    let lsn = lsn.ok_or_else(|| out_of_range(from, target, &manifest))?;
    check_is_empty(data)?;
    let directory = log_directory(Some(data));
    let target = RealDisk::open(&directory).map_err(run)?;
    let mut random = OsRng::new();
    let log_id = LogId(u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()));
    let mut shown = Shown::new("restore");
    let restored = busload_backup::restore(&disk, &manifest, lsn, &target, log_id, &mut |event| {
        shown.event(event);
    });
    shown.end();
    let Restored { lsn, wall_ms, snapshot, segments, bytes } = restored.map_err(failure)?;
    let mut out = Out::new();
    let beginning = match snapshot {
        Some(snapshot) => format!("a snapshot up to LSN {snapshot} and {segments} segments"),
        None => format!("{segments} segments"),
    };
    out.line(format_args!(
        "restored up to LSN {lsn} of {}: {beginning}, {}",
        Utc(wall_ms),
        Size(bytes)
    ));
    out.line(format_args!("start    busload serve --data {}", data.display()));
    out.finish();
    Ok(())
}

fn out_of_range(from: &Path, target: Target, manifest: &Manifest) -> Failure {
    let asked = match target {
        Target::Latest => "the newest state".to_owned(),
        Target::Record(lsn) => format!("LSN {lsn}"),
        Target::Time(ms) => Utc(ms).to_string(),
    };
    let ranges: Vec<String> =
        manifest.ranges().into_iter().map(|range| Shows(range).to_string()).collect();
    Failure::usage(format!(
        "{} does not hold {asked}; it holds LSN {}",
        from.display(),
        ranges.join("; LSN ")
    ))
}

/// Returns the directory of the data: that of the flag, or else of the configuration.
fn data_directory(config: Option<&Path>, data: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let options = Options { data, ..Options::default() };
    Ok(Config::load(config, options, TableChanges::default(), &Machine::this())?.data)
}

fn open_backup(from: &Path) -> Result<(RealDisk, Manifest), Failure> {
    if !from.is_dir() {
        return Err(Failure::usage(format!(
            "{} is no directory; expected the one that was given to busload backup",
            from.display()
        )));
    }
    let disk = RealDisk::open_for_reading(from).map_err(run)?;
    match read_manifest(&disk).map_err(failure)? {
        Some(manifest) => Ok((disk, manifest)),
        None => Err(failure(BackupError::NoManifest { path: from.to_owned() })),
    }
}

/// Refuses a directory with others in it, which is no backup's.
fn check_has_no_folders(to: &Path) -> Result<(), Failure> {
    let folder = fs::read_dir(to).into_iter().flatten().flatten().find(|entry| {
        entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.file_name() != LOST_AND_FOUND
    });
    match folder {
        Some(folder) => Err(failure(BackupError::Foreign { path: folder.path() })),
        None => Ok(()),
    }
}

/// Directory that file systems make in theirs.
const LOST_AND_FOUND: &str = "lost+found";

/// Refuses a data directory that holds more than what a restore leaves that was interrupted.
fn check_is_empty(data: &Path) -> Result<(), Failure> {
    let log = log_directory(Some(data));
    for entry in fs::read_dir(data).into_iter().flatten().flatten() {
        let is_log = entry.path() == log && entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_log && entry.file_name() != LOST_AND_FOUND {
            return Err(failure(BackupError::NotEmpty { path: data.to_owned() }));
        }
    }
    Ok(())
}

fn run(error: busload_io::DiskError) -> Failure {
    Failure::run(error.to_string())
}

fn failure(error: BackupError) -> Failure {
    match error {
        BackupError::Foreign { .. }
        | BackupError::OtherLog { .. }
        | BackupError::Diverged { .. }
        | BackupError::NoManifest { .. }
        | BackupError::NotEmpty { .. } => Failure::usage(error.to_string()),
        error => Failure::run(error.to_string()),
    }
}

/// Shows events on stderr.
struct Shown {
    meter: Meter,
    progress: Progress,
}

impl Shown {
    fn new(what: &str) -> Self {
        Self { meter: Meter::new(what), progress: Progress::default() }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Total(total) => self.progress = Progress { total, ..Progress::default() },
            Event::Done(bytes) => {
                self.progress.done = self.progress.total.min(self.progress.done + bytes);
                self.meter.show(self.progress);
            }
            Event::Warning(warning) => logger::say(&format!("warning: {warning}")),
        }
    }

    fn end(self) {
        self.meter.clear();
    }
}
