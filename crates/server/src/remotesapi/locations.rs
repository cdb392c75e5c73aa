//! Streams of locations: one answer for each request, in their order.

use std::{
    collections::HashMap,
    future::ready,
    pin::Pin,
    task::{Context, Poll},
};

use busload_dolt::{ChunkAddress, Span};
use busload_proto::remotesapi::{
    ChunkLocation, DownloadLoc, GetDownloadLocsResponse, HttpGetRange, RangeChunk,
    StreamChunkLocationsResponse, TableFileRecord, download_loc,
};
use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, stream::BoxStream};
use tokio::time::{Sleep, sleep_until};
use tonic::Status as Refusal;

use super::{
    layout::Laid,
    limits::{FILES_TOLD_MAX, REQUESTS_AHEAD_MAX},
    target::Links,
    url::{FileName, Resource},
};
use crate::grpc::{answer, deadline::Deadline};

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Question {
    /// Each address once.
    pub addresses: Vec<ChunkAddress>,
    /// Of each entry of the request, which of the addresses it is.
    pub entries: Vec<usize>,
}

impl Question {
    /// Of addresses one after the other.
    pub fn of_packed(field: &str, bytes: &[u8]) -> Result<Self, Refusal> {
        Ok(Self::new(answer::addresses(field, bytes)?.iter().copied()))
    }

    /// Of a list.
    pub fn of_list(field: &str, list: &[Bytes]) -> Result<Self, Refusal> {
        Ok(Self::new(listed(field, list)?.into_iter().map(|ChunkAddress(bytes)| bytes)))
    }

    fn new(asked: impl ExactSizeIterator<Item = [u8; ChunkAddress::BYTES]>) -> Self {
        let mut known: HashMap<ChunkAddress, usize> = HashMap::with_capacity(asked.len());
        let (mut addresses, mut entries) = (Vec::with_capacity(asked.len()), Vec::with_capacity(asked.len()));
        for address in asked.map(ChunkAddress) {
            let entry = *known.entry(address).or_insert_with(|| {
                addresses.push(address);
                addresses.len() - 1
            });
            entries.push(entry);
        }
        Self { addresses, entries }
    }
}

/// The addresses of a list.
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

/// What a request is answered with.
#[derive(Debug)]
pub struct Answer {
    /// What was asked.
    pub question: Question,
    /// Where the chunks are.
    pub laid: Laid,
    /// Number of their table.
    pub table: usize,
    /// Of the table.
    pub links: Links,
}

impl Answer {
    /// Entries of the request whose chunks exist, and those whose do not.
    pub fn counts(&self) -> (usize, usize) {
        let is_found = |entry: &&usize| self.laid.places[**entry].is_some();
        let found = self.question.entries.iter().filter(is_found).count();
        (found, self.question.entries.len() - found)
    }

    /// As the older calls have it: ranges by resource, each address once. What is in none of them is missing.
    pub fn into_ranges(self) -> GetDownloadLocsResponse {
        let Self { question, laid, links, .. } = self;
        let mut ranges: Vec<Vec<RangeChunk>> = laid.resources.iter().map(|_| Vec::new()).collect();
        for (address, place) in question.addresses.iter().zip(&laid.places) {
            let Some(place) = place else { continue };
            let (dictionary_offset, dictionary_length) = parts(place.dictionary);
            ranges[place.resource].push(RangeChunk {
                hash: Bytes::copy_from_slice(&address.0),
                offset: place.span.offset,
                length: place.span.length,
                dictionary_offset,
                dictionary_length,
            });
        }
        let location = |(resource, ranges)| {
            let range = HttpGetRange { url: links.url(resource), ranges };
            let location = Some(download_loc::Location::HttpGetRange(range));
            DownloadLoc { location, ..DownloadLoc::default() }
        };
        let locs = laid.resources.iter().zip(ranges).map(location).collect();
        GetDownloadLocsResponse { locs, ..GetDownloadLocsResponse::default() }
    }
}

/// What a stream has told its client of resources: a record is sent with the first location in it.
#[derive(Debug, Default)]
pub struct Told {
    /// By table. Records of chunks are not among them: another request has others.
    files: HashMap<(usize, FileName), u32>,
    last: u32,
}

impl Told {
    /// The answer's message.
    pub fn message(&mut self, answer: &Answer) -> StreamChunkLocationsResponse {
        let Answer { question, laid, table, links } = answer;
        let mut message = StreamChunkLocationsResponse::default();
        let mut ids = Vec::with_capacity(laid.resources.len());
        for resource in &laid.resources {
            let (table_file_id, is_new) = self.id(*table, resource);
            ids.push(table_file_id);
            if is_new {
                let (url, file_id) = (links.url(resource), file_id(resource));
                message.table_files.push(TableFileRecord {
                    table_file_id,
                    url,
                    refresh_after: None,
                    file_id,
                });
            }
        }
        for (request_index, &entry) in (0..).zip(&question.entries) {
            let Some(place) = laid.places[entry] else {
                message.missing_indexes.push(request_index);
                continue;
            };
            let (dictionary_offset, dictionary_length) = parts(place.dictionary);
            message.locations.push(ChunkLocation {
                table_file_id: ids[place.resource],
                request_index,
                offset: place.span.offset,
                length: place.span.length,
                dictionary_offset,
                dictionary_length,
            });
        }
        message
    }

    /// And whether it has to be told.
    fn id(&mut self, table: usize, resource: &Resource) -> (u32, bool) {
        let Resource::File(name) = resource else { return (self.next(), true) };
        if let Some(&id) = self.files.get(&(table, *name)) {
            return (id, false);
        }
        if FILES_TOLD_MAX <= self.files.len() {
            self.files.clear();
        }
        let id = self.next();
        self.files.insert((table, *name), id);
        (id, true)
    }

    /// 1 and up. A client takes a record in place of an older one of the same id.
    fn next(&mut self) -> u32 {
        self.last = self.last.checked_add(1).unwrap_or_else(|| {
            self.files.clear();
            1
        });
        self.last
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

/// Answers in the order of their requests, and the end of a stream with the first error, or when the client's time is over.
pub struct Answers<T> {
    answers: BoxStream<'static, Result<T, Refusal>>,
    deadline: Deadline,
    end: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl<T: Send + 'static> Answers<T> {
    /// Some requests are worked on at once. The next ones are read when the client takes answers.
    pub fn new<Asked, Answering>(
        requests: impl Stream<Item = Result<Asked, Refusal>> + Send + 'static,
        mut answer: impl FnMut(Asked) -> Answering + Send + 'static,
        deadline: Deadline,
    ) -> Self
    where
        Answering: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        let answering = move |request: Result<Asked, Refusal>| match request {
            Ok(request) => answer(request).left_future(),
            Err(refusal) => ready(Err(refusal)).right_future(),
        };
        let answers = requests.map(answering).buffered(REQUESTS_AHEAD_MAX).boxed();
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
            // What is under way for requests after it ends here.
            self.answers = futures_util::stream::empty().boxed();
        }
        polled
    }
}

#[cfg(test)]
#[path = "locations/tests.rs"]
mod tests;
