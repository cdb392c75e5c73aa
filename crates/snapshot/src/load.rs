//! Loads a snapshot into tables at a start.

use std::{sync::mpsc, thread};

use busload_io::{Disk, DiskError};
use busload_log::Lsn;
use busload_tables::{
    Tables,
    effect::{ApplyError, Replayer, decode},
    limits::REPLAY_GROUP_BYTES,
};

use crate::{
    Catalogue, Snapshot, SnapshotError, format::lsn_of_name, limits::READ_AHEAD_BLOCKS,
    make::MakeError,
};

/// Contents of a snapshot that was loaded.
pub struct Loaded {
    /// Tables and the catalogue of them.
    pub tables: Tables,
    /// Tables that the log knows.
    pub catalogue: Catalogue,
}

/// Returns the LSNs of the snapshots in the directory, the newest first.
pub fn newest_first<D: Disk>(disk: &D) -> Result<Vec<Lsn>, DiskError> {
    let names = disk.list()?;
    let mut lsns: Vec<_> = names.iter().filter_map(|name| lsn_of_name(name)).collect();
    lsns.sort_unstable();
    lsns.reverse();
    Ok(lsns)
}

/// Loads a snapshot into tables. Their hash has the snapshot's seed, so the entries come in the
/// order in which the tables keep them, which is several times as fast as any other. A second
/// thread reads, verifies and decompresses ahead. `progress` is called with the number of bytes of
/// entries loaded so far.
///
/// # Errors
/// If any block does not verify, or holds something that no snapshot holds.
pub fn load<D>(
    disk: &D,
    snapshot: &Snapshot<D::File>,
    progress: &mut dyn FnMut(u64),
) -> Result<Loaded, MakeError>
where
    D: Disk + Sync,
    D::File: Sync,
{
    let mut catalogue = Catalogue::default();
    let mut tables = Tables::new(snapshot.header().seed);
    let mut replayer = Replayer::new(&mut tables);
    let record = snapshot.catalogue(disk)?;
    catalogue.note(&record).map_err(ApplyError::from)?;
    replayer.push(&record)?;
    let (sender, receiver) =
        mpsc::sync_channel::<Result<Vec<u8>, SnapshotError>>(READ_AHEAD_BLOCKS);
    thread::scope(|scope| {
        scope.spawn(move || {
            let blocks = (0..snapshot.partitions().len())
                .flat_map(|partition| snapshot.blocks(disk, partition));
            for block in blocks {
                let failed = block.is_err();
                // The receiver is gone if a block could not be applied.
                if sender.send(block).is_err() || failed {
                    return;
                }
            }
        });
        let mut bytes = 0;
        for block in receiver {
            let block = block?;
            push_groups(&mut replayer, &block)?;
            bytes += block.len() as u64;
            progress(bytes);
        }
        Ok::<_, MakeError>(())
    })?;
    replayer.finish();
    Ok(Loaded { tables, catalogue })
}

/// Pushes effects in groups that the replayer decodes ahead.
fn push_groups(replayer: &mut Replayer<'_>, block: &[u8]) -> Result<(), ApplyError> {
    let mut effects = decode(block);
    let mut start = 0;
    while let Some(effect) = effects.next() {
        effect?;
        let end = effects.offset();
        if REPLAY_GROUP_BYTES / 2 <= end - start {
            replayer.push(&block[start..end])?;
            start = end;
        }
    }
    replayer.push(&block[start..])
}
