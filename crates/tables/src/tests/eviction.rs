//! Tables that are caches: what is evicted, what it costs, and how often reads hit.

mod reference;
mod traces;

use std::collections::BTreeMap;

use super::{Random, hash, tables_keeping};
use crate::{KeyHash, StringValue, TableId, Tables, UnixMs, Victim};

use reference::{Cache, Fifo, Lru, PaperS3Fifo};

const TABLE: TableId = TableId(3);

fn put(tables: &mut Tables, key: &[u8], value: &[u8], expiry: Option<UnixMs>) {
    let hash = tables.hash(key);
    tables.put(TABLE, hash, key, StringValue::Slice(value), expiry);
}

fn evict(tables: &mut Tables, now: UnixMs) -> Option<(Victim, Vec<u8>)> {
    let mut key = Vec::new();
    let victim = tables.choose_victim(TABLE, now, &mut |_| true, &mut key)?;
    assert_eq!(victim.hash, tables.hash(&key));
    assert!(tables.delete(TABLE, victim.hash, &key), "a victim is in the table");
    Some((victim, key))
}

fn cache(seed: u64) -> Tables {
    let mut tables = Tables::new(seed);
    tables.start_eviction(TABLE);
    tables
}

/// Table that evicts, as a cache of a number of keys.
struct TableCache {
    tables: Tables,
    entries_max: usize,
}

impl Cache for TableCache {
    fn read(&mut self, key: u64) -> bool {
        let key = key.to_le_bytes();
        let hash = self.tables.hash(&key);
        if self.tables.read(TABLE, hash, &key, 0).is_some() {
            return true;
        }
        while self.entries_max <= self.tables.len(TABLE) {
            evict(&mut self.tables, 0).expect("some entry can always be evicted");
        }
        put(&mut self.tables, &key, b"value", None);
        false
    }
}

/// Returns the hit rates in percent of the table, the paper's S3-FIFO, LRU and FIFO.
fn rates(trace: impl Fn() -> Vec<u64>, entries_max: usize) -> [f64; 4] {
    let caches: [&mut dyn Cache; 4] = [
        &mut TableCache { tables: cache(5), entries_max },
        &mut PaperS3Fifo::new(entries_max),
        &mut Lru::new(entries_max),
        &mut Fifo::new(entries_max),
    ];
    let trace = trace();
    // The first quarter fills the caches.
    let counted_from = trace.len() / 4;
    caches.map(|cache| {
        let mut hits = 0;
        for (at, key) in trace.iter().enumerate() {
            let hit = cache.read(*key);
            hits += usize::from(hit && counted_from <= at);
        }
        100.0 * hits as f64 / (trace.len() - counted_from) as f64
    })
}

#[test]
fn zipf_reads_hit_as_often_as_with_the_papers_queue_and_more_often_than_with_lru_and_fifo() {
    let [table, paper, lru, fifo] = rates(|| traces::zipf(400_000), 5_000);
    assert!(paper - 1.0 < table, "{table} against {paper} of the paper");
    assert!(lru + 3.0 < table && fifo + 6.0 < table, "{table}, lru {lru}, fifo {fifo}");
}

#[test]
fn a_scan_through_the_cache_leaves_what_is_read_again_and_again() {
    let [table, paper, lru, fifo] = rates(|| traces::zipf_with_scans(400_000), 5_000);
    assert!(paper - 1.0 < table, "{table} against {paper} of the paper");
    assert!(lru + 3.0 < table && fifo + 5.0 < table, "{table}, lru {lru}, fifo {fifo}");
}

#[test]
fn a_working_set_that_shifts_is_followed() {
    let [table, paper, _, fifo] = rates(|| traces::shifting(400_000), 5_000);
    assert!(paper - 2.0 < table, "{table} against {paper} of the paper");
    assert!(fifo < table, "{table}, fifo {fifo}");
}

#[test]
fn any_history_keeps_the_invariants_and_evicts_only_what_is_there_and_allowed() {
    for (seed, kept_bits) in [(1, u64::MAX), (2, u64::MAX), (3, 0xff), (4, 0xffff << 48), (5, 0)] {
        let mut random = Random::new(seed);
        let mut tables = tables_keeping(kept_bits);
        tables.start_eviction(TABLE);
        let mut model = BTreeMap::<Vec<u8>, Option<UnixMs>>::new();
        let keys = if kept_bits == 0 { 60 } else { 3_000 };
        for step in 0..60_000_usize {
            let now = step as UnixMs;
            let key = format!("key:{}", random.below(keys)).into_bytes();
            let of = hash(&tables, &key);
            match random.below(24) {
                0..8 => {
                    let expiry = (random.below(6) == 0).then(|| now + random.below(4_000) as i64);
                    let length = 1 + random.below(40);
                    put(&mut tables, &key, &random.bytes(length), expiry);
                    model.insert(key, expiry);
                }
                8..14 => {
                    let live = model.get(&key).is_some_and(|at| at.is_none_or(|at| now < at));
                    assert_eq!(tables.read(TABLE, of, &key, now).is_some(), live);
                }
                14..16 => assert_eq!(tables.delete(TABLE, of, &key), model.remove(&key).is_some()),
                16 => {
                    let fields: [(&[u8], &[u8]); 2] = [(b"a", b"1"), (&key, b"2")];
                    tables.hash_put(TABLE, of, &key, &mut fields.into_iter());
                    model.entry(key).or_default();
                }
                17 => {
                    let expiry = Some(now + random.below(2_000) as i64);
                    if tables.set_expiry(TABLE, of, &key, expiry) {
                        model.insert(key, expiry);
                    }
                }
                18 => {
                    tables.patch(TABLE, of, &key, random.below(40_000), b"patch");
                    model.entry(key).or_default();
                }
                19 if random.below(600) == 0 => {
                    tables.flush(TABLE);
                    model.clear();
                }
                _ => {
                    let mut chosen = Vec::new();
                    let is_allowed = |hash: KeyHash| hash != of;
                    let mut may_evict = |hash| is_allowed(hash);
                    let victim = tables.choose_victim(TABLE, now, &mut may_evict, &mut chosen);
                    let Some(victim) = victim else {
                        let others = model.keys().filter(|key| is_allowed(hash(&tables, key)));
                        assert_eq!(others.count(), 0, "there was something to evict");
                        continue;
                    };
                    assert!(is_allowed(victim.hash));
                    let expiry = model.get(&chosen).expect("the model has it, too");
                    assert_eq!(victim.is_expired, expiry.is_some_and(|at| at <= now));
                    // Now and then the caller cannot delete it.
                    if random.below(8) != 0 {
                        assert!(tables.delete(TABLE, victim.hash, &chosen));
                        model.remove(&chosen);
                    }
                }
            }
            assert_eq!(tables.len(TABLE), model.len());
            if step % 2_000 == 0 {
                tables.assert_invariants(TABLE);
            }
        }
        tables.assert_invariants(TABLE);
    }
}

#[test]
fn a_cache_can_be_emptied_by_evicting() {
    let mut tables = cache(1);
    for round in 0..3 {
        for number in 0..5_000 {
            put(&mut tables, format!("{round}:{number}").as_bytes(), b"value", None);
        }
        let mut evicted = 0;
        while evict(&mut tables, 0).is_some() {
            evicted += 1;
        }
        assert_eq!((evicted, tables.len(TABLE)), (5_000, 0));
        tables.assert_invariants(TABLE);
    }
    tables.flush(TABLE);
    assert_eq!((tables.memory_used(TABLE), tables.memory_used_total()), (0, 0));
}

#[test]
fn an_evicting_table_takes_few_bytes_per_entry_more_and_another_none() {
    const ENTRIES: usize = 100_000;
    let mut plain = Tables::new(9);
    let mut evicting = cache(9);
    for number in 0..ENTRIES {
        let key = format!("key:{number:012}");
        put(&mut plain, key.as_bytes(), &[7; 32], None);
        put(&mut evicting, key.as_bytes(), &[7; 32], None);
    }
    let more = |evicting: &Tables| evicting.memory_used(TABLE) - plain.memory_used(TABLE);
    let per_entry = more(&evicting) as f64 / ENTRIES as f64;
    assert!(per_entry < 10.5, "{per_entry} bytes while it fills: all are newcomers");
    // Newcomers are as many as before if none is ever used.
    for number in ENTRIES..3 * ENTRIES {
        evict(&mut evicting, 0);
        put(&mut evicting, format!("key:{number:012}").as_bytes(), &[7; 32], None);
    }
    let policy = evicting.eviction_bytes(TABLE) as f64 / ENTRIES as f64;
    assert!(policy < 10.5, "{policy} bytes per entry");
    // Where newcomers are used, fewer of them wait.
    for number in 3 * ENTRIES..6 * ENTRIES {
        let key = format!("key:{number:012}");
        evict(&mut evicting, 0);
        put(&mut evicting, key.as_bytes(), &[7; 32], None);
        if number % 2 == 0 {
            let hash = evicting.hash(key.as_bytes());
            evicting.read(TABLE, hash, key.as_bytes(), 0);
        }
    }
    let policy = evicting.eviction_bytes(TABLE) as f64 / ENTRIES as f64;
    assert!(policy < 3.0, "{policy} bytes per entry");
    let before = plain.memory_used_total();
    let key = b"key:000000000001";
    let hash = plain.hash(key);
    assert!(plain.read(TABLE, hash, key, 0).is_some());
    assert_eq!(plain.memory_used_total(), before);
    assert!(plain.choose_victim(TABLE, 0, &mut |_| true, &mut Vec::new()).is_none());
}

#[test]
fn a_table_that_was_filled_before_keeps_what_is_used() {
    let mut tables = Tables::new(1);
    let key = |number: usize| format!("key:{number}").into_bytes();
    for number in 0..10_000 {
        put(&mut tables, &key(number), b"value", None);
    }
    tables.start_eviction(TABLE);
    let read = |tables: &Tables, number| {
        tables.read(TABLE, tables.hash(&key(number)), &key(number), 0).is_some()
    };
    (0..1_000).for_each(|number| assert!(read(&tables, number)));
    for _ in 0..8_000 {
        evict(&mut tables, 0).expect("there is more");
    }
    // The hand passes some twice, because the index shrinks.
    let kept = (0..1_000).filter(|number| read(&tables, *number)).count();
    assert!(950 < kept, "{kept} of 1,000 that were used");
    assert_eq!(tables.len(TABLE), 2_000);
}

#[test]
fn if_everything_is_in_use_the_least_used_of_some_goes() {
    const ENTRIES: usize = 50_000;
    let mut tables = cache(1);
    let key = |number: usize| format!("key:{number}").into_bytes();
    for number in 0..ENTRIES {
        put(&mut tables, &key(number), b"value", None);
        let hash = tables.hash(&key(number));
        for _ in 0..if number == 77 { 1 } else { 9 } {
            tables.read(TABLE, hash, &key(number), 0);
        }
    }
    let evicted: Vec<_> = (0..ENTRIES).map(|_| evict(&mut tables, 0).expect("more").1).collect();
    assert!(evicted[..ENTRIES / 2].contains(&key(77)));
    assert!(tables.is_empty(TABLE));
}

#[test]
fn what_has_expired_goes_before_what_has_not() {
    let mut tables = cache(1);
    for number in 0..2_000 {
        let expiry = (number % 4 == 0).then_some(10);
        put(&mut tables, format!("key:{number}").as_bytes(), b"value", expiry);
        let hash = tables.hash(format!("key:{number}").as_bytes());
        tables.read(TABLE, hash, format!("key:{number}").as_bytes(), 0);
    }
    let expired = (0..500).filter(|_| evict(&mut tables, 10).expect("more").0.is_expired).count();
    assert!(400 < expired, "{expired} of the first 500 had expired");
}
