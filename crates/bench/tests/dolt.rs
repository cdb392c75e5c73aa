//! The experiment `dolt` as a whole: a small store a few milliseconds away, short replays, every
//! section.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;

use tempfile::TempDir;

use bench::{Record, bench, busload, number, records, succeeded};

/// Everything as small as it can be: three files, two of them archives whose chunks need a
/// dictionary, and no processor bound.
const SMALL: &str = "--pushes 3 --leaves 1100 --leaf-bytes 300 --classic 0.34 --clients 4 \
    --chains 3 --first-byte 20 --jitter 2 --bandwidth 0 --rounds 1 --seconds 0 \
    --server-cpu any --load-cpu any";

#[test]
fn every_section_is_replayed_and_every_chunk_is_right() {
    let out = TempDir::new().unwrap();
    let arguments = format!("{SMALL} --busload {}", busload().display());
    let shown = succeeded(&bench("dolt", &arguments, out.path()));
    println!("{shown}");
    for title in [
        "A clone of ",
        "4 clones at once of ",
        "A scan of ",
        "3 rows by key, a chain of chunks each",
        "A fetch of the last of 3 pushes",
        "Numbers, from the medians above",
    ] {
        assert!(shown.contains(title), "{title} is not in\n{shown}");
    }
    for bad in ["WRONG", "REFUSED", "not measured"] {
        assert!(!shown.contains(bad), "{shown}");
    }
    let records = records(out.path(), "statistics.csv");
    // Clone, clones, scan, point, fetch; one round and the medians.
    assert_eq!(records.len(), 2 * (4 + 2 + 8 + 7 + 5), "{records:?}");
    records.iter().for_each(check);
}

#[test]
fn the_query_is_replayed_by_as_many_clients_as_asked_for() {
    let out = TempDir::new().unwrap();
    let arguments = format!(
        "{SMALL} --section query --query-clients 2,3 --query-chains 2 --layout files --busload {}",
        busload().display()
    );
    succeeded(&bench("dolt", &arguments, out.path()));
    let records = records(out.path(), "statistics.csv");
    let medians = records.iter().filter(|record| record["round"] == "0");
    let rows: Vec<_> = medians.map(|row| (row["way"].as_str(), row["clients"].as_str())).collect();
    let ways = |clients| ["direct", "cold", "warm"].map(|way| (way, clients));
    assert_eq!(rows, [ways("2"), ways("3")].concat());
    for record in &records {
        let gets = number(record, "clients") * 2.0 * 7.0;
        let is_direct = record["way"] == "direct";
        assert!(!is_direct || number(record, "gets") == gets, "{record:?}");
    }
}

/// Checks requests and bytes of one row.
fn check(record: &Record) {
    let of = |name| number(record, name);
    assert!(0.0 < of("seconds") && 0.0 < of("gets"), "{record:?}");
    assert_eq!([&record["wrong"], &record["refused"]], ["0", "0"], "{record:?}");
    match record["way"].as_str() {
        "warm" | "warm 0 ms" => assert!(of("read_gets") == 0.0, "{record:?}"),
        // Each read is a request of its own, and waits for the store.
        "direct" => assert!(of("read_gets") == of("gets"), "{record:?}"),
        _ => assert!(0.0 < of("read_gets"), "{record:?}"),
    }
    let calls = match (record["section"].as_str(), record["way"].as_str()) {
        (_, "direct" | "plain download" | "plain downloads") => "",
        ("clone", _) => {
            // Three files, and the root's chunk before them.
            assert!(of("gets") - of("dictionary_gets") == 4.0, "{record:?}");
            "1 GetRepoMetadata + 1 ListTableFiles + 1 Root + 1 StreamChunkLocations"
        }
        ("fetch", _) => "2 GetRepoMetadata + 1 HasChunks + 2 Root + ",
        _ => "StreamChunkLocations",
    };
    assert!(record["notes"].contains(calls), "{record:?}");
    // Records need no dictionaries; the chunks of the archives do.
    let needs_dictionaries = record["way"] == "direct" || record["layout"] == "files";
    let is_clone = record["section"].starts_with("clone");
    assert!(is_clone || needs_dictionaries == (0.0 < of("dictionary_gets")), "{record:?}");
    if is_clone && record["way"] == "cold" {
        // Each file comes from the store once, however many clients want it at once.
        let (files, read) = (of("store_bytes"), of("read_bytes"));
        assert!(files <= read && read <= files * 1.05, "{record:?}");
        assert!(files * of("clients") <= of("client_bytes"), "{record:?}");
    }
    match (record["section"].as_str(), record["way"].as_str(), record["round"].as_str()) {
        // Three chains of seven chunks, one after the other, 18 ms each at the least.
        ("point", "direct", _) => assert!(3.0 * 7.0 * 0.018 <= of("seconds"), "{record:?}"),
        ("point", "warm", "0") => assert!(1.0 < of("x_direct"), "{record:?}"),
        _ => {}
    }
}
