//! The HTTP port: HTTP/1.1 and HTTP/2, reflection, health, and clients that misbehave.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
};

use busload_proto::v1::chunks_client::ChunksClient;
use tokio_stream::StreamExt;
use tonic::{Code, Request, transport::Channel};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::{v1, v1alpha};

use super::{
    Served, TIMEOUT,
    fixture::{Fixture, check},
    one, refused,
};

fn channel(served: &Served) -> Channel {
    let endpoint = tonic::transport::Endpoint::from_shared(format!(
        "http://{}",
        served.server.address("http")
    ));
    served.runtime.block_on(endpoint.unwrap().connect()).unwrap()
}

#[test]
fn both_versions_are_spoken_on_one_port_at_the_same_time() {
    let fixture = Fixture::new("real-classic");
    let served = Served::of_fixture(&fixture);
    let address = served.server.address("http");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                for _ in 0..50 {
                    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
                    let mut answer = Vec::new();
                    while !answer.ends_with(b"\r\n\r\nok\n") {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).unwrap();
                        answer.extend(byte);
                    }
                    assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
                }
            });
        }
        for chunk in &fixture.chunks[..200] {
            check(chunk.address, &served.get(one(chunk.address)).unwrap().contents);
        }
    });
}

#[test]
fn pages_are_served_over_http_2_too() {
    let served = Served::of_fixture(&Fixture::new("synth-sizes-classic"));
    let address = served.server.address("http");
    let status = served.runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let handshake = hyper::client::conn::http2::handshake(executor, io);
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let uri = format!("http://{address}/readyz");
        let request = hyper::Request::get(uri).body(axum::body::Body::empty()).unwrap();
        sender.send_request(request).await.unwrap().status()
    });
    assert_eq!(status, 200);
}

#[test]
fn reflection_lists_the_services_and_their_messages() {
    let served = Served::of_fixture(&Fixture::new("synth-sizes-classic"));
    let expected = ["busload.v1.Chunks", "grpc.health.v1.Health"];
    let names = served.runtime.block_on(async {
        use v1::server_reflection_request::MessageRequest;
        let ask = v1::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let mut client =
            v1::server_reflection_client::ServerReflectionClient::new(channel_of(&served).await);
        let mut answers =
            client.server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner();
        let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
        let v1::server_reflection_response::MessageResponse::ListServicesResponse(list) = answer
        else {
            panic!("expected a list, got {answer:?}");
        };
        list.service.into_iter().map(|service| service.name).collect::<Vec<_>>()
    });
    for service in expected {
        assert!(names.iter().any(|name| name == service), "{service} in {names:?}");
    }
    let described = served.runtime.block_on(async {
        use v1alpha::server_reflection_request::MessageRequest;
        let ask = v1alpha::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::FileContainingSymbol(
                "busload.v1.FoundChunk".into(),
            )),
        };
        let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(
            channel_of(&served).await,
        );
        let mut answers =
            client.server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner();
        answers.next().await.unwrap().unwrap().message_response.unwrap()
    });
    let described = format!("{described:?}");
    assert!(described.contains("FileDescriptorResponse"), "{described}");
}

async fn channel_of(served: &Served) -> Channel {
    let endpoint = tonic::transport::Endpoint::from_shared(format!(
        "http://{}",
        served.server.address("http")
    ));
    endpoint.unwrap().connect().await.unwrap()
}

#[test]
fn the_health_service_says_serving() {
    let served = Served::of_fixture(&Fixture::new("synth-sizes-classic"));
    let mut client = HealthClient::new(channel(&served));
    for service in ["", "busload.v1.Chunks"] {
        let request = HealthCheckRequest { service: service.into() };
        let status = served.runtime.block_on(client.check(request)).unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service}");
    }
    let unknown =
        served.runtime.block_on(client.check(HealthCheckRequest { service: "other".into() }));
    refused(unknown, Code::NotFound, "other");
    let watched = served.runtime.block_on(async {
        let request = HealthCheckRequest { service: "busload.v1.Chunks".into() };
        let mut updates = client.watch(request).await.unwrap().into_inner();
        updates.message().await.unwrap().unwrap().status()
    });
    assert_eq!(watched, ServingStatus::Serving);
}

#[test]
fn unknown_methods_and_services_are_unimplemented() {
    let served = Served::of_fixture(&Fixture::new("synth-sizes-classic"));
    for path in ["/busload.v1.Chunks/PutChunk", "/busload.v2.Chunks/GetChunk"] {
        let mut client = tonic::client::Grpc::new(channel(&served));
        let answer = served.runtime.block_on(async {
            client.ready().await.unwrap();
            let codec = busload_proto::codec::ExactCodec::<(), ()>::default();
            client.unary(Request::new(()), path.parse().unwrap(), codec).await
        });
        refused(answer, Code::Unimplemented, "");
    }
    let (status, _) = served.server.http("/busload.v2.Chunks/GetChunk");
    assert!(status.contains("404"), "{status}");
}

#[test]
fn a_head_that_is_too_long_is_refused() {
    let served = Served::of_fixture(&Fixture::new("synth-sizes-classic"));
    let mut stream = TcpStream::connect(served.server.address("http")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let filler = "x".repeat(1 << 20);
    // The server may close the connection before it has read all.
    let _ = write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nFiller: {filler}\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"),
        "{:?}",
        String::from_utf8_lossy(&answer)
    );
    let mut call = Request::new(one(super::NOWHERE));
    call.metadata_mut().insert("filler", "x".repeat(64 * 1024).parse().unwrap());
    let mut client: ChunksClient<Channel> = served.client();
    let refused = served.runtime.block_on(client.get_chunk(call));
    assert!(refused.is_err());
    assert_eq!(served.server.http("/healthz").1, "ok\n");
}

#[test]
#[ignore = "waits for a timeout of the server, 75 s: `cargo xtask soak` runs it"]
fn a_connection_is_cut_off_when_its_head_never_ends() {
    let served = Served::of_fixture(&Fixture::new("synth-sizes-classic"));
    let mut stream = TcpStream::connect(served.server.address("http")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: lo").unwrap();
    let mut answer = Vec::new();
    // Closed or reset both count as an end; the timeout above does not.
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}
