//! Chunk locations that clients are told.
//!
//! ```text
//!  addresses --> located --+-- files:   in table files; their reads start at once,
//!                          |            their dictionaries are pinned ---------------+
//!                          |                                                         v
//!                          |                                                 resources, places
//!                          |                                                         ^
//!                          +-- records: groups, in the order of the files            |
//!                                       --> RecordsCache::make, some at a time ------+
//!                                       large records: in their table files ---------+
//!                                       chunks that the store is slow to bring: -----+
//!                                       in their table files, too
//! ```

mod plan;

use std::{collections::HashMap, future::ready, sync::Arc, time::Instant};

use busload_dolt::{ChunkAddress, Error, Located, Location, Span, TableFile};
use futures_util::{StreamExt, TryStreamExt, stream};
use tonic::Status as Refusal;

use self::plan::{Group, Plan, Spot};
use super::{
    Remotesapi,
    limits::{RECORDS_AT_ONCE_MAX, RECORDS_ENCODING_DIVISOR},
    records::BundleInfo,
    rooms::Budgets,
    target::Target,
    url::{FileName, Resource},
};
use crate::config::DoltLayout;

/// Locations of the chunks of one batch of requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Laid {
    /// Resources that the client can download.
    pub resources: Vec<Resource>,
    /// Location for each address, in their order; none if the store does not hold the chunk.
    pub places: Vec<Option<Place>>,
}

/// Location of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
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

/// Locates the addresses in one version of the store and builds what clients are told.
pub async fn lay_out(
    remotesapi: &Remotesapi,
    rooms: &Budgets,
    target: &Target,
    (layout, addresses): (Layout, &[ChunkAddress]),
) -> Result<Laid, Refusal> {
    let store = target.store();
    let located =
        target.within_deadline(store.locate(addresses, target.deadline().of_batch())).await?;
    match layout {
        Layout::Files => {
            store.prefetch(&located);
            let mut laid = Laid::of(addresses);
            laid.add_files(target, &located).await?;
            Ok(laid)
        }
        Layout::RecordsIfSoon | Layout::Records => {
            let may_be_in_files = layout == Layout::RecordsIfSoon;
            records(remotesapi, rooms, target, (addresses, &located, may_be_in_files)).await
        }
    }
}

/// Returns the locations as if only these chunks had been asked for.
fn only(located: &Located, which: &[usize]) -> Located {
    let mut locations = vec![None; located.locations.len()];
    which.iter().for_each(|&index| locations[index].clone_from(&located.locations[index]));
    Located { snapshot: Arc::clone(&located.snapshot), locations }
}

async fn records(
    remotesapi: &Remotesapi,
    rooms: &Budgets,
    target: &Target,
    (addresses, located, may_be_in_files): (&[ChunkAddress], &Located, bool),
) -> Result<Laid, Refusal> {
    let plan = Plan::new(spots(located));
    let mut in_files = plan.in_files;
    target.store().prefetch(&only(located, &in_files));
    let mut making = stream::iter(plan.groups)
        .map(|group| async move {
            let chunks = group.chunks.iter().map(|&index| addresses[index]).collect();
            let until = target.deadline().of_batch();
            let room = rooms.take(target.store().name(), group.stored_bytes, until).await;
            let _room = room.ok_or_else(|| target.too_late())?;
            // The wait for memory was for others' chunks and does not count.
            let until = target.deadline().of_batch();
            let until = if may_be_in_files { soon(until) } else { until };
            let made = match remotesapi.records.make(target.store(), chunks, until).await {
                Err(Error::DeadlineExceeded(_)) if may_be_in_files => Ok(None),
                made => target.within_deadline(ready(made)).await.map(Some),
            };
            Ok::<_, Refusal>((made?, group))
        })
        .buffered(RECORDS_AT_ONCE_MAX);
    let mut laid = Laid::of(addresses);
    while let Some((made, group)) = making.try_next().await? {
        match made {
            Some(made) => laid.add_records(made, &group),
            // No prefetch for these: it would read long ranges, of which a download over a slow
            // link needs the beginning first.
            None => in_files.extend(group.chunks),
        }
    }
    laid.add_files(target, &only(located, &in_files)).await?;
    Ok(laid)
}

/// Returns the deadline for encoding a bundle within an answer that has this deadline.
fn soon(deadline: Instant) -> Instant {
    let now = tokio::time::Instant::now().into_std();
    now + deadline.saturating_duration_since(now) / RECORDS_ENCODING_DIVISOR
}

impl Laid {
    /// Starts with no location for any of these.
    fn of(addresses: &[ChunkAddress]) -> Self {
        Self { resources: Vec::new(), places: vec![None; addresses.len()] }
    }

    /// Adds chunks that stay in their table files, after pinning their dictionaries.
    async fn add_files(&mut self, target: &Target, located: &Located) -> Result<(), Refusal> {
        target
            .within_deadline(target.store().pin_dictionaries(located, target.deadline().of_batch()))
            .await?;
        let mut known: HashMap<*const TableFile, usize> = HashMap::new();
        for (place, location) in self.places.iter_mut().zip(&located.locations) {
            let Some(Location { file, span, dictionary, .. }) = location else { continue };
            let resource = *known.entry(Arc::as_ptr(file)).or_insert_with(|| {
                self.resources.push(Resource::File(FileName::of(file)));
                self.resources.len() - 1
            });
            *place = Some(Place { resource, span: *span, dictionary: *dictionary });
        }
        Ok(())
    }

    /// Adds the bundle of a group. A chunk that has vanished since it was located gets no
    /// location.
    fn add_records(&mut self, made: BundleInfo, group: &Group) {
        let Some(bundle) = made.bundle else { return };
        let resource = self.resources.len();
        self.resources.push(Resource::Records(bundle));
        let mut offset = 0;
        for (&index, length) in group.chunks.iter().zip(made.lengths) {
            let Some(length) = length else { continue };
            self.places[index] =
                Some(Place { resource, span: Span { offset, length }, dictionary: None });
            offset += u64::from(length);
        }
    }
}

/// Returns the stored position of each chunk that exists, with its file numbered in order of first
/// occurrence.
fn spots(located: &Located) -> Vec<Spot> {
    let mut files: HashMap<*const TableFile, usize> = HashMap::new();
    let places = located.locations.iter().enumerate();
    let spot = |(index, location): (usize, &Option<Location>)| {
        let Location { file, span, dictionary, .. } = location.as_ref()?;
        let next = files.len();
        let file = *files.entry(Arc::as_ptr(file)).or_insert(next);
        Some(Spot { index, file, span: *span, has_dictionary: dictionary.is_some() })
    };
    places.filter_map(spot).collect()
}

#[cfg(test)]
mod tests;
