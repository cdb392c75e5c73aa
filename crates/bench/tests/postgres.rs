//! The experiments `postgres` and `lakefs` as a whole, against private clusters: little data, short
//! rows, every section, two distances.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;

use std::process::Output;

use busload_cluster::Cluster;
use tempfile::TempDir;

use bench::{Record, SECONDS, bench, busload, number, records, succeeded, text};

const SMALL: &str = "--warm-up 0.05 --rounds 1 --rows 5k";

fn run(seconds: &str, arguments: &str, out: &TempDir) -> Output {
    let arguments = format!("{SMALL} --readers 1,10 --rates 500 --seconds {seconds} {arguments}");
    bench("postgres", &arguments, out.path())
}

#[test]
fn every_section_is_measured_at_every_distance_and_every_answer_is_right() {
    let ways =
        "ceiling:1,ceiling:2,window:1,window:16,plain:10,pipelined:2,in-process,resp:3,resp:10";
    let arguments = format!("--case {ways} --distance 0,1ms --busload {}", busload().display());
    let is_measured = SECONDS.into_iter().any(|seconds| {
        let out = TempDir::new().unwrap();
        let shown = succeeded(&run(seconds, &arguments, &out));
        let rows = records(out.path(), "statistics.csv");
        // One round and the medians, at two distances: one reader, ten of them, a rate, upserts.
        assert_eq!(rows.len(), 2 * 2 * (6 + 9 + 4 + 5), "{shown}");
        assert!(rows.iter().all(|record| record["wrong"] == "0"), "{shown}");
        println!("{seconds} s: {shown}");
        let is_answered =
            |record: &Record| 0.0 < number(record, "per_s") && 0.0 < number(record, "p50_us");
        let is_measured = rows.iter().all(is_answered) && !shown.contains("not measured");
        if is_measured {
            check_batches(&rows);
            // Nothing that went through the proxy was faster than the distance.
            let mut far = rows.iter().filter(|record| record["distance"] == "1ms");
            assert!(far.all(|record| 1_000.0 <= number(record, "mean_us")), "{shown}");
            assert_eq!(records(out.path(), "cells.csv").len(), 4, "{shown}");
            assert!(shown.contains("us more than the distance"), "{shown}");
        }
        is_measured
    });
    assert!(is_measured);
}

/// Requests per statement, as Postgres counted them: they tell whether a row measured what its name
/// says.
fn check_batches(records: &[Record]) {
    for (section, clients, way, range) in [
        ("readers", "10", "plain:10", 0.99..=1.01),
        ("readers", "10", "pipelined:2", 0.99..=1.01),
        ("upserts", "10", "plain:10", 0.99..=1.01),
        ("readers", "10", "window:1", 0.9..=1.1),
        ("readers", "10", "window:16", 2.0..=18.0),
        // A batch counts a key once: two requests for the same row make it look larger than it is.
        // Of 5,000 rows, 1,024 random keys are some hundred less without those drawn twice.
        ("readers", "2", "ceiling:2", 800.0..=1_024.0),
        ("readers", "10", "in-process", 1.2..=10.1),
        ("readers", "1", "in-process", 0.9..=1.1),
        ("readers", "10", "resp:3", 1.2..=10.1),
        ("upserts", "10", "in-process", 1.2..=10.1),
        ("upserts", "10", "resp:10", 1.2..=10.1),
    ] {
        let mut of_row = records.iter().filter(|record| {
            record["section"] == section && record["clients"] == clients && record["way"] == way
        });
        assert_eq!(of_row.clone().count(), 4, "{section} {way}");
        let is_right = of_row.all(|record| range.contains(&number(record, "batch")));
        assert!(is_right, "{section} {clients} {way}: {range:?} {records:?}");
    }
}

#[test]
fn a_given_postgres_gets_the_table_and_a_wrong_answer_fails_the_run() {
    let (cluster, out) = (Cluster::builder().start().unwrap(), TempDir::new().unwrap());
    let ways = ["ceiling:2", "plain:5", "in-process"];
    let dropped =
        format!("--section readers --case {} --database {}", ways.join(","), cluster.url());
    let kept = format!("{dropped} --keep");
    // Another program's table.
    cluster.execute("CREATE TABLE busload_bench (pk text, payload int)").unwrap();
    let refused = run("0.2", &dropped, &out);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("was not made by busload-bench"), "{refused:?}");
    assert_eq!(cluster.execute("SELECT count(*) FROM busload_bench").unwrap().trim(), "0");
    cluster.execute("DROP TABLE busload_bench").unwrap();
    let loaded = run("0.2", &kept, &out);
    succeeded(&loaded);
    assert!(text(&loaded.stderr).contains("loaded 5000 rows"), "{loaded:?}");
    let is_measured = SECONDS.into_iter().any(|seconds| {
        let used = run(seconds, &kept, &out);
        println!("{seconds} s: {}", succeeded(&used));
        assert!(text(&used.stderr).contains("5000 rows are there"), "{used:?}");
        let records = records(out.path(), "statistics.csv");
        // Without the extension nothing counts statements.
        let plain = records.iter().rfind(|record| record["way"] == "plain:5").unwrap();
        plain["batch"].is_empty() && 0.0 < number(plain, "cpu_postgres")
    });
    assert!(is_measured);
    // As a load leaves the table that was interrupted.
    let interrupt = "ALTER TABLE busload_bench DROP CONSTRAINT busload_bench_pkey; \
                     DELETE FROM busload_bench WHERE '00000000000000003000' <= pk; \
                     COMMENT ON TABLE busload_bench IS 'busload-bench: 3000 of 5000 rows'";
    cluster.execute(interrupt).unwrap();
    let resumed = run("0.2", &kept, &out);
    succeeded(&resumed);
    assert!(text(&resumed.stderr).contains("loading 2000 of 5000 rows"), "{resumed:?}");
    let count = "SELECT count(*), count(DISTINCT pk) FROM busload_bench";
    assert_eq!(cluster.execute(count).unwrap().trim(), "5000|5000");
    let corrupt = "UPDATE busload_bench SET payload = 'payload of row 00000000000000000000' \
                   WHERE '1' < right(pk, 1)";
    cluster.execute(corrupt).unwrap();
    let every_way_shows_it = SECONDS.into_iter().any(|seconds| {
        let wrong = run(seconds, &kept, &out);
        let shown = text(&wrong.stdout);
        println!("{seconds} s: {shown}");
        assert_eq!(wrong.status.code(), Some(i32::from(shown.contains("WRONG:"))), "{wrong:?}");
        ways.into_iter()
            .all(|way| shown.lines().any(|line| line.starts_with(way) && line.contains("WRONG:")))
    });
    assert!(every_way_shows_it);
    run("0.2", &dropped, &out);
    let left = cluster.execute("SELECT count(*) FROM pg_class WHERE relname = 'busload_bench'");
    assert_eq!(left.unwrap().trim(), "0");
}

#[test]
fn a_kept_cluster_is_used_again_and_its_settings_are_as_asked_for() {
    let (directory, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let cluster = directory.path().join("cluster");
    let arguments = format!("--section readers --case ceiling:1 --cluster {}", cluster.display());
    for (more, shows, says) in [
        ("--pg-setting shared_buffers=32MB", "shared_buffers 32MB", "loaded 5000 rows"),
        ("--pg-setting shared_buffers=48MB", "shared_buffers 48MB", "rows are there"),
    ] {
        let ended = run("0.2", &format!("{arguments} {more}"), &out);
        assert!(succeeded(&ended).contains(shows), "{ended:?}");
        assert!(text(&ended.stderr).contains(says), "{ended:?}");
    }
    // Another number of rows is another table; the published experiment uses the same.
    let arguments = "--warm-up 0.05 --rounds 1 --seconds 0.5 --readers 30 --case \
                     plain:5,window:4,in-process --distance 0.5ms --rows 6k --cluster";
    let out = TempDir::new().unwrap();
    let ended = bench("lakefs", &format!("{arguments} {}", cluster.display()), out.path());
    succeeded(&ended);
    assert!(text(&ended.stderr).contains("loaded 6000 rows"), "{ended:?}");
    let statistics = std::fs::read_to_string(out.path().join("statistics.csv")).unwrap();
    let header = statistics.lines().find(|line| !line.starts_with('#')).unwrap();
    let published = "run_type,batch_size,seconds,mean_us,max_us,min_us,reads,";
    assert!(header.starts_with(published), "{header}");
    let records = records(out.path(), "statistics.csv");
    let runs = records.iter().filter(|record| record["round"] == "0");
    let runs = runs.map(|record| ["run_type", "batch_size", "locality"].map(|name| &*record[name]));
    let wanted = ["1", "10"].map(|locality| {
        [("discrete", "1"), ("batched", "4"), ("busload", "any")]
            .map(|(run_type, size)| [run_type, size, locality])
    });
    assert_eq!(runs.collect::<Vec<_>>(), wanted.concat());
    assert!(records.iter().all(|record| record["wrong"] == "0"), "{records:?}");
}
