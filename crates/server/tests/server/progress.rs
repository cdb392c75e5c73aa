//! Progress of commands that take long: on a terminal, and never among what they print.

use std::{fs::File, io::Write, process::Stdio};

use tempfile::tempdir;

use crate::support::{Ended, Server, busload, pty::Pty, run};

/// Last line that a test shows itself, so that it knows when it has seen everything before.
const MARK: &str = "that was all";

/// Runs a command with stderr on a terminal. Returns its end and what the terminal showed.
fn on_terminal(arguments: &[&str]) -> (Ended, String) {
    let pty = Pty::open();
    let output = busload()
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(pty.stream())
        .output()
        .unwrap();
    (Ended::of(output), all_shown(&pty))
}

fn all_shown(pty: &Pty) -> String {
    File::from(pty.user.try_clone().unwrap()).write_all(MARK.as_bytes()).unwrap();
    pty.wait_for(MARK);
    pty.shown()
}

#[test]
fn tools_of_logs_and_snapshots_show_a_bar_and_print_only_results() {
    let directory = tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, repaired) = (path("data"), path("repaired"));
    let server = Server::start(&directory.path().join("data"), &[]);
    let mut client = server.client();
    for key in ["a", "b", "c"] {
        client.text(&["SET", key, "1"]);
    }
    client.text(&["SAVE"]);
    client.text(&["SET", "d", "1"]);
    assert!(server.stop().success());

    let repair = ["log", "repair", "--data", &data, "--to", &repaired];
    for (arguments, what, result) in [
        (&["log", "verify", "--data", &data][..], "checking the log", "sound "),
        (&["log", "dump", "--data", &data], "reading the log", "put table=0 key=\"d\""),
        (&["snapshot", "verify", "--data", &data], "checking the snapshots", "sound "),
        (&["snapshot", "dump", "--data", &data], "reading the snapshot", "put table=0 key=\"a\""),
        (&repair, "repairing the log", "repaired "),
    ] {
        let (ended, shown) = on_terminal(arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}: {shown}");
        assert!(shown.contains(&format!("{what} [")), "{arguments:?}: {shown:?}");
        assert!(ended.stdout.contains(result), "{ended:?}");
        assert!(!ended.stdout.contains(what) && !ended.stdout.contains('\x1b'), "{ended:?}");
        // A bar is taken away when the work is done.
        assert!(shown.contains("\x1b[2K"), "{shown:?}");
    }
    std::fs::remove_dir_all(&repaired).unwrap();
    for arguments in [&["log", "verify", "--data", &data][..], &repair] {
        let ended = run(arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "short work says nothing");
    }
}

#[test]
fn what_prints_many_lines_to_a_terminal_draws_no_bar_among_them() {
    let directory = tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    server.client().text(&["SET", "a", "1"]);
    assert!(server.stop().success());
    let pty = Pty::open();
    let data = directory.path().to_str().unwrap();
    let mut dump = busload();
    dump.args(["log", "dump", "--data", data]).stdin(Stdio::null());
    let status = dump.stdout(pty.stream()).stderr(pty.stream()).status().unwrap();
    assert!(status.success());
    let shown = all_shown(&pty);
    assert!(shown.contains("put table=0 key=\"a\"") && !shown.contains("reading"), "{shown:?}");
}
