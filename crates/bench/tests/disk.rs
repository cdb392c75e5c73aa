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

/// Appends its arguments to a file beside it, makes its file, and reports as fio does.
const FIO: &str = r#"#!/bin/sh
echo "$*" >> "$(dirname "$0")/asked"
for argument in "$@"; do
  case "$argument" in
  --version) echo fio-3.33; exit 0 ;;
  --filename=*) : >> "${argument#*=}" ;;
  esac
done
cat <<'END'
note: something that fio wants to say
{
  "jobs" : [ { "jobname" : "any", "error" : 0,
    "read" : { "bw_bytes" : 10485760, "iops" : 640.5, "runtime" : 400, "total_ios" : 256,
      "clat_ns" : { "max" : 9000, "mean" : 2500.5,
        "percentile" : { "50.000000" : 2000, "99.000000" : 8000 } } },
    "write" : { "bw_bytes" : 1048576, "iops" : 64, "runtime" : 400, "total_ios" : 25 },
    "sync" : { "lat_ns" : { "max" : 99000, "percentile" : { "50.000000" : 20000 } } } } ]
}
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
    let files = format!(
        "--jobs 1,3 --mode buffered,append --json {} --csv {}",
        json.display(),
        csv.display()
    );
    let run = disk(&files, &fio, directory.path());
    assert!(run.status.success(), "{run:?}");
    let asked = std::fs::read_to_string(out.path().join("asked")).unwrap();
    let asked: Vec<_> = asked.lines().collect();
    // The version, the file, and both numbers of jobs in both modes.
    assert_eq!(asked.len(), 6, "{asked:?}");
    assert!(asked[1].contains("--rw=write") && asked[1].contains("--end_fsync=1"), "{asked:?}");
    // 256 blocks are 85 for each of three jobs.
    let part = 85 * 16_384;
    let wanted = format!("--size={part} --bs=16384 --numjobs=3");
    assert!(asked[3].contains("--rw=randread") && asked[3].contains(&wanted), "{asked:?}");
    assert!(asked[3].contains(&format!("--offset_increment={part}")), "{asked:?}");
    assert!(asked[4].contains("--rw=write") && asked[4].contains("--fdatasync=1"), "{asked:?}");
    let records = std::fs::read_to_string(&csv).unwrap();
    let records: Vec<_> = records.lines().filter(|line| !line.starts_with('#')).collect();
    let buffered = ["1", "3"]
        .map(|jobs| format!("buffered,{jobs},640.5,1,10,2.5005,2,8,0,0,9,0.4,256,0,,0,0,0,"));
    assert_eq!(records[5..7], buffered);
    assert_eq!(records[7], "append,1,64,1,1,0,20,0,0,0,99,0.4,25,0,,0,0,0,");
    let json = std::fs::read_to_string(&json).unwrap();
    assert_eq!(json.matches("\"jobname\"").count(), 4);
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
