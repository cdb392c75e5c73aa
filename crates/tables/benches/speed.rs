//! Measures one core: replay of small puts into a growing table, prefetched and plain reads,
//! deletes.
//!
//! `cargo bench -p busload-tables --bench speed`

use std::time::Duration;

use busload_tables::effect::{self, Replayer};
use busload_tables::{KeyHash, TableId, Tables};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TABLE: TableId = TableId(0);
const COUNT: u64 = 5_000_000;
const GROUP: usize = 32;

fn main() {
    let mut tables = Tables::new(0x5eed);
    replay(&mut tables);
    read_in_groups(&tables);
    measure("reads one by one, random keys", |number| {
        let key = key(number);
        assert!(tables.get(TABLE, tables.hash(&key), &key, 0).is_some());
    });
    measure("reads that count uses, not evicting", |number| {
        let key = key(number);
        assert!(tables.read(TABLE, tables.hash(&key), &key, 0).is_some());
    });
    measure("deletes one by one, shrinking", |number| {
        let key = key(number);
        let hash = tables.hash(&key);
        assert!(tables.delete(TABLE, hash, &key));
    });
}

/// Returns keys whose order has nothing to do with their numbers.
fn key(number: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

/// Returns the CPU time of this thread (Linux), which other load on the machine disturbs less than
/// wall time.
fn on_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("this needs Linux");
    let nanoseconds = stat.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the first field is the time on the processor"))
}

fn report(subject: &str, time: Duration) {
    let ns = time.as_nanos() as f64 / COUNT as f64;
    println!("{subject:<34} {:>8.2} M/s {ns:>8.1} ns", 1e3 / ns);
}

fn measure(subject: &str, work: impl FnMut(u64)) {
    let start = on_cpu();
    (0..COUNT).for_each(work);
    report(subject, on_cpu() - start);
}

fn replay(tables: &mut Tables) {
    let mut spent = Duration::ZERO;
    for first in (0..COUNT).step_by(100_000) {
        let record = |number| {
            let mut record = Vec::new();
            effect::put(&mut record, TABLE, &key(number), &[b'v'; 32], None);
            record
        };
        let records: Vec<_> = (first..first + 100_000).map(record).collect();
        let start = on_cpu();
        let mut replayer = Replayer::new(tables);
        for record in &records {
            replayer.push(record).expect("well-formed records");
        }
        replayer.finish();
        spent += on_cpu() - start;
    }
    report("replay of puts, growing table", spent);
}

fn read_in_groups(tables: &Tables) {
    let start = on_cpu();
    let mut group = [([0; 16], KeyHash(0)); GROUP];
    for first in (0..COUNT).step_by(GROUP) {
        for (number, (slot, hash)) in (first..).zip(&mut group) {
            *slot = key(number % COUNT);
            *hash = tables.hash(slot);
            tables.prefetch_bucket(TABLE, *hash);
        }
        for (_, hash) in &group {
            tables.prefetch_entry(TABLE, *hash);
        }
        for (key, hash) in &group {
            assert!(tables.get(TABLE, *hash, key, 0).is_some());
        }
    }
    report("reads in groups, random keys", on_cpu() - start);
}
