//! The experiment `postgres` as a whole, against private clusters: little data, short rows, every
//! section.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;

use busload_cluster::Cluster;
use tempfile::TempDir;

use bench::{Record, SECONDS, bench, busload, check_pictures, number, records, succeeded, text};

/// Every list as short as it can be.
const SMALL: &str = "--rows 5k --warm-up 0.05 --rounds 1 --readers 30 --connections 5 \
    --upsert-connections 5 --windows 1,16 --window-connections 4 --resp-connections 3,30 \
    --low-load 1,4 --rates 500";

#[test]
fn every_section_is_measured_and_every_answer_is_right() {
    let busload = busload();
    let is_measured = SECONDS.into_iter().any(|seconds| {
        let out = TempDir::new().unwrap();
        let arguments = format!(
            "{SMALL} --seconds {seconds} --keys uniform,runs --busload {}",
            busload.display()
        );
        let shown = succeeded(&bench("postgres", &arguments, out.path()));
        check_shown(&shown);
        let records = records(out.path(), "statistics.csv");
        // One round and the medians.
        assert_eq!(records.len(), 2 * (2 * 8 + 9 + 4 + 4 + 4), "{shown}");
        for record in &records {
            assert_eq!(
                (record["wrong"].as_str(), record["rows"].as_str()),
                ("0", "5000"),
                "{record:?}"
            );
        }
        let pictures = ["batch-size", "batch-size-runs", "readers", "rate"]
            .map(|name| format!("postgres-{name}.svg"));
        check_pictures(out.path(), &pictures.each_ref().map(String::as_str));
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

fn check_shown(shown: &str) {
    for title in [
        "30 readers, uniform keys\n",
        "30 readers, runs keys\n",
        "Response times from one reader on",
        "Requests at a fixed rate",
        "shared_buffers 128MB, all of it in the system's page cache",
        "30 writers, upserts",
        "Numbers, from the medians above",
    ] {
        assert!(shown.contains(title), "{title} is not in\n{shown}");
    }
    assert!(!shown.contains("WRONG"), "{shown}");
}

/// Requests per statement, as Postgres counted them: they tell whether a row measured what its name
/// says.
fn check_batches(records: &[Record]) {
    let batches = |section: &str, way: &str| {
        let of_row = |record: &&Record| {
            record["section"] == section && record["way"] == way && record["keys"] == "uniform"
        };
        let batches: Vec<_> =
            records.iter().filter(of_row).map(|record| number(record, "batch")).collect();
        assert!(!batches.is_empty(), "{section} {way}");
        batches
    };
    let all = |batches: Vec<f64>, range: std::ops::RangeInclusive<f64>| {
        assert!(batches.iter().all(|batch| range.contains(batch)), "{batches:?} of {range:?}");
    };
    all(batches("readers", "plain:5"), 0.99..=1.01);
    all(batches("upserts", "plain:5"), 0.99..=1.01);
    all(batches("windows", "window:1"), 0.9..=1.1);
    all(batches("windows", "window:16"), 2.0..=18.0);
    // A batch counts a key once: two requests for the same row make it look larger than it is.
    // Of 5,000 rows, 1,024 random keys are some hundred less without those drawn twice.
    all(batches("ceiling", "ceiling:2"), 800.0..=1_024.0);
    for way in ["in-process", "resp:3", "resp:30"] {
        all(batches("readers", way), 1.5..=30.0);
        all(batches("upserts", way), 1.5..=30.0);
    }
    all(batches("low-load", "in-process"), 0.9..=4.0);
}

#[test]
fn a_given_postgres_gets_the_table_and_keeps_it() {
    let cluster = Cluster::builder().start().unwrap();
    let run = |seconds: &str, out: &TempDir| {
        let arguments = format!(
            "{SMALL} --seconds {seconds} --section readers,small-memory --case plain,in-process"
        );
        bench("postgres", &format!("{arguments} --url {}", cluster.url()), out.path())
    };
    let first = run("0.2", &TempDir::new().unwrap());
    assert!(succeeded(&first).contains("small-memory is left out"));
    assert!(text(&first.stderr).contains("loaded 5000 rows"), "{}", text(&first.stderr));
    let is_counted = SECONDS.into_iter().any(|seconds| {
        let out = TempDir::new().unwrap();
        let second = run(seconds, &out);
        succeeded(&second);
        assert!(text(&second.stderr).contains("5000 rows are there"), "{}", text(&second.stderr));
        let records = records(out.path(), "statistics.csv");
        let plain = records.iter().find(|record| record["way"] == "plain:5").unwrap();
        println!("{seconds} s: {plain:?}");
        // Without the extension transactions are counted: about one for each read, and some of the
        // server's own, which stand out where reads are few.
        plain["batch"].parse().is_ok_and(|batch: f64| (0.8..=1.2).contains(&batch))
            && 0.0 < number(plain, "cpu_postgres")
    });
    assert!(is_counted);
}

#[test]
fn a_table_that_is_not_ours_is_left_alone() {
    let cluster = Cluster::builder().start().unwrap();
    let other = "CREATE TABLE random_read_test (pk text, payload int); \
                 INSERT INTO random_read_test VALUES ('x', 1)";
    cluster.execute(other).unwrap();
    let out = TempDir::new().unwrap();
    let refused = bench(
        "postgres",
        &format!("{SMALL} --seconds 0.2 --section ceiling --url {}", cluster.url()),
        out.path(),
    );
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("--reload replaces it"), "{refused:?}");
    assert_eq!(cluster.execute("SELECT count(*) FROM random_read_test").unwrap().trim(), "1");
}

#[test]
fn a_wrong_answer_fails_the_run() {
    let cluster = Cluster::builder().start().unwrap();
    let out = TempDir::new().unwrap();
    let run = |seconds: &str| {
        let arguments = format!(
            "{SMALL} --seconds {seconds} --section readers,ceiling \
             --case plain,in-process,ceiling --url {}",
            cluster.url()
        );
        bench("postgres", &arguments, out.path())
    };
    succeeded(&run("0.2"));
    let corrupt = "UPDATE random_read_test SET payload = 'payload of row 00000000000000000000' \
                   WHERE '1' < right(pk, 1)";
    cluster.execute(corrupt).unwrap();
    let every_way_shows_it = SECONDS.into_iter().any(|seconds| {
        let wrong = run(seconds);
        let shown = text(&wrong.stdout);
        println!("{seconds} s: {shown}");
        assert_eq!(wrong.status.code(), Some(i32::from(shown.contains("WRONG:"))), "{wrong:?}");
        let shows_it = |way: &str| {
            let row = shown
                .lines()
                .find(|line| line.starts_with(way))
                .unwrap_or_else(|| panic!("{way}: {shown}"));
            row.contains("WRONG:")
        };
        ["1024 keys a statement, 2", "not batched, 5", "busload in process"]
            .into_iter()
            .all(shows_it)
    });
    assert!(every_way_shows_it);
}

#[test]
fn a_kept_cluster_is_used_again_and_its_settings_are_as_asked_for() {
    let directory = TempDir::new().unwrap();
    let out = TempDir::new().unwrap();
    let cluster = directory.path().join("cluster");
    let arguments = format!(
        "{SMALL} --seconds 0.2 --section ceiling --shared-buffers 32MB --cluster {}",
        cluster.display()
    );
    let first = bench("postgres", &arguments, out.path());
    assert!(succeeded(&first).contains("shared_buffers 32MB; fsync on"));
    let second = bench("postgres", &arguments.replace("32MB", "48MB"), out.path());
    assert!(succeeded(&second).contains("shared_buffers 48MB"));
    assert!(text(&second.stderr).contains("5000 rows are there"), "{}", text(&second.stderr));
    // Another number of rows is another table.
    let third = bench("postgres", &arguments.replace("--rows 5k", "--rows 6k"), out.path());
    succeeded(&third);
    assert!(text(&third.stderr).contains("loaded 6000 rows"), "{}", text(&third.stderr));
}
