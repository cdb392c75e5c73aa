//! Serves Dolt's clients, which read bytes of table files instead of chunks: it locates chunks,
//! streams ranges of files, and pins dictionaries.
//!
//! ```text
//!  addresses --> locate --> Located: one version, files, spans --> advertised to a client
//!                   |                                                |
//!                   |                          ranges of files, later v
//!                   +--> prefetch: a task reads        FileBytes, by name and version --> stream:
//!                   |    and verifies chunks ---------------^             ^    verified_range
//!                   +--> pin_dictionaries: kept in memory with their file-+
//! ```
//!
//! * **One version.** All locations of one answer are of one version. If no file has a chunk, one
//!   refresh follows, and then the whole answer is of the version after it.
//! * **Clients cannot verify bytes** of ranges, so the store verifies each chunk in a range of an
//!   open file before it sends a byte of it, and fails where a chunk is corrupt in the store. Whole
//!   files and dropped ones are sent as they come, which clients can verify as a whole. But the
//!   local verifier checks afterwards what came to disk with a whole file, so that no other reader
//!   gets corrupt bytes from there.
//! * **Dictionaries** that were advertised can be read while their file is open, and for a while
//!   afterwards, whatever becomes of disk and store: some clients wait for ever for a missing one.
//! * **Dropped files** can be read as long as the store has them, long after the manifest has
//!   dropped them.
//! * **Limits**: prefetches, pinned dictionaries, and remembered dropped files are bounded; see
//!   [`crate::limits`].

pub(crate) mod file_bytes;
pub(crate) mod local_verifier;
pub(crate) mod pin_dictionaries;
pub(crate) mod prefetch;
mod range_assembly;
mod range_parts;
pub(crate) mod reference_prefetch;
mod verified_range;

use std::{sync::Arc, time::Instant};

use busload_chunks::{ChunkAddress, Span};
use tokio::task::coop::consume_budget;

use crate::{
    Error, Snapshot, TableFile,
    limits::LOCATE_TURN_CHUNKS,
    versions::{Versions, version::Version},
};

/// Location of one chunk in a table file.
#[derive(Clone, Debug)]
pub struct Location {
    /// Table file that holds the chunk.
    pub file: Arc<TableFile>,
    /// Position of the chunk in the file's index.
    pub position: u32,
    /// Span of the chunk in the file: a record, or with a dictionary a zstd frame.
    pub span: Span,
    /// Span of the chunk's dictionary in the same file.
    pub dictionary: Option<Span>,
}

/// Locations of several chunks, all as of one version.
#[derive(Clone, Debug)]
pub struct Located {
    /// Version that the locations belong to.
    pub snapshot: Arc<Snapshot>,
    /// Locations in the order of the request; none: the store does not hold the chunk.
    pub locations: Vec<Option<Location>>,
}

/// Locates chunks; refreshes once if some are in no open file.
pub(crate) async fn locate(
    versions: &Arc<Versions>,
    addresses: &[ChunkAddress],
    deadline: Instant,
) -> Result<Located, Error> {
    let located = locate_in(&*versions.opened_by(deadline, false).await?, addresses).await;
    let mut pairs = addresses.iter().zip(&located.locations);
    let Some((first, _)) = pairs.find(|(_, location)| needs_refresh(location.as_ref())) else {
        return Ok(located);
    };
    let version = versions.refreshed_by(deadline, *first).await?;
    Ok(locate_in(&version, addresses).await)
}

/// Returns whether a refresh may give another location: no file has the chunk, or its object was
/// replaced.
fn needs_refresh(location: Option<&Location>) -> bool {
    location.is_none_or(|location| location.file.is_gone())
}

async fn locate_in(version: &Version, addresses: &[ChunkAddress]) -> Located {
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
