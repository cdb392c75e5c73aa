//! placeholder
use crate::*;
use busload_io::{Disk, DiskError, Rng};
/// A record as recovery hands it out.
#[derive(Clone, Copy, Debug)]
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
/// The parts of an open log.
#[derive(Debug)]
pub struct Opened<D: Disk> {
    /// For the thread that executes transactions.
    pub writer: LogWriter,
    /// For everyone.
    pub progress: Progress,
    /// For a thread of its own.
    pub stage: LogStage<D>,
    /// For another.
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
    /// Bytes in use of all segments.
    pub bytes: u64,
    /// Segments that were begun.
    pub segments: u64,
    /// Frames.
    pub frames: u64,
    /// The process before ended in order.
    pub clean_shutdown: bool,
    /// The latest time of day in the log.
    pub wall_ms: Option<i64>,
    /// What was cut off.
    pub torn_tail: Option<TornTail>,
}
/// The end of a log that a crash left: never acknowledged as durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// File.
    pub path: std::path::PathBuf,
    /// First byte that was cut.
    pub offset: u64,
    /// Position that the first cut record had.
    pub lsn: Lsn,
    /// Bytes that were in use behind the cut.
    pub bytes: u64,
}
/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
/// Opens a log.
pub fn open<D: Disk>(
    _disk: D,
    _options: Options,
    _ids: &mut dyn Rng,
    _replay: &mut dyn FnMut(RecordRef<'_>) -> Result<(), ReplayError>,
) -> Result<Opened<D>, OpenError> {
    unreachable!()
}
