//! The calls that Dolt's client makes, on one gRPC connection.

use std::{collections::HashMap, future::Future, net::SocketAddr, rc::Rc};

use anyhow::{Context, Result};
use busload_chunks::{ChunkAddress, ChunkLocation, Span};
use busload_proto::remotesapi::{
    ClientCapability, ClientRepoFormat, Feature, GetRepoMetadataRequest, HasChunksRequest,
    ListTableFilesRequest, RootRequest, StreamChunkLocationsRequest, StreamChunkLocationsResponse,
    TableFileInfo, chunk_store_service_client::ChunkStoreServiceClient,
};
use bytes::Bytes;
use futures_util::{
    StreamExt, TryFutureExt,
    stream::{self, LocalBoxStream},
};
use tonic::{
    Response, Status,
    transport::{Channel, Endpoint},
};

use super::{
    downloads::{LocatedChunk, Meter, ensure, refused, wrong},
    tree::TreeStore,
};
use crate::{failures::Failure, limits::GRPC_MESSAGE_BYTES_MAX};

/// Format of the contents of Dolt's chunks, as stores name it.
const NBF_VERSION: &str = "__DOLT__";

/// Capabilities that a client tells.
const CAPABILITIES: [i32; 1] = [ClientCapability::Http2Download as i32];

/// Method that returns chunk locations.
const LOCATIONS: &str = "StreamChunkLocations";

/// Addresses of one location request.
const LOCATION_ADDRESSES: usize = 512;

type Service = ChunkStoreServiceClient<Channel>;

/// One connection to a remote; every call is counted.
#[derive(Debug)]
pub struct Remotesapi {
    service: Service,
    path: String,
    meter: Meter,
}

impl Remotesapi {
    /// Connects to a server; `path` is the path of the remote's URL.
    pub async fn connect(address: SocketAddr, path: &str, meter: &Meter) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).context("an address")?;
        // grpc-go measures its windows, too.
        let endpoint = endpoint.tcp_nodelay(true).http2_adaptive_window(true);
        let channel = endpoint.connect().await.with_context(|| format!("no gRPC at {address}"))?;
        let service = Service::new(channel).max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
        Ok(Self { service, path: path.to_owned(), meter: Rc::clone(meter) })
    }

    /// Makes the two calls with which every use of a remote begins.
    pub async fn open(&self, tree: &TreeStore) -> Result<(), Failure> {
        let (nbf_version, nbs_version) = (NBF_VERSION.to_owned(), "5".to_owned());
        let request = GetRepoMetadataRequest {
            repo_path: self.path.clone(),
            client_repo_format: Some(ClientRepoFormat { nbf_version, nbs_version }),
            ..Default::default()
        };
        let mut service = self.service.clone();
        let found = self.call("GetRepoMetadata", service.get_repo_metadata(request)).await?;
        let is_right = found.nbf_version == NBF_VERSION
            && found.storage_size == tree.store.bytes()
            && found.features.contains(&Feature::StreamChunkLocations.into());
        ensure(is_right, "GetRepoMetadata", format_args!("{found:?}"))?;
        let request = RootRequest { repo_path: self.path.clone(), ..Default::default() };
        let root = self.call("Root", service.root(request)).await?.root_hash;
        ensure(*root == tree.root.0, "Root", format_args!("{root:?}, expected {}", tree.root))
    }

    /// Checks that all these chunks are there.
    pub async fn has_chunks(&self, addresses: &[ChunkAddress]) -> Result<(), Failure> {
        let request = HasChunksRequest {
            hashes: addresses.iter().map(|one| Bytes::copy_from_slice(&one.0)).collect(),
            repo_path: self.path.clone(),
            ..Default::default()
        };
        let mut service = self.service.clone();
        let absent = self.call("HasChunks", service.has_chunks(request)).await?.absent.len();
        ensure(absent == 0, "HasChunks", format_args!("{absent} chunks are absent"))
    }

    pub async fn table_files(&self, tree: &TreeStore) -> Result<Vec<TableFileInfo>, Failure> {
        let request = ListTableFilesRequest {
            repo_path: self.path.clone(),
            client_capabilities: CAPABILITIES.to_vec(),
            ..Default::default()
        };
        let mut service = self.service.clone();
        let list = self.call("ListTableFiles", service.list_table_files(request)).await?;
        let (found, expected) = (list.table_file_info.len(), tree.store.files.len());
        let is_right = *list.root_hash == tree.root.0 && found == expected;
        let why = format_args!("{found} files or another root, expected {expected}");
        ensure(is_right, "ListTableFiles", why).map(|()| list.table_file_info)
    }

    /// Makes a call and counts it.
    async fn call<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        *self.meter.borrow_mut().calls.entry(method).or_default() += 1;
        call.await.map(Response::into_inner).map_err(|status| of_status(method, &status))
    }

    /// Asks where chunks are on a stream of its own: requests go in while answers come out, one
    /// for each, in order.
    pub fn locations(
        &self,
        addresses: &[ChunkAddress],
    ) -> LocalBoxStream<'static, Result<Vec<LocatedChunk>, Failure>> {
        *self.meter.borrow_mut().calls.entry(LOCATIONS).or_default() += 1;
        let (mut service, path) = (self.service.clone(), self.path.clone());
        let asked: Vec<_> = addresses.chunks(LOCATION_ADDRESSES).map(<[_]>::to_vec).collect();
        let messages = stream::iter(asked.clone()).map(move |asked| StreamChunkLocationsRequest {
            repo_path: path.clone(),
            chunk_hashes: asked.iter().flat_map(|address| address.0).collect(),
            client_capabilities: CAPABILITIES.to_vec(),
            ..Default::default()
        });
        let opened = async move { service.stream_chunk_locations(messages).await };
        let answers = opened.map_ok(Response::into_inner).try_flatten_stream();
        let (mut asked, mut urls) = (asked.into_iter(), HashMap::new());
        let located = answers.map(move |answer| {
            let answer = answer.map_err(|status| of_status(LOCATIONS, &status))?;
            let located = asked.next().and_then(|asked| located(answer, &asked, &mut urls));
            located.ok_or_else(|| wrong(LOCATIONS, "an answer that is not the one to a request"))
        });
        located.boxed_local()
    }
}

fn of_status(method: &str, status: &Status) -> Failure {
    refused(method, format_args!("{:?}: {}", status.code(), status.message()))
}

/// Reads an answer, which has all that was asked for; `urls` are those of all answers so far.
fn located(
    answer: StreamChunkLocationsResponse,
    asked: &[ChunkAddress],
    urls: &mut HashMap<u32, Rc<str>>,
) -> Option<Vec<LocatedChunk>> {
    urls.extend(answer.table_files.into_iter().map(|file| (file.table_file_id, file.url.into())));
    let span = |(offset, length)| Span { offset, length };
    let located = answer.locations.into_iter().map(|one| {
        let url = Rc::clone(urls.get(&one.table_file_id)?);
        let address = *asked.get(usize::try_from(one.request_index).ok()?)?;
        // The length of a dictionary is 0 when there is none.
        let dictionary = (one.dictionary_offset, one.dictionary_length);
        let dictionary = (dictionary.1 != 0).then(|| span(dictionary));
        let location = ChunkLocation { span: span((one.offset, one.length)), dictionary };
        Some(LocatedChunk { url, address, location })
    });
    let located: Vec<_> = located.collect::<Option<_>>()?;
    (located.len() == asked.len()).then_some(located)
}
