//! Single properties of the tables.

use bytes::Bytes;

use super::hash;
use crate::limits::{HUGE_BYTES_MIN, SHARED_BYTES_MIN};
use crate::{StringValue, Sweep, TableId, Tables, Value};

const TABLE: TableId = TableId(0);

fn put(tables: &mut Tables, key: &[u8], value: &[u8], expiry: Option<i64>) {
    let hash = tables.hash(key);
    tables.put(TABLE, hash, key, StringValue::Slice(value), expiry);
}

fn string<'t>(tables: &'t Tables, key: &[u8]) -> &'t [u8] {
    match tables.get(TABLE, hash(tables, key), key, 0) {
        Some(Value::String(string)) => string.as_slice(),
        _ => panic!("{key:?} is no string"),
    }
}

#[test]
fn tables_can_move_to_another_thread() {
    fn assert_send<T: Send>() {}
    assert_send::<Tables>();
    assert_send::<crate::HugeValue>();
}

#[test]
fn empty_tables_hold_no_memory() {
    let mut tables = Tables::new(1);
    tables.create(TableId(500));
    assert!(
        tables.exists(TableId(15)) && !tables.exists(TableId(16)) && tables.exists(TableId(500))
    );
    assert_eq!((tables.memory_used_total(), tables.heap.page_count()), (0, 0));
    tables.remove(TableId(500));
    assert!(!tables.exists(TableId(500)));
}

#[test]
fn a_table_with_one_key_is_tiny() {
    let mut tables = Tables::new(1);
    put(&mut tables, b"key", b"value", None);
    assert!(tables.memory_used(TABLE) <= 256, "{}", tables.memory_used(TABLE));
}

#[test]
fn an_entry_of_16_and_32_bytes_costs_at_most_24_more_on_average() {
    let mut tables = Tables::new(1);
    let (mut sum, mut samples) = (0.0, 0);
    for number in 0..400_000_u64 {
        put(&mut tables, format!("{number:016}").as_bytes(), &[1; 32], None);
        if 200_000 <= number && number % 20_000 == 0 {
            sum += tables.memory_used(TABLE) as f64 / (number + 1) as f64 - 48.0;
            samples += 1;
        }
    }
    let mean = sum / f64::from(samples);
    assert!(mean <= 21.0, "{mean}");
}

#[test]
fn mass_deletion_gives_memory_back_and_leaves_no_large_directory() {
    // Enough keys for a directory in shards; those left at the end fit into one segment.
    const COUNT: u32 = 1_200_000;
    let mut tables = Tables::new(1);
    for number in 0..COUNT {
        put(&mut tables, &number.to_le_bytes(), b"value", None);
    }
    for number in 100..COUNT {
        let key = number.to_le_bytes();
        let hash = tables.hash(&key);
        assert!(tables.delete(TABLE, hash, &key));
    }
    assert!(tables.memory_used(TABLE) < 100 * 24 + 2_500, "{}", tables.memory_used(TABLE));
    tables.assert_invariants(TABLE);
    for number in 0..100_u32 {
        string(&tables, &number.to_le_bytes());
    }
}

#[test]
fn a_scan_step_emits_about_what_was_asked_for() {
    let mut tables = Tables::new(1);
    for number in 0..20_000_u32 {
        put(&mut tables, &number.to_le_bytes(), b"", None);
    }
    let (mut position, mut steps) = (Some(0), 0);
    while let Some(at) = position {
        let mut emitted = 0;
        position = tables.scan(TABLE, at, 10, 0, &mut |_, _| emitted += 1);
        assert!(emitted < 50, "{emitted}");
        steps += 1;
    }
    assert!(500 < steps && steps < 4_000, "{steps}");
}

#[test]
fn long_values_are_shared_and_patched_in_place_unless_held() {
    let mut tables = Tables::new(1);
    let key = b"long";
    let hash = tables.hash(key);
    let value = Bytes::from(vec![1; SHARED_BYTES_MIN]);
    let address = value.as_ptr();
    tables.put(TABLE, hash, key, StringValue::Shared(value), None);
    assert_eq!(string(&tables, key).as_ptr(), address);
    let Some(Value::String(found)) = tables.get(TABLE, hash, key, 0) else { panic!() };
    let held = found.shared().expect("long enough");
    tables.patch(TABLE, hash, key, 0, b"22");
    assert_eq!(held[..2], [1, 1]);
    assert_eq!(string(&tables, key)[..3], *b"22\x01");
    drop(held);
    let address = string(&tables, key).as_ptr();
    tables.patch(TABLE, hash, key, 0, b"33");
    assert_eq!(string(&tables, key).as_ptr(), address);
}

#[test]
fn extending_a_long_value_rarely_moves_it() {
    let mut tables = Tables::new(1);
    let key = b"log";
    let hash = tables.hash(key);
    let mut moves = 0;
    let mut address = std::ptr::null();
    for step in 0..20_000 {
        let len = tables.patch(TABLE, hash, key, step * 100, &[7; 100]);
        assert_eq!(len, (step + 1) * 100);
        if SHARED_BYTES_MIN <= len && string(&tables, key).as_ptr() != address {
            moves += 1;
            address = string(&tables, key).as_ptr();
        }
    }
    assert!(moves < 12, "{moves}");
}

#[test]
fn huge_values_wait_to_be_dropped_elsewhere() {
    let mut tables = Tables::new(1);
    let hash = tables.hash(b"huge");
    for _ in 0..2 {
        let value = Bytes::from(vec![1; HUGE_BYTES_MIN]);
        tables.put(TABLE, hash, b"huge", StringValue::Shared(value), None);
    }
    assert_eq!(tables.garbage_bytes(), HUGE_BYTES_MIN as u64);
    assert!(tables.delete(TABLE, hash, b"huge"));
    assert_eq!(tables.memory_used_total(), 0);
    for _ in 0..2 {
        assert_eq!(tables.take_huge().map(|huge| huge.len_bytes()), Some(HUGE_BYTES_MIN));
    }
    assert!(tables.take_huge().is_none());
    assert_eq!(tables.garbage_bytes(), 0);
}

#[test]
fn a_flushed_table_is_freed_in_steps() {
    let mut tables = Tables::new(1);
    for number in 0..50_000_u64 {
        put(&mut tables, format!("{number}").as_bytes(), b"value", None);
    }
    let pairs: Vec<_> = (0..500).map(|number| format!("{number}")).collect();
    let hash = tables.hash(b"hash");
    tables.hash_put(TABLE, hash, b"hash", &mut pairs.iter().map(|p| (p.as_bytes(), p.as_bytes())));
    let used = tables.memory_used_total();
    tables.flush(TABLE);
    assert_eq!((tables.memory_used_total(), tables.len(TABLE)), (0, 0));
    assert_eq!(tables.garbage_bytes(), used);
    let mut steps = 0;
    let mut before = used;
    while tables.collect_garbage(100) {
        steps += 1;
        assert!(before - tables.garbage_bytes() < 32 * 1024);
        before = tables.garbage_bytes();
    }
    assert!(450 < steps && steps < 1_000, "{steps}");
    assert_eq!((tables.garbage_bytes(), tables.heap.page_count()), (0, 0));
}

#[test]
fn a_sweep_costs_nothing_before_the_first_expiry() {
    let mut tables = Tables::new(1);
    for number in 0..10_000_u64 {
        put(&mut tables, format!("{number}").as_bytes(), b"value", Some(5_000 + number as i64));
    }
    let nobody = &mut |_, _: &[u8]| panic!("nothing is due");
    // With no budget at all a pass could not even begin.
    assert_eq!(tables.sweep(TABLE, 4_999, 0, nobody), Sweep::Done { next_due: Some(5_000) });
    assert_eq!(tables.sweep(TableId(1), 4_999, 0, nobody), Sweep::Done { next_due: None });
}

#[test]
fn a_sweep_finds_what_is_due_and_knows_what_comes_next() {
    let mut tables = Tables::new(1);
    for number in 0..10_000_u64 {
        put(&mut tables, format!("{number}").as_bytes(), b"value", Some(5_000 + number as i64));
    }
    let mut found = Vec::new();
    let mut calls = 1;
    while tables.sweep(TABLE, 5_999, 2_000, &mut |hash, key| found.push((hash, key.to_vec())))
        == Sweep::More
    {
        calls += 1;
    }
    assert_eq!((found.len(), calls > 3), (1_000, true));
    // Entries that were not deleted are found again.
    let mut again = 0;
    while tables.sweep(TABLE, 5_999, 2_000, &mut |_, _| again += 1) == Sweep::More {}
    assert_eq!(again, 1_000);
    for (hash, key) in &found {
        assert!(tables.delete(TABLE, *hash, key));
    }
    let mut more = 0;
    let swept = tables.sweep(TABLE, 5_999, usize::MAX, &mut |_, _| more += 1);
    assert_eq!((swept, more), (Sweep::Done { next_due: Some(6_000) }, 0));
}

#[test]
fn a_sweep_finds_what_was_added_behind_its_back() {
    let mut tables = Tables::new(1);
    for number in 0..10_000_u64 {
        put(&mut tables, format!("{number}").as_bytes(), b"value", Some(50_000));
    }
    put(&mut tables, b"due at once", b"", Some(1));
    let nothing = &mut |_, _: &[u8]| {};
    let hash = tables.hash(b"due at once");
    assert_eq!(tables.sweep(TABLE, 1, 1, nothing), Sweep::More);
    assert!(tables.delete(TABLE, hash, b"due at once"));
    // A key in the first segment, which the pass has already visited.
    let early = (0_u64..)
        .map(|number| format!("early {number}"))
        .find(|key| tables.hash(key.as_bytes()).0 >> 58 == 0);
    let early = early.unwrap();
    put(&mut tables, early.as_bytes(), b"", Some(9));
    assert_eq!(tables.sweep(TABLE, 1, usize::MAX, nothing), Sweep::Done { next_due: Some(9) });
    // Ends the pass that last saw the entry that was due at once.
    while tables.sweep(TABLE, 1, usize::MAX, nothing) == Sweep::More {}
    let mut found = Vec::new();
    while tables.sweep(TABLE, 9, usize::MAX, &mut |_, key| found.push(key.to_vec())) == Sweep::More
    {
    }
    assert_eq!(found, [early.into_bytes()]);
}

#[test]
fn random_keys_are_drawn_about_fairly() {
    let mut tables = Tables::new(1);
    for number in 0..2_000_u32 {
        put(&mut tables, &number.to_le_bytes(), b"", None);
    }
    let mut random = super::Random::new(1);
    let mut drawn = vec![0_u32; 2_000];
    for _ in 0..200_000 {
        let key = tables.random(TABLE, random.next(), 0).expect("nothing expires");
        drawn[u32::from_le_bytes(key.try_into().unwrap()) as usize] += 1;
    }
    assert!(
        drawn.iter().all(|&count| 40 < count && count < 250),
        "{:?} {:?}",
        drawn.iter().min(),
        drawn.iter().max()
    );
}

#[test]
fn keys_and_values_of_any_length_are_kept() {
    let mut tables = Tables::new(1);
    for len in [0, 1, 7, 8, 1_000, 1_010, 1_020, 4_000, 4_090, 32_767, 32_768, 5_000_000] {
        let bytes = vec![3; len];
        put(&mut tables, &bytes, b"v", None);
        put(&mut tables, &bytes, &bytes, Some(7));
        assert!(string(&tables, &bytes) == bytes);
    }
    assert_eq!(tables.len(TABLE), 12);
}
