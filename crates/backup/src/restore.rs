//! Restores a state of a backup as a log of its own.

use busload_io::{Disk, DiskErrorKind};
use busload_log::{
    Lsn,
    copy::{self, CopyId, Until, Written, file_checksum},
    format::{INCOMPLETE_NAME, LOCK_NAME, LogId},
};
use busload_snapshot::Snapshot;

use crate::{
    BackupError, Event, Manifest, SegmentEntry, SnapshotEntry,
    event::Say,
    manifest::remove_if_there,
    ranges::{Run, open_segment},
};

/// Summary of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Last record of the restored log.
    pub lsn: Lsn,
    /// Time of day of the last records that were restored, in milliseconds since 1970.
    pub wall_ms: i64,
    /// Last record that the restored snapshot covers; `None` if there is no snapshot.
    pub snapshot: Option<Lsn>,
    /// Number of segments behind it.
    pub segments: u64,
    /// Length of the files that were written.
    pub bytes: u64,
}

/// Restores everything up to this record, which [`Manifest::resolve`] has returned, into an empty
/// directory. The log there has the given id. What an interrupted restore left is removed first.
///
/// # Errors
/// If a disk fails, the directory is not empty, or a file of the backup is corrupt and no older
/// snapshot can take its place.
pub fn restore<S: Disk, D: Disk>(
    backup: &S,
    manifest: &Manifest,
    lsn: Lsn,
    to: &D,
    log_id: LogId,
    say: &mut Say<'_>,
) -> Result<Restored, BackupError> {
    let _lock = to.lock(LOCK_NAME).map_err(|error| match error.kind {
        DiskErrorKind::Exists => BackupError::Busy { path: error.path },
        _ => error.into(),
    })?;
    mark_incomplete(to)?;
    let mut work = Work { backup, to, log_id, lsn, say, bytes: 0 };
    let restored = work.restore(manifest)?;
    to.sync_directory()?;
    to.remove(INCOMPLETE_NAME)?;
    to.sync_directory()?;
    Ok(restored)
}

/// Puts the mark into an empty directory that keeps every start away; empties one that has it.
fn mark_incomplete<D: Disk>(to: &D) -> Result<(), BackupError> {
    let mut names = to.list()?;
    names.retain(|name| name != LOCK_NAME);
    if names.iter().any(|name| name == INCOMPLETE_NAME) {
        for name in names.iter().filter(|name| *name != INCOMPLETE_NAME) {
            to.remove(name)?;
        }
    } else if let Some(name) = names.first() {
        return Err(BackupError::NotEmpty { path: to.path(name) });
    } else {
        to.sync(&to.create(INCOMPLETE_NAME)?)?;
    }
    Ok(to.sync_directory()?)
}

struct Work<'a, S: Disk, D: Disk> {
    backup: &'a S,
    to: &'a D,
    log_id: LogId,
    /// Last record to restore.
    lsn: Lsn,
    say: &'a mut Say<'a>,
    bytes: u64,
}

/// Files from which a state can be restored.
struct Plan<'a> {
    snapshot: Option<&'a SnapshotEntry>,
    segments: &'a [SegmentEntry],
}

impl<S: Disk, D: Disk> Work<'_, S, D> {
    fn restore(&mut self, manifest: &Manifest) -> Result<Restored, BackupError> {
        let (runs, lsn) = (manifest.runs(), self.lsn);
        let mut first_error = None;
        for plan in runs.iter().rev().flat_map(|run| plans(run, lsn)) {
            match self.attempt(&plan) {
                Err(error) if plan.snapshot.is_some() && is_corrupt(&error) => {
                    let warning = format!("{error}; the snapshot before it is tried");
                    (self.say)(Event::Warning(warning));
                    first_error.get_or_insert(error);
                    self.remove_all()?;
                }
                ended => return ended,
            }
        }
        Err(first_error.unwrap_or(BackupError::NothingLeft))
    }

    fn attempt(&mut self, plan: &Plan<'_>) -> Result<Restored, BackupError> {
        let of_segments: u64 = plan.segments.iter().map(|segment| segment.written.bytes).sum();
        let of_snapshot = plan.snapshot.map_or(0, |snapshot| snapshot.written.bytes);
        // Each file is read twice: to compare it with the manifest, and to copy it.
        (self.say)(Event::Total(2 * (of_segments + of_snapshot)));
        self.bytes = 0;
        let mut wall_ms = i64::MIN;
        if let Some(entry) = plan.snapshot {
            self.snapshot(entry)?;
            wall_ms = entry.wall_ms;
        }
        // The first segment of a whole log names no predecessor. Any other one may name anything.
        let mut previous = 0;
        for entry in plan.segments {
            let copied = self.segment(entry, previous)?;
            previous = copied.end.checksum;
            wall_ms = wall_ms.max(copied.scanned.last_ms);
        }
        let (snapshot, segments) = (plan.snapshot.map(|entry| entry.lsn), plan.segments.len());
        let number = plan.segments.last().map_or(0, |last| last.number);
        copy::name_last_segment(self.to, self.log_id, number, self.lsn)?;
        Ok(Restored {
            lsn: self.lsn,
            wall_ms,
            snapshot,
            segments: segments as u64,
            bytes: self.bytes,
        })
    }

    fn snapshot(&mut self, entry: &SnapshotEntry) -> Result<(), BackupError> {
        self.check(&entry.name(), entry.written)?;
        let snapshot = Snapshot::open(self.backup, entry.lsn)?;
        let mut progress = |bytes| (self.say)(Event::Done(bytes));
        let written =
            busload_snapshot::copy(self.backup, &snapshot, self.to, self.log_id, &mut progress)?;
        self.bytes += written.bytes;
        Ok(())
    }

    fn segment(&mut self, entry: &SegmentEntry, previous: u32) -> Result<CopiedPart, BackupError> {
        self.check(&entry.name(), entry.written)?;
        let segment = open_segment(self.backup, entry)?;
        let is_last = self.lsn.0 + 1 < entry.end.next_lsn.0;
        let until = if is_last { Until::Record(self.lsn) } else { Until::Point(entry.end) };
        let id = CopyId { log_id: self.log_id, previous };
        let mut progress = |bytes| (self.say)(Event::Done(bytes));
        let copied = copy::copy(self.backup, &segment, until, self.to, id, &mut progress)?;
        let part = CopiedPart { scanned: copied.scanned, end: copied.end };
        self.bytes += copied.file.finish(&copied.name)?.bytes;
        Ok(part)
    }

    /// Compares a file with the manifest.
    fn check(&mut self, name: &str, written: Written) -> Result<(), BackupError> {
        check_file(self.backup, name, written)?;
        (self.say)(Event::Done(written.bytes));
        Ok(())
    }

    fn remove_all(&self) -> Result<(), BackupError> {
        let keeps = |name: &str| [INCOMPLETE_NAME, LOCK_NAME].contains(&name);
        for name in self.to.list()?.iter().filter(|name| !keeps(name)) {
            remove_if_there(self.to, name)?;
        }
        Ok(())
    }
}

/// Part of a segment that was restored.
struct CopiedPart {
    scanned: copy::Scanned,
    end: copy::ChainPoint,
}

/// Returns the ways to restore this state from a run, that with the newest snapshot first.
fn plans<'a>(run: &Run<'a>, lsn: Lsn) -> Vec<Plan<'a>> {
    let reaches =
        |segments: &[SegmentEntry]| segments.last().is_some_and(|last| lsn < last.end.next_lsn);
    let needed = |from: Lsn| {
        let begin = run.segments.partition_point(|segment| segment.end.next_lsn <= from);
        let end = run.segments.partition_point(|segment| segment.begin.next_lsn <= lsn);
        &run.segments[begin.min(end)..end]
    };
    let snapshots = run.snapshots.iter().rev().filter(|snapshot| snapshot.lsn <= lsn);
    let mut plans: Vec<Plan<'a>> = snapshots
        .map(|snapshot| Plan {
            snapshot: Some(snapshot),
            segments: needed(Lsn(snapshot.lsn.0 + 1)),
        })
        .filter(|plan| {
            plan.snapshot.is_some_and(|snapshot| snapshot.lsn == lsn) || reaches(plan.segments)
        })
        .collect();
    if run.has_beginning() && reaches(run.segments) {
        plans.push(Plan { snapshot: None, segments: needed(Lsn(1)) });
    }
    plans
}

/// Returns whether contents are to blame, not a disk that fails or is full.
fn is_corrupt(error: &BackupError) -> bool {
    use busload_log::OpenError;
    use busload_snapshot::SnapshotError;
    !matches!(
        error,
        BackupError::Disk(_)
            | BackupError::Log(OpenError::Disk(_))
            | BackupError::Snapshot(SnapshotError::Disk(_))
    )
}

/// Compares the length and the checksum of a file with the manifest.
pub(crate) fn check_file<D: Disk>(
    disk: &D,
    name: &str,
    written: Written,
) -> Result<(), BackupError> {
    let path = disk.path(name);
    let corrupt = |what: String| BackupError::Corrupt { path, what };
    let file = match disk.open(name) {
        Err(error) if error.kind == DiskErrorKind::NotFound => {
            return Err(corrupt("it is missing, and yet the manifest names it".to_owned()));
        }
        opened => opened?,
    };
    match file_checksum(disk, &file, written.bytes)? {
        Some(checksum) if checksum == written.checksum => Ok(()),
        Some(_) => Err(corrupt("its checksum is not that of the manifest".to_owned())),
        None => Err(corrupt(format!(
            "it has {} bytes, the manifest says {}",
            disk.length(&file)?,
            written.bytes
        ))),
    }
}
