//! Where a client is told that chunks are.
//!
//! ```text
//!                    +-- files:   in their table files; their reads begin, dictionaries are kept ready ---------+
//!  addresses --> located                                                                                        +--> resources, places
//!                    +-- records: groups, in the order of the files --> RecordsCache::make, some at a time -----+
//!                                 large records stay in their files --------------------------------------------+
//! ```

mod plan;

use std::{collections::HashMap, sync::Arc};

use busload_dolt::{ChunkAddress, Located, Location, Span, Store, TableFile};
use futures_util::{StreamExt, TryStreamExt, stream};
use tonic::Status as Refusal;

use self::plan::{Group, Plan, Spot};
use super::{
    Remotesapi,
    limits::RECORDS_AT_ONCE_MAX,
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

/// Answers from one version of the store.
pub async fn lay_out(
    remotesapi: &Remotesapi,
    rooms: &Rooms,
    target: &Target,
    (layout, addresses): (DoltLayout, &[ChunkAddress]),
) -> Result<Laid, Refusal> {
    let store = target.store();
    let located = target.in_time(store.locate(addresses, target.deadline().of_trip())).await?;
    match layout {
        DoltLayout::Files => {
            store.prefetch(&located);
            target.in_time(store.pin_dictionaries(&located, target.deadline().of_trip())).await?;
            let mut laid = Laid::of(addresses);
            laid.add_files(&located, 0..addresses.len());
            Ok(laid)
        }
        DoltLayout::Records => records(remotesapi, rooms, target, (addresses, &located)).await,
    }
}

async fn records(
    remotesapi: &Remotesapi,
    rooms: &Rooms,
    target: &Target,
    (addresses, located): (&[ChunkAddress], &Located),
) -> Result<Laid, Refusal> {
    let Plan { in_files, groups } = Plan::new(spots(located));
    if !in_files.is_empty() {
        prefetch(target.store(), located, &in_files);
    }
    let mut making = stream::iter(groups)
        .map(|group| async move {
            let chunks = group.chunks.iter().map(|&index| addresses[index]).collect();
            let until = target.deadline().of_trip();
            let room = rooms.take(target.store().name(), group.stored_bytes, until).await;
            let _room = room.ok_or_else(|| target.too_late())?;
            // The time that was waited for room was for others' chunks.
            let until = target.deadline().of_trip();
            let made = remotesapi.records.make(target.store(), chunks, until);
            Ok::<_, Refusal>((target.in_time(made).await?, group))
        })
        .buffered(RECORDS_AT_ONCE_MAX);
    let mut laid = Laid::of(addresses);
    laid.add_files(located, in_files);
    while let Some((made, group)) = making.try_next().await? {
        laid.add_records(made, &group);
    }
    Ok(laid)
}

/// The reads of some of the chunks begin.
fn prefetch(store: &Store, located: &Located, which: &[usize]) {
    let locations = which.iter().map(|&index| located.locations[index].clone()).collect();
    store.prefetch(&Located { snapshot: Arc::clone(&located.snapshot), locations });
}

impl Laid {
    /// None of these is anywhere.
    fn of(addresses: &[ChunkAddress]) -> Self {
        Self { resources: Vec::new(), places: vec![None; addresses.len()] }
    }

    /// Some chunks are in their files.
    fn add_files(&mut self, located: &Located, which: impl IntoIterator<Item = usize>) {
        let mut known: HashMap<*const TableFile, usize> = HashMap::new();
        for index in which {
            let Some(Location { file, span, dictionary, .. }) = &located.locations[index] else { continue };
            let resource = *known.entry(Arc::as_ptr(file)).or_insert_with(|| {
                self.resources.push(Resource::File(FileName::of(file)));
                self.resources.len() - 1
            });
            self.places[index] = Some(Place { resource, span: *span, dictionary: *dictionary });
        }
    }

    /// Those of a group are records, one after the other. One that has vanished since it was located is nowhere.
    fn add_records(&mut self, made: Made, group: &Group) {
        let Some(recipe) = made.recipe else { return };
        let resource = self.resources.len();
        self.resources.push(Resource::Records(recipe));
        let mut offset = 0;
        for (&index, length) in group.chunks.iter().zip(made.lengths) {
            let Some(length) = length else { continue };
            self.places[index] = Some(Place { resource, span: Span { offset, length }, dictionary: None });
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
