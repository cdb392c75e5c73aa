//! Takes a backup.

use std::thread;

use busload_io::{Disk, DiskErrorKind};
use busload_log::{
    CopyLock, Lsn, OpenError,
    copy::{self, ChainPoint, CopyId, SegmentFile, Until, Written, file_checksum},
    copy_lock,
    format::{LOCK_NAME, LogId, segment_name},
};
use busload_snapshot::{Snapshot, SnapshotError, format::snapshot_name};

use crate::{
    BackupError, Event, MANIFEST_NAME, Manifest, SegmentEntry, SnapshotEntry,
    event::Say,
    limits::LOCK_ATTEMPTS_MAX,
    manifest::{is_ours, is_part, is_unfinished, read_manifest, remove_if_there, write_manifest},
    source::Source,
};

/// Settings of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Time, in milliseconds, to which a restore can go back at least; older files are removed.
    /// `None` keeps everything.
    pub keep_ms: Option<i64>,
}

/// Summary of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Manifest of the backup as it is now.
    pub manifest: Manifest,
    /// Number of files that were copied.
    pub copied_files: u64,
    /// Length of these files.
    pub copied_bytes: u64,
    /// Number of files that were removed because they are older than what is kept.
    pub removed_files: u64,
}

/// Takes a backup of the log in the directory of `source` into that of `to`, also while a server
/// writes it. Goes on with an earlier backup of the same log. `clock` returns the time of day in
/// milliseconds since 1970.
///
/// # Errors
/// If a disk fails, the log is corrupt, or the directory does not hold backups of this log. What an
/// earlier backup holds is as it was.
pub fn take<S: Disk, D: Disk>(
    source: &S,
    to: &D,
    settings: Settings,
    clock: &dyn Fn() -> i64,
    say: &mut Say<'_>,
) -> Result<Taken, BackupError> {
    check_directory(to)?;
    let _lock = to.lock(LOCK_NAME).map_err(|error| match error.kind {
        DiskErrorKind::Exists => BackupError::Busy { path: error.path },
        _ => error.into(),
    })?;
    let old = read_manifest(to)?;
    let _copy_lock = hold_segments(source)?;
    let mut files = Source::open(source, say)?;
    if let Some(old) = &old {
        check_log_id(to.path(MANIFEST_NAME), files.log_id, old.log_id)?;
        check_end(&files, old)?;
    }
    let bytes = files.snapshots.iter().map(Snapshot::file_bytes).sum::<u64>()
        + files.segments.iter().map(SegmentFile::bytes).sum::<u64>();
    say(Event::Total(bytes));
    let log_id = files.log_id;
    let mut work = Work { source, to, log_id, old, say, copied_files: 0, copied_bytes: 0 };
    let snapshots = work.snapshots(&mut files)?;
    // What is logged from now on need not be in the backup.
    let taken_ms = clock();
    let segments = work.segments(&mut files)?;
    let lsn = check_reached(source, &files, &snapshots, &segments)?;
    let Work { old, copied_files, copied_bytes, .. } = work;
    let mut manifest = Manifest { log_id, taken_ms, lsn, snapshots, segments };
    if let Some(old) = old {
        manifest.keep_old(old)?;
    }
    let file_count = manifest.files().count();
    if let Some(keep_ms) = settings.keep_ms {
        manifest.prune(taken_ms.saturating_sub(keep_ms));
    }
    let removed_files = (file_count - manifest.files().count()) as u64;
    write_manifest(to, &manifest)?;
    remove_others(to, &manifest)?;
    Ok(Taken { manifest, copied_files, copied_bytes, removed_files })
}

/// Keeps the server from using segments again that are open here.
fn hold_segments<S: Disk>(source: &S) -> Result<Option<CopyLock<S::File>>, BackupError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match copy_lock(source) {
            Ok(lock) => return Ok(Some(lock)),
            // No server that uses segments again has started here.
            Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
            // The server looks for a moment whether anybody holds the lock.
            Err(error) if error.kind == DiskErrorKind::Exists && attempts < LOCK_ATTEMPTS_MAX => {
                thread::yield_now();
            }
            Err(error) if error.kind == DiskErrorKind::Exists => {
                return Err(BackupError::Busy { path: error.path });
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Refuses a directory without a backup that has files which are not a backup's.
fn check_directory<D: Disk>(to: &D) -> Result<(), BackupError> {
    let names = to.list()?;
    if names.iter().any(|name| name == MANIFEST_NAME) {
        return Ok(());
    }
    match names.iter().filter(|name| !is_ours(name)).min() {
        Some(name) => Err(BackupError::Foreign { path: to.path(name) }),
        None => Ok(()),
    }
}

fn check_log_id(
    path: std::path::PathBuf,
    expected: LogId,
    found: LogId,
) -> Result<(), BackupError> {
    if found == expected { Ok(()) } else { Err(BackupError::OtherLog { path, expected, found }) }
}

/// Refuses a log that has fewer segments than were backed up.
fn check_end<F>(files: &Source<F>, old: &Manifest) -> Result<(), BackupError> {
    // Where no segment is in both, what is behind the backup must go on where it ends, or later.
    if let (Some(first), Some(last)) = (files.segments.first(), old.segments.last())
        && last.number < first.number()
    {
        let (begin, end) = (first.begin(), last.end);
        if begin.next_lsn < end.next_lsn || (begin.next_lsn == end.next_lsn && begin != end) {
            let (number, begin, end) = (first.number(), begin.next_lsn, end.next_lsn.0 - 1);
            return Err(BackupError::Diverged {
                what: format!(
                    "segment {number} begins with LSN {begin}, the backup ends before it in \
                     segment {} with LSN {end} of another history",
                    last.number
                ),
            });
        }
    }
    let number = files.segments.last().map_or(0, SegmentFile::number);
    match old.segments.last().filter(|last| number < last.number && 0 < number) {
        Some(last) => Err(BackupError::Diverged {
            what: format!("its last segment is {number}, the backup holds {}", last.number),
        }),
        None => Ok(()),
    }
}

/// Returns the last record of the backup, and checks that everything is there of which the log said
/// that it was durable.
fn check_reached<S: Disk>(
    source: &S,
    files: &Source<S::File>,
    snapshots: &[SnapshotEntry],
    segments: &[SegmentEntry],
) -> Result<Lsn, BackupError> {
    let in_segments = segments.last().map(|last| Lsn(last.end.next_lsn.0 - 1));
    let reached = in_segments.max(snapshots.last().map(|snapshot| snapshot.lsn));
    let reached = reached.filter(|lsn| Lsn(0) < *lsn).ok_or(BackupError::Nothing)?;
    let durable = files.last.map(|last| last.durable).filter(|durable| reached < *durable);
    let beyond = snapshots.last().map(|snapshot| snapshot.lsn).filter(|_| in_segments.is_some());
    match durable.or(beyond.filter(|lsn| in_segments < Some(*lsn))) {
        None => Ok(reached),
        Some(durable) => {
            let name = files.segments.last().map_or(LOCK_NAME, SegmentFile::name);
            Err(BackupError::Log(OpenError::Corrupt {
                path: source.path(name),
                offset: segments.last().map_or(0, |last| last.written.bytes),
                lsn: Lsn(reached.0 + 1),
                what: format!("the records end here, and yet LSN {durable} was durable"),
            }))
        }
    }
}

/// State of a backup that is being taken.
struct Work<'a, S: Disk, D: Disk> {
    source: &'a S,
    to: &'a D,
    log_id: LogId,
    old: Option<Manifest>,
    say: &'a mut Say<'a>,
    copied_files: u64,
    copied_bytes: u64,
}

impl<S: Disk, D: Disk> Work<'_, S, D> {
    /// Copies the snapshots that the backup does not have. One that does not verify is left out.
    fn snapshots(
        &mut self,
        files: &mut Source<S::File>,
    ) -> Result<Vec<SnapshotEntry>, BackupError> {
        let mut entries = Vec::new();
        let mut kept = Vec::new();
        for snapshot in std::mem::take(&mut files.snapshots) {
            match self.snapshot(&snapshot) {
                Ok(entry) => {
                    entries.push(entry);
                    kept.push(snapshot);
                }
                Err(BackupError::Snapshot(SnapshotError::Invalid(error))) => {
                    (self.say)(Event::Warning(format!("{error}; it is left out")));
                }
                Err(error) => return Err(error),
            }
        }
        files.snapshots = kept;
        entries.reverse();
        match files.segments.first() {
            Some(first) if entries.is_empty() && first.number() != 1 => {
                Err(BackupError::NoSnapshot { first: first.begin().next_lsn })
            }
            _ => Ok(entries),
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot<S::File>) -> Result<SnapshotEntry, BackupError> {
        let header = snapshot.header();
        let entry = |written| SnapshotEntry { lsn: header.lsn, written, wall_ms: header.wall_ms };
        let there = match self.known_snapshot(snapshot)? {
            Some(known) if self.is_there(&known.name(), known.written) => Some(known.written),
            Some(_) => None,
            None => self.adopt_snapshot(snapshot)?,
        };
        if let Some(written) = there {
            (self.say)(Event::Done(snapshot.file_bytes()));
            return Ok(entry(written));
        }
        let mut progress = |bytes| (self.say)(Event::Done(bytes));
        let written =
            busload_snapshot::copy(self.source, snapshot, self.to, self.log_id, &mut progress)?;
        self.note_copied(written);
        Ok(entry(written))
    }

    fn known_snapshot(
        &self,
        snapshot: &Snapshot<S::File>,
    ) -> Result<Option<SnapshotEntry>, BackupError> {
        let header = snapshot.header();
        let mut known = self.old.iter().flat_map(|old| &old.snapshots);
        let Some(known) = known.find(|known| known.lsn == header.lsn) else { return Ok(None) };
        if (known.wall_ms, known.written.bytes) != (header.wall_ms, snapshot.file_bytes()) {
            return Err(BackupError::Diverged {
                what: format!(
                    "{} differs from the snapshot of this LSN there",
                    snapshot.path().display()
                ),
            });
        }
        Ok(Some(*known))
    }

    /// Takes over a snapshot that an interrupted backup has copied.
    fn adopt_snapshot(&self, snapshot: &Snapshot<S::File>) -> Result<Option<Written>, BackupError> {
        let (lsn, bytes) = (snapshot.header().lsn, snapshot.file_bytes());
        let Ok(copy) = Snapshot::open(self.to, lsn) else { return Ok(None) };
        check_log_id(copy.path().to_owned(), self.log_id, copy.header().log_id)?;
        if copy.header() != snapshot.header() || copy.verify(self.to).is_err() {
            return Ok(None);
        }
        self.measured(&snapshot_name(lsn), bytes)
    }

    /// Returns length and checksum of the first bytes of a file; `None` if it is shorter.
    fn measured(&self, name: &str, bytes: u64) -> Result<Option<Written>, BackupError> {
        let checksum = file_checksum(self.to, &self.to.open(name)?, bytes)?;
        Ok(checksum.map(|checksum| Written { bytes, checksum }))
    }

    /// Returns whether a file of the backup before is still there.
    fn is_there(&self, name: &str, written: Written) -> bool {
        let length = self.to.open(name).and_then(|file| self.to.length(&file));
        length.is_ok_and(|length| written.bytes <= length)
    }

    /// Copies the segments that the backup does not have, and the last one anew.
    fn segments(&mut self, files: &mut Source<S::File>) -> Result<Vec<SegmentEntry>, BackupError> {
        let (mut entries, mut index) = (Vec::new(), 0);
        while let Some(segment) = files.segments.get(index) {
            let next = files.segments.get(index + 1).map(SegmentFile::begin);
            match self.segment(segment, next) {
                Ok(entry) => entries.extend(entry),
                Err(BackupError::Log(error @ OpenError::Corrupt { .. })) => {
                    let number = segment.number() + 1;
                    if !files.leave_out_before(number) {
                        return Err(error.into());
                    }
                    let warning = format!("{error}; a snapshot covers it, so it is left out");
                    (self.say)(Event::Warning(warning));
                    entries.clear();
                    index = 0;
                    continue;
                }
                Err(error) => return Err(error),
            }
            index += 1;
        }
        Ok(entries)
    }

    /// Copies a segment that ends where the `next` one begins, or is the last one. Returns `None`
    /// for a last one without records.
    fn segment(
        &mut self,
        segment: &SegmentFile<S::File>,
        next: Option<ChainPoint>,
    ) -> Result<Option<SegmentEntry>, BackupError> {
        let mut known = self.old.iter().flat_map(|old| &old.segments);
        let known = known.find(|known| known.number == segment.number()).copied();
        if known.is_some_and(|known| known.begin != segment.begin()) {
            return Err(diverged(segment));
        }
        let there = match (next, known) {
            (None, _) => None,
            (Some(next), Some(known)) => Some(known)
                .filter(|known| known.end == next && self.is_there(&known.name(), known.written)),
            (Some(next), None) => self.adopt_segment(segment, next)?,
        };
        if there.is_some() {
            (self.say)(Event::Done(segment.bytes()));
            return Ok(there);
        }
        self.copy_segment(segment, next, known)
    }

    fn copy_segment(
        &mut self,
        segment: &SegmentFile<S::File>,
        next: Option<ChainPoint>,
        known: Option<SegmentEntry>,
    ) -> Result<Option<SegmentEntry>, BackupError> {
        let until = next.map_or(Until::End, Until::Point);
        let id = CopyId { log_id: self.log_id, previous: segment.begin().checksum };
        let mut progress = |bytes| (self.say)(Event::Done(bytes));
        let copied = copy::copy(self.source, segment, until, self.to, id, &mut progress)?;
        // What is in a backup must not be lost in the original.
        segment.sync(self.source)?;
        let written = copied.file.written();
        (self.say)(Event::Done(segment.bytes().saturating_sub(written.bytes)));
        if let Some(known) = known {
            let beginning = copied.file.checksum_of(known.written.bytes)?;
            if beginning != Some(known.written.checksum) {
                return Err(diverged(segment));
            }
        }
        // A start makes a last segment without records anew.
        if next.is_none() && copied.scanned.records == 0 {
            return Ok(None);
        }
        let entry = entry(segment, &copied.scanned, written);
        copied.file.finish(&copied.name)?;
        self.note_copied(written);
        Ok(Some(entry))
    }

    /// Takes over a segment that an interrupted backup has copied.
    fn adopt_segment(
        &self,
        segment: &SegmentFile<S::File>,
        next: ChainPoint,
    ) -> Result<Option<SegmentEntry>, BackupError> {
        let Ok(Some(copy)) = SegmentFile::open(self.to, segment.number()) else { return Ok(None) };
        check_log_id(self.to.path(copy.name()), self.log_id, copy.log_id())?;
        if copy.begin() != segment.begin() {
            return Ok(None);
        }
        // The chain of checksums from one point to the other proves that the contents are the same.
        let Ok(scanned) = copy::scan(self.to, &copy, Until::Point(next)) else { return Ok(None) };
        let measured = self.measured(&segment_name(copy.number()), scanned.bytes)?;
        Ok(measured.map(|written| entry(segment, &scanned, written)))
    }

    fn note_copied(&mut self, written: Written) {
        self.copied_files += 1;
        self.copied_bytes += written.bytes;
    }
}

fn entry<F>(segment: &SegmentFile<F>, scanned: &copy::Scanned, written: Written) -> SegmentEntry {
    SegmentEntry {
        number: segment.number(),
        written,
        begin: segment.begin(),
        end: scanned.end,
        first_ms: scanned.first_ms,
        last_ms: scanned.last_ms,
    }
}

fn diverged<F>(segment: &SegmentFile<F>) -> BackupError {
    BackupError::Diverged {
        what: format!("segment {} differs from the one there", segment.number()),
    }
}

impl Manifest {
    /// Adds the files of the backup before that are not in this one.
    fn keep_old(&mut self, old: Manifest) -> Result<(), BackupError> {
        if self.lsn < old.lsn {
            let what = format!("it ends with LSN {}, the backup with LSN {}", self.lsn, old.lsn);
            return Err(BackupError::Diverged { what });
        }
        for snapshot in old.snapshots {
            if self.snapshots.iter().all(|newer| newer.lsn != snapshot.lsn) {
                self.snapshots.push(snapshot);
            }
        }
        for segment in old.segments {
            if self.segments.iter().all(|newer| newer.number != segment.number) {
                self.segments.push(segment);
            }
        }
        self.snapshots.sort_unstable_by_key(|snapshot| snapshot.lsn);
        self.segments.sort_unstable_by_key(|segment| segment.number);
        Ok(())
    }

    /// Leaves out what is not needed to restore any state at or behind this time. Two snapshots
    /// stay at least.
    fn prune(&mut self, cutoff_ms: i64) {
        let old = self.snapshots.partition_point(|snapshot| snapshot.wall_ms <= cutoff_ms);
        let removable = old.saturating_sub(1).min(self.snapshots.len().saturating_sub(2));
        self.snapshots.drain(..removable);
        let Some(oldest) = self.snapshots.first().filter(|_| 0 < old) else { return };
        let covered = Lsn(oldest.lsn.0 + 1);
        let last = self.segments.last().map(|last| last.number);
        self.segments
            .retain(|segment| covered < segment.end.next_lsn || Some(segment.number) == last);
    }
}

/// Removes what an interrupted backup left, and what the manifest does not name any more.
fn remove_others<D: Disk>(to: &D, manifest: &Manifest) -> Result<(), BackupError> {
    let named: std::collections::HashSet<String> = manifest.files().map(|(name, _)| name).collect();
    for name in to.list()? {
        if is_unfinished(&name) || (is_part(&name) && !named.contains(&name)) {
            remove_if_there(to, &name)?;
        }
    }
    Ok(to.sync_directory()?)
}
