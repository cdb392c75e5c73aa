//! Backups of servers that run, restores of them, and snapshots that a command asks for.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use busload_io::{Clock, RealClock};
use tempfile::{TempDir, tempdir};

use crate::support::{
    Client, Ended, Server, busload, client::command, eventually, mix, run, serve,
};

const WRITERS: usize = 3;
/// Transactions that a writer sends at once.
const PIPELINE: u64 = 8;

/// Directories of a test: data, backup, and one to restore into.
struct Directories {
    root: TempDir,
}

impl Directories {
    fn new() -> Self {
        Self { root: tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    fn to(&self) -> PathBuf {
        self.path("backup")
    }

    #[track_caller]
    fn backup(&self) -> Ended {
        let ended = self.try_backup();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended
    }

    fn try_backup(&self) -> Ended {
        run(&["backup", text(&self.to()), "--data", text(&self.data())])
    }

    fn try_restore(&self, name: &str, target: &[&str]) -> Ended {
        let (from, data) = (self.to(), self.path(name));
        run(&[&["restore", text(&from), "--data", text(&data)][..], target].concat())
    }

    /// Restores a state and starts a server on it.
    #[track_caller]
    fn restored(&self, name: &str, target: &[&str]) -> Server {
        let ended = self.try_restore(name, target);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let data = self.path(name);
        let verified = run(&["log", "verify", "--data", text(&data)]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
        Server::start(&data, &[])
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the number behind these words in what a command has printed.
#[track_caller]
fn number_behind(ended: &Ended, words: &str) -> u64 {
    let (_, behind) = ended.stdout.split_once(words).unwrap_or_else(|| panic!("{ended:?}"));
    let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    behind[..digits].parse().unwrap_or_else(|_| panic!("{ended:?}"))
}

/// Writers of growing numbers, each to two keys in one transaction.
struct Load {
    stop: Arc<AtomicBool>,
    sent: Vec<Arc<AtomicU64>>,
    acknowledged: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(server: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut sent, mut acknowledged, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        for writer in 0..WRITERS {
            let mut client = server.client();
            let first = client.text(&["GET", &format!("{writer}:a")]).parse().unwrap_or(0);
            let counts = [Arc::new(AtomicU64::new(first)), Arc::new(AtomicU64::new(first))];
            let [sent_count, acknowledged_count] = counts.clone();
            sent.push(sent_count);
            acknowledged.push(acknowledged_count);
            let stop = Arc::clone(&stop);
            threads.push(thread::spawn(move || write_until(client, writer, &counts, &stop)));
        }
        Self { stop, sent, acknowledged, threads }
    }

    /// Waits until every writer has written something more.
    fn wait_for_writes(&self) {
        let before = numbers(&self.acknowledged);
        eventually("writes", || {
            numbers(&self.acknowledged).iter().zip(&before).all(|(now, before)| before < now)
        });
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn numbers(counts: &[Arc<AtomicU64>]) -> Vec<u64> {
    counts.iter().map(|count| count.load(Ordering::SeqCst)).collect()
}

fn write_until(
    mut client: Client<std::net::TcpStream>,
    writer: usize,
    [sent, acknowledged]: &[Arc<AtomicU64>; 2],
    stop: &AtomicBool,
) {
    let keys = ["a", "b", "padding"].map(|name| format!("{writer}:{name}"));
    let padding = "x".repeat(3_000);
    let mut number = sent.load(Ordering::SeqCst);
    while !stop.load(Ordering::Relaxed) {
        let mut requests = Vec::new();
        for _ in 0..PIPELINE {
            number += 1;
            let value = number.to_string();
            requests.extend(command(&["MULTI"]));
            requests.extend(command(&["SET", &keys[0], &value]));
            requests.extend(command(&["SET", &keys[2], &padding]));
            requests.extend(command(&["SET", &keys[1], &value]));
            requests.extend(command(&["EXEC"]));
        }
        sent.store(number, Ordering::SeqCst);
        if std::io::Write::write_all(&mut client.stream, &requests).is_err() {
            return;
        }
        for done in number - PIPELINE + 1..=number {
            for _ in 0..5 {
                let Ok(reply) = client.receive() else { return };
                assert!(!reply.is_error(), "{reply:?}");
            }
            acknowledged.store(done, Ordering::SeqCst);
        }
    }
}

/// Asks for one snapshot after the other until the server ends.
fn save_until_the_end(server: &Server) -> JoinHandle<()> {
    let mut client = server.client();
    thread::spawn(move || {
        while std::io::Write::write_all(&mut client.stream, &command(&["SAVE"])).is_ok() {
            if client.receive().is_err() {
                return;
            }
        }
    })
}

/// Numbers of the writers around a backup.
struct Known {
    lsn: u64,
    at_least: Vec<u64>,
    at_most: Vec<u64>,
}

#[test]
fn a_backup_under_load_holds_what_was_acknowledged_before_and_nothing_by_half() {
    let directories = Directories::new();
    let mut backups = Vec::new();
    for wiring in ["0", "1", "0", "1"] {
        let arguments = ["--net-threads", wiring, "--snapshot-cpu", "100%"];
        let server = Server::start(&directories.data(), &arguments);
        let load = Load::start(&server);
        let saver = save_until_the_end(&server);
        for _ in 0..3 {
            load.wait_for_writes();
            let at_least = numbers(&load.acknowledged);
            let ended = directories.backup();
            let at_most = numbers(&load.sent);
            backups.push(Known { lsn: number_behind(&ended, "up to LSN "), at_least, at_most });
        }
        server.kill();
        load.end();
        saver.join().unwrap();
    }
    let first_segment = directories.data().join("log/00000000000000000001.log");
    assert!(!first_segment.exists(), "the log was trimmed meanwhile");
    let verified = run(&["backup", "verify", text(&directories.to())]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    for (index, known) in backups.iter().enumerate() {
        let target = known.lsn.to_string();
        let server = directories.restored(&format!("restored-{index}"), &["--to", &target]);
        let mut client = server.client();
        for writer in 0..WRITERS {
            let [a, b] = ["a", "b"].map(|name| {
                client.text(&["GET", &format!("{writer}:{name}")]).parse::<u64>().unwrap()
            });
            assert_eq!(a, b, "a transaction is there as a whole or not at all");
            assert!(known.at_least[writer] <= a && a <= known.at_most[writer], "backup {index}");
        }
    }
}

/// Starts a server, and writes numbers to a key, with a backup at the end. Returns for each number
/// the LSN and a time at which it was the value.
fn numbered(directories: &Directories, count: u64) -> Vec<(u64, i64)> {
    let server = Server::start(&directories.data(), &["--snapshot-log", "none"]);
    let mut client = server.client();
    let clock = RealClock::new();
    let mut moments = Vec::new();
    for number in 0..count {
        client.text(&["SET", "number", &number.to_string()]);
        let info = client.text(&["INFO", "persistence"]);
        let lsn = info.lines().find_map(|line| line.strip_prefix("log_durable_lsn:"));
        let now_ms = clock.wall_ms();
        moments.push((lsn.unwrap().trim().parse().unwrap(), now_ms));
        if number % 3 == 1 {
            assert_eq!(client.text(&["SAVE"]), "OK");
        }
        eventually("a later time", || now_ms + 1 < clock.wall_ms());
    }
    directories.backup();
    moments
}

fn value(server: &Server) -> String {
    server.client().text(&["GET", "number"])
}

#[test]
fn a_restore_goes_back_to_a_position_and_to_a_time() {
    let directories = Directories::new();
    let moments = numbered(&directories, 8);
    for (number, (lsn, ms)) in moments.iter().enumerate() {
        let time = format!("@{}.{:03}", ms / 1_000, ms % 1_000);
        for (kind, target) in [("lsn", format!("lsn:{lsn}")), ("time", time)] {
            let server = directories.restored(&format!("{kind}-{number}"), &["--to", &target]);
            assert_eq!(value(&server), number.to_string(), "{target}");
        }
    }
    assert_eq!(value(&directories.restored("newest", &[])), "7");
    let beyond = (moments[7].0 + 100).to_string();
    for target in ["0", &beyond, "1999-01-01T00:00:00Z", "2100-01-01T00:00:00Z", "@1"] {
        let refused = directories.try_restore("never", &["--to", target]);
        let line = refused.failed(2);
        assert!(line.contains("does not hold") && line.contains("it holds LSN 1 to "), "{line}");
    }
    assert!(!directories.path("never").exists());
}

#[test]
fn a_second_backup_copies_only_what_is_new_and_goes_on_from_a_restored_log_elsewhere() {
    let directories = Directories::new();
    numbered(&directories, 5);
    let server = Server::start(&directories.data(), &[]);
    let mut client = server.client();
    client.text(&["SET", "number", "5"]);
    let again = directories.backup();
    assert_eq!(number_behind(&again, "copied "), 1, "the segment of this start: {again:?}");
    let once_more = directories.backup();
    assert_eq!(number_behind(&once_more, "copied "), 1, "{once_more:?}");

    // A restored log is written on, and has a backup of its own.
    let restored = directories.restored("restored", &[]);
    restored.client().text(&["SET", "number", "6"]);
    let data = directories.path("restored");
    let refused = run(&["backup", text(&directories.to()), "--data", text(&data)]);
    assert!(refused.failed(2).contains("of another log"), "{refused:?}");
    let own = directories.path("own");
    assert_eq!(run(&["backup", text(&own), "--data", text(&data)]).code, Some(0));
    let from_own = directories.path("from-own");
    let ended = run(&["restore", text(&own), "--data", text(&from_own)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(value(&Server::start(&from_own, &[])), "6");
    // Nothing older than a moment ago is needed: the two newest snapshots stay.
    let data = directories.data();
    let kept = run(&["backup", text(&directories.to()), "--data", text(&data), "--keep", "1ms"]);
    assert!(kept.stdout.contains("2 snapshots"), "{kept:?}");
    assert_eq!(value(&directories.restored("kept", &[])), "5");
}

#[test]
fn a_backup_that_is_killed_again_and_again_is_resumed() {
    let directories = Directories::new();
    // Several segments of some megabytes: each start begins one.
    for part in 0..6 {
        let server = Server::start(&directories.data(), &["--snapshot-log", "none"]);
        let mut client = server.client();
        let value = part.to_string().repeat(1 << 20);
        for key in 0..5 {
            assert_eq!(client.text(&["SET", &format!("{part}:{key}"), &value]), "OK");
        }
        if part == 4 {
            assert_eq!(client.text(&["SAVE"]), "OK");
        }
        assert!(server.stop().success());
    }
    let server = Server::start(&directories.data(), &[]);
    let load = Load::start(&server);
    let to = directories.to();
    for round in 0..12 {
        let mut child = busload()
            .args(["backup", text(&to), "--data", text(&directories.data())])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The first rounds kill it when it has written so much; later ones find the files there.
        let enough = mix(round) % (24 << 20);
        let before = bytes_in(&to);
        eventually("bytes or the end", || {
            before + enough <= bytes_in(&to) || child.try_wait().unwrap().is_some()
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let at_least = numbers(&load.acknowledged);
    directories.backup();
    load.end();
    assert_eq!(run(&["backup", "verify", text(&to)]).code, Some(0));
    let restored = directories.restored("restored", &[]);
    let mut client = restored.client();
    for part in 0..6 {
        for key in 0..5 {
            let length = client.text(&["STRLEN", &format!("{part}:{key}")]);
            assert_eq!(length, (1 << 20).to_string());
        }
    }
    for (writer, at_least) in at_least.iter().enumerate() {
        let found: u64 = client.text(&["GET", &format!("{writer}:b")]).parse().unwrap();
        assert!(*at_least <= found);
    }
}

fn bytes_in(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

#[test]
fn a_corrupt_byte_in_a_backup_is_found_by_name() {
    let directories = Directories::new();
    // Behind the last snapshot is one number, so that a restore needs the log.
    numbered(&directories, 6);
    let to = directories.to();
    let sound = run(&["backup", "verify", text(&to)]);
    assert_eq!(sound.code, Some(0), "{sound:?}");
    assert!(sound.stdout.starts_with("sound"), "{sound:?}");
    for name in fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()) {
        let path = to.join(&name);
        let original = fs::read(&path).unwrap();
        if original.is_empty() {
            continue;
        }
        let mut bytes = original.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let verified = run(&["backup", "verify", text(&to)]);
        assert_eq!(verified.code, Some(1), "{verified:?}");
        let said = format!("{}{}", verified.stdout, verified.stderr);
        assert!(said.contains(text(&path)), "{verified:?}");
        fs::write(&path, &original).unwrap();
        if name != "manifest" {
            fs::remove_file(&path).unwrap();
            let verified = run(&["backup", "verify", text(&to)]);
            assert!(verified.stdout.contains("it is missing"), "{verified:?}");
            fs::write(&path, original).unwrap();
        }
    }
    let newest = newest_of(&to, "log");
    let mut bytes = fs::read(&newest).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let refused = directories.try_restore("restored", &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains(text(&newest)), "{refused:?}");
    // What it has left is no data directory.
    let started = Server::try_start(serve(&directories.path("restored"), &[])).unwrap_err();
    assert!(started.failed(1).contains("a restore into this directory has not ended"));
}

fn newest_of(directory: &Path, extension: &str) -> PathBuf {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|found| found == extension)).max().unwrap()
}

#[test]
fn a_restore_that_was_interrupted_is_done_again() {
    let directories = Directories::new();
    numbered(&directories, 3);
    let log = directories.path("restored").join("log");
    fs::create_dir_all(&log).unwrap();
    for name in ["restore-incomplete", "00000000000000000001.log", "snapshot.new"] {
        fs::write(log.join(name), "").unwrap();
    }
    assert_eq!(value(&directories.restored("restored", &[])), "2");
}

#[test]
fn directories_that_hold_something_else_are_refused() {
    let directories = Directories::new();
    let missing = directories.try_backup();
    assert!(missing.failed(1).contains("there is no log in"));
    assert!(!directories.to().exists(), "nothing is made before");
    numbered(&directories, 2);
    let mine = directories.path("mine");
    fs::create_dir_all(mine.join("folder")).unwrap();
    let data = directories.data();
    for (to, named) in [(&mine, "folder"), (&data, "log"), (&data.join("log"), "copy.lock")] {
        let refused = run(&["backup", text(to), "--data", text(&data)]);
        assert!(refused.failed(2).contains(named), "{refused:?}");
    }
    fs::remove_dir(mine.join("folder")).unwrap();
    fs::write(mine.join("notes.txt"), "mine").unwrap();
    let refused = run(&["backup", text(&mine), "--data", text(&data)]);
    assert!(refused.failed(2).contains("notes.txt"), "{refused:?}");
    let refused = directories.try_restore("mine", &[]);
    assert!(refused.failed(2).contains("is not empty"), "{refused:?}");
    assert_eq!(fs::read_dir(&mine).unwrap().count(), 1);
    for from in [text(&mine), "/nowhere/backup"] {
        let refused = run(&["restore", from, "--data", text(&directories.path("new"))]);
        refused.failed(2);
    }
    assert!(!directories.path("new").exists());
}

#[test]
fn a_snapshot_is_made_when_the_running_server_is_asked() {
    let directories = Directories::new();
    let password = directories.path("password");
    fs::write(&password, "secret").unwrap();
    let socket = directories.path("socket");
    let arguments =
        ["--snapshot-log", "none", "--password-file", text(&password), "--unix", text(&socket)];
    let server = Server::start(&directories.data(), &arguments);
    let mut client = server.client();
    client.text(&["AUTH", "secret"]);
    client.text(&["SET", "a", "1"]);
    let address = server.address("resp").to_string();

    let locked = run(&["snapshot", "--resp", &address]);
    assert!(locked.failed(1).contains("asks for another password"), "{locked:?}");
    let made = run(&["snapshot", "--resp", &address, "--password-file", text(&password)]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stdout.contains(".snapshot  up to LSN ") && made.stdout.contains(" 1 entries "));
    assert!(newest_of(&directories.data().join("log"), "snapshot").exists());

    let mut by_environment = busload();
    by_environment.env("BUSLOAD_PASSWORD", "secret");
    by_environment.args(["snapshot", "make", "--resp", "none", "--unix", text(&socket)]);
    let again = Ended::of(by_environment.output().unwrap());
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stdout.contains("covers everything already"), "{again:?}");
    assert!(server.stop().success());
    let nobody = run(&["snapshot", "--resp", &address]);
    let line = nobody.failed(1);
    assert!(line.contains(&format!("no server answers at {address}")), "{line}");
}
