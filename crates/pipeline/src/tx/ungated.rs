//! Access to the data that joins no gate. Each function says why: because it shows no data, because
//! its callers join the gate of the whole table ([`Tx::join_table_gate`]), or because the reply may
//! show what is not yet durable.

use busload_tables::{KeyHash, TableId, ValueKind};

use super::{Key, Tx};
use crate::session::Session;

impl Tx {
    /// Hashes a key, which shows no data.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        self.tables.hash(key)
    }

    /// Returns whether the key is there but expired. No reply shows it; it decides whether a
    /// delete is logged, and whether a watched key counts as changed.
    pub(crate) fn is_expired(&self, key: &Key<'_>) -> bool {
        self.tables.is_expired(key.table, key.hash, key.bytes, self.now_ms)
    }

    /// Returns whether the key has a value, for WATCH: its reply shows nothing, and EXEC joins the
    /// gates of the watched keys.
    pub(crate) fn is_live_for_watch(&self, key: &Key<'_>) -> bool {
        self.tables.get(key.table, key.hash, key.bytes, self.now_ms).is_some()
    }

    /// Returns whether Redis would keep the value in its general form
    /// ([`is_general`](busload_tables::Tables::is_general)). Callers read the key as well, which
    /// joins its gate.
    pub(crate) fn is_general(&self, key: &Key<'_>) -> bool {
        self.tables.is_general(key.table, key.hash, key.bytes)
    }

    /// Makes [`Tx::is_general`] true for a key that exists. It has no effect, so a replay does not
    /// restore it.
    pub(crate) fn make_general(&mut self, key: &Key<'_>) {
        self.tables.make_general(key.table, key.hash, key.bytes);
    }

    /// Makes the reads that follow count for the eviction, or not: which shows no data.
    pub(crate) fn count_uses_of(&mut self, session: &Session) {
        self.tables.count_uses(!session.no_touch);
    }

    /// Returns the number of entries of a table. Callers join the table's gate, except INFO, which
    /// must answer while the disk hangs.
    pub(crate) fn key_count(&self, table: TableId) -> usize {
        self.tables.len(table)
    }

    /// Returns the number of entries with an expiry, for INFO.
    pub(crate) fn expiring_key_count(&self, table: TableId) -> usize {
        self.tables.expiring_len(table)
    }

    /// Returns the bytes of a table, for INFO.
    pub(crate) fn table_bytes(&self, table: TableId) -> u64 {
        self.tables.memory_used(table)
    }

    /// Returns the bytes of all tables, and the garbage that is not yet freed, for INFO.
    pub(crate) fn memory_and_garbage(&self) -> (u64, u64) {
        (self.tables.memory_used_total(), self.tables.garbage_bytes())
    }

    /// Returns a random live key of a table. Callers join the table's gate.
    pub(crate) fn random_key(&self, table: TableId, random: u64) -> Option<&[u8]> {
        self.tables.random(table, random, self.now_ms)
    }

    /// Emits live keys from a position on ([`scan`](busload_tables::Tables::scan)). Callers join
    /// the table's gate.
    pub(crate) fn scan(
        &self,
        table: TableId,
        position: u64,
        count_min: usize,
        emit: &mut dyn FnMut(&[u8], ValueKind),
    ) -> Option<u64> {
        self.tables.scan(table, position, count_min, self.now_ms, emit)
    }

    /// Emits live keys in the order of their hashes
    /// ([`scan_once`](busload_tables::Tables::scan_once)). Callers join the table's gate.
    pub(crate) fn scan_once(
        &self,
        table: TableId,
        from: KeyHash,
        emit: &mut dyn FnMut(&[u8]),
        go_on: &mut dyn FnMut() -> bool,
    ) -> Option<KeyHash> {
        self.tables.scan_once(table, from, self.now_ms, emit, go_on)
    }
}
