//! `busload cache list|warm|verify|drop`, run directly and through a server.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
};

use super::{Served, away, fixtures};
use crate::support::{Ended, Server, TIMEOUT, run};

/// A configuration, and the address of the server that uses its caches, if there is one.
struct Tool<'a> {
    data: &'a Path,
    table: &'a str,
    http: String,
}

impl Tool<'_> {
    fn run(&self, arguments: &[&str]) -> Ended {
        let data = self.data.to_str().unwrap();
        let mut all = vec!["cache"];
        all.extend(arguments);
        all.extend(["--data", data, "--http", &self.http, "--table", self.table]);
        run(&all)
    }

    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        assert!(!ended.stderr.contains('\u{1b}'), "no bars where there is no terminal: {ended:?}");
        ended.stdout
    }
}

/// Returns the largest cache file, which holds the largest object's blocks.
fn largest(directory: &Path) -> PathBuf {
    let mut directories = vec![directory.to_owned()];
    let mut largest = (0, PathBuf::new());
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let (path, metadata) =
                entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
            if metadata.is_dir() {
                directories.push(path);
            } else if largest.0 < metadata.len() {
                largest = (metadata.len(), path);
            }
        }
    }
    largest.1
}

fn flip(file: &Path, offset: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[offset] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

/// Runs all commands on a cache, whether the tool or a server has it open.
fn live(tool: &Tool<'_>) {
    let files = || {
        let listed = tool.succeed(&["list", "db"]);
        listed.lines().filter(|line| line.starts_with("  ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let warmed = tool.succeed(&["warm", "db"]);
    assert!(
        warmed.starts_with("table db: ") && warmed.trim_end().ends_with("are on disk"),
        "{warmed}"
    );
    let listed = files();
    assert_eq!(listed.len(), 8, "{listed:?}");
    for line in &listed {
        let (present, size) = line.trim().split_once("  ").unwrap().1.split_once(" of ").unwrap();
        assert_eq!(present, size, "{line}");
    }
    // Ignores the first line: it counts the journal, which may still grow.
    let without_name = tool.succeed(&["list"]);
    assert!(listed.iter().all(|line| without_name.contains(line)), "{without_name}");
    let verified = tool.succeed(&["verify", "db"]);
    assert!(verified.contains("on disk verified"), "{verified}");

    flip(&largest(&tool.data.join("cache/db")), 5000);
    let ended = tool.run(&["verify", "db"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let line = ended.stderr.lines().last().unwrap();
    assert!(line.contains("were corrupt; they are removed"), "{line}");
    assert_eq!(tool.run(&["verify", "db"]).code, Some(0), "it is removed");
    assert_ne!(files(), listed);
    tool.succeed(&["warm", "db"]);
    assert_eq!(files(), listed);

    let dropped = tool.succeed(&["drop", "db"]);
    assert!(dropped.contains("of disk are free again"), "{dropped}");
    assert_eq!(files(), Vec::<String>::new());
    assert!(tool.succeed(&["list"]).contains(" 0 files, "), "{}", tool.succeed(&["list"]));
}

#[test]
fn a_cache_is_worked_on_without_a_server() {
    let data = tempfile::tempdir().unwrap();
    let table = fixtures::table("db", "real-classic", "disk_free=0");
    let tool = Tool { data: data.path(), table: &table, http: "none".into() };
    assert!(tool.succeed(&["list"]).contains(" 0 files, "));
    assert!(!data.path().join("cache").exists(), "to look at it makes nothing");
    live(&tool);
}

#[test]
fn a_cache_is_worked_on_by_the_server_that_has_it() {
    let table = fixtures::table("db", "real-classic", "disk_free=0");
    for threads in ["0", "1"] {
        let mut served = Served::start(&[&table], &["--net-threads", threads]);
        let http = served.server.address("http").to_string();
        let data = served.data.path().to_owned();
        live(&Tool { data: &data, table: &table, http });
        // The server reads dropped files again.
        for listed in fixtures::listed("real-classic") {
            assert_eq!(
                served.run(&format!("STRLEN db:{}", listed.address)),
                listed.bytes.to_string()
            );
        }
        assert!(served.server.stop().success());
    }
}

#[test]
fn what_a_tool_brought_to_disk_a_server_finds_there() {
    let data = tempfile::tempdir().unwrap();
    let table = fixtures::table("db", "real-archive-v3", "disk_free=0");
    Tool { data: data.path(), table: &table, http: "none".into() }.succeed(&["warm", "db"]);
    let mut served = Served::start_in(data, &[&table], &[]);
    for listed in fixtures::listed("real-archive-v3") {
        assert_eq!(served.run(&format!("STRLEN db:{}", listed.address)), listed.bytes.to_string());
    }
    let remote = "busload_chunks_answers_total{table=\"db\",outcome=\"remote\"}";
    assert_eq!(served.server.metric(remote), 0.0, "nothing had to be read from the store");
}

#[test]
fn mistakes_are_told_with_their_code() {
    let data = tempfile::tempdir().unwrap();
    let table = fixtures::table("db", "real-classic", "");
    let tool = Tool { data: data.path(), table: &table, http: "none".into() };
    let line = tool.run(&["warm", "dd"]).failed(2).to_owned();
    assert!(line.contains("`dd` is no table of kind chunks; did you mean `db`?"), "{line}");
    let line = run(&["cache", "list"]).failed(2).to_owned();
    assert!(
        line.contains("no table of kind chunks is configured; expected --config FILE or --table"),
        "{line}"
    );
    let without = fixtures::table("db", "real-classic", "disk=0");
    let without = Tool { table: &without, ..tool };
    assert!(without.run(&["drop", "db"]).failed(2).contains("has no cache on disk"));
    assert!(without.succeed(&["list"]).contains("no cache on disk"));
    let away = Tool { table: &fixtures::table("db", "real-journal", ""), ..without };
    let ended = away.run(&["warm", "db"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.lines().last().unwrap().contains("journal"), "{ended:?}");
}

#[test]
fn a_server_that_cannot_be_asked_is_said_to_be_in_the_way() {
    let table = fixtures::table("db", "real-classic", "");
    let served = Served::start(&[&table], &[]);
    let (_held, nobody) = away();
    let other = tempfile::tempdir().unwrap();
    let other_server = Server::start(other.path(), &["--table", &table]);
    for (http, part) in [
        ("none".to_owned(), "expected --http with the address of the server"),
        (nobody.to_string(), "refused"),
        (served.server.address("resp").to_string(), "does not speak HTTP"),
        (other_server.address("http").to_string(), "it has no table db with its cache in"),
    ] {
        let tool = Tool { data: served.data.path(), table: &table, http };
        for action in ["list", "warm", "verify", "drop"] {
            let ended = tool.run(&[action, "db"]);
            let line = ended.failed(1);
            assert!(line.contains(part), "{action}: {line}");
            assert!(line.contains(&served.server.process_id().to_string()), "who has it: {line}");
        }
    }
}

#[test]
fn the_server_takes_orders_only_from_where_it_should() {
    let served = Served::start(&[&fixtures::table("db", "real-classic", "")], &[]);
    let post = |path: &str, header: &str| {
        let mut stream = TcpStream::connect(served.server.address("http")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: localhost:1\r\n{header}Connection: close\r\n\r\n"
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    };
    for (path, header, status, part) in [
        ("/api/cache/db/verify", "", "200", "finished"),
        ("/api/cache/db/verify", "Origin: http://localhost:1\r\n", "200", "finished"),
        ("/api/cache/db/drop", "Origin: http://localhost:2\r\n", "403", "another site"),
        ("/api/cache/db/drop", "Origin: http://evil.example\r\n", "403", "another site"),
        ("/api/cache/db/pin", "", "404", "expected warm, verify or drop"),
        ("/api/cache/sessions/drop", "", "404", "no table of kind chunks"),
        ("/api/cache", "", "405", ""),
    ] {
        let response = post(path, header);
        let first = response.lines().next().unwrap();
        assert!(first.contains(status) && response.contains(part), "{path} {header}: {response}");
    }
    let (status, body) = served.server.http("/api/cache");
    assert!(status.contains("200"), "{status}");
    let caches: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(caches[0]["table"], "db");
    assert!(served.server.http("/api/cache/db/drop").0.contains("405"), "reading changes nothing");
}
