//! Snapshots as clients and operators meet them.

use std::{fs, path::Path, path::PathBuf};

use tempfile::{TempDir, tempdir};

use crate::support::{Server, run};

/// Returns the snapshots in a data directory, the oldest first.
fn snapshots(data: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(data.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|name| name == "snapshot")).collect();
    found.sort();
    found
}

/// Leaves a data directory with two snapshots and a log whose first segments are gone: every run
/// begins a segment.
fn trimmed() -> TempDir {
    let directory = tempdir().unwrap();
    for run in 0..4 {
        let server = Server::start(directory.path(), &["--snapshot-log", "none"]);
        let mut client = server.client();
        for key in 0..20 {
            client.text(&["SET", &format!("key:{key}"), &format!("{run}:{key}")]);
        }
        client.text(&["HSET", "hash", &format!("field:{run}"), "value"]);
        assert_eq!(client.text(&["SAVE"]), "OK");
        client.text(&["SET", "last", &run.to_string()]);
        assert!(server.stop().success());
    }
    assert_eq!(snapshots(directory.path()).len(), 2);
    assert!(!directory.path().join("log/00000000000000000001.log").exists());
    directory
}

fn check(server: &Server) {
    let mut client = server.client();
    assert_eq!(client.text(&["DBSIZE"]), "22");
    assert_eq!(client.text(&["MGET", "key:0", "key:19", "last"]), "3:0 3:19 3");
    assert_eq!(client.text(&["HLEN", "hash"]), "4");
}

#[test]
fn commands_make_snapshots_and_tell_of_them() {
    let directory = tempdir().unwrap();
    let server = Server::start(directory.path(), &["--snapshot-log", "none"]);
    let mut client = server.client();
    let before: i64 = client.text(&["LASTSAVE"]).parse().unwrap();
    client.text(&["SET", "a", "1"]);
    assert_eq!(client.text(&["SAVE"]), "OK");
    let info = client.text(&["INFO", "persistence"]);
    for field in ["snapshots_made:1", "snapshot_entries:1", "rdb_last_bgsave_status:ok"] {
        assert!(info.contains(field), "{field}: {info}");
    }
    assert!(before <= client.text(&["LASTSAVE"]).parse().unwrap());
    assert_eq!(server.metric("busload_snapshot_entries") as u64, 1);
    client.text(&["SET", "b", "1"]);
    assert_eq!(client.text(&["BGSAVE"]), "Background saving started");
    assert_eq!(client.text(&["BGREWRITEAOF"]), "Background append only file rewriting started");
    assert_eq!(client.text(&["SAVE"]), "OK");
    assert!(client.text(&["INFO", "persistence"]).contains("snapshot_entries:2"));
    assert!(client.text(&["BGSAVE", "NOW"]).contains("syntax error"));
    assert_eq!(snapshots(directory.path()).len(), 2);
}

#[test]
fn a_log_that_grows_is_followed_by_snapshots_without_being_asked() {
    let directory = tempdir().unwrap();
    let server = Server::start(directory.path(), &["--snapshot-log", "1", "--snapshot-cpu", "99%"]);
    server.client().text(&["SET", "a", "1"]);
    crate::support::eventually("a snapshot", || 1.0 <= server.metric("busload_snapshots_total"));
}

#[test]
fn a_start_takes_the_newest_snapshot_that_verifies() {
    let directory = trimmed();
    let data = directory.path().to_str().unwrap();
    let server = Server::start(directory.path(), &[]);
    check(&server);
    assert!(server.stop().success());
    let verified = run(&["snapshot", "verify", "--data", data]);
    assert_eq!((verified.code, verified.stdout.matches("sound").count()), (Some(0), 2));
    assert_eq!(run(&["log", "verify", "--data", data]).code, Some(0));
    assert!(run(&["check", "--data", data]).stdout.contains("22 in "));
    let dumped = run(&["snapshot", "dump", "--data", data]).stdout;
    assert!(dumped.contains("put table=0 key=\"key:7\" value=\"3:7\""), "{dumped}");

    let newest = snapshots(directory.path()).pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    bytes[200] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let verified = run(&["snapshot", "verify", "--data", data]);
    assert_eq!(verified.code, Some(1));
    assert!(verified.stdout.contains("the block's checksum does not agree"), "{verified:?}");
    let server = Server::start(directory.path(), &[]);
    assert!(server.said().join("\n").contains("the snapshot before it takes its place"));
    check(&server);
    // The next one is made from the one that verifies.
    assert_eq!(server.client().text(&["SAVE"]), "OK");
    assert!(server.stop().success());
    check(&Server::start(directory.path(), &[]));
}

#[test]
fn without_its_snapshots_a_log_whose_beginning_is_gone_is_refused() {
    let directory = trimmed();
    for snapshot in snapshots(directory.path()) {
        fs::remove_file(snapshot).unwrap();
    }
    let refused = Server::try_start(crate::support::serve(directory.path(), &[])).unwrap_err();
    let line = refused.failed(1);
    assert!(line.contains("the segments before it are missing, and so is a valid snapshot"));
}

#[test]
fn a_corrupt_log_behind_a_snapshot_is_repaired_from_both() {
    let directory = trimmed();
    let parent = tempdir().unwrap();
    let new = parent.path().join("repaired");
    let (data, to) = (directory.path().to_str().unwrap(), new.to_str().unwrap());
    let repaired = run(&["log", "repair", "--data", data, "--to", to]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(repaired.stdout.starts_with("snapshot 22 entries up to LSN "), "{repaired:?}");
    let server = Server::start(&new, &[]);
    check(&server);
}
