//! The experiment `snapshot` as a whole: few keys, short loads, every section.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;

use std::process::{Command, Output};

use tempfile::TempDir;

use bench::{Record, SECONDS, busload, number, records, succeeded, text};

/// Everything as small as it can be, and no processor bound.
const SMALL: &str = "--keys 20000 --fields 5000 --clients 4 --pipeline 16 --rounds 1 \
    --warm-up 0.1 --write-keys 2000 --write-rate 2k --minutes 0.02 \
    --server-cpu any --load-cpu any";

fn snapshot(arguments: &str, out: &TempDir) -> Output {
    Command::new(env!("CARGO_BIN_EXE_busload-bench"))
        .args(["snapshot", "--csv"])
        .arg(out.path().join("run.csv"))
        .args(arguments.split_ascii_whitespace())
        .output()
        .unwrap()
}

/// Servers to measure, and for each the snapshots that it can make.
fn servers() -> Vec<(&'static str, &'static [&'static str])> {
    let has_redis = Command::new("redis-server").arg("--version").output().is_ok();
    if !has_redis {
        println!("redis-server is not installed: busload is measured alone");
    }
    let redis: &[&str] = &["before", "bgsave", "rewrite"];
    let all: [(_, &[&str]); 2] = [("busload", &["before", "bgsave"]), ("redis", redis)];
    all[..1 + usize::from(has_redis)].to_vec()
}

#[test]
fn every_section_is_measured() {
    let (busload, servers) = (busload(), servers());
    let names: Vec<_> = servers.iter().map(|(name, _)| *name).collect();
    let is_measured = SECONDS.into_iter().any(|seconds| {
        let out = TempDir::new().unwrap();
        let arguments = format!(
            "{SMALL} --seconds {seconds} --busload {} --servers {}",
            busload.display(),
            names.join(",")
        );
        let shown = succeeded(&snapshot(&arguments, &out));
        println!("{seconds} s: {shown}");
        assert!(!shown.contains("REFUSED"), "{shown}");
        let [load, amplification, restart] =
            ["load", "amplification", "restart"].map(|section| medians(&out, section));
        check_restarts(&restart, &servers);
        assert_eq!(amplification.len(), servers.len(), "{amplification:?}");
        has_load(&load, &servers) && amplification.iter().all(has_written)
    });
    assert!(is_measured);
}

/// Rows of medians of a section.
fn medians(out: &TempDir, section: &str) -> Vec<Record> {
    let all = records(out.path(), &format!("run-{section}.csv"));
    all.into_iter().filter(|record| record["round"] == "0").collect()
}

/// Checks that every load was measured without and with every kind of snapshot. Returns whether all
/// had answers in their time.
fn has_load(load: &[Record], servers: &[(&str, &[&str])]) -> bool {
    let mut rows = load.iter();
    for (server, snapshots) in servers {
        for work in ["set", "hset"] {
            for is_closed in [true, false] {
                for snapshot in *snapshots {
                    let row = rows.next().unwrap();
                    let labels = ["server", "work", "snapshot"].map(|name| row[name].as_str());
                    assert_eq!(labels, [*server, work, *snapshot]);
                    assert_eq!(row["pace"] == "16", is_closed, "{row:?}");
                    let has_one = *snapshot != "before";
                    assert_eq!(!row["save_s"].is_empty(), has_one, "{row:?}");
                    // The load ended with the snapshot, not after the minute that it may take.
                    assert!(!has_one || number(row, "seconds") < 50.0, "{row:?}");
                    assert!(1_000_000.0 < number(row, "resident_bytes"), "{row:?}");
                    assert!(0.0 < number(row, "memory_ratio"), "{row:?}");
                }
            }
        }
    }
    assert_eq!(rows.next(), None);
    load.iter().all(|row| 0.0 < number(row, "per_s") && 0.0 < number(row, "p99_us"))
}

/// Checks what must hold for a server that logs all it is asked. Returns whether it was asked.
fn has_written(row: &Record) -> bool {
    // 2,000 keys of 16 bytes with values of 100.
    assert_eq!(row["live_bytes"], "232000");
    assert!(0.0 < number(row, "disk_bytes_end"), "{row:?}");
    assert!(number(row, "disk_bytes_end") <= number(row, "disk_bytes_most"), "{row:?}");
    assert!(0.0 < number(row, "ready_s"), "{row:?}");
    // A write call hands over the whole log, and replies.
    let per_s = number(row, "per_s");
    per_s < 1.0 || {
        assert!(116.0 * 1.2 * per_s * 0.9 < number(row, "log_bytes"), "{row:?}");
        1.0 <= number(row, "calls_by_log")
    }
}

fn check_restarts(restarts: &[Record], servers: &[(&str, &[&str])]) {
    let wanted = servers.iter().flat_map(|(server, _)| {
        [("snapshot", "20000"), ("log", "20000"), ("log", "10000")]
            .map(|(from, keys)| [*server, from, keys])
    });
    let rows = restarts.iter().map(|row| ["server", "from", "keys"].map(|name| row[name].as_str()));
    assert!(rows.eq(wanted), "{restarts:?}");
    for row in restarts {
        let (ready_s, per_s) = (number(row, "ready_s"), number(row, "records_per_s"));
        assert!((ready_s * per_s - 20_000.0).abs() < 200.0, "{row:?}");
    }
}

#[test]
fn wrong_arguments_end_with_two_before_anything_is_started() {
    let out = TempDir::new().unwrap();
    for wrong in ["--durability none", "--servers null", "--minutes 0", "--work get"] {
        let refused = snapshot(wrong, &out);
        assert_eq!(refused.status.code(), Some(2), "{wrong}: {}", text(&refused.stderr));
    }
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}
