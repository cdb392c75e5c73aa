//! Streams of chunk locations: one answer per request, in the order of the requests.
//!
//! ```text
//!  requests --> Batches: all that wait --> MergedQuestions: each address once --> layout
//!                                                                            |
//!  messages <-- Advertised: what the client knows <-- an Answer for each request <-+
//! ```

mod batches;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use busload_dolt::{ChunkAddress, Span};
use busload_proto::remotesapi::{
    ChunkLocation, DownloadLoc, GetDownloadLocsResponse, HttpGetRange, RangeChunk,
    StreamChunkLocationsResponse, TableFileRecord, download_loc,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use tokio::time::{Sleep, sleep_until};
use tonic::Status as Refusal;

pub use self::batches::Batched;
use self::batches::Batches;
use super::{
    layout::{Laid, Place},
    limits::{BATCHES_AHEAD_MAX, FILES_ADVERTISED_MAX},
    target::Links,
    url::{FileName, Resource},
};
use crate::grpc::{answer, deadline::Deadline};

/// Addresses that one request asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Question {
    /// Addresses, without any duplicates.
    pub addresses: Vec<ChunkAddress>,
    /// For each entry of the request, its index in `addresses`.
    pub entries: Vec<usize>,
}

impl Question {
    /// Parses addresses that are concatenated.
    pub fn of_packed(field: &str, bytes: &[u8]) -> Result<Self, Refusal> {
        Ok(Self::new(answer::addresses(field, bytes)?.iter().copied()))
    }

    /// Parses a list of addresses.
    pub fn of_list(field: &str, list: &[Bytes]) -> Result<Self, Refusal> {
        Ok(Self::new(listed(field, list)?.into_iter().map(|ChunkAddress(bytes)| bytes)))
    }

    fn new(asked: impl ExactSizeIterator<Item = [u8; ChunkAddress::BYTES]>) -> Self {
        let mut distinct = Distinct::with_capacity(asked.len());
        let entries = asked.map(|address| distinct.index(ChunkAddress(address))).collect();
        Self { addresses: distinct.addresses, entries }
    }
}

/// A list of addresses without duplicates.
struct Distinct {
    addresses: Vec<ChunkAddress>,
    known: HashMap<ChunkAddress, usize>,
}

impl Distinct {
    fn with_capacity(count: usize) -> Self {
        Self { addresses: Vec::with_capacity(count), known: HashMap::with_capacity(count) }
    }

    fn index(&mut self, address: ChunkAddress) -> usize {
        *self.known.entry(address).or_insert_with(|| {
            self.addresses.push(address);
            self.addresses.len() - 1
        })
    }
}

/// Addresses that the requests of a batch ask for.
#[derive(Debug, PartialEq, Eq)]
pub struct MergedQuestions {
    /// Addresses, without any duplicates.
    pub addresses: Vec<ChunkAddress>,
    /// For each request, the index in `addresses` of each of its entries.
    pub entries: Vec<Vec<usize>>,
}

impl MergedQuestions {
    /// Merges these questions, keeping their order.
    pub fn of<'a>(questions: impl Iterator<Item = &'a Question> + Clone) -> Self {
        let mut distinct =
            Distinct::with_capacity(questions.clone().map(|asked| asked.addresses.len()).sum());
        let entries = |question: &Question| {
            let at: Vec<usize> =
                question.addresses.iter().map(|address| distinct.index(*address)).collect();
            question.entries.iter().map(|&entry| at[entry]).collect()
        };
        let entries = questions.map(entries).collect();
        Self { addresses: distinct.addresses, entries }
    }
}

/// Parses the addresses of a list.
pub fn listed(field: &str, list: &[Bytes]) -> Result<Vec<ChunkAddress>, Refusal> {
    answer::check_count(field, list.len())?;
    let address = |(index, bytes): (usize, &Bytes)| {
        let address = <[u8; ChunkAddress::BYTES]>::try_from(&bytes[..]).map_err(|_| {
            let bytes = bytes.len();
            Refusal::invalid_argument(format!(
                "{field}: expected 20 bytes each, got {bytes} at index {index}"
            ))
        })?;
        Ok(ChunkAddress(address))
    };
    list.iter().enumerate().map(address).collect()
}

/// Answer to one request of a batch.
#[derive(Debug)]
pub struct Answer {
    /// For each entry of the request, its index in `addresses`.
    pub entries: Vec<usize>,
    /// Addresses that all requests of the batch asked for.
    pub addresses: Arc<[ChunkAddress]>,
    /// Locations of these chunks.
    pub laid: Arc<Laid>,
    /// Index of the table that holds them.
    pub table: usize,
    /// Builder of URLs for that table.
    pub links: Links,
}

impl Answer {
    /// Returns how many entries name chunks that exist, and how many name chunks that do not.
    pub fn counts(&self) -> (usize, usize) {
        let found = self.places().flatten().count();
        (found, self.entries.len() - found)
    }

    /// Returns the location of each entry's chunk.
    fn places(&self) -> impl Iterator<Item = Option<&Place>> {
        self.entries.iter().map(|&entry| self.laid.places[entry].as_ref())
    }

    /// Builds the answer of the older calls: ranges by resource, each address once. Clients take an
    /// address that is in no range as missing.
    pub fn into_ranges(self) -> GetDownloadLocsResponse {
        let mut ranges: BTreeMap<usize, Vec<RangeChunk>> = BTreeMap::new();
        let mut seen = HashSet::with_capacity(self.entries.len());
        for (&entry, place) in self.entries.iter().zip(self.places()) {
            let Some(place) = place.filter(|_| seen.insert(entry)) else { continue };
            let (dictionary_offset, dictionary_length) = parts(place.dictionary);
            ranges.entry(place.resource).or_default().push(RangeChunk {
                hash: Bytes::copy_from_slice(&self.addresses[entry].0),
                offset: place.span.offset,
                length: place.span.length,
                dictionary_offset,
                dictionary_length,
            });
        }
        let location = |(resource, ranges): (usize, _)| {
            let range =
                HttpGetRange { url: self.links.url(&self.laid.resources[resource]), ranges };
            let location = Some(download_loc::Location::HttpGetRange(range));
            DownloadLoc { location, ..DownloadLoc::default() }
        };
        let locs = ranges.into_iter().map(location).collect();
        GetDownloadLocsResponse { locs, ..GetDownloadLocsResponse::default() }
    }
}

/// Resources that a stream has advertised to its client. The first message with a location in a
/// resource also carries the resource's record.
#[derive(Debug, Default)]
pub struct Advertised {
    /// Ids of table files, by table and file.
    files: HashMap<(usize, FileName), u32>,
    /// The last batch that was answered. Bundles belong to one batch; the next one has others.
    batch: Option<Batch>,
    /// Ids of bundles that no further answer refers to, for reuse. Clients keep every id as long as
    /// the stream lasts, and become slow with many.
    free: Vec<u32>,
    last: u32,
}

/// A batch of requests whose answers share their resources.
#[derive(Debug)]
struct Batch {
    /// Locations for all requests of the batch.
    laid: Arc<Laid>,
    /// Id of each resource, once it has been advertised.
    ids: Vec<Option<u32>>,
}

impl Batch {
    fn ids_of_records(&self) -> impl Iterator<Item = u32> {
        let resources = self.laid.resources.iter().zip(&self.ids);
        resources
            .filter(|(resource, _)| matches!(resource, Resource::Records(_)))
            .filter_map(|(_, id)| *id)
    }
}

impl Advertised {
    /// Builds the message for an answer.
    pub fn message(&mut self, answer: &Answer) -> StreamChunkLocationsResponse {
        self.make_room(answer);
        let mut batch = self.batch(&answer.laid);
        let mut message = StreamChunkLocationsResponse::default();
        for (request_index, place) in (0..).zip(answer.places()) {
            let Some(place) = place else {
                message.missing_indexes.push(request_index);
                continue;
            };
            let id = &mut batch.ids[place.resource];
            let table_file_id = match *id {
                Some(id) => id,
                None => *id.insert(self.tell(answer, place.resource, &mut message)),
            };
            let (dictionary_offset, dictionary_length) = parts(place.dictionary);
            message.locations.push(ChunkLocation {
                table_file_id,
                request_index,
                offset: place.span.offset,
                length: place.span.length,
                dictionary_offset,
                dictionary_length,
            });
        }
        self.batch = Some(batch);
        message
    }

    /// Makes sure that there are ids for this answer. Ids count from 1. When they run out, the
    /// count starts again with nothing advertised: a client replaces the older record of an id.
    fn make_room(&mut self, answer: &Answer) {
        let resources = u32::try_from(answer.laid.resources.len()).unwrap_or(u32::MAX);
        if u32::MAX - self.last < resources {
            *self = Self::default();
        }
    }

    /// Returns the batch of the previous answer if this answer belongs to it, else a new one.
    fn batch(&mut self, laid: &Arc<Laid>) -> Batch {
        match self.batch.take() {
            Some(batch) if Arc::ptr_eq(&batch.laid, laid) => return batch,
            Some(over) => self.free.extend(over.ids_of_records()),
            None => {}
        }
        Batch { laid: Arc::clone(laid), ids: vec![None; laid.resources.len()] }
    }

    /// Returns the id of a resource, and adds its record to the message if the client lacks it.
    fn tell(
        &mut self,
        answer: &Answer,
        which: usize,
        message: &mut StreamChunkLocationsResponse,
    ) -> u32 {
        let resource = &answer.laid.resources[which];
        let (table_file_id, is_new) = self.id(answer.table, resource);
        if is_new {
            let (url, file_id) = (answer.links.url(resource), file_id(resource));
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
    fn id(&mut self, table: usize, resource: &Resource) -> (u32, bool) {
        let Resource::File(name) = resource else { return (self.next(), true) };
        if let Some(&id) = self.files.get(&(table, *name)) {
            return (id, false);
        }
        if FILES_ADVERTISED_MAX <= self.files.len() {
            self.files.clear();
        }
        let id = self.next();
        self.files.insert((table, *name), id);
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

/// A stream of answers in the order of their requests. It ends with the first error, or when the
/// client's deadline has passed.
pub struct Answers<T> {
    answers: BoxStream<'static, Result<T, Refusal>>,
    deadline: Deadline,
    end: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl<T: Send + 'static> Answers<T> {
    /// Answers requests that wait as one batch, and up to [`BATCHES_AHEAD_MAX`] batches at a time.
    /// Further requests are read as the client takes answers.
    pub fn new<Asked, Answering>(
        requests: impl Stream<Item = Result<Asked, Refusal>> + Send + Unpin + 'static,
        answer: impl FnMut(Vec<Arc<Asked>>) -> Answering + Clone + Send + 'static,
        deadline: Deadline,
    ) -> Self
    where
        Asked: Batched + Send + Sync + Unpin + 'static,
        Answering: Future<Output = Result<Vec<T>, Refusal>> + Send + 'static,
    {
        let answers = move |batch| batches::answers(batch, answer.clone());
        let answers =
            Batches::new(requests).map(answers).buffered(BATCHES_AHEAD_MAX).flatten().boxed();
        let end = deadline.of_client().map(|at| Box::pin(sleep_until(at.into())));
        Self { answers, deadline, end, is_over: false }
    }

    fn is_too_late(&mut self, context: &mut Context<'_>) -> bool {
        self.end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready())
    }
}

impl<T: Send + 'static> Stream for Answers<T> {
    type Item = Result<T, Refusal>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let polled = match self.is_too_late(context) {
            true => Poll::Ready(Some(Err(self.deadline.passed()))),
            false => self.answers.poll_next_unpin(context),
        };
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.is_over = true;
            // Cancels the work for later requests.
            self.answers = futures_util::stream::empty().boxed();
        }
        polled
    }
}

#[cfg(test)]
#[path = "locations/tests.rs"]
mod tests;
