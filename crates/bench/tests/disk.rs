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

/// Appends its arguments to a file beside it, and reports as fio does.
const FIO: &str = r#"#!/bin/sh
echo "$*" >> "$(dirname "$0")/asked"
[ "$*" = --version ] && exec echo fio-3.33
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
fn every_mode_is_measured_and_nothing_is_left() {
    let (directory, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (fio, csv) = (out.path().join("fio"), out.path().join("disk.csv"));
    std::fs::write(&fio, FIO).unwrap();
    std::fs::set_permissions(&fio, PermissionsExt::from_mode(0o755)).unwrap();
    let arguments = format!("--jobs 1,3 --mode buffered,append --csv {}", csv.display());
    let run = disk(&arguments, &fio, directory.path());
    assert!(run.status.success(), "{run:?}");
    let asked = std::fs::read_to_string(out.path().join("asked")).unwrap();
    let asked: Vec<_> = asked.lines().collect();
    // The version, the file, and both numbers of jobs in both modes. 256 blocks are 85 for each of
    // three jobs.
    let part = 85 * 16_384;
    let wanted = [
        "--version".to_owned(),
        "--rw=write --bs=1M --refill_buffers --end_fsync=1".to_owned(),
        "--rw=randread --fadvise_hint=random --offset_increment=4194304 --direct=0".to_owned(),
        format!("--size={part} --bs=16384 --numjobs=3"),
        "--rw=write --direct=0 --fdatasync=1".to_owned(),
        "--rw=write --direct=0 --fdatasync=1".to_owned(),
    ];
    assert_eq!(asked.len(), wanted.len(), "{asked:?}");
    for (asked, wanted) in asked.iter().zip(wanted) {
        assert!(asked.contains(&wanted), "{wanted} is not in {asked}");
    }
    let records = std::fs::read_to_string(&csv).unwrap();
    let records: Vec<_> = records.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(records[5], "buffered,1,640.5,1,10,2.5005,2,8,0,9,0,,0,0,0,");
    assert_eq!(records[7], "append,1,64,1,1,0,20,0,0,99,0,,0,0,0,");
    let [unaligned, nowhere] = [("--block 1000", &*fio), ("", Path::new("/nowhere"))]
        .map(|(arguments, fio)| disk(arguments, fio, directory.path()).status.code());
    assert_eq!((unaligned, nowhere), (Some(2), Some(1)));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
