//! Runs random operations on tables, on a model made of ordered maps, and as replayed effects.

use std::collections::{BTreeMap, BTreeSet};

use super::{Random, tables_keeping};
use crate::effect::{self, Replayer};
use crate::limits::{COMPACT_HASH_FIELDS_MAX, COMPACT_HASH_STRING_BYTES_MAX};
use crate::{StringValue, Sweep, TableId, Tables, UnixMs, Value};

const TABLE: TableId = TableId(3);

#[derive(Clone, Debug, PartialEq)]
enum Content {
    String(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// Key to content, expiry, and whether the value is in its general form.
type Model = BTreeMap<Vec<u8>, (Content, Option<UnixMs>, bool)>;

#[derive(Debug)]
enum Operation {
    Put { key: Vec<u8>, value: Vec<u8>, expiry: Option<UnixMs> },
    Patch { key: Vec<u8>, offset: usize, bytes: Vec<u8> },
    Delete { key: Vec<u8> },
    Expire { key: Vec<u8>, expiry: Option<UnixMs> },
    HashPut { key: Vec<u8>, pairs: Vec<(Vec<u8>, Vec<u8>)> },
    HashDelete { key: Vec<u8>, fields: Vec<Vec<u8>> },
    Flush,
    Sweep,
    CollectGarbage,
}

struct Settings {
    key_count: usize,
    operations: usize,
    kept_bits: u64,
    flushes: bool,
}

struct Run {
    random: Random,
    tables: Tables,
    model: Model,
    record: Vec<u8>,
    now: UnixMs,
    settings: Settings,
    /// Scan that continues beside the operations.
    scan: Option<Scan>,
    scans_done: usize,
}

struct Scan {
    position: u64,
    /// Keys that were there when the scan began and have been there ever since.
    staying: BTreeSet<Vec<u8>>,
    seen: BTreeSet<Vec<u8>>,
}

impl Run {
    fn new(seed: u64, settings: Settings) -> Self {
        Run {
            random: Random::new(seed),
            tables: tables_keeping(settings.kept_bits),
            model: Model::new(),
            record: Vec::new(),
            now: 1_000,
            settings,
            scan: None,
            scans_done: 0,
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(self.settings.key_count);
        let padding = if number.is_multiple_of(50) { 300 } else { number % 20 };
        format!("{number}:{:padding$}", "").into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.random.below(1000) {
            0 => 1_100_000,
            1..5 => 40_000,
            5..30 => self.random.below(5_000),
            _ => self.random.below(100),
        };
        vec![self.random.next() as u8; len]
    }

    fn expiry(&mut self) -> Option<UnixMs> {
        (self.random.below(3) == 0).then(|| self.now + self.random.below(400) as i64 - 20)
    }

    fn operation(&mut self, shrinking: bool) -> Operation {
        let key = self.key();
        let many = self.random.below(200) == 0;
        let field = |run: &mut Self| {
            let field_count = match run.random.below(8) {
                0 if many => 2_000,
                0..2 => 200,
                _ => 20,
            };
            format!("field {}", run.random.below(field_count)).into_bytes()
        };
        match self.random.below(100) {
            _ if shrinking && self.random.below(3) != 0 => Operation::Delete { key },
            0..40 => Operation::Put { value: self.value(), expiry: self.expiry(), key },
            40..50 => {
                let offset =
                    self.random.below(100) * if self.random.below(20) == 0 { 400 } else { 1 };
                Operation::Patch { key, offset, bytes: self.value() }
            }
            50..60 => Operation::Delete { key },
            60..68 => Operation::Expire { expiry: self.expiry(), key },
            68..84 => {
                let count = match self.random.below(8) {
                    _ if many => 6_000,
                    0 => 1 + self.random.below(120),
                    _ => 1 + self.random.below(4),
                };
                let pairs = (0..count).map(|_| (field(self), self.random_field_value())).collect();
                Operation::HashPut { key, pairs }
            }
            84..92 => {
                let count = 1 + if self.random.below(8) == 0 {
                    self.random.below(300)
                } else {
                    self.random.below(4)
                };
                Operation::HashDelete { key, fields: (0..count).map(|_| field(self)).collect() }
            }
            92 if self.settings.flushes && self.random.below(40) == 0 => Operation::Flush,
            92..96 => Operation::Sweep,
            _ => Operation::CollectGarbage,
        }
    }

    fn random_field_value(&mut self) -> Vec<u8> {
        let len = match self.random.below(200) {
            0 => 40_000,
            1 => 63 + self.random.below(4),
            _ => self.random.below(40),
        };
        self.random.bytes(len)
    }

    fn apply(&mut self, operation: Operation) {
        let record = &mut self.record;
        match operation {
            Operation::Put { key, value, expiry } => {
                let hash = self.tables.hash(&key);
                let stored = if value.len().is_multiple_of(2) {
                    StringValue::Slice(&value)
                } else {
                    StringValue::Shared(value.clone().into())
                };
                self.tables.put(TABLE, hash, &key, stored, expiry);
                effect::put(record, TABLE, &key, &value, expiry);
                self.model.insert(key, (Content::String(value), expiry, false));
            }
            Operation::Patch { key, offset, bytes } => {
                let hash = self.tables.hash(&key);
                let len = self.tables.patch(TABLE, hash, &key, offset, &bytes);
                effect::patch(record, TABLE, &key, offset, &bytes);
                let absent = (Content::String(Vec::new()), None, false);
                let (content, _, general) = self.model.entry(key).or_insert(absent);
                *general = true;
                let mut old = match content {
                    Content::String(old) => std::mem::take(old),
                    Content::Hash(_) => Vec::new(),
                };
                old.resize(old.len().max(offset + bytes.len()), 0);
                old[offset..offset + bytes.len()].copy_from_slice(&bytes);
                assert_eq!(len, old.len());
                *content = Content::String(old);
            }
            Operation::Delete { key } => self.delete(&key),
            Operation::Expire { key, expiry } => {
                let hash = self.tables.hash(&key);
                let found = self.tables.set_expiry(TABLE, hash, &key, expiry);
                assert_eq!(found, self.model.contains_key(&key));
                match expiry {
                    Some(at) => effect::expire(record, TABLE, &key, at),
                    None => effect::persist(record, TABLE, &key),
                }
                self.model.entry(key).and_modify(|entry| entry.1 = expiry);
            }
            Operation::HashPut { key, pairs } => {
                let hash = self.tables.hash(&key);
                let mut slices =
                    pairs.iter().map(|(field, value)| (field.as_slice(), value.as_slice()));
                let added = self.tables.hash_put(TABLE, hash, &key, &mut slices);
                effect::hash_put_header(record, TABLE, &key, pairs.len());
                pairs.iter().for_each(|(field, value)| effect::hash_put_pair(record, field, value));
                let absent = (Content::Hash(BTreeMap::new()), None, false);
                let (content, _, general) = self.model.entry(key).or_insert(absent);
                if let Content::String(_) = content {
                    (*content, *general) = (Content::Hash(BTreeMap::new()), false);
                }
                let Content::Hash(fields) = content else { unreachable!() };
                let before = fields.len();
                let is_long = |string: &Vec<u8>| COMPACT_HASH_STRING_BYTES_MAX < string.len();
                *general |= pairs.iter().any(|(field, value)| is_long(field) || is_long(value));
                fields.extend(pairs);
                *general |= COMPACT_HASH_FIELDS_MAX < fields.len();
                assert_eq!(added, fields.len() - before);
            }
            Operation::HashDelete { key, fields } => {
                let hash = self.tables.hash(&key);
                let mut slices = fields.iter().map(Vec::as_slice);
                let removed = self.tables.hash_delete(TABLE, hash, &key, &mut slices);
                effect::hash_delete_header(record, TABLE, &key, fields.len());
                fields.iter().for_each(|field| effect::hash_delete_field(record, field));
                let mut expected = 0;
                if let Some((Content::Hash(old), ..)) = self.model.get_mut(&key) {
                    expected = fields.iter().filter(|field| old.remove(*field).is_some()).count();
                    if old.is_empty() {
                        self.model.remove(&key);
                        self.note_removal_in_scan(&key);
                    }
                }
                assert_eq!(removed, expected);
            }
            Operation::Flush => {
                self.tables.flush(TABLE);
                effect::flush(record, TABLE);
                self.model.clear();
                self.scan = None;
            }
            Operation::Sweep => self.sweep(),
            Operation::CollectGarbage => {
                let steps = self.random.below(200);
                self.tables.collect_garbage(steps);
                self.tables.take_huge();
            }
        }
    }

    fn delete(&mut self, key: &[u8]) {
        let hash = self.tables.hash(key);
        let found = self.tables.delete(TABLE, hash, key);
        effect::delete(&mut self.record, TABLE, key);
        assert_eq!(found, self.model.remove(key).is_some(), "{key:?}");
        self.note_removal_in_scan(key);
    }

    /// Sweeps to the end and checks that it finds exactly the expired entries.
    fn sweep(&mut self) {
        let now = self.now;
        let mut found = BTreeSet::new();
        let next_due = loop {
            let swept =
                self.tables.sweep(TABLE, now, 100, &mut |_, key| _ = found.insert(key.to_vec()));
            if let Sweep::Done { next_due } = swept {
                break next_due;
            }
        };
        let expired = |entry: &(Content, Option<UnixMs>, bool)| entry.1.is_some_and(|at| at <= now);
        let expected: BTreeSet<_> =
            self.model.iter().filter(|(_, e)| expired(e)).map(|(k, _)| k.clone()).collect();
        // A pass that began earlier may end without a second visit to segments that fell due
        // meanwhile.
        assert!(found.is_subset(&expected));
        if found.is_empty() {
            let earliest = self.model.values().filter_map(|entry| entry.1).min();
            assert!(next_due <= earliest || earliest.is_none(), "{next_due:?} {earliest:?}");
            assert!(expected.is_empty(), "an expired entry was not found: {expected:?}");
        }
        let deleted = found.len() - if self.random.below(4) == 0 { found.len() / 2 } else { 0 };
        for key in found.into_iter().take(deleted) {
            self.delete(&key);
        }
    }

    fn step_scan(&mut self) {
        let scan = self.scan.get_or_insert_with(|| Scan {
            position: 0,
            staying: self.model.keys().cloned().collect(),
            seen: BTreeSet::new(),
        });
        let count = 1 + self.random.below(30);
        let seen = &mut scan.seen;
        let next = self.tables.scan(TABLE, scan.position, count, UnixMs::MIN, &mut |key, _| {
            seen.insert(key.to_vec());
        });
        match next {
            Some(next) => {
                assert!(scan.position < next && next < 1 << 40);
                scan.position = next;
            }
            None => {
                let lost: Vec<_> = scan.staying.difference(&scan.seen).collect();
                assert!(lost.is_empty(), "{lost:?}");
                self.scan = None;
                self.scans_done += 1;
            }
        }
    }

    fn note_removal_in_scan(&mut self, key: &[u8]) {
        if let Some(scan) = &mut self.scan {
            scan.staying.remove(key);
        }
    }

    fn check_key(&self, key: &[u8]) {
        check_key(&self.tables, &self.model, key, self.now);
    }

    fn check_all(&self) {
        check_all(&self.tables, &self.model, self.now);
    }
}

fn check_key(tables: &Tables, model: &Model, key: &[u8], now: UnixMs) {
    let hash = tables.hash(key);
    tables.prefetch_bucket(TABLE, hash);
    tables.prefetch_entry(TABLE, hash);
    let expected = model.get(key).filter(|entry| entry.1.is_none_or(|at| now < at));
    match (tables.get(TABLE, hash, key, now), expected.map(|entry| &entry.0)) {
        (None, None) => {}
        (Some(Value::String(string)), Some(Content::String(expected))) => {
            assert!(string.as_slice() == expected, "{key:?}");
            assert!(string.shared().is_none_or(|shared| shared == expected));
            assert!(string.shared().is_some() || expected.len() < crate::limits::SHARED_BYTES_MIN);
        }
        (Some(Value::Hash(hash)), Some(Content::Hash(expected))) => {
            assert_eq!(hash.len(), expected.len());
            let mut scanned = BTreeMap::new();
            let mut position = Some(0);
            while let Some(at) = position {
                position = hash.scan(at, 10, &mut |field, value| {
                    _ = scanned.insert(field.to_vec(), value.to_vec())
                });
            }
            assert!(scanned == *expected);
            let iterated: BTreeMap<_, _> =
                hash.iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect();
            assert!(iterated == *expected);
            for (field, value) in expected {
                assert_eq!(hash.get(field), Some(value.as_slice()));
            }
            assert_eq!(hash.get(b"no such field"), None);
            let (field, value) = hash.random((now as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert_eq!(expected.get(field).map(Vec::as_slice), Some(value));
        }
        (found, expected) => {
            panic!("{key:?}: found {:?}, expected {expected:?}", found.map(|value| value.kind()))
        }
    }
    assert_eq!(tables.expiry(TABLE, hash, key, now), expected.map(|entry| entry.1));
    assert_eq!(tables.is_general(TABLE, hash, key), model.get(key).is_some_and(|entry| entry.2));
    assert_eq!(
        tables.is_expired(TABLE, hash, key, now),
        expected.is_none() && model.contains_key(key)
    );
}

fn check_all(tables: &Tables, model: &Model, now: UnixMs) {
    tables.assert_invariants(TABLE);
    assert_eq!(tables.len(TABLE), model.len());
    assert_eq!(
        tables.expiring_len(TABLE),
        model.values().filter(|entry| entry.1.is_some()).count()
    );
    assert_eq!(tables.memory_used(TABLE), tables.memory_used_total());
    for key in model.keys() {
        check_key(tables, model, key, now);
    }
    let mut seen = BTreeSet::new();
    let mut position = Some(0);
    while let Some(at) = position {
        position = tables.scan(TABLE, at, 100, now, &mut |key, _| _ = seen.insert(key.to_vec()));
    }
    let live = model.iter().filter(|(_, entry)| entry.1.is_none_or(|at| now < at));
    assert!(seen.iter().eq(live.map(|(key, _)| key)));
    if let Some(key) = tables.random(TABLE, (now as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), now) {
        assert!(seen.contains(key));
    } else {
        assert!(seen.is_empty());
    }
}

fn run(seed: u64, settings: Settings) {
    println!("seed {seed}");
    let operations = settings.operations;
    let mut run = Run::new(seed, settings);
    for step in 0..operations {
        let shrinking = operations / 2 < step % (operations / 3 * 2);
        let operation = run.operation(shrinking);
        let key = run.key();
        run.apply(operation);
        run.check_key(&key);
        run.now += i64::from(run.random.below(20) == 0);
        if run.random.below(10) == 0 {
            run.step_scan();
        }
        if step % (operations / 8) == 0 {
            run.check_all();
        }
    }
    run.check_all();
    assert!(run.scans_done != 0);
    let mut replayed = tables_keeping(run.settings.kept_bits);
    let mut replayer = Replayer::new(&mut replayed);
    replayer.push(&run.record).expect("our own record");
    replayer.finish();
    check_all(&replayed, &run.model, run.now);
    let keys: Vec<_> = run.model.keys().cloned().collect();
    for key in keys {
        run.delete(&key);
    }
    assert_eq!(run.tables.memory_used_total(), 0);
    while run.tables.collect_garbage(100) {}
    while run.tables.take_huge().is_some() {}
    assert_eq!(
        (run.tables.garbage_bytes(), run.tables.heap.live_bytes, run.tables.heap.page_count()),
        (0, 0, 0)
    );
}

#[test]
fn few_keys_behave_like_the_model() {
    for seed in 0..12 {
        run(
            seed,
            Settings { key_count: 40, operations: 3_000, kept_bits: u64::MAX, flushes: true },
        );
    }
}

#[test]
fn many_keys_behave_like_the_model() {
    for seed in 0..3 {
        run(
            seed,
            Settings { key_count: 30_000, operations: 60_000, kept_bits: u64::MAX, flushes: false },
        );
    }
}

#[test]
fn colliding_tags_behave_like_the_model() {
    // Two and four distinct tags, equal first bits, equal last bits, all equal.
    for (seed, kept_bits) in
        [1 << 63, 3 << 60, u64::MAX >> 20, u64::MAX << 50, 0].into_iter().enumerate()
    {
        run(
            seed as u64,
            Settings { key_count: 1_500, operations: 8_000, kept_bits, flushes: true },
        );
    }
}
