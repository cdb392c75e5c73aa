//! Data directories that are copied while the server runs, file by file as `cp -r` does: the copy
//! starts with everything that was acknowledged before, or the start is refused.
//!
//! `busload-snapshot` tests many orders of copying on simulated disks.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    process::Command,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use tempfile::tempdir;

use crate::support::{Client, Ended, Server, client::command, eventually, serve};

const WRITERS: usize = 3;
/// Copies that the test makes, one after the other, each of another run of the server.
const COPIES: usize = 4;
/// Transactions of a writer in a run. All together fill the first segment of the run.
const WRITES: u64 = 110;
/// Transactions of a writer before the copying begins.
const WRITES_BEFORE: u64 = 30;
/// Length of a value, so that segments are filled quickly.
const VALUE_BYTES: usize = 16 * 1024;

/// Number up to which a writer's transactions were sent and acknowledged.
#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

fn try_start(data: &Path) -> Result<Server, Ended> {
    Server::try_start(serve(data, &[]))
}

/// Ends the load, also when an assertion fails: who waits for its threads would wait for ever.
struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Writes one number after the other to two keys in transactions.
fn write(mut client: Client<TcpStream>, writer: usize, counts: &Counts, warm: &Barrier) {
    let filler = "x".repeat(VALUE_BYTES);
    let (left, right) = (format!("{writer}-left"), format!("{writer}-right"));
    let first = 1 + counts.sent.load(Ordering::SeqCst);
    for number in first..first + WRITES {
        let value = format!("{number}.{filler}");
        let requests =
            [&["MULTI"][..], &["SET", &left, &value], &["SET", &right, &value], &["EXEC"]];
        counts.sent.store(number, Ordering::SeqCst);
        client.send(&requests.map(command).concat());
        let replies: Vec<_> = (0..4).map(|_| client.receive().unwrap()).collect();
        assert!(!replies[3].is_error(), "{replies:?}");
        counts.acknowledged.store(number, Ordering::SeqCst);
        if number + 1 == first + WRITES_BEFORE {
            warm.wait();
        }
    }
}

fn save(mut client: Client<TcpStream>, stop: &AtomicBool, warm: &Barrier) {
    assert_eq!(client.text(&["SAVE"]), "OK");
    warm.wait();
    while !stop.load(Ordering::SeqCst) {
        assert_eq!(client.text(&["SAVE"]), "OK");
    }
}

/// Copies as users do. Files that vanish meanwhile are an error of `cp`, which goes on.
fn copy(from: &Path, to: &Path) {
    Command::new("cp").arg("-r").arg(from).arg(to).output().unwrap();
}

#[test]
fn a_copy_made_under_load_starts_with_what_was_acknowledged_or_is_refused() {
    let directory = tempdir().unwrap();
    let data = directory.path().join("data");
    let counts: Vec<Counts> = (0..WRITERS).map(|_| Counts::default()).collect();
    let mut opened = 0;
    for number in 0..COPIES {
        let server = Server::start(&data, &["--snapshot-log", "none", "--snapshot-cpu", "100%"]);
        let to = directory.path().join(format!("copy-{number}"));
        let before = copy_under_load(&server, &counts, &data, &to);
        assert!(server.stop().success());
        match try_start(&to) {
            Ok(copied) => {
                opened += 1;
                check(&copied, &before, &counts);
            }
            Err(ended) => {
                let line = ended.stderr.lines().find(|line| line.starts_with("busload: "));
                let is_clear = line.is_some_and(|line| line.contains("is missing"))
                    || line.is_some_and(|line| line.contains("the log"));
                assert!(ended.code == Some(1) && is_clear, "{ended:?}");
            }
        }
        fs::remove_dir_all(&to).unwrap();
    }
    println!("{opened} of {COPIES} copies opened");
}

/// Copies the data while clients write and snapshots are made; returns what was acknowledged
/// before.
fn copy_under_load(server: &Server, counts: &[Counts], data: &Path, to: &Path) -> Vec<u64> {
    let (stop, warm) = (AtomicBool::new(false), Barrier::new(WRITERS + 2));
    thread::scope(|scope| {
        let _stopped = StopWhenDropped(&stop);
        for (writer, counts) in counts.iter().enumerate() {
            let (client, warm) = (server.client(), &warm);
            scope.spawn(move || write(client, writer, counts, warm));
        }
        let (client, stop, warm) = (server.client(), &stop, &warm);
        scope.spawn(move || save(client, stop, warm));
        warm.wait();
        let acknowledged = |counts: &Counts| counts.acknowledged.load(Ordering::SeqCst);
        let before = counts.iter().map(acknowledged).collect();
        copy(data, to);
        before
    })
}

/// Asserts that each writer's keys have one number, between what was acknowledged before the
/// copying began and what is sent by now.
fn check(copied: &Server, before: &[u64], counts: &[Counts]) {
    let mut client = copied.client();
    for (writer, (before, counts)) in before.iter().zip(counts).enumerate() {
        let [left, right] = ["left", "right"]
            .map(|side| client.text(&["GETRANGE", &format!("{writer}-{side}"), "0", "12"]));
        let number: u64 = left.split('.').next().unwrap().parse().unwrap();
        let sent = counts.sent.load(Ordering::SeqCst);
        assert!(left == right, "half a transaction: {left} and {right}");
        assert!(*before <= number && number <= sent, "{before} <= {number} <= {sent}");
    }
}

/// Number that `last-segment` names.
fn last_segment(data: &Path) -> u64 {
    let bytes = fs::read(data.join("log/last-segment")).unwrap();
    u64::from_le_bytes(bytes[32..40].try_into().unwrap())
}

/// A copy once started without what was acknowledged before: its only segment was one that had been
/// copied before its first use, and the segments before that one, which held the writes behind the
/// copied snapshot, were removed before it was their turn.
#[test]
fn a_copy_whose_segments_in_use_are_gone_is_refused() {
    let directory = tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, &["--snapshot-log", "none", "--snapshot-cpu", "100%"]);
    let mut client = server.client();
    eventually("a second segment", || last_segment(&data) == 2);
    client.text(&["SET", "in the snapshot", "1"]);
    assert_eq!(client.text(&["SAVE"]), "OK");
    client.text(&["SET", "acknowledged", "1"]);

    let to = directory.path().join("copy/log");
    fs::create_dir_all(&to).unwrap();
    let listed: Vec<_> = fs::read_dir(data.join("log")).unwrap().map(Result::unwrap).collect();
    let first = "00000000000000000001.log";
    let (last, earlier): (Vec<_>, Vec<_>) =
        listed.iter().partition(|entry| entry.file_name() == first);
    assert_eq!(last.len(), 1);
    earlier.iter().for_each(|entry| {
        // A temporary file may be gone.
        let _ = fs::copy(entry.path(), to.join(entry.file_name()));
    });
    // The copying of a long snapshot takes so long that the first segment is full, and two further
    // snapshots cover it.
    let long = "x".repeat(1 << 20);
    (0..9).for_each(|key| drop(client.text(&["SET", &format!("long:{key}"), &long])));
    assert_eq!(client.text(&["SAVE"]), "OK");
    client.text(&["SET", "more", "1"]);
    assert_eq!(client.text(&["SAVE"]), "OK");
    assert!(fs::copy(last[0].path(), to.join(first)).is_err(), "the first segment is gone");

    let copied = try_start(&directory.path().join("copy"));
    let ended = copied.map(|server| server.client().text(&["GET", "acknowledged"])).unwrap_err();
    let line = ended.failed(1);
    assert!(line.contains("the segments that were in use are missing"), "{line}");
    assert!(server.stop().success());
}
