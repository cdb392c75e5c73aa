//! A client that works as Dolt's does: it asks for chunk locations with one of three calls,
//! downloads ranges, and decodes them.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    ops::Range,
};

use busload_proto::remotesapi::{
    self as api, ClientCapability, GetDownloadLocsRequest, GetDownloadLocsResponse,
    ListTableFilesRequest, ListTableFilesResponse, RepoId, RootRequest,
    StreamChunkLocationsRequest, StreamChunkLocationsResponse,
    chunk_store_service_client::ChunkStoreServiceClient, download_loc::Location,
};
use tokio::runtime::Runtime;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

use super::{
    eventually,
    http::{Head, Http, target},
};
use crate::support::TIMEOUT;

/// Address of one chunk.
pub type Address = [u8; 20];
/// A client on one gRPC connection.
pub type Grpc = ChunkStoreServiceClient<Channel>;

/// Call that returns chunk locations. The unary one is for clients that know no dictionaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Stream,
    Legacy,
    Unary,
}

/// All calls that return locations.
pub const WAYS: [Way; 3] = [Way::Stream, Way::Legacy, Way::Unary];

/// Location of a chunk as the server advertises it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkLocation {
    pub url: String,
    pub span: Range<u64>,
    pub dictionary: Option<Range<u64>>,
}

/// Location for each address of a request; none if the store does not hold the chunk.
pub type ChunkLocations = Vec<Option<ChunkLocation>>;

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    pub runtime: Runtime,
    pub grpc: Grpc,
    pub address: SocketAddr,
}

impl Client {
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let grpc = runtime.block_on(connect(address));
        Self { runtime, grpc, address }
    }

    /// Opens a further connection.
    pub fn another(&self) -> Grpc {
        self.wait(connect(self.address))
    }

    /// Makes one unary call.
    pub fn call<T, F>(&self, call: impl FnOnce(Grpc) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.wait(call(self.grpc.clone())).map(tonic::Response::into_inner)
    }

    /// Waits for a future, but not for ever.
    #[track_caller]
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let waited = self.runtime.block_on(async { tokio::time::timeout(TIMEOUT, future).await });
        waited.expect("an answer in time")
    }

    /// Returns the prefix of all URLs.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn http(&self) -> Http {
        Http::connect(self.address)
    }

    /// Downloads a file over a connection of its own; none if it is refused or cut off.
    pub fn file(&self, target: &str) -> Option<Vec<u8>> {
        let answer = self.http().try_call("GET", target, "").ok()?;
        (answer.head.status == 200 && answer.is_whole).then_some(answer.body)
    }

    /// Starts a download and waits for its head. On a slow machine that may exceed the table's
    /// timeout and is then refused, so it is tried again.
    #[track_caller]
    pub fn begin(&self, target: &str, headers: &str) -> (Http, Head) {
        let mut begun = None;
        eventually("the download begins", || {
            let mut http = self.http();
            http.send("GET", target, headers);
            let head = http.try_head().ok().filter(|head| [200, 206].contains(&head.status));
            begun = head.map(|head| (http, head));
            begun.is_some()
        });
        begun.unwrap()
    }

    pub fn downloads(&self) -> Downloads {
        Downloads { http: self.http(), base: self.base(), dictionaries: HashMap::new() }
    }

    pub fn root(&self, path: &str) -> Result<Vec<u8>, Status> {
        let request = RootRequest { repo_path: path.to_owned(), ..RootRequest::default() };
        self.call(|mut grpc| async move { grpc.root(request).await })
            .map(|root| root.root_hash.to_vec())
    }

    pub fn list(&self, path: &str) -> Result<ListTableFilesResponse, Status> {
        let request = ListTableFilesRequest { repo_path: path.to_owned(), ..Default::default() };
        self.call(|mut grpc| async move { grpc.list_table_files(request).await })
    }

    /// Returns the indexes of the addresses that the store does not hold.
    pub fn absent(&self, path: &str, addresses: &[Address]) -> Result<Vec<i32>, Status> {
        let hashes = addresses.iter().map(|address| address.to_vec().into()).collect();
        let request = api::HasChunksRequest {
            repo_path: path.to_owned(),
            hashes,
            ..api::HasChunksRequest::default()
        };
        let mut absent =
            self.call(|mut grpc| async move { grpc.has_chunks(request).await })?.absent;
        absent.sort_unstable();
        Ok(absent)
    }

    /// Asks where the chunks of each request are. A streaming call gets all requests at once.
    pub fn locations(
        &self,
        path: &str,
        way: Way,
        requests: &[Vec<Address>],
    ) -> Result<Vec<ChunkLocations>, Status> {
        self.wait(locations(self.grpc.clone(), path, way, requests))
    }

    /// Asks where these chunks are, all of which the store holds, in requests of the size that
    /// Dolt's client sends.
    #[track_caller]
    pub fn found(&self, path: &str, way: Way, addresses: &[Address]) -> Vec<ChunkLocation> {
        let requests: Vec<_> = addresses.chunks(512).map(<[Address]>::to_vec).collect();
        let locations = self
            .locations(path, way, &requests)
            .unwrap_or_else(|status| panic!("{path}: {status}"));
        let locations = locations.into_iter().flatten().zip(addresses);
        locations
            .map(|(location, address)| location.unwrap_or_else(|| panic!("{path} has {address:?}")))
            .collect()
    }
}

async fn connect(address: SocketAddr) -> Grpc {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    // Unread streams must not block the others.
    let endpoint =
        endpoint.initial_stream_window_size(65_535).initial_connection_window_size(64 << 20);
    let channel = endpoint.connect_timeout(TIMEOUT).connect().await.unwrap();
    ChunkStoreServiceClient::new(channel).max_decoding_message_size(128 << 20)
}

async fn locations(
    mut grpc: Grpc,
    path: &str,
    way: Way,
    requests: &[Vec<Address>],
) -> Result<Vec<ChunkLocations>, Status> {
    let mut all = Vec::new();
    match way {
        Way::Stream => {
            let asked: Vec<_> =
                requests.iter().map(|request| stream_request(path, request)).collect();
            let mut answers =
                grpc.stream_chunk_locations(tokio_stream::iter(asked)).await?.into_inner();
            let mut urls = Urls::default();
            while let Some(answer) = answers.message().await? {
                all.push(urls.locations(answer, requests[all.len()].len()));
            }
        }
        Way::Legacy => {
            let asked: Vec<_> =
                requests.iter().map(|request| legacy_request(path, request)).collect();
            let mut answers =
                grpc.stream_download_locations(tokio_stream::iter(asked)).await?.into_inner();
            while let Some(answer) = answers.message().await? {
                all.push(legacy_locations(answer, &requests[all.len()]));
            }
        }
        Way::Unary => {
            for request in requests {
                let answer = grpc.get_download_locations(legacy_request(path, request)).await?;
                all.push(legacy_locations(answer.into_inner(), request));
            }
        }
    }
    assert_eq!(all.len(), requests.len(), "one answer for each request");
    Ok(all)
}

/// Builds a request of the newer stream.
pub fn stream_request(path: &str, addresses: &[Address]) -> StreamChunkLocationsRequest {
    let chunk_hashes = addresses.as_flattened().to_vec().into();
    let client_capabilities = vec![ClientCapability::Http2Download.into()];
    let repo_path = path.to_owned();
    StreamChunkLocationsRequest {
        repo_path,
        chunk_hashes,
        client_capabilities,
        ..Default::default()
    }
}

/// Builds a request of the two older calls.
pub fn legacy_request(path: &str, addresses: &[Address]) -> GetDownloadLocsRequest {
    let chunk_hashes = addresses.iter().map(|address| address.to_vec().into()).collect();
    let client_capabilities = vec![ClientCapability::Http2Download.into()];
    let repo_path = path.to_owned();
    GetDownloadLocsRequest { repo_path, chunk_hashes, client_capabilities, ..Default::default() }
}

/// Names a path of two components as Dolt's client does.
pub fn repo_id(org: &str, repo_name: &str) -> Option<RepoId> {
    Some(RepoId { org: org.to_owned(), repo_name: repo_name.to_owned() })
}

/// URLs of the resources that a stream has advertised so far.
#[derive(Default)]
pub struct Urls(HashMap<u32, String>);

impl Urls {
    /// Reads one answer of a stream, in which each address is located once or missing once.
    #[track_caller]
    pub fn locations(
        &mut self,
        answer: StreamChunkLocationsResponse,
        count: usize,
    ) -> ChunkLocations {
        assert_eq!(answer.repo_token, "");
        for record in answer.table_files {
            assert_eq!(record.refresh_after, None, "URLs are good for ever");
            // In this protocol a record replaces an older one of the same id.
            let replaced = self.0.insert(record.table_file_id, record.url.clone());
            let is_kept = replaced.is_none_or(|url| url == record.url || url.contains("/records/"));
            assert!(is_kept, "the id of a file is used again: {}", record.url);
        }
        let mut locations: BTreeMap<u32, Option<ChunkLocation>> = BTreeMap::new();
        for entry in answer.locations {
            let url = self.0.get(&entry.table_file_id).expect("a resource that was named before");
            let dictionary = (entry.dictionary_offset, entry.dictionary_length);
            let location = location(url, (entry.offset, entry.length), dictionary);
            assert_eq!(
                locations.insert(entry.request_index, Some(location)),
                None,
                "located twice"
            );
        }
        for index in answer.missing_indexes {
            assert_eq!(locations.insert(index, None), None, "found and missing");
        }
        assert!(locations.keys().copied().eq(0..u32::try_from(count).unwrap()), "{locations:?}");
        locations.into_values().collect()
    }
}

/// Reads one answer of the older calls, which leave missing chunks out.
#[track_caller]
pub fn legacy_locations(answer: GetDownloadLocsResponse, addresses: &[Address]) -> ChunkLocations {
    assert_eq!(answer.repo_token, "");
    let mut by_address: HashMap<Address, ChunkLocation> = HashMap::new();
    let mut count = 0;
    for resource in answer.locs {
        assert_eq!(
            (resource.refresh_after, resource.refresh_request),
            (None, None),
            "URLs are good for ever"
        );
        let Some(Location::HttpGetRange(ranges)) = resource.location else {
            panic!("expected ranges, which is all that clients know");
        };
        assert!(!ranges.ranges.is_empty(), "a resource without chunks");
        for range in ranges.ranges {
            count += 1;
            let dictionary = (range.dictionary_offset, range.dictionary_length);
            let location = location(&ranges.url, (range.offset, range.length), dictionary);
            let address = Address::try_from(&range.hash[..]).unwrap();
            assert!(addresses.contains(&address), "a chunk that nobody asked for");
            let known = by_address.entry(address).or_insert_with(|| location.clone());
            assert_eq!(*known, location, "a chunk has one location");
        }
    }
    assert!(count <= addresses.len(), "more ranges than were asked for");
    addresses.iter().map(|address| by_address.get(address).cloned()).collect()
}

fn location(
    url: &str,
    (offset, length): (u64, u32),
    (dictionary, dictionary_length): (u64, u32),
) -> ChunkLocation {
    assert_ne!(length, 0, "no chunk is empty");
    let range = |offset, length: u32| offset..offset + u64::from(length);
    let dictionary = (dictionary_length != 0).then(|| range(dictionary, dictionary_length));
    ChunkLocation { url: url.to_owned(), span: range(offset, length), dictionary }
}

/// Downloads over one connection, with a cache of its dictionaries.
#[derive(Debug)]
pub struct Downloads {
    pub http: Http,
    base: String,
    dictionaries: HashMap<(String, Range<u64>), Vec<u8>>,
}

impl Downloads {
    /// Returns the URL without scheme and authority, which must be those of the server.
    #[track_caller]
    pub fn target(&self, url: &str) -> String {
        target(url, &self.base)
    }

    /// Downloads and decodes a chunk as Dolt's client does.
    #[track_caller]
    pub fn chunk(&mut self, location: &ChunkLocation) -> Vec<u8> {
        let stored = self.http.bytes(&self.target(&location.url), location.span.clone());
        let dictionary =
            location.dictionary.clone().map(|range| self.dictionary(&location.url, range));
        decode(&stored, dictionary.as_deref())
            .unwrap_or_else(|error| panic!("{location:?}: {error}"))
    }

    /// Downloads and decompresses a dictionary.
    #[track_caller]
    pub fn dictionary(&mut self, url: &str, range: Range<u64>) -> Vec<u8> {
        let key = (url.to_owned(), range);
        if !self.dictionaries.contains_key(&key) {
            let compressed = self.http.bytes(&self.target(url), key.1.clone());
            let bytes = zstd::bulk::decompress(&compressed, 1 << 20).expect("a dictionary");
            self.dictionaries.insert(key.clone(), bytes);
        }
        self.dictionaries[&key].clone()
    }
}

/// Decodes a record or, with a dictionary, a zstd frame.
pub fn decode(stored: &[u8], dictionary: Option<&[u8]>) -> Result<Vec<u8>, String> {
    match dictionary {
        None => {
            let (compressed, crc) = stored.split_last_chunk().ok_or("shorter than a CRC")?;
            if crc32c::crc32c(compressed) != u32::from_be_bytes(*crc) {
                return Err("the CRC differs".to_owned());
            }
            snap::raw::Decoder::new().decompress_vec(compressed).map_err(|error| error.to_string())
        }
        Some(dictionary) => {
            let mut decoder = zstd::bulk::Decompressor::with_dictionary(dictionary).unwrap();
            decoder.decompress(stored, 16 << 20).map_err(|error| error.to_string())
        }
    }
}
