//! The experiment `dolt` as a whole: a small store a few milliseconds away, short replays, every
//! section.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;

use tempfile::TempDir;

use bench::{Record, bench, busload, check_pictures, number, records, succeeded, text};

/// Everything as small as it can be: three files, two of them archives whose chunks need a
/// dictionary, and no processor bound.
const SMALL: &str = "--pushes 3 --leaves 1100 --leaf-bytes 300 --classic 0.34 --clients 4 \
    --chains 3 --ranges 4 --first-byte 10 --jitter 2 --bandwidth 0 --rounds 1 --seconds 0 \
    --server-cpu any --load-cpu any";

/// Number of times that everything is replayed before it is said to be slow: a warm replay takes a
/// moment, in which other work on the machine may stand in its way.
const TRIES: u32 = 5;

#[test]
fn every_section_is_replayed_and_every_chunk_is_right() {
    let arguments = format!("{SMALL} --busload {}", busload().display());
    let is_fast = (0..TRIES).any(|_| {
        let out = TempDir::new().unwrap();
        let shown = succeeded(&bench("dolt", &arguments, out.path()));
        check_shown(&shown);
        check_pictures(out.path(), &["dolt.svg"]);
        let medians = checked_medians(records(out.path(), "statistics.csv"));
        println!("{shown}");
        of(&medians, "point", "warm").iter().all(|warm| 1.0 < number(warm, "x_direct"))
    });
    assert!(is_fast);
}

fn check_shown(shown: &str) {
    for title in [
        "A clone of ",
        "4 clones at once of ",
        "A scan of ",
        "3 rows by key, a chain of chunks each",
        "A fetch of the last 1 of 3 pushes",
        "Numbers, from the medians above",
    ] {
        assert!(shown.contains(title), "{title} is not in\n{shown}");
    }
    assert!(!shown.contains("WRONG") && !shown.contains("REFUSED"), "{shown}");
    assert!(!shown.contains("not measured"), "{shown}");
}

fn checked_medians(records: Vec<Record>) -> Vec<Record> {
    // Clone, clones, scan, point, fetch; one round and the medians.
    assert_eq!(records.len(), 2 * (4 + 2 + 12 + 7 + 5), "{records:?}");
    for record in &records {
        assert!(0.0 < number(record, "seconds") && 0.0 < number(record, "gets"), "{record:?}");
        assert_eq!(
            (record["wrong"].as_str(), record["refused"].as_str()),
            ("0", "0"),
            "{record:?}"
        );
    }
    let medians: Vec<_> = records.into_iter().filter(|record| record["round"] == "0").collect();
    check_reads(&medians);
    check_calls(&medians);
    check_files(&medians);
    medians
}

fn of<'a>(medians: &'a [Record], section: &str, way: &str) -> Vec<&'a Record> {
    let is_it = |record: &&Record| record["section"] == section && record["way"] == way;
    let rows: Vec<_> = medians.iter().filter(is_it).collect();
    assert!(!rows.is_empty(), "{section} {way}");
    rows
}

/// Requests that the store gets, by their sender.
fn check_reads(medians: &[Record]) {
    for record in medians {
        let gets = number(record, "read_gets");
        match record["way"].as_str() {
            "warm" | "warm 0 ms" => assert!(gets == 0.0, "{record:?}"),
            // Each read is a request of its own, and waits for the store.
            "direct" => assert!(gets == number(record, "gets"), "{record:?}"),
            _ => assert!(0.0 < gets, "{record:?}"),
        }
    }
    for direct in of(medians, "point", "direct") {
        // Three chains of six chunks or more, one after the other, 8 ms each at the least.
        assert!(3.0 * 6.0 * 0.008 <= number(direct, "seconds"), "{direct:?}");
    }
    for warm in of(medians, "point", "warm") {
        assert!(number(warm, "p50_ms") <= number(warm, "p99_ms"), "{warm:?}");
    }
}

/// As many as Dolt's own client makes.
fn check_calls(medians: &[Record]) {
    for clone in of(medians, "clone", "cold") {
        let calls = "1 GetRepoMetadata + 1 ListTableFiles + 1 Root + 1 StreamChunkLocations";
        // Three files, and the root's chunk before them.
        assert!(clone["notes"].ends_with(calls) && clone["gets"] == "4", "{clone:?}");
    }
    for fetch in of(medians, "fetch", "warm") {
        let calls = "2 GetRepoMetadata + 1 HasChunks + 2 Root + ";
        assert!(fetch["notes"].contains(calls), "{fetch:?}");
    }
    for scan in of(medians, "scan", "warm") {
        let (used, other) = match scan["stream"].as_str() {
            "new" => ("StreamChunkLocations", "StreamDownloadLocations"),
            _ => ("StreamDownloadLocations", "StreamChunkLocations"),
        };
        assert!(scan["notes"].contains(used) && !scan["notes"].contains(other), "{scan:?}");
        // Records need no dictionaries; the chunks of the archives do.
        let dictionaries = number(scan, "dictionary_gets");
        assert_eq!(0.0 < dictionaries, scan["layout"] == "files", "{scan:?}");
    }
    assert_eq!(of(medians, "scan", "warm").len(), 4);
}

/// Each file comes from the store once, however many clients want it at once.
fn check_files(medians: &[Record]) {
    for record in of(medians, "clone", "cold").into_iter().chain(of(medians, "clones", "cold")) {
        let files = number(record, "store_bytes");
        let read = number(record, "read_bytes");
        assert!(files <= read && read <= files * 1.05, "{record:?}");
        assert!(files * number(record, "clients") <= number(record, "client_bytes"), "{record:?}");
    }
}

#[test]
fn wrong_arguments_end_with_two_before_anything_is_made() {
    let out = TempDir::new().unwrap();
    let refused = bench("dolt", &format!("{SMALL} --busload /nowhere/busload"), out.path());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("no busload binary at /nowhere/busload"), "{refused:?}");
    let refused = bench("dolt", &format!("{SMALL} --new 4"), out.path());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("--new at least 1"), "{refused:?}");
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}
