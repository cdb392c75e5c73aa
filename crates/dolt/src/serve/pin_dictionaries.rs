//! Brings dictionaries to memory before their places are told.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Instant,
};

use busload_chunks::Span;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{Located, Location};
use crate::{
    Error, Store, TableFile,
    fault::Fault,
    limits::{DICTIONARY_VERIFYING_READS_MAX, PINNING_MAX},
    read::decode::Wanted,
    read::reader::ReadRequest,
    shared::Shared,
    versions::table_file::range,
    versions::version::ChunkCopy,
};

/// A dictionary to be pinned, and chunks that are right only if it is.
struct Unpinned {
    file: Arc<TableFile>,
    span: Span,
    positions: Vec<u32>,
}

impl Store {
    /// Makes sure that the dictionaries of these chunks can be served from now on, until their
    /// files are closed and others have taken their place in memory.
    ///
    /// # Errors
    /// One of them cannot be had, or is not right; those that are in memory by then stay there.
    pub async fn pin_dictionaries(
        &self,
        located: &Located,
        deadline: Instant,
    ) -> Result<(), Error> {
        let shared = self.shared();
        let unpinned = unpinned(located);
        if unpinned.is_empty() {
            return Ok(());
        }
        let reading = shared.clone();
        shared.run(deadline, async move { reading.pin_all(unpinned, deadline).await }).await
    }
}

/// What is not pinned yet, each once.
fn unpinned(located: &Located) -> Vec<Unpinned> {
    let mut found: BTreeMap<(u64, Span), Unpinned> = BTreeMap::new();
    let mut pinned = None;
    for Location { file, position, dictionary, .. } in located.locations.iter().flatten() {
        let Some(span) = *dictionary else { continue };
        let key = (file.serial, span);
        // Nearly all chunks of a file share one.
        if pinned == Some(key) {
            continue;
        }
        match found.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().add(*position),
            Entry::Vacant(_) if file.pins.has(span) => pinned = Some(key),
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

impl Shared {
    /// PinnedDictionaries a dictionary with which a chunk came out right. That chunk may not have needed the byte
    /// that is wrong, so the store is asked twice.
    async fn try_pin(&self, unpinned: &Unpinned) -> Result<bool, Fault> {
        let Unpinned { file, span, .. } = unpinned;
        let Some(stored) =
            self.dictionaries.get(file, *span).and_then(|known| known.stored_if_verified())
        else {
            return Ok(false);
        };
        let is_remote = !self.remote.url().starts_with("file:");
        if is_remote && self.remote.read(file.object.meta(), range(*span)).await? != stored {
            self.dictionaries.forget(file, *span);
            file.object.invalidate(range(*span));
            return Ok(false);
        }
        file.pins.insert(*span, &stored).map_err(|_| too_many(file))?;
        Ok(true)
    }

    async fn pin_all(
        self: &Arc<Self>,
        unpinned: Vec<Unpinned>,
        deadline: Instant,
    ) -> Result<(), Error> {
        let pinning = stream::iter(unpinned).map(|unpinned| self.pin(unpinned, deadline));
        pinning.buffer_unordered(PINNING_MAX).try_collect().await
    }

    /// Reads a chunk that needs the dictionary, for that is what shows whether it is right.
    async fn pin(self: &Arc<Self>, unpinned: Unpinned, deadline: Instant) -> Result<(), Error> {
        let file = &unpinned.file;
        let mut last = None;
        for position in unpinned.positions.iter().cycle().take(DICTIONARY_VERIFYING_READS_MAX) {
            let place = ChunkCopy { file: file.clone(), position: *position };
            let address = file.index.address(*position);
            let job = ReadRequest { address, want: Wanted::Length, local_only: false, deadline };
            let pinned = match self.read_copy_unless_corrupt(&place, None, job).await {
                Ok(_) => self.try_pin(&unpinned).await,
                Err(fault) => Err(fault),
            };
            match pinned {
                Ok(true) => return Ok(()),
                // Others took its place in memory meanwhile, or two reads do not agree.
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
            None => Error::Unreachable(format!(
                "a dictionary of {} was not kept: ask again",
                file.name()
            )),
        })
    }
}

fn too_many(file: &TableFile) -> Error {
    Error::Refused(format!(
        "{} has more dictionaries than are kept in memory for one file; the layout `records` needs none \
         (`dolt_layout = \"records\"`)",
        file.name()
    ))
}
