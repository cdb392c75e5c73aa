//! Hosts and origins for which the HTTP front answers when it asks for no password.

use std::{
    io::{Read, Write},
    net::SocketAddr,
};

use crate::support::{Server, client::connect, fixtures, serve};
use busload_proto::remotesapi::{RootRequest, chunk_store_service_client::ChunkStoreServiceClient};
use tempfile::TempDir;
use tonic::{Code, Status, transport::Endpoint};

const LIST: &str = "/dolt.services.remotesapi.v1alpha1.ChunkStoreService/ListTableFiles";

/// Starts a server with one chunk table, `db`.
fn start(arguments: &[&str]) -> (Server, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let table = fixtures::table("db", "real-classic", "disk_free=0");
    let server =
        Server::start(&directory.path().join("d"), &[&["--table", &table], arguments].concat());
    (server, directory)
}

/// Sends an HTTP/1.1 request and returns head and body; `headers` includes its line ends.
fn ask(server: SocketAddr, request: &str, headers: &str, body: &[u8]) -> (String, String) {
    let mut stream = connect(server);
    let length = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

/// Calls `ListTableFiles` of `db` as a web page can, with this content type.
fn list(server: SocketAddr, headers: &str, kind: &str) -> (String, String) {
    // A message with the field `repo_path`.
    let message = [&[0, 0, 0, 0, 4, 0x22, 2][..], b"db"].concat();
    ask(
        server,
        &format!("POST {LIST}"),
        &format!("{headers}Content-Type: {kind}\r\nTE: trailers\r\n"),
        &message,
    )
}

/// Returns the path of a download.
fn download(server: SocketAddr) -> String {
    let (_, body) = list(server, &format!("Host: {server}\r\n"), "application/grpc");
    let path = &body[body.find("/dolt/v1/db/files/").unwrap()..];
    let end = path.find(|char: char| !char.is_ascii_alphanumeric() && !"/.".contains(char));
    path[..end.unwrap_or(path.len())].to_owned()
}

/// Reads the root of `db` with this authority in the request.
fn root(server: SocketAddr, authority: &str) -> Result<usize, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{server}")).unwrap();
    let endpoint = endpoint.origin(format!("http://{authority}").parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = ChunkStoreServiceClient::new(endpoint.connect().await.unwrap());
        let request = RootRequest { repo_path: "db".into(), ..RootRequest::default() };
        Ok(client.root(request).await?.into_inner().root_hash.len())
    })
}

#[test]
fn a_page_whose_name_was_pointed_at_this_machine_reads_and_changes_nothing() {
    let (server, _directory) = start(&[]);
    let http = server.address("http");
    let file = download(http);
    let requests =
        ["GET /", "GET /healthz", "GET /readyz", "GET /metrics", "GET /api/cache", "GET /nothing"];
    let requests = requests.map(str::to_owned).into_iter();
    let requests: Vec<_> = requests
        .chain([format!("GET {file}"), format!("HEAD {file}")])
        .chain(["POST /api/cache/db/verify".to_owned(), "OPTIONS /metrics".to_owned()])
        .collect();
    let foreign = [
        "Host: evil.example\r\nOrigin: http://evil.example\r\n",
        "Host: evil.example\r\n",
        "Host: evil.example:6381\r\n",
        "Host: localhost\r\nOrigin: http://evil.example\r\n",
        "Host: localhost\r\nHost: evil.example\r\n",
    ];
    let mut refused = 0;
    for headers in foreign {
        for request in &requests {
            let (head, body) = ask(http, request, headers, b"");
            assert!(head.starts_with("http/1.1 403"), "{request} {headers}: {head}");
            assert!(
                request.starts_with("HEAD") || body.contains("http_hosts"),
                "{request} {headers}: {body}"
            );
            refused += 1;
        }
        let (head, body) = list(http, headers, "application/grpc");
        assert!(
            head.contains("grpc-status: 7") && head.contains("http_hosts"),
            "{headers}: {head}"
        );
        assert!(!body.contains("/dolt/v1/"), "{body}");
        let (head, _) = list(http, headers, "text/plain");
        assert!(head.starts_with("http/1.1 403"), "{head}");
        refused += 2;
    }
    // The request line can name another host, too.
    let (head, _) = ask(http, "GET http://evil.example/metrics", "Host: localhost\r\n", b"");
    assert!(head.starts_with("http/1.1 403"), "{head}");
    for authority in ["evil.example", "evil.example:6381", "localhost.evil.example"] {
        let status = root(http, authority).unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{authority}: {status}");
        assert!(status.message().contains("http_hosts"), "{status}");
        refused += 1;
    }
    assert_eq!(server.metric("busload_http_foreign_refused_total"), f64::from(refused + 1));
}

#[test]
fn clients_on_this_machine_are_answered_whatever_they_call_it() {
    let (server, _directory) = start(&[
        "--http-hosts",
        "cache.internal,other.internal",
        "--http-url",
        "https://Cache.example.com/busload",
    ]);
    let http = server.address("http");
    let (file, port) = (download(http), http.port());
    for host in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
        "localhost".to_owned(),
        "cache.example.com".to_owned(),
        "CACHE.internal:80".to_owned(),
        "other.internal".to_owned(),
    ] {
        for request in ["GET /", "GET /metrics", "GET /api/cache", &format!("GET {file}")] {
            for origin in [String::new(), format!("Origin: http://{host}\r\n")] {
                let (head, _) = ask(http, request, &format!("Host: {host}\r\n{origin}"), b"");
                assert!(head.starts_with("http/1.1 200"), "{request} {host} {origin}: {head}");
            }
        }
        assert_eq!(root(http, &host).unwrap(), 20, "{host}");
    }
    // A client that is no browser may omit the host.
    let mut stream = connect(http);
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("ok\n"), "{answer}");
}

#[test]
fn where_a_password_is_asked_for_any_host_will_do() {
    let directory = tempfile::tempdir().unwrap();
    let table = fixtures::table("db", "real-classic", "");
    let mut command = serve(directory.path(), &["--http", "0.0.0.0:0", "--table", &table]);
    command.env("BUSLOAD_PASSWORD", "open sesame");
    let server = Server::try_start(command).unwrap();
    let http = ([127, 0, 0, 1], server.address("http").port()).into();
    // `busload:open sesame`
    let good = "Authorization: Basic YnVzbG9hZDpvcGVuIHNlc2FtZQ==\r\n";
    for host in ["cache.internal", "10.1.2.3:6381"] {
        for (request, authorization) in
            [("GET /healthz", ""), ("GET /readyz", ""), ("GET /metrics", good)]
        {
            let (head, _) = ask(http, request, &format!("Host: {host}\r\n{authorization}"), b"");
            assert!(head.starts_with("http/1.1 200"), "{request} {host}: {head}");
        }
        let foreign = format!("Host: {host}\r\nOrigin: http://evil.example\r\n{good}");
        let (head, _) = ask(http, "POST /api/cache/db/drop", &foreign, b"");
        assert!(head.starts_with("http/1.1 403"), "a browser that knows the password: {head}");
    }
}

#[test]
fn only_what_says_that_it_is_a_call_is_one() {
    let (server, _directory) = start(&[]);
    let http = server.address("http");
    let host = format!("Host: {http}\r\n");
    for kind in ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"] {
        let (head, body) = list(http, &host, kind);
        assert!(
            head.starts_with("http/1.1 200") && body.contains("/dolt/v1/db/files/"),
            "{kind}: {head}"
        );
    }
    for kind in
        ["text/plain", "application/json", "application/grpc-web", "application/grpcx", "", "x"]
    {
        let (head, body) = list(http, &host, kind);
        assert!(head.starts_with("http/1.1 415"), "{kind}: {head}");
        assert!(body.contains("application/grpc"), "{kind}: {body}");
    }
}
