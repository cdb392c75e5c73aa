//! Measures what entries cost beyond their keys and values: the resident memory of the process
//! (Linux, mimalloc as the global allocator) while a table of 16-byte keys and 32-byte values
//! grows.
//!
//! `cargo run --release -p busload-tables --example memory [millions of entries]`

use busload_tables::{StringValue, TableId, Tables};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 32;
const STEP: u64 = 500_000;
const PAGE_BYTES: usize = 4096;

fn main() {
    let millions = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10);
    let mut tables = Tables::new(0x5eed);
    let start = resident_bytes();
    let (mut sum, mut samples, mut worst) = (0.0, 0, 0.0_f64);
    println!("{:>10} {:>14} {:>14}", "entries", "resident B/e", "accounted B/e");
    for count in 1..=millions * 1_000_000 {
        insert(&mut tables, count);
        if !u64::is_multiple_of(count, STEP / 5) || count < STEP * 2 {
            continue;
        }
        let overhead =
            |bytes: usize| bytes as f64 / count as f64 - (KEY_BYTES + VALUE_BYTES) as f64;
        let resident = overhead(resident_bytes() - start);
        worst = worst.max(resident);
        if count.is_multiple_of(STEP) {
            println!(
                "{count:>10} {resident:>14.2} {:>14.2}",
                overhead(tables.memory_used_total() as usize)
            );
            if 5_000_000 <= count {
                sum += resident;
                samples += 1;
            }
        }
    }
    println!(
        "mean from 5 million on: {:.2}; worst from 1 million on: {worst:.2}",
        sum / f64::from(samples.max(1))
    );
    std::mem::forget(tables);
}

fn insert(tables: &mut Tables, number: u64) {
    let mut key = [b'k'; KEY_BYTES];
    key[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    let hash = tables.hash(&key);
    tables.put(TableId(0), hash, &key, StringValue::Slice(&[b'v'; VALUE_BYTES]), None);
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this example needs Linux");
    let pages = statm.split(' ').nth(1).and_then(|text| text.parse::<usize>().ok());
    pages.expect("the second field is the resident page count") * PAGE_BYTES
}
