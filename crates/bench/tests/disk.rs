//! The experiment `disk` as a whole, with a script in the place of fio: what it is asked for, and
//! what becomes of its report.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

/// Appends its arguments to a file beside it, and reports as fio does. A file system without
/// `O_DIRECT` makes fio fail.
const FIO: &str = r#"#!/bin/sh
echo "$*" >> "$(dirname "$0")/asked"
case "$*" in
--version) echo fio-3.33; exit 0 ;;
*--direct=1*) echo "fio: looks like your file system does not support direct=1" >&2; exit 1 ;;
esac
cat <<'END'
randread-buffered: (groupid=0, jobs=3)
{
  "jobs" : [ { "jobname" : "randread-buffered", "error" : 0, "read" : {
    "bw_bytes" : 10485760, "iops" : 640.5, "runtime" : 400, "total_ios" : 256,
    "clat_ns" : { "min" : 1000, "max" : 9000, "mean" : 2500.5,
      "percentile" : { "50.000000" : 2000, "99.000000" : 8000 } } } } ]
}

Run status group 0
END
"#;

fn disk(arguments: &str, fio: &Path, directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_busload-bench"))
        .args(["disk", "--size", "4M", "--fio"])
        .arg(fio)
        .arg("--dir")
        .arg(directory)
        .args(arguments.split_ascii_whitespace())
        .output()
        .unwrap()
}

#[test]
fn every_mode_is_measured_and_the_directory_is_gone_afterwards() {
    let (directory, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let fio = out.path().join("fio");
    std::fs::write(&fio, FIO).unwrap();
    std::fs::set_permissions(&fio, PermissionsExt::from_mode(0o755)).unwrap();
    let (json, csv) = (out.path().join("disk.json"), out.path().join("disk.csv"));
    let files = format!("--jobs 1,3 --json {} --csv {}", json.display(), csv.display());
    let run = disk(&files, &fio, directory.path());
    assert!(run.status.success(), "{run:?}");
    let shown = String::from_utf8_lossy(&run.stdout);
    for wanted in ["(groupid=0, jobs=3)", "Run status group 0", "direct: left out", "p99.99 us"] {
        assert!(shown.contains(wanted), "{wanted} is not in\n{shown}");
    }
    let asked = std::fs::read_to_string(out.path().join("asked")).unwrap();
    let asked: Vec<_> = asked.lines().collect();
    // The version, the file, both numbers of jobs buffered, and the first of them direct.
    assert_eq!(asked.len(), 5, "{asked:?}");
    assert!(asked[1].contains("--rw=write") && asked[1].contains("--end_fsync=1"), "{asked:?}");
    assert!(asked[3].contains("--numjobs=3") && asked[3].contains("--bs=16384"), "{asked:?}");
    let records = std::fs::read_to_string(&csv).unwrap();
    let records: Vec<_> = records.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        records[1..],
        ["1", "3"].map(|jobs| format!(
            "buffered,{jobs},4194304,16384,0.400,256,640.5,10.00,2.501,1.000,2.000,0.000,8.000,\
             0.000,0.000,9.000"
        ))
    );
    let json = std::fs::read_to_string(&json).unwrap();
    assert_eq!(json.matches("\"jobname\"").count(), 2);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn wrong_arguments_and_a_missing_fio_leave_nothing() {
    let directory = TempDir::new().unwrap();
    let nowhere = Path::new("/nowhere/fio");
    let run = disk("--block 1000", nowhere, directory.path());
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stderr).contains("a multiple of 512"), "{run:?}");
    let run = disk("", nowhere, directory.path());
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stderr).contains("needs fio"), "{run:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
