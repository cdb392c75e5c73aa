//! Calls whose message begins and never ends.

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
use tonic::transport::Endpoint;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::{
    client::Way,
    eventually,
    fixture::{Fixture, Served},
};

/// Longest message that the server reads.
const MESSAGE_BYTES: u32 = 1 << 20;
/// Bytes sent of each message, including its header.
const SENT_BYTES: usize = 15;
/// Calls of one connection, as many as the server allows at once.
const CALL_COUNT: usize = 250;
/// Connections, whose calls together announce more bytes than may be in memory.
const CONNECTION_COUNT: usize = 6;

/// A connection whose calls each announce a message and send ten bytes of it.
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
        let uri = format!(
            "http://{address}/dolt.services.remotesapi.v1alpha1.ChunkStoreService/HasChunks"
        );
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
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Four connections once took the whole memory budget by announcing messages, and the server
/// refused everybody else for a minute, health checks included.
#[test]
fn messages_that_are_announced_and_do_not_come_cost_nobody_anything() {
    let fixture = Fixture::new("real-archive-v3");
    let served = Served::start(&[fixture.as_db("")]);
    let client = &served.client;
    let works = || {
        assert_eq!(client.root("db").unwrap(), fixture.root());
        let locations = client.found("db", Way::Stream, &fixture.addresses());
        assert_eq!(locations.len(), fixture.chunks.len());
        let channel = Endpoint::from_shared(client.base()).unwrap();
        let health = client.wait(async {
            let mut health = HealthClient::new(channel.connect().await.unwrap());
            health.check(HealthCheckRequest::default()).await.unwrap().into_inner()
        });
        assert_eq!(health.status(), ServingStatus::Serving);
        for page in ["/healthz", "/readyz"] {
            assert!(served.server.http(page).0.ends_with("200 OK"), "{page}");
        }
    };
    let counted = || served.server.metric("busload_http_memory_bytes");
    works();
    let before = served.server.metric("process_resident_memory_bytes");
    let mut connections: Vec<_> =
        (0..CONNECTION_COUNT).map(|_| client.wait(Unfinished::begin(client.address))).collect();
    #[expect(clippy::cast_precision_loss, reason = "far from 2^52")]
    let expected = (CONNECTION_COUNT * CALL_COUNT * SENT_BYTES) as f64;
    // The requests are sent only while their answers are polled.
    let mut poll = || {
        let answers =
            connections.iter_mut().map(|connection| connection.answers.next().now_or_never());
        assert!(answers.flatten().next().is_none(), "nobody is refused");
    };
    eventually("all have begun", || {
        client.wait(async { poll() });
        counted() == expected
    });
    let grown = served.server.metric("process_resident_memory_bytes") - before;
    assert!(grown < f64::from(64 << 20), "{grown} bytes");
    works();
    assert_eq!(served.server.metric("busload_http_memory_refused_total"), 0.0);
    drop(connections);
    eventually("all is given back", || counted() == 0.0);
    works();
}
