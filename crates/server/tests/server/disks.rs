//! Errors for a data directory whose log lost its end, that is read-only, or whose disk is nearly
//! full.

use std::{fs, path::Path, process::Command, time::Duration};

use crate::support::{Ended, Server, on_free_ports, run, serve};
use busload_io::{OsRng, RealDisk};
use busload_log::{Options, Reservation, Step, SyncPolicy, limits::SEGMENT_BYTES_MIN};
use busload_tables::{TableId, effect};
use tempfile::{TempDir, tempdir};

/// Returns the data of three runs with clean shutdowns: three segments, and perhaps one of zeros.
fn three_runs() -> TempDir {
    let directory = tempdir().unwrap();
    for key in ["a", "b", "c"] {
        let server = Server::start(directory.path(), &[]);
        assert_eq!(server.client().text(&["SET", key, key]), "OK");
        assert!(server.stop().success());
    }
    directory
}

fn remove_segments_from(data: &Path, number: u64) {
    for entry in fs::read_dir(data.join("log")).unwrap() {
        let path = entry.unwrap().path();
        let digits =
            path.file_name().unwrap().to_str().unwrap().split('.').next().unwrap().parse::<u64>();
        if digits.is_ok_and(|found| number <= found) {
            fs::remove_file(path).unwrap();
        }
    }
}

/// Runs a start, a check and `log verify`, and returns how each ended.
fn outcomes(data: &Path) -> [Ended; 3] {
    let started = match Server::try_start(serve(data, &[])) {
        Err(ended) => ended,
        Ok(server) => panic!("it started: {:?}", server.said()),
    };
    let data = data.to_str().unwrap();
    [started, run(&["check", "--data", data]), run(&["log", "verify", "--data", data])]
}

/// `log verify` once reported such a log as sound, with fewer records.
#[test]
fn a_lost_last_segment_is_refused_and_named() {
    let directory = three_runs();
    let file = directory.path().join("log/last-segment");
    let sound = run(&["log", "verify", "--data", directory.path().to_str().unwrap()]);
    assert!(sound.stdout.contains("records in 3 segments"), "{sound:?}");
    remove_segments_from(directory.path(), 3);
    for ended in outcomes(directory.path()) {
        let line = ended.failed(1);
        let named = line.contains("segment 3 is missing") && line.contains(file.to_str().unwrap());
        assert!(named && !ended.stdout.contains("sound"), "{line}");
    }
    // An operator who accepts the loss can go on.
    fs::remove_file(&file).unwrap();
    let verified = run(&["log", "verify", "--data", directory.path().to_str().unwrap()]);
    assert!(
        verified.stdout.contains("it cannot be told whether segments are missing"),
        "{verified:?}"
    );
    let server = Server::start(directory.path(), &[]);
    assert!(server.said().join("\n").contains("no file `last-segment`"), "{:?}", server.said());
    assert_eq!(server.client().text(&["MGET", "a", "b", "c"]), "a b nil");
    assert!(file.exists());
}

#[test]
fn what_is_left_of_a_corrupt_log_is_repaired_into_a_new_directory() {
    let directory = three_runs();
    let parent = tempdir().unwrap();
    let new = parent.path().join("repaired");
    let arguments = ["log", "repair", "--data", directory.path().to_str().unwrap(), "--to"];
    let repair = || run(&[&arguments[..], &[new.to_str().unwrap()]].concat());
    fs::remove_file(directory.path().join("log/00000000000000000002.log")).unwrap();
    let repaired = repair();
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(repaired.stdout.starts_with("lost     LSN "), "{repaired:?}");
    let server = Server::start(&new, &[]);
    assert_eq!(server.client().text(&["MGET", "a", "b", "c"]), "a nil c");
    assert!(server.stop().success());

    let refused = repair();
    let line = refused.failed(2);
    assert!(line.contains("is not empty; expected a new directory"), "{line}");
    for ended in outcomes(directory.path()) {
        assert!(ended.failed(1).contains("segment 2 is missing"));
    }
}

#[test]
fn records_that_a_start_would_refuse_are_left_out_of_a_repaired_log() {
    let directory = tempdir().unwrap();
    let disk = RealDisk::open(directory.path().join("log")).unwrap();
    let mut log =
        busload_log::open(disk, Options::default(), &mut OsRng::new(), &mut |_| Ok(())).unwrap();
    let mut now = Duration::ZERO;
    for (table, key) in [(0, b"here"), (77, b"away"), (0, b"also")] {
        while log.writer.reserve(100) != Reservation::Granted {
            log.stage.step(now);
            log.helper.step(now);
            now += Duration::from_millis(1);
        }
        log.writer.begin();
        effect::put(log.writer.record(), TableId(table), key, b"1", None);
        log.writer.commit(SyncPolicy::Os);
    }
    log.writer.close();
    log.stage.run();
    log.helper.run();
    let new = directory.path().join("repaired");
    let (data, to) = (directory.path().to_str().unwrap(), new.to_str().unwrap());
    let repaired = run(&["log", "repair", "--data", data, "--to", to]);
    let lines: Vec<_> = repaired.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{repaired:?}");
    assert!(lines[0].contains("LSN 2: the effect names table 77, which does not exist"));
    assert_eq!(lines[1].trim(), "table=77 key=\"away\"");
    assert!(lines[2].contains("2 records written, 0 lost, 1 left out"), "{}", lines[2]);
    let server = Server::start(&new, &[]);
    assert_eq!(server.client().text(&["MGET", "here", "away", "also"]), "1 nil 1");
}

/// With a limit of 1,024 open files, these commands once failed on logs of 64 GiB, or of a thousand
/// starts.
#[test]
fn a_log_of_more_segments_than_files_may_be_open_is_read() {
    const SEGMENTS: u64 = 200;
    let directory = tempdir().unwrap();
    let disk = RealDisk::open(directory.path().join("log")).unwrap();
    let options =
        Options { segment_bytes: SEGMENT_BYTES_MIN, first_segment_bytes: 0, ..Options::default() };
    let mut log = busload_log::open(disk, options, &mut OsRng::new(), &mut |_| Ok(())).unwrap();
    let mut now = Duration::ZERO;
    while log.progress.stats().segments < SEGMENTS {
        if log.writer.reserve(1000) == Reservation::Granted {
            log.writer.begin();
            effect::put(log.writer.record(), TableId(0), b"key", &[b'x'; 900], None);
            log.writer.commit(SyncPolicy::Os);
        }
        log.writer.flush(0);
        log.stage.step(now);
        log.helper.step(now);
        now += Duration::from_millis(1);
    }
    log.writer.close();
    while log.stage.step(now) != Step::Ended {
        log.helper.step(now);
    }
    drop(log);
    for arguments in [&["log", "verify"][..], &["log", "dump"], &["check", "--adopt-tables"]] {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -Sn 100; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_busload")]);
        let ended = Ended::of(
            command.args(arguments).arg("--data").arg(directory.path()).output().unwrap(),
        );
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    }
}

/// Returns a command that runs the binary in a mount namespace of its own; `$dir` is the directory
/// in the shell commands that mount. `None` where mounting is not allowed: other tests cover the
/// same on simulated disks and on the copy-on-write disk of `check`.
pub fn busload_behind(mounts: &str, directory: &Path) -> Option<Command> {
    let script = format!("dir=$1; shift; {mounts}; exec \"$@\"");
    let within = |program: &str| {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--map-root-user", "sh", "-ec", &script, "sh"])
            .arg(directory)
            .arg(program);
        command.env_remove("BUSLOAD_PASSWORD");
        command
    };
    match within("true").output() {
        Ok(tried) if tried.status.success() => Some(within(env!("CARGO_BIN_EXE_busload"))),
        tried => {
            println!("no mounts here: {tried:?}");
            None
        }
    }
}

const READ_ONLY: &str = "mount --bind \"$dir\" \"$dir\"; mount -o remount,bind,ro \"$dir\"";

/// Runs a check and a start behind such mounts, and asserts that both report the same.
fn checked_and_started(mounts: &str, directory: &Path, data: &Path) -> Option<Ended> {
    let mut check = busload_behind(mounts, directory)?;
    let checked =
        Ended::of(check.args(on_free_ports(&["check"])).arg("--data").arg(data).output().unwrap());
    let mut start = busload_behind(mounts, directory)?;
    start.args(["serve", "--resp", "127.0.0.1:0", "--http", "none", "--data"]).arg(data);
    let started = Server::try_start(start).unwrap_err();
    let last = started.stderr.lines().last().unwrap();
    assert_eq!((checked.code, checked.stderr.trim_end()), (Some(1), last));
    assert!(checked.stdout.contains("would be refused"), "{checked:?}");
    Some(checked)
}

/// A check once reported that a start would succeed.
#[test]
fn a_read_only_file_system_is_said_by_a_check_and_read_by_a_verification() {
    let directory = three_runs();
    let (path, new) = (directory.path(), directory.path().join("new"));
    for (data, operation, failing) in [(path, "Lock", "log/lock"), (&new, "Create", "new/log")] {
        let Some(ended) = checked_and_started(READ_ONLY, path, data) else { return };
        let failing = path.join(failing);
        let text = format!("{operation} of {} failed: Read-only file system", failing.display());
        assert!(ended.stderr.contains(&text), "{ended:?}");
    }
    let verify = busload_behind(READ_ONLY, path)
        .unwrap()
        .args(["log", "verify", "--data"])
        .arg(path)
        .output();
    assert_eq!(verify.unwrap().status.code(), Some(0));
}

/// This includes paths under which even root cannot create files.
#[test]
fn a_check_says_which_path_cannot_be_made() {
    let directory = tempdir().unwrap();
    fs::create_dir_all(directory.path().join("log/lock")).unwrap();
    for (data, text) in [
        (Path::new("/proc/busload"), "Create of /proc/busload/log failed: "),
        (directory.path(), "log/lock failed: Is a directory"),
    ] {
        let [started, checked, _] = outcomes(data);
        assert!(checked.failed(1).contains(text), "{checked:?}");
        assert_eq!(checked.stderr, started.stderr);
        assert!(checked.stdout.contains("would be refused"), "{checked:?}");
    }
    assert_eq!(
        fs::read_dir(directory.path().join("log")).unwrap().count(),
        1,
        "nothing is left there"
    );
}

#[test]
fn a_check_on_a_full_file_system_says_what_a_start_would_do() {
    let empty = tempdir().unwrap();
    let full = "mount -t tmpfs -o size=1m tmpfs \"$dir\"";
    let Some(ended) = checked_and_started(full, empty.path(), empty.path()) else { return };
    assert!(
        ended.stderr.contains("00000000000000000001.log.new failed: No space left on device"),
        "{ended:?}"
    );
    // With an existing log the server starts, and refuses writes.
    let saved = three_runs();
    remove_segments_from(saved.path(), 4);
    let full = format!("{full}; cp -a {}/. \"$dir\"", saved.path().display());
    let mut check = busload_behind(&full, empty.path()).unwrap();
    let ended = Ended::of(
        check.args(on_free_ports(&["check"])).arg("--data").arg(empty.path()).output().unwrap(),
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("writes would be refused: "), "{ended:?}");
    assert!(ended.stdout.contains("would succeed"), "{ended:?}");
}

/// The server once refused writes with 16 of 24 MiB free.
#[test]
fn a_small_file_system_is_used_nearly_to_its_end() {
    let directory = tempdir().unwrap();
    let small = "mount -t tmpfs -o size=24m tmpfs \"$dir\"";
    let Some(mut command) = busload_behind(small, directory.path()) else { return };
    command
        .args(["serve", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"])
        .arg(directory.path());
    let server = Server::try_start(command).unwrap();
    let mut client = server.client();
    let value = "x".repeat(64 << 10);
    let refusal = |reply: &str| reply.starts_with("-MISCONF").then(|| reply.to_owned());
    let (written, message) = (0..400_usize)
        .find_map(|index| {
            Some((index, refusal(&client.text(&["SET", &format!("key-{index}"), &value]))?))
        })
        .unwrap();
    assert!(20 << 20 < written * value.len(), "{written} values, then {message}");
    assert!(message.contains("No space left on device"), "{message}");
    assert_eq!(client.text(&["STRLEN", &format!("key-{}", written - 1)]), value.len().to_string());
    assert!(server.stop().success());
}
