//! Calls whose message begins and does not go on.

use std::{convert::Infallible, net::SocketAddr};

use axum::body::{Body, Bytes};
use futures_util::{
    StreamExt,
    future::{BoxFuture, FutureExt},
    stream::{self, FuturesUnordered},
};
use hyper::{Request, Response, body::Incoming, client::conn::http2, header::CONTENT_TYPE};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, task::JoinHandle};
use tonic::Code;

use super::{
    client::Way,
    eventually,
    fixture::{Fixture, Served},
};

/// The longest message that is read.
const MESSAGE_BYTES: u32 = 1 << 20;
/// What counts of it: its header too.
const COUNTED_BYTES: usize = MESSAGE_BYTES as usize + 5;
/// What one connection may have in memory.
const CONNECTION_BYTES_MAX: usize = 160 << 20;
/// Calls of one connection, which may have so many at once.
const CALL_COUNT: usize = 250;
/// So many of them are waited for: the last one reaches what the connection may have.
const WAITING_COUNT: usize = CONNECTION_BYTES_MAX.div_ceil(COUNTED_BYTES);

/// A connection with calls that announce a message each and send ten bytes of it.
struct Unfinished {
    answers: FuturesUnordered<BoxFuture<'static, Response<Incoming>>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Unfinished {
    async fn begin(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let client = http2::Builder::new(TokioExecutor::new());
        let (requests, connection) = client.handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let uri = format!("http://{address}/dolt.services.remotesapi.v1alpha1.ChunkStoreService/HasChunks");
        let answers = (0..CALL_COUNT).map(|_| {
            let begun = [&[0][..], &MESSAGE_BYTES.to_be_bytes(), &[7; 10]].concat();
            let begun = stream::iter([Ok::<_, Infallible>(Bytes::from(begun))]);
            let request = Request::post(&uri).header(CONTENT_TYPE, "application/grpc");
            let request = request.body(Body::from_stream(begun.chain(stream::pending()))).unwrap();
            let mut requests = requests.clone();
            async move { requests.send_request(request).await.unwrap() }.boxed()
        });
        Self { answers: answers.collect(), connection }
    }

    /// Waits for one that is refused.
    async fn refused(&mut self) {
        let answer = self.answers.next().await.unwrap();
        let status = tonic::Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(status.message().starts_with("this connection has"), "{status}");
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Room for a message is made when its length is known: 256 calls of a few bytes had 256 MiB of memory, on each connection.
#[test]
fn messages_that_are_announced_and_do_not_come_count_as_if_they_had() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(&[fixture.as_db("")]);
    let client = &served.client;
    let works = || {
        assert_eq!(client.root("db").unwrap(), fixture.root());
        let places = client.found("db", Way::Stream, &fixture.addresses());
        assert_eq!(places.len(), fixture.chunks.len());
    };
    let counted = || served.server.metric("busload_http_memory_bytes");
    works();
    let before = served.server.metric("process_resident_memory_bytes");
    let mut connections = Vec::new();
    for _ in 0..2 {
        let mut connection = client.wait(Unfinished::begin(client.address));
        for _ in WAITING_COUNT..CALL_COUNT {
            client.wait(connection.refused());
        }
        connections.push(connection);
    }
    #[expect(clippy::cast_precision_loss, reason = "far from 2^52")]
    let expected = (connections.len() * WAITING_COUNT * COUNTED_BYTES) as f64;
    eventually("all others wait", || counted() == expected);
    let grown = served.server.metric("process_resident_memory_bytes") - before;
    assert!(grown < expected + f64::from(64 << 20), "{grown} bytes");
    works();
    let answers = connections.iter_mut().map(|connection| connection.answers.next().now_or_never());
    assert!(answers.flatten().next().is_none(), "nobody else was refused");
    drop(connections);
    eventually("all is given back", || counted() == 0.0);
    works();
}
