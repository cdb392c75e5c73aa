//! Loads a snapshot into tables at a start.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, PoisonError, mpsc},
    thread,
};

use busload_io::{Disk, DiskError};
use busload_log::Lsn;
use busload_tables::{
    HashPrefix, TableId, Tables,
    effect::{ApplyError, Replayer, decode},
};

use crate::{
    Catalogue, Snapshot, SnapshotError,
    format::lsn_of_name,
    limits::READ_AHEAD_BYTES,
    make::MakeError,
    prepare::{prepared_tables, push_groups},
};

/// Contents of a snapshot that was loaded.
pub struct Loaded {
    /// Tables with the snapshot's entries.
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
/// order in which the tables keep them: neighbours go to the same cache lines. A second thread
/// reads, verifies and decompresses ahead. `progress` is called with the number of bytes of entries
/// loaded so far.
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
    let record = snapshot.catalogue(disk)?;
    catalogue.note(&record).map_err(ApplyError::from)?;
    let expected: Vec<_> = estimate(disk, snapshot)?.into_iter().collect();
    let mut tables = prepared_tables(snapshot.header().seed, &record, &expected, HashPrefix::ALL)?;
    let mut replayer = Replayer::new(&mut tables);
    let (sender, receiver) = mpsc::channel::<Result<Vec<u8>, SnapshotError>>();
    let ahead = ReadAhead::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            let sender = sender;
            let blocks = (0..snapshot.partitions().len())
                .flat_map(|partition| snapshot.blocks(disk, partition));
            for block in blocks {
                let failed = block.is_err();
                ahead.add(block.as_ref().map_or(0, Vec::len));
                // The receiver is gone if a block could not be applied.
                if sender.send(block).is_err() || failed {
                    return;
                }
            }
        });
        // Whatever ends the loop, the reader must not wait for it any more.
        let _opened = OpenWhenDropped(&ahead);
        let mut bytes = 0;
        for block in receiver {
            let block = block?;
            push_groups(&mut replayer, &block)?;
            bytes += block.len() as u64;
            ahead.remove(block.len());
            progress(bytes);
        }
        Ok::<_, MakeError>(())
    })?;
    replayer.finish();
    Ok(Loaded { tables, catalogue })
}

/// Estimates the number of entries of each table from the first partition.
fn estimate<D: Disk>(
    disk: &D,
    snapshot: &Snapshot<D::File>,
) -> Result<BTreeMap<TableId, usize>, MakeError> {
    let mut counts = BTreeMap::new();
    for block in snapshot.blocks(disk, 0) {
        for effect in decode(&block?) {
            if let Some(table) = effect.map_err(ApplyError::from)?.table() {
                *counts.entry(table).or_default() += snapshot.partitions().len();
            }
        }
    }
    let most = usize::try_from(snapshot.entries()).unwrap_or(usize::MAX);
    counts.values_mut().for_each(|count: &mut usize| *count = most.min(*count));
    Ok(counts)
}

/// Bytes of blocks that were read and not yet applied.
#[derive(Debug, Default)]
struct ReadAhead {
    bytes: Mutex<usize>,
    changed: Condvar,
}

impl ReadAhead {
    /// Counts a block, and waits while there are too many bytes before it.
    fn add(&self, bytes: usize) {
        let ahead = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |ahead: &mut usize| READ_AHEAD_BYTES <= *ahead;
        let waited = self.changed.wait_while(ahead, full);
        let mut ahead = waited.unwrap_or_else(PoisonError::into_inner);
        *ahead = ahead.saturating_add(bytes);
    }

    fn remove(&self, bytes: usize) {
        let mut ahead = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *ahead = ahead.saturating_sub(bytes);
        self.changed.notify_one();
    }
}

/// Lets the reader go on when the applying loop has ended.
struct OpenWhenDropped<'a>(&'a ReadAhead);

impl Drop for OpenWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.remove(usize::MAX);
    }
}
