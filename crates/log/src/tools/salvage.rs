//! Reads what can still be read of a log that a start refuses.

use std::path::PathBuf;

use busload_io::{Disk, DiskError};

use crate::{
    Base, Lsn, OpenError, RecordRef, ReplayError,
    batch::FIRST_LSN,
    format::{
        FrameHeader, HeaderError, LogId, NameKind, Records, SEGMENT_HEADER_BYTES, SegmentHeader,
    },
    last_segment,
    recovery::{Peeked, Segment, SegmentFrames, lock},
};

/// Finding of [`salvage`], in the order of the log.
#[derive(Debug)]
pub enum Salvaged<'a> {
    /// A record of a frame that verifies.
    Record(RecordRef<'a>),
    /// Records that are nowhere to be found.
    Lost(&'a Lost),
}

/// Range of records that no frame holds any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Position of the first lost record.
    pub first: Lsn,
    /// Position of the last one; `None` if bytes behind the last frame do not verify, so that it is
    /// not known whether and how many records were there.
    pub last: Option<Lsn>,
    /// Path of the file in which the range ends.
    pub path: PathBuf,
    /// Offset at which the range ends.
    pub offset: u64,
}

/// Callback that takes what was found.
type Sink<'a> = dyn FnMut(Salvaged<'_>) -> Result<(), ReplayError> + 'a;

/// Gives every record of every frame that verifies and that `base` does not cover to `sink`, and
/// says which records are lost. Unlike a start it goes on behind corrupt frames and with segments
/// missing. It reads only.
///
/// # Errors
/// If the disk fails, a file has a newer format, or `sink` fails.
pub fn salvage<D: Disk>(
    disk: &D,
    base: Option<&Base>,
    sink: &mut Sink<'_>,
) -> Result<(), OpenError> {
    let _lock = lock(disk)?;
    let segments = readable_segments(disk)?;
    let log_id = segments.iter().find_map(|segment| Some(segment.header?.0.log_id));
    let next_lsn = base.map_or(FIRST_LSN, |base| Lsn(base.lsn.0 + 1));
    let mut salvage = Salvage { disk, log_id, next_lsn, unreadable: None, sink };
    for segment in &segments {
        salvage.segment(segment)?;
    }
    salvage.end()
}

struct Salvage<'a, 's, D: Disk> {
    disk: &'a D,
    log_id: Option<LogId>,
    next_lsn: Lsn,
    /// Last place where bytes do not verify, if no frame was found behind it.
    unreadable: Option<(PathBuf, u64)>,
    sink: &'a mut Sink<'s>,
}

impl<D: Disk> Salvage<'_, '_, D> {
    fn segment(&mut self, segment: &Segment<D::File>) -> Result<(), OpenError> {
        let path = self.disk.path(&segment.name);
        let mut frames = SegmentFrames::new(self.disk, segment, self.log_id, Vec::new());
        loop {
            let offset = frames.offset();
            if let Peeked::Frame { header, body, .. } = frames.peek()? {
                self.frame(&path, offset, &header, body)?;
                frames.pass(&header);
            } else if !find_frame(&mut frames)? {
                return Ok(());
            } else if frames.offset() == segment.bytes {
                self.unreadable = Some((path, offset));
                return Ok(());
            }
        }
    }

    fn frame(
        &mut self,
        path: &std::path::Path,
        offset: u64,
        header: &FrameHeader,
        body: &[u8],
    ) -> Result<(), OpenError> {
        let replay_error =
            |lsn| move |source| OpenError::Replay { path: path.to_owned(), offset, lsn, source };
        self.unreadable = None;
        if self.next_lsn < header.first_lsn {
            let last = Some(Lsn(header.first_lsn.0 - 1));
            let lost = Lost { first: self.next_lsn, last, path: path.to_owned(), offset };
            (self.sink)(Salvaged::Lost(&lost)).map_err(replay_error(lost.first))?;
        }
        let count = header.record_count as usize;
        for (index, bytes) in Records::new(body).take(count).enumerate() {
            let lsn = Lsn(header.first_lsn.0 + index as u64);
            let Ok(bytes) = bytes else { break };
            if self.next_lsn <= lsn {
                let record = RecordRef { lsn, wall_ms: header.wall_ms, bytes };
                (self.sink)(Salvaged::Record(record)).map_err(replay_error(lsn))?;
                self.next_lsn = Lsn(lsn.0 + 1);
            }
        }
        Ok(())
    }

    /// Says what is lost at the end.
    fn end(self) -> Result<(), OpenError> {
        // A file that does not verify names no end.
        let named = last_segment::read(self.disk).ok().flatten();
        let last = named.map(|named| named.durable).filter(|durable| self.next_lsn <= *durable);
        if last.is_none() && self.unreadable.is_none() {
            return Ok(());
        }
        let (path, offset) = self
            .unreadable
            .unwrap_or_else(|| (self.disk.path(crate::format::LAST_SEGMENT_NAME), 0));
        let lost = Lost { first: self.next_lsn, last, path: path.clone(), offset };
        (self.sink)(Salvaged::Lost(&lost)).map_err(|source| OpenError::Replay {
            path,
            offset,
            lsn: lost.first,
            source,
        })
    }
}

/// Moves to the next frame that is whole, or to the end of the segment. Returns `false` if nothing
/// but zeros is left.
fn find_frame<D: Disk>(frames: &mut SegmentFrames<'_, D>) -> Result<bool, DiskError> {
    let offset = frames.offset();
    let mut last_used = offset;
    while frames.search(&mut last_used)?.is_some() {
        if let Peeked::Frame { .. } = frames.peek()? {
            return Ok(true);
        }
        frames.pass_found(&mut last_used)?;
    }
    Ok(offset < last_used)
}

/// Returns all files that are named like segments, in order of their numbers.
fn readable_segments<D: Disk>(disk: &D) -> Result<Vec<Segment<D::File>>, OpenError> {
    let mut segments = Vec::new();
    for name in disk.list()? {
        let NameKind::Segment(number) = NameKind::of(&name) else { continue };
        let file = disk.open(&name)?;
        let bytes = disk.length(&file)?;
        let mut block = vec![0; SEGMENT_HEADER_BYTES];
        let read = disk.read_at(&file, 0, &mut block)?;
        let header = match SegmentHeader::decode(&block[..read.min(block.len())]) {
            _ if read < block.len() => continue,
            Ok(header) => Some(header),
            Err(HeaderError::Version(version)) => {
                return Err(OpenError::Version { path: disk.path(&name), version });
            }
            Err(HeaderError::Unused | HeaderError::Invalid) => None,
        };
        segments.push(Segment { name, number, file, bytes, header });
    }
    segments.sort_unstable_by_key(|segment| segment.number);
    Ok(segments)
}
