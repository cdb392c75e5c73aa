//! Opening a log: finding out what survived, handing it to the caller, and sealing it.
//!
//! Every segment is synced before it is read, so nothing is acted upon that a power loss could
//! still take. Then the frames are followed from the first segment on, each checked against its
//! place and its predecessor, until one is missing. If anything behind that point names a durable
//! LSN at or above the missing one, the log is **corrupt** and the start is refused. Otherwise the
//! rest is a **torn tail**, which nobody was told is durable: it is cut.
//!
//! A file names the last segment ([`last_segment`]): the loss of the end is refused, too.
//!
//! Sealing removes what lies behind the cut and begins a new segment whose header names the last
//! frame kept. Every step may be interrupted: the next start finds the same records.

mod frames;
mod seal;
mod segments;
#[cfg(test)]
mod tests;
mod walk;

use std::{fmt, path::PathBuf, sync::Arc};

use busload_io::{Disk, DiskError, DiskErrorKind, Rng};

use crate::{
    LogStage, LogWriter, Lsn, Options, Progress, ZeroHelper,
    format::{LOCK_NAME, LastSegment, LogId},
    last_segment,
};

pub(crate) use frames::{Look, SegmentFrames};
pub(crate) use segments::{Segment, find_segments};
pub(crate) use walk::{Walked, walk};

/// A record as recovery hands it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Its position.
    pub lsn: Lsn,
    /// Time of day of its frame, milliseconds since 1970.
    pub wall_ms: i64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Why the caller of recovery does not want a record.
pub type ReplayError = Box<dyn std::error::Error + Send + Sync>;

/// The caller's side of recovery.
pub(crate) type Replay<'a> = dyn FnMut(RecordRef<'_>) -> Result<(), ReplayError> + 'a;

/// The parts of an open log.
pub struct Opened<D: Disk> {
    /// For the thread that executes transactions.
    pub writer: LogWriter,
    /// For everyone.
    pub progress: Progress,
    /// For a thread of its own.
    pub stage: LogStage<D>,
    /// For another one.
    pub helper: ZeroHelper<D>,
    /// What was found.
    pub report: RecoveryReport,
}

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Records given to the caller.
    pub records: u64,
    /// The last of them.
    pub last_lsn: Lsn,
    /// Frames they came in.
    pub frames: u64,
    /// Bytes in use of all segments.
    pub bytes: u64,
    /// Segments that were begun and are kept.
    pub segments: u64,
    /// The process before ended in order.
    pub clean_shutdown: bool,
    /// The latest time of day in the log; `None` when it is empty.
    pub wall_ms: Option<i64>,
    /// What was cut off, if something was.
    pub torn_tail: Option<TornTail>,
    /// A file named the last segment, so that the loss of the end would have been noticed. False in
    /// a log that an older version wrote.
    pub end_is_named: bool,
}

/// The end of a log that a crash left: nobody was told that it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file that was cut.
    pub path: PathBuf,
    /// The first byte that was cut.
    pub offset: u64,
    /// The position the first cut record had.
    pub lsn: Lsn,
    /// From the cut to the last byte that is not zero.
    pub bytes: u64,
    /// Later segments that were removed.
    pub segments_removed: u64,
}

/// Why a log cannot be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum OpenError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{} is held by another process: the log in this directory is in use", path.display())]
    Locked { path: PathBuf },
    #[error("{} is not named like a segment; move it away if it does not belong to the log", path.display())]
    MalformedName { path: PathBuf },
    #[error("segment {number} is missing: there are {} and {}, and nothing between", before.display(), behind.display())]
    MissingSegment { number: u64, before: PathBuf, behind: PathBuf },
    #[error("the log begins with {}: the segments before it are missing", path.display())]
    MissingBeginning { path: PathBuf },
    #[error("segment {number} is missing: {} says that the last one is segment {last} and that everything up to LSN {durable} \
             was durable; bring it back, or, if it is lost for good, remove that file to go on without it", path.display())]
    MissingEnd { number: u64, path: PathBuf, last: u64, durable: Lsn },
    #[error("{} does not verify: it names the last segment, without it nobody would notice that segments are missing; bring it back, \
             or remove it to go on with the segments that are there", path.display())]
    LastSegmentInvalid { path: PathBuf },
    #[error("{} belongs to another log: its log id is {found}, that of the first segment {expected}", path.display())]
    Foreign { path: PathBuf, expected: LogId, found: LogId },
    #[error("{} says that it is segment {found}: a copy or renamed", path.display())]
    WrongNumber { path: PathBuf, found: u64 },
    #[error("{} has format version {version}, this program reads version {known}: use the program that wrote it, or a newer one", path.display(), known = crate::format::FORMAT_VERSION)]
    Version { path: PathBuf, version: u32 },
    #[error("the log is corrupt: {} at offset {offset}, LSN {lsn}: {what}", path.display())]
    Corrupt { path: PathBuf, offset: u64, lsn: Lsn, what: String },
    #[error("record {lsn} ({} at offset {offset}) cannot be applied: {source}", path.display())]
    Replay { path: PathBuf, offset: u64, lsn: Lsn, source: ReplayError },
    #[error("the log has used up its positions (LSN {lsn})")]
    Exhausted { lsn: Lsn },
}

/// Opens the log in `disk`'s directory: takes its lock, gives every record that survived to
/// `replay` in order, seals what was found and returns the parts of the running log. An empty
/// directory becomes an empty log, with an id drawn from `ids`.
///
/// A full disk does not keep a log from opening; [`LogWriter::room`] then answers
/// [`crate::Room::NoSpace`].
pub fn open<D: Disk>(
    disk: D,
    options: Options,
    ids: &mut dyn Rng,
    replay: &mut dyn FnMut(RecordRef<'_>) -> Result<(), ReplayError>,
) -> Result<Opened<D>, OpenError> {
    let options = options.clamped();
    let lock = lock(&disk)?;
    // A rename whose directory was not synced could still be taken back.
    disk.sync_directory()?;
    let found = Found::look(&disk)?;
    found.check_segments(&disk)?;
    for segment in &found.segments {
        disk.sync(&segment.file)?;
    }
    let walked = found.walk(&disk, replay)?;
    if EXHAUSTED <= walked.next_lsn.0 || EXHAUSTED <= found.segments.len() as u64 {
        return Err(OpenError::Exhausted { lsn: walked.next_lsn });
    }
    let fresh_id = LogId(u128::from(ids.next_u64()) << 64 | u128::from(ids.next_u64()));
    seal::seal(disk, options, lock, found, walked, fresh_id)
}

/// The files of a log, before their frames are looked at.
#[derive(Debug)]
pub(crate) struct Found<F> {
    pub segments: Vec<Segment<F>>,
    pub last: Option<LastSegment>,
}

impl<F> Found<F> {
    /// Whether they belong together; not whether some are missing at the end.
    pub fn look<D: Disk<File = F>>(disk: &D) -> Result<Self, OpenError> {
        Ok(Self { last: last_segment::read(disk)?, segments: find_segments(disk)? })
    }

    /// Whether the last one is there.
    pub fn check_segments<D: Disk<File = F>>(&self, disk: &D) -> Result<(), OpenError> {
        last_segment::check_segments(disk, self.last.as_ref(), &self.segments)
    }

    /// Gives every record that survived to `replay`, and says whether they are all there.
    pub fn walk<D: Disk<File = F>>(
        &self,
        disk: &D,
        replay: &mut Replay<'_>,
    ) -> Result<Walked, OpenError> {
        let walked = walk(disk, &self.segments, replay)?;
        self.check_segments(disk)?;
        last_segment::check_records(disk, self.last.as_ref(), &self.segments, &walked)?;
        Ok(walked)
    }

    pub fn report(&self, walked: &Walked) -> RecoveryReport {
        RecoveryReport {
            records: walked.records,
            last_lsn: Lsn(walked.next_lsn.0 - 1),
            frames: walked.frames,
            bytes: walked.bytes,
            segments: walked.kept_count as u64,
            clean_shutdown: walked.clean_shutdown,
            wall_ms: walked.wall_ms,
            torn_tail: walked.torn_tail.clone(),
            end_is_named: self.last.is_some(),
        }
    }
}

/// Beyond this a running process could overflow a position.
const EXHAUSTED: u64 = 1 << 63;

pub(crate) fn lock<D: Disk>(disk: &D) -> Result<D::File, OpenError> {
    disk.lock(LOCK_NAME).map_err(|error| match error.kind {
        DiskErrorKind::Exists => OpenError::Locked { path: error.path },
        _ => OpenError::Disk(error),
    })
}

/// Keeps the parts' constructors in one place.
pub(crate) fn parts<D: Disk>(
    shared: Arc<crate::progress::Shared>,
    stage: LogStage<D>,
    helper: ZeroHelper<D>,
    options: &Options,
    report: RecoveryReport,
) -> Opened<D> {
    let next_lsn = Lsn(report.last_lsn.0 + 1);
    let writer =
        LogWriter::new(Arc::clone(&shared), options, next_lsn, report.wall_ms.unwrap_or(i64::MIN));
    Opened { writer, progress: Progress { shared }, stage, helper, report }
}

impl<D: Disk> fmt::Debug for Opened<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}
