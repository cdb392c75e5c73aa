//! Opens the files of a data directory that a backup needs, while a server adds and removes some.

use busload_io::Disk;
use busload_log::{
    Lsn, OpenError,
    copy::{SegmentFile, last_segment, segment_numbers},
    format::{LastSegment, LogId},
};
use busload_snapshot::{Snapshot, SnapshotError, newest_first};

use crate::{
    BackupError, Event,
    event::Say,
    limits::{LIST_ATTEMPTS_MAX, SNAPSHOT_COUNT},
};

/// Open files: they stay readable when the server removes them.
pub(crate) struct Source<F> {
    pub log_id: LogId,
    /// Snapshots in order, the newest first.
    pub snapshots: Vec<Snapshot<F>>,
    /// Segments without a gap, in order of their numbers. The last one may grow.
    pub segments: Vec<SegmentFile<F>>,
    pub last: Option<LastSegment>,
}

impl<F> Source<F> {
    /// Opens the newest snapshots and the log behind the older one, or, with fewer snapshots, the
    /// whole log that is there.
    pub fn open<D: Disk<File = F>>(disk: &D, say: &mut Say<'_>) -> Result<Self, BackupError> {
        for _ in 0..LIST_ATTEMPTS_MAX {
            // Warnings are said once, of the attempt that succeeds.
            let mut warnings = Vec::new();
            match Self::try_open(disk, &mut warnings) {
                Ok(Some(source)) => {
                    warnings.into_iter().for_each(|warning| say(Event::Warning(warning)));
                    return Ok(source);
                }
                Ok(None) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Err(BackupError::Unsettled)
    }

    /// Does the same as [`Source::open`]; `None` or an error of kind `NotFound` if the server
    /// changed the files meanwhile.
    fn try_open<D: Disk<File = F>>(
        disk: &D,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Self>, BackupError> {
        // Read before the directory is listed: it names no segment whose name is not durable.
        let last = last_segment(disk)?;
        let snapshots = open_snapshots(disk, warnings)?;
        let oldest = snapshots.get(SNAPSHOT_COUNT - 1).map(|snapshot| snapshot.header().lsn);
        let numbers = segment_numbers(disk)?;
        let newest = numbers.last().copied().unwrap_or_default();
        if let Some(last) = last.filter(|last| newest < last.number) {
            return Err(missing_end(disk, &last, newest));
        }
        let Some(segments) = open_segments(disk, &numbers, oldest)? else { return Ok(None) };
        let of_snapshot = snapshots.first().map(|snapshot| snapshot.header().log_id);
        let of_segment = segments.first().map(SegmentFile::log_id);
        let Some(log_id) = of_segment.or(of_snapshot) else { return Err(BackupError::Nothing) };
        check_ids(disk, log_id, &snapshots, &segments)?;
        let mut source = Self { log_id, snapshots, segments, last };
        source.leave_out_unreachable(warnings)?;
        Ok(Some(source))
    }

    /// Leaves out snapshots between which and the log there is a gap.
    fn leave_out_unreachable(&mut self, warnings: &mut Vec<String>) -> Result<(), BackupError> {
        let Some(first) = self.segments.first() else { return Ok(()) };
        let (number, first) = (first.number(), first.begin().next_lsn);
        self.snapshots.retain(|snapshot| {
            let reaches = first.0 <= snapshot.header().lsn.0 + 1;
            if !reaches {
                let path = snapshot.path().display();
                warnings.push(format!("{path} is left out: the log behind it begins with {first}"));
            }
            reaches
        });
        if self.snapshots.is_empty() && number != 1 {
            return Err(BackupError::NoSnapshot { first });
        }
        Ok(())
    }

    /// Leaves out the segments before this one, and the snapshots that need them. Returns whether
    /// what is left can be restored.
    pub fn leave_out_before(&mut self, number: u64) -> bool {
        let Some(first) = self.segments.iter().find(|segment| number <= segment.number()) else {
            return false;
        };
        let first = first.begin().next_lsn;
        let reaches = |snapshot: &Snapshot<F>| first.0 <= snapshot.header().lsn.0 + 1;
        if !self.snapshots.iter().any(reaches) {
            return false;
        }
        self.snapshots.retain(reaches);
        self.segments.retain(|segment| number <= segment.number());
        true
    }
}

fn missing_end<D: Disk>(disk: &D, last: &LastSegment, newest: u64) -> BackupError {
    let path = disk.path(busload_log::format::LAST_SEGMENT_NAME);
    let (number, durable, last) = (newest + 1, last.durable, last.number);
    OpenError::MissingEnd { number, path, last, durable }.into()
}

fn open_snapshots<D: Disk>(
    disk: &D,
    warnings: &mut Vec<String>,
) -> Result<Vec<Snapshot<D::File>>, BackupError> {
    let mut snapshots = Vec::new();
    for lsn in newest_first(disk)? {
        if snapshots.len() < SNAPSHOT_COUNT {
            match Snapshot::open(disk, lsn) {
                Ok(snapshot) => snapshots.push(snapshot),
                Err(SnapshotError::Invalid(error)) => {
                    warnings.push(format!("{error}; it is left out"));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(snapshots)
}

/// Opens the segments in use from the last one back to that which holds the record behind `oldest`,
/// or to the first one. `None` if the last one cannot be opened at the moment.
fn open_segments<D: Disk>(
    disk: &D,
    numbers: &[u64],
    oldest: Option<Lsn>,
) -> Result<Option<Vec<SegmentFile<D::File>>>, BackupError> {
    let mut segments: Vec<SegmentFile<D::File>> = Vec::new();
    for &number in numbers.iter().rev() {
        // A crash while segments were removed leaves gaps before those that are needed.
        if segments.last().is_some_and(|behind| behind.number() != number + 1) {
            break;
        }
        match SegmentFile::open(disk, number) {
            Ok(Some(segment)) => {
                let first = segment.begin().next_lsn;
                segments.push(segment);
                if oldest.is_some_and(|oldest| first.0 <= oldest.0 + 1) {
                    break;
                }
            }
            // It was prepared and not begun yet.
            Ok(None) if segments.is_empty() => {}
            // The log's thread may be writing its header at the moment.
            Err(OpenError::Corrupt { .. }) | Ok(None) if segments.is_empty() => return Ok(None),
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    segments.reverse();
    Ok(Some(segments))
}

fn check_ids<D: Disk>(
    disk: &D,
    expected: LogId,
    snapshots: &[Snapshot<D::File>],
    segments: &[SegmentFile<D::File>],
) -> Result<(), BackupError> {
    let of_snapshots =
        snapshots.iter().map(|snapshot| (snapshot.path().to_owned(), snapshot.header().log_id));
    let of_segments = segments.iter().map(|segment| (disk.path(segment.name()), segment.log_id()));
    for (path, found) in of_snapshots.chain(of_segments) {
        if found != expected {
            return Err(OpenError::Foreign { path, expected, found }.into());
        }
    }
    Ok(())
}
