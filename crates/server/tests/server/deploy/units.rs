//! Units of systemd.

use std::{fs, process::Command};

use super::{assert_taken, file};
use tempfile::tempdir;

/// Path at which the units expect the program.
const PROGRAM: &str = "/usr/local/bin/busload";
const UNITS: [&str; 3] = ["busload.service", "busload-backup.service", "busload-backup.timer"];

/// Returns the values of a setting, in order.
fn values(unit: &str, name: &str) -> Vec<String> {
    let text = file(&format!("deploy/systemd/{unit}"));
    let lines = text.lines().filter(|line| !line.starts_with(['#', ';']));
    let found = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    found.map(str::to_owned).collect()
}

#[test]
fn commands_of_units_are_those_of_the_program() {
    for unit in ["busload.service", "busload-backup.service"] {
        let [command] = &values(unit, "ExecStart")[..] else { panic!("{unit}: one command") };
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], PROGRAM, "{unit}");
        assert_taken(&words[1..]);
    }
    let socket = "%t/busload/busload.sock";
    let start = &values("busload.service", "ExecStart")[0];
    assert!(start.contains(&format!("--unix {socket}")), "{start}");
    assert!(values("busload.service", "ExecStartPost")[0].ends_with(socket));
    assert!(start.contains("--data %S/busload"), "{start}");
}

#[test]
fn the_service_has_what_the_server_counts_on() {
    for (name, value) in [
        ("Type", "notify"),
        ("ExecReload", "/bin/kill -HUP $MAINPID"),
        // Only a mistake in the configuration ends with 2, and would again.
        ("RestartPreventExitStatus", "2"),
        // A recovery takes as long as its log is.
        ("TimeoutStartSec", "infinity"),
        ("StateDirectory", "busload"),
        ("RuntimeDirectory", "busload"),
        ("DynamicUser", "yes"),
        ("ProtectSystem", "strict"),
        ("MemoryDenyWriteExecute", "yes"),
    ] {
        assert_eq!(values("busload.service", name), [value], "{name}");
    }
    let descriptors: u64 = values("busload.service", "LimitNOFILE")[0].parse().unwrap();
    // Clients, connections of HTTP, and caches of several chunk tables.
    assert!(10_000 + 4_096 + 4 * 4_160 <= descriptors);
}

/// Runs systemd's own check, where it is installed.
#[test]
fn systemd_finds_nothing_wrong() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("skipped: there is no systemd-analyze");
        return;
    }
    let directory = tempdir().unwrap();
    let paths = UNITS.map(|unit| {
        let path = directory.path().join(unit);
        // The program and its man pages are not installed here.
        let text = file(&format!("deploy/systemd/{unit}"));
        let text = text.replace(PROGRAM, env!("CARGO_BIN_EXE_busload"));
        let lines = text.lines().filter(|line| !line.starts_with("Documentation="));
        fs::write(&path, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        path
    });
    let verified = Command::new("systemd-analyze").arg("verify").args(&paths).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    // It also names what is wrong with units of the machine that these need.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("busload")).collect();
    assert!(ours.is_empty(), "{ours:?}");

    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--threshold=20"]).arg(&paths[0]);
    let security = security.output().unwrap();
    let said = String::from_utf8_lossy(&security.stdout);
    assert!(security.status.success(), "exposed by more than 2.0: {said}");
}
