//! Which version the store has.

use busload_chunks::Manifest;
use busload_objects::Fetched;

use crate::{
    Error,
    layout::{Naming, OLD_GENERATION_MANIFEST},
    limits::{MANIFEST_BYTES_MAX, OPENING_ATTEMPTS_MAX},
    opener::Opener,
};

/// A manifest and its ETag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    etag: String,
    pub manifest: Manifest,
}

/// The manifests of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub naming: Naming,
    /// None: the store has no manifest, so it is empty.
    pub outer: Option<Version>,
    /// Of the old generation, if there is one.
    pub old: Option<Version>,
}

impl Seen {
    /// Names the version, in one line.
    pub fn key(&self) -> String {
        let etag = |version: &Option<Version>| {
            version.as_ref().map_or("-", |version| version.etag.as_str()).to_owned()
        };
        format!("{} {}", etag(&self.outer), etag(&self.old)).replace(['\n', '\r'], " ")
    }
}

/// A manifest against what was known of it.
enum Read {
    Same,
    Missing,
    Other(Version),
}

impl Opener {
    pub(super) async fn read_manifests(&self) -> Result<Seen, Error> {
        match &self.known {
            Some(known @ Seen { outer: Some(outer), .. }) => self.read_known(known, outer).await,
            _ => self.read_first().await,
        }
    }

    /// Finds out what the store looks like.
    async fn read_first(&self) -> Result<Seen, Error> {
        for naming in [Naming::Plain, Naming::BlobStore] {
            if let Read::Other(outer) = self.read_manifest(naming.manifest(), None).await? {
                let old = match naming {
                    Naming::Plain => self.read_old(None).await?,
                    Naming::BlobStore => None,
                };
                return Ok(Seen { naming, outer: Some(outer), old });
            }
        }
        Ok(Seen { naming: Naming::Plain, outer: None, old: None })
    }

    async fn read_known(&self, known: &Seen, outer: &Version) -> Result<Seen, Error> {
        let name = known.naming.manifest();
        let mut seen = known.clone();
        match self.read_manifest(name, Some(outer)).await? {
            // Nobody removes a manifest in the course of things, and "empty" would make every chunk absent.
            Read::Missing => {
                return Err(Error::Unreachable(format!("{}: {name} is gone", self.remote.url())));
            }
            Read::Same if seen.old.is_none() => {}
            Read::Same => seen.old = self.read_old(seen.old.as_ref()).await?.or(seen.old),
            Read::Other(version) => {
                seen.outer = Some(version);
                if known.naming == Naming::Plain {
                    seen.old = self.read_old(seen.old.as_ref()).await?;
                }
            }
        }
        Ok(seen)
    }

    /// That of the old generation, which is read after the outer one: chunks move from the latter to the former.
    async fn read_old(&self, known: Option<&Version>) -> Result<Option<Version>, Error> {
        Ok(match self.read_manifest(OLD_GENERATION_MANIFEST, known).await? {
            Read::Same => known.cloned(),
            Read::Missing => None,
            Read::Other(version) => Some(version),
        })
    }

    async fn read_manifest(&self, name: &str, known: Option<&Version>) -> Result<Read, Error> {
        match self.fetch_believed(name, known.map(|version| version.etag.as_str())).await? {
            Fetched::NotModified => Ok(Read::Same),
            Fetched::Missing => Ok(Read::Missing),
            Fetched::Object { bytes, etag } => {
                let what = format!("{}: {name}", self.remote.url());
                let manifest = Manifest::parse(&bytes).map_err(|error| Error::of_format(&what, error))?;
                Ok(Read::Other(Version { etag, manifest }))
            }
        }
    }

    /// A small object that two reads agree on, if bytes can change on their way here.
    async fn fetch_believed(&self, name: &str, unless: Option<&str>) -> Result<Fetched, Error> {
        let mut last = self.remote.fetch(name, unless, MANIFEST_BYTES_MAX).await?;
        if !self.is_remote || !matches!(last, Fetched::Object { .. }) {
            return Ok(last);
        }
        for _ in 0..OPENING_ATTEMPTS_MAX {
            let next = self.remote.fetch(name, None, MANIFEST_BYTES_MAX).await?;
            if next == last {
                return Ok(next);
            }
            last = next;
        }
        Err(Error::Unreachable(format!("{}: no two reads of {name} give the same bytes", self.remote.url())))
    }
}
