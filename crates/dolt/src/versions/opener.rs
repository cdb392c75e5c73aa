//! Reads the manifest and opens the table files that it names.
//!
//! * **Order.** The opener reads the manifest first, then that of the old generation if there is
//!   one, then the listing, then the indexes of new files, many at once. Writers write in the
//!   reverse order, so what is read later is never older.
//! * **Certainty.** A manifest and an index say what does *not* exist, and no checksum covers them.
//!   So over a network the opener believes them when two reads agree: a flipped bit must not make a
//!   chunk absent (an item of DynamoDB comes with a checksum). Indexes are then kept as sidecars on
//!   local disk. The opener believes that there is no manifest only if there is no table file
//!   either, and never after it has seen one. Of a store that a request named it asks for one
//!   manifest and nothing else: the store's answer that there is none is the answer.
//! * **Permissions.** Reading objects (`s3:GetObject`) is enough. Without `s3:ListBucket`, or where
//!   other objects make a listing too slow, the opener asks for each file by name, which takes one
//!   or two requests per file.
//! * **Memory.** The indexes in transit take
//!   [`OPENING_BYTES_MAX`](crate::limits::OPENING_BYTES_MAX) bytes together, those of all stores
//!   that share a budget.
//! * **All or nothing.** If one file of a version cannot be opened, the store keeps its version.

mod first_request;
mod index;
mod item_manifest;
mod listing;
mod manifests;
mod memory_budget;
mod table_files;
mod write_order;

use std::sync::Arc;

use busload_dynamo::ItemReader;
use busload_objects::Cache;

use self::write_order::WriteOrder;
pub(crate) use self::{index::index_sidecar_name, memory_budget::MemoryBudget};

use crate::{
    Error, Occasion,
    object_source::ObjectSource,
    usage::StoreUsage,
    versions::{
        opener::manifests::{FetchedManifest, Manifests},
        table_file::TableFile,
        version::{Snapshot, Version},
    },
};

/// Opens new versions of one store.
pub(crate) struct Opener {
    source: ObjectSource,
    /// Item with the manifest, if that is not an object.
    item: Option<ItemReader>,
    /// Memory for indexes in transit.
    budget: Arc<MemoryBudget>,
    occasion: Occasion,
    usage: Arc<StoreUsage>,
    /// Manifests of the version opened last.
    known: Option<Manifests>,
    /// Order of the versions whose sidecars are written.
    sidecars: WriteOrder,
}

impl Opener {
    pub fn new(
        source: ObjectSource,
        item: Option<ItemReader>,
        budget: Arc<MemoryBudget>,
        occasion: Occasion,
        usage: Arc<StoreUsage>,
    ) -> Self {
        let sidecars = WriteOrder::default();
        Self { source, item, budget, occasion, usage, known: None, sidecars }
    }

    /// Reads the manifest and opens its version, if that is not the current one. Open files that
    /// are still named are reused, unless their objects are gone.
    pub async fn open_new(&mut self, current: Option<&Version>) -> Result<Option<Snapshot>, Error> {
        if self.is_first_request() {
            return self.open_first().await.map(Some);
        }
        let manifests = self.read_manifests().await?;
        let is_whole = current
            .is_some_and(|version| !version.snapshot.files.iter().any(|file| file.is_gone()));
        if is_whole && self.known.as_ref() == Some(&manifests) {
            return Ok(None);
        }
        let files = self.open_files(&manifests, current, None).await?;
        Ok(Some(self.note(manifests, files)))
    }

    /// Returns whether a request waits for the store, and no version was opened yet.
    fn is_first_request(&self) -> bool {
        self.occasion.is_request() && self.source.is_remote && self.known.is_none()
    }

    /// Notes which version was opened.
    fn note(&mut self, manifests: Manifests, files: Vec<Arc<TableFile>>) -> Snapshot {
        let snapshot = snapshot(&manifests, files);
        self.known = Some(manifests);
        snapshot
    }

    /// Writes sidecars that open this version faster the next time, and removes the others. Does
    /// nothing if those of a later version were written before it came to that.
    pub fn write_sidecars(
        &mut self,
        version: Arc<Version>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let cache = self.source.cache.clone();
        let remote = Arc::clone(&self.source.remote);
        let key = self.known.as_ref().map(Manifests::key);
        let turn = self.sidecars.next();
        async move {
            let Some(key) = key else { return };
            let write = move |cache: &Cache| {
                turn.write(|| table_files::write_sidecars(cache, remote.url(), &key, &version));
            };
            // Returns none when the runtime ends.
            cache.run_blocking(write).await;
        }
    }
}

fn snapshot(manifests: &Manifests, files: Vec<Arc<TableFile>>) -> Snapshot {
    let manifest = |version: &FetchedManifest| version.manifest.clone();
    Snapshot {
        manifest: manifests.outer.as_ref().map_or_else(busload_chunks::Manifest::empty, manifest),
        has_manifest: manifests.outer.is_some(),
        old_generation: manifests.old.as_ref().map(manifest),
        files,
        naming: manifests.naming,
    }
}
