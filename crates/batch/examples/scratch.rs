//! scratch
use busload_batch::*;
use std::time::Instant;
use tokio::task::JoinSet;
fn main() {
    let workers: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let timeout = std::env::args().nth(2).is_some();
    let rt = if workers == 0 { tokio::runtime::Builder::new_current_thread().build().unwrap() } else { tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build().unwrap() };
    rt.block_on(async move {
        let mut settings = BatcherSettings::default();
        if timeout { settings.timeout = Some(std::time::Duration::from_secs(1)); }
        let b = Batcher::from_load(|keys: Vec<u64>| async move { keys.into_iter().map(Some).collect::<Vec<_>>() }, settings).unwrap();
        for _ in 0..4 {
        let start = Instant::now();
        let before = b.stats();
        let mut tasks = JoinSet::new();
        for task in 0..300u64 { let b = b.clone(); tasks.spawn(async move {
            let mut x = task;
            for _ in 0..5000 { x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); b.load(x >> 20).await.unwrap(); }
        }); }
        tasks.join_all().await;
        let t = start.elapsed();
        let s = b.stats();
        println!("{:.0} ns/load, mean batch {:.1}", t.as_nanos() as f64 / 1_500_000.0, (s.reads.entries - before.reads.entries) as f64 / (s.reads.batches - before.reads.batches) as f64);
        }
    });
}
