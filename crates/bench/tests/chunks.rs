//! The experiment `chunks` as a whole: a small store a few milliseconds away, short rows, every
//! section.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;

use tempfile::TempDir;

use bench::{Record, SECONDS, bench, busload, number, records, succeeded, text};

/// Everything as small as it can be: four files of 3 MB, three extents each, and no processor
/// bound.
const SMALL: &str = "--chunks 1500 --callers 1,4 --memory-bytes 4M \
    --first-byte 5 --jitter 2 --bandwidth 0 \
    --rounds 1 --warm-up 0.05 --server-cpu any --load-cpu any";

#[test]
fn every_section_is_measured_and_every_chunk_is_right() {
    let busload = busload();
    let is_measured = SECONDS.into_iter().any(|seconds| {
        let out = TempDir::new().unwrap();
        let arguments = format!("{SMALL} --seconds {seconds} --busload {}", busload.display());
        let shown = succeeded(&bench("chunks", &arguments, out.path()));
        println!("{seconds} s: {shown}");
        assert!(!shown.contains("WRONG") && !shown.contains("REFUSED"), "{shown}");
        let records = records(out.path(), "statistics.csv");
        check_rows(&records);
        took_time(&records) && !shown.contains("not measured")
    });
    assert!(is_measured);
}

fn check_rows(records: &[Record]) {
    // Reads, throughput, cold, thundering herd, open, memory; one round and the medians.
    assert_eq!(records.len(), 2 * (2 * 18 + 5 + 1 + 1 + 2 + 1), "{records:?}");
    for record in records {
        let failures = (record["wrong"].as_str(), record["refused"].as_str());
        assert_eq!(failures, ("0", "0"), "{record:?}");
    }
    // What the store delays is seen by those who wait for it.
    for (state, way) in [("-", "direct"), ("cold", "GetChunk"), ("cold", "RESP")] {
        let waiting = of(records, "reads", state, way);
        assert!(!is_answered(waiting) || 3_000.0 <= number(waiting, "p50_us"), "{waiting:?}");
    }
    // A read of an extent that nobody has touched is a request of its own.
    assert!(1.0 <= number(of(records, "reads", "cold", "GetChunk"), "gets"));
    let cold = of(records, "cold", "filling", "GetChunk");
    assert!(number(cold, "repeated") == 0.0 && 1.0 <= number(cold, "x_file"), "{cold:?}");
    let thundering_herd = of(records, "thundering-herd", "cold", "GetChunk");
    assert_eq!(number(thundering_herd, "foreground"), 1.0, "{thundering_herd:?}");
    assert!(1_000.0 <= number(of(records, "open", "cold", "open"), "index_reads"));
    assert_eq!(number(of(records, "open", "warm disk", "open"), "index_reads"), 0.0);
    assert!(0.0 < number(of(records, "memory", "filling", "fill"), "index_bytes"));
}

/// Checks that every row had answers in its time, and nobody waited for the store who need not.
fn took_time(records: &[Record]) -> bool {
    let direct = of(records, "reads", "-", "direct");
    let is_faster = |warm: &Record| {
        number(warm, "p50_us") < number(direct, "p50_us") && 1.0 < number(warm, "x_direct")
    };
    records.iter().all(is_answered)
        && is_faster(of(records, "reads", "warm disk", "GetChunk"))
        && is_faster(of(records, "reads", "warm RAM", "RESP"))
}

fn is_answered(record: &Record) -> bool {
    let is_asked = !matches!(record["section"].as_str(), "open" | "memory");
    0.0 < number(record, "per_s") && (!is_asked || 0.0 < number(record, "p50_us"))
}

/// The first median that is about this.
fn of<'a>(records: &'a [Record], section: &str, state: &str, way: &str) -> &'a Record {
    let is_it = |record: &&Record| {
        let labels = ["round", "section", "state", "way"].map(|name| record[name].as_str());
        labels == ["0", section, state, way]
    };
    records.iter().find(is_it).unwrap()
}

#[test]
fn wrong_arguments_end_with_two_before_anything_is_made() {
    let out = TempDir::new().unwrap();
    let refused = bench("chunks", &format!("{SMALL} --busload /nowhere/busload"), out.path());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("no busload binary at /nowhere/busload"), "{refused:?}");
    for wrong in ["--chunk-bytes 8", "--chunks 50000000", "--callers 0"] {
        let refused = bench("chunks", wrong, out.path());
        assert_eq!(refused.status.code(), Some(2), "{wrong}: {refused:?}");
    }
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}
