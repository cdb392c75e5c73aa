//! Data that older versions have written opens, and holds what was put into it.
//!
//! `tests/data/1` was made by 0.1.0, with [`TABLES`]: [`BEFORE_KILL`], `kill -9`, a start,
//! [`AFTER_KILL`], and SIGTERM. `tests/data/1-snapshots` with two SAVEs between, so that the log
//! begins behind its first segments.

use std::{fs, path::Path};

use tempfile::tempdir;

use crate::support::{Server, run};

const TABLES: [&str; 2] = ["--table", "sessions=memory:?sync=os"];

const BEFORE_KILL: [&[&str]; 8] = [
    &["SET", "text", "caf\u{e9}"],
    &["SET", "later", "gone in 2100", "EXAT", "4102444800"],
    &["SET", "counter", "41"],
    &["HSET", "hash", "a", "1", "b", "2", "c", "3"],
    &["SET", "gone", "1"],
    &["SET", "sessions:7", "of a named table"],
    &["MSET", "x", "1", "y", "2"],
    &["SETRANGE", "patched", "3", "abc"],
];

const AFTER_KILL: [&[&str]; 7] = [
    &["INCR", "counter"],
    &["HDEL", "hash", "b"],
    &["DEL", "gone"],
    &["PERSIST", "text"],
    &["EXPIREAT", "x", "4102444800"],
    &["APPEND", "text", "!"],
    &["HSET", "sessions:8", "f", "v"],
];

const EXPECTED: [(&[&str], &str); 12] = [
    (&["GET", "text"], "caf\u{e9}!"),
    (&["GET", "later"], "gone in 2100"),
    (&["EXPIRETIME", "later"], "4102444800"),
    (&["EXPIRETIME", "x"], "4102444800"),
    (&["GET", "counter"], "42"),
    (&["HMGET", "hash", "a", "b", "c"], "1 nil 3"),
    (&["GET", "gone"], "nil"),
    (&["GET", "sessions:7"], "of a named table"),
    (&["HGETALL", "sessions:8"], "f v"),
    (&["MGET", "x", "y"], "1 2"),
    (&["GET", "patched"], "\0\0\0abc"),
    (&["DBSIZE"], "9"),
];

fn check(server: &Server) {
    let mut client = server.client();
    for (request, expected) in EXPECTED {
        assert_eq!(client.text(request), expected, "{request:?}");
    }
}

#[test]
fn data_of_every_format_opens_and_is_written_on() {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut count = 0;
    for entry in fs::read_dir(formats).unwrap() {
        let original = entry.unwrap().path();
        if !original.is_dir() {
            continue;
        }
        count += 1;
        let directory = tempdir().unwrap();
        fs::create_dir(directory.path().join("log")).unwrap();
        for file in fs::read_dir(original.join("log")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), directory.path().join("log").join(file.file_name())).unwrap();
        }
        let data = directory.path().to_str().unwrap();
        let verified = run(&["log", "verify", "--data", data]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
        for _ in 0..2 {
            let server = Server::start(directory.path(), &TABLES);
            check(&server);
            assert!(server.stop().success());
        }
    }
    assert_eq!(count, 2);
}

#[test]
fn the_commands_that_made_the_data_have_this_result() {
    let directory = tempdir().unwrap();
    let server = Server::start(directory.path(), &TABLES);
    BEFORE_KILL.iter().for_each(|request| _ = server.client().text(request));
    server.kill();
    let server = Server::start(directory.path(), &TABLES);
    AFTER_KILL.iter().for_each(|request| _ = server.client().text(request));
    check(&server);
    assert!(server.stop().success());
}
