//! Counts allocations: dropped tables leave no memory behind.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::Random;
use crate::{HashPrefix, StringValue, TableId, Tables};

/// Allocator that counts the bytes that the current thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code)]
// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.with(|held| held.set(held.get() + layout.size() as isize));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.with(|held| held.set(held.get() - layout.size() as isize));
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[test]
fn dropped_tables_leave_nothing_behind() {
    let before = HELD.get();
    let mut random = Random::new(3);
    let mut tables = Tables::new(1);
    for _ in 0..20_000 {
        let key = random.next().to_le_bytes();
        let key = &key[..1 + random.below(3)];
        let hash = tables.hash(key);
        let table = TableId(random.below(16) as u16);
        match random.below(8) {
            0 => _ = tables.delete(table, hash, key),
            1 => {
                let fields: Vec<_> =
                    (0..random.below(100)).map(|_| random.next().to_le_bytes()).collect();
                tables.hash_put(
                    table,
                    hash,
                    key,
                    &mut fields.iter().map(|field| (&field[..], &field[..])),
                );
            }
            2 => _ = tables.patch(table, hash, key, random.below(50_000), b"patch"),
            3 if random.below(100) == 0 => tables.flush(table),
            4 => _ = tables.set_expiry(table, hash, key, Some(5)),
            _ => {
                let value = vec![1; random.below(200) * random.below(200)];
                tables.put(
                    table,
                    hash,
                    key,
                    StringValue::Slice(&value),
                    (random.below(2) == 0).then_some(7),
                );
            }
        }
    }
    assert!(before < HELD.get());
    drop(tables);
    assert_eq!(HELD.get(), before);
}

#[test]
fn a_table_prepared_for_entries_to_come_is_a_table_like_any_other() {
    // The last one is so large that its directory is cut into shards.
    let prefix = HashPrefix { bits: 5, value: 9 };
    let prepared = [0, 1, 500, 5_000, 1_000_000].map(|expected| (expected, HashPrefix::ALL));
    for (expected, prefix) in
        prepared.into_iter().chain([(0, prefix), (500, prefix), (50_000, prefix)])
    {
        let mut tables = Tables::new(1);
        let table = TableId(0);
        tables.reserve(table, expected, prefix);
        tables.assert_invariants(table);
        let keys: Vec<_> = (0..3_000).map(|number| format!("key:{number}").into_bytes()).collect();
        for key in &keys {
            let hash = tables.hash(key);
            tables.put(table, hash, key, StringValue::Slice(b"value"), None);
        }
        tables.assert_invariants(table);
        assert_eq!((tables.len(table), tables.entries(table).count()), (3_000, 3_000));
        let used = tables.memory_used(table);
        tables.reserve(table, 1_000_000, HashPrefix::ALL);
        assert_eq!(tables.memory_used(table), used, "a table with entries stays as it is");
        for key in &keys {
            let hash = tables.hash(key);
            assert!(tables.get(table, hash, key, 0).is_some());
            assert!(tables.delete(table, hash, key));
        }
        tables.assert_invariants(table);
        assert!(tables.is_empty(table));
        while tables.collect_garbage(1_000) {}
        assert_eq!(tables.memory_used(table), 0, "{expected}");
    }
}
