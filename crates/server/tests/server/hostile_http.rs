//! HTTP clients that make the server work for nothing, or have it repeat what they send.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::support::{Server, client::connect, fixtures};
use busload_proto::{
    remotesapi::{
        RefreshTableFileUrlRequest, RootRequest,
        chunk_store_service_client::ChunkStoreServiceClient,
    },
    v1::{GetChunkRequest, chunks_client::ChunksClient},
};
use tempfile::TempDir;
use tonic::transport::Endpoint;

/// Maximum size of a request head.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Far more useless frames than the server tolerates.
const FLOOD_FRAMES: usize = 20_000;
/// Connection preface and an empty SETTINGS frame (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Frame type and error code of RFC 9113, 6 and 7.
const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: u32 = 0xb;

fn start() -> (Server, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let table = fixtures::table("db", "real-classic", "");
    let server = Server::start(&directory.path().join("d"), &["--table", &table]);
    (server, directory)
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, 0], payload].concat()
}

/// Returns types and payloads of the frames that the server sends until it closes.
fn frames(mut stream: TcpStream) -> Vec<(u8, Vec<u8>)> {
    let (mut frames, mut head) = (Vec::new(), [0; 9]);
    while stream.read_exact(&mut head).is_ok() {
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
        frames.push((head[3], payload));
    }
    frames
}

/// Sends these bytes again and again after an answer, and returns the server's last frames.
fn flood(server: SocketAddr, flood: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut stream = connect(server);
    let mut sender = stream.try_clone().unwrap();
    sender.write_all(&[PREFACE, &request()].concat()).unwrap();
    take_answer(&mut stream);
    let bytes = flood.repeat(FLOOD_FRAMES);
    let sending = std::thread::spawn(move || {
        // The server closes the connection before all is sent.
        let _ = sender.write_all(&bytes);
        // Lets the reader end if the server does not close the connection.
        let _ = sender.shutdown(std::net::Shutdown::Write);
    });
    let received = frames(stream);
    sending.join().unwrap();
    received
}

/// Reads frames up to the end of stream 1.
fn take_answer(stream: &mut TcpStream) {
    let mut head = [0; 9];
    while !(matches!(head[3], 0 | 1) && head[4] & 1 == 1) {
        stream.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).unwrap();
    }
}

/// Encodes `GET /healthz` as stream 1: HEADERS of static entries and two literals (RFC 7541).
fn request() -> Vec<u8> {
    let fields = [&[0x82, 0x86, 0x44, 8][..], b"/healthz", &[0x41, 9], b"localhost"].concat();
    let length = u8::try_from(fields.len()).unwrap();
    [&[0, 0, length, 1, 5, 0, 0, 0, 1][..], &fields].concat()
}

/// Encodes an empty DATA frame that ends stream 1.
fn data_at_end() -> Vec<u8> {
    vec![0, 0, 0, 0, 1, 0, 0, 0, 1]
}

#[test]
fn who_floods_a_connection_with_frames_that_ask_for_nothing_is_told_to_calm_down() {
    let (server, _directory) = start();
    let address = server.address("http");
    let floods = [
        ("PING", frame(6, 0, &[7; 8])),
        ("PING that answers none", frame(6, 1, &[7; 8])),
        ("SETTINGS", frame(4, 0, &[])),
        ("SETTINGS that change something", frame(4, 0, &[0, 4, 0, 1, 0, 0])),
        ("WINDOW_UPDATE", frame(8, 0, &[0, 0, 0, 1])),
        ("a kind nobody knows", frame(0xee, 0, &[7; 20])),
        ("the end of a stream, again and again", data_at_end()),
    ];
    for (name, frame) in &floods {
        let received = flood(address, frame);
        let (kind, payload) = received.last().unwrap_or_else(|| panic!("{name}: nothing came"));
        assert_eq!(*kind, GOAWAY, "{name}: {received:?}");
        assert_eq!(payload[4..8], ENHANCE_YOUR_CALM.to_be_bytes(), "{name}");
        let answers = received.iter().filter(|(kind, _)| matches!(kind, 4 | 6)).count();
        assert!(answers < FLOOD_FRAMES / 10, "{name}: {answers} were answered");
    }
    assert_eq!(server.metric("busload_http_connections_flooded_total"), floods.len() as f64);
}

/// Requests a page with a head of this size, and returns the status.
fn status(server: SocketAddr, target: &str, head_bytes: usize) -> String {
    let head = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nfiller: ");
    let filler = "x".repeat(head_bytes - head.len() - 4);
    let mut stream = connect(server);
    stream.write_all(format!("{head}{filler}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap().to_owned()
}

#[test]
fn a_head_of_more_than_16_kib_is_refused_over_http_1_too() {
    let (server, _directory) = start();
    let address = server.address("http");
    for target in ["/healthz", "/nothing"] {
        assert!(!status(address, target, HEADER_BYTES_MAX).contains("431"), "{target}");
        for bytes in [HEADER_BYTES_MAX + 1, 2 * HEADER_BYTES_MAX, 4 * HEADER_BYTES_MAX - 100] {
            assert_eq!(
                status(address, target, bytes),
                "HTTP/1.1 431 Request Header Fields Too Large",
                "{bytes}"
            );
        }
    }
}

#[test]
fn no_error_repeats_all_that_a_client_sent() {
    let (server, _directory) = start();
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address("http"))).unwrap();
    let long = "x".repeat(100_000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(async {
        let channel = endpoint.connect().await.unwrap();
        let (mut dolt, mut chunks) =
            (ChunkStoreServiceClient::new(channel.clone()), ChunksClient::new(channel.clone()));
        let root = RootRequest { repo_path: long.clone(), ..RootRequest::default() };
        let file = RefreshTableFileUrlRequest {
            repo_path: "db".into(),
            file_id: long.clone(),
            ..Default::default()
        };
        let chunk = GetChunkRequest { store: long.clone(), ..GetChunkRequest::default() };
        [
            dolt.root(root).await.unwrap_err(),
            dolt.refresh_table_file_url(file).await.unwrap_err(),
            chunks.get_chunk(chunk).await.unwrap_err(),
        ]
    });
    for status in refused {
        assert!(status.message().contains("xxx... (100000 bytes)"), "{status}");
        assert!(status.message().len() < 500, "{} bytes: {status}", status.message().len());
    }
    let path = format!("/api/cache/{}/warm", &long[..10_000]);
    let mut stream = connect(server.address("http"));
    write!(stream, "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.contains("404") && answer.contains("(10000 bytes)") && answer.len() < 1_000,
        "{answer}"
    );
}
