//! Inspection of a log while no server runs on it: `busload log verify`, `busload log dump` and, in
//! [`salvage`](fn@salvage), `busload log repair`. They take the log's lock and change nothing.

mod salvage;

use std::path::PathBuf;

use busload_io::Disk;

use crate::{
    Base, Lsn, OpenError, RecordRef, RecoveryReport, ReplayError,
    format::{FRAME_KIND_CLEAN_SHUTDOWN, LogId, Records, SEGMENT_HEADER_BYTES},
    recovery::{LogFiles, Peeked, Segment, SegmentFrames, lock},
};

pub use salvage::{Lost, Salvaged, salvage};

/// Result of verifying every frame.
#[derive(Debug)]
pub struct VerifyReport {
    /// Reports of the segments, in order.
    pub segments: Vec<SegmentReport>,
    /// Everything that is not as it was written. This includes a torn tail after a crash; `verdict`
    /// says how a start treats it.
    pub problems: Vec<Problem>,
    /// Report of what a start would recover, or why it would refuse the log.
    pub verdict: Result<RecoveryReport, OpenError>,
}

/// Report of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Path of the segment's file.
    pub path: PathBuf,
    /// Number of the segment.
    pub number: u64,
    /// Id of the segment's log; `None` when the segment was never used.
    pub log_id: Option<LogId>,
    /// Number of frames that verify.
    pub frames: u64,
    /// Number of records in these frames.
    pub records: u64,
    /// LSN of the first record after the segment's header.
    pub first_lsn: Lsn,
    /// LSN of the last record in the segment; `first_lsn - 1` when there is none.
    pub last_lsn: Lsn,
    /// Highest LSN that the header and the frames name as durable.
    pub durable: Lsn,
    /// Number of bytes in use.
    pub used_bytes: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// True if the segment ends with the mark of a clean shutdown.
    pub clean_shutdown: bool,
}

/// A position at which the bytes are corrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the file.
    pub path: PathBuf,
    /// Offset of the first wrong byte.
    pub offset: u64,
    /// LSN of the record that should begin there.
    pub lsn: Lsn,
    /// Description of what is wrong.
    pub what: String,
}

/// Verifies every frame of every segment that a start needs: of all, or of those that a snapshot,
/// `base`, does not cover. Fails only when the segments cannot be told apart; see
/// [`OpenError`].
pub fn verify<D: Disk>(disk: &D, base: Option<&Base>) -> Result<VerifyReport, OpenError> {
    let _lock = lock(disk)?;
    let found = LogFiles::find(disk, base)?;
    let mut problems = Vec::new();
    let mut reports = Vec::new();
    for segment in &found.segments {
        reports.push(verify_segment(disk, segment, &mut problems)?);
    }
    let verdict = found.walk(disk, base, &mut |_| Ok(())).map(|walked| found.report(&walked));
    Ok(VerifyReport { segments: reports, problems, verdict })
}

/// Gives every record from `from` on that `base` does not cover to `sink`, as a start would recover
/// them.
pub fn dump<D: Disk>(
    disk: &D,
    base: Option<&Base>,
    from: Lsn,
    sink: &mut dyn FnMut(RecordRef<'_>) -> Result<(), ReplayError>,
) -> Result<RecoveryReport, OpenError> {
    let _lock = lock(disk)?;
    let found = LogFiles::find(disk, base)?;
    let walked = found
        .walk(disk, base, &mut |record| if record.lsn < from { Ok(()) } else { sink(record) })?;
    Ok(found.report(&walked))
}

fn verify_segment<D: Disk>(
    disk: &D,
    segment: &Segment<D::File>,
    problems: &mut Vec<Problem>,
) -> Result<SegmentReport, OpenError> {
    let report = empty_report(disk, segment);
    let frames = SegmentFrames::new(disk, segment, report.log_id, Vec::new());
    let mut check = SegmentCheck { frames, next_lsn: report.first_lsn, report, problems };
    loop {
        if !check.frame()? && !check.resume()? {
            break;
        }
    }
    check.report.last_lsn = Lsn(check.next_lsn.0.saturating_sub(1));
    Ok(check.report)
}

struct SegmentCheck<'a, D: Disk> {
    frames: SegmentFrames<'a, D>,
    next_lsn: Lsn,
    report: SegmentReport,
    problems: &'a mut Vec<Problem>,
}

impl<D: Disk> SegmentCheck<'_, D> {
    fn problem(&mut self, offset: u64, lsn: Lsn, what: &str) {
        let path = self.report.path.clone();
        self.problems.push(Problem { path, offset, lsn, what: what.to_owned() });
    }

    /// Takes the frame at the current position; false when there is none.
    fn frame(&mut self) -> Result<bool, OpenError> {
        let offset = self.frames.offset();
        let Peeked::Frame { header, body, .. } = self.frames.peek()? else { return Ok(false) };
        let whole = Records::new(body).filter(Result::is_ok).count() as u64
            == u64::from(header.record_count);
        if header.first_lsn != self.next_lsn {
            self.problem(
                offset,
                self.next_lsn,
                "the frame here does not go on from the one before",
            );
        }
        if !whole {
            self.problem(offset, header.first_lsn, "the frame's records do not add up");
        }
        self.report.frames += 1;
        self.report.records += u64::from(header.record_count);
        self.report.durable = self.report.durable.max(header.durable);
        self.report.clean_shutdown = header.kind == FRAME_KIND_CLEAN_SHUTDOWN;
        self.next_lsn = header.next_lsn();
        self.frames.pass(&header);
        self.report.used_bytes = self.frames.offset();
        Ok(true)
    }

    /// Moves to the next frame that is whole; false when there is none.
    fn resume(&mut self) -> Result<bool, OpenError> {
        let (offset, lsn) = (self.frames.offset(), self.next_lsn);
        let mut last_used = offset;
        while let Some(found) = self.frames.search(&mut last_used)? {
            self.report.durable = self.report.durable.max(found.header.durable);
            if let Peeked::Frame { .. } = self.frames.peek()? {
                self.problem(offset, lsn, "no frame verifies here, and frames follow");
                self.next_lsn = found.header.first_lsn;
                return Ok(true);
            }
            self.frames.pass_found(&mut last_used)?;
        }
        if offset < last_used {
            self.problem(
                offset,
                lsn,
                "no frame verifies here: a torn tail, or a corrupt last frame",
            );
        }
        Ok(false)
    }
}

fn empty_report<D: Disk>(disk: &D, segment: &Segment<D::File>) -> SegmentReport {
    let header = segment.header.map(|(header, _)| header);
    SegmentReport {
        path: disk.path(&segment.name),
        number: segment.number,
        log_id: header.map(|header| header.log_id),
        frames: 0,
        records: 0,
        first_lsn: header.map_or(Lsn(0), |header| header.first_lsn),
        last_lsn: Lsn(0),
        durable: header.map_or(Lsn(0), |header| header.durable),
        used_bytes: header.map_or(0, |_| SEGMENT_HEADER_BYTES as u64),
        file_bytes: segment.bytes,
        clean_shutdown: false,
    }
}
