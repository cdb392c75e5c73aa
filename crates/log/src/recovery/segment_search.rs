//! Finds the segments and checks that they belong together.

use busload_io::Disk;

use super::OpenError;
use crate::{
    Lsn,
    format::{HeaderError, NameKind, SEGMENT_HEADER_BYTES, SegmentHeader},
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

/// Returns all segments in order of their numbers, from the first on without a gap, all of one log.
/// Does not read their frames.
pub(crate) fn find_segments<D: Disk>(disk: &D) -> Result<Vec<Segment<D::File>>, OpenError> {
    let mut numbered = Vec::new();
    for name in disk.list()? {
        match NameKind::of(&name) {
            NameKind::Segment(number) => numbered.push((number, name)),
            NameKind::Malformed => return Err(OpenError::MalformedName { path: disk.path(&name) }),
            NameKind::Temporary | NameKind::Other => {}
        }
    }
    numbered.sort_unstable();
    check_numbers(disk, &numbered)?;
    let segments = numbered.into_iter().map(|(number, name)| read_header(disk, number, name));
    let segments = segments.collect::<Result<Vec<_>, _>>()?;
    check_headers(disk, &segments)?;
    Ok(segments)
}

fn check_numbers<D: Disk>(disk: &D, numbered: &[(u64, String)]) -> Result<(), OpenError> {
    if let Some((number, name)) = numbered.first()
        && *number != 1
    {
        return Err(OpenError::MissingBeginning { path: disk.path(name) });
    }
    for pair in numbered.windows(2) {
        let [(before, before_name), (behind, behind_name)] = pair else { continue };
        if before + 1 != *behind {
            return Err(OpenError::MissingSegment {
                number: before + 1,
                before: disk.path(before_name),
                behind: disk.path(behind_name),
            });
        }
    }
    Ok(())
}

fn read_header<D: Disk>(
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

/// Checks that all segments in use name the same log. One that was never used (or whose header a
/// crash took) may be among them: the walk over the frames judges what follows it.
fn check_headers<D: Disk>(disk: &D, segments: &[Segment<D::File>]) -> Result<(), OpenError> {
    let mut log_id = None;
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
