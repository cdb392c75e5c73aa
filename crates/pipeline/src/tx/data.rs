//! Access to the data: every read joins the gate of what it read, every change writes its effect
//! into the transaction's log record. Reads that join no gate are in `ungated.rs`; commands have no
//! other way to the tables.

use busload_log::SyncPolicy;
use busload_tables::{KeyHash, StringValue, TableId, UnixMs, Value, ValueKind, effect};
use bytes::Bytes;

use super::{DeferredPut, Tx, catalog::Logging, watch::KeyIs};
use crate::{
    args::Args,
    gate::{Gate, Level},
    session::Session,
};

/// Key and the table it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// Memory table of the key.
    pub table: TableId,
    /// Hash of the whole key.
    pub hash: KeyHash,
    /// Bytes of the whole key, the table's prefix included.
    pub bytes: &'a [u8],
}

/// Changes that the current transaction has made so far.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Keys that were changed.
    keys: Vec<(TableId, KeyHash)>,
    /// Tables that were flushed.
    flushed: Vec<TableId>,
    /// Policy of the open record, if one is open.
    record: Option<SyncPolicy>,
}

impl Tx {
    /// Returns the time of this batch, in Unix milliseconds; never below a time already in the log.
    pub fn now(&self) -> UnixMs {
        self.now_ms
    }

    /// Returns the key with its hash and memory table.
    #[inline]
    pub fn key<'a>(&self, session: &Session, bytes: &'a [u8]) -> Key<'a> {
        self.key_hashed(session, bytes, self.tables.hash(bytes))
    }

    /// Returns what [`Tx::key`] does, for a known hash.
    #[inline]
    pub fn key_hashed<'a>(&self, session: &Session, bytes: &'a [u8], hash: KeyHash) -> Key<'a> {
        Key { table: self.catalog.memory_table(session.space, bytes), hash, bytes }
    }

    /// Returns what [`Tx::key`] does, for a client in this space.
    pub fn key_in<'a>(&self, space: u16, bytes: &'a [u8]) -> Key<'a> {
        Key { table: self.catalog.memory_table(space, bytes), hash: self.tables.hash(bytes), bytes }
    }

    /// Prefetches the index entries of the keys.
    pub fn prefetch(&self, keys: &[Key<'_>]) {
        for key in keys {
            self.tables.prefetch_bucket(key.table, key.hash);
        }
        for key in keys {
            self.tables.prefetch_entry(key.table, key.hash);
        }
    }

    /// Returns the keys from argument `first` on, every `step`-th, prefetched.
    pub fn keys<'a>(
        &self,
        session: &Session,
        args: &Args<'a>,
        first: usize,
        step: usize,
    ) -> Vec<Key<'a>> {
        let keys: Vec<Key<'a>> =
            args.iter_from(first).step_by(step).map(|bytes| self.key(session, bytes)).collect();
        self.prefetch(&keys);
        keys
    }

    /// Returns the value; an expired one counts as absent.
    #[inline]
    pub fn get(&self, key: &Key<'_>) -> Option<Value<'_>> {
        self.join_gate(self.filter.of_key(key.table, key.hash));
        self.tables.get(key.table, key.hash, key.bytes, self.now_ms)
    }

    /// Returns what [`Tx::get`] does for a key that the caller has locked: the key stays until the
    /// lock is released, even when it expires meanwhile.
    pub(crate) fn get_locked(&self, key: &Key<'_>) -> Option<Value<'_>> {
        self.join_gate(self.filter.of_key(key.table, key.hash));
        self.tables.get(key.table, key.hash, key.bytes, UnixMs::MIN)
    }

    /// Returns what [`Tx::get`] does and counts a hit or miss, and a use if the table evicts.
    #[inline]
    pub fn read(&self, key: &Key<'_>) -> Option<Value<'_>> {
        self.join_gate(self.filter.of_key(key.table, key.hash));
        let value = self.tables.read(key.table, key.hash, key.bytes, self.now_ms);
        match value {
            Some(_) => self.stats.keyspace_hits_total.add(1),
            None => self.stats.keyspace_misses_total.add(1),
        }
        value
    }

    /// Returns the kind of the key's value, if it has one.
    pub fn kind(&self, key: &Key<'_>) -> Option<ValueKind> {
        self.get(key).map(|value| value.kind())
    }

    /// Returns when the key expires: `None` when it is absent, `Some(None)` when it never expires.
    pub fn expiry(&self, key: &Key<'_>) -> Option<Option<UnixMs>> {
        self.join_gate(self.filter.of_key(key.table, key.hash));
        self.tables.expiry(key.table, key.hash, key.bytes, self.now_ms)
    }

    /// Joins the gate of the last change to any key of the table, for replies that show it as a
    /// whole.
    pub fn join_table_gate(&self, table: TableId) {
        self.join_gate(self.filter.of_table(table));
    }

    /// Deletes the key if it is there but expired. A handler calls it before a change that builds
    /// on the old value (a put does not), so that the log contains the delete: replay knows no
    /// clock.
    pub fn drop_if_expired(&mut self, key: &Key<'_>) {
        if self.tables.is_expired(key.table, key.hash, key.bytes, self.now_ms) {
            self.delete(key);
            self.stats.expired_keys_total.add(1);
        }
    }

    /// Sets a string, whatever was there; `expiry` is in Unix milliseconds.
    pub fn put(&mut self, key: &Key<'_>, value: StringValue<'_>, expiry: Option<UnixMs>) {
        if self.defer_put {
            let value = match value {
                StringValue::Slice(bytes) => StringValue::Shared(Bytes::copy_from_slice(bytes)),
                StringValue::Shared(bytes) => StringValue::Shared(bytes),
                StringValue::Grown(bytes) => StringValue::Grown(bytes),
            };
            let (table, hash, key) = (key.table, key.hash, Bytes::copy_from_slice(key.bytes));
            self.deferred_put = Some(DeferredPut { table, hash, key, value, expiry });
            return;
        }
        if self.open_record(key.table) {
            match &value {
                StringValue::Slice(bytes) => {
                    effect::put(self.log.record(), key.table, key.bytes, bytes, expiry);
                }
                StringValue::Grown(bytes) => {
                    effect::put(self.log.record(), key.table, key.bytes, bytes, expiry);
                }
                StringValue::Shared(bytes) => {
                    effect::put_header(
                        self.log.record(),
                        key.table,
                        key.bytes,
                        expiry,
                        bytes.len(),
                    );
                    self.log.append_shared(bytes.clone());
                }
            }
        }
        self.tables.put(key.table, key.hash, key.bytes, value, expiry);
        self.key_changed(key, KeyIs::There);
    }

    /// Overwrites part of a string, extending it (with zeros over a gap), creating it when absent;
    /// keeps the expiry. The key must not hold another kind. Returns the new length.
    pub fn patch(&mut self, key: &Key<'_>, offset: usize, bytes: &[u8]) -> usize {
        self.drop_if_expired(key);
        if self.open_record(key.table) {
            effect::patch(self.log.record(), key.table, key.bytes, offset, bytes);
        }
        let length = self.tables.patch(key.table, key.hash, key.bytes, offset, bytes);
        self.key_changed(key, KeyIs::There);
        length
    }

    /// Deletes the key. Returns false when it was absent (an expired one is deleted, but was
    /// absent).
    pub fn delete(&mut self, key: &Key<'_>) -> bool {
        self.join_gate(self.filter.of_key(key.table, key.hash));
        let live = self.tables.get(key.table, key.hash, key.bytes, self.now_ms).is_some();
        if !live && !self.tables.is_expired(key.table, key.hash, key.bytes, self.now_ms) {
            return false;
        }
        if self.open_record(key.table) {
            effect::delete(self.log.record(), key.table, key.bytes);
        }
        self.tables.delete(key.table, key.hash, key.bytes);
        self.key_changed(key, KeyIs::Gone);
        live
    }

    /// Sets or removes the expiry of a key that is there.
    pub fn set_expiry(&mut self, key: &Key<'_>, expiry: Option<UnixMs>) {
        self.drop_if_expired(key);
        if self.open_record(key.table) {
            encode_expiry(self.log.record(), key, expiry);
        }
        self.tables.set_expiry(key.table, key.hash, key.bytes, expiry);
        self.key_changed(key, KeyIs::There);
    }

    /// Sets fields of a hash, creating it when absent; keeps the expiry. The key must not hold
    /// another kind. Returns how many fields are new.
    pub fn hash_put<'p>(
        &mut self,
        key: &Key<'_>,
        pairs: impl ExactSizeIterator<Item = (&'p [u8], &'p [u8])> + Clone,
    ) -> usize {
        self.drop_if_expired(key);
        if self.open_record(key.table) {
            encode_hash_put(self.log.record(), key, pairs.clone());
        }
        let mut pairs = pairs;
        let added = self.tables.hash_put(key.table, key.hash, key.bytes, &mut pairs);
        self.key_changed(key, KeyIs::There);
        added
    }

    /// Removes fields, and the key with its last one. Returns how many fields were there.
    pub fn hash_delete<'p>(
        &mut self,
        key: &Key<'_>,
        fields: impl ExactSizeIterator<Item = &'p [u8]> + Clone,
    ) -> usize {
        self.drop_if_expired(key);
        let any = match self.get(key) {
            Some(Value::Hash(hash)) => fields.clone().any(|field| hash.get(field).is_some()),
            _ => false,
        };
        if !any {
            return 0;
        }
        if self.open_record(key.table) {
            let record = self.log.record();
            effect::hash_delete_header(record, key.table, key.bytes, fields.len());
            fields.clone().for_each(|field| effect::hash_delete_field(record, field));
        }
        let mut fields = fields;
        let removed = self.tables.hash_delete(key.table, key.hash, key.bytes, &mut fields);
        self.key_changed(key, KeyIs::Gone);
        removed
    }

    /// Makes `to` a copy of `from` (which must be there), with this expiry, whatever `to` was.
    pub fn copy(&mut self, from: &Key<'_>, to: &Key<'_>, expiry: Option<UnixMs>) {
        let mut effects = std::mem::take(&mut self.scratch);
        effects.clear();
        match self.get(from).expect("the caller looked the key up") {
            Value::String(value) => match value.shared() {
                Some(bytes) => {
                    self.put(to, StringValue::Shared(bytes), expiry);
                    self.scratch = effects;
                    return;
                }
                None => effect::put(&mut effects, to.table, to.bytes, value.as_slice(), expiry),
            },
            Value::Hash(hash) => {
                effect::delete(&mut effects, to.table, to.bytes);
                effect::hash_put_header(&mut effects, to.table, to.bytes, hash.len());
                hash.iter()
                    .for_each(|(field, value)| effect::hash_put_pair(&mut effects, field, value));
                if expiry.is_some() {
                    encode_expiry(&mut effects, to, expiry);
                }
            }
        }
        if self.open_record(to.table) {
            self.log.record().extend_from_slice(&effects);
        }
        for effect in effect::decode(&effects) {
            let effect = effect.expect("effects just encoded decode");
            effect::apply(&mut self.tables, effect).expect("the table of a key exists");
        }
        self.key_changed(to, KeyIs::There);
        effects.clear();
        effects.shrink_to(SCRATCH_BYTES_KEPT);
        self.scratch = effects;
    }

    /// Removes all keys of the table.
    pub fn flush(&mut self, table: TableId) {
        if self.tables.len(table) == 0 {
            self.join_table_gate(table);
            return;
        }
        if self.open_record(table) {
            effect::flush(self.log.record(), table);
        }
        self.tables.flush(table);
        self.watches.table_flushed(table);
        self.changes.flushed.push(table);
        self.any_change = true;
    }

    /// Ends the transaction: one record, one LSN; the reply waits for it.
    pub(super) fn commit(&mut self) {
        if !self.any_change {
            return;
        }
        self.any_change = false;
        let changes = &mut self.changes;
        let own = match changes.record.take() {
            None => Gate::OPEN,
            Some(policy) => {
                debug_assert!(
                    self.log.record_bytes() <= self.reservation_granted,
                    "{} bytes are logged, {} were reserved",
                    self.log.record_bytes(),
                    self.reservation_granted
                );
                let lsn = self.log.commit(policy);
                self.records_open += 1;
                let level =
                    if policy == SyncPolicy::Always { Level::Durable } else { Level::Written };
                Gate::at(lsn, level)
            }
        };
        // The change may show what the transaction read, whatever table it goes to: so it waits for
        // that, too.
        let gate = self.gate.get().join(own);
        self.gate.set(gate);
        if gate != Gate::OPEN {
            for &(table, hash) in &changes.keys {
                self.filter.key_changed(table, hash, gate);
            }
            for &table in &changes.flushed {
                self.filter.table_flushed(table, gate);
            }
        }
        changes.keys.clear();
        changes.flushed.clear();
    }

    /// Opens the transaction's record if the table is logged, and makes its policy at least as
    /// strict as the table's.
    #[inline]
    pub(super) fn open_record(&mut self, table: TableId) -> bool {
        let Logging::On(policy) = self.catalog.logging(table) else { return false };
        let record = &mut self.changes.record;
        *record = Some(match *record {
            None => {
                self.log.begin();
                policy
            }
            Some(earlier) => stricter(earlier, policy),
        });
        true
    }

    #[inline]
    pub(super) fn key_changed(&mut self, key: &Key<'_>, now: KeyIs) {
        if !self.watches.is_empty() {
            self.watches.key_changed(key, now);
        }
        self.changes.keys.push((key.table, key.hash));
        self.any_change = true;
    }

    /// Returns the gate of the current command so far.
    pub(super) fn gate(&self) -> Gate {
        self.gate.get()
    }

    #[inline]
    pub(super) fn join_gate(&self, gate: Gate) {
        if gate != Gate::OPEN {
            self.gate.set(self.gate.get().join(gate));
        }
    }
}

const SCRATCH_BYTES_KEPT: usize = 1024 * 1024;

fn encode_expiry(record: &mut Vec<u8>, key: &Key<'_>, expiry: Option<UnixMs>) {
    match expiry {
        Some(at) => effect::expire(record, key.table, key.bytes, at),
        None => effect::persist(record, key.table, key.bytes),
    }
}

fn encode_hash_put<'p>(
    record: &mut Vec<u8>,
    key: &Key<'_>,
    pairs: impl ExactSizeIterator<Item = (&'p [u8], &'p [u8])>,
) {
    effect::hash_put_header(record, key.table, key.bytes, pairs.len());
    pairs.for_each(|(field, value)| effect::hash_put_pair(record, field, value));
}

pub(super) fn stricter(a: SyncPolicy, b: SyncPolicy) -> SyncPolicy {
    match (a, b) {
        (SyncPolicy::Always, _) | (_, SyncPolicy::Always) => SyncPolicy::Always,
        (SyncPolicy::Interval(a), SyncPolicy::Interval(b)) => SyncPolicy::Interval(a.min(b)),
        (SyncPolicy::Interval(a), SyncPolicy::Os) | (SyncPolicy::Os, SyncPolicy::Interval(a)) => {
            SyncPolicy::Interval(a)
        }
        (SyncPolicy::Os, SyncPolicy::Os) => SyncPolicy::Os,
    }
}
