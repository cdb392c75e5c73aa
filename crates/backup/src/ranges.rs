//! Ranges of states that a backup can be restored to: those that a snapshot, or the log's
//! beginning, makes complete.

use std::fmt;

use busload_io::Disk;
use busload_log::{
    Lsn,
    copy::{SegmentFile, Until, scan},
};

use crate::{BackupError, Manifest, SegmentEntry, SnapshotEntry};

/// State that a restore is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything that the backup holds.
    Latest,
    /// Everything up to this record.
    Record(Lsn),
    /// Everything that was logged up to this time of day, in milliseconds since 1970.
    Time(i64),
}

/// Range of states that a backup can be restored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Last record of the oldest state.
    pub first: Lsn,
    /// Time of day from which on states are known, in milliseconds since 1970.
    pub first_ms: i64,
    /// Last record of the newest state.
    pub last: Lsn,
    /// Time of day up to which states are known, in milliseconds since 1970.
    pub last_ms: i64,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LSN {} to {}", self.first, self.last)
    }
}

/// Segments without a gap, and the snapshots from which a restore can read them.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub segments: &'a [SegmentEntry],
    /// Snapshots in order, the oldest first.
    pub snapshots: Vec<&'a SnapshotEntry>,
}

impl Run<'_> {
    /// Returns whether the log begins here.
    pub fn has_beginning(&self) -> bool {
        self.segments.first().is_some_and(|first| first.number == 1)
    }

    fn range(&self) -> Option<Range> {
        let (first, first_ms) = match (self.segments.first(), self.snapshots.first()) {
            (Some(segment), _) if self.has_beginning() => (Lsn(1), segment.first_ms),
            (_, Some(snapshot)) => (snapshot.lsn, snapshot.wall_ms),
            _ => return None,
        };
        let (last, last_ms) = match (self.segments.last(), self.snapshots.last()) {
            (Some(segment), _) => (Lsn(segment.end.next_lsn.0 - 1), segment.last_ms),
            (None, Some(snapshot)) => (snapshot.lsn, snapshot.wall_ms),
            (None, None) => return None,
        };
        (first <= last).then_some(Range { first, first_ms, last, last_ms: last_ms.max(first_ms) })
    }
}

impl Manifest {
    /// Returns the runs of segments, and snapshots that have none, in order.
    pub(crate) fn runs(&self) -> Vec<Run<'_>> {
        let goes_on = |before: &SegmentEntry, behind: &SegmentEntry| {
            before.number + 1 == behind.number && before.end == behind.begin
        };
        let mut runs: Vec<Run<'_>> = self
            .segments
            .chunk_by(goes_on)
            .map(|segments| Run { segments, snapshots: Vec::new() })
            .collect();
        let mut alone = Vec::new();
        for snapshot in &self.snapshots {
            let next_lsn = Lsn(snapshot.lsn.0 + 1);
            let holds = |run: &&mut Run<'_>| {
                let ends = run.segments.first().zip(run.segments.last());
                ends.is_some_and(|(first, last)| {
                    first.begin.next_lsn <= next_lsn && next_lsn <= last.end.next_lsn
                })
            };
            match runs.iter_mut().rev().find(holds) {
                Some(run) => run.snapshots.push(snapshot),
                None => alone.push(Run { segments: &[], snapshots: vec![snapshot] }),
            }
        }
        runs.extend(alone);
        runs.sort_by_key(|run| run.range().map(|range| range.last));
        runs
    }

    /// Returns the ranges of states to which a restore can go, in order.
    pub fn ranges(&self) -> Vec<Range> {
        let mut ranges: Vec<Range> = self.runs().iter().filter_map(Run::range).collect();
        if let Some(last) = ranges.last_mut().filter(|last| last.last == self.lsn) {
            // Nothing was logged between the last record and the backup.
            last.last_ms = last.last_ms.max(self.taken_ms);
        }
        ranges
    }

    /// Returns the last record of the state that is asked for; `None` if the backup does not hold
    /// it. Reads the segment in which a time lies.
    pub fn resolve<D: Disk>(&self, disk: &D, target: Target) -> Result<Option<Lsn>, BackupError> {
        let ranges = self.ranges();
        match target {
            Target::Latest => Ok(Some(self.lsn)),
            Target::Record(lsn) => {
                let holds = |range: &Range| range.first <= lsn && lsn <= range.last;
                Ok(ranges.iter().any(holds).then_some(lsn))
            }
            Target::Time(ms) => {
                let holds = |range: &&Range| range.first_ms <= ms && ms <= range.last_ms;
                match ranges.iter().rev().find(holds) {
                    Some(range) => Ok(Some(self.last_before(disk, range, ms)?)),
                    None => Ok(None),
                }
            }
        }
    }

    /// Returns the last record of this range that was logged up to this time.
    fn last_before<D: Disk>(&self, disk: &D, range: &Range, ms: i64) -> Result<Lsn, BackupError> {
        let is_in = |segment: &&SegmentEntry| {
            range.first < segment.end.next_lsn && segment.begin.next_lsn <= range.last
        };
        let began = |segment: &&SegmentEntry| segment.first_ms <= ms;
        let Some(entry) = self.segments.iter().filter(is_in).rfind(began) else {
            return Ok(range.first);
        };
        let end = if entry.last_ms <= ms {
            entry.end.next_lsn
        } else {
            scan(disk, &open_segment(disk, entry)?, Until::Time(ms))?.end.next_lsn
        };
        Ok(range.first.max(Lsn(end.0 - 1)))
    }
}

/// Opens the part of a segment that belongs to the backup.
pub(crate) fn open_segment<D: Disk>(
    disk: &D,
    entry: &SegmentEntry,
) -> Result<SegmentFile<D::File>, BackupError> {
    let path = disk.path(&entry.name());
    let corrupt = |what: &str| BackupError::Corrupt { path, what: what.to_owned() };
    match SegmentFile::open(disk, entry.number)? {
        Some(segment) if segment.begin() != entry.begin => {
            Err(corrupt("it does not begin where the manifest says"))
        }
        Some(mut segment) => {
            segment.limit(entry.written.bytes);
            Ok(segment)
        }
        None => Err(corrupt("its header is empty")),
    }
}
