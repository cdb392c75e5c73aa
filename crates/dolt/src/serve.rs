//! Where chunks are, and the files they are in, for who reads bytes of files instead of chunks.
//!
//! ```text
//!  addresses --> locate --> Located: one version, files, spans --+--> told to somebody, who asks for ranges of files later
//!                              |                                 |
//!                              +--> prefetch: a task reads and   +--> file_bytes, by name and version --> stream
//!                              |    checks what is not local            ^               ^          ^      chunk by chunk:
//!                              |    .......... bytes landed ............|...............+          |      verified
//!                              +--> pin_dictionaries ...... in memory with their file .............+
//! ```
//!
//! * **One version.** All that one question is told is of one version. What no file has is looked
//!   for by one look at the manifest, and then all of the answer is of the version after it.
//! * **Who reads bytes cannot tell whether they are right**: each chunk in a range of an open file
//!   is compared with its address before a byte of it leaves, and in place of one that is corrupt
//!   in the store there is an error. Whole files and old ones are given as they come: of these only
//!   clients can see what is wrong. But what came to disk with a copy of a file is compared
//!   afterwards, so that it goes on to nobody else (`copies`).
//! * **Dictionaries** are served for as long as their file is open, and for a while afterwards,
//!   whatever becomes of disk and store: some clients wait for ever for one that they cannot have.
//! * **Old files** are served as long as the store has them, also long after the manifest has
//!   dropped them.
//! * **Limits**: prefetches, pinned dictionaries, and old files that are remembered are bounded;
//!   see [`crate::limits`].

mod file_bytes;
mod local_verifier;
mod pin_dictionaries;
mod prefetch;
mod verified_range;

use std::{sync::Arc, time::Instant};

use busload_chunks::{ChunkAddress, Span};
use tokio::task::coop::consume_budget;

pub use self::file_bytes::FileBytes;
pub(crate) use self::{
    local_verifier::{LocalVerification, LocalVerifier},
    prefetch::Prefetches,
};
use crate::{
    Error, Snapshot, Store, TableFile, limits::LOCATE_TURN_CHUNKS, versions::version::Version,
};

/// Where one chunk is.
#[derive(Clone, Debug)]
pub struct Location {
    /// In which file.
    pub file: Arc<TableFile>,
    /// Its entry in the file's index.
    pub position: u32,
    /// Its bytes: a record, or with a dictionary a zstd frame.
    pub span: Span,
    /// Where in the same file its dictionary is.
    pub dictionary: Option<Span>,
}

/// Where chunks are, all as of one version.
#[derive(Clone, Debug)]
pub struct Located {
    /// The version.
    pub snapshot: Arc<Snapshot>,
    /// In the order of the question; none: the store does not hold it, which is certain.
    pub locations: Vec<Option<Location>>,
}

impl Store {
    /// Where chunks are. Reads nothing of them; looks at the manifest once if some are in no known
    /// file.
    ///
    /// # Errors
    /// As [`Store::get`]: the store is not open, or what is in no known file cannot be looked for.
    /// Then nothing is said of the others.
    pub async fn locate(
        &self,
        addresses: &[ChunkAddress],
        deadline: Instant,
    ) -> Result<Located, Error> {
        let shared = self.shared();
        if shared.is_closed() {
            return Err(Error::Closed);
        }
        let located = locate(&*self.version_until(deadline).await?, addresses).await;
        let unsure = addresses
            .iter()
            .zip(&located.locations)
            .find(|(_, location)| is_unsure(location.as_ref()));
        let Some((first, _)) = unsure else {
            return Ok(located);
        };
        let (waiting, first) = (shared.clone(), *first);
        let version =
            shared.run(deadline, async move { waiting.refreshed_version(&first).await }).await?;
        Ok(locate(&version, addresses).await)
    }

    /// The current version, waited for if the store is being opened. Starts nothing if there is
    /// one.
    async fn version_until(&self, deadline: Instant) -> Result<Arc<Version>, Error> {
        let shared = self.shared();
        match shared.version.load_full() {
            Some(version) => Ok(version),
            None => {
                let waiting = shared.clone();
                shared.run(deadline, async move { waiting.opened_version().await }).await
            }
        }
    }
}

/// Whether a look at the manifest may tell more: the chunk is nowhere, or in an object that was
/// replaced.
fn is_unsure(location: Option<&Location>) -> bool {
    location.is_none_or(|location| location.file.is_gone())
}

async fn locate(version: &Version, addresses: &[ChunkAddress]) -> Located {
    let mut locations = Vec::with_capacity(addresses.len());
    for some in addresses.chunks(LOCATE_TURN_CHUNKS) {
        locations.extend(some.iter().map(|address| location(version, address)));
        consume_budget().await;
    }
    Located { snapshot: version.snapshot.clone(), locations }
}

fn location(version: &Version, address: &ChunkAddress) -> Option<Location> {
    let (file, position) = version.find(address)?;
    let at = file.location(position);
    Some(Location { file: file.clone(), position, span: at.span, dictionary: at.dictionary })
}
