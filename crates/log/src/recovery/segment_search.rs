//! Finds the segments and checks that they belong together.

use busload_io::Disk;

use super::{Base, OpenError};
use crate::{
    Lsn,
    format::{HeaderError, INCOMPLETE_NAME, NameKind, SEGMENT_HEADER_BYTES, SegmentHeader},
};

/// File whose name is that of a segment.
#[derive(Debug)]
pub(crate) struct Segment<F> {
    pub name: String,
    pub number: u64,
    pub file: F,
    pub bytes: u64,
    /// Header and its checksum; `None` if the segment was prepared but never used.
    pub header: Option<(SegmentHeader, u32)>,
}

/// Segments whose records a snapshot covers: a start does not need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Earlier {
    pub count: u64,
    pub bytes: u64,
}

/// Segments found, in order of their numbers.
pub(crate) struct Found<F> {
    /// Segments without a gap, all of one log: from the first on, or, with a base, from the one on
    /// in which the record behind the base is or will be.
    pub segments: Vec<Segment<F>>,
    pub earlier: Earlier,
}

/// Finds the segments. Does not read their frames.
pub(crate) fn find_segments<D: Disk>(
    disk: &D,
    base: Option<&Base>,
) -> Result<Found<D::File>, OpenError> {
    let mut numbered = numbered_segments(disk)?;
    let mut segments = Vec::new();
    while let Some((number, name)) = numbered.pop() {
        let segment = read_header(disk, number, name)?;
        let is_start = base.is_some_and(|base| base.is_in_or_before(&segment));
        segments.push(segment);
        if is_start {
            break;
        }
    }
    segments.reverse();
    check_numbers(disk, &segments, base)?;
    check_headers(disk, &segments, base)?;
    let mut earlier = Earlier::default();
    for (_, name) in &numbered {
        earlier.count += 1;
        earlier.bytes += disk.length(&disk.open(name)?)?;
    }
    Ok(Found { segments, earlier })
}

/// Finds the segments of a log that is being written: from the one on in which the record behind
/// the base is, up to the last one that has been begun. They are not open.
pub(crate) fn find_segments_in_use<D: Disk>(
    disk: &D,
    base: Option<&Base>,
) -> Result<Vec<Segment<()>>, OpenError> {
    let mut numbered = numbered_segments(disk)?;
    let mut segments = Vec::new();
    while let Some((number, name)) = numbered.pop() {
        let segment = match read_header(disk, number, name) {
            // The log's thread may be writing this header at the moment.
            Err(OpenError::Corrupt { .. }) if segments.is_empty() => continue,
            segment => segment?,
        };
        if segment.header.is_none() && segments.is_empty() {
            continue;
        }
        let is_start = base.is_some_and(|base| base.is_in_or_before(&segment));
        segments.push(segment.with_file(()));
        if is_start {
            break;
        }
    }
    segments.reverse();
    check_numbers(disk, &segments, base)?;
    check_headers(disk, &segments, base)?;
    Ok(segments)
}

impl<F> Segment<F> {
    fn with_file<G>(self, file: G) -> Segment<G> {
        let Self { name, number, bytes, header, .. } = self;
        Segment { name, number, file, bytes, header }
    }
}

impl Segment<()> {
    pub fn open<D: Disk>(&self, disk: &D) -> Result<Segment<D::File>, OpenError> {
        let Self { name, number, bytes, header, .. } = self;
        let file = disk.open(name)?;
        Ok(Segment { name: name.clone(), number: *number, file, bytes: *bytes, header: *header })
    }
}

/// Returns the files that are named like segments, sorted by their numbers.
pub(crate) fn numbered_segments<D: Disk>(disk: &D) -> Result<Vec<(u64, String)>, OpenError> {
    let mut numbered = Vec::new();
    for name in disk.list()? {
        if name == INCOMPLETE_NAME {
            return Err(OpenError::Incomplete { path: disk.path(&name) });
        }
        match NameKind::of(&name) {
            NameKind::Segment(number) => numbered.push((number, name)),
            NameKind::Malformed => return Err(OpenError::MalformedName { path: disk.path(&name) }),
            NameKind::Temporary | NameKind::Other => {}
        }
    }
    numbered.sort_unstable();
    Ok(numbered)
}

impl Base {
    /// Returns whether the first record behind the base is in this segment or behind it.
    fn is_in_or_before<F>(&self, segment: &Segment<F>) -> bool {
        segment.header.is_some_and(|(header, _)| header.first_lsn.0 <= self.lsn.0 + 1)
    }
}

/// Checks that nothing is missing between the segments, nor before them.
fn check_numbers<D: Disk, F>(
    disk: &D,
    segments: &[Segment<F>],
    base: Option<&Base>,
) -> Result<(), OpenError> {
    let Some(first) = segments.first() else { return Ok(()) };
    let path = disk.path(&first.name);
    match base {
        None if first.number != 1 => return Err(OpenError::MissingBeginning { path }),
        Some(base) if !base.is_in_or_before(first) => {
            let header = segments.iter().find_map(|segment| segment.header);
            let covered = base.lsn;
            return Err(match header {
                Some((header, _)) => {
                    let first = header.first_lsn;
                    OpenError::MissingBehindSnapshot { path, first, covered }
                }
                // A segment in use stays until two snapshots cover it and the next is in use. So
                // this is a copy made while the log was written: this segment was copied before
                // its first use, and those before it were removed before they were copied.
                None => OpenError::MissingInUse { path, covered },
            });
        }
        _ => {}
    }
    for pair in segments.windows(2) {
        let [before, behind] = pair else { continue };
        if before.number + 1 != behind.number {
            return Err(OpenError::MissingSegment {
                number: before.number + 1,
                before: disk.path(&before.name),
                behind: disk.path(&behind.name),
            });
        }
    }
    Ok(())
}

pub(crate) fn read_header<D: Disk>(
    disk: &D,
    number: u64,
    name: String,
) -> Result<Segment<D::File>, OpenError> {
    let file = disk.open(&name)?;
    let bytes = disk.length(&file)?;
    let corrupt = |what: &str| OpenError::Corrupt {
        path: disk.path(&name),
        offset: 0,
        lsn: Lsn(0),
        what: what.to_owned(),
    };
    let mut block = vec![0; SEGMENT_HEADER_BYTES];
    if disk.read_at(&file, 0, &mut block)? < block.len() {
        return Err(corrupt("the file is shorter than a segment's header"));
    }
    let header = match SegmentHeader::decode(&block) {
        Ok((header, _)) if header.number != number => {
            return Err(OpenError::WrongNumber { path: disk.path(&name), found: header.number });
        }
        Ok(header) => Some(header),
        Err(HeaderError::Unused) => None,
        Err(HeaderError::Version(version)) => {
            return Err(OpenError::Version { path: disk.path(&name), version });
        }
        Err(HeaderError::Invalid) => return Err(corrupt("the segment's header does not verify")),
    };
    Ok(Segment { name, number, file, bytes, header })
}

/// Checks that all segments in use, and the base, name the same log. One that was never used (or
/// whose header a crash took) may be among them: the walk over the frames judges what follows it.
fn check_headers<D: Disk, F>(
    disk: &D,
    segments: &[Segment<F>],
    base: Option<&Base>,
) -> Result<(), OpenError> {
    let mut log_id = base.map(|base| base.log_id);
    for segment in segments {
        let Some((header, _)) = segment.header else { continue };
        let expected = *log_id.get_or_insert(header.log_id);
        if header.log_id != expected {
            return Err(OpenError::Foreign {
                path: disk.path(&segment.name),
                expected,
                found: header.log_id,
            });
        }
    }
    Ok(())
}
