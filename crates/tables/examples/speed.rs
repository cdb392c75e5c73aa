//! Measures one core: replay of small puts into a growing table, prefetched and plain reads,
//! updates, deletes, and the longest single insertion while the table grows.
//!
//! `cargo run --release -p busload-tables --example speed [millions of entries] [replay]`
#![allow(clippy::disallowed_methods, reason = "an example that measures time")]

use std::time::{Duration, Instant};

use busload_tables::effect::{self, Replayer};
use busload_tables::{KeyHash, StringValue, TableId, Tables};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TABLE: TableId = TableId(0);
const GROUP: usize = 32;

fn main() {
    let millions = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let count: u64 = millions * 1_000_000;
    let mut tables = Tables::new(0x5eed);
    replay(&mut tables, count);
    if std::env::args().nth(2).is_some_and(|only| only == "replay") {
        std::mem::forget(tables);
        return;
    }
    reads(&tables, count);
    deletes(&mut tables, count);
    let mut tables = Tables::new(0x5eed);
    growth(&mut tables, count);
    std::mem::forget(tables);
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

/// Returns the CPU time of this thread (Linux), which other load on the machine disturbs less than
/// wall time.
fn on_cpu() -> Duration {
    let stat =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("this example needs Linux");
    let nanoseconds = stat.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the first field is the time on the processor"))
}

fn report(what: &str, count: u64, time: Duration) {
    let seconds = time.as_secs_f64();
    println!(
        "{what:<34} {:>8.2} M/s {:>8.1} ns",
        count as f64 / seconds / 1e6,
        seconds * 1e9 / count as f64
    );
}

fn replay(tables: &mut Tables, count: u64) {
    let mut spent = Duration::ZERO;
    let mut records = Vec::new();
    for first in (0..count).step_by(100_000) {
        records.clear();
        for number in first..first + 100_000 {
            let mut record = Vec::new();
            effect::put(&mut record, TABLE, &key(number), &[b'v'; 32], None);
            records.push(record);
        }
        let start = on_cpu();
        let mut replayer = Replayer::new(tables);
        for record in &records {
            replayer.push(record).expect("well-formed records");
        }
        replayer.finish().expect("checked when pushed");
        spent += on_cpu() - start;
    }
    report("replay of puts, growing table", count, spent);
    assert_eq!(tables.len(TABLE) as u64, count);
}

fn reads(tables: &Tables, count: u64) {
    let start = on_cpu();
    let mut found = 0;
    let mut state = 1_u64;
    let mut group = [([0; 16], KeyHash(0)); GROUP];
    for _ in 0..count / GROUP as u64 {
        for (slot, hash) in &mut group {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *slot = key((state >> 20) % count);
            *hash = tables.hash(slot);
            tables.prefetch_bucket(TABLE, *hash);
        }
        for (_, hash) in &group {
            tables.prefetch_entry(TABLE, *hash);
        }
        for (key, hash) in &group {
            found += tables.get(TABLE, *hash, key, 0).map_or(0, |value| {
                value.string().map_or(0, |string| usize::from(string.as_slice()[31] == b'v'))
            });
        }
    }
    report("reads in groups, random keys", count, on_cpu() - start);
    assert_eq!(found as u64, count / GROUP as u64 * GROUP as u64);
    let start = on_cpu();
    for number in 0..count / 4 {
        let key = key(number);
        assert!(tables.get(TABLE, tables.hash(&key), &key, 0).is_some());
    }
    report("reads one by one, random keys", count / 4, on_cpu() - start);
}

fn deletes(tables: &mut Tables, count: u64) {
    let start = on_cpu();
    for number in 0..count {
        let key = key(number);
        let hash = tables.hash(&key);
        assert!(tables.delete(TABLE, hash, &key));
    }
    report("deletes one by one, shrinking", count, on_cpu() - start);
    assert_eq!(tables.memory_used_total(), 0);
}

fn growth(tables: &mut Tables, count: u64) {
    let mut times = Vec::new();
    let start = Instant::now();
    let mut last = Duration::ZERO;
    for number in 0..count {
        let key = key(number);
        let hash = tables.hash(&key);
        tables.put(TABLE, hash, &key, StringValue::Slice(&[b'v'; 32]), None);
        let now = start.elapsed();
        let time = now.saturating_sub(last);
        if Duration::from_micros(2) < time {
            times.push(time);
        }
        last = now;
    }
    report("puts one by one, growing, timed", count, start.elapsed());
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{} puts took more than 2 us: p50 {:?}, p99 {:?}, p99.9 {:?}, longest {:?}",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}
