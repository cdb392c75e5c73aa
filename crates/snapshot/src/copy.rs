//! Copies a snapshot: into a backup as it is, and from there into a log with another id.

use busload_io::Disk;
use busload_log::{
    copy::{FileWriter, Written},
    format::LogId,
};

use crate::{
    Snapshot, SnapshotError,
    format::{Header, TEMPORARY_NAME, snapshot_name},
};

/// Copies a snapshot under its name to another directory. Every block is verified before it is
/// copied. With the log id of the original the copy is the same byte for byte; with another one
/// all checksums are made anew, since they begin with the id. `progress` learns how many bytes
/// were written.
///
/// The copy is synced; its name is durable with the next sync of the directory.
///
/// # Errors
/// If a disk fails, or something in the file does not verify.
pub fn copy<D: Disk, E: Disk>(
    from: &D,
    snapshot: &Snapshot<D::File>,
    to: &E,
    log_id: LogId,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, SnapshotError> {
    let header = Header { log_id, ..*snapshot.header() };
    let seed = header.checksum_seed();
    let mut file = FileWriter::create(to, TEMPORARY_NAME)?;
    file.write(&header.encode())?;
    let offset = snapshot.stored_blocks(from, &mut |block, stored| {
        let bytes = block.encode(seed, &[stored]);
        file.write(&bytes)?;
        file.write(stored)?;
        progress((bytes.len() + stored.len()) as u64);
        Ok(())
    })?;
    file.write(&snapshot.footer.encode(seed, offset))?;
    Ok(file.finish(&snapshot_name(header.lsn))?)
}
