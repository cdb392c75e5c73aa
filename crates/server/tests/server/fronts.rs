//! Protocols of each front, and clients that speak the wrong one.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::{
    grpc,
    support::{
        Client, Server, TIMEOUT,
        client::{binary_command, command},
        eventually, fixtures,
    },
};
use busload_resp::reply::Reply;
use tempfile::tempdir;

fn server() -> (tempfile::TempDir, Server) {
    let directory = tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    (directory, server)
}

/// Sends these bytes and a PING; returns all replies, and whether the server closed the connection
/// before it answered the PING.
fn answers(server: &Server, bytes: &[u8]) -> (Vec<Reply>, bool) {
    let mut client = server.client();
    client.send(bytes);
    // Fails if the server has closed the connection by now.
    let _ = client.stream.write_all(b"PING end\r\n");
    let mut replies = Vec::new();
    loop {
        match client.receive() {
            Ok(Reply::Bulk(end)) if end == b"end" => return (replies, false),
            Ok(reply) => replies.push(reply),
            Err(_) => return (replies, true),
        }
    }
}

fn texts(replies: &[Reply]) -> Vec<String> {
    replies.iter().map(crate::support::client::text).collect()
}

#[test]
fn inline_commands_are_commands() {
    let (_directory, server) = server();
    let inline = b"SET a \"b c\\x21\"\r\nGET a\n\r\n  \r\nGET 'a'\r\n";
    assert_eq!(answers(&server, inline), {
        let value = Reply::Bulk(b"b c!".into());
        (vec![Reply::Simple(b"OK".into()), value.clone(), value], false)
    });
}

#[test]
fn broken_protocol_is_answered_as_redis_does_and_closed() {
    let (_directory, server) = server();
    let long_inline = vec![b'x'; 70_000];
    for (bytes, error) in [
        (&b"*1\r\n+PING\r\n"[..], "-ERR Protocol error: expected '$', got '+'"),
        (b"*-5\r\n*x\r\n", "-ERR Protocol error: invalid multibulk length"),
        (b"*99999999999\r\n", "-ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length"),
        (b"*1\r\n$99999999999\r\n", "-ERR Protocol error: invalid bulk length"),
        (b"SET a \"b\r\n", "-ERR Protocol error: unbalanced quotes in request"),
        (&long_inline, "-ERR Protocol error: too big inline request"),
    ] {
        let (replies, closed) = answers(&server, bytes);
        assert_eq!(
            (texts(&replies), closed),
            (vec![error.to_owned()], true),
            "{:?}",
            &bytes[..bytes.len().min(20)]
        );
    }
    assert_eq!(server.client().text(&["DBSIZE"]), "0");
}

#[test]
fn mistakes_in_commands_leave_the_connection_open() {
    let (_directory, server) = server();
    let requests = [
        command(&["SET", "a", "text"]),
        command(&["NOSUCH", "x"]),
        command(&["GET"]),
        command(&["INCR", "a"]),
        command(&["HGET", "a", "f"]),
        binary_command(&[b"SET", b"\0\xff\r\n", b"\0"]),
        binary_command(&[b"GET", b"\0\xff\r\n"]),
    ]
    .concat();
    let (replies, closed) = answers(&server, &requests);
    assert!(!closed);
    let texts = texts(&replies);
    let expected = [
        "OK",
        "-ERR unknown command",
        "-ERR wrong number",
        "-ERR value is not",
        "-WRONGTYPE",
        "OK",
        "\0",
    ];
    assert_eq!(texts.len(), expected.len(), "{texts:?}");
    for (text, beginning) in texts.iter().zip(expected) {
        assert!(text.starts_with(beginning), "{text}");
    }
}

#[test]
fn requests_cut_off_by_the_clients_end_are_not_executed() {
    let (_directory, server) = server();
    let whole = command(&["SET", "a", "1"]);
    for cut in 1..whole.len() {
        let mut client = server.client();
        client.send(&whole[..cut]);
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.receive_all(), [], "cut at {cut}");
    }
    assert_eq!(server.client().text(&["EXISTS", "a"]), "0");
}

#[test]
fn a_client_that_closes_its_half_still_gets_its_replies() {
    let (_directory, server) = server();
    let mut client = server.client();
    client.send(&command(&["INCR", "n"]).repeat(100));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.receive_all(), (1..=100).map(Reply::Integer).collect::<Vec<_>>());
}

#[test]
fn requests_in_single_bytes_are_requests() {
    let (_directory, server) = server();
    let mut client = server.client();
    for byte in command(&["ECHO", "hello"]) {
        client.send(&[byte]);
    }
    assert_eq!(client.receive().unwrap(), Reply::Bulk(b"hello".into()));
}

#[test]
fn the_unix_socket_serves_pipelines_and_replaces_a_stale_file() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("socket");
    let arguments = ["--unix", path.to_str().unwrap(), "--resp", "none"];
    for _ in 0..2 {
        let server = Server::start(&directory.path().join("d"), &arguments);
        let mut client = Client::connect_unix(&path);
        client.send(&command(&["PING"]).repeat(1000));
        for _ in 0..1000 {
            assert_eq!(client.receive().unwrap(), Reply::Simple(b"PONG".into()));
        }
        // The socket file outlives a killed server.
        server.kill();
        assert!(path.exists());
    }
}

#[test]
fn the_number_of_clients_is_changed_while_the_server_runs() {
    for net_threads in ["0", "1"] {
        let directory = tempdir().unwrap();
        let arguments = ["--maxclients", "3", "--net-threads", net_threads];
        let server = Server::start(directory.path(), &arguments);
        let mut first = server.client();
        let mut second = server.client();
        assert_eq!(second.text(&["PING"]), "PONG");
        assert_eq!(first.text(&["CONFIG", "SET", "maxclients", "1"]), "OK");
        assert_eq!(second.text(&["PING"]), "PONG", "who is there stays");
        let mut refused = server.client();
        assert_eq!(texts(&refused.receive_all()), ["-ERR max number of clients reached"]);
        assert_eq!(first.text(&["CONFIG", "SET", "maxclients", "3"]), "OK");
        assert_eq!(server.client().text(&["PING"]), "PONG");
        let more = first.text(&["CONFIG", "SET", "maxclients", "4"]);
        assert!(more.contains("at most 3"), "{more}");
    }
}

#[test]
fn more_clients_than_allowed_are_told_so() {
    let directory = tempdir().unwrap();
    let server = Server::start(directory.path(), &["--maxclients", "3"]);
    let mut clients: Vec<_> = (0..3).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.text(&["PING"]), "PONG"));
    let mut refused = server.client();
    assert_eq!(texts(&refused.receive_all()), ["-ERR max number of clients reached"]);
    drop(clients.pop());
    // The server frees the slot once it has seen the connection end.
    let mut next = server.client();
    loop {
        next.send(&command(&["PING"]));
        match next.receive() {
            Ok(Reply::Simple(_)) => break,
            _ => next = server.client(),
        }
    }
}

#[test]
fn http_says_how_it_is() {
    let (_directory, server) = server();
    assert_eq!(server.client().text(&["SET", "a", "1"]), "OK");
    assert_eq!(server.http("/healthz"), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    assert_eq!(server.http("/readyz"), ("HTTP/1.1 200 OK".into(), "ready\n".into()));
    let (_, page) = server.http("/");
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert!(page.contains(path), "{page}");
    }
    assert!(server.http("/nothing").0.contains("404"));
    let (status, metrics) = server.http("/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(metrics.contains("# TYPE busload_commands_total counter"));
    assert!(1.0 <= server.metric("busload_commands_total"));
    assert!(2.0 <= server.metric("busload_log_durable_lsn"), "the table and the key");
    assert_eq!(server.metric("busload_ready"), 1.0);
}

/// Reads the rows of docs/metrics.md, which a unit test holds against the table of metrics: name,
/// type and labels.
fn documented_metrics() -> Vec<(String, String, Vec<String>)> {
    let page = include_str!("../../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    rows.map(|row| {
        let mut cells = row.split(" | ");
        let name = cells.next().unwrap().trim_end_matches('`').to_owned();
        let kind = cells.next().unwrap().to_owned();
        let labels = cells.next().unwrap().split(", ").map(|label| label.replace('`', ""));
        (name, kind, labels.filter(|label| !label.is_empty()).collect())
    })
    .collect()
}

#[test]
fn a_server_with_all_kinds_of_tables_exports_the_documented_metrics() {
    let directory = tempdir().unwrap();
    let chunks = fixtures::table("db", "real-classic", "disk_free=0");
    let postgres = "objects=postgres://app@127.0.0.1:1/lake?relation=objects&key=path";
    fixtures::copy("real-classic", &directory.path().join("org/db"));
    let stores = format!("*/*=file://{}/{{name}}?disk=0", directory.path().display());
    let tables = ["--table", &chunks, "--table", postgres, "--stores", &stores];
    let server = Server::start(&directory.path().join("d"), &tables);
    // Histograms are there once they count something.
    assert_eq!(server.client().text(&["SET", "a", "1"]), "OK");
    grpc::ask_once(server.address("http"));
    // Stores have metrics of their own once they are known to be the busiest.
    let chunk = format!("org/db:{}", fixtures::listed("real-classic")[0].address);
    assert_ne!(server.client().text(&["STRLEN", &chunk]), "0");
    let mut page = String::new();
    eventually("a store is one of the busiest", || {
        page = server.http("/metrics").1;
        page.contains("busload_store_reads_total")
    });
    let mut exported: Vec<(String, String, Vec<String>)> = Vec::new();
    for line in page.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            exported.push((name.to_owned(), kind.to_owned(), Vec::new()));
        } else if !line.starts_with('#') {
            let (name, _, labels) = exported.last_mut().unwrap();
            assert!(line.starts_with(name.as_str()), "{line} is not of {name}");
            let names = line.split("=\"").filter_map(|part| part.rsplit(['{', ',']).next());
            let found: Vec<_> = names.map(str::to_owned).collect();
            *labels = found[..found.len() - 1].to_vec().max(labels.clone());
        }
    }
    let mut documented = documented_metrics();
    // Only a server with TLS has some, one with manifests in DynamoDB others, and one with peers
    // others again; `tls.rs`, `cargo xtask clients dolt-aws` and `remotesapi/peers.rs` read them.
    let elsewhere = ["busload_tls_", "busload_dynamodb_", "busload_peer"];
    documented.retain(|(name, ..)| !elsewhere.iter().any(|prefix| name.starts_with(prefix)));
    exported.sort();
    documented.sort();
    assert_eq!(exported, documented);
}

#[test]
fn http_speaks_version_2_without_upgrade() {
    let (_directory, server) = server();
    let mut stream = TcpStream::connect(server.address("http")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // Connection preface and an empty SETTINGS frame (RFC 9113, 3.4).
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut header = [0; 9];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[3], 4, "the server's SETTINGS frame: {header:?}");
}

#[test]
fn connections_that_hold_http_do_not_disturb_redis_clients() {
    let (_directory, server) = server();
    let idle: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.address("http")).unwrap()).collect();
    assert_eq!(server.client().text(&["PING"]), "PONG");
    drop(idle);
    assert!(server.http("/healthz").0.ends_with("200 OK"), "the places are free again");
}
