//! Maintains the file `last-segment`, by which a start notices that the end of a log was lost.
//!
//! Its number is never above that of a segment whose name is durable. The helper raises it after
//! the directory sync that makes a new segment's name durable and before anything is written to
//! that segment; a start lowers it before it removes segments. So if the segment it names does not
//! exist, that segment was lost. A crash between any two steps leaves either the old file or the
//! new one.

use std::io::IoSlice;

use busload_io::{Disk, DiskError, DiskErrorKind};

use crate::{
    OpenError,
    format::{
        LAST_SEGMENT_BYTES, LAST_SEGMENT_NAME, LAST_SEGMENT_TEMPORARY_NAME, LastSegment,
        LastSegmentError,
    },
    recovery::{Segment, Walked},
};

/// Replaces the file; durable with the next sync of the directory. After an error of kind `NoSpace`
/// the file is unchanged.
pub(crate) fn put<D: Disk>(disk: &D, last: &LastSegment) -> Result<(), DiskError> {
    let replaced = write(disk, last)
        .and_then(|()| disk.rename(LAST_SEGMENT_TEMPORARY_NAME, LAST_SEGMENT_NAME));
    if replaced.as_ref().is_err_and(|error| error.kind == DiskErrorKind::NoSpace) {
        remove_if_there(disk, LAST_SEGMENT_TEMPORARY_NAME)?;
    }
    replaced
}

fn write<D: Disk>(disk: &D, last: &LastSegment) -> Result<(), DiskError> {
    let file = create_anew(disk, LAST_SEGMENT_TEMPORARY_NAME)?;
    disk.write_at(&file, 0, &[IoSlice::new(&last.encode())])?;
    disk.sync(&file)
}

/// Creates a file and replaces one that an earlier attempt left.
pub(crate) fn create_anew<D: Disk>(disk: &D, name: &str) -> Result<D::File, DiskError> {
    match disk.create(name) {
        Err(error) if error.kind == DiskErrorKind::Exists => {
            disk.remove(name)?;
            disk.create(name)
        }
        created => created,
    }
}

/// Removes a file that need not exist.
pub(crate) fn remove_if_there<D: Disk>(disk: &D, name: &str) -> Result<(), DiskError> {
    match disk.remove(name) {
        Err(error) if error.kind != DiskErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Lowers the number to that of `last`, durably, so that the segments after it may be removed. If
/// the disk is too full even for that, removes the file until the next segment is named: a full
/// disk never keeps a log from opening.
pub(crate) fn lower<D: Disk>(disk: &D, last: &LastSegment) -> Result<(), DiskError> {
    match put(disk, last) {
        Err(error) if error.kind == DiskErrorKind::NoSpace => disk.remove(LAST_SEGMENT_NAME)?,
        put => put?,
    }
    disk.sync_directory()
}

/// Reads the file; `None` when it does not exist, as in a log that an older version wrote. A file
/// that does not verify is refused: no crash leaves one, and without it a start could not notice
/// missing segments.
pub(crate) fn read<D: Disk>(disk: &D) -> Result<Option<LastSegment>, OpenError> {
    let file = match disk.open(LAST_SEGMENT_NAME) {
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let path = || disk.path(LAST_SEGMENT_NAME);
    // One byte more than expected, so that a longer file is noticed.
    let mut bytes = [0; LAST_SEGMENT_BYTES + 1];
    let count = disk.read_at(&file, 0, &mut bytes)?;
    match LastSegment::decode(&bytes[..count]) {
        Ok(last) => Ok(Some(last)),
        Err(LastSegmentError::Version(version)) => {
            Err(OpenError::Version { path: path(), version })
        }
        Err(LastSegmentError::Invalid) => Err(OpenError::LastSegmentInvalid { path: path() }),
    }
}

/// Checks that the segments reach as far as the file says.
pub(crate) fn check_segments<D: Disk>(
    disk: &D,
    last: Option<&LastSegment>,
    segments: &[Segment<D::File>],
) -> Result<(), OpenError> {
    let Some(last) = last else { return Ok(()) };
    let path = disk.path(LAST_SEGMENT_NAME);
    let log_id = segments.iter().find_map(|segment| Some(segment.header?.0.log_id));
    if let Some(expected) = log_id.filter(|&log_id| log_id != last.log_id) {
        return Err(OpenError::Foreign { path, expected, found: last.log_id });
    }
    let number = segments.last().map_or(0, |segment| segment.number) + 1;
    if number <= last.number {
        let (last, durable) = (last.number, last.durable);
        return Err(OpenError::MissingEnd { number, path, last, durable });
    }
    Ok(())
}

/// Checks that the records reach as far as the file says.
pub(crate) fn check_records<D: Disk>(
    disk: &D,
    last: Option<&LastSegment>,
    segments: &[Segment<D::File>],
    walked: &Walked,
) -> Result<(), OpenError> {
    let Some(last) = last.filter(|last| walked.next_lsn <= last.durable) else { return Ok(()) };
    let name =
        walked.kept_count.checked_sub(1).map_or(LAST_SEGMENT_NAME, |index| &segments[index].name);
    let what = format!(
        "the records end here, and yet {LAST_SEGMENT_NAME} says that everything \
         up to LSN {} was durable",
        last.durable
    );
    Err(OpenError::Corrupt {
        path: disk.path(name),
        offset: walked.end,
        lsn: walked.next_lsn,
        what,
    })
}
