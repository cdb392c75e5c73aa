//! Throw-away.
#![allow(missing_docs)]
mod support;
use std::{sync::Arc, time::Duration};
use busload_bucket::{Fault, Rule};
use busload_objects::ReadOptions;
use support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_reads() {
    let store = Store::start(1);
    let dir = tempfile::TempDir::new().unwrap();
    let cache = cache(dir.path(), TOUCHED);
    let data = contents(1, 200 * MIB);
    store.put("a", &data);
    let remote = remote_with(&store.url(), 6);
    let object = cache.object(&remote, &meta(&remote, "a").await);
    store.rules(vec![Rule::always(Fault::Delay(Duration::from_secs(3600)))]);
    let handle = tokio::runtime::Handle::current();
    let before = handle.metrics().num_alive_tasks();
    // Readers with a deadline of 100 ms ask for 20,000 different places, 64 KiB.. apart is too few; far blocks
    for round in 0..20u64 {
        let mut readings = Vec::new();
        for i in 0..1000u64 {
            let start = ((round * 1000 + i) * 9973) % (200 * MIB - 100);
            readings.push(object.read(start..start + 50, ReadOptions { deadline: now() + Duration::from_millis(100), local_only: false }));
        }
        for reading in readings { reading.await.unwrap_err(); }
        eprintln!("round {round}: tasks {} requests {}", handle.metrics().num_alive_tasks() - before, remote.stats().requests);
    }
    // The store is well again, 30 ms away.
    store.rules(vec![Rule::always(Fault::Delay(Duration::from_millis(30)))]);
    let began = now();
    let got = object.read(100 * MIB + 7..100 * MIB + 57, patiently()).await;
    eprintln!("first fresh read after recovery: {:?} {:?}, tasks {}", began.elapsed(), got.map(|b| b.len()), handle.metrics().num_alive_tasks() - before);
    let _ = Arc::clone(&object);
}
