//! The connection to a remote, its single calls, and the operations of Dolt's client.

use std::net::SocketAddr;

use busload_chunks::ChunkAddress;
use busload_proto::remotesapi::{
    ClientRepoFormat, Feature, GetRepoMetadataRequest, GetRepoMetadataResponse, HasChunksRequest,
    ListTableFilesRequest, ListTableFilesResponse, RepoId, RootRequest,
    chunk_store_service_client::ChunkStoreServiceClient,
};
use bytes::Bytes;
use tokio::time::{sleep, timeout};
use tonic::{
    Response, Status,
    transport::{Channel, Endpoint},
};

use super::{
    clone,
    counts::{Meter, Report},
    failure::{backoff, is_permanent, of_status, refused, wrong},
    http::Http,
    limits::{ANSWER, CONNECT, HAS_ADDRESSES, MESSAGE_BYTES_MAX, RETRIES},
    locations::CAPABILITIES,
    walks::{self, Points, Reads},
};
use crate::{experiment::dolt::store::Store, failures::Failure};

/// Format of the contents of Dolt's chunks, as stores name it.
const NBF_VERSION: &str = "__DOLT__";

/// The version of table files that the client says it writes.
const NBS_VERSION: &str = "5";

/// Streams that can be asked for locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// The method `StreamChunkLocations`, of newer clients.
    New,
    /// `StreamDownloadLocations`, of clients or servers that know no other.
    Legacy,
}

impl Streams {
    pub fn method(self) -> &'static str {
        match self {
            Self::New => "StreamChunkLocations",
            Self::Legacy => "StreamDownloadLocations",
        }
    }
}

/// Dolt's client: one gRPC connection, a pool of HTTP connections. Runs on the thread that polls
/// it.
#[derive(Debug)]
pub struct Client {
    service: ChunkStoreServiceClient<Channel>,
    path: String,
    streams: Streams,
    http: Http,
    meter: Meter,
}

impl Client {
    /// Connects to a server; `path` is the path of the remote's URL.
    pub async fn connect(
        address: SocketAddr,
        path: &str,
        streams: Streams,
    ) -> Result<Self, Failure> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.map_err(|error| refused(address, error))?;
        // grpc-go measures its windows, too.
        let endpoint =
            endpoint.tcp_nodelay(true).http2_adaptive_window(true).connect_timeout(CONNECT);
        let channel = endpoint.connect().await.map_err(|error| refused(address, error))?;
        let service =
            ChunkStoreServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let meter = Meter::default();
        let path = path.trim_matches('/').to_owned();
        Ok(Self { service, path, streams, http: Http::new(&meter), meter })
    }

    /// Clones: metadata, root and its chunk, then every file as a whole, three at a time. Every
    /// byte of every file is compared with what the store is known to hold.
    pub async fn clone_files(&self, store: &Store) -> Result<Report, Failure> {
        let started = self.meter.begin();
        let root = self.open(store).await?;
        self.one(root).await?;
        let parts_ns = clone::files(self, store).await?;
        Ok(started.end(parts_ns))
    }

    /// Fetches everything that was not written by the first `had` pushes; with 0 all there is.
    pub async fn fetch(&self, store: &Store, had: usize) -> Result<Report, Failure> {
        let started = self.meter.begin();
        self.open(store).await?;
        // Its rebase.
        let root = self.root(store).await?;
        self.metadata().await?;
        let heads = self.one(root).await?.children;
        self.has_chunks(&heads).await?;
        walks::fetch(self, store, root, had).await?;
        Ok(started.end(Vec::new()))
    }

    /// Reads the current version as a query over all rows does.
    pub async fn scan(&self, store: &Store) -> Result<Report, Failure> {
        let started = self.meter.begin();
        let root = self.open(store).await?;
        let parts_ns = walks::scan(self, store, root).await?;
        Ok(started.end(parts_ns))
    }

    /// Reads chains from the root to leaves.
    pub async fn point(&self, store: &Store, points: &Points) -> Result<Report, Failure> {
        let started = self.meter.begin();
        let root = self.open(store).await?;
        let parts_ns = walks::point(self, store, root, points).await?;
        Ok(started.end(parts_ns))
    }

    /// Opens the remote, as every use of it begins.
    async fn open(&self, store: &Store) -> Result<ChunkAddress, Failure> {
        let metadata = self.metadata().await?;
        if metadata.nbf_version != NBF_VERSION || metadata.storage_size != store.bytes() {
            let (version, bytes) = (metadata.nbf_version, metadata.storage_size);
            let expected = store.bytes();
            let found =
                format!("{version} with {bytes} bytes, expected {NBF_VERSION} with {expected}");
            return Err(wrong("GetRepoMetadata", found));
        }
        if self.streams == Streams::New
            && !metadata.features.contains(&Feature::StreamChunkLocations.into())
        {
            return Err(wrong("GetRepoMetadata", "expected the feature StreamChunkLocations"));
        }
        self.root(store).await
    }

    async fn metadata(&self) -> Result<GetRepoMetadataResponse, Failure> {
        let request = GetRepoMetadataRequest {
            repo_id: self.id(),
            repo_token: String::new(),
            repo_path: self.path.clone(),
            client_repo_format: Some(ClientRepoFormat {
                nbf_version: NBF_VERSION.to_owned(),
                nbs_version: NBS_VERSION.to_owned(),
            }),
        };
        let call = async || self.service().get_repo_metadata(request.clone()).await;
        self.retried("GetRepoMetadata", call).await
    }

    async fn root(&self, store: &Store) -> Result<ChunkAddress, Failure> {
        let request = RootRequest {
            repo_id: self.id(),
            repo_token: String::new(),
            repo_path: self.path.clone(),
        };
        let call = async || self.service().root(request.clone()).await;
        let root = self.retried("Root", call).await?.root_hash;
        let root = ChunkAddress::from_slice(&root).map_err(|error| wrong("Root", error))?;
        if root != store.root {
            return Err(wrong("Root", format_args!("{root}, expected {}", store.root)));
        }
        Ok(root)
    }

    /// Checks that all these chunks are there.
    async fn has_chunks(&self, addresses: &[ChunkAddress]) -> Result<(), Failure> {
        for addresses in addresses.chunks(HAS_ADDRESSES) {
            let request = HasChunksRequest {
                repo_id: self.id(),
                hashes: addresses
                    .iter()
                    .map(|address| Bytes::copy_from_slice(&address.0))
                    .collect(),
                repo_token: String::new(),
                repo_path: self.path.clone(),
            };
            let call = async || self.service().has_chunks(request.clone()).await;
            let absent = self.retried("HasChunks", call).await?.absent;
            if !absent.is_empty() {
                return Err(wrong(
                    "HasChunks",
                    format_args!("{} of {} absent", absent.len(), addresses.len()),
                ));
            }
        }
        Ok(())
    }

    /// The files of the current version.
    pub(super) async fn list(&self) -> Result<ListTableFilesResponse, Failure> {
        let request = ListTableFilesRequest {
            repo_id: self.id(),
            repo_path: self.path.clone(),
            client_capabilities: CAPABILITIES.to_vec(),
            ..ListTableFilesRequest::default()
        };
        let call = async || self.service().list_table_files(request.clone()).await;
        self.retried("ListTableFiles", call).await
    }

    /// A call, and again while that may help.
    async fn retried<T>(
        &self,
        method: &'static str,
        call: impl AsyncFn() -> Result<Response<T>, Status>,
    ) -> Result<T, Failure> {
        let mut retries = 0;
        loop {
            self.meter.call(method);
            let answered = timeout(ANSWER, call()).await;
            match answered.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time"))) {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) if is_permanent(&status) || retries == RETRIES => {
                    return Err(of_status(method, &status));
                }
                Err(_) => {
                    self.meter.add(|counts| counts.retries += 1);
                    sleep(backoff(retries)).await;
                    retries += 1;
                }
            }
        }
    }

    pub(super) fn service(&self) -> ChunkStoreServiceClient<Channel> {
        self.service.clone()
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the id of a path with two components; else the client sends none.
    pub(super) fn id(&self) -> Option<RepoId> {
        let (org, name) = self.path.split_once('/')?;
        (!name.contains('/')).then(|| RepoId { org: org.to_owned(), repo_name: name.to_owned() })
    }

    pub(super) fn streams(&self) -> Streams {
        self.streams
    }

    pub(super) fn http(&self) -> &Http {
        &self.http
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }
}
