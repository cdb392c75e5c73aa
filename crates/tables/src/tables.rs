//! All memory tables and the operations on them.

use bytes::{Bytes, BytesMut};

use crate::eviction::{Eviction, Victim};
use crate::fields;
use crate::hasher::Hasher;
use crate::index::{EntryRef, Heap, Index, NewContent};
use crate::limits::{SHARED_BYTES_MIN, SPACE_COUNT};
use crate::value::{self, Value, ValueKind};

/// Time in milliseconds since the Unix epoch.
pub type UnixMs = i64;

/// Id of a table. 0 to 15 are the spaces of the table `default` that `SELECT` chooses from; named
/// tables follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u16);

/// Hash of a key, computed by [`Tables::hash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

/// First bits that hashes have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashPrefix {
    /// Number of these bits, 0 to 63.
    pub bits: u32,
    /// Value of the bits.
    pub value: u64,
}

impl HashPrefix {
    /// Prefix of all hashes.
    pub const ALL: Self = Self { bits: 0, value: 0 };

    /// Returns the prefix of a hash, of so many bits.
    #[inline]
    pub fn of(KeyHash(hash): KeyHash, bits: u32) -> Self {
        Self { bits, value: if bits == 0 { 0 } else { hash >> (u64::BITS - bits) } }
    }
}

/// String to be stored under a key.
#[derive(Clone, Debug)]
pub enum StringValue<'a> {
    /// A string that is copied into the table.
    Slice(&'a [u8]),
    /// A string that is kept by reference if it is long enough, and copied otherwise. It must not
    /// be a small part of a large buffer, which would stay in memory with it.
    Shared(Bytes),
    /// A string that is kept as it is if it is long enough, with its capacity to grow.
    Grown(BytesMut),
}

/// Result of a [`Tables::sweep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// The budget ended before everything due was found: call again.
    More,
    /// Nothing is due any more. `next_due` is a lower bound of the earliest expiry, if anything
    /// expires at all.
    Done {
        /// Time before which nothing in the table expires.
        next_due: Option<UnixMs>,
    },
}

/// Dead value of a megabyte or more. Dropping it can take long: do that on a thread for which
/// nobody waits.
#[derive(Debug)]
pub struct HugeValue {
    bytes: Bytes,
}

impl HugeValue {
    /// Returns the length of the dead value.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Entry of a table, with everything that a snapshot keeps of it.
#[derive(Clone, Copy)]
pub struct TableEntry<'a> {
    /// Key of the entry.
    pub key: &'a [u8],
    /// Value of the key.
    pub value: Value<'a>,
    /// Time when the key expires; it may have passed.
    pub expiry: Option<UnixMs>,
    /// Result of [`Tables::is_general`] for the key.
    pub is_general: bool,
}

/// All memory tables of a process.
///
/// Operations on a table that does not exist panic: the caller knows which tables exist, and checks
/// ids from outside with [`Tables::exists`] first. Mutations ignore expiry (replay has no clock): a
/// caller that finds an expired entry in its way deletes it first.
pub struct Tables {
    pub(crate) hasher: Hasher,
    pub(crate) heap: Heap,
    tables: Vec<Option<Table>>,
    counts_uses: bool,
}

/// Entries of one table, and how it evicts.
struct Table {
    index: Index,
    /// Policy that chooses what to evict, if the table is a cache.
    eviction: Option<Box<Eviction>>,
}

impl Table {
    fn new() -> Self {
        Table { index: Index::new(), eviction: None }
    }

    /// Changes the policy, if there is one, and accounts its memory.
    fn with_eviction<R>(
        &mut self,
        heap: &mut Heap,
        change: impl FnOnce(&mut Eviction, &Index) -> R,
    ) -> Option<R> {
        let eviction = self.eviction.as_mut()?;
        let before = eviction.held_bytes();
        let result = change(eviction, &self.index);
        heap.live_bytes = heap.live_bytes + eviction.held_bytes() - before;
        Some(result)
    }

    /// Adds a new key to the eviction. Out of line: most tables evict nothing.
    #[inline(never)]
    fn admit(&mut self, heap: &mut Heap, hasher: &Hasher, hash: KeyHash, key: &[u8]) {
        self.with_eviction(heap, |eviction, index| eviction.admit(index, hasher, hash.0, key));
    }
}

impl Tables {
    /// Creates empty tables: the 16 spaces of `default`. `seed` keys the hash and must not be
    /// guessable by clients.
    pub fn new(seed: u64) -> Self {
        let tables = (0..SPACE_COUNT).map(|_| Some(Table::new())).collect();
        Tables { hasher: Hasher::new(seed), heap: Heap::new(), tables, counts_uses: true }
    }

    /// Creates a table. Does nothing if it exists already.
    pub fn create(&mut self, table: TableId) {
        let at = usize::from(table.0);
        if self.tables.len() <= at {
            self.tables.resize_with(at + 1, || None);
        }
        self.tables[at].get_or_insert_with(Table::new);
    }

    /// Prepares an empty table for about so many entries whose hashes have this prefix, so that
    /// they can be put faster, above all in the order of their hashes. It takes others and more of
    /// them all the same. Does nothing if the table has entries.
    pub fn reserve(&mut self, table: TableId, entries: usize, prefix: HashPrefix) {
        let (index, heap, _) = self.parts(table);
        index.reserve(heap, entries, prefix);
    }

    /// Removes a table; its contents become garbage. Does nothing if it does not exist.
    pub fn remove(&mut self, table: TableId) {
        if let Some(mut table) = self.tables.get_mut(usize::from(table.0)).and_then(Option::take) {
            table.with_eviction(&mut self.heap, |eviction, _| eviction.clear());
            self.heap.bury_index(table.index);
        }
    }

    /// Returns whether a table exists.
    #[inline]
    pub fn exists(&self, table: TableId) -> bool {
        self.tables.get(usize::from(table.0)).is_some_and(Option::is_some)
    }

    /// Returns the hash of a key, the same for all tables.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.hasher.hash(key))
    }

    /// Prefetches the bucket of a key: the first stage of a look-up ahead of time.
    #[inline]
    pub fn prefetch_bucket(&self, table: TableId, hash: KeyHash) {
        self.table(table).prefetch_bucket(hash.0);
    }

    /// Prefetches more than the first stage does, for a key that will probably be inserted or
    /// removed.
    #[inline]
    pub fn prefetch_write(&self, table: TableId, hash: KeyHash) {
        self.table(table).prefetch_header(hash.0);
    }

    /// Prefetches the entry of a key: the second stage, some tens of nanoseconds after
    /// [`Tables::prefetch_bucket`].
    #[inline]
    pub fn prefetch_entry(&self, table: TableId, hash: KeyHash) {
        self.table(table).prefetch_entry(hash.0);
    }

    /// Returns the value of a key, unless it is absent or its expiry is at or before `now`.
    #[inline]
    pub fn get(&self, table: TableId, hash: KeyHash, key: &[u8], now: UnixMs) -> Option<Value<'_>> {
        self.live(table, hash, key, now).map(|entry| Value::new(entry.content(), &self.hasher))
    }

    /// Returns what [`Tables::get`] does, and counts a use for the eviction if the table evicts.
    #[inline]
    pub fn read(
        &self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        now: UnixMs,
    ) -> Option<Value<'_>> {
        let entry = self.live(table, hash, key, now)?;
        if entry.lacks_uses() && self.counts_uses {
            entry.note_use();
        }
        Some(Value::new(entry.content(), &self.hasher))
    }

    /// Decides whether [`Tables::read`] counts uses from now on.
    pub fn count_uses(&mut self, counts_uses: bool) {
        self.counts_uses = counts_uses;
    }

    /// Returns the expiry of a key: `None` when it is absent or expired, `Some(None)` when it does
    /// not expire.
    pub fn expiry(
        &self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        now: UnixMs,
    ) -> Option<Option<UnixMs>> {
        self.live(table, hash, key, now).map(EntryRef::expiry)
    }

    /// Returns whether an entry is physically still there although its expiry has passed.
    #[inline]
    pub fn is_expired(&self, table: TableId, hash: KeyHash, key: &[u8], now: UnixMs) -> bool {
        self.table(table).find(hash.0, key).is_some_and(|entry| !entry.is_live(now))
    }

    /// Returns whether Redis would keep the value of this key in its general form (`raw`,
    /// `hashtable`) because of its history, even if it would fit into a compact form by now. For a
    /// string: [`Tables::patch`] has written parts of it since it was put. For a hash: since its
    /// first field was set, it has had more fields, or a longer one, than [`crate::limits`] allows
    /// for compact hashes.
    pub fn is_general(&self, table: TableId, hash: KeyHash, key: &[u8]) -> bool {
        self.table(table).find(hash.0, key).is_some_and(|entry| entry.is_general())
    }

    /// Makes [`Tables::is_general`] true for a key that exists: for a copy of such a value, or a
    /// patch that changes nothing. It has no effect of its own, so a replay does not restore it.
    pub fn make_general(&mut self, table: TableId, hash: KeyHash, key: &[u8]) {
        let (index, _, _) = self.parts(table);
        index.make_general(hash.0, key);
    }

    /// Returns the number of entries, including expired ones that are not yet removed.
    pub fn len(&self, table: TableId) -> usize {
        self.table(table).len()
    }

    /// Returns whether a table has no entries, not even expired ones.
    pub fn is_empty(&self, table: TableId) -> bool {
        self.len(table) == 0
    }

    /// Returns the number of entries that have an expiry.
    pub fn expiring_len(&self, table: TableId) -> usize {
        self.table(table).expiring_len()
    }

    /// Emits live entries from `position` (0 starts) on until about `count_min` were visited.
    /// Returns the position to continue at, below 2^40; `None` when all were visited. An entry that
    /// stays is emitted at least once by a scan from start to end, whatever else changes in
    /// between; duplicates are possible.
    pub fn scan(
        &self,
        table: TableId,
        position: u64,
        count_min: usize,
        now: UnixMs,
        emit: &mut dyn FnMut(&[u8], ValueKind),
    ) -> Option<u64> {
        self.table(table).scan(position, count_min, |entry| {
            if entry.is_live(now) {
                emit(entry.key(), value::kind(entry.content()));
            }
        })
    }

    /// Emits live keys from `from` (0 starts) on until `go_on`, called every few entries, returns
    /// false. Returns the position to continue at. A key that stays is emitted exactly once by a
    /// scan from start to end, whatever else changes in between.
    pub fn scan_once(
        &self,
        table: TableId,
        from: KeyHash,
        now: UnixMs,
        emit: &mut dyn FnMut(&[u8]),
        go_on: &mut dyn FnMut() -> bool,
    ) -> Option<KeyHash> {
        let emit_live = |entry: EntryRef<'_>| {
            if entry.is_live(now) {
                emit(entry.key());
            }
        };
        self.table(table)
            .scan_once(from.0, |key| self.hasher.hash(key), emit_live, go_on)
            .map(KeyHash)
    }

    /// Iterates over the tables that exist, in order of their ids.
    pub fn ids(&self) -> impl Iterator<Item = TableId> + '_ {
        let tables = (0..).map(TableId).zip(&self.tables);
        tables.filter(|(_, index)| index.is_some()).map(|(id, _)| id)
    }

    /// Iterates over all entries of a table, expired ones included, in no order.
    pub fn entries(&self, table: TableId) -> impl Iterator<Item = TableEntry<'_>> + '_ {
        self.table(table).iter().map(|entry| TableEntry {
            key: entry.key(),
            value: Value::new(entry.content(), &self.hasher),
            expiry: entry.expiry(),
            is_general: entry.is_general(),
        })
    }

    /// Returns a live key chosen by a random number, about fairly. `None` when none was found among
    /// some thousand entries from a random one on: then there is none, or nearly all entries are
    /// expired.
    pub fn random(&self, table: TableId, random: u64, now: UnixMs) -> Option<&[u8]> {
        self.table(table).random(random, |entry| entry.is_live(now)).map(EntryRef::key)
    }

    /// Stores a string with this expiry under a key and replaces whatever was there.
    #[inline]
    pub fn put(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        value: StringValue<'_>,
        expiry: Option<UnixMs>,
    ) {
        let small;
        let content = match value {
            StringValue::Slice(slice) => NewContent::Slice(slice),
            StringValue::Shared(bytes) if SHARED_BYTES_MIN <= bytes.len() => {
                NewContent::Shared(bytes)
            }
            StringValue::Grown(bytes) if SHARED_BYTES_MIN <= bytes.len() => {
                NewContent::Grown(bytes)
            }
            StringValue::Shared(bytes) => {
                small = bytes;
                NewContent::Slice(&small)
            }
            StringValue::Grown(bytes) => {
                small = bytes.freeze();
                NewContent::Slice(&small)
            }
        };
        self.change(table, hash, key, |index, heap, hasher| {
            index.put(heap, hasher, hash.0, key, content, expiry)
        });
    }

    /// Overwrites or extends a string from `offset` on, fills a gap with zeros, and returns its new
    /// length. The expiry stays. An absent key, or one that holds a hash, counts as an empty
    /// string. Repeated extension costs amortised constant time per byte, unless references to the
    /// value are still held elsewhere.
    pub fn patch(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        offset: usize,
        bytes: &[u8],
    ) -> usize {
        self.change(table, hash, key, |index, heap, hasher| {
            index.patch(heap, hasher, hash.0, key, offset, bytes)
        })
    }

    /// Returns how many bytes [`Tables::patch`] would copy or clear besides those of the patch:
    /// next to none when the value has spare capacity and nobody else holds it.
    pub fn patch_copies(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        offset: usize,
        len: usize,
    ) -> usize {
        let (index, ..) = self.parts(table);
        index.patch_copies(hash.0, key, offset, len)
    }

    /// Removes a key; returns whether it was there.
    pub fn delete(&mut self, table: TableId, hash: KeyHash, key: &[u8]) -> bool {
        let (index, heap, _) = self.parts(table);
        index.delete(heap, hash.0, key)
    }

    /// Sets or removes the expiry of a key; returns whether the key was there.
    pub fn set_expiry(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        expiry: Option<UnixMs>,
    ) -> bool {
        let (index, heap, _) = self.parts(table);
        index.set_expiry(heap, hash.0, key, expiry)
    }

    /// Sets fields of a hash and returns how many are new. The expiry stays. An absent key, or one
    /// that holds a string, counts as an empty hash. Without pairs nothing happens.
    pub fn hash_put<'p>(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        pairs: &mut dyn Iterator<Item = (&'p [u8], &'p [u8])>,
    ) -> usize {
        self.change(table, hash, key, |index, heap, hasher| {
            fields::put(index, heap, hasher, hash.0, key, pairs)
        })
    }

    /// Removes fields of a hash and returns how many were there. Removing the last field removes
    /// the key.
    pub fn hash_delete(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        fields: &mut dyn Iterator<Item = &[u8]>,
    ) -> usize {
        let (index, heap, hasher) = self.parts(table);
        fields::delete(index, heap, hasher, hash.0, key, fields)
    }

    /// Empties a table at once; the contents become garbage.
    pub fn flush(&mut self, table: TableId) {
        let (table, heap, _) = self.whole(table);
        table.with_eviction(heap, |eviction, _| eviction.clear());
        heap.bury_index(std::mem::replace(&mut table.index, Index::new()));
    }

    /// Makes a table a cache from now on: [`Tables::choose_victim`] finds what to evict. It passes
    /// over all entries, which nobody should wait for. Does nothing if the table is one already.
    pub fn start_eviction(&mut self, table: TableId) {
        let (table, heap, _) = self.whole(table);
        if table.eviction.is_none() {
            table.eviction = Some(Box::default());
            table.with_eviction(heap, |eviction, index| eviction.start(index));
        }
    }

    /// Chooses the entry to evict next from a table for which [`Tables::start_eviction`] was
    /// called, and stores its key in `key`: one whose expiry is at or before `now` if it comes
    /// across one, and only one for whose hash `may_evict` holds. `None` when it found none in a
    /// bounded part of the table. It removes nothing: the caller deletes the entry, or leaves it.
    pub fn choose_victim(
        &mut self,
        table: TableId,
        now: UnixMs,
        may_evict: &mut dyn FnMut(KeyHash) -> bool,
        key: &mut Vec<u8>,
    ) -> Option<Victim> {
        key.clear();
        let (table, heap, hasher) = self.whole(table);
        let choose = |eviction: &mut Eviction, index: &Index| {
            eviction.choose(index, hasher, now, may_evict, key)
        };
        table.with_eviction(heap, choose)?
    }

    /// Returns the bytes that the allocator holds for the live keys, values and index of a table,
    /// and for the policy of its eviction.
    pub fn memory_used(&self, table: TableId) -> u64 {
        let of = self.tables.get(usize::from(table.0)).and_then(Option::as_ref);
        let of = of.expect("the caller names an existing table");
        of.index.bytes() + of.eviction.as_ref().map_or(0, |eviction| eviction.held_bytes())
    }

    /// Returns the bytes that the allocator holds for the live keys, values and index of all
    /// tables.
    pub fn memory_used_total(&self) -> u64 {
        self.heap.live_bytes
    }

    /// Returns the bytes that [`Tables::collect_garbage`] has yet to free and [`Tables::take_huge`]
    /// has yet to hand out.
    pub fn garbage_bytes(&self) -> u64 {
        self.heap.garbage_bytes
    }

    /// Frees garbage, about `steps` entries or index pages; returns whether there is more.
    pub fn collect_garbage(&mut self, steps: usize) -> bool {
        self.heap.collect(steps)
    }

    /// Returns a dead huge value, to be dropped elsewhere.
    pub fn take_huge(&mut self) -> Option<HugeValue> {
        self.heap.take_dead_value().map(|bytes| HugeValue { bytes })
    }

    /// Finds entries whose expiry is at or before `now`, visiting at most about `budget` entries
    /// (one segment, under 900 entries, at least), and remembers its position. It removes nothing:
    /// the caller deletes the emitted entries; those that it leaves are found again.
    ///
    /// Costs nothing while nothing is due. Otherwise a pass looks into every part of the table that
    /// holds something due, so when expiries are spread over all keys the caller bounds the work by
    /// how often it calls.
    pub fn sweep(
        &mut self,
        table: TableId,
        now: UnixMs,
        budget: usize,
        expired: &mut dyn FnMut(KeyHash, &[u8]),
    ) -> Sweep {
        let (index, _, hasher) = self.parts(table);
        index.sweep(now, budget, |entry| expired(KeyHash(hasher.hash(entry.key())), entry.key()))
    }

    /// Returns the bytes of the policy of a table's eviction.
    #[cfg(test)]
    pub(crate) fn eviction_bytes(&self, table: TableId) -> u64 {
        let of = self.tables[usize::from(table.0)].as_ref();
        of.and_then(|table| table.eviction.as_ref()).map_or(0, |eviction| eviction.held_bytes())
    }

    #[cfg(test)]
    pub(crate) fn assert_invariants(&self, table: TableId) {
        self.table(table).assert_invariants(|key| self.hasher.hash(key));
        let of = self.tables[usize::from(table.0)].as_ref();
        if let Some(Table { index, eviction: Some(eviction) }) = of {
            eviction.assert_invariants(index, &self.hasher);
        }
    }

    #[inline]
    fn live(&self, table: TableId, hash: KeyHash, key: &[u8], now: UnixMs) -> Option<EntryRef<'_>> {
        self.table(table).find(hash.0, key).filter(|entry| entry.is_live(now))
    }

    #[inline]
    fn table(&self, table: TableId) -> &Index {
        let table = self.tables.get(usize::from(table.0)).and_then(Option::as_ref);
        &table.expect("the caller names an existing table").index
    }

    #[inline]
    fn parts(&mut self, table: TableId) -> (&mut Index, &mut Heap, &Hasher) {
        let (table, heap, hasher) = self.whole(table);
        (&mut table.index, heap, hasher)
    }

    #[inline]
    fn whole(&mut self, table: TableId) -> (&mut Table, &mut Heap, &Hasher) {
        let table = self.tables.get_mut(usize::from(table.0)).and_then(Option::as_mut);
        (table.expect("the caller names an existing table"), &mut self.heap, &self.hasher)
    }

    /// Makes a change that may add the key, and tells the eviction if it did.
    #[inline(always)]
    fn change<R>(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        change: impl FnOnce(&mut Index, &mut Heap, &Hasher) -> R,
    ) -> R {
        let (table, heap, hasher) = self.whole(table);
        let before = table.index.len();
        let result = change(&mut table.index, heap, hasher);
        if table.eviction.is_some() && before < table.index.len() {
            table.admit(heap, hasher, hash, key);
        }
        result
    }
}

impl Drop for Tables {
    /// Frees everything, which takes a while for large tables. A process that is about to end may
    /// forget its tables.
    fn drop(&mut self) {
        for table in self.tables.drain(..).flatten() {
            self.heap.bury_index(table.index);
        }
        while self.heap.collect(usize::MAX) {}
    }
}
