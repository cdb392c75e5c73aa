//! All memory tables and what can be done to them.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::limits::SPACE_COUNT;
use crate::value::{Fields, HashRef, StringRef, Value, ValueKind};

/// Milliseconds since the Unix epoch.
pub type UnixMs = i64;

/// Which table. 0 to 15 are the spaces of the table `default` that `SELECT` chooses from; named tables follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u16);

/// The hash of a key by [`Tables::hash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

/// A string to be stored.
#[derive(Clone, Debug)]
pub enum StringValue<'a> {
    /// Copied into the table.
    Slice(&'a [u8]),
    /// Kept by reference when it is long enough, copied otherwise.
    Shared(Bytes),
}

/// What [`Tables::sweep`] left undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// The budget ended before everything due was found: call again.
    More,
    /// Nothing is due any more. `next_due` is a lower bound of the earliest expiry, if anything expires at all.
    Done {
        /// No expiry in the table is earlier than this.
        next_due: Option<UnixMs>,
    },
}

/// A value of a megabyte or more that died. Dropping it can take long: do it on a thread that nobody waits for.
#[derive(Debug)]
pub struct HugeValue {
    bytes: Bytes,
}

impl HugeValue {
    /// The length of the dead value.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}

enum Stored {
    String(Bytes),
    Hash(Fields),
}

struct Entry {
    stored: Stored,
    expiry: Option<UnixMs>,
}

type Table = HashMap<Vec<u8>, Entry>;

/// All memory tables.
///
/// Operations on a table that does not exist panic: which tables exist is the caller's own knowledge, and what comes
/// from outside is checked by [`Tables::exists`] first. Mutations ignore expiry (replay has no clock): a caller
/// that finds an expired entry in its way deletes it first.
pub struct Tables {
    secrets: RapidSecrets,
    tables: BTreeMap<u16, Table>,
}

impl Tables {
    /// Empty tables, the 16 spaces of `default` in existence. `seed` keys the hash and must not be guessable by clients.
    pub fn new(seed: u64) -> Self {
        let tables = (0..SPACE_COUNT).map(|space| (space, Table::new())).collect();
        Tables { secrets: RapidSecrets::seed(seed), tables }
    }

    /// Makes a table exist. Nothing happens when it does already.
    pub fn create(&mut self, table: TableId) {
        self.tables.entry(table.0).or_default();
    }

    /// Ends a table; its contents become garbage. Nothing happens when it does not exist.
    pub fn remove(&mut self, table: TableId) {
        self.tables.remove(&table.0);
    }

    /// Whether a table exists.
    pub fn exists(&self, table: TableId) -> bool {
        self.tables.contains_key(&table.0)
    }

    /// The hash of a key, the same for all tables.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(rapidhash_v3_seeded(key, &self.secrets))
    }

    /// First stage of a look-up ahead of time: fetches the bucket.
    #[inline]
    pub fn prefetch_bucket(&self, table: TableId, hash: KeyHash) {
        let _ = (table, hash);
    }

    /// Second stage, some tens of nanoseconds after [`Tables::prefetch_bucket`]: fetches the entry.
    #[inline]
    pub fn prefetch_entry(&self, table: TableId, hash: KeyHash) {
        let _ = (table, hash);
    }

    /// The value of a key, unless it is absent or its expiry is at or before `now`.
    pub fn get(&self, table: TableId, hash: KeyHash, key: &[u8], now: UnixMs) -> Option<Value<'_>> {
        let _ = hash;
        self.table(table).get(key).filter(|e| e.expiry.is_none_or(|at| now < at)).map(|e| match &e.stored {
            Stored::String(bytes) => Value::String(StringRef { bytes }),
            Stored::Hash(fields) => Value::Hash(HashRef { fields }),
        })
    }

    /// The expiry of a key: `None` when it is absent or expired, `Some(None)` when it does not expire.
    pub fn expiry(&self, table: TableId, hash: KeyHash, key: &[u8], now: UnixMs) -> Option<Option<UnixMs>> {
        let _ = hash;
        self.table(table).get(key).filter(|e| e.expiry.is_none_or(|at| now < at)).map(|e| e.expiry)
    }

    /// Whether an entry is still there physically although its expiry has passed.
    pub fn is_expired(&self, table: TableId, hash: KeyHash, key: &[u8], now: UnixMs) -> bool {
        let _ = hash;
        self.table(table).get(key).is_some_and(|e| e.expiry.is_some_and(|at| at <= now))
    }

    /// Entries, expired ones that are not yet removed included.
    pub fn len(&self, table: TableId) -> usize {
        self.table(table).len()
    }

    /// Entries that have an expiry.
    pub fn expiring_len(&self, table: TableId) -> usize {
        self.table(table).values().filter(|e| e.expiry.is_some()).count()
    }

    /// Emits live entries from `position` (0 starts) on until about `count_min` were visited and gives the position
    /// to go on at, below 2^40; `None` when all were visited. An entry that stays is emitted at least once by a scan
    /// from start to end, whatever else changes in between; duplicates are possible.
    pub fn scan(
        &self,
        table: TableId,
        position: u64,
        count_min: usize,
        now: UnixMs,
        emit: &mut dyn FnMut(&[u8], ValueKind),
    ) -> Option<u64> {
        let _ = (position, count_min);
        for (key, entry) in self.table(table) {
            if entry.expiry.is_none_or(|at| now < at) {
                let kind = match entry.stored {
                    Stored::String(_) => ValueKind::String,
                    Stored::Hash(_) => ValueKind::Hash,
                };
                emit(key, kind);
            }
        }
        None
    }

    /// A live key chosen by a random number; `None` only when there is none.
    pub fn random(&self, table: TableId, random: u64, now: UnixMs) -> Option<&[u8]> {
        let _ = random;
        self.table(table)
            .iter()
            .find(|(_, e)| e.expiry.is_none_or(|at| now < at))
            .map(|(key, _)| key.as_slice())
    }

    /// Stores a string under a key, in place of whatever was there, with this expiry.
    pub fn put(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        value: StringValue<'_>,
        expiry: Option<UnixMs>,
    ) {
        let _ = hash;
        let bytes = match value {
            StringValue::Slice(slice) => Bytes::copy_from_slice(slice),
            StringValue::Shared(bytes) => bytes,
        };
        self.table_mut(table).insert(key.to_vec(), Entry { stored: Stored::String(bytes), expiry });
    }

    /// Overwrites or extends a string from `offset` on, filling a gap with zeros, and gives its new length. The expiry
    /// stays. An absent key, or one that holds a hash, counts as an empty string.
    pub fn patch(&mut self, table: TableId, hash: KeyHash, key: &[u8], offset: usize, bytes: &[u8]) -> usize {
        let _ = hash;
        let entry = self
            .table_mut(table)
            .entry(key.to_vec())
            .or_insert(Entry { stored: Stored::String(Bytes::new()), expiry: None });
        let mut old = match &entry.stored {
            Stored::String(old) => old.to_vec(),
            Stored::Hash(_) => Vec::new(),
        };
        old.resize(old.len().max(offset + bytes.len()), 0);
        old[offset..offset + bytes.len()].copy_from_slice(bytes);
        let len = old.len();
        entry.stored = Stored::String(old.into());
        len
    }

    /// Removes a key; whether it was there.
    pub fn delete(&mut self, table: TableId, hash: KeyHash, key: &[u8]) -> bool {
        let _ = hash;
        self.table_mut(table).remove(key).is_some()
    }

    /// Sets or removes the expiry of a key; whether the key was there.
    pub fn set_expiry(&mut self, table: TableId, hash: KeyHash, key: &[u8], expiry: Option<UnixMs>) -> bool {
        let _ = hash;
        match self.table_mut(table).get_mut(key) {
            Some(entry) => {
                entry.expiry = expiry;
                true
            }
            None => false,
        }
    }

    /// Sets fields of a hash and gives how many are new. The expiry stays. An absent key, or one that holds a string,
    /// counts as an empty hash.
    pub fn hash_put<'p>(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        pairs: &mut dyn Iterator<Item = (&'p [u8], &'p [u8])>,
    ) -> usize {
        let _ = hash;
        let entry = self
            .table_mut(table)
            .entry(key.to_vec())
            .or_insert(Entry { stored: Stored::Hash(Fields::new()), expiry: None });
        if matches!(entry.stored, Stored::String(_)) {
            entry.stored = Stored::Hash(Fields::new());
        }
        let Stored::Hash(fields) = &mut entry.stored else { return 0 };
        pairs.filter(|(field, value)| fields.insert(field.to_vec(), value.to_vec()).is_none()).count()
    }

    /// Removes fields of a hash and gives how many were there. The key goes with its last field.
    pub fn hash_delete<'p>(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        fields: &mut dyn Iterator<Item = &'p [u8]>,
    ) -> usize {
        let _ = hash;
        let table = self.table_mut(table);
        let Some(Entry { stored: Stored::Hash(stored), .. }) = table.get_mut(key) else { return 0 };
        let removed = fields.filter(|field| stored.remove(*field).is_some()).count();
        if stored.is_empty() {
            table.remove(key);
        }
        removed
    }

    /// Empties a table at once; the contents become garbage.
    pub fn flush(&mut self, table: TableId) {
        *self.table_mut(table) = Table::new();
    }

    /// Bytes the allocator holds for the live keys, values and index of a table.
    pub fn memory_used(&self, table: TableId) -> u64 {
        self.table(table).keys().map(|key| key.len() as u64 + 64).sum()
    }

    /// Bytes the allocator holds for the live keys, values and index of all tables.
    pub fn memory_used_total(&self) -> u64 {
        self.tables.keys().map(|&table| self.memory_used(TableId(table))).sum()
    }

    /// Bytes that [`Tables::collect_garbage`] has yet to free.
    pub fn garbage_bytes(&self) -> u64 {
        0
    }

    /// Frees garbage, at most `steps` entries or index pages; whether there is more.
    pub fn collect_garbage(&mut self, steps: usize) -> bool {
        let _ = steps;
        false
    }

    /// A dead huge value, to be dropped elsewhere.
    pub fn take_huge(&mut self) -> Option<HugeValue> {
        None
    }

    /// Finds entries whose expiry is at or before `now`, visiting at most about `budget` entries, and remembers its
    /// place. It removes nothing: the caller deletes what it was told of.
    pub fn sweep(
        &mut self,
        table: TableId,
        now: UnixMs,
        budget: usize,
        expired: &mut dyn FnMut(KeyHash, &[u8]),
    ) -> Sweep {
        let _ = budget;
        let secrets = self.secrets;
        let table = self.table_mut(table);
        for (key, _) in table.iter().filter(|(_, e)| e.expiry.is_some_and(|at| at <= now)) {
            expired(KeyHash(rapidhash_v3_seeded(key, &secrets)), key);
        }
        Sweep::Done { next_due: table.values().filter_map(|e| e.expiry).filter(|at| now < *at).min() }
    }

    fn table(&self, table: TableId) -> &Table {
        self.tables.get(&table.0).expect("the caller names an existing table")
    }

    fn table_mut(&mut self, table: TableId) -> &mut Table {
        self.tables.get_mut(&table.0).expect("the caller names an existing table")
    }
}
