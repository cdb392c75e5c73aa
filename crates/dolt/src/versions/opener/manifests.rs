//! Reads which version the store has.

use busload_chunks::{ChunkAddress, FileSpec, Manifest};
use busload_objects::{Error as ObjectsError, Fetched};

use crate::{
    Error,
    limits::{MANIFEST_BYTES_MAX, OPENING_ATTEMPTS_MAX},
    versions::{
        object_names::{
            Naming, OLD_GENERATION, OLD_GENERATION_MANIFEST, is_journal, is_sign_of_a_store,
        },
        opener::Opener,
    },
};

/// Manifest and the ETag of its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FetchedManifest {
    /// ETag of the object, or a digest of the item.
    pub etag: String,
    pub manifest: Manifest,
}

/// Manifests of one version of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifests {
    pub naming: Naming,
    /// Manifest of the store; none if the store has no manifest, so it is empty.
    pub outer: Option<FetchedManifest>,
    /// Manifest of the old generation, if there is one.
    pub old: Option<FetchedManifest>,
}

impl Manifests {
    /// Makes those of a store whose manifest is an item. Such a store has no old generation.
    pub fn of_item(manifest: FetchedManifest) -> Self {
        Self { naming: Naming::Plain, outer: Some(manifest), old: None }
    }

    /// Identifies the version in one line of text, which tells from another read whether both
    /// gave the same manifests.
    pub fn key(&self) -> String {
        let key = |version: &Option<FetchedManifest>| match version {
            None => "-".to_owned(),
            Some(FetchedManifest { etag, manifest }) => format!("{} {etag}", digest_of(manifest)),
        };
        format!("{} {}", key(&self.outer), key(&self.old)).replace(['\n', '\r'], " ")
    }
}

/// Digest of all that a manifest says.
fn digest_of(manifest: &Manifest) -> ChunkAddress {
    let Manifest { lock, root, gc_generation, files, appendix } = manifest;
    let mut bytes = [&lock[..], &root.0].concat();
    bytes.push(u8::from(gc_generation.is_some()));
    bytes.extend(gc_generation.iter().flatten());
    for specs in [files, appendix] {
        bytes.extend((specs.len() as u64).to_le_bytes());
        for FileSpec { id, chunk_count } in specs {
            bytes.extend(id.0);
            bytes.extend(chunk_count.to_le_bytes());
        }
    }
    ChunkAddress::of(&bytes)
}

/// Outcome of reading a manifest whose last version may be known.
pub(super) enum ManifestRead {
    Same,
    Missing,
    Other(FetchedManifest),
}

impl Opener {
    pub(super) async fn read_manifests(&self) -> Result<Manifests, Error> {
        match &self.known {
            Some(known @ Manifests { outer: Some(outer), .. }) => {
                self.read_known(known, outer).await
            }
            _ => self.read_first().await,
        }
    }

    /// Reads the manifests of a store of which nothing is known. It believes that there is no
    /// manifest only if the store looks empty, too: otherwise every chunk would become absent.
    async fn read_first(&self) -> Result<Manifests, Error> {
        let mut sign = String::new();
        for _ in 0..OPENING_ATTEMPTS_MAX {
            if let Some(manifests) = self.read_any_naming().await? {
                return Ok(manifests);
            }
            let empty = Manifests { naming: Naming::Plain, outer: None, old: None };
            // A store that was empty before may have files before its first manifest: writers
            // write in that order.
            if self.known.is_some() || self.occasion.is_request() {
                return Ok(empty);
            }
            match self.sign_of_a_manifest().await? {
                None => return Ok(empty),
                Some(found) => sign = found,
            }
        }
        let url = self.source.remote.url();
        Err(Error::Unreachable(match &self.item {
            Some(item) => format!(
                "{url}: there is no {}, but there is {sign}: expected both or neither",
                item.name()
            ),
            None => format!(
                "{url}: there is no manifest, but there is {sign}: expected both or neither (if \
                 Dolt's remote is of aws://, the manifest is in DynamoDB: \
                 aws://[TABLE:BUCKET]/DATABASE)"
            ),
        }))
    }

    async fn read_any_naming(&self) -> Result<Option<Manifests>, Error> {
        if let Some(item) = &self.item {
            let outer = self.read_item(item, None).await?;
            return Ok(outer.map(Manifests::of_item));
        }
        // Buckets hold no local blob stores; a store that a request names may not exist at all.
        let is_plain = self.occasion.is_request() && self.source.is_remote;
        let others = (!is_plain).then_some(Naming::BlobStore);
        for naming in [Naming::Plain].into_iter().chain(others) {
            if let ManifestRead::Other(outer) = self.read_manifest(naming.manifest(), None).await? {
                let old = match naming {
                    Naming::Plain => self.read_old(None).await?,
                    Naming::BlobStore => None,
                };
                return Ok(Some(Manifests { naming, outer: Some(outer), old }));
            }
        }
        Ok(None)
    }

    /// Finds an object that exists only where a manifest does, or is about to.
    async fn sign_of_a_manifest(&self) -> Result<Option<String>, Error> {
        let objects = self.list_in_time("").await.map_err(|error| {
            Error::Unreachable(format!(
                "{}: there is no manifest, and whether there are table files cannot be seen: \
                 {error}",
                self.source.remote.url()
            ))
        })?;
        let mut names = objects.into_iter().map(|meta| meta.name);
        if let Some(journal) = names.clone().find(|name| is_journal(name)) {
            return Err(self.refusal_of_journal(&journal));
        }
        Ok(names.find(|name| is_sign_of_a_store(name)))
    }

    async fn read_known(
        &self,
        known: &Manifests,
        outer: &FetchedManifest,
    ) -> Result<Manifests, Error> {
        if let Some(item) = &self.item {
            let found = self.read_item(item, Some(outer)).await?;
            // As with objects below.
            let gone = || Error::Unreachable(format!("{} is gone", item.name()));
            return found.map(Manifests::of_item).ok_or_else(gone);
        }
        let name = known.naming.manifest();
        let mut manifests = known.clone();
        match self.read_manifest(name, Some(outer)).await? {
            // No writer removes a manifest, and "empty" would make every chunk absent.
            ManifestRead::Missing => {
                return Err(Error::Unreachable(format!(
                    "{}: {name} is gone",
                    self.source.remote.url()
                )));
            }
            ManifestRead::Same if manifests.old.is_none() => {}
            ManifestRead::Same => manifests.old = self.read_old(manifests.old.as_ref()).await?,
            ManifestRead::Other(version) => {
                manifests.outer = Some(version);
                if known.naming == Naming::Plain {
                    manifests.old = self.read_old(manifests.old.as_ref()).await?;
                }
            }
        }
        Ok(manifests)
    }

    /// Reads the manifest of the old generation, after the outer one: chunks move from the outer
    /// files to the old generation.
    pub(super) async fn read_old(
        &self,
        known: Option<&FetchedManifest>,
    ) -> Result<Option<FetchedManifest>, Error> {
        let unless = known.map(|version| version.etag.as_str());
        let fetched = match self.fetch_confirmed(OLD_GENERATION_MANIFEST, unless).await {
            Err(error @ ObjectsError::Denied(_)) if known.is_none() => {
                self.missing_for(error).await?
            }
            fetched => fetched?,
        };
        let read = self.parse_manifest(OLD_GENERATION_MANIFEST, fetched)?;
        match read {
            ManifestRead::Same => Ok(known.cloned()),
            ManifestRead::Other(version) => Ok(Some(version)),
            ManifestRead::Missing if known.is_none() => Ok(None),
            // No writer removes this manifest either.
            ManifestRead::Missing => Err(Error::Unreachable(format!(
                "{}: {OLD_GENERATION_MANIFEST} is gone",
                self.source.remote.url()
            ))),
        }
    }

    /// Decides what "denied" means: S3 denies requests for missing objects to callers that may not
    /// list. There is no old generation if the listing says so, or if listing is denied, too, while
    /// the outer manifest can be read.
    async fn missing_for(&self, error: ObjectsError) -> Result<Fetched, Error> {
        let is_missing = match self.list_in_time(OLD_GENERATION).await {
            Ok(objects) => !objects.iter().any(|meta| meta.name == OLD_GENERATION_MANIFEST),
            Err(ObjectsError::Denied(_)) => {
                let outer = self
                    .source
                    .remote
                    .fetch(Naming::Plain.manifest(), None, MANIFEST_BYTES_MAX)
                    .await?;
                matches!(outer, Fetched::Object { .. })
            }
            Err(error) => return Err(error.into()),
        };
        if is_missing { Ok(Fetched::Missing) } else { Err(error.into()) }
    }

    async fn read_manifest(
        &self,
        name: &str,
        known: Option<&FetchedManifest>,
    ) -> Result<ManifestRead, Error> {
        let fetched =
            self.fetch_confirmed(name, known.map(|version| version.etag.as_str())).await?;
        self.parse_manifest(name, fetched)
    }

    pub(super) fn parse_manifest(
        &self,
        name: &str,
        fetched: Fetched,
    ) -> Result<ManifestRead, Error> {
        match fetched {
            Fetched::NotModified => Ok(ManifestRead::Same),
            Fetched::Missing => Ok(ManifestRead::Missing),
            Fetched::Object { bytes, etag } => {
                let what = format!("{}: {name}", self.source.remote.url());
                let manifest =
                    Manifest::parse(&bytes).map_err(|error| Error::of_format(&what, error))?;
                Ok(ManifestRead::Other(FetchedManifest { etag, manifest }))
            }
        }
    }

    /// Reads a small object, or that there is none; over a network, until two reads agree.
    async fn fetch_confirmed(
        &self,
        name: &str,
        unless: Option<&str>,
    ) -> Result<Fetched, ObjectsError> {
        let fetch = |unless| self.source.remote.fetch(name, unless, MANIFEST_BYTES_MAX);
        let (mut last, mut next) = match unless {
            // Both reads are needed, so they run at the same time.
            None if self.source.is_remote => {
                let (last, next) = tokio::try_join!(fetch(None), fetch(None))?;
                (last, Some(next))
            }
            _ => (fetch(unless).await?, None),
        };
        if !self.source.is_remote || last == Fetched::NotModified {
            return Ok(last);
        }
        for _ in 0..OPENING_ATTEMPTS_MAX {
            let read = match next.take() {
                Some(read) => read,
                None => fetch(None).await?,
            };
            if read == last {
                return Ok(read);
            }
            last = read;
        }
        let url = self.source.remote.url();
        Err(ObjectsError::Unreachable(format!(
            "{url}: no two reads of {name} give the same answer"
        )))
    }
}
