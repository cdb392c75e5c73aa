//! Makes the end of a log durable, of which a start knows only what the system shows to readers.

use std::io::IoSlice;

use busload_io::{Disk, DiskError};

use super::{Base, LogFiles, Walked};
use crate::{Lsn, limits::REWRITE_BYTES};

/// Writes what may not have been synced again, with the same bytes, and syncs it. If a sync failed
/// in the process before, the system shows the bytes to readers and yet never writes them: it calls
/// their pages clean, and a further sync succeeds.
pub(super) fn unsynced<D: Disk>(
    disk: &D,
    found: &LogFiles<D::File>,
    walked: &Walked,
    base: Option<&Base>,
) -> Result<(), DiskError> {
    let named = found.last.map_or(Lsn(0), |last| last.durable);
    let durable = named.max(base.map_or(Lsn(0), |base| base.lsn));
    let Some(first) = walked.unsynced.first(durable) else { return Ok(()) };
    let mut bytes = vec![0; REWRITE_BYTES];
    let segments = found.segments[..walked.kept_count].iter().enumerate();
    for (index, segment) in segments.skip(first.index) {
        let mut offset = if index == first.index { first.offset } else { 0 };
        let end = if index + 1 == walked.kept_count { walked.end } else { segment.bytes };
        while offset < end {
            let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(bytes.len());
            let read = disk.read_at(&segment.file, offset, &mut bytes[..length])?;
            if read == 0 {
                break;
            }
            disk.write_at(&segment.file, offset, &[IoSlice::new(&bytes[..read])])?;
            offset += read as u64;
        }
        disk.sync(&segment.file)?;
    }
    Ok(())
}
