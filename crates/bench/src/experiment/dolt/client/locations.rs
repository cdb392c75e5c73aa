//! Location streams: requests go in while answers come out, one for each, in order.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    rc::Rc,
};

use busload_chunks::{ChunkAddress, ChunkLocation, Span};
use busload_proto::remotesapi::{
    ClientCapability, GetDownloadLocsRequest, GetDownloadLocsResponse, StreamChunkLocationsRequest,
    StreamChunkLocationsResponse, download_loc::Location,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryFutureExt, stream};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    time::{sleep, timeout},
};
use tonic::Status;

use super::{
    counts::Meter,
    downloads::LocatedChunk,
    failure::{backoff, is_permanent, of_status, refused, wrong},
    limits::{CONNECT, LOCATION_ADDRESSES, RETRIES, STREAM_REQUESTS},
    rpc::{Client, Streams},
};
use crate::failures::Failure;

/// Capabilities that a client tells.
pub const CAPABILITIES: [i32; 1] = [ClientCapability::Http2Download as i32];

/// An answer of either kind of stream.
enum Answer {
    New(StreamChunkLocationsResponse),
    Legacy(GetDownloadLocsResponse),
}

/// A stream that is open, or about to be.
struct Call {
    /// Gone once no more will be asked.
    requests: Option<Sender<Vec<ChunkAddress>>>,
    answers: Pin<Box<dyn Stream<Item = Result<Answer, Status>>>>,
}

enum Event {
    Sent,
    Answered(Answer),
    Failed(Status),
}

/// The locations of one fetch object. When the stream breaks it is opened again and asked again for
/// what it still owes.
pub struct Locations<'a> {
    open: Box<dyn Fn() -> Call + 'a>,
    method: &'static str,
    meter: &'a Meter,
    call: Call,
    /// Addresses to ask for; the last come first, as in the stock client.
    wanted: Vec<ChunkAddress>,
    /// Sent on this or an earlier stream, in order.
    unanswered: VecDeque<Vec<ChunkAddress>>,
    /// Number of them that this stream has been sent.
    sent: usize,
    /// Resources of this fetch object, by the server's numbers.
    resources: HashMap<u32, Rc<str>>,
    /// URLs seen, each kept once.
    urls: HashMap<String, Rc<str>>,
    /// Failures since the last answer.
    retries: u32,
}

impl<'a> Locations<'a> {
    pub fn new(client: &'a Client) -> Self {
        Self::over(client.streams().method(), client.meter(), move || open(client))
    }

    fn over(method: &'static str, meter: &'a Meter, open: impl Fn() -> Call + 'a) -> Self {
        let call = open();
        Self {
            open: Box::new(open),
            method,
            meter,
            call,
            wanted: Vec::new(),
            unanswered: VecDeque::new(),
            sent: 0,
            resources: HashMap::new(),
            urls: HashMap::new(),
            retries: 0,
        }
    }

    /// Chunks whose located are wanted.
    pub fn want(&mut self, addresses: impl IntoIterator<Item = ChunkAddress>) {
        self.wanted.extend(addresses);
    }

    /// Chunks asked for, as soon as an answer has some. Can be dropped and called again;
    /// never ends when nothing is owed.
    pub async fn next(&mut self) -> Result<Vec<LocatedChunk>, Failure> {
        loop {
            match self.event().await {
                Event::Sent => {}
                Event::Answered(answer) => {
                    self.retries = 0;
                    let asked = self.unanswered.pop_front();
                    let asked =
                        asked.ok_or_else(|| wrong(self.method, "more answers than requests"))?;
                    self.sent = self.sent.saturating_sub(1);
                    return self.located(&asked, answer);
                }
                Event::Failed(status) => self.again(&status).await?,
            }
        }
    }

    /// No more will be asked; waits for the end of the stream.
    pub async fn finish(mut self) -> Result<(), Failure> {
        self.call.requests = None;
        match timeout(CONNECT, self.call.answers.next()).await {
            Ok(None) => Ok(()),
            Ok(Some(Ok(_))) => Err(wrong(self.method, "more answers than requests")),
            Ok(Some(Err(status))) => Err(of_status(self.method, &status)),
            Err(_) => Err(refused(self.method, "the stream does not end")),
        }
    }

    async fn event(&mut self) -> Event {
        let has_more = self.sent < self.unanswered.len() || !self.wanted.is_empty();
        let Call { requests, answers } = &mut self.call;
        let answer = answers.next();
        let answered = match requests.as_ref().filter(|_| has_more) {
            None => answer.await,
            Some(requests) => tokio::select! {
                biased;
                answered = answer => answered,
                Ok(permit) = requests.reserve() => {
                    let request = self.unanswered.get(self.sent).cloned().unwrap_or_else(|| {
                        let from = self.wanted.len().saturating_sub(LOCATION_ADDRESSES);
                        let request = self.wanted.split_off(from);
                        self.unanswered.push_back(request.clone());
                        request
                    });
                    self.sent += 1;
                    permit.send(request);
                    self.meter.add(|counts| counts.location_requests += 1);
                    return Event::Sent;
                }
            },
        };
        match answered {
            Some(Ok(answer)) => Event::Answered(answer),
            Some(Err(status)) => Event::Failed(status),
            None => Event::Failed(Status::unavailable("the stream ended before its time")),
        }
    }

    /// Opens another stream, a little later.
    async fn again(&mut self, status: &Status) -> Result<(), Failure> {
        if is_permanent(status) || self.retries == RETRIES {
            return Err(of_status(self.method, status));
        }
        // Whatever happens to this call of `next`, the broken stream is not looked at again.
        self.call = (self.open)();
        self.sent = 0;
        self.retries += 1;
        self.meter.add(|counts| counts.retries += 1);
        sleep(backoff(self.retries - 1)).await;
        Ok(())
    }

    fn located(
        &mut self,
        asked: &[ChunkAddress],
        answer: Answer,
    ) -> Result<Vec<LocatedChunk>, Failure> {
        let located = match answer {
            Answer::New(answer) => self.new_located(asked, answer)?,
            Answer::Legacy(answer) => self.legacy_located(answer)?,
        };
        if located.len() == asked.len() {
            return Ok(located);
        }
        Err(wrong(self.method, format_args!("{} located of {} chunks", located.len(), asked.len())))
    }

    fn new_located(
        &mut self,
        asked: &[ChunkAddress],
        answer: StreamChunkLocationsResponse,
    ) -> Result<Vec<LocatedChunk>, Failure> {
        for record in answer.table_files {
            let url = self.url(record.url);
            self.resources.insert(record.table_file_id, url);
        }
        let of_request = |index: u32| {
            let address = usize::try_from(index).ok().and_then(|index| asked.get(index));
            address
                .copied()
                .ok_or_else(|| wrong("StreamChunkLocations", format_args!("index {index}")))
        };
        if let Some(missing) = answer.missing_indexes.first() {
            return Err(wrong(of_request(*missing)?, "the server says it is missing"));
        }
        let located_chunk = |location: &busload_proto::remotesapi::ChunkLocation| {
            let url = self.resources.get(&location.table_file_id);
            let url = url.ok_or_else(|| {
                wrong("StreamChunkLocations", "a resource that was not introduced")
            })?;
            let spans = [
                (location.offset, location.length),
                (location.dictionary_offset, location.dictionary_length),
            ];
            Ok(LocatedChunk {
                url: Rc::clone(url),
                address: of_request(location.request_index)?,
                location: location_of(spans),
            })
        };
        answer.locations.iter().map(located_chunk).collect()
    }

    fn legacy_located(
        &mut self,
        answer: GetDownloadLocsResponse,
    ) -> Result<Vec<LocatedChunk>, Failure> {
        let mut located = Vec::new();
        for loc in answer.locs {
            let Some(Location::HttpGetRange(resource)) = loc.location else {
                return Err(wrong("StreamDownloadLocations", "a location that is no range"));
            };
            let url = self.url(resource.url);
            for range in resource.ranges {
                let address = ChunkAddress::from_slice(&range.hash);
                let address = address.map_err(|error| wrong("StreamDownloadLocations", error))?;
                let spans = [
                    (range.offset, range.length),
                    (range.dictionary_offset, range.dictionary_length),
                ];
                located.push(LocatedChunk {
                    url: Rc::clone(&url),
                    address,
                    location: location_of(spans),
                });
            }
        }
        Ok(located)
    }

    fn url(&mut self, url: String) -> Rc<str> {
        let kept = self.urls.entry(url).or_insert_with_key(|url| url.as_str().into());
        Rc::clone(kept)
    }
}

/// Makes the location of a chunk and of its dictionary, whose length is 0 when there is none.
fn location_of([chunk, dictionary]: [(u64, u32); 2]) -> ChunkLocation {
    let span = |(offset, length)| Span { offset, length };
    ChunkLocation { span: span(chunk), dictionary: (dictionary.1 != 0).then(|| span(dictionary)) }
}

fn open(client: &Client) -> Call {
    let (requests, received) = channel(STREAM_REQUESTS);
    client.meter().call(client.streams().method());
    let mut service = client.service();
    let path = client.path().to_owned();
    let id = client.id();
    let answers: Pin<Box<dyn Stream<Item = _>>> = match client.streams() {
        Streams::New => {
            let request = move |addresses: Vec<ChunkAddress>| StreamChunkLocationsRequest {
                repo_id: id.clone(),
                repo_token: String::new(),
                repo_path: path.clone(),
                chunk_hashes: addresses
                    .iter()
                    .flat_map(|address| address.0)
                    .collect::<Vec<_>>()
                    .into(),
                client_capabilities: CAPABILITIES.to_vec(),
            };
            let opened =
                async move { service.stream_chunk_locations(messages(received, request)).await };
            let answers = opened.map_ok(tonic::Response::into_inner).try_flatten_stream();
            Box::pin(answers.map(|answer| answer.map(Answer::New)))
        }
        Streams::Legacy => {
            let request = move |addresses: Vec<ChunkAddress>| GetDownloadLocsRequest {
                repo_id: id.clone(),
                repo_token: String::new(),
                repo_path: path.clone(),
                chunk_hashes: addresses
                    .iter()
                    .map(|address| Bytes::copy_from_slice(&address.0))
                    .collect(),
                client_capabilities: CAPABILITIES.to_vec(),
            };
            let opened =
                async move { service.stream_download_locations(messages(received, request)).await };
            let answers = opened.map_ok(tonic::Response::into_inner).try_flatten_stream();
            Box::pin(answers.map(|answer| answer.map(Answer::Legacy)))
        }
    };
    Call { requests: Some(requests), answers }
}

/// Makes the messages of a stream, until nobody will ask any more.
fn messages<T>(
    received: Receiver<Vec<ChunkAddress>>,
    request: impl Fn(Vec<ChunkAddress>) -> T + Clone,
) -> impl Stream<Item = T> {
    stream::unfold(received, move |mut received| {
        let request = request.clone();
        async move { received.recv().await.map(|addresses| (request(addresses), received)) }
    })
}

#[cfg(test)]
mod tests;
