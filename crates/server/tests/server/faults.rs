//! A real server on a real directory whose n-th write, sync, rename, truncation, removal or
//! creation of a file fails: an error, also one that comes after the operation took effect or did
//! half of it. What was acknowledged or seen is there after a restart, transactions are whole, and
//! the failure is named.
//!
//! Each run preloads `shim.c`, which counts the operations. CI runs one number of each fault;
//! with `BUSLOAD_FAULTS=all` every number has a run, until one has fewer operations than that.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    Client, Server,
    client::{command, text},
    serve,
};
use busload_resp::reply::Reply;
use rustix::process::Signal;
use tempfile::{TempDir, tempdir};

/// Transactions of a run.
const WRITES: u64 = 14;
/// After so many transactions a snapshot is made.
const WRITES_PER_SNAPSHOT: u64 = 5;
/// Length of the long value of a transaction, which the log keeps by reference.
const LONG_BYTES: usize = 20_000;
/// Most numbers of a fault that are run; there are fewer operations.
const NUMBER_MAX: u64 = 1_000;

const EIO: u8 = 5;
const ENOSPC: u8 = 28;
/// Instead of an error: a write that writes a part.
const SHORT: u8 = 0;

/// Kinds of operations, numbered as in `shim.c`.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Sync,
    Rename,
    Truncate,
    Unlink,
    Create,
}

#[derive(Clone, Copy, Debug)]
enum Times {
    Once,
    Always,
}

/// Part of the failing operation that takes effect.
#[derive(Clone, Copy, Debug)]
enum Effect {
    None,
    Half,
    Whole,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    kind: Kind,
    error: u8,
    times: Times,
    effect: Effect,
}

const fn fault(kind: Kind, error: u8, times: Times, effect: Effect) -> Fault {
    Fault { kind, error, times, effect }
}

const FAULTS: [Fault; 14] = [
    fault(Kind::Write, EIO, Times::Once, Effect::None),
    fault(Kind::Write, EIO, Times::Once, Effect::Half),
    fault(Kind::Write, ENOSPC, Times::Always, Effect::Half),
    fault(Kind::Write, SHORT, Times::Always, Effect::Half),
    fault(Kind::Sync, EIO, Times::Once, Effect::None),
    fault(Kind::Sync, EIO, Times::Once, Effect::Whole),
    fault(Kind::Sync, ENOSPC, Times::Once, Effect::None),
    fault(Kind::Rename, EIO, Times::Once, Effect::None),
    fault(Kind::Rename, EIO, Times::Once, Effect::Whole),
    fault(Kind::Rename, ENOSPC, Times::Always, Effect::None),
    fault(Kind::Truncate, EIO, Times::Once, Effect::None),
    fault(Kind::Unlink, EIO, Times::Once, Effect::None),
    fault(Kind::Create, EIO, Times::Once, Effect::None),
    fault(Kind::Create, ENOSPC, Times::Always, Effect::None),
];

/// Bounds of the number that a transaction writes to all its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// Highest number that was acknowledged or seen.
    at_least: u64,
    /// Highest number that was sent and not refused.
    at_most: u64,
}

/// Counts that the shim leaves in its file.
#[derive(Debug)]
struct Report {
    counts: [u64; 6],
    failed: u64,
    /// Path of the first operation that failed.
    path: String,
}

/// Outcome of a run under faults.
#[derive(Debug)]
struct Ran {
    known: Known,
    /// Error replies, and everything on stderr.
    said: String,
    exit_code: Option<i32>,
    report: Report,
}

/// Folder with the compiled shim, and a data directory from which each run begins.
struct Harness {
    folder: TempDir,
    shim: PathBuf,
    begin: Known,
}

impl Harness {
    fn new() -> Self {
        let folder = tempdir().unwrap();
        let shim = folder.path().join("shim.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/faults/shim.c");
        let mut compile = Command::new(env::var("CC").unwrap_or_else(|_| "cc".into()));
        compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).arg("-ldl");
        assert!(compile.status().expect("the compiler that links Rust").success());
        let begin = Known { at_least: 3, at_most: 3 };
        let harness = Self { folder, shim, begin };
        harness.prepare();
        harness
    }

    fn first(&self) -> PathBuf {
        self.folder.path().join("first")
    }

    /// Makes a data directory with two snapshots and segments of three runs, so that the next
    /// snapshot removes a snapshot and segments.
    fn prepare(&self) {
        for number in 1..=self.begin.at_least {
            let server = Server::start(&self.first(), &["--snapshot-log", "none"]);
            let mut client = server.client();
            client.send(&transaction(number));
            (0..5).for_each(|_| drop(client.receive().unwrap()));
            if number < self.begin.at_least {
                assert_eq!(client.text(&["SAVE"]), "OK");
            }
            assert!(server.stop().success());
        }
    }

    /// Copies the data directory, without the prepared segment of zeros that a start replaces.
    fn copy(&self) -> TempDir {
        let copy = tempfile::tempdir_in(self.folder.path()).unwrap();
        fs::create_dir(copy.path().join("log")).unwrap();
        for entry in fs::read_dir(self.first().join("log")).unwrap() {
            let entry = entry.unwrap();
            if entry.metadata().unwrap().len() < 1 << 20 {
                fs::copy(entry.path(), copy.path().join("log").join(entry.file_name())).unwrap();
            }
        }
        copy
    }

    /// Runs a server whose operation with this number fails, and then one without faults on what it
    /// left.
    fn run(&self, fault: Fault, number: u64) -> Report {
        let what = format!("{fault:?}, number {number}");
        let data = self.copy();
        let ran = self.run_with_fault(data.path(), fault, number);
        let server = Server::start(data.path(), &["--snapshot-log", "none"]);
        let mut client = server.client();
        let found = found(&client.text(&["MGET", "left", "right", "long"]), &what);
        let Known { at_least, at_most } = ran.known;
        assert!(
            at_least <= found && found <= at_most,
            "{what}: found {found} after {:?}: {:?}",
            ran.known,
            ran
        );
        if 0 < ran.report.failed {
            ran.assert_named(fault, &what);
        }
        client.send(&transaction(at_most + 1));
        assert!((0..5).all(|_| !client.receive().unwrap().is_error()), "{what}: no further write");
        assert_eq!(client.text(&["SAVE"]), "OK", "{what}");
        assert!(server.stop().success(), "{what}");
        ran.report
    }

    fn run_with_fault(&self, data: &Path, fault: Fault, number: u64) -> Ran {
        let report = self.folder.path().join("report");
        fs::write(&report, [0; 4096]).unwrap();
        let Fault { kind, error, times, effect } = fault;
        let plan = format!("{} {number} {error} {} {}", kind as u8, times as u8, effect as u8);
        let mut start = serve(data, &["--snapshot-log", "none", "--snapshot-cpu", "100%"]);
        start
            .env("LD_PRELOAD", &self.shim)
            .env("BUSLOAD_FAULT", plan)
            .env("BUSLOAD_FAULT_DIRECTORY", data.canonicalize().unwrap())
            .env("BUSLOAD_FAULT_REPORT", &report);
        let (known, said, exit_code) = match Server::try_start(start) {
            Err(ended) => (self.begin, ended.stderr, ended.code),
            Ok(mut server) => {
                let (known, mut said) = work(&server, self.begin);
                server.signal(Signal::TERM);
                let exit_code = server.wait().code();
                said.extend_from_slice(server.said());
                (known, said.join("\n"), exit_code)
            }
        };
        Ran { known, said, exit_code, report: Report::read(&report) }
    }
}

impl Report {
    fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let number = |at: usize| u64::from_ne_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
        let path = bytes[7 * 8..].split(|&byte| byte == 0).next().unwrap();
        Self {
            counts: std::array::from_fn(number),
            failed: number(6),
            path: String::from_utf8(path.to_vec()).unwrap(),
        }
    }
}

impl Ran {
    /// Asserts that a message names the failure, and that a process that cannot go on says so
    /// with its exit code.
    fn assert_named(&self, fault: Fault, what: &str) {
        let name = Path::new(&self.report.path).file_name().unwrap().to_str().unwrap();
        // A short write is no failure, and the process id in the lock file is of use to people
        // only. A segment for which there is no space yet is nobody's concern before it is needed.
        let is_ahead = name.ends_with(".log.new") || name.starts_with("last-segment");
        let is_harmless = fault.error == SHORT || name == "lock";
        let is_harmless = is_harmless || (fault.error == ENOSPC && is_ahead);
        assert!(is_harmless || self.said.contains(name), "{what}: nobody named {name}: {self:?}");
        match self.exit_code {
            Some(0) => {}
            Some(1) => {
                // A fault that stays may end the process with a file that failed later.
                let last = self.said.lines().find(|line| line.starts_with("busload: "));
                let is_clear =
                    last.is_some_and(|last| last.contains(" failed: ") && last.contains("/log"));
                assert!(is_clear, "{what}: {self:?}");
            }
            code => panic!("{what}: exit code {code:?}: {self:?}"),
        }
    }
}

/// Encodes a transaction that writes this number to all its keys.
fn transaction(number: u64) -> Vec<u8> {
    let short = number.to_string();
    let long = long(number);
    [
        command(&["MULTI"]),
        command(&["SET", "left", &short]),
        command(&["SET", "long", &long]),
        command(&["SET", "right", &short]),
        command(&["EXEC"]),
    ]
    .concat()
}

fn long(number: u64) -> String {
    let mut long = format!("{number}.");
    while long.len() < LONG_BYTES {
        long.push(char::from(b'a' + (number % 26) as u8));
    }
    long
}

/// Returns the number that all keys of the transaction have.
fn found(values: &str, what: &str) -> u64 {
    let values: Vec<&str> = values.split(' ').collect();
    let [left, right, long_value] = values[..] else { panic!("{what}: {values:?}") };
    let number = left.parse().unwrap();
    assert_eq!(left, right, "{what}: half a transaction");
    assert!(long_value == long(number), "{what}: a part of another transaction beside {number}");
    number
}

/// Writes one number after the other, reads it on another connection, and makes snapshots. Ends
/// early when the server does. Returns what must be there, and the error replies.
fn work(server: &Server, begin: Known) -> (Known, Vec<String>) {
    let (mut known, mut errors) = (begin, Vec::new());
    // It may end between its `ready` line and now.
    let connect = || Client::try_connect(server.address("resp"));
    let (Ok(mut writer), Ok(mut reader)) = (connect(), connect()) else { return (known, errors) };
    let mut call = |client: &mut Client<_>, bytes: &[u8], replies: usize| {
        std::io::Write::write_all(&mut client.stream, bytes).ok()?;
        let replies = (0..replies).map(|_| client.receive().ok());
        let last = replies.last()??;
        if last.is_error() {
            errors.push(text(&last));
        }
        Some(last)
    };
    for number in begin.at_most + 1..=begin.at_most + WRITES {
        let at_most_before = known.at_most;
        known.at_most = number;
        let Some(reply) = call(&mut writer, &transaction(number), 5) else { break };
        if reply.is_error() {
            // Nothing changes before an error.
            known.at_most = at_most_before;
        } else {
            known.at_least = number;
        }
        let Some(seen) = call(&mut reader, &command(&["GET", "left"]), 1) else { break };
        if let Reply::Bulk(_) = seen {
            let seen: u64 = text(&seen).parse().unwrap();
            assert!(known.at_least <= seen && seen <= known.at_most, "{seen} is seen: {known:?}");
            known.at_least = seen;
        }
        let is_due = number % WRITES_PER_SNAPSHOT == 0;
        if is_due && call(&mut writer, &command(&["SAVE"]), 1).is_none() {
            break;
        }
    }
    (known, errors)
}

/// Number of a fault that CI runs: each fault is at another part of a run, the next one far away.
fn one_number(index: usize, count: u64) -> u64 {
    let part = index * 5 % FAULTS.len();
    1 + count * part as u64 / FAULTS.len() as u64
}

#[test]
fn any_operation_on_a_file_may_fail_and_nothing_is_lost() {
    let harness = Harness::new();
    let counted = harness.run(FAULTS[0], 0);
    assert_eq!(counted.failed, 0);
    assert!(counted.counts.iter().all(|&count| 0 < count), "every kind is there: {counted:?}");
    let all = env::var("BUSLOAD_FAULTS").is_ok_and(|which| which == "all");
    for (index, &fault) in FAULTS.iter().enumerate() {
        if all {
            let last = (1..NUMBER_MAX).find(|&number| harness.run(fault, number).failed == 0);
            println!("{fault:?}: {last:?} runs");
        } else {
            let count = counted.counts[fault.kind as usize];
            harness.run(fault, one_number(index, count));
        }
    }
}
