//! The experiment `postgres` as a whole, against private clusters: little data, short rows, every
//! section.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;

use std::process::Output;

use busload_cluster::Cluster;
use tempfile::TempDir;

use bench::{Record, SECONDS, bench, busload, number, records, succeeded, text};

const SMALL: &str = "--warm-up 0.05 --rounds 1 --readers 9 --rates 500";

fn run(seconds: &str, arguments: &str, out: &TempDir) -> Output {
    bench("postgres", &format!("{SMALL} --rows 5k --seconds {seconds} {arguments}"), out.path())
}

#[test]
fn every_section_is_measured_and_every_answer_is_right() {
    let ways = "ceiling:1,ceiling:2,window:1,window:16,plain:5,in-process,resp:3,resp:9";
    let arguments = format!("--case {ways} --busload {}", busload().display());
    let is_measured = SECONDS.into_iter().any(|seconds| {
        let out = TempDir::new().unwrap();
        let shown = succeeded(&run(seconds, &arguments, &out));
        let records = records(out.path(), "statistics.csv");
        // One round and the medians: many readers, 1, 2 and 5 of them, a rate, upserts.
        assert_eq!(records.len(), 2 * (8 + 3 * 4 + 4 + 4), "{shown}");
        assert!(records.iter().all(|record| record["wrong"] == "0"), "{shown}");
        println!("{seconds} s: {shown}");
        let is_answered =
            |record: &Record| 0.0 < number(record, "per_s") && 0.0 < number(record, "p50_us");
        let is_measured = records.iter().all(is_answered) && !shown.contains("not measured");
        if is_measured {
            check_batches(&records);
        }
        is_measured
    });
    assert!(is_measured);
}

/// Requests per statement, as Postgres counted them: they tell whether a row measured what its name
/// says.
fn check_batches(records: &[Record]) {
    for (section, way, range) in [
        ("readers", "plain:5", 0.99..=1.01),
        ("upserts", "plain:5", 0.99..=1.01),
        ("readers", "window:1", 0.9..=1.1),
        ("readers", "window:16", 2.0..=18.0),
        // A batch counts a key once: two requests for the same row make it look larger than it is.
        // Of 5,000 rows, 1,024 random keys are some hundred less without those drawn twice.
        ("readers", "ceiling:2", 800.0..=1_024.0),
        ("readers", "in-process", 1.2..=9.1),
        ("readers", "resp:3", 1.2..=9.1),
        ("upserts", "in-process", 1.2..=9.1),
        ("upserts", "resp:9", 1.2..=9.1),
        ("low-load", "in-process", 0.9..=5.0),
    ] {
        let mut of_row =
            records.iter().filter(|record| record["section"] == section && record["way"] == way);
        assert!(2 <= of_row.clone().count(), "{section} {way}");
        let is_right = of_row.all(|record| range.contains(&number(record, "batch")));
        assert!(is_right, "{section} {way}: {range:?} {records:?}");
    }
}

#[test]
fn a_given_postgres_gets_the_table_and_keeps_it_and_a_wrong_answer_fails_the_run() {
    let (cluster, out) = (Cluster::builder().start().unwrap(), TempDir::new().unwrap());
    cluster.execute("CREATE TABLE random_read_test (pk text, payload int)").unwrap();
    let ways = ["ceiling:2", "plain:5", "in-process"];
    let arguments = format!("--section readers --case {} --url {}", ways.join(","), cluster.url());
    let refused = run("0.2", &arguments, &out);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("--reload replaces it"), "{refused:?}");
    assert_eq!(cluster.execute("SELECT count(*) FROM random_read_test").unwrap().trim(), "0");
    let loaded = run("0.2", &format!("{arguments} --reload"), &out);
    succeeded(&loaded);
    assert!(text(&loaded.stderr).contains("loaded 5000 rows"), "{loaded:?}");
    let is_measured = SECONDS.into_iter().any(|seconds| {
        let used = run(seconds, &arguments, &out);
        println!("{seconds} s: {}", succeeded(&used));
        assert!(text(&used.stderr).contains("5000 rows are there"), "{used:?}");
        let records = records(out.path(), "statistics.csv");
        // Without the extension nothing counts statements.
        let plain = records.iter().rfind(|record| record["way"] == "plain:5").unwrap();
        plain["batch"].is_empty() && 0.0 < number(plain, "cpu_postgres")
    });
    assert!(is_measured);
    let corrupt = "UPDATE random_read_test SET payload = 'payload of row 00000000000000000000' \
                   WHERE '1' < right(pk, 1)";
    cluster.execute(corrupt).unwrap();
    let every_way_shows_it = SECONDS.into_iter().any(|seconds| {
        let wrong = run(seconds, &arguments, &out);
        let shown = text(&wrong.stdout);
        println!("{seconds} s: {shown}");
        assert_eq!(wrong.status.code(), Some(i32::from(shown.contains("WRONG:"))), "{wrong:?}");
        ways.into_iter().all(|way| {
            let row = shown.lines().find(|line| line.starts_with(way));
            row.unwrap_or_else(|| panic!("{way}: {shown}")).contains("WRONG:")
        })
    });
    assert!(every_way_shows_it);
}

#[test]
fn a_kept_cluster_is_used_again_and_its_settings_are_as_asked_for() {
    let (directory, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let cluster = directory.path().join("cluster");
    let arguments = format!("{SMALL} --seconds 0.2 --section readers --case ceiling:1 --cluster");
    for (more, shows, says) in [
        ("--rows 5k --pg-setting shared_buffers=32MB", "shared_buffers 32MB", "loaded 5000 rows"),
        ("--rows 5k --pg-setting shared_buffers=48MB", "shared_buffers 48MB", "rows are there"),
        // Another number of rows is another table.
        ("--rows 6k", "fsync on", "loaded 6000 rows"),
    ] {
        let arguments = format!("{arguments} {} {more}", cluster.display());
        let ended = bench("postgres", &arguments, out.path());
        assert!(succeeded(&ended).contains(shows), "{ended:?}");
        assert!(text(&ended.stderr).contains(says), "{ended:?}");
    }
}
