//! The answer to a request for chunk locations, as the client gets it.
//!
//! A message of a stream refers to a resource by an id. The first message with a location in a
//! resource also carries the resource's record, with its URL: it *advertises* the resource.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use busload_dolt::{ChunkAddress, Span};
use busload_proto::remotesapi::{
    ChunkLocation, DownloadLoc, GetDownloadLocsResponse, HttpGetRange, RangeChunk,
    StreamChunkLocationsResponse, TableFileRecord, download_loc,
};
use bytes::Bytes;

use crate::{
    limits::FILES_ADVERTISED_MAX,
    locate::{ChunkLocations, ResourceLocation},
    url::{FileName, Resource, UrlBuilder},
};

/// Answer to one request of a batch.
#[derive(Debug)]
pub struct Answer {
    /// For each entry of the request, its index in `addresses`.
    pub entries: Vec<usize>,
    /// Addresses that all requests of the batch asked for.
    pub addresses: Arc<[ChunkAddress]>,
    /// Locations of these chunks, and the resources that hold them.
    pub chunks: Arc<ChunkLocations>,
    /// Number of the repository that holds them.
    pub repository: usize,
    /// Builder of that repository's URLs.
    pub urls: UrlBuilder,
}

impl Answer {
    /// Returns how many entries name chunks that exist, and how many name chunks that do not.
    pub fn counts(&self) -> (usize, usize) {
        let found = self.locations().flatten().count();
        (found, self.entries.len() - found)
    }

    /// Returns the location of each entry's chunk.
    fn locations(&self) -> impl Iterator<Item = Option<&ResourceLocation>> {
        self.entries.iter().map(|&entry| self.chunks.locations[entry].as_ref())
    }

    /// Builds the answer of the older calls: ranges by resource, each address once. Clients take an
    /// address that is in no range as missing.
    pub fn into_ranges(self) -> GetDownloadLocsResponse {
        let mut ranges: BTreeMap<usize, Vec<RangeChunk>> = BTreeMap::new();
        let mut seen = HashSet::with_capacity(self.entries.len());
        for (&entry, location) in self.entries.iter().zip(self.locations()) {
            let Some(location) = location.filter(|_| seen.insert(entry)) else { continue };
            let (dictionary_offset, dictionary_length) = parts(location.dictionary);
            ranges.entry(location.resource).or_default().push(RangeChunk {
                hash: Bytes::copy_from_slice(&self.addresses[entry].0),
                offset: location.span.offset,
                length: location.span.length,
                dictionary_offset,
                dictionary_length,
            });
        }
        let of_resource = |(resource, ranges): (usize, _)| {
            let range =
                HttpGetRange { url: self.urls.url(&self.chunks.resources[resource]), ranges };
            let location = Some(download_loc::Location::HttpGetRange(range));
            DownloadLoc { location, ..DownloadLoc::default() }
        };
        let locs = ranges.into_iter().map(of_resource).collect();
        GetDownloadLocsResponse { locs, ..GetDownloadLocsResponse::default() }
    }
}

/// Resources that a stream has advertised to its client. The first message with a location in a
/// resource also carries the resource's record.
#[derive(Debug, Default)]
pub struct Advertised {
    /// Ids of table files, by repository and file.
    files: HashMap<(usize, FileName), u32>,
    /// The last batch that was answered. Bundles belong to one batch; the next one has others.
    batch: Option<Batch>,
    /// Ids of bundles that no further answer refers to, for reuse. Clients keep every id as long as
    /// the stream lasts, and become slow with many.
    free: Vec<u32>,
    /// Greatest id so far.
    last: u32,
}

/// A batch of requests whose answers share their resources.
#[derive(Debug)]
struct Batch {
    /// Locations for all requests of the batch.
    chunks: Arc<ChunkLocations>,
    /// Id of each resource, once it has been advertised.
    ids: Vec<Option<u32>>,
}

impl Batch {
    fn ids_of_bundles(&self) -> impl Iterator<Item = u32> {
        let resources = self.chunks.resources.iter().zip(&self.ids);
        resources
            .filter(|(resource, _)| matches!(resource, Resource::Records(_)))
            .filter_map(|(_, id)| *id)
    }
}

impl Advertised {
    /// Builds the message for an answer.
    pub fn message(&mut self, answer: &Answer) -> StreamChunkLocationsResponse {
        self.ensure_ids(answer);
        let mut batch = self.batch(&answer.chunks);
        let mut message = StreamChunkLocationsResponse::default();
        for (request_index, location) in (0..).zip(answer.locations()) {
            let Some(location) = location else {
                message.missing_indexes.push(request_index);
                continue;
            };
            let id = &mut batch.ids[location.resource];
            let table_file_id = match *id {
                Some(id) => id,
                None => *id.insert(self.advertise(answer, location.resource, &mut message)),
            };
            let (dictionary_offset, dictionary_length) = parts(location.dictionary);
            message.locations.push(ChunkLocation {
                table_file_id,
                request_index,
                offset: location.span.offset,
                length: location.span.length,
                dictionary_offset,
                dictionary_length,
            });
        }
        self.batch = Some(batch);
        message
    }

    /// Makes sure that there are ids for this answer. Ids count from 1. When they run out, the
    /// count starts again with nothing advertised: a client replaces the older record of an id.
    fn ensure_ids(&mut self, answer: &Answer) {
        let resources = u32::try_from(answer.chunks.resources.len()).unwrap_or(u32::MAX);
        if u32::MAX - self.last < resources {
            *self = Self::default();
        }
    }

    /// Returns the batch of the previous answer if this answer belongs to it, else a new one.
    fn batch(&mut self, chunks: &Arc<ChunkLocations>) -> Batch {
        match self.batch.take() {
            Some(batch) if Arc::ptr_eq(&batch.chunks, chunks) => return batch,
            Some(ended) => self.free.extend(ended.ids_of_bundles()),
            None => {}
        }
        Batch { chunks: Arc::clone(chunks), ids: vec![None; chunks.resources.len()] }
    }

    /// Returns the id of a resource, and adds its record to the message if the client lacks it.
    fn advertise(
        &mut self,
        answer: &Answer,
        index: usize,
        message: &mut StreamChunkLocationsResponse,
    ) -> u32 {
        let resource = &answer.chunks.resources[index];
        let (table_file_id, is_new) = self.id(answer.repository, resource);
        if is_new {
            let (url, file_id) = (answer.urls.url(resource), file_id(resource));
            message.table_files.push(TableFileRecord {
                table_file_id,
                url,
                refresh_after: None,
                file_id,
            });
        }
        table_file_id
    }

    /// Returns the id of a resource, and whether it must be advertised.
    fn id(&mut self, repository: usize, resource: &Resource) -> (u32, bool) {
        let Resource::File(name) = resource else { return (self.next(), true) };
        if let Some(&id) = self.files.get(&(repository, *name)) {
            return (id, false);
        }
        if FILES_ADVERTISED_MAX <= self.files.len() {
            self.files.clear();
        }
        let id = self.next();
        self.files.insert((repository, *name), id);
        (id, true)
    }

    fn next(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.last += 1;
            self.last
        })
    }
}

fn file_id(resource: &Resource) -> String {
    match resource {
        Resource::File(name) => name.id.to_string(),
        Resource::Records(_) => String::new(),
    }
}

fn parts(dictionary: Option<Span>) -> (u64, u32) {
    dictionary.map_or((0, 0), |span| (span.offset, span.length))
}

#[cfg(test)]
mod tests;
