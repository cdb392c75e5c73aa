//! The experiment `postgres` as a whole, against private clusters: little data, short rows, every
//! section.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;

use std::process::Output;

use busload_cluster::Cluster;
use tempfile::TempDir;

use bench::{Record, SECONDS, bench, busload, check_pictures, number, records, succeeded, text};

/// Every list as short as it can be.
const SMALL: &str = "--rows 5k --warm-up 0.05 --rounds 1 --readers 30 --connections 5 \
    --upsert-connections 5 --windows 1,16 --window-connections 4 --resp-connections 3,30 \
    --low-load 1,4 --rates 500";

fn run(seconds: &str, arguments: &str, out: &TempDir) -> Output {
    bench("postgres", &format!("{SMALL} --seconds {seconds} {arguments}"), out.path())
}

#[test]
fn every_section_is_measured_and_every_answer_is_right() {
    let arguments = format!("--keys uniform,runs --busload {}", busload().display());
    let is_measured = SECONDS.into_iter().any(|seconds| {
        let out = TempDir::new().unwrap();
        let shown = succeeded(&run(seconds, &arguments, &out));
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
        let records = records(out.path(), "statistics.csv");
        // One round and the medians.
        assert_eq!(records.len(), 2 * (2 * 8 + 9 + 4 + 4 + 4), "{shown}");
        assert!(records.iter().all(|record| record["wrong"] == "0"), "{shown}");
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

/// Requests per statement, as Postgres counted them: they tell whether a row measured what its name
/// says.
fn check_batches(records: &[Record]) {
    for (section, ways, range) in [
        ("readers", &["plain:5"][..], 0.99..=1.01),
        ("upserts", &["plain:5"], 0.99..=1.01),
        ("windows", &["window:1"], 0.9..=1.1),
        ("windows", &["window:16"], 2.0..=18.0),
        // A batch counts a key once: two requests for the same row make it look larger than it is.
        // Of 5,000 rows, 1,024 random keys are some hundred less without those drawn twice.
        ("ceiling", &["ceiling:2"], 800.0..=1_024.0),
        ("readers", &["in-process", "resp:3", "resp:30"], 1.5..=30.0),
        ("upserts", &["in-process", "resp:3", "resp:30"], 1.5..=30.0),
        ("low-load", &["in-process"], 0.9..=4.0),
    ] {
        let mut of_row = records.iter().filter(|record| {
            record["section"] == section
                && ways.contains(&record["way"].as_str())
                && record["keys"] == "uniform"
        });
        assert!(2 * ways.len() <= of_row.clone().count(), "{section} {ways:?}");
        assert!(
            of_row.all(|record| range.contains(&number(record, "batch"))),
            "{section} {ways:?}: {range:?} {records:?}"
        );
    }
}

#[test]
fn a_given_postgres_gets_the_table_and_keeps_it() {
    let cluster = Cluster::builder().start().unwrap();
    let arguments = "--section readers,small-memory --case plain,in-process --url";
    let arguments = format!("{arguments} {}", cluster.url());
    let first = run("0.2", &arguments, &TempDir::new().unwrap());
    assert!(succeeded(&first).contains("small-memory is left out"));
    assert!(text(&first.stderr).contains("loaded 5000 rows"), "{}", text(&first.stderr));
    let is_counted = SECONDS.into_iter().any(|seconds| {
        let out = TempDir::new().unwrap();
        let second = run(seconds, &arguments, &out);
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
    let arguments = format!("--section ceiling --url {}", cluster.url());
    let refused = run("0.2", &arguments, &TempDir::new().unwrap());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("--reload replaces it"), "{refused:?}");
    assert_eq!(cluster.execute("SELECT count(*) FROM random_read_test").unwrap().trim(), "1");
}

#[test]
fn a_wrong_answer_fails_the_run() {
    let cluster = Cluster::builder().start().unwrap();
    let arguments = "--section readers,ceiling --case plain,in-process,ceiling --url";
    let arguments = format!("{arguments} {}", cluster.url());
    let out = TempDir::new().unwrap();
    succeeded(&run("0.2", &arguments, &out));
    let corrupt = "UPDATE random_read_test SET payload = 'payload of row 00000000000000000000' \
                   WHERE '1' < right(pk, 1)";
    cluster.execute(corrupt).unwrap();
    let every_way_shows_it = SECONDS.into_iter().any(|seconds| {
        let wrong = run(seconds, &arguments, &out);
        let shown = text(&wrong.stdout);
        println!("{seconds} s: {shown}");
        assert_eq!(wrong.status.code(), Some(i32::from(shown.contains("WRONG:"))), "{wrong:?}");
        ["ceiling:2", "plain:5", "in-process"].into_iter().all(|way| {
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
    let arguments = format!("{SMALL} --seconds 0.2 --section ceiling --cluster");
    let arguments = format!("{arguments} {} --shared-buffers 32MB", cluster.display());
    let run = |from: &str, to: &str| {
        let ended = bench("postgres", &arguments.replace(from, to), out.path());
        (succeeded(&ended), text(&ended.stderr))
    };
    assert!(run("", "").0.contains("shared_buffers 32MB; fsync on"));
    let (shown, said) = run("32MB", "48MB");
    assert!(
        shown.contains("shared_buffers 48MB") && said.contains("5000 rows are there"),
        "{said}"
    );
    // Another number of rows is another table.
    let (_, said) = run("--rows 5k", "--rows 6k");
    assert!(said.contains("loaded 6000 rows"), "{said}");
}
