//! Finds and opens the table files of a version.

use std::{collections::HashMap, sync::Arc};

use busload_chunks::{FileId, FileKind, FileSpec, TableIndex};
use busload_objects::{Cache, Error as ObjectsError, ObjectMeta};
use futures_util::{
    FutureExt, StreamExt, TryStreamExt,
    future::{self, BoxFuture},
    stream,
};
use tokio::time::timeout;

use crate::{
    Error,
    fault::Fault,
    limits::{HEADS_MAX, LISTING_TIMEOUT, OPENING_ATTEMPTS_MAX, OPENING_FILES_MAX},
    versions::{
        object_names::{Naming, OLD_GENERATION},
        opener::{Opener, index::index_sidecar_name, listing::Listing, manifests::Manifests},
        table_file::TableFile,
        version::Version,
    },
};

/// Name of the sidecar that holds the listing.
const LISTING_SIDECAR: &str = "files";

/// Table file that a version names.
#[derive(Clone, Copy)]
struct Wanted {
    naming: Naming,
    folder: &'static str,
    spec: FileSpec,
}

/// Object that may be a wanted file.
struct Candidate {
    kind: FileKind,
    meta: ObjectMeta,
}

/// Open files, by whether they are at the top of the store, and by id.
type OpenFiles<'a> = HashMap<(bool, FileId), &'a Arc<TableFile>>;

impl Opener {
    /// Opens all table files of a version, in the order of lookup. Lists the store if the caller
    /// has not, and if that pays.
    pub(super) async fn open_files(
        &self,
        manifests: &Manifests,
        current: Option<&Version>,
        listing: Option<Listing>,
    ) -> Result<Vec<Arc<TableFile>>, Error> {
        let open = open_files(current);
        let wanted = wanted(manifests);
        let index_bytes =
            wanted.iter().map(|file| TableIndex::classic_tail_bytes(file.spec.chunk_count));
        self.budget.check_store(index_bytes.sum())?;
        let new_count = wanted.iter().filter(|file| !open.contains_key(&file.key())).count();
        let listing = match listing {
            Some(listing) => listing,
            None => self.listing(manifests, current.is_none(), new_count).await?,
        };
        let opening: Vec<BoxFuture<'_, _>> = wanted
            .into_iter()
            .map(|file| match open.get(&file.key()) {
                Some(open) => future::ok((*open).clone()).boxed(),
                None => self.open_file(file, &listing).boxed(),
            })
            .collect();
        stream::iter(opening).buffered(OPENING_FILES_MAX).try_collect().await
    }

    /// Lists the store's objects, where that pays: at the first opening, and when a version brings
    /// many new files. The opener asks by name for files that are not in the listing.
    async fn listing(
        &self,
        manifests: &Manifests,
        is_first: bool,
        new_count: usize,
    ) -> Result<Listing, Error> {
        let is_empty = manifests.outer.is_none();
        if is_empty || (!is_first && new_count <= HEADS_MAX) {
            return Ok(Listing::default());
        }
        if is_first
            && let Some(sidecar) = self.listing_sidecar().await
            && let Some(listing) = Listing::from_text(&sidecar, &manifests.key())
        {
            return Ok(listing);
        }
        match self.list_all(manifests).await {
            Ok(listing) => {
                self.refuse_journal(manifests.naming, &listing)?;
                Ok(listing)
            }
            Err(error) => {
                let url = self.source.remote.url();
                log::info!(
                    "{url} cannot be listed, so {new_count} table files are asked for by name: \
                     {error}"
                );
                self.ask_for_journal(manifests.naming).await?;
                Ok(Listing::default())
            }
        }
    }

    async fn list_all(&self, manifests: &Manifests) -> Result<Listing, ObjectsError> {
        let mut objects = self.list_in_time("").await?;
        if manifests.old.is_some() {
            objects.extend(self.list_in_time(OLD_GENERATION).await?);
        }
        Ok(objects.into_iter().collect())
    }

    /// Lists the objects of a folder, unless other objects make that take too long.
    pub(super) async fn list_in_time(&self, folder: &str) -> Result<Vec<ObjectMeta>, ObjectsError> {
        let late = |_| {
            let url = self.source.remote.url();
            Err(ObjectsError::Unreachable(format!(
                "{url}: the listing timed out after {LISTING_TIMEOUT:?}"
            )))
        };
        timeout(LISTING_TIMEOUT, self.source.remote.list(folder)).await.unwrap_or_else(late)
    }

    pub(super) fn refuse_journal(&self, naming: Naming, listing: &Listing) -> Result<(), Error> {
        let journal = naming.table_file("", &FileId::JOURNAL, FileKind::Classic);
        match listing.get(&journal) {
            None => Ok(()),
            Some(_) => Err(self.refusal_of_journal(&journal)),
        }
    }

    /// Asks for a journal by name, where the store cannot be listed. "Denied" may then mean that
    /// there is none.
    async fn ask_for_journal(&self, naming: Naming) -> Result<(), Error> {
        let journal = naming.table_file("", &FileId::JOURNAL, FileKind::Classic);
        match self.source.remote.head(&journal).await {
            Ok(None) | Err(ObjectsError::Denied(_)) => Ok(()),
            Ok(Some(_)) => Err(self.refusal_of_journal(&journal)),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn refusal_of_journal(&self, journal: &str) -> Error {
        Error::Refused(format!(
            "{} holds a journal ({journal}): it is a local database, whose newest chunks are in \
             no table file; push it to a remote (`dolt push`) and serve that",
            self.source.remote.url()
        ))
    }

    /// Reads the listing that was kept when the store was open last.
    pub(super) async fn listing_sidecar(&self) -> Option<String> {
        let remote = Arc::clone(&self.source.remote);
        let read = move |cache: &Cache| cache.read_sidecar(remote.url(), LISTING_SIDECAR);
        let sidecar = self.source.cache.run_blocking(read).await.flatten()?;
        String::from_utf8(sidecar.into()).ok()
    }

    /// Returns the listing of an earlier version, if it lacks so few files of this one that asking
    /// for them by name is cheaper than another listing.
    pub(super) fn earlier_listing(&self, text: &str, manifests: &Manifests) -> Option<Listing> {
        let listing = Listing::of_any_version(text)?;
        let wanted = wanted(manifests);
        let new_count = wanted.iter().filter(|file| file.listed(&listing).is_none()).count();
        (new_count <= HEADS_MAX).then_some(listing)
    }

    /// Opens a file by its possible names, without a round trip to look for it.
    async fn open_by_name(&self, wanted: Wanted) -> Option<Arc<TableFile>> {
        let FileSpec { id, chunk_count } = wanted.spec;
        let read = |kind| self.read_index_by_name(kind, wanted.name(kind), chunk_count);
        let (classic, archive) =
            future::join(read(FileKind::Classic), read(FileKind::Archive)).await;
        let (kind, (meta, index)) = match (classic, archive) {
            (Some(classic), _) => (FileKind::Classic, classic),
            (None, archive) => (FileKind::Archive, archive?),
        };
        let object = self.source.object(&meta);
        Some(Arc::new(TableFile::new(id, kind, object, index)))
    }

    async fn open_file(&self, wanted: Wanted, listing: &Listing) -> Result<Arc<TableFile>, Error> {
        let mut candidate = wanted.listed(listing);
        if candidate.is_none()
            && self.is_first_request()
            && let Some(file) = self.open_by_name(wanted).await
        {
            return Ok(file);
        }
        for _ in 0..OPENING_ATTEMPTS_MAX {
            let Candidate { kind, meta } = match candidate.take() {
                Some(candidate) => candidate,
                None => self.ask_for(wanted).await?,
            };
            match self.read_index(kind, &meta, wanted.spec.chunk_count).await {
                Ok(index) => {
                    let object = self.source.object(&meta);
                    return Ok(Arc::new(TableFile::new(wanted.spec.id, kind, object, index)));
                }
                // The listing was wrong, or the object was replaced since.
                Err(Fault::Gone) => {}
                Err(Fault::Error(error)) => return Err(error),
                Err(Fault::Corrupt(text)) => {
                    return Err(Error::Corrupt(format!(
                        "{}: {}: {text}",
                        self.source.remote.url(),
                        meta.name
                    )));
                }
            }
        }
        Err(Error::Unreachable(format!(
            "{}: table file {} is replaced again and again while it is opened",
            self.source.remote.url(),
            wanted.spec.id
        )))
    }

    /// Asks the object store for a file by its possible names.
    async fn ask_for(&self, wanted: Wanted) -> Result<Candidate, Error> {
        let name = |kind| wanted.name(kind);
        let (classic, archive) = (name(FileKind::Classic), name(FileKind::Archive));
        let candidate = |kind, meta| Ok(Candidate { kind, meta });
        match future::join(self.source.remote.head(&classic), self.source.remote.head(&archive))
            .await
        {
            (Ok(Some(meta)), _) => candidate(FileKind::Classic, meta),
            // S3 denies requests for missing objects to callers that may not list.
            (Ok(None) | Err(ObjectsError::Denied(_)), Ok(Some(meta))) => {
                candidate(FileKind::Archive, meta)
            }
            (Err(error), _) | (_, Err(error)) => Err(error.into()),
            (Ok(None), Ok(None)) => Err(Error::Unreachable(format!(
                "{}: the manifest names table file {}, but there is no object {classic} or \
                 {archive}",
                self.source.remote.url(),
                wanted.spec.id,
            ))),
        }
    }
}

impl Wanted {
    fn key(&self) -> (bool, FileId) {
        (self.folder.is_empty(), self.spec.id)
    }

    fn name(&self, kind: FileKind) -> String {
        self.naming.table_file(self.folder, &self.spec.id, kind)
    }

    /// Finds the file in a listing. Dolt, too, tries the plain name first.
    fn listed(&self, listing: &Listing) -> Option<Candidate> {
        [FileKind::Classic, FileKind::Archive].into_iter().find_map(|kind| {
            let meta = listing.get(&self.name(kind))?.clone();
            Some(Candidate { kind, meta })
        })
    }
}

fn wanted(manifests: &Manifests) -> Vec<Wanted> {
    let outer = manifests
        .outer
        .iter()
        .flat_map(|version| version.manifest.lookup_order())
        .map(|spec| ("", spec));
    let old = manifests.old.iter().flat_map(|version| version.manifest.lookup_order());
    let old = old.map(|spec| (OLD_GENERATION, spec));
    let wanted = |(folder, spec)| Wanted { naming: manifests.naming, folder, spec };
    outer.chain(old).map(wanted).collect()
}

/// Files open in the current version, those in their grace period included: a file may come back.
fn open_files(current: Option<&Version>) -> OpenFiles<'_> {
    let files = current.iter().flat_map(|version| version.files()).filter(|file| !file.is_gone());
    let prefix = format!("{OLD_GENERATION}/");
    files.map(|file| ((!file.name().starts_with(&prefix), file.id), file)).collect()
}

/// Writes the listing of a version as a sidecar, and removes index sidecars of other files.
pub(super) fn write_sidecars(cache: &Cache, store: &str, key: &str, version: &Version) {
    let listing: Listing =
        version.snapshot.files.iter().map(|file| file.object.meta().clone()).collect();
    if let Some(text) = listing.to_text(key)
        && cache.read_sidecar(store, LISTING_SIDECAR).is_none_or(|kept| kept != text.as_bytes())
    {
        cache.write_sidecar(store, LISTING_SIDECAR, text.as_bytes());
    }
    let indexes: std::collections::HashSet<String> =
        version.files().map(|file| index_sidecar_name(file.object.meta())).collect();
    cache.retain_sidecars(store, &|name| name == LISTING_SIDECAR || indexes.contains(name));
}
