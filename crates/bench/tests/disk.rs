//! The experiment `disk` as a whole: a small file, short measurements.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

fn disk(arguments: &str, directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_busload-bench"))
        // It ends when every block was read, long before.
        .args(["disk", "--seconds", "60", "--dir"])
        .arg(directory)
        .args(arguments.split_ascii_whitespace())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_mode_is_measured_and_the_file_is_gone_afterwards() {
    let directory = TempDir::new().unwrap();
    let out = TempDir::new().unwrap();
    let (json, csv) = (out.path().join("disk.json"), out.path().join("disk.csv"));
    let files = format!("--json {} --csv {}", json.display(), csv.display());
    let run = disk(&format!("--size 4M --jobs 1,3 {files}"), directory.path());
    assert!(run.status.success(), "{run:?}");
    let shown = text(&run.stdout);
    for wanted in [
        "randread-buffered: (groupid=0, jobs=1): bs=16 KiB",
        "jobs=3",
        " 99.99th=[",
        "clat percentiles (",
    ] {
        assert!(shown.contains(wanted), "{wanted} is not in\n{shown}");
    }
    let records = std::fs::read_to_string(&csv).unwrap();
    let fields: Vec<Vec<&str>> = records
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(',').collect())
        .collect();
    let reads = fields[0].iter().position(|name| *name == "reads").unwrap();
    // 256 blocks, each at most once. Direct reads are left out where the file system has none.
    assert!(fields.len() == 3 || fields.len() == 5, "{records}");
    for record in &fields[1..] {
        assert_eq!(record.len(), fields[0].len());
        assert!((1..=256).contains(&record[reads].parse::<u64>().unwrap()), "{records}");
    }
    let json = std::fs::read_to_string(&json).unwrap();
    assert_eq!(json.matches("\"jobname\"").count(), fields.len() - 1);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn wrong_arguments_end_with_two_and_leave_nothing() {
    let directory = TempDir::new().unwrap();
    let run = disk("--block 1000", directory.path());
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert!(text(&run.stderr).contains("a multiple of 512"), "{run:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
