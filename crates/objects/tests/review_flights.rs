//! Throw-away.
#![allow(missing_docs)]
mod support;
use std::{sync::{Arc, atomic::{AtomicBool, AtomicU64, Ordering}}, time::Duration};
use busload_bucket::{Fault, Rule};
use support::*;

async fn starve(readers: u64) {
    let store = Store::start(1);
    let dir = tempfile::TempDir::new().unwrap();
    let cache = cache(dir.path(), AMPLE);
    let size = 300 * MIB;
    let data = contents(1, size);
    store.put("a", &data);
    let remote = remote_with(&store.url(), 6);
    let object = cache.object(&remote, &meta(&remote, "a").await);
    store.rules(vec![Rule::always(Fault::Delay(Duration::from_millis(30)))]);
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for reader in 0..readers {
        let (object, stop, done) = (object.clone(), stop.clone(), done.clone());
        tasks.push(tokio::spawn(async move {
            let mut numbers = Numbers(mix(reader));
            while !stop.load(Ordering::Relaxed) {
                let start = numbers.below(size - 4000);
                object.read(start..start + 4000, patiently()).await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for second in 1..=8 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (s, r) = (cache.stats(), remote.stats());
        eprintln!("{readers} readers, {second} s: reads {} extents {} fill_reads {} foreground {} in_flight {} window {} joined {}", done.load(Ordering::Relaxed), s.extents, r.fill_reads, r.foreground_reads, r.in_flight, r.window, s.joined);
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks { task.await.unwrap(); }
    cache.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starved_fills() {
    for readers in [4, 64, 300] { starve(readers).await; }
}
