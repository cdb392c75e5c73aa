//! The experiment `chunks` as a whole: a small store a few milliseconds away, short rows, every
//! section.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;

use tempfile::TempDir;

use bench::{Record, SECONDS, bench, busload, check_pictures, number, records, succeeded, text};

/// Everything as small as it can be: two files of 3 MB, three extents each, and no processor bound.
const SMALL: &str = "--files 2 --chunks 1500 --chain 20 --callers 1,4 --throughput-callers 2 \
    --batch 32 --pipeline 8 --thundering-herd 40 --open-files 12 --memory-bytes 4M \
    --first-byte 5 --jitter 2 --bandwidth 0 --filling-bandwidth 1M \
    --rounds 1 --warm-up 0.05 --server-cpu any --load-cpu any";

#[test]
fn every_section_is_measured_and_every_chunk_is_right() {
    let busload = busload();
    let is_measured = SECONDS.into_iter().any(|seconds| {
        let out = TempDir::new().unwrap();
        let arguments = format!("{SMALL} --seconds {seconds} --busload {}", busload.display());
        let shown = succeeded(&bench("chunks", &arguments, out.path()));
        check_shown(&shown);
        check_pictures(out.path(), &["chunks-reads.svg", "chunks-memory.svg"]);
        let records = records(out.path(), "statistics.csv");
        check_rows(&records);
        check_sections(&records);
        println!("{seconds} s: {shown}");
        took_time(&records) && !shown.contains("not measured")
    });
    assert!(is_measured);
}

fn check_shown(shown: &str) {
    for title in [
        "A chain of 20 dependent reads, store 5 ms away",
        "Random reads, store 5 ms away",
        "As many warm chunks as the server's processor gives",
        "Random reads of a whole file from an empty cache",
        "40 callers, one cold chunk",
        "Opening a store of 12 table files",
        "Memory: the index, and while a file fills",
        "Numbers, from the medians above",
    ] {
        assert!(shown.contains(title), "{title} is not in\n{shown}");
    }
    assert!(!shown.contains("WRONG") && !shown.contains("REFUSED"), "{shown}");
}

fn check_rows(records: &[Record]) {
    // Chain, reads with one and four callers, throughput, cold, thundering herd, open, memory; one
    // round and the medians.
    assert_eq!(records.len(), 2 * (10 + (2 * 17 + 1) + 6 + 1 + 1 + 2 + 1), "{records:?}");
    for record in records {
        assert_eq!(
            (record["wrong"].as_str(), record["refused"].as_str()),
            ("0", "0"),
            "{record:?}"
        );
    }
    // What the store delays is seen by those who wait for it.
    for waiting in [chain(records, "cold", "GetChunk"), chain(records, "cold", "RESP")] {
        assert!(3_000.0 <= number(waiting, "p50_us"), "{waiting:?}");
    }
    let direct = chain(records, "-", "direct");
    assert!(!is_answered(direct) || 3_000.0 <= number(direct, "p50_us"), "{direct:?}");
    // A read of an extent that nobody has touched is a request of its own.
    assert!(1.0 <= number(chain(records, "cold", "GetChunk"), "gets"));
}

/// Checks that every row had answers in its time, and nobody waited for the store who need not.
fn took_time(records: &[Record]) -> bool {
    let direct = chain(records, "-", "direct");
    let is_faster = |warm: &Record| {
        number(warm, "p50_us") < number(direct, "p50_us") && 1.0 < number(warm, "x_direct")
    };
    records.iter().all(is_answered)
        && is_faster(chain(records, "warm disk", "GetChunk"))
        && is_faster(chain(records, "warm RAM", "RESP"))
}

fn is_answered(record: &Record) -> bool {
    let is_asked = !matches!(record["section"].as_str(), "open" | "memory");
    0.0 < number(record, "per_s") && (!is_asked || 0.0 < number(record, "p50_us"))
}

/// The median of a chain.
fn chain<'a>(records: &'a [Record], state: &str, way: &str) -> &'a Record {
    let is_it = |record: &&Record| {
        record["section"] == "chain"
            && record["round"] == "0"
            && record["state"] == state
            && record["way"] == way
    };
    records.iter().find(is_it).unwrap()
}

/// Rows with numbers of their own.
fn check_sections(records: &[Record]) {
    let of = |section: &str, state: &str| {
        let is_it = |one: &&Record| one["section"] == section && one["state"] == state;
        records.iter().rfind(is_it).unwrap()
    };
    let (cold, thundering_herd) = (of("cold", "filling"), of("thundering-herd", "cold"));
    assert!(number(cold, "repeated") == 0.0 && 1.0 <= number(cold, "x_file"), "{cold:?}");
    assert_eq!(number(thundering_herd, "foreground"), 1.0, "{thundering_herd:?}");
    assert!(12.0 <= number(of("open", "cold"), "index_reads"));
    assert_eq!(number(of("open", "warm disk"), "index_reads"), 0.0);
    let memory = of("memory", "filling");
    assert!(0.0 < number(memory, "index_bytes"), "{memory:?}");
    assert!(1.0 < number(memory, "before_mib"), "{memory:?}");
}

#[test]
fn wrong_arguments_end_with_two_before_anything_is_made() {
    let out = TempDir::new().unwrap();
    let refused = bench("chunks", &format!("{SMALL} --busload /nowhere/busload"), out.path());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("no busload binary at /nowhere/busload"), "{refused:?}");
    let refused = bench(
        "chunks",
        &format!("{SMALL} --chain 100000 --busload {}", busload().display()),
        out.path(),
    );
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}
