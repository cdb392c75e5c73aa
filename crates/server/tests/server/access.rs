//! Password checks over HTTP for HTTP/1.1, gRPC and Dolt, and how tools send the password.

#![allow(clippy::disallowed_methods, reason = "tests are at the edge")]

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

use crate::support::{
    Client, Ended, Server, TIMEOUT, busload,
    client::{command, connect_from},
    eventually, fixtures, serve,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use busload_io::{Clock, RealClock};
use busload_proto::{
    remotesapi::{
        ListTableFilesRequest, RootRequest, StreamChunkLocationsRequest,
        chunk_store_service_client::ChunkStoreServiceClient,
    },
    v1::{HasChunksRequest, chunks_client::ChunksClient},
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::{Code, Request, Status, transport::Endpoint};

const PASSWORD: &str = "open:sesame";

/// A server with a password and two chunk tables that listens on all addresses.
struct Guarded {
    server: Server,
    directory: TempDir,
}

impl Guarded {
    #[track_caller]
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), PASSWORD)
    }

    #[track_caller]
    fn start_in(directory: TempDir, password: &str) -> Self {
        let file = directory.path().join("password");
        fs::write(&file, format!("{password}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let data = directory.path().join("d");
        let (db, other) = tables();
        let arguments =
            ["--http", "0.0.0.0:0", "--log-level", "trace", "--table", &db, "--table", &other];
        let server = Server::start(
            &data,
            &[&arguments[..], &["--password-file", file.to_str().unwrap()]].concat(),
        );
        Self { server, directory }
    }

    /// Returns the loopback address of the HTTP front.
    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.server.address("http").port()).into()
    }

    /// Sends a request; returns the status line, the other lines of the head, and the body.
    fn ask(
        &self,
        method: &str,
        target: &str,
        authorization: Option<&str>,
    ) -> (String, String, String) {
        self.ask_from(Ipv4Addr::LOCALHOST, method, target, authorization)
    }

    /// Sends a request from this loopback address.
    fn ask_from(
        &self,
        source: Ipv4Addr,
        method: &str,
        target: &str,
        authorization: Option<&str>,
    ) -> (String, String, String) {
        let authorization =
            authorization.map_or(String::new(), |text| format!("Authorization: {text}\r\n"));
        let mut stream = connect_from(source, self.address());
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.address());
        write!(stream, "{head}{authorization}Connection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let (status, head) = head.split_once("\r\n").unwrap();
        (status.to_owned(), head.to_ascii_lowercase(), body.to_owned())
    }

    fn status(&self, method: &str, target: &str, authorization: Option<&str>) -> String {
        self.ask(method, target, authorization).0.trim_start_matches("HTTP/1.1 ").to_owned()
    }

    /// Returns the URLs of a table's files.
    #[track_caller]
    fn urls(&self, calls: &Calls, table: &str) -> Vec<String> {
        let credentials = basic("ada", PASSWORD);
        let files = calls.list_table_files(self.address(), table, Some(&credentials)).unwrap();
        assert!(!files.is_empty());
        let base = format!("http://{}", self.address());
        files
            .iter()
            .map(|url| url.strip_prefix(&base).unwrap_or_else(|| panic!("{url}")).to_owned())
            .collect()
    }
}

pub fn tables() -> (String, String) {
    (
        fixtures::table("db", "real-classic", "disk_free=0"),
        fixtures::table("other", "real-archive-v3", ""),
    )
}

pub fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// Returns values of `Authorization`, and what is wrong with each.
fn bad_credentials() -> [(Option<String>, &'static str); 5] {
    [
        (None, "asks for a password"),
        (Some(basic("ada", "open")), "not the password"),
        (Some(basic("open", "sesame")), "not the password"),
        (Some("Bearer eyJhbGciOiJFZERTQSJ9.e30.x".to_owned()), "another kind"),
        (Some("Basic !".to_owned()), "another kind"),
    ]
}

/// A client for gRPC calls with or without credentials.
pub struct Calls(Runtime);

impl Calls {
    pub fn new() -> Self {
        Self(tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
    }

    fn channel(&self, server: SocketAddr) -> tonic::transport::Channel {
        let endpoint = Endpoint::from_shared(format!("http://{server}")).unwrap();
        self.0.block_on(endpoint.connect_timeout(TIMEOUT).connect()).unwrap()
    }

    pub fn has_chunks(
        &self,
        server: SocketAddr,
        credentials: Option<&str>,
    ) -> Result<Vec<u32>, Status> {
        let mut client = ChunksClient::new(self.channel(server));
        let addresses = vec![0; 20].into();
        let request = HasChunksRequest { store: "db".into(), addresses, only_if_local: false };
        let answer = self.0.block_on(client.has_chunks(with(request, credentials)))?;
        Ok(answer.into_inner().absent)
    }

    pub fn root(&self, server: SocketAddr, credentials: Option<&str>) -> Result<usize, Status> {
        let mut client = ChunkStoreServiceClient::new(self.channel(server));
        let request = RootRequest { repo_path: "db".into(), ..RootRequest::default() };
        Ok(self.0.block_on(client.root(with(request, credentials)))?.into_inner().root_hash.len())
    }

    /// Lists the URLs of a table's files.
    pub fn list_table_files(
        &self,
        server: SocketAddr,
        table: &str,
        credentials: Option<&str>,
    ) -> Result<Vec<String>, Status> {
        let mut client = ChunkStoreServiceClient::new(self.channel(server));
        let request =
            ListTableFilesRequest { repo_path: table.into(), ..ListTableFilesRequest::default() };
        let answer = self.0.block_on(client.list_table_files(with(request, credentials)))?;
        Ok(answer.into_inner().table_file_info.into_iter().map(|file| file.url).collect())
    }

    /// Opens a stream and returns how the server answered.
    fn stream(&self, server: SocketAddr, credentials: Option<&str>) -> Result<(), Status> {
        let mut client = ChunkStoreServiceClient::new(self.channel(server));
        let requests = tokio_stream::iter(Vec::<StreamChunkLocationsRequest>::new());
        self.0.block_on(async {
            let mut answers =
                client.stream_chunk_locations(with(requests, credentials)).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok(())
        })
    }
}

fn with<T>(message: T, credentials: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(credentials) = credentials {
        request.metadata_mut().insert("authorization", credentials.parse().unwrap());
    }
    request
}

#[test]
fn every_page_but_those_of_supervisors_asks_for_the_password() {
    let guarded = Guarded::start();
    let (good, wrong) = (basic("ada", PASSWORD), basic("ada", "wrong"));
    for target in ["/healthz", "/readyz"] {
        for authorization in [None, Some(&*wrong), Some(&*good)] {
            assert_eq!(guarded.status("GET", target, authorization), "200 OK", "{target}");
        }
    }
    let asked = [
        ("GET", "/", "200 OK"),
        ("GET", "/metrics", "200 OK"),
        ("GET", "/api/cache", "200 OK"),
        ("POST", "/api/cache/db/verify", "200 OK"),
        ("POST", "/api/cache/nothing/drop", "404 Not Found"),
        ("GET", "/nothing", "404 Not Found"),
        ("GET", "/healthz/", "404 Not Found"),
        ("POST", "/metrics", "405 Method Not Allowed"),
    ];
    for (from, (method, target, answer)) in (2..).zip(asked) {
        // Each page from another address: one address may fail only a few times.
        let from = Ipv4Addr::new(127, 0, 0, from);
        for (authorization, why) in bad_credentials() {
            let (status, head, body) =
                guarded.ask_from(from, method, target, authorization.as_deref());
            assert_eq!(status, "HTTP/1.1 401 Unauthorized", "{target} {authorization:?}");
            assert!(head.contains("www-authenticate: basic realm=\"busload\""), "{head}");
            assert!(body.contains(why) && body.contains("`authorization: Basic`"), "{body}");
        }
        assert_eq!(guarded.status(method, target, Some(&good)), answer, "{target}");
    }
    let metrics = guarded.ask("GET", "/metrics", Some(&good)).2;
    assert!(metrics.contains("busload_dolt_calls_total{method="));
    // A request without credentials does not count as denied.
    let denied = format!(
        "\nbusload_http_auth_denied_total {}\n",
        asked.len() * (bad_credentials().len() - 1)
    );
    assert!(metrics.contains(&denied), "{denied}{metrics}");
}

#[test]
fn every_call_asks_for_the_password() {
    let (guarded, calls) = (Guarded::start(), Calls::new());
    let server = guarded.address();
    for (credentials, why) in bad_credentials() {
        let credentials = credentials.as_deref();
        for status in [
            calls.has_chunks(server, credentials).unwrap_err(),
            calls.root(server, credentials).unwrap_err(),
            calls.list_table_files(server, "db", credentials).unwrap_err(),
            calls.stream(server, credentials).unwrap_err(),
        ] {
            assert_eq!(status.code(), Code::Unauthenticated, "{credentials:?}: {status}");
            for part in [why, "Basic", "--user NAME", "DOLT_REMOTE_PASSWORD"] {
                assert!(status.message().contains(part), "{part}: {status}");
            }
        }
    }
    for user in ["ada", "default", ""] {
        let credentials = basic(user, PASSWORD);
        assert_eq!(calls.has_chunks(server, Some(&credentials)).unwrap(), [0]);
        assert_eq!(calls.root(server, Some(&credentials)).unwrap(), 20);
    }
}

#[test]
fn urls_of_downloads_carry_the_key_of_their_table_and_are_good_after_a_restart() {
    let (guarded, calls) = (Guarded::start(), Calls::new());
    let (of_db, of_other) = (guarded.urls(&calls, "db"), guarded.urls(&calls, "other"));
    let key_of = |urls: &[String]| urls[0].split_once("?key=").unwrap().1.to_owned();
    let (key, other_key) = (key_of(&of_db), key_of(&of_other));
    assert_ne!(key, other_key);
    let path = of_db[0].split_once('?').unwrap().0.to_owned();
    let check = |guarded: &Guarded| {
        for url in of_db.iter().chain(&of_other) {
            assert_eq!(guarded.status("HEAD", url, None), "200 OK", "{url}");
        }
    };
    check(&guarded);
    let wrong =
        [String::new(), "?key=".to_owned(), format!("?key={other_key}"), format!("?key={key}A")];
    for query in wrong {
        let (status, _, body) = guarded.ask("GET", &format!("{path}{query}"), None);
        assert_eq!(status, "HTTP/1.1 403 Forbidden", "{query}: {body}");
    }
    let metrics = guarded.ask("GET", "/metrics", Some(&basic("ada", PASSWORD))).2;
    assert!(metrics.contains("\nbusload_http_auth_denied_total 3\n"), "one had no key: {metrics}");
    // No secret is logged at any level.
    let Guarded { mut server, directory } = guarded;
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
    let said = server.said().join("\n");
    for secret in
        ["sesame", &*key, &*other_key, &*BASE64_STANDARD.encode(format!("ada:{PASSWORD}"))]
    {
        assert!(!said.contains(secret), "{said}");
    }
    let port_changes = Guarded::start_in(directory, PASSWORD);
    check(&port_changes);
    let Guarded { server, directory } = port_changes;
    assert!(server.stop().success());
    let other_password = Guarded::start_in(directory, "another");
    assert_eq!(other_password.status("HEAD", &of_db[0], None), "403 Forbidden");
}

#[test]
fn on_loopback_nobody_is_asked_over_http() {
    let directory = tempfile::tempdir().unwrap();
    let (table, _) = tables();
    let arguments = ["--table", &table, "--http-url", "https://cache.example.com/"];
    let mut command = serve(directory.path(), &arguments);
    command.env("BUSLOAD_PASSWORD", PASSWORD);
    let server = Server::try_start(command).unwrap();
    assert!(server.client().text(&["GET", "a"]).starts_with("-NOAUTH"), "Redis clients are");
    assert_eq!(server.http("/metrics").0, "HTTP/1.1 200 OK");
    let calls = Calls::new();
    for credentials in [None, Some("Bearer of nothing"), Some(&*basic("ada", "wrong"))] {
        assert_eq!(calls.has_chunks(server.address("http"), credentials).unwrap(), [0]);
    }
    let urls = calls.list_table_files(server.address("http"), "db", None).unwrap();
    for url in urls {
        assert!(
            url.starts_with("https://cache.example.com/dolt/v1/db/files/") && !url.contains('?'),
            "{url}"
        );
    }
}

/// Runs `busload cache` with this password in its environment.
fn tool(guarded: &Guarded, http: &str, password: Option<&str>, arguments: &[&str]) -> Ended {
    let data: PathBuf = guarded.directory.path().join("d");
    let mut command = busload();
    command
        .arg("cache")
        .args(arguments)
        .args(["--http", http, "--table", &tables().0])
        .arg("--data")
        .arg(data);
    if let Some(password) = password {
        command.env("BUSLOAD_PASSWORD", password);
    }
    Ended::of(command.output().unwrap())
}

#[test]
fn a_cache_is_worked_on_by_a_server_that_asks_for_the_password() {
    let guarded = Guarded::start();
    let port = guarded.address().port();
    for http in [format!("0.0.0.0:{port}"), format!("127.0.0.1:{port}")] {
        for action in ["warm", "verify", "list", "drop"] {
            let ended = tool(&guarded, &http, Some(PASSWORD), &[action, "db"]);
            assert_eq!(ended.code, Some(0), "{http} {action}: {ended:?}");
        }
        let ended = tool(&guarded, &http, Some("wrong"), &["warm", "db"]);
        let line = ended.failed(1);
        assert!(
            line.contains("it asks for a password") && line.contains("BUSLOAD_PASSWORD"),
            "{line}"
        );
        assert!(!line.contains("wrong"), "{line}");
    }
    let ended = tool(&guarded, &format!("127.0.0.1:{port}"), None, &["list", "db"]);
    assert!(ended.failed(1).contains("--password-file or BUSLOAD_PASSWORD"), "{ended:?}");
    let ended = tool(&guarded, &format!("0.0.0.0:{port}"), None, &["list", "db"]);
    assert!(ended.failed(2).contains("without a password"), "{ended:?}");
}

#[test]
fn redis_clients_and_http_have_one_password() {
    let guarded = Guarded::start();
    let mut client = Client::connect(guarded.server.address("resp"));
    assert!(client.text(&["GET", "a"]).starts_with("-NOAUTH"));
    assert!(client.text(&["AUTH", "sesame"]).starts_with("-WRONGPASS"));
    assert_eq!(client.text(&["AUTH", PASSWORD]), "OK");
}

/// The server once checked 2.8 million guesses per second.
#[test]
fn wrong_passwords_are_looked_at_slowly_and_nobody_elsewhere_notices() {
    const GUESSES: usize = 20_000;
    let guarded = Guarded::start();
    let server = guarded.server.address("resp");
    let (guesser, other) = (Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3));
    let clock = RealClock::new();
    let mut logged_in = Client::connect_from(guesser, server);
    assert_eq!(logged_in.text(&["AUTH", PASSWORD]), "OK");
    // Guesses in one write, and then one by one.
    let mut client = Client::connect_from(guesser, server);
    // The server may close the connection before all is sent.
    let _ = client.stream.write_all(&command(&["AUTH", "guess"]).repeat(GUESSES));
    let replies: Vec<_> = client.receive_all().iter().map(crate::support::client::text).collect();
    let (last, wrong) = replies.split_last().unwrap();
    assert!(wrong.iter().all(|reply| reply.starts_with("-WRONGPASS")), "{wrong:?}");
    assert!(
        last.starts_with("-ERR too many wrong passwords") && last.contains("try again in 1 s"),
        "{last}"
    );
    for words in [
        &["AUTH", "guess"][..],
        &["AUTH", "default", PASSWORD],
        &["HELLO", "3", "AUTH", "default", "guess"],
    ] {
        // Time has passed, which may have earned this address another guess.
        eventually("none is looked at", || {
            let reply = Client::connect_from(guesser, server).text(words);
            if reply == "OK" {
                // The password was accepted; uses up the guess that there was.
                Client::connect_from(guesser, server).text(&["AUTH", "guess"]);
            }
            reply.starts_with("-ERR too many wrong passwords")
        });
        assert_eq!(Client::connect_from(other, server).text(&["AUTH", PASSWORD]), "OK");
    }
    assert_eq!(logged_in.text(&["PING"]), "PONG", "who has logged in is not asked again");
    let metrics = guarded.ask("GET", "/metrics", Some(&basic("ada", PASSWORD))).2;
    let metric = |name: &str| -> f64 {
        let line =
            metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
        line.parse().unwrap()
    };
    let looked_at = metric("busload_auth_denied_total");
    assert!(looked_at <= 10.0 + clock.now().as_secs_f64(), "{looked_at} in {:?}", clock.now());
    assert!(4.0 <= metric("busload_auth_refused_total"), "one each time");
    eventually("the right password is taken again", || {
        Client::connect_from(guesser, server).text(&["AUTH", PASSWORD]) == "OK"
    });
}

#[test]
fn wrong_passwords_over_http_are_looked_at_slowly_and_nobody_elsewhere_notices() {
    let guarded = Guarded::start();
    let (guesser, other) = (Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3));
    let (good, wrong) = (basic("ada", PASSWORD), basic("ada", "wrong"));
    let clock = RealClock::new();
    // A connection that has sent the right password continues to work.
    let mut scraper = connect_from(guesser, guarded.address());
    let mut scrape = || {
        let request =
            format!("GET /nothing HTTP/1.1\r\nHost: busload\r\nAuthorization: {good}\r\n\r\n");
        scraper.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            scraper.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        String::from_utf8(head).unwrap()
    };
    assert!(scrape().starts_with("HTTP/1.1 404"));
    let mut looked_at = 0;
    eventually("none is looked at", || {
        let (status, head, body) = guarded.ask_from(guesser, "GET", "/metrics", Some(&wrong));
        if status.contains("401") {
            looked_at += 1;
            return false;
        }
        assert!(status.contains("429") && head.contains("retry-after: 1"), "{status} {head}");
        assert!(body.contains("try again in 1 s"), "{body}");
        true
    });
    assert!(
        f64::from(looked_at) <= 10.0 + clock.now().as_secs_f64(),
        "{looked_at} in {:?}",
        clock.now()
    );
    assert!(scrape().starts_with("HTTP/1.1 404"));
    let from_elsewhere = guarded.ask_from(other, "GET", "/metrics", Some(&good));
    assert_eq!(from_elsewhere.0, "HTTP/1.1 200 OK");
    assert!(
        from_elsewhere.2.contains("\nbusload_http_auth_refused_total 1\n"),
        "{}",
        from_elsewhere.2
    );
    eventually("the right password is taken again", || {
        guarded.ask_from(guesser, "GET", "/metrics", Some(&good)).0 == "HTTP/1.1 200 OK"
    });
}
