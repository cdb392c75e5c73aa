//! Opens a log: finds out what survived, hands it to the caller and seals it.
//!
//! Recovery syncs every segment before it reads it, and writes again what it read if nothing says
//! that it was synced ([`rewrite`]), so it never acts on something that a power loss could still
//! take. It follows the frames from the first segment on and checks each against
//! its position and its predecessor, until one is missing. If anything after that point names a
//! durable LSN at or above the missing one, the log is **corrupt** and the start is refused.
//! Otherwise the rest is a **torn tail**, of which nobody was told that it is durable, and recovery
//! cuts it off.
//!
//! The file `last-segment` ([`last_segment`]) names the last segment, so recovery also refuses a
//! log whose end was lost.
//!
//! Sealing removes what lies behind the cut and begins a new segment whose header names the last
//! frame kept. A crash may interrupt any step: the next start finds the same records.

mod frames;
mod rewrite;
mod seal;
mod segment_search;
#[cfg(test)]
mod tests;
mod walk;

use std::{fmt, path::PathBuf, sync::Arc};

use busload_io::{Disk, DiskError, DiskErrorKind, Rng};

use crate::{
    LogStage, LogWriter, Lsn, Options, Progress, ZeroHelper,
    format::{COPY_LOCK_NAME, LOCK_NAME, LastSegment, LogId},
    last_segment,
};

pub(crate) use frames::{Peeked, SegmentFrames};
pub(crate) use segment_search::{
    Earlier, Found, Segment, find_segments, find_segments_in_use, numbered_segments, read_header,
};
pub(crate) use walk::{Walked, walk, walk_durable};

/// Record as recovery hands it to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Position of the record.
    pub lsn: Lsn,
    /// Time of day of the record's frame, in milliseconds since 1970.
    pub wall_ms: i64,
    /// Contents of the record.
    pub bytes: &'a [u8],
}

/// Reason why the caller of recovery rejects a record.
pub type ReplayError = Box<dyn std::error::Error + Send + Sync>;

/// Callback that takes the recovered records.
pub(crate) type Replay<'a> = dyn FnMut(RecordRef<'_>) -> Result<(), ReplayError> + 'a;

/// Parts of an open log.
pub struct Opened<D: Disk> {
    /// Writer for the thread that executes transactions.
    pub writer: LogWriter,
    /// Progress of the log, for any thread.
    pub progress: Progress,
    /// Stage that runs on the log's thread.
    pub stage: LogStage<D>,
    /// Helper that runs on a second thread.
    pub helper: ZeroHelper<D>,
    /// Report of what recovery found.
    pub report: RecoveryReport,
}

/// Report of what recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Number of records given to the caller.
    pub records: u64,
    /// LSN of the last of these records.
    pub last_lsn: Lsn,
    /// Number of frames that the records came in.
    pub frames: u64,
    /// Bytes in use of all segments.
    pub bytes: u64,
    /// Number of segments in use that recovery keeps.
    pub segments: u64,
    /// True if the log ended with a clean shutdown.
    pub clean_shutdown: bool,
    /// Latest time of day in the log; `None` when it is empty.
    pub wall_ms: Option<i64>,
    /// The torn tail that recovery cuts off, if there is one.
    pub torn_tail: Option<TornTail>,
    /// True if `last-segment` existed, so that the loss of the end would have been noticed. False
    /// in a log that an older version wrote.
    pub end_is_named: bool,
}

/// End of a log that a crash left and that nobody was told is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Path of the file that is cut.
    pub path: PathBuf,
    /// Offset of the first byte that is cut.
    pub offset: u64,
    /// Position of the first record that is cut.
    pub lsn: Lsn,
    /// Length from the cut to the last byte that is not zero.
    pub bytes: u64,
    /// Number of later segments that are removed.
    pub segments_removed: u64,
}

/// Reason why a log cannot be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum OpenError {
    /// The disk returned an error.
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{} is held by another process: the log in this directory is in use", path.display())]
    Locked { path: PathBuf },
    #[error(
        "{} is not named like a segment; move it away if it does not belong to the log",
        path.display()
    )]
    MalformedName { path: PathBuf },
    #[error(
        "{} says that a restore into this directory has not ended; do it again, it then begins \
         anew",
        path.display()
    )]
    Incomplete { path: PathBuf },
    #[error(
        "segment {number} is missing: there are {} and {}, and nothing between",
        before.display(),
        behind.display()
    )]
    MissingSegment { number: u64, before: PathBuf, behind: PathBuf },
    #[error(
        "the log begins with {}: the segments before it are missing, and so is a valid snapshot \
         that covers them",
        path.display()
    )]
    MissingBeginning { path: PathBuf },
    #[error(
        "the log begins with LSN {first} in {}, but the snapshot ends with LSN {covered}: the \
         segments between are missing",
        path.display()
    )]
    MissingBehindSnapshot { path: PathBuf, first: Lsn, covered: Lsn },
    #[error(
        "the log begins with {}, which was never used, but the snapshot ends with LSN {covered}: \
         the segments that were in use are missing; bring them back, or, if they are lost for \
         good, remove it and `last-segment` to go on with what the snapshot holds",
        path.display()
    )]
    MissingInUse { path: PathBuf, covered: Lsn },
    #[error(
        "segment {number} is missing: {} says that the last one is segment {last} and that \
         everything up to LSN {durable} was durable; bring it back, or, if it is lost for good, \
         remove that file to go on without it",
        path.display()
    )]
    MissingEnd { number: u64, path: PathBuf, last: u64, durable: Lsn },
    #[error(
        "{} does not verify: it names the last segment, without it nobody would notice that \
         segments are missing; bring it back, or remove it to go on with the segments that are \
         there",
        path.display()
    )]
    LastSegmentInvalid { path: PathBuf },
    #[error(
        "{} belongs to another log: its log id is {found}, that of the others {expected}",
        path.display()
    )]
    Foreign { path: PathBuf, expected: LogId, found: LogId },
    #[error("{} says that it is segment {found}: a copy or renamed", path.display())]
    WrongNumber { path: PathBuf, found: u64 },
    #[error(
        "{} has format version {version}, this program reads version {known}: use the program \
         that wrote it, or a newer one",
        path.display(),
        known = crate::format::FORMAT_VERSION
    )]
    Version { path: PathBuf, version: u32 },
    #[error("the log is corrupt: {} at offset {offset}, LSN {lsn}: {what}", path.display())]
    Corrupt { path: PathBuf, offset: u64, lsn: Lsn, what: String },
    #[error(
        "the log ends with LSN {last}, but the snapshot ends with LSN {covered}, which was \
         durable: the end of the log is missing"
    )]
    EndsBeforeSnapshot { last: Lsn, covered: Lsn },
    #[error("record {lsn} ({} at offset {offset}) cannot be applied: {source}", path.display())]
    Replay { path: PathBuf, offset: u64, lsn: Lsn, source: ReplayError },
    #[error("the log has used up its positions (LSN {lsn})")]
    Exhausted { lsn: Lsn },
}

/// Lock of a log's directory, held until it is dropped. While one process has it, no other opens,
/// inspects or repairs the log.
#[derive(Debug)]
pub struct LogLock<F> {
    _file: F,
}

/// Takes the lock of the log in `disk`'s directory.
pub fn lock<D: Disk>(disk: &D) -> Result<LogLock<D::File>, OpenError> {
    match disk.lock(LOCK_NAME) {
        Ok(file) => Ok(LogLock { _file: file }),
        Err(error) if error.kind == DiskErrorKind::Exists => {
            Err(OpenError::Locked { path: error.path })
        }
        Err(error) => Err(OpenError::Disk(error)),
    }
}

/// Position that a snapshot covers: the records up to it are not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Id of the log.
    pub log_id: LogId,
    /// Last record that is covered.
    pub lsn: Lsn,
    /// Number of the segment that holds this record, or one behind it.
    pub segment: u64,
    /// Latest time of day of the records in this segment or before, in milliseconds since 1970.
    pub wall_ms: i64,
}

/// Opens the log in `disk`'s directory: takes its lock, gives every record that survived to
/// `replay` in order, seals the log and returns the parts of the running log. An empty directory
/// becomes an empty log, with an id drawn from `ids`.
///
/// A full disk does not keep a log from opening; [`LogWriter::reserve`] then answers
/// [`crate::Reservation::NoSpace`].
pub fn open<D: Disk>(
    disk: D,
    options: Options,
    ids: &mut dyn Rng,
    replay: &mut dyn FnMut(RecordRef<'_>) -> Result<(), ReplayError>,
) -> Result<Opened<D>, OpenError> {
    let lock = lock(&disk)?;
    open_behind(disk, lock, options, ids, None, replay)
}

/// Does the same as [`open`] with a lock that was taken before, and without the records that `base`
/// covers.
pub fn open_behind<D: Disk>(
    disk: D,
    lock: LogLock<D::File>,
    options: Options,
    ids: &mut dyn Rng,
    base: Option<&Base>,
    replay: &mut dyn FnMut(RecordRef<'_>) -> Result<(), ReplayError>,
) -> Result<Opened<D>, OpenError> {
    let options = options.clamped();
    // Without this sync a power loss could still undo a rename.
    disk.sync_directory()?;
    let found = LogFiles::find(&disk, base)?;
    found.check_segments(&disk)?;
    for segment in &found.segments {
        disk.sync(&segment.file)?;
    }
    let walked = found.walk(&disk, base, replay)?;
    // A process that copies segments finds the file even if it may not create one.
    let _ = disk.lock(COPY_LOCK_NAME);
    // First what may free space on a full disk.
    seal::remove_temporaries(&disk)?;
    rewrite::unsynced(&disk, &found, &walked, base)?;
    if EXHAUSTED <= walked.next_lsn.0 || EXHAUSTED <= walked.last_number() {
        return Err(OpenError::Exhausted { lsn: walked.next_lsn });
    }
    let fresh_id = LogId(u128::from(ids.next_u64()) << 64 | u128::from(ids.next_u64()));
    seal::seal(disk, options, lock, found, walked, fresh_id)
}

/// Returns the length of the files that [`open_behind`] will read, for people who wait for it. The
/// records in them take a little less: the last file usually ends with zeros.
pub fn bytes_behind<D: Disk>(disk: &D, base: Option<&Base>) -> Result<u64, OpenError> {
    let found = LogFiles::find(disk, base)?;
    Ok(found.segments.iter().map(|segment| segment.bytes).sum())
}

/// Files of a log, before their frames are read.
#[derive(Debug)]
pub(crate) struct LogFiles<F> {
    pub segments: Vec<Segment<F>>,
    pub earlier: Earlier,
    pub last: Option<LastSegment>,
}

impl<F> LogFiles<F> {
    /// Finds the files and checks that they belong together; not whether some are missing at the
    /// end.
    pub fn find<D: Disk<File = F>>(disk: &D, base: Option<&Base>) -> Result<Self, OpenError> {
        let last = last_segment::read(disk)?;
        let Found { segments, earlier } = find_segments(disk, base)?;
        Ok(Self { segments, earlier, last })
    }

    /// Checks that the last segment is there.
    pub fn check_segments<D: Disk<File = F>>(&self, disk: &D) -> Result<(), OpenError> {
        last_segment::check_segments(disk, self.last.as_ref(), &self.segments)
    }

    /// Gives every record that survived to `replay` and checks that none is missing at the end.
    pub fn walk<D: Disk<File = F>>(
        &self,
        disk: &D,
        base: Option<&Base>,
        replay: &mut Replay<'_>,
    ) -> Result<Walked, OpenError> {
        let walked = walk(disk, &self.segments, base, replay)?;
        self.check_segments(disk)?;
        last_segment::check_records(disk, self.last.as_ref(), &self.segments, &walked)?;
        if let Some(base) = base.filter(|base| walked.next_lsn <= base.lsn) {
            return Err(OpenError::EndsBeforeSnapshot {
                last: Lsn(walked.next_lsn.0 - 1),
                covered: base.lsn,
            });
        }
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

/// LSN at which the log counts as exhausted: beyond it a running process could overflow a position.
const EXHAUSTED: u64 = 1 << 63;

/// Assembles the parts, so that their constructors are called in one place.
pub(crate) fn parts<D: Disk>(
    shared: Arc<crate::progress::SharedProgress>,
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
