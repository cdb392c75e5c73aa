//! The HTTP front and gRPC: the real binary with real sockets and real stores.

#![allow(clippy::disallowed_methods, reason = "tests are at the edge")]

mod calls;
mod codes;
mod fixture;
mod streams;
mod transport;

use std::net::SocketAddr;

use crate::support::{Server, TIMEOUT, eventually};
use busload_proto::v1::{
    Form, GetChunkRequest, GetChunkResponse, GetChunksRequest, GetChunksResponse, HasChunksRequest,
    chunks_client::ChunksClient,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use fixture::Fixture;

/// A server with its data and a client.
struct Served {
    server: Server,
    runtime: Runtime,
    client: ChunksClient<Channel>,
    _data: TempDir,
}

impl Served {
    /// Starts a server with these arguments of `--table`.
    #[track_caller]
    fn start(tables: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let arguments: Vec<_> = tables.iter().flat_map(|table| ["--table", table]).collect();
        let server = Server::start(&data.path().join("d"), &arguments);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let client = client(&runtime, server.address("http"));
        Self { server, runtime, client, _data: data }
    }

    /// Starts a server with one table `db` over this fixture's files.
    #[track_caller]
    fn of_fixture(fixture: &Fixture) -> Self {
        Self::start(&[&format!("db={}", fixture.url())])
    }

    /// Opens a further connection.
    fn client(&self) -> ChunksClient<Channel> {
        client(&self.runtime, self.server.address("http"))
    }

    fn get(&self, request: GetChunkRequest) -> Result<GetChunkResponse, Status> {
        let mut client = self.client.clone();
        self.runtime.block_on(client.get_chunk(request)).map(tonic::Response::into_inner)
    }

    fn get_many(&self, request: GetChunksRequest) -> Result<GetChunksResponse, Status> {
        let mut client = self.client.clone();
        self.runtime.block_on(async {
            let mut stream = client.get_chunks(request).await?.into_inner();
            let mut all = GetChunksResponse::default();
            while let Some(message) = stream.message().await? {
                all.chunks.extend(message.chunks);
                all.missing.extend(message.missing);
                all.not_local.extend(message.not_local);
                all.failed.extend(message.failed);
            }
            all.chunks.sort_by_key(|chunk| chunk.index);
            all.missing.sort_unstable();
            all.not_local.sort_unstable();
            Ok(all)
        })
    }

    fn absent(&self, request: HasChunksRequest) -> Result<Vec<u32>, Status> {
        let mut client = self.client.clone();
        self.runtime
            .block_on(client.has_chunks(request))
            .map(|response| response.into_inner().absent)
    }
}

fn client(runtime: &Runtime, address: SocketAddr) -> ChunksClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    // The connection's window is that of many streams, so unread streams do not block others.
    let endpoint =
        endpoint.initial_stream_window_size(65_535).initial_connection_window_size(64 << 20);
    let endpoint = endpoint.connect_timeout(TIMEOUT);
    let channel = runtime.block_on(endpoint.connect()).unwrap();
    ChunksClient::new(channel).max_decoding_message_size(300 << 20)
}

/// Asks a server once, for a chunk that its table `db` does not have.
pub fn ask_once(address: SocketAddr) {
    let runtime = Runtime::new().unwrap();
    let mut client = client(&runtime, address);
    let answer = runtime.block_on(client.get_chunk(one(NOWHERE))).unwrap();
    assert!(!answer.into_inner().found);
}

fn one(address: [u8; 20]) -> GetChunkRequest {
    GetChunkRequest {
        store: "db".into(),
        address: address.to_vec().into(),
        ..GetChunkRequest::default()
    }
}

fn many(addresses: &[[u8; 20]]) -> GetChunksRequest {
    let addresses = addresses.as_flattened().to_vec().into();
    GetChunksRequest { store: "db".into(), addresses, ..GetChunksRequest::default() }
}

fn has(addresses: &[[u8; 20]]) -> HasChunksRequest {
    let addresses = addresses.as_flattened().to_vec().into();
    HasChunksRequest { store: "db".into(), addresses, only_if_local: false }
}

fn stored(request: GetChunksRequest) -> GetChunksRequest {
    GetChunksRequest { form: Form::Stored.into(), ..request }
}

/// Asserts that a call failed with this code and a message that contains `text`.
#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, text: &str) {
    let status = answer.expect_err("a call that cannot succeed");
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(text), "expected `{text}` in `{}`", status.message());
}

/// Returns an address that no store has.
const NOWHERE: [u8; 20] = [0x5a; 20];
