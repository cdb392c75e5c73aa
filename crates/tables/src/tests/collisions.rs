//! With hashes that no secret seed would give, the tables still work and stay within bounds.

use super::tables_keeping;
use crate::{StringValue, TableId};

const TABLE: TableId = TableId(0);

fn check(kept_bits: u64, count: u32, bytes_per_entry_max: u64) {
    let mut tables = tables_keeping(kept_bits);
    for number in 0..count {
        let key = number.to_le_bytes();
        let hash = tables.hash(&key);
        tables.put(TABLE, hash, &key, StringValue::Slice(&key), None);
    }
    let used = tables.memory_used(TABLE);
    assert!(
        used < u64::from(count) * bytes_per_entry_max,
        "{used} bytes for {count} entries, {kept_bits:x}"
    );
    let mut seen = vec![false; count as usize];
    let mut position = Some(0);
    while let Some(at) = position {
        position = tables.scan(TABLE, at, 10, 0, &mut |key, _| {
            seen[u32::from_le_bytes(key.try_into().unwrap()) as usize] = true;
        });
    }
    assert!(seen.iter().all(|seen| *seen));
    for number in 0..count {
        let key = number.to_le_bytes();
        let hash = tables.hash(&key);
        assert!(tables.get(TABLE, hash, &key, 0).is_some());
        assert!(tables.delete(TABLE, hash, &key), "{number}");
        if number % 500 == 0 {
            tables.assert_invariants(TABLE);
        }
    }
    assert_eq!(tables.memory_used(TABLE), 0);
}

#[test]
fn equal_hashes_neither_lose_entries_nor_blow_up_the_directory() {
    check(0, 3_000, 64);
}

#[test]
fn equal_first_bits_neither_lose_entries_nor_blow_up_the_directory() {
    check(u64::MAX >> 20, 30_000, 64);
    check(u64::MAX >> 40, 10_000, 64);
}

#[test]
fn few_distinct_hashes_neither_lose_entries_nor_blow_up_the_directory() {
    check(0x8000_0000_0000_0001, 4_000, 64);
    check(3 << 40, 4_000, 64);
}

#[test]
fn a_skewed_directory_is_not_cut_into_shards_that_share_segments() {
    // An eighth of the prefixes is in use, and most keys of those have equal bits after the prefix.
    let mut tables = tables_keeping(u64::MAX);
    let keys: Vec<_> = (0..2_000_000_u32)
        .map(|number| number.to_le_bytes())
        .filter(|key| tables.hash(key).0 >> 61 == 5 || tables.hash(key).0 >> 53 == 0)
        .collect();
    for key in &keys {
        let hash = tables.hash(key);
        tables.put(TABLE, hash, key, StringValue::Slice(key), None);
    }
    assert!(tables.memory_used(TABLE) < keys.len() as u64 * 40);
    for key in &keys {
        let hash = tables.hash(key);
        assert!(tables.get(TABLE, hash, key, 0).is_some());
        assert!(tables.delete(TABLE, hash, key));
    }
    assert_eq!(tables.memory_used(TABLE), 0);
}
