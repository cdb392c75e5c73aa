//! Lookups and inserts of busload's own index, in groups that are hashed and prefetched first.

use anyhow::Result;
use busload_tables::{KeyHash, StringValue, TableId, Tables};

use super::{Operation, check, ns_per_operation};
use crate::{
    clock::now_ns,
    random::Random,
    stats::{float, float_of},
};

const TABLE: TableId = TableId(0);
/// Entries that the nearest caches hold.
pub const KEYS_CACHED: usize = 1_000;
/// Keys that are inserted, and then deleted again, between two looks at the clock.
const INSERTED: usize = 20_000;
/// Steps of freeing what was deleted, at once.
const GARBAGE_STEPS: usize = 1_024;

const VALUE: [u8; 32] = [b'v'; 32];
/// Bytes of a key and its value.
pub const ENTRY_BYTES: u64 = 16 + 32;

/// Makes a key whose order has nothing to do with its number.
fn key(number: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

fn put(tables: &mut Tables, hash: KeyHash, key: &[u8]) {
    tables.put(TABLE, hash, key, StringValue::Slice(&VALUE), None);
}

fn filled(keys: u64) -> Tables {
    let mut tables = Tables::new(0x5eed);
    tables.create(TABLE);
    for key in (0..keys).map(key) {
        let hash = tables.hash(&key);
        put(&mut tables, hash, &key);
    }
    tables
}

/// An operation looks up random keys.
pub fn lookups(keys: usize) -> Result<Operation> {
    let keys = u64::try_from(keys)?;
    let (tables, mut random) = (filled(keys), Random::new(1));
    let mut group: Vec<([u8; 16], KeyHash)> = Vec::new();
    Ok(Box::new(move |batch, time_ns| {
        ns_per_operation(time_ns, || {
            group.clear();
            for _ in 0..batch {
                let key = key(random.below(keys));
                let hash = tables.hash(&key);
                tables.prefetch_bucket(TABLE, hash);
                group.push((key, hash));
            }
            if 1 < batch {
                group.iter().for_each(|(_, hash)| tables.prefetch_entry(TABLE, *hash));
            }
            let found =
                |(key, hash): &&([u8; 16], KeyHash)| tables.get(TABLE, *hash, key, 0).is_some();
            check(group.iter().filter(found).count(), batch)
        })
    }))
}

/// An operation inserts keys that are not there.
pub fn inserts(keys: usize) -> Result<Operation> {
    let inserted = INSERTED.min(keys);
    let mut first = u64::try_from(keys)?;
    let mut tables = filled(first);
    Ok(Box::new(move |batch, time_ns| {
        let operations = (inserted / batch).max(1);
        let (mut spent_ns, mut made) = (0, 0);
        while spent_ns < time_ns {
            let started_ns = now_ns();
            let mut group = Vec::with_capacity(batch);
            let mut new = (first..).map(key);
            for _ in 0..operations {
                group.clear();
                for key in new.by_ref().take(batch) {
                    let hash = tables.hash(&key);
                    tables.prefetch_write(TABLE, hash);
                    group.push((key, hash));
                }
                group.iter().for_each(|(key, hash)| put(&mut tables, *hash, key));
            }
            spent_ns += now_ns() - started_ns;
            made += operations;
            let gone = (first..).map(key).take(operations * batch);
            let deleted = gone.filter(|key| tables.delete(TABLE, tables.hash(key), key)).count();
            check(deleted, operations * batch)?;
            while tables.collect_garbage(GARBAGE_STEPS) {}
            // The next ones go elsewhere: to what no cache holds.
            first += u64::try_from(deleted)?;
        }
        Ok(float(spent_ns) / float_of(made))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_and_every_insert_is_of_a_new_one() {
        for batch in [1, 10, 1_000] {
            assert!(0.0 < lookups(2_000).unwrap()(batch, 1_000_000).unwrap());
            assert!(0.0 < inserts(2_000).unwrap()(batch, 1_000_000).unwrap());
        }
    }
}
