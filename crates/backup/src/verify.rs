//! Verifies all files of a backup.

use busload_io::Disk;
use busload_log::copy::{Until, scan};
use busload_snapshot::Snapshot;

use crate::{BackupError, Event, Manifest, event::Say, ranges::open_segment, restore::check_file};

/// Verifies every file: its checksum in the manifest, and its contents as a restore would. Returns
/// what is wrong, a line for each file.
///
/// # Errors
/// If the disk fails.
pub fn verify<D: Disk>(
    disk: &D,
    manifest: &Manifest,
    say: &mut Say<'_>,
) -> Result<Vec<String>, BackupError> {
    say(Event::Total(manifest.bytes()));
    let mut problems = Vec::new();
    let mut note = |verified: Result<(), BackupError>, bytes: u64| {
        say(Event::Done(bytes));
        match verified {
            Err(BackupError::Disk(error)) => Err(error.into()),
            Err(error) => {
                problems.push(error.to_string());
                Ok::<_, BackupError>(())
            }
            Ok(()) => Ok(()),
        }
    };
    for entry in &manifest.snapshots {
        let verified = check_file(disk, &entry.name(), entry.written).and_then(|()| {
            let snapshot = Snapshot::open(disk, entry.lsn)?;
            Ok(snapshot.verify(disk)?)
        });
        note(verified, entry.written.bytes)?;
    }
    for entry in &manifest.segments {
        let verified = check_file(disk, &entry.name(), entry.written).and_then(|()| {
            scan(disk, &open_segment(disk, entry)?, Until::Point(entry.end))?;
            Ok(())
        });
        note(verified, entry.written.bytes)?;
    }
    Ok(problems)
}
