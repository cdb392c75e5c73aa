//! Copies segments frame by frame: for backups of a log that is being written, and for restores.
//!
//! Each frame is verified by its checksums, its place and its predecessor before it is copied. The
//! copy of a segment ends behind its last frame. With the log id of the original it is the same
//! byte for byte; with another one all checksums are made anew, since they begin with the id.

mod file_writer;

use std::path::PathBuf;

use busload_io::Disk;

use crate::{
    Lsn, OpenError,
    format::{
        FRAME_ALIGNMENT_BYTES, FRAME_KIND_RECORDS, FrameHeader, FrameSeed, LastSegment, LogId,
        NameKind, Records, SegmentHeader, segment_name, temporary_name,
    },
    last_segment,
    recovery::{Peeked, Segment, SegmentFrames, numbered_segments, read_header},
};

pub use file_writer::{FileWriter, Written, file_checksum};

const ALIGNMENT: usize = FRAME_ALIGNMENT_BYTES as usize;

/// Point between two frames of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainPoint {
    /// Position of the record behind it.
    pub next_lsn: Lsn,
    /// Checksum that the frame or segment behind it names as its predecessor.
    pub checksum: u32,
}

/// Segment in use that is open for reading, also when its file is removed meanwhile.
#[derive(Debug)]
pub struct SegmentFile<F> {
    segment: Segment<F>,
    header: SegmentHeader,
    checksum: u32,
}

/// Returns the numbers of the segments in the directory, in order.
pub fn segment_numbers<D: Disk>(disk: &D) -> Result<Vec<u64>, OpenError> {
    Ok(numbered_segments(disk)?.into_iter().map(|(number, _)| number).collect())
}

/// Returns the number in a segment's name; `None` for any other file.
pub fn number_of_name(name: &str) -> Option<u64> {
    match NameKind::of(name) {
        NameKind::Segment(number) => Some(number),
        _ => None,
    }
}

/// Returns whether this is the name of a segment that is being written.
pub fn is_temporary(name: &str) -> bool {
    NameKind::of(name) == NameKind::Temporary
}

impl<F> SegmentFile<F> {
    /// Opens a segment and verifies its header. Returns `None` if it was never used.
    pub fn open<D: Disk<File = F>>(disk: &D, number: u64) -> Result<Option<Self>, OpenError> {
        let segment = read_header(disk, number, segment_name(number))?;
        let header = segment.header;
        Ok(header.map(|(header, checksum)| Self { segment, header, checksum }))
    }

    /// Leaves out what is behind this many bytes of the file.
    pub fn limit(&mut self, bytes: u64) {
        self.segment.bytes = self.segment.bytes.min(bytes);
    }

    /// Returns the number of the segment.
    pub fn number(&self) -> u64 {
        self.segment.number
    }

    /// Returns the name of the file.
    pub fn name(&self) -> &str {
        &self.segment.name
    }

    /// Returns the length of the file.
    pub fn bytes(&self) -> u64 {
        self.segment.bytes
    }

    /// Returns the id of the segment's log.
    pub fn log_id(&self) -> LogId {
        self.header.log_id
    }

    /// Returns the point at which the segment begins.
    pub fn begin(&self) -> ChainPoint {
        ChainPoint { next_lsn: self.header.first_lsn, checksum: self.header.previous }
    }

    /// Makes everything durable that was written to the segment so far.
    pub fn sync<D: Disk<File = F>>(&self, disk: &D) -> Result<(), OpenError> {
        Ok(disk.sync(&self.segment.file)?)
    }
}

/// Place at which a scan of a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Behind the last frame of a segment that may be written meanwhile.
    End,
    /// At this point, which must be there: where the next segment begins.
    Point(ChainPoint),
    /// Behind this record, which must be there.
    Record(Lsn),
    /// Before the first frame that is later than this time of day.
    Time(i64),
}

/// Summary of the frames of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Point behind the last frame.
    pub end: ChainPoint,
    /// Length of header and frames.
    pub bytes: u64,
    /// Number of records in these frames.
    pub records: u64,
    /// Time of day of the first frame with records; of the header if there is none. In
    /// milliseconds since 1970, as all times.
    pub first_ms: i64,
    /// Latest time of day of a frame with records; of the header if there is none.
    pub last_ms: i64,
}

/// Verifies the frames of a segment.
///
/// # Errors
/// If the disk fails, or a frame does not verify before the place at which the scan ends.
pub fn scan<D: Disk>(
    disk: &D,
    segment: &SegmentFile<D::File>,
    until: Until,
) -> Result<Scanned, OpenError> {
    Scan::new(disk, segment, until).run(&mut |_, _| Ok(()))
}

/// Identity of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyId {
    /// Log id of the copy.
    pub log_id: LogId,
    /// Checksum that the copy's header names as its predecessor.
    pub previous: u32,
}

/// Copy of a segment that is written and synced, under a temporary name.
pub struct CopiedSegment<'a, E: Disk> {
    /// Summary of the original as far as it was copied.
    pub scanned: Scanned,
    /// Point behind the last frame of the copy.
    pub end: ChainPoint,
    /// File of the copy.
    pub file: FileWriter<'a, E>,
    /// Name of the copy.
    pub name: String,
}

/// Copies a segment into a file with a temporary name. `progress` learns how many bytes were
/// written.
///
/// # Errors
/// If a disk fails, or a frame does not verify before the place at which the copy ends.
pub fn copy<'a, D: Disk, E: Disk>(
    from: &D,
    segment: &SegmentFile<D::File>,
    until: Until,
    to: &'a E,
    id: CopyId,
    progress: &mut dyn FnMut(u64),
) -> Result<CopiedSegment<'a, E>, OpenError> {
    let mut file = FileWriter::create(to, &temporary_name(segment.number()))?;
    let CopyId { log_id, previous } = id;
    let (block, mut chain) = SegmentHeader { log_id, previous, ..segment.header }.encode();
    file.write(&block)?;
    progress(block.len() as u64);
    let mut frame = 0;
    let scanned = Scan::new(from, segment, until).run(&mut |header, body| {
        let seed = FrameSeed { log_id, segment: segment.number(), frame };
        let body_checksum = seed.body_checksum(std::iter::once(body));
        let (bytes, checksum) =
            FrameHeader { body_checksum, previous: chain, ..*header }.encode(seed);
        (chain, frame) = (checksum, frame + 1);
        file.write(&bytes)?;
        file.write(body)?;
        progress((bytes.len() + body.len()) as u64);
        Ok(())
    })?;
    file.sync()?;
    let end = ChainPoint { next_lsn: scanned.end.next_lsn, checksum: chain };
    Ok(CopiedSegment { scanned, end, file, name: segment_name(segment.number()) })
}

/// Reads the file `last-segment`; `None` if there is none.
pub fn last_segment<D: Disk>(disk: &D) -> Result<Option<LastSegment>, OpenError> {
    last_segment::read(disk)
}

/// Writes the file `last-segment` for a log that was copied: a start then notices if this segment
/// or this record is lost. Durable when this returns.
pub fn name_last_segment<D: Disk>(
    disk: &D,
    log_id: LogId,
    number: u64,
    durable: Lsn,
) -> Result<(), OpenError> {
    let last = LastSegment { log_id, number, durable, clean_shutdown: false };
    last_segment::put(disk, &last)?;
    Ok(disk.sync_directory()?)
}

/// Callback that takes the header and the body of a frame.
type Sink<'a> = dyn FnMut(&FrameHeader, &[u8]) -> Result<(), OpenError> + 'a;

struct Scan<'a, D: Disk> {
    disk: &'a D,
    segment: &'a SegmentFile<D::File>,
    until: Until,
    frame_number: u64,
    /// Offset at which a frame was looked for a second time.
    looked_again_at: Option<u64>,
    /// Body of a frame of which only the first records are copied.
    cut_body: Vec<u8>,
    times: Option<(i64, i64)>,
    records: u64,
    end: ChainPoint,
}

impl<'a, D: Disk> Scan<'a, D> {
    fn new(disk: &'a D, segment: &'a SegmentFile<D::File>, until: Until) -> Self {
        let end = ChainPoint { next_lsn: segment.header.first_lsn, checksum: segment.checksum };
        Self {
            disk,
            segment,
            until,
            frame_number: 0,
            looked_again_at: None,
            cut_body: Vec::new(),
            times: None,
            records: 0,
            end,
        }
    }

    fn run(mut self, sink: &mut Sink<'_>) -> Result<Scanned, OpenError> {
        let mut frames = self.frames(Vec::new());
        while !self.is_at_end() {
            let offset = frames.offset();
            match frames.peek()? {
                Peeked::Frame { header, seed, checksum, body }
                    if self.is_successor(&header, &seed) =>
                {
                    if matches!(self.until, Until::Time(last) if last < header.wall_ms) {
                        break;
                    }
                    self.take(offset, &header, checksum, body, sink)?;
                    frames.pass(&header);
                }
                _ if self.is_end_of_file(offset) => break,
                _ if self.until == Until::End => {
                    if !self.was_durable(&mut frames)? {
                        frames.seek(offset);
                        break;
                    }
                    self.look_again(offset)?;
                    frames = self.frames(frames.into_window());
                    frames.seek(offset);
                }
                _ => return Err(self.corrupt(offset, "no frame verifies here that goes on")),
            }
        }
        let wall_ms = self.segment.header.wall_ms;
        let (first_ms, last_ms) = self.times.unwrap_or((wall_ms, wall_ms));
        let (end, records) = (self.end, self.records);
        Ok(Scanned { end, bytes: frames.offset(), records, first_ms, last_ms })
    }

    fn frames(&self, window: Vec<u8>) -> SegmentFrames<'a, D> {
        SegmentFrames::new(
            self.disk,
            &self.segment.segment,
            Some(self.segment.header.log_id),
            window,
        )
    }

    fn is_at_end(&self) -> bool {
        match self.until {
            Until::Point(point) => self.end == point,
            Until::Record(last) => last < self.end.next_lsn,
            Until::End | Until::Time(_) => false,
        }
    }

    fn is_end_of_file(&self, offset: u64) -> bool {
        matches!(self.until, Until::End | Until::Time(_)) && offset == self.segment.segment.bytes
    }

    fn is_successor(&self, header: &FrameHeader, seed: &FrameSeed) -> bool {
        seed.frame == self.frame_number
            && header.previous == self.end.checksum
            && header.first_lsn == self.end.next_lsn
    }

    /// Gives a frame to the sink; only its first records if the last one to copy is among them.
    fn take(
        &mut self,
        offset: u64,
        header: &FrameHeader,
        checksum: u32,
        body: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<(), OpenError> {
        let wanted = match self.until {
            Until::Record(last) => last.0 - header.first_lsn.0 + 1,
            _ => u64::MAX,
        };
        let Some(kept) = Kept::of(header, body, wanted) else {
            return Err(self.corrupt(offset, "the frame verifies, but its records do not add up"));
        };
        if kept.record_count == header.record_count {
            sink(header, body)?;
        } else {
            self.cut_body.clear();
            self.cut_body.extend_from_slice(&body[..kept.bytes]);
            self.cut_body.resize(kept.bytes.next_multiple_of(ALIGNMENT), 0);
            let body_bytes = self.cut_body.len() as u64;
            let header = FrameHeader { body_bytes, record_count: kept.record_count, ..*header };
            sink(&header, &self.cut_body)?;
        }
        if header.kind == FRAME_KIND_RECORDS {
            let (first, last) = self.times.unwrap_or((header.wall_ms, header.wall_ms));
            self.times = Some((first, last.max(header.wall_ms)));
        }
        self.records += u64::from(kept.record_count);
        let next_lsn = Lsn(header.first_lsn.0.saturating_add(u64::from(kept.record_count)));
        self.end = ChainPoint { next_lsn, checksum };
        self.frame_number += 1;
        Ok(())
    }

    /// Returns whether the missing frame had been durable, going by what follows it.
    fn was_durable(&self, frames: &mut SegmentFrames<'_, D>) -> Result<bool, OpenError> {
        let mut last_used = 0;
        while let Some(found) = frames.search(&mut last_used)? {
            if self.end.next_lsn <= found.header.durable {
                return Ok(true);
            }
            frames.pass_found(&mut last_used)?;
        }
        Ok(false)
    }

    /// Allows a second look at a place, for which bytes are read again: the log's thread wrote the
    /// frame there, synced it and wrote the next one since the first look, or the log is corrupt.
    fn look_again(&mut self, offset: u64) -> Result<(), OpenError> {
        if self.looked_again_at.replace(offset) == Some(offset) {
            return Err(self.corrupt(
                offset,
                "no frame verifies here, and yet a later one says that its records were durable",
            ));
        }
        Ok(())
    }

    fn corrupt(&self, offset: u64, what: &str) -> OpenError {
        let path: PathBuf = self.disk.path(self.segment.name());
        OpenError::Corrupt { path, offset, lsn: self.end.next_lsn, what: what.to_owned() }
    }
}

/// Beginning of a frame's body that is copied.
struct Kept {
    record_count: u32,
    bytes: usize,
}

impl Kept {
    /// Returns the part with the first records of a body; `None` if the records do not add up.
    fn of(header: &FrameHeader, body: &[u8], wanted: u64) -> Option<Self> {
        let mut records = Records::new(body);
        let (mut count, mut kept) = (0, Kept { record_count: 0, bytes: 0 });
        while let Some(record) = records.next() {
            record.ok()?;
            count += 1;
            if u64::from(count) <= wanted {
                kept = Kept { record_count: count, bytes: body.len() - records.rest().len() };
            }
        }
        (count == header.record_count).then_some(kept)
    }
}
