//! Where a client is told that chunks are.
//!
//! ```text
//!                    +-- files:   in their table files; their reads begin, dictionaries are kept ready ---------+
//!  addresses --> located                                                                                        +--> resources, places
//!                    +-- records: groups, in the order of the files --> RecordsCache::make, some at a time -----+
//!                                 large records stay in their files --------------------------------------------+
//!                                 and so do chunks that the store does not bring soon --------------------------+
//! ```

mod plan;

use std::{collections::HashMap, future::ready, sync::Arc, time::Instant};

use busload_dolt::{ChunkAddress, Error, Located, Location, Span, TableFile};
use futures_util::{StreamExt, TryStreamExt, stream};
use tonic::Status as Refusal;

use self::plan::{Group, Plan, Spot};
use super::{
    Remotesapi,
    limits::{RECORDS_AT_ONCE_MAX, RECORDS_MAKING_SHARE},
    records::Made,
    rooms::Rooms,
    target::Target,
    url::{FileName, Resource},
};
use crate::config::DoltLayout;

/// Where the chunks of one request are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Laid {
    /// What there is to be downloaded.
    pub resources: Vec<Resource>,
    /// Of each address, in their order; none: the store does not hold the chunk.
    pub places: Vec<Option<Place>>,
}

/// Where one chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which of the resources.
    pub resource: usize,
    /// A record, or with a dictionary a zstd frame.
    pub span: Span,
    /// Where in the same resource its dictionary is.
    pub dictionary: Option<Span>,
}

/// Where a request wants its chunks to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In their table files.
    Files,
    /// In records, but for chunks that the store does not bring soon: a client takes bytes at the
    /// pace of a slow link, but an answer that needs all of them first would come too late.
    RecordsIfSoon,
    /// In records, for clients that know no dictionaries.
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

/// Answers from one version of the store.
pub async fn lay_out(
    remotesapi: &Remotesapi,
    rooms: &Rooms,
    target: &Target,
    (layout, addresses): (Layout, &[ChunkAddress]),
) -> Result<Laid, Refusal> {
    let store = target.store();
    let located = target.in_time(store.locate(addresses, target.deadline().of_trip())).await?;
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

/// As if only these had been asked for.
fn only(located: &Located, which: &[usize]) -> Located {
    let mut locations = vec![None; located.locations.len()];
    which.iter().for_each(|&index| locations[index].clone_from(&located.locations[index]));
    Located { snapshot: Arc::clone(&located.snapshot), locations }
}

async fn records(
    remotesapi: &Remotesapi,
    rooms: &Rooms,
    target: &Target,
    (addresses, located, may_be_in_files): (&[ChunkAddress], &Located, bool),
) -> Result<Laid, Refusal> {
    let plan = Plan::new(spots(located));
    let mut in_files = plan.in_files;
    target.store().prefetch(&only(located, &in_files));
    let mut making = stream::iter(plan.groups)
        .map(|group| async move {
            let chunks = group.chunks.iter().map(|&index| addresses[index]).collect();
            let until = target.deadline().of_trip();
            let room = rooms.take(target.store().name(), group.stored_bytes, until).await;
            let _room = room.ok_or_else(|| target.too_late())?;
            // The time that was waited for room was for others' chunks.
            let until = target.deadline().of_trip();
            let until = if may_be_in_files { soon(until) } else { until };
            let made = match remotesapi.records.make(target.store(), chunks, until).await {
                Err(Error::DeadlineExceeded(_)) if may_be_in_files => Ok(None),
                made => target.in_time(ready(made)).await.map(Some),
            };
            Ok::<_, Refusal>((made?, group))
        })
        .buffered(RECORDS_AT_ONCE_MAX);
    let mut laid = Laid::of(addresses);
    while let Some((made, group)) = making.try_next().await? {
        match made {
            Some(made) => laid.add_records(made, &group),
            // No read of theirs begins now: it would be one of long ranges, of which a download
            // over a slow link wants the beginning.
            None => in_files.extend(group.chunks),
        }
    }
    laid.add_files(target, &only(located, &in_files)).await?;
    Ok(laid)
}

/// What is made before this is not late.
fn soon(deadline: Instant) -> Instant {
    let now = tokio::time::Instant::now().into_std();
    now + deadline.saturating_duration_since(now) / RECORDS_MAKING_SHARE
}

impl Laid {
    /// None of these is anywhere.
    fn of(addresses: &[ChunkAddress]) -> Self {
        Self { resources: Vec::new(), places: vec![None; addresses.len()] }
    }

    /// These chunks are in their files, with dictionaries that are kept ready.
    async fn add_files(&mut self, target: &Target, located: &Located) -> Result<(), Refusal> {
        target
            .in_time(target.store().pin_dictionaries(located, target.deadline().of_trip()))
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

    /// Those of a group are records, one after the other. One that has vanished since it was
    /// located is nowhere.
    fn add_records(&mut self, made: Made, group: &Group) {
        let Some(recipe) = made.recipe else { return };
        let resource = self.resources.len();
        self.resources.push(Resource::Records(recipe));
        let mut offset = 0;
        for (&index, length) in group.chunks.iter().zip(made.lengths) {
            let Some(length) = length else { continue };
            self.places[index] =
                Some(Place { resource, span: Span { offset, length }, dictionary: None });
            offset += u64::from(length);
        }
    }
}

/// Of the chunks that are anywhere; files are numbered in the order in which they occur.
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
