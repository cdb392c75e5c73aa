//! Pins dictionaries: brings them to memory before a client is told where they are.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Instant,
};

use busload_chunks::Span;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{Located, Location};
use crate::{
    Error, TableFile,
    fault::Fault,
    limits::{DICTIONARY_VERIFYING_READS_MAX, PINNING_MAX},
    read::{
        decode::Wanted,
        file_chunk_reader::{FileChunkReader, ReadRequest},
    },
    versions::{table_file::range, version::FileChunk},
};

/// Pins the dictionaries of located chunks. They stay in memory until their files are closed and
/// other dropped files have taken their memory.
pub(crate) async fn pin_dictionaries(
    file_chunks: &Arc<FileChunkReader>,
    located: &Located,
    deadline: Instant,
) -> Result<(), Error> {
    let unpinned = unpinned(located);
    if unpinned.is_empty() {
        return Ok(());
    }
    let reader = file_chunks.clone();
    let pin_all = async move {
        let pinning = stream::iter(unpinned).map(|unpinned| pin(&reader, unpinned, deadline));
        pinning.buffer_unordered(PINNING_MAX).try_collect().await
    };
    file_chunks.lifecycle.run(deadline, pin_all).await
}

/// Dictionary to pin, and chunks whose decoding verifies it.
struct Unpinned {
    file: Arc<TableFile>,
    span: Span,
    positions: Vec<u32>,
}

/// Lists the dictionaries that are not pinned yet, each once.
fn unpinned(located: &Located) -> Vec<Unpinned> {
    let mut found: BTreeMap<(u64, Span), Unpinned> = BTreeMap::new();
    let mut pinned = None;
    for Location { file, position, dictionary, .. } in located.locations.iter().flatten() {
        let Some(span) = *dictionary else { continue };
        let key = (file.serial, span);
        // Nearly all chunks of a file share one dictionary.
        if pinned == Some(key) {
            continue;
        }
        match found.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().add(*position),
            Entry::Vacant(_) if file.pinned.has(span) => pinned = Some(key),
            Entry::Vacant(new) => {
                new.insert(Unpinned { file: file.clone(), span, positions: vec![*position] });
            }
        }
    }
    found.into_values().collect()
}

impl Unpinned {
    fn add(&mut self, position: u32) {
        if self.positions.len() < DICTIONARY_VERIFYING_READS_MAX {
            self.positions.push(position);
        }
    }
}

/// Reads chunks that need the dictionary until one verifies it, and pins it.
async fn pin(
    file_chunks: &FileChunkReader,
    unpinned: Unpinned,
    deadline: Instant,
) -> Result<(), Error> {
    let file = &unpinned.file;
    let mut last = None;
    for position in unpinned.positions.iter().cycle().take(DICTIONARY_VERIFYING_READS_MAX) {
        let chunk = FileChunk { file: file.clone(), position: *position };
        let address = file.index.address(*position);
        let request = ReadRequest { address, wanted: Wanted::Length, local_only: false, deadline };
        let pinned = match file_chunks.read_verified(&chunk, None, request).await {
            Ok(_) => try_pin(file_chunks, &unpinned).await,
            Err(fault) => Err(fault),
        };
        match pinned {
            Ok(true) => return Ok(()),
            // Other dictionaries evicted it meanwhile, or two reads do not agree.
            Ok(false) => {}
            Err(Fault::Corrupt(text)) => last = Some(text),
            Err(Fault::Gone) => {
                return Err(Error::Unreachable(format!(
                    "{} is being replaced: ask again",
                    file.name()
                )));
            }
            Err(Fault::Error(error)) => return Err(error),
        }
    }
    Err(match last {
        Some(text) => Error::Corrupt(text),
        None => {
            Error::Unreachable(format!("a dictionary of {} was not kept: ask again", file.name()))
        }
    })
}

/// Pins a dictionary with which a chunk was verified. That chunk may not have needed the byte that
/// is wrong, so a second read of the store has to agree.
async fn try_pin(file_chunks: &FileChunkReader, unpinned: &Unpinned) -> Result<bool, Fault> {
    let Unpinned { file, span, .. } = unpinned;
    let loaded = file_chunks.dictionaries.get(file, *span);
    let Some(stored) = loaded.and_then(|loaded| loaded.stored_if_verified()) else {
        return Ok(false);
    };
    let (source, meta) = (&file_chunks.source, file.object.meta());
    if source.is_remote && source.remote.read(meta, range(*span)).await? != stored {
        file_chunks.dictionaries.evict(file, *span);
        file.object.invalidate(range(*span));
        return Ok(false);
    }
    file.pinned.insert(*span, &stored).map_err(|_| too_many(file))?;
    Ok(true)
}

fn too_many(file: &TableFile) -> Error {
    Error::Refused(format!(
        "{} has more dictionaries than are kept in memory for one file; the layout `records` needs \
         none (`dolt_layout = \"records\"`)",
        file.name()
    ))
}
