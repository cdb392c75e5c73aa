//! The experiment `stores` as a whole, with few small stores.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;

use tempfile::TempDir;

use bench::{bench, busload, number, records, succeeded};

#[test]
fn stores_open_once_and_are_closed() {
    for over in ["file", "s3"] {
        let out = TempDir::new().unwrap();
        let arguments = format!(
            "--stores 30 --least 3 --most 60 --pipeline 7 --idle 1s --over {over} --first-byte 2 \
             --jitter 1 --server-cpu any --load-cpu any --busload {}",
            busload().display()
        );
        let shown = succeeded(&bench("stores", &arguments, out.path()));
        println!("{shown}");
        let records = records(out.path(), "stores.csv");
        let steps: Vec<_> = records.iter().map(|record| record["step"].as_str()).collect();
        assert_eq!(steps, ["alone", "first", "second", "again", "pushed", "third"]);
        let requests = |step: usize| number(&records[step], "store_requests");
        // A store that is open is asked for the chunk only.
        assert!(1.0 < requests(1) && requests(3) < requests(1), "{records:?}");
        assert!(records.iter().all(|record| record["wrong"] == "0" && record["refused"] == "0"));
    }
}
