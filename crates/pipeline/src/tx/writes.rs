//! Long writes in slices: writes of many keys or fields, of a large value, of a copy of a large
//! hash.
//!
//! ```text
//!  plan: lock, encode effects --> log: in parts, as fast as it writes
//!                                   '--> apply: effects to the tables --> unlock, reply
//! ```
//!
//! The whole transaction is in the log before any of it is in memory, and its keys stay locked
//! until all of it is in memory: nobody sees half of it, and a crash leaves all of it or nothing.
//! The first part is logged when the disk has space for all parts, so a write that does not fit
//! uses none. If others take that space meanwhile, the last part is never logged, and the
//! transaction has not happened. The log takes other transactions between two parts, so nobody
//! waits until hundreds of megabytes are synced.

use std::collections::VecDeque;

use busload_log::{Lsn, Reservation, SyncPolicy};
use busload_tables::limits::STRING_BYTES_MAX;
use busload_tables::{
    KeyHash, StringValue, TableId, UnixMs, Value,
    effect::{self, Effect, PartPosition},
};
use bytes::{Bytes, BytesMut};

use super::{
    Access, Key, KeyIs, LockMode, Locks, Logging, Slice, Step, Tx, Work, data::stricter,
    dispatch::no_space,
};
use crate::{
    args::Args,
    error::CommandError,
    gate::{Gate, Level},
    limits::{BIG_VALUE_BYTES, LOG_PART_BYTES, LOG_PART_OVERHEAD_BYTES, LOG_PARTS_AHEAD},
    reply::Reply,
};

/// Changes of a command, computed a slice at a time.
pub(crate) trait Plan: Send {
    /// Locks keys and encodes effects, for a slice. Changes nothing. An error becomes the reply.
    fn plan(
        &mut self,
        tx: &Tx,
        slice: &mut Slice<'_>,
        changes: &mut ChangeSet,
    ) -> Result<Planned, CommandError>;

    /// Writes the reply, after everything is changed.
    fn reply(&self, counts: &Counts, reply: &mut Reply<'_>);

    /// Returns the memory of the plan itself.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// Result of a slice of planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planned {
    /// There is more to plan.
    More,
    /// Another command has locked a key.
    Locked,
    /// Every change is planned.
    Whole,
    /// The command changes nothing, whatever was planned.
    Nothing,
}

/// Numbers of keys and fields that a write added and removed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Number of keys and fields that are new.
    pub added: usize,
    /// Number of keys and fields that are gone.
    pub removed: usize,
}

/// Encoded effects of one transaction.
#[derive(Debug)]
pub(crate) struct ChangeSet {
    locks: Locks,
    /// Effects on logged tables; those on other tables are in `unlogged`. Each list is in order,
    /// and they share no keys.
    logged: Chunks,
    unlogged: Chunks,
    policy: Option<SyncPolicy>,
}

/// Effects in pieces that grow without being moved. A piece holds whole effects, or one large
/// value.
#[derive(Debug, Default)]
struct Chunks {
    done: Vec<Chunk>,
    open: Vec<u8>,
    bytes: usize,
}

#[derive(Debug)]
enum Chunk {
    /// Encoded effects, all of them whole.
    Effects(Bytes),
    /// Put of a large value, and its log bytes: an effect up to its last bytes, and these bytes,
    /// which are not copied.
    Put { put: Box<DeferredPut>, header: Bytes, logged: Bytes },
}

impl Chunk {
    /// Returns its encoding, in two halves.
    fn halves(&self) -> [Bytes; 2] {
        match self {
            Chunk::Effects(bytes) => [bytes.clone(), Bytes::new()],
            Chunk::Put { header, logged, .. } => [header.clone(), logged.clone()],
        }
    }
}

impl Chunks {
    fn seal(&mut self, bytes_min: usize) {
        if bytes_min <= self.open.len() && !self.open.is_empty() {
            self.bytes += self.open.len();
            self.done.push(Chunk::Effects(std::mem::take(&mut self.open).into()));
        }
    }

    fn put_big(&mut self, put: DeferredPut, value: Bytes) {
        self.seal(0);
        let mut header = Vec::new();
        effect::put_header(&mut header, put.table, &put.key, put.expiry, value.len());
        self.push_put(value, header, put);
    }

    fn push_put(&mut self, logged: Bytes, header: Vec<u8>, put: DeferredPut) {
        self.bytes += header.len() + logged.len();
        self.done.push(Chunk::Put { put: Box::new(put), header: header.into(), logged });
    }
}

impl ChangeSet {
    pub fn new() -> Self {
        let (logged, unlogged) = Default::default();
        Self { locks: Locks::new(LockMode::Exclusive), logged, unlogged, policy: None }
    }

    /// Locks a key; returns false when another command holds it.
    pub fn lock(&mut self, tx: &Tx, key: &Key<'_>) -> bool {
        if tx.locked_for(key, Access::Write) {
            return false;
        }
        self.locks.insert(key.table, key.hash);
        true
    }

    /// Returns the buffer to which the effects on a table are appended.
    pub fn effects(&mut self, tx: &Tx, table: TableId) -> &mut Vec<u8> {
        let chunks = self.chunks(tx, table);
        chunks.seal(LOG_PART_BYTES / 2);
        &mut chunks.open
    }

    /// Plans to set a string; a large one by reference.
    pub fn put(&mut self, tx: &Tx, key: &Key<'_>, value: StringValue<'_>, expiry: Option<UnixMs>) {
        match value {
            StringValue::Shared(value) if BIG_VALUE_BYTES <= value.len() => {
                let (table, hash, key) = (key.table, key.hash, Bytes::copy_from_slice(key.bytes));
                let put = DeferredPut {
                    table,
                    hash,
                    key,
                    value: StringValue::Shared(value.clone()),
                    expiry,
                };
                self.chunks(tx, table).put_big(put, value);
            }
            StringValue::Shared(bytes) => {
                effect::put(self.effects(tx, key.table), key.table, key.bytes, &bytes, expiry);
            }
            StringValue::Grown(bytes) => {
                self.put(tx, key, StringValue::Shared(bytes.freeze()), expiry)
            }
            StringValue::Slice(bytes) => {
                effect::put(self.effects(tx, key.table), key.table, key.bytes, bytes, expiry);
            }
        }
    }

    /// Plans to set a string to its old value with `patch` at `offset`; only the patch is logged.
    pub fn put_patched(&mut self, tx: &Tx, put: DeferredPut, offset: usize, patch: Bytes) {
        let mut header = Vec::new();
        effect::patch_header(&mut header, put.table, &put.key, offset, patch.len());
        let chunks = self.chunks(tx, put.table);
        chunks.seal(0);
        chunks.push_put(patch, header, put);
    }

    fn chunks(&mut self, tx: &Tx, table: TableId) -> &mut Chunks {
        match tx.catalog.logging(table) {
            Logging::Off => &mut self.unlogged,
            Logging::On(policy) => {
                self.policy = Some(self.policy.map_or(policy, |earlier| stricter(earlier, policy)));
                &mut self.logged
            }
        }
    }
}

/// Work of a write in slices.
pub(crate) struct Write<P> {
    plan: P,
    changes: ChangeSet,
    phase: Phase,
    counts: Counts,
    /// Says whether the disk had space for all parts when the first was about to be logged.
    has_space: bool,
    /// LSNs of the parts that are not yet written.
    parts: VecDeque<Lsn>,
    /// Gate of everybody who sees the change.
    gate: Gate,
    now: UnixMs,
}

enum Phase {
    Planning,
    /// Position of the next byte to be logged: chunk, half of it, and offset there.
    Logging {
        chunk: usize,
        half: usize,
        at: usize,
    },
    /// Position of the next effect to be applied.
    Applying {
        chunk: usize,
        at: usize,
    },
}

impl<P: Plan> Write<P> {
    pub fn new(plan: P) -> Self {
        Self {
            plan,
            changes: ChangeSet::new(),
            phase: Phase::Planning,
            has_space: false,
            counts: Counts::default(),
            gate: Gate::OPEN,
            now: 0,
            parts: VecDeque::new(),
        }
    }

    fn log(&mut self, tx: &mut Tx) -> Result<Step, CommandError> {
        let Some(policy) = self.changes.policy else {
            self.start_applying();
            return Ok(Step::More);
        };
        let part_bytes_max = tx.log.record_bytes_small().min(LOG_PART_BYTES);
        let total = self.changes.logged.bytes;
        let Phase::Logging { chunk, half, at } = &mut self.phase else { return Ok(Step::More) };
        let written = tx.progress.written();
        self.parts.retain(|lsn| written < *lsn);
        if LOG_PARTS_AHEAD <= self.parts.len() {
            return Ok(Step::Wait);
        }
        let whole = total + effect::PART_OVERHEAD_BYTES <= part_bytes_max;
        let first = (*chunk, *half, *at) == (0, 0, 0);
        let mut reservation = Reservation::Granted;
        if !whole && !self.has_space {
            // A write that is refused half-way would have used up the disk for nothing.
            let parts = total / (part_bytes_max - effect::PART_OVERHEAD_BYTES) + 1;
            reservation = tx.log.space_for((total + parts * LOG_PART_OVERHEAD_BYTES) as u64);
            self.has_space = reservation == Reservation::Granted;
        }
        if reservation == Reservation::Granted {
            reservation = tx.log.reserve(if whole { total } else { part_bytes_max } as u64);
        }
        match reservation {
            Reservation::Granted => {}
            Reservation::Behind | Reservation::Failed { .. } => return Ok(Step::Wait),
            Reservation::NoSpace { message } => {
                tx.parts_abandoned |= !first;
                return Err(no_space(&message));
            }
        }
        if !whole {
            // A first part discards those that were abandoned before.
            tx.parts_abandoned = false;
        }
        let done = &self.changes.logged.done;
        tx.log.begin();
        let mut last = true;
        if whole {
            for chunk in done {
                chunk.halves().into_iter().for_each(|half| tx.log.append_shared(half));
            }
        } else {
            let bytes = &done[*chunk].halves()[*half];
            let end = bytes.len().min(*at + part_bytes_max - effect::PART_OVERHEAD_BYTES);
            let piece = bytes.slice(*at..end);
            *at = end;
            while *chunk < done.len() && *at == done[*chunk].halves()[*half].len() {
                *at = 0;
                (*chunk, *half) = if *half == 0 { (*chunk, 1) } else { (*chunk + 1, 0) };
            }
            last = *chunk == done.len();
            let position = match (first, last) {
                (true, _) => PartPosition::First,
                (false, false) => PartPosition::Next,
                (false, true) => PartPosition::Last,
            };
            effect::part_header(tx.log.record(), position);
            tx.log.append_shared(piece);
        }
        let lsn = tx.log.commit(policy);
        tx.records_open += 1;
        self.parts.push_back(lsn);
        if last {
            let level = if policy == SyncPolicy::Always { Level::Durable } else { Level::Written };
            self.gate = self.gate.join(Gate::at(lsn, level));
            self.start_applying();
        }
        Ok(Step::More)
    }

    fn start_applying(&mut self) {
        self.phase = Phase::Applying { chunk: 0, at: 0 };
    }

    fn apply(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Step {
        let Phase::Applying { chunk, at } = &mut self.phase else { return Step::More };
        let ChangeSet { logged, unlogged, .. } = &mut self.changes;
        let logged_count = logged.done.len();
        loop {
            let next = match chunk.checked_sub(logged_count) {
                None => logged.done.get_mut(*chunk),
                Some(chunk) => unlogged.done.get_mut(chunk),
            };
            match next {
                None => return Step::Done,
                Some(Chunk::Effects(bytes)) => {
                    let mut effects = effect::decode(&bytes[*at..]);
                    while let Some(effect) = effects.next() {
                        let effect = effect.expect("effects just encoded decode");
                        let steps = tx.apply_planned(effect, self.gate, self.now, &mut self.counts);
                        if !slice.budget.spend(steps) {
                            *at += effects.offset();
                            return Step::More;
                        }
                    }
                }
                Some(Chunk::Put { put, .. }) => tx.apply_big_put(put, self.gate),
            }
            (*chunk, *at) = (*chunk + 1, 0);
        }
    }
}

impl<P: Plan> Work for Write<P> {
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        match self.phase {
            Phase::Planning => {
                self.now = tx.now();
                let planned = self.plan.plan(tx, slice, &mut self.changes)?;
                // The written data may show what the command read, whatever table it goes to.
                self.gate = self.gate.join(tx.gate());
                Ok(match planned {
                    Planned::More => Step::More,
                    Planned::Locked => Step::Wait,
                    Planned::Nothing => {
                        self.plan.reply(&self.counts, &mut slice.reply);
                        Step::Done
                    }
                    Planned::Whole => {
                        self.changes.logged.seal(0);
                        self.changes.unlogged.seal(0);
                        self.phase = Phase::Logging { chunk: 0, half: 0, at: 0 };
                        if self.changes.logged.done.is_empty() {
                            self.start_applying();
                        }
                        Step::More
                    }
                })
            }
            Phase::Logging { .. } => self.log(tx),
            Phase::Applying { .. } => {
                let step = self.apply(tx, slice);
                tx.join_gate(self.gate);
                if step == Step::Done {
                    self.plan.reply(&self.counts, &mut slice.reply);
                }
                Ok(step)
            }
        }
    }

    fn suspend(&mut self, _: &Tx, _: u16, _: &Args<'_>) {}

    fn locks(&self) -> Option<&Locks> {
        Some(&self.changes.locks)
    }

    fn locks_many(&self) -> bool {
        true
    }

    fn must_finish(&self) -> bool {
        !matches!(self.phase, Phase::Planning)
    }

    fn memory_bytes(&self) -> usize {
        let ChangeSet { logged, unlogged, .. } = &self.changes;
        let open = logged.open.capacity() + unlogged.open.capacity();
        logged.bytes + unlogged.bytes + open + self.plan.memory_bytes()
    }
}

impl Tx {
    /// Applies an effect whose record is in the log, if its table has one. Returns how many steps
    /// it took.
    fn apply_planned(
        &mut self,
        effect: Effect<'_>,
        gate: Gate,
        now: UnixMs,
        counts: &mut Counts,
    ) -> usize {
        let table = effect.table().expect("a planned effect is about a table");
        let bytes = effect.key().expect("a planned effect is about a key");
        let hash = self.tables.hash(bytes);
        let key = Key { table, hash, bytes };
        let mut changed = true;
        let (is, steps) = match effect {
            Effect::Put { value, expiry, .. } => {
                self.tables.put(table, hash, bytes, StringValue::Slice(value), expiry);
                (KeyIs::There, 1 + value.len() / BYTES_PER_STEP)
            }
            Effect::Delete { .. } => {
                let live = self.tables.get(table, hash, bytes, now).is_some();
                changed = self.tables.delete(table, hash, bytes);
                counts.removed += usize::from(live);
                (KeyIs::Gone, 1)
            }
            Effect::HashPut { mut pairs, .. } => {
                let steps = 2 * pairs.len();
                counts.added += self.tables.hash_put(table, hash, bytes, &mut pairs);
                (KeyIs::There, steps)
            }
            Effect::HashDelete { mut fields, .. } => {
                let steps = 2 * fields.len();
                counts.removed += self.tables.hash_delete(table, hash, bytes, &mut fields);
                (KeyIs::Gone, steps)
            }
            Effect::Expire { expiry, .. } => {
                self.tables.set_expiry(table, hash, bytes, expiry);
                (KeyIs::There, 1)
            }
            Effect::Patch { .. }
            | Effect::Flush { .. }
            | Effect::Part { .. }
            | Effect::Catalogue(_) => {
                unreachable!("no plan has such an effect")
            }
        };
        if changed {
            self.planned_key_changed(&key, is, gate);
        }
        steps
    }

    fn apply_big_put(&mut self, put: &mut DeferredPut, gate: Gate) {
        let key = Key { table: put.table, hash: put.hash, bytes: &put.key };
        let value = std::mem::replace(&mut put.value, StringValue::Slice(&[]));
        self.tables.put(key.table, key.hash, key.bytes, value, put.expiry);
        self.planned_key_changed(&key, KeyIs::There, gate);
    }

    fn planned_key_changed(&mut self, key: &Key<'_>, is: KeyIs, gate: Gate) {
        if !self.watches.is_empty() {
            self.watches.key_changed(key, is);
        }
        if gate != Gate::OPEN {
            self.filter.key_changed(key.table, key.hash, gate);
        }
    }
}

/// Number of bytes that are copied in the time of a step.
const BYTES_PER_STEP: usize = 1024;

/// Plan to set one large string: SET and its relatives, which check their conditions when they make
/// the plan.
pub(crate) struct PutOne {
    put: Option<DeferredPut>,
}

/// String that a handler wants to set.
#[derive(Debug)]
pub(crate) struct DeferredPut {
    pub table: TableId,
    pub hash: KeyHash,
    pub key: Bytes,
    pub value: StringValue<'static>,
    pub expiry: Option<UnixMs>,
}

impl PutOne {
    pub fn new(put: DeferredPut) -> Self {
        Self { put: Some(put) }
    }
}

impl Plan for PutOne {
    fn plan(
        &mut self,
        tx: &Tx,
        _: &mut Slice<'_>,
        changes: &mut ChangeSet,
    ) -> Result<Planned, CommandError> {
        if let Some(DeferredPut { table, hash, key, value, expiry }) = self.put.take() {
            let key = Key { table, hash, bytes: &key };
            // This request was let through, so nobody holds its key.
            let locked = changes.lock(tx, &key);
            debug_assert!(locked, "a request for a locked key waits");
            changes.put(tx, &key, value, expiry);
        }
        Ok(Planned::Whole)
    }

    fn reply(&self, _: &Counts, _: &mut Reply<'_>) {}
}

/// Plan to overwrite or extend a large string: it builds the new value while the old one is still
/// there, and then replaces it. The handler writes the reply.
pub(crate) struct PatchOne {
    key: Bytes,
    table: TableId,
    hash: KeyHash,
    expiry: Option<UnixMs>,
    /// The string before the write.
    old: Bytes,
    offset: usize,
    patch: Bytes,
    new: BytesMut,
    begun: bool,
}

impl PatchOne {
    pub fn new(tx: &Tx, key: &Key<'_>, offset: usize, patch: Bytes) -> Self {
        let old = match tx.get(key) {
            Some(Value::String(value)) => {
                value.shared().unwrap_or_else(|| Bytes::copy_from_slice(value.as_slice()))
            }
            _ => Bytes::new(),
        };
        let length = old.len().max(offset + patch.len());
        // A client that appends once usually appends again.
        let spare = if old.len() < length && !old.is_empty() { length / 4 } else { 0 };
        Self {
            key: Bytes::copy_from_slice(key.bytes),
            table: key.table,
            hash: key.hash,
            expiry: tx.expiry(key).flatten(),
            old,
            offset,
            patch,
            new: BytesMut::with_capacity((length + spare).min(STRING_BYTES_MAX)),
            begun: false,
        }
    }

    /// Appends the next bytes of the old value, of the gap behind it or of the patch; returns false
    /// when there are none.
    fn grow(&mut self, bytes_max: usize) -> bool {
        let (at, old, end) = (self.new.len(), self.old.len(), self.offset + self.patch.len());
        let up_to = |end: usize| end.min(at + bytes_max);
        if (self.offset..end).contains(&at) {
            let range = at - self.offset..up_to(end) - self.offset;
            self.new.extend_from_slice(&self.patch[range]);
        } else if at < old {
            let stop = if at < self.offset { old.min(self.offset) } else { old };
            self.new.extend_from_slice(&self.old[at..up_to(stop)]);
        } else if at < self.offset {
            self.new.resize(up_to(self.offset), 0);
        } else {
            return false;
        }
        true
    }
}

impl Plan for PatchOne {
    fn plan(
        &mut self,
        tx: &Tx,
        slice: &mut Slice<'_>,
        changes: &mut ChangeSet,
    ) -> Result<Planned, CommandError> {
        let (table, hash, expiry) = (self.table, self.hash, self.expiry);
        if !std::mem::replace(&mut self.begun, true) {
            let locked = changes.lock(tx, &Key { table, hash, bytes: &self.key });
            debug_assert!(locked, "a request for a locked key waits");
            if tx.is_expired(&Key { table, hash, bytes: &self.key }) {
                effect::delete(changes.effects(tx, table), table, &self.key);
            }
        }
        const AT_ONCE: usize = 64 * BYTES_PER_STEP;
        while self.grow(AT_ONCE) {
            if !slice.budget.spend(AT_ONCE / BYTES_PER_STEP) {
                return Ok(Planned::More);
            }
        }
        // Nobody else shall hold the old value when it is freed, nor is it needed any more.
        self.old = Bytes::new();
        let value = StringValue::Grown(std::mem::take(&mut self.new));
        let put = DeferredPut { table, hash, key: self.key.clone(), value, expiry };
        changes.put_patched(tx, put, self.offset, self.patch.clone());
        Ok(Planned::Whole)
    }

    fn reply(&self, _: &Counts, _: &mut Reply<'_>) {}

    fn memory_bytes(&self) -> usize {
        self.new.capacity()
    }
}
