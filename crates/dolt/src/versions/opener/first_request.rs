//! The first opening of a store that a request named, in as few round trips as can be.
//!
//! ```text
//!  1: manifest, and a listing beside it
//!  2: the manifest again, the old generation's, and the indexes of the files, all at once
//! ```
//!
//! What must agree over a network is still read twice. Unless the two reads differ, or there is an
//! old generation, or the listing fails, the first chunk comes with the third round trip.
//!
//! A store that was open before has a listing on local disk, and the indexes of its files. If the
//! first read gives the manifest to which they belong, it confirms the reads of that time, and
//! opening the store takes this one request. If not, the opener reads the indexes of the few new
//! files by their possible names, in place of a listing, so that it still takes two round trips.

use busload_objects::Fetched;
use futures_util::future::{join, try_join3};

use crate::{
    Error, Occasion,
    limits::MANIFEST_BYTES_MAX,
    versions::{
        object_names::Naming,
        opener::{
            Opener,
            listing::Listing,
            manifests::{FetchedManifest, ManifestRead, Manifests},
        },
        version::Snapshot,
    },
};

/// Outcome of the first read of a manifest.
enum FirstRead {
    Missing,
    /// A manifest that a second read has to confirm.
    Unconfirmed(FetchedManifest),
    /// A manifest that came with a checksum.
    Certain(FetchedManifest),
}

impl Opener {
    /// Opens the version that the store has now; one without a manifest if there is none.
    pub(super) async fn open_first(&mut self) -> Result<Snapshot, Error> {
        let kept = self.listing_sidecar().await;
        let list = async {
            // Whoever may not list asks for files by name.
            match (self.occasion, &kept) {
                (Occasion::Guess, _) | (_, Some(_)) => None,
                _ => self.list_in_time("").await.ok(),
            }
        };
        let (first, listed) = join(self.read_first_manifest(), list).await;
        let listing: Option<Listing> = listed.map(|objects| objects.into_iter().collect());
        let (outer, is_certain) = match first? {
            FirstRead::Missing => {
                let none = Manifests { naming: Naming::Plain, outer: None, old: None };
                return Ok(self.note(none, Vec::new()));
            }
            FirstRead::Unconfirmed(outer) => (outer, false),
            FirstRead::Certain(outer) => (outer, true),
        };
        let mut manifests = Manifests { naming: Naming::Plain, outer: Some(outer), old: None };
        let key = manifests.key();
        if let Some(same) = kept.as_ref().and_then(|text| Listing::from_text(text, &key)) {
            let files = self.open_files(&manifests, None, Some(same)).await?;
            return Ok(self.note(manifests, files));
        }
        let listing =
            listing.or_else(|| kept.and_then(|text| self.earlier_listing(&text, &manifests)));
        if let Some(listing) = &listing {
            self.refuse_journal(manifests.naming, listing)?;
        }
        let confirmed = async {
            match (is_certain, &manifests.outer) {
                (false, Some(outer)) => self.is_confirmed(outer).await,
                _ => Ok(true),
            }
        };
        let old = async {
            // A store whose manifest is an item has no old generation.
            if is_certain { Ok(None) } else { self.read_old(None).await }
        };
        let files = self.open_files(&manifests, None, listing);
        let (files, is_confirmed, old) = try_join3(files, confirmed, old).await?;
        if !is_confirmed {
            manifests = self.read_manifests().await?;
        } else if old.is_some() {
            manifests.old = old;
        } else {
            return Ok(self.note(manifests, files));
        }
        let files = self.open_files(&manifests, None, None).await?;
        Ok(self.note(manifests, files))
    }

    async fn read_first_manifest(&self) -> Result<FirstRead, Error> {
        if let Some(item) = &self.item {
            let found = self.read_item(item, None).await?;
            return Ok(found.map_or(FirstRead::Missing, FirstRead::Certain));
        }
        let name = Naming::Plain.manifest();
        let fetched = self.source.remote.fetch(name, None, MANIFEST_BYTES_MAX).await?;
        match self.parse_manifest(name, fetched)? {
            ManifestRead::Other(manifest) => Ok(FirstRead::Unconfirmed(manifest)),
            ManifestRead::Missing | ManifestRead::Same => Ok(FirstRead::Missing),
        }
    }

    /// Reads the manifest once more and compares.
    async fn is_confirmed(&self, first: &FetchedManifest) -> Result<bool, Error> {
        let name = Naming::Plain.manifest();
        let fetched = self.source.remote.fetch(name, None, MANIFEST_BYTES_MAX).await?;
        let is_object = matches!(fetched, Fetched::Object { .. });
        match self.parse_manifest(name, fetched) {
            Ok(ManifestRead::Other(again)) => Ok(again == *first),
            // Corrupted on the way, or replaced meanwhile: the reads that follow decide.
            Err(_) if is_object => Ok(false),
            Err(error) => Err(error),
            Ok(ManifestRead::Missing | ManifestRead::Same) => Ok(false),
        }
    }
}
