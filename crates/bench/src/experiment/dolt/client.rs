//! Readers of a store: as Dolt's own client does on the wire, and by ranges of the object store
//! itself.
//!
//! ```text
//!   walks: fetch, scan, point --addresses--> Client: location streams (gRPC) --+
//!     ^                             |                                          | locations
//!     |                             +--> Direct: indexes known beforehand --+  |
//!     |                                                                     v  v
//!     +-- contents, each checked against its address -- Downloads: regions, largest first,
//!                                                       GETs of a pool of connections
//! ```
//!
//! Walks depend on what is read: the addresses asked for next come from the contents of chunks that
//! have arrived. Everything runs on the thread that polls it, which is what decodes and checks, as
//! the stock client's processor would. Unlike the stock client, nothing is tried again: whatever
//! fails here is a failed request of the experiment.

mod direct;
mod downloads;
mod http;
mod locations;
mod walks;

use std::{future::Future, net::SocketAddr, time::Duration};

use busload_chunks::{ChunkAddress, FileKind};
use busload_proto::remotesapi::{
    ClientCapability, ClientRepoFormat, Feature, GetRepoMetadataRequest, HasChunksRequest,
    ListTableFilesRequest, RootRequest, TableFileInfo,
    chunk_store_service_client::ChunkStoreServiceClient,
};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::timeout;
use tonic::{
    Response, Status,
    transport::{Channel, Endpoint},
};

use self::{
    downloads::{Dictionaries, DownloadLimits, Downloads},
    http::{Http, count, refused, wrong},
    locations::Locations,
    walks::{Reads, Visit},
};
use super::tree::TreeStore;
use crate::{clock::now_ns, failures::Failure, store::TableFile};

pub use self::{
    direct::{Direct, Ranges},
    http::Counts,
    walks::Work,
};

/// Format of the contents of Dolt's chunks, as stores name it.
const NBF_VERSION: &str = "__DOLT__";

/// Version of table files that the client says it writes.
const NBS_VERSION: &str = "5";

/// Capabilities that a client tells.
const CAPABILITIES: [i32; 1] = [ClientCapability::Http2Download as i32];

/// Files of a clone under way.
const CLONE_FILES: usize = 3;

/// Limits of the stock client's downloads.
const LIMITS: DownloadLimits = DownloadLimits { gap: 8 * 1024, workers: 64 };

/// A call that is not answered for so long is given up; the stock client would wait for ever.
const ANSWER: Duration = Duration::from_secs(60);

const MESSAGE_BYTES_MAX: usize = 128 << 20;

/// Replay that succeeded: every chunk and file of it was right.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub elapsed_ns: u64,
    /// Times of its parts: chains of a point read, nodes of a scan whose children were read, files
    /// of a clone, ranges of a download.
    pub parts_ns: Vec<u64>,
    pub counts: Counts,
}

/// Times a replay and counts what it does.
async fn report(
    http: &Http,
    replay: impl Future<Output = Result<Vec<u64>, Failure>>,
) -> Result<Report, Failure> {
    http.meter.take();
    let began_ns = now_ns();
    let parts_ns = replay.await?;
    Ok(Report { elapsed_ns: since(began_ns), parts_ns, counts: http.meter.take() })
}

fn since(began_ns: u64) -> u64 {
    now_ns().saturating_sub(began_ns)
}

fn of_status(method: &str, status: &Status) -> Failure {
    refused(method, format_args!("{:?}: {}", status.code(), status.message()))
}

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
        let endpoint = endpoint.tcp_nodelay(true).http2_adaptive_window(true);
        let channel = endpoint.connect().await.map_err(|error| refused(address, error))?;
        let service =
            ChunkStoreServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Ok(Self { service, path: path.to_owned(), streams, http: Http::new() })
    }

    /// Does what a command of Dolt does.
    pub async fn replay(&self, tree: &TreeStore, work: Work) -> Result<Report, Failure> {
        let replay = async {
            let root = self.open(tree).await?;
            match work {
                Work::Clone => {
                    self.one(root).await?;
                    return self.clone_files(tree).await;
                }
                Work::Fetch { .. } => {
                    // Its rebase.
                    self.root(tree).await?;
                    self.metadata(tree).await?;
                    let heads = self.one(root).await?.children;
                    self.has_chunks(&heads).await?;
                }
                Work::Scan | Work::Point { .. } => {}
            }
            walks::walk(self, tree, work).await
        };
        report(&self.http, replay).await
    }

    /// Opens the remote, as every use of it begins.
    async fn open(&self, tree: &TreeStore) -> Result<ChunkAddress, Failure> {
        self.metadata(tree).await?;
        self.root(tree).await
    }

    async fn metadata(&self, tree: &TreeStore) -> Result<(), Failure> {
        let format = ClientRepoFormat {
            nbf_version: NBF_VERSION.to_owned(),
            nbs_version: NBS_VERSION.to_owned(),
        };
        let request = GetRepoMetadataRequest {
            repo_path: self.path.clone(),
            client_repo_format: Some(format),
            ..GetRepoMetadataRequest::default()
        };
        let mut service = self.service.clone();
        let found = self.call("GetRepoMetadata", service.get_repo_metadata(request)).await?;
        let streams = Feature::StreamChunkLocations.into();
        if found.nbf_version == NBF_VERSION
            && found.storage_size == tree.store.bytes()
            && (self.streams == Streams::Legacy || found.features.contains(&streams))
        {
            return Ok(());
        }
        let bytes = tree.store.bytes();
        let expected = format!("{NBF_VERSION}, {bytes} bytes, StreamChunkLocations");
        Err(wrong("GetRepoMetadata", format_args!("{found:?}, expected {expected}")))
    }

    async fn root(&self, tree: &TreeStore) -> Result<ChunkAddress, Failure> {
        let request = RootRequest { repo_path: self.path.clone(), ..RootRequest::default() };
        let mut service = self.service.clone();
        let root = self.call("Root", service.root(request)).await?.root_hash;
        if *root != tree.root.0 {
            return Err(wrong("Root", format_args!("{root:?}, expected {}", tree.root)));
        }
        Ok(tree.root)
    }

    /// Checks that all these chunks are there.
    async fn has_chunks(&self, addresses: &[ChunkAddress]) -> Result<(), Failure> {
        let request = HasChunksRequest {
            hashes: addresses.iter().map(|one| Bytes::copy_from_slice(&one.0)).collect(),
            repo_path: self.path.clone(),
            ..HasChunksRequest::default()
        };
        let mut service = self.service.clone();
        let absent = self.call("HasChunks", service.has_chunks(request)).await?.absent;
        if absent.is_empty() {
            return Ok(());
        }
        Err(wrong("HasChunks", format_args!("{} of {} absent", absent.len(), addresses.len())))
    }

    /// Downloads every file of the list, three at a time; how long each took.
    async fn clone_files(&self, tree: &TreeStore) -> Result<Vec<u64>, Failure> {
        let request = ListTableFilesRequest {
            repo_path: self.path.clone(),
            client_capabilities: CAPABILITIES.to_vec(),
            ..ListTableFilesRequest::default()
        };
        let mut service = self.service.clone();
        let list = self.call("ListTableFiles", service.list_table_files(request)).await?;
        let (files, found) = (&tree.store.files, &list.table_file_info);
        if *list.root_hash != tree.root.0 || found.len() != files.len() {
            let expected = files.len();
            let found = format_args!("{} files or another root, expected {expected}", found.len());
            return Err(wrong("ListTableFiles", found));
        }
        let download = |file: &'_ TableFile| {
            let info = found.iter().find(|info| info.file_id == file.id);
            whole(&self.http, info.cloned(), file.clone())
        };
        stream::iter(files).map(download).buffer_unordered(CLONE_FILES).try_collect().await
    }

    /// Makes a call and counts it.
    async fn call<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        self.http.meter.add(|counts| *counts.calls.entry(method).or_default() += 1);
        let answered = timeout(ANSWER, call).await;
        let answered = answered.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
        answered.map(Response::into_inner).map_err(|status| of_status(method, &status))
    }
}

/// Downloads one file and compares it with what was written; how long it took.
async fn whole(http: &Http, info: Option<TableFileInfo>, file: TableFile) -> Result<u64, Failure> {
    let began_ns = now_ns();
    // The client names a file after its URL, and counts its chunks.
    let is_right = |info: &TableFileInfo| {
        let path = info.url.split('?').next().unwrap_or_default();
        path.ends_with(".darc") == (file.kind == FileKind::Archive)
            && info.num_chunks == file.chunk_count
    };
    let Some(info) = info.filter(is_right) else {
        return Err(wrong("ListTableFiles", format_args!("{} is not listed as it is", file.name)));
    };
    let mut body = http.get(&info.url, None).await?;
    let (mut bytes, mut crc) = (0, 0);
    while let Some(data) = body.data().await? {
        bytes += count(data.len());
        crc = crc32c::crc32c_append(crc, &data);
    }
    if (bytes, crc) != (file.bytes, file.crc) {
        let found = format_args!("{bytes} bytes, not the {} of the file", file.bytes);
        return Err(wrong(&info.url, found));
    }
    Ok(since(began_ns))
}

impl Reads for Client {
    /// Asks where chunks are while it downloads others: one fetch object of Dolt's client.
    async fn walk(&self, from: Vec<ChunkAddress>, visit: &mut Visit<'_>) -> Result<(), Failure> {
        let mut downloads = Downloads::new(&self.http, LIMITS, Dictionaries::default());
        let mut locations = Locations::open(self.service.clone(), self.streams, &self.path);
        self.http.meter.add(|counts| {
            *counts.calls.entry(self.streams.method()).or_default() += 1;
        });
        let mut owed = from.len();
        locations.want(from);
        while 0 < owed {
            let event = async {
                tokio::select! {
                    located = locations.next() => located.map(Err),
                    chunk = downloads.next() => chunk.map(Ok),
                }
            };
            let event = timeout(ANSWER, event).await;
            match event.map_err(|_| refused("a walk", format_args!("silent for {ANSWER:?}")))?? {
                Err(located) => located.into_iter().for_each(|chunk| downloads.want(chunk)),
                Ok((address, contents)) => {
                    let wanted = visit(address, contents)?;
                    owed = owed + wanted.len() - 1;
                    locations.want(wanted);
                }
            }
        }
        locations.finish().await
    }
}

#[cfg(test)]
mod tests;
