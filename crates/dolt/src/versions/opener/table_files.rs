//! Finds and opens the files of a version.

use std::{collections::HashMap, sync::Arc};

use busload_chunks::{FileId, FileKind, FileSpec};
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
    versions::object_names::{Naming, OLD_GENERATION},
    versions::opener::listing::Listing,
    versions::opener::{Opener, index::index_sidecar_name, manifests::Manifests},
    versions::table_file::TableFile,
    versions::version::Version,
};

/// Under which the listing is kept.
const LISTING_SIDECAR: &str = "files";

/// A file that a version names.
#[derive(Clone, Copy)]
struct Wanted {
    naming: Naming,
    folder: &'static str,
    spec: FileSpec,
}

/// An object that may be it.
struct Candidate {
    kind: FileKind,
    meta: ObjectMeta,
}

/// What is open, by folder and id.
type OpenFiles<'a> = HashMap<(bool, FileId), &'a Arc<TableFile>>;

impl Opener {
    /// Opens all files of a version, in the order of lookup.
    pub(super) async fn open_files(
        &self,
        manifests: &Manifests,
        current: Option<&Version>,
    ) -> Result<Vec<Arc<TableFile>>, Error> {
        let open = open_files(current);
        let wanted = wanted(manifests);
        let new_count = wanted.iter().filter(|file| !open.contains_key(&file.key())).count();
        let listing = self.listing(manifests, current.is_none(), new_count).await?;
        let opening: Vec<BoxFuture<'_, _>> = wanted
            .into_iter()
            .map(|file| match open.get(&file.key()) {
                Some(open) => future::ok((*open).clone()).boxed(),
                None => self.open_file(file, &listing).boxed(),
            })
            .collect();
        stream::iter(opening).buffered(OPENING_FILES_MAX).try_collect().await
    }

    /// What the store holds, as far as it pays to know: all of it when it is opened, something when
    /// a version brings many files. What is missing here is asked for by name.
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
        if is_first && let Some(kept) = self.kept_listing(manifests).await {
            return Ok(kept);
        }
        match self.list_all(manifests).await {
            Ok(listing) => {
                self.refuse_journal(manifests.naming, &listing)?;
                Ok(listing)
            }
            Err(error) => {
                let url = self.remote.url();
                log::info!(
                    "{url} cannot be listed, so {new_count} table files are asked for by name: {error}"
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

    /// Objects of a folder, unless there are so many others that this takes too long.
    pub(super) async fn list_in_time(&self, folder: &str) -> Result<Vec<ObjectMeta>, ObjectsError> {
        let late = |_| {
            let url = self.remote.url();
            Err(ObjectsError::Unreachable(format!("{url}: no listing within {LISTING_TIMEOUT:?}")))
        };
        timeout(LISTING_TIMEOUT, self.remote.list(folder)).await.unwrap_or_else(late)
    }

    fn refuse_journal(&self, naming: Naming, listing: &Listing) -> Result<(), Error> {
        let journal = naming.table_file("", &FileId::JOURNAL, FileKind::Classic);
        match listing.get(&journal) {
            None => Ok(()),
            Some(_) => Err(self.refusal_of_journal(&journal)),
        }
    }

    /// Where nothing can be listed. What is denied then cannot be told from what is not there.
    async fn ask_for_journal(&self, naming: Naming) -> Result<(), Error> {
        let journal = naming.table_file("", &FileId::JOURNAL, FileKind::Classic);
        match self.remote.head(&journal).await {
            Ok(None) | Err(ObjectsError::Denied(_)) => Ok(()),
            Ok(Some(_)) => Err(self.refusal_of_journal(&journal)),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn refusal_of_journal(&self, journal: &str) -> Error {
        Error::Refused(format!(
            "{} holds a journal ({journal}): it is a local database, whose newest chunks are in no table file; \
             push it to a remote (`dolt push`) and serve that",
            self.remote.url()
        ))
    }

    async fn kept_listing(&self, manifests: &Manifests) -> Option<Listing> {
        let key = manifests.key();
        let read = move |cache: &Cache| {
            let kept = cache.kept(LISTING_SIDECAR)?;
            Listing::from_text(std::str::from_utf8(&kept).ok()?, &key)
        };
        self.cache.run_blocking(read).await.flatten()
    }

    async fn open_file(&self, wanted: Wanted, listing: &Listing) -> Result<Arc<TableFile>, Error> {
        let mut candidate = wanted.listed(listing);
        for _ in 0..OPENING_ATTEMPTS_MAX {
            let Candidate { kind, meta } = match candidate.take() {
                Some(candidate) => candidate,
                None => self.ask_for(wanted).await?,
            };
            match self.read_index(kind, &meta, wanted.spec.chunk_count).await {
                Ok(index) => {
                    let object = self.cache.object(&self.remote, &meta);
                    return Ok(Arc::new(TableFile::new(wanted.spec.id, kind, object, index)));
                }
                // What the listing said was not true, or is no longer.
                Err(Fault::Gone) => {}
                Err(Fault::Error(error)) => return Err(error),
                Err(Fault::Corrupt(text)) => {
                    return Err(Error::Corrupt(format!(
                        "{}: {}: {text}",
                        self.remote.url(),
                        meta.name
                    )));
                }
            }
        }
        Err(Error::Unreachable(format!(
            "{}: table file {} is replaced again and again while it is opened",
            self.remote.url(),
            wanted.spec.id
        )))
    }

    /// Asks for a file by its possible names.
    async fn ask_for(&self, wanted: Wanted) -> Result<Candidate, Error> {
        let name = |kind| wanted.name(kind);
        let (classic, archive) = (name(FileKind::Classic), name(FileKind::Archive));
        let candidate = |kind, meta| Ok(Candidate { kind, meta });
        match future::join(self.remote.head(&classic), self.remote.head(&archive)).await {
            (Ok(Some(meta)), _) => candidate(FileKind::Classic, meta),
            // S3 denies what is missing to whoever may not list.
            (Ok(None) | Err(ObjectsError::Denied(_)), Ok(Some(meta))) => {
                candidate(FileKind::Archive, meta)
            }
            (Err(error), _) | (_, Err(error)) => Err(error.into()),
            (Ok(None), Ok(None)) => Err(Error::Unreachable(format!(
                "{}: the manifest names table file {}, but there is no object {classic} or {archive}",
                self.remote.url(),
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

    /// Dolt takes the plain name first.
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

/// Also those dropped lately: a file may come back.
fn open_files(current: Option<&Version>) -> OpenFiles<'_> {
    let files = current.iter().flat_map(|view| view.files()).filter(|file| !file.is_gone());
    let prefix = format!("{OLD_GENERATION}/");
    files.map(|file| ((!file.name().starts_with(&prefix), file.id), file)).collect()
}

/// Keeps what was found of the files of a version, and only their indexes.
pub(super) fn keep(cache: &Cache, version: &str, view: &Version) {
    let listing: Listing =
        view.snapshot.files.iter().map(|file| file.object.meta().clone()).collect();
    if let Some(text) = listing.to_text(version) {
        cache.keep(LISTING_SIDECAR, text.as_bytes());
    }
    let indexes: std::collections::HashSet<String> =
        view.files().map(|file| index_sidecar_name(file.object.meta())).collect();
    cache.keep_only(&|name| name == LISTING_SIDECAR || indexes.contains(name));
}
