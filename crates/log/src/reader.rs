//! Reads and trims a log while it is being written: for snapshots.
//!
//! Everything up to [`Progress::durable`] stands in the segments and changes no more, so another
//! thread may read it without a word to the log's.

use busload_io::{Disk, DiskError};

use crate::{
    Base, Lsn, OpenError, Progress, RecordRef, ReplayError,
    format::{COPY_LOCK_NAME, LogId, spare_name},
    limits::READ_SEGMENTS_OPEN_MAX,
    progress::SharedProgress,
    recovery::{find_segments_in_use, numbered_segments, read_header, walk_durable},
    spares::Spare,
};

/// Summary of what [`read_durable`] has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Id of the log.
    pub log_id: LogId,
    /// Number of records given to the caller.
    pub records: u64,
    /// Number of the segment that holds the last of them.
    pub segment: u64,
    /// Latest time of day of the records and of the base, in milliseconds since 1970.
    pub wall_ms: i64,
}

/// Gives the records behind `base`, up to `until`, to `sink`. All of them must be durable. Returns
/// `None` if there are none.
///
/// # Errors
/// If the disk fails, the log is corrupt in this range, or `sink` fails.
pub fn read_durable<D: Disk>(
    disk: &D,
    base: Option<&Base>,
    until: Lsn,
    sink: &mut dyn FnMut(RecordRef<'_>) -> Result<(), ReplayError>,
) -> Result<Option<Read>, OpenError> {
    let covered = |base: Option<&Base>| base.map_or(Lsn(0), |base| base.lsn);
    if until <= covered(base) {
        return Ok(None);
    }
    let segments = find_segments_in_use(disk, base)?;
    let (mut base, mut read) = (base.copied(), None);
    let mut groups = segments.chunks(READ_SEGMENTS_OPEN_MAX).peekable();
    while let Some(group) = groups.next() {
        let following = groups.peek().and_then(|following| following.first()?.header);
        let end = following.map_or(until, |(next, _)| until.min(Lsn(next.first_lsn.0 - 1)));
        if end <= covered(base.as_ref()) {
            continue;
        }
        let open = group.iter().map(|segment| segment.open(disk)).collect::<Result<Vec<_>, _>>()?;
        let walked = walk_durable(disk, &open, base.as_ref(), end, sink)?;
        let Some(log_id) = walked.log_id else { break };
        let (segment, wall_ms) = (walked.last_number(), walked.wall_ms.unwrap_or(i64::MIN));
        let records = walked.records + read.map_or(0, |earlier: Read| earlier.records);
        read = Some(Read { log_id, records, segment, wall_ms });
        base = Some(Base { log_id, lsn: end, segment, wall_ms });
        if end == until {
            break;
        }
    }
    Ok(read)
}

/// Returns whether every segment of the log is there, from the first one on; false if there is
/// none, as where a restore left only a snapshot.
pub fn is_whole<D: Disk>(disk: &D) -> Result<bool, OpenError> {
    let numbered = numbered_segments(disk)?;
    let is_whole = numbered.iter().zip(1..).all(|((number, _), expected)| *number == expected);
    Ok(is_whole && !numbered.is_empty())
}

/// Removes the segments all of whose records are at or before `covered`, the oldest first, but
/// keeps files of `spare_bytes_max` bytes in all, to be segments again. Returns how many were
/// removed or kept so.
///
/// The caller keeps snapshots that cover them. A crash leaves any of these segments, also with gaps
/// between: a start does not look at them, and the next call removes them.
pub fn remove_covered<D: Disk>(
    disk: &D,
    progress: &Progress,
    covered: Lsn,
    spare_bytes_max: u64,
) -> Result<u64, OpenError> {
    let numbered = numbered_segments(disk)?;
    // From the last one back to the first that begins at or before the next record: this one may
    // hold it, those before do not.
    let mut needed_count = 0;
    for (number, name) in numbered.iter().rev() {
        needed_count += 1;
        let header = match read_header(disk, *number, name.clone()) {
            // The log's thread may be writing this header at the moment.
            Err(OpenError::Corrupt { .. }) => None,
            segment => segment?.header,
        };
        if header.is_some_and(|(header, _)| header.first_lsn.0 <= covered.0 + 1) {
            break;
        }
    }
    let removable = &numbered[..numbered.len() - needed_count];
    if removable.is_empty() {
        return Ok(0);
    }
    let SharedProgress { counters, spares, .. } = &*progress.shared;
    let length = |name: &str| disk.length(&disk.open(name)?);
    // The next segments will be as long as the last one.
    let wanted_bytes = numbered.last().map_or(Ok(0), |(_, name)| length(name))?;
    let mut spare_bytes = if is_copied(disk) { u64::MAX } else { spares.bytes() };
    let mut kept = Vec::new();
    for (number, name) in removable {
        let bytes = length(name)?;
        if bytes == wanted_bytes && spare_bytes.saturating_add(bytes) <= spare_bytes_max {
            let spare = Spare { name: spare_name(*number), bytes };
            disk.rename(name, &spare.name)?;
            spare_bytes += bytes;
            kept.push(spare);
        } else {
            disk.remove(name)?;
        }
        counters.removed(bytes);
    }
    disk.sync_directory()?;
    if is_copied(disk) {
        // The other process may have opened them since, under their old names.
        kept.iter().try_for_each(|spare| disk.remove(&spare.name))?;
    } else {
        spares.add(kept);
    }
    Ok(removable.len() as u64)
}

/// Returns whether another process copies segments, so that none may be overwritten.
fn is_copied<D: Disk>(disk: &D) -> bool {
    disk.lock(COPY_LOCK_NAME).is_err()
}

/// Removes the files that are kept to be segments again. Returns whether there were any.
pub fn remove_spares<D: Disk>(disk: &D, progress: &Progress) -> Result<bool, DiskError> {
    progress.shared.spares.remove_all(disk)
}

/// Lock under which another process copies segments; see [`copy_lock`].
#[derive(Debug)]
pub struct CopyLock<F>(#[allow(dead_code, reason = "it is held until it is dropped")] F);

/// Keeps a process that has the log open from using files of segments again: until the lock is
/// dropped, a segment that was opened under its name holds what it held. Fails while another
/// process holds the lock, or that process looks whether one does.
pub fn copy_lock<D: Disk>(disk: &D) -> Result<CopyLock<D::File>, DiskError> {
    disk.lock(COPY_LOCK_NAME).map(CopyLock)
}
