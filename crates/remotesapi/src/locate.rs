//! Chunk locations: which resource holds a chunk, and where in it.
//!
//! ```text
//!  addresses --> located --+-- files:   in table files; their reads start at once,
//!                          |            their dictionaries are pinned ---------------+
//!                          |                                                         v
//!                          |                                              resources, locations
//!                          |                                                         ^
//!                          +-- records: groups, in the order of the files            |
//!                                       --> BundleCache::encode, some at a time -----+
//!                                       large records: in their table files ---------+
//!                                       chunks that the store is slow to bring: -----+
//!                                       in their table files, too
//! ```

mod bundle_plan;

use std::{collections::HashMap, future::ready, sync::Arc, time::Instant};

use busload_dolt::{ChunkAddress, Error, Located, Location, Span, TableFile};
use futures_util::{StreamExt, TryStreamExt, stream};
use tonic::Status as Refusal;

use self::bundle_plan::{BundlePlan, Group, StoredChunk};
use crate::{
    bundles::{BundleCache, BundleInfo},
    host::DoltLayout,
    limits::{RECORDS_AT_ONCE_MAX, RECORDS_ENCODING_DIVISOR},
    memory::TableBudgets,
    target::Target,
    url::{FileName, Resource},
};

/// Locations of the chunks of one batch of requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChunkLocations {
    /// Resources that the client can download.
    pub resources: Vec<Resource>,
    /// Location for each address, in their order; none if the store does not hold the chunk.
    pub locations: Vec<Option<ResourceLocation>>,
}

/// Location of one chunk in a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLocation {
    /// Index of the resource that holds it.
    pub resource: usize,
    /// Byte range of a record or, if there is a dictionary, of a zstd frame.
    pub span: Span,
    /// Byte range of its dictionary in the same resource.
    pub dictionary: Option<Span>,
}

/// Kind of resource that a client gets its chunks from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Table files of the store.
    Files,
    /// Bundles, except for chunks that the store is slow to bring, which stay in their table files:
    /// a client accepts bytes at the pace of a slow link, but an answer that has to wait for all of
    /// them would miss its deadline.
    RecordsIfSoon,
    /// Bundles, for clients that know no dictionaries.
    Records,
}

impl From<DoltLayout> for Layout {
    fn from(layout: DoltLayout) -> Self {
        match layout {
            DoltLayout::Files => Self::Files,
            DoltLayout::Records => Self::RecordsIfSoon,
        }
    }
}

/// Encoder of bundles for locations, and the memory that it may take.
#[derive(Clone, Copy, Debug)]
pub struct Encoder<'a> {
    pub bundles: &'a BundleCache,
    /// Memory budget of each table for bundles that are being encoded.
    pub memory: &'a TableBudgets,
}

/// Locates the addresses in one version of the store.
pub async fn locate(
    encoder: Encoder<'_>,
    target: &Target,
    (layout, addresses): (Layout, &[ChunkAddress]),
) -> Result<ChunkLocations, Refusal> {
    let store = target.store();
    let located =
        target.within_deadline(store.locate(addresses, target.deadline().of_batch())).await?;
    match layout {
        Layout::Files => {
            // Clients get the others from the peers that own them.
            store.prefetch(&of_own_files(target, &located));
            let mut chunks = ChunkLocations::none_of(addresses);
            chunks.add_files(target, &located).await?;
            Ok(chunks)
        }
        Layout::RecordsIfSoon | Layout::Records => {
            let may_be_in_files = layout == Layout::RecordsIfSoon;
            in_bundles(encoder, target, (addresses, &located, may_be_in_files)).await
        }
    }
}

/// Returns the locations as if only these chunks had been asked for.
fn only(located: &Located, indexes: &[usize]) -> Located {
    let mut locations = vec![None; located.locations.len()];
    indexes.iter().for_each(|&index| locations[index].clone_from(&located.locations[index]));
    Located { snapshot: Arc::clone(&located.snapshot), locations }
}

/// Returns the locations in files that belong to this server.
fn of_own_files(target: &Target, located: &Located) -> Located {
    let is_mine = |location: &Location| target.is_mine(&location.file);
    let own = |location: &Option<Location>| location.clone().filter(is_mine);
    let locations = located.locations.iter().map(own).collect();
    Located { snapshot: Arc::clone(&located.snapshot), locations }
}

async fn in_bundles(
    encoder: Encoder<'_>,
    target: &Target,
    (addresses, located, may_be_in_files): (&[ChunkAddress], &Located, bool),
) -> Result<ChunkLocations, Refusal> {
    let plan = BundlePlan::new(stored_chunks(located));
    let mut in_files = plan.in_files;
    target.store().prefetch(&of_own_files(target, &only(located, &in_files)));
    let mut encoding = stream::iter(plan.groups)
        .map(|group| async move {
            let chunks = group.chunks.iter().map(|&index| addresses[index]).collect();
            let (store, until) = (target.store(), target.deadline().of_batch());
            let reserved = encoder.memory.reserve(store.name(), group.stored_bytes, until).await;
            let _reservation = reserved.ok_or_else(|| target.deadline_exceeded())?;
            // The wait for memory was for others' chunks and does not count.
            let until = target.deadline().of_batch();
            let until = if may_be_in_files { encoding_deadline(until) } else { until };
            let encoded = match encoder.bundles.encode(store, chunks, until).await {
                Err(Error::DeadlineExceeded(_)) if may_be_in_files => None,
                encoded => Some(target.within_deadline(ready(encoded)).await?),
            };
            Ok::<_, Refusal>((encoded, group))
        })
        .buffered(RECORDS_AT_ONCE_MAX);
    let mut chunks = ChunkLocations::none_of(addresses);
    while let Some((encoded, group)) = encoding.try_next().await? {
        match encoded {
            Some(encoded) => chunks.add_bundle(encoded, &group),
            // No prefetch for these: it would read long ranges, of which a download over a slow
            // link needs the beginning first.
            None => in_files.extend(group.chunks),
        }
    }
    chunks.add_files(target, &only(located, &in_files)).await?;
    Ok(chunks)
}

/// Returns the deadline for encoding a bundle within an answer that has this deadline.
fn encoding_deadline(deadline: Instant) -> Instant {
    let now = tokio::time::Instant::now().into_std();
    now + deadline.saturating_duration_since(now) / RECORDS_ENCODING_DIVISOR
}

impl ChunkLocations {
    /// Starts with no location for any of these.
    fn none_of(addresses: &[ChunkAddress]) -> Self {
        Self { resources: Vec::new(), locations: vec![None; addresses.len()] }
    }

    /// Adds chunks that stay in their table files, after pinning their dictionaries.
    async fn add_files(&mut self, target: &Target, located: &Located) -> Result<(), Refusal> {
        target
            .within_deadline(target.store().pin_dictionaries(located, target.deadline().of_batch()))
            .await?;
        let mut known: HashMap<*const TableFile, usize> = HashMap::new();
        for (own, stored) in self.locations.iter_mut().zip(&located.locations) {
            let Some(Location { file, span, dictionary, .. }) = stored else { continue };
            let resource = *known.entry(Arc::as_ptr(file)).or_insert_with(|| {
                self.resources.push(Resource::File(FileName::of(file)));
                self.resources.len() - 1
            });
            *own = Some(ResourceLocation { resource, span: *span, dictionary: *dictionary });
        }
        Ok(())
    }

    /// Adds the bundle of a group. A chunk that has vanished since it was located gets no
    /// location.
    fn add_bundle(&mut self, encoded: BundleInfo, group: &Group) {
        let Some(bundle) = encoded.bundle else { return };
        let resource = self.resources.len();
        self.resources.push(Resource::Records(bundle));
        let mut offset = 0;
        for (&index, length) in group.chunks.iter().zip(encoded.lengths) {
            let Some(length) = length else { continue };
            let span = Span { offset, length };
            self.locations[index] = Some(ResourceLocation { resource, span, dictionary: None });
            offset += u64::from(length);
        }
    }
}

/// Returns the stored position of each chunk that exists, with its file numbered in order of first
/// occurrence.
fn stored_chunks(located: &Located) -> Vec<StoredChunk> {
    let mut files: HashMap<*const TableFile, usize> = HashMap::new();
    let stored_chunk = |(index, location): (usize, &Option<Location>)| {
        let Location { file, span, dictionary, .. } = location.as_ref()?;
        let next = files.len();
        let file = *files.entry(Arc::as_ptr(file)).or_insert(next);
        Some(StoredChunk { index, file, span: *span, has_dictionary: dictionary.is_some() })
    };
    located.locations.iter().enumerate().filter_map(stored_chunk).collect()
}

#[cfg(test)]
mod tests;
