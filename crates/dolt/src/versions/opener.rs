//! Looks at the manifest and opens what it names.
//!
//! * **Order.** The manifest first, then that of the old generation if there is one, then the
//!   listing, then the indexes of files that are new, many at once. Whoever writes does it the
//!   other way round, so what is read later is never older.
//! * **Certainty.** A manifest and an index say what does *not* exist, and nothing in them is
//!   checked against anything. So what comes over a network is believed when two reads of it agree:
//!   a flipped bit must not make a chunk absent. Indexes are kept on local disk afterwards. That
//!   there is no manifest is believed of a store in which there is no table file either, and never
//!   after one was manifests.
//! * **Permissions.** To read objects (`s3:GetObject`) is enough. Without `s3:ListBucket`, or where
//!   there are too many other objects to list them in time, files are asked for by name, which
//!   takes one or two requests for each.
//! * **Memory.** Ends of files under way have [`OPENING_BYTES_MAX`] bytes together.
//! * **All or nothing.** A version one of whose files cannot be opened is not switched to.

mod index;
mod listing;
mod manifests;
mod memory_budget;
mod table_files;

use std::sync::Arc;

use busload_objects::{Cache, Remote};

pub(crate) use self::index::index_sidecar_name;

use crate::{
    Error,
    limits::OPENING_BYTES_MAX,
    versions::opener::{
        manifests::{FetchedManifest, Manifests},
        memory_budget::MemoryBudget,
    },
    versions::table_file::TableFile,
    versions::version::{Snapshot, Version},
};

/// What a store is opened with.
pub(crate) struct Opener {
    remote: Arc<Remote>,
    cache: Arc<Cache>,
    /// Whether bytes may change on their way here.
    is_remote: bool,
    /// Memory for ends of files under way.
    room: MemoryBudget,
    /// What the current version was opened from.
    known: Option<Manifests>,
}

impl Opener {
    pub fn new(url: &str, remote: Arc<Remote>, cache: Arc<Cache>) -> Self {
        let is_remote = !url.starts_with("file:");
        Self { remote, cache, is_remote, room: MemoryBudget::new(OPENING_BYTES_MAX), known: None }
    }

    /// Looks at the manifest: a version other than the one that is open. Files that are open and
    /// still named are used on, but for those whose objects are gone.
    pub async fn look(&mut self, current: Option<&Version>) -> Result<Option<Snapshot>, Error> {
        let manifests = self.read_manifests().await?;
        let is_whole =
            current.is_some_and(|view| !view.snapshot.files.iter().any(|file| file.is_gone()));
        if is_whole && self.known.as_ref() == Some(&manifests) {
            return Ok(None);
        }
        let files = self.open_files(&manifests, current).await?;
        let snapshot = snapshot(&manifests, files);
        self.known = Some(manifests);
        Ok(Some(snapshot))
    }

    /// Keeps on local disk what opens this version sooner the next time, and forgets the rest.
    pub fn tidy(&self, view: Arc<Version>) -> impl Future<Output = ()> + Send + 'static {
        let cache = self.cache.clone();
        let version = self.known.as_ref().map(Manifests::key);
        async move {
            let Some(version) = version else { return };
            // None: the runtime ends.
            cache.run_blocking(move |cache| table_files::keep(cache, &version, &view)).await;
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
