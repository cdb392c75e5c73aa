//! Location streams: requests go in while answers come out, one for each, in order.

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use busload_chunks::{ChunkAddress, ChunkLocation, Span};
use busload_proto::remotesapi::{
    GetDownloadLocsRequest, GetDownloadLocsResponse, StreamChunkLocationsRequest,
    StreamChunkLocationsResponse, chunk_store_service_client::ChunkStoreServiceClient,
    download_loc::Location,
};
use bytes::Bytes;
use futures_util::{
    StreamExt, TryFutureExt,
    stream::{self, LocalBoxStream},
};
use tokio::{
    sync::mpsc::{Sender, channel},
    time::timeout,
};
use tonic::{Response, Status, transport::Channel};

use super::{
    CAPABILITIES, Streams,
    downloads::LocatedChunk,
    http::{refused, wrong},
    of_status,
};
use crate::failures::Failure;

/// Addresses of one location request.
const LOCATION_ADDRESSES: usize = 512;

/// Longest wait for the end of a stream that has been half-closed.
const STREAM_END: Duration = Duration::from_secs(20);

/// An answer of either kind of stream.
enum Answer {
    New(StreamChunkLocationsResponse),
    Legacy(GetDownloadLocsResponse),
}

/// The locations of one fetch object.
pub struct Locations {
    method: &'static str,
    requests: Sender<Vec<ChunkAddress>>,
    answers: LocalBoxStream<'static, Result<Answer, Status>>,
    /// Addresses to ask for; the last come first, as in the stock client.
    wanted: Vec<ChunkAddress>,
    /// Requests that are not answered yet, in order.
    asked: VecDeque<Vec<ChunkAddress>>,
    /// URLs by the server's numbers.
    urls: HashMap<u32, Rc<str>>,
}

impl Locations {
    /// Opens a stream; `path` is the path of the remote's URL.
    pub fn open(
        mut service: ChunkStoreServiceClient<Channel>,
        streams: Streams,
        path: &str,
    ) -> Self {
        // The stock client's channel holds no request, this one at least one.
        let (requests, received) = channel(1);
        let received = stream::unfold(received, |mut received| async {
            received.recv().await.map(|addresses: Vec<ChunkAddress>| (addresses, received))
        });
        let path = path.to_owned();
        let answers = match streams {
            Streams::New => {
                let messages = received.map(move |addresses| StreamChunkLocationsRequest {
                    repo_path: path.clone(),
                    chunk_hashes: addresses.iter().flat_map(|one| one.0).collect(),
                    client_capabilities: CAPABILITIES.to_vec(),
                    ..StreamChunkLocationsRequest::default()
                });
                let opened = async move { service.stream_chunk_locations(messages).await };
                let answers = opened.map_ok(Response::into_inner).try_flatten_stream();
                answers.map(|answer| answer.map(Answer::New)).boxed_local()
            }
            Streams::Legacy => {
                let hash = |one: &ChunkAddress| Bytes::copy_from_slice(&one.0);
                let messages = received.map(move |addresses| GetDownloadLocsRequest {
                    repo_path: path.clone(),
                    chunk_hashes: addresses.iter().map(hash).collect(),
                    client_capabilities: CAPABILITIES.to_vec(),
                    ..GetDownloadLocsRequest::default()
                });
                let opened = async move { service.stream_download_locations(messages).await };
                let answers = opened.map_ok(Response::into_inner).try_flatten_stream();
                answers.map(|answer| answer.map(Answer::Legacy)).boxed_local()
            }
        };
        Self {
            method: streams.method(),
            requests,
            answers,
            wanted: Vec::new(),
            asked: VecDeque::new(),
            urls: HashMap::new(),
        }
    }

    /// Adds chunks to ask for.
    pub fn want(&mut self, addresses: impl IntoIterator<Item = ChunkAddress>) {
        self.wanted.extend(addresses);
    }

    /// Returns the chunks of the next answer. Can be dropped and called again; never ends when
    /// nothing is wanted.
    pub async fn next(&mut self) -> Result<Vec<LocatedChunk>, Failure> {
        loop {
            let answer = tokio::select! {
                biased;
                answer = self.answers.next() => answer,
                Ok(permit) = self.requests.reserve(), if !self.wanted.is_empty() => {
                    let from = self.wanted.len().saturating_sub(LOCATION_ADDRESSES);
                    let request = self.wanted.split_off(from);
                    self.asked.push_back(request.clone());
                    permit.send(request);
                    continue;
                }
            };
            let answer = answer.ok_or_else(|| wrong(self.method, "the stream ended too early"))?;
            let answer = answer.map_err(|status| of_status(self.method, &status))?;
            let asked = self.asked.pop_front();
            let asked = asked.ok_or_else(|| wrong(self.method, "more answers than requests"))?;
            return located(self.method, &mut self.urls, &asked, answer);
        }
    }

    /// Half-closes the stream and waits for its end.
    pub async fn finish(self) -> Result<(), Failure> {
        let Self { method, requests, mut answers, .. } = self;
        drop(requests);
        match timeout(STREAM_END, answers.next()).await {
            Ok(None) => Ok(()),
            Ok(Some(Ok(_))) => Err(wrong(method, "more answers than requests")),
            Ok(Some(Err(status))) => Err(of_status(method, &status)),
            Err(_) => Err(refused(method, "the stream does not end")),
        }
    }
}

/// Returns the chunks of an answer, which must have all that were asked for.
fn located(
    method: &str,
    urls: &mut HashMap<u32, Rc<str>>,
    asked: &[ChunkAddress],
    answer: Answer,
) -> Result<Vec<LocatedChunk>, Failure> {
    let mut located = Vec::with_capacity(asked.len());
    match answer {
        Answer::New(answer) => {
            urls.extend(
                answer.table_files.into_iter().map(|file| (file.table_file_id, file.url.into())),
            );
            for one in answer.locations {
                let url = urls.get(&one.table_file_id);
                let url = url.ok_or_else(|| wrong(method, "a file that was not introduced"))?;
                let index = usize::try_from(one.request_index).expect("32 bits fit");
                let address = asked.get(index);
                let address =
                    *address.ok_or_else(|| wrong(method, format_args!("index {index}")))?;
                let dictionary = (one.dictionary_offset, one.dictionary_length);
                let location = location((one.offset, one.length), dictionary);
                located.push(LocatedChunk { url: Rc::clone(url), address, location });
            }
        }
        Answer::Legacy(answer) => {
            for loc in answer.locs {
                let Some(Location::HttpGetRange(resource)) = loc.location else {
                    return Err(wrong(method, "a location that is no range"));
                };
                let url: Rc<str> = resource.url.into();
                for one in resource.ranges {
                    let address = ChunkAddress::from_slice(&one.hash);
                    let address = address.map_err(|error| wrong(method, error))?;
                    let dictionary = (one.dictionary_offset, one.dictionary_length);
                    let location = location((one.offset, one.length), dictionary);
                    located.push(LocatedChunk { url: Rc::clone(&url), address, location });
                }
            }
        }
    }
    if located.len() == asked.len() {
        return Ok(located);
    }
    Err(wrong(method, format_args!("{} locations of {} chunks", located.len(), asked.len())))
}

/// Makes the location of a chunk and of its dictionary, whose length is 0 when there is none.
fn location(chunk: (u64, u32), dictionary: (u64, u32)) -> ChunkLocation {
    let span = |(offset, length)| Span { offset, length };
    ChunkLocation { span: span(chunk), dictionary: (dictionary.1 != 0).then(|| span(dictionary)) }
}
