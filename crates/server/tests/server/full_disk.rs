//! A disk that is full in the middle of a snapshot: a small file system in memory, filled from
//! outside.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::tempdir;

use crate::{
    disks::busload_behind,
    support::{Client, Server, eventually},
};

/// Length of a value, which gets a block of its own in a snapshot and is not compressed.
const VALUE_BYTES: usize = 256 * 1024;
/// Number of keys: a snapshot has 1.5 MiB.
const KEYS: usize = 6;
/// Space that is left when a snapshot begins.
const LEFT_BYTES: u64 = 512 << 10;

/// Path of the server's directory as it sees it, for this process.
fn seen_by(server: &Server, directory: &Path) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root{}", server.process_id(), directory.display()))
}

fn free_bytes(path: &Path) -> u64 {
    let space = rustix::fs::statvfs(path).unwrap();
    space.f_bavail * space.f_frsize
}

/// Fills the file system up to a rest.
fn fill(path: &Path, left_bytes: u64) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    let zeros = vec![0; 64 * 1024];
    while left_bytes + zeros.len() as u64 <= free_bytes(path) {
        file.write_all(&zeros).unwrap();
    }
}

fn persistence(client: &mut Client<std::net::TcpStream>) -> String {
    client.text(&["INFO", "persistence"])
}

/// Kills the first server, of which only the shell between knows, also when an assertion fails.
struct KillWhenDropped(Pid);

impl KillWhenDropped {
    fn find(client: &mut Client<std::net::TcpStream>) -> Self {
        let info = client.text(&["INFO", "server"]);
        let process = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap();
        Self(Pid::from_raw(process.trim().parse().unwrap()).unwrap())
    }
}

impl Drop for KillWhenDropped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::KILL).unwrap();
    }
}

/// Writes values with growing numbers to the keys in turn.
struct Writer {
    client: Client<std::net::TcpStream>,
    /// Number of the next value.
    next: usize,
    filler: String,
}

impl Writer {
    fn write(&mut self) -> String {
        let (key, value) = (self.next % KEYS, format!("{}.{}", self.next, self.filler));
        let reply = self.client.text(&["SET", &format!("key-{key}"), &value]);
        self.next += usize::from(reply == "OK");
        reply
    }
}

#[test]
fn a_disk_that_fills_up_under_a_snapshot_costs_the_snapshot_and_nothing_else() {
    let directory = tempdir().unwrap();
    // After the first server, which this test kills, a second one starts on the same files.
    let twice = "mount -t tmpfs -o size=112m tmpfs \"$dir\"; \"$@\" || true";
    let Some(mut command) = busload_behind(twice, directory.path()) else { return };
    command.args(["serve", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.args(["--snapshot-log", "none", "--snapshot-cpu", "100%", "--data"]);
    command.arg(directory.path());
    let mut server = Server::try_start(command).unwrap();
    let mut client = server.client();
    let first = KillWhenDropped::find(&mut client);
    let mut writer = Writer { client: server.client(), next: 0, filler: "x".repeat(VALUE_BYTES) };
    (0..2 * KEYS).for_each(|_| assert_eq!(writer.write(), "OK"));
    let seen = seen_by(&server, directory.path());
    let log = seen.join("log");
    let is_prepared = || {
        let names = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".log")).count() == 2
    };
    eventually("the next segment is prepared", is_prepared);

    let filler = seen.join("filler");
    fill(&filler, LEFT_BYTES);
    let refused = client.text(&["SAVE"]);
    let named = ["-ERR no snapshot was made: Write of ", "snapshot.new", "No space left on device"];
    assert!(named.iter().all(|part| refused.contains(part)), "{refused}");
    let info = persistence(&mut client);
    for field in ["rdb_last_bgsave_status:err", "snapshots_failed:1", "snapshots_made:0"] {
        assert!(info.contains(field), "{field}: {info}");
    }
    assert!(!log.join("snapshot.new").exists(), "its space is free again");

    // Writes go on in the segments that are there, then they are refused, and nothing else is.
    let refusal = loop {
        fill(&filler, 0);
        let reply = writer.write();
        if reply != "OK" {
            break reply;
        }
    };
    let written = writer.next * VALUE_BYTES;
    assert!(8 << 20 < written && refusal.starts_with("-MISCONF"), "{written} bytes: {refusal}");
    check(&mut client, writer.next);

    fs::remove_file(&filler).unwrap();
    eventually("writes are accepted again", || writer.write() == "OK");
    // The log may take all space for a moment, to find out how long its next segment can be.
    eventually("a snapshot is made", || client.text(&["SAVE"]) == "OK");
    let info = persistence(&mut client);
    for field in ["rdb_last_bgsave_status:ok", "snapshots_made:1"] {
        assert!(info.contains(field), "{field}: {info}");
    }
    drop(first);

    server.wait_until_ready().unwrap();
    assert!(server.said().join("\n").contains("recovered a snapshot of "), "{:?}", server.said());
    check(&mut server.client(), writer.next);
    assert!(server.stop().success());
}

/// Asserts that each key has its last value of those before `next`.
fn check(client: &mut Client<std::net::TcpStream>, next: usize) {
    assert_eq!(client.text(&["DBSIZE"]), KEYS.to_string());
    for number in next - KEYS..next {
        let key = format!("key-{}", number % KEYS);
        let found = client.text(&["GETRANGE", &key, "0", "9"]);
        assert_eq!(found.split('.').next(), Some(number.to_string().as_str()), "{key}");
    }
}
