//! Writes that take long, in slices: of many keys or fields, of a large value, of a large hash to another key.
//!
//! ```text
//!  plan: lock, encode effects --> log: in parts, at the log's pace --> apply: effects to the tables --> unlock, reply
//! ```
//!
//! The whole transaction is in the log before any of it is in memory, and what it changes is locked until all of
//! it is: nobody sees half of it, and a crash leaves all of it or nothing. When the log runs out of space on the
//! way the parts that are there lack their last one, and nothing has happened. The log takes other
//! transactions between two parts, so nobody waits for hundreds of megabytes to be synced.

use std::collections::VecDeque;

use busload_log::{Lsn, Room, SyncPolicy};
use busload_tables::{
    KeyHash, StringValue, TableId, UnixMs,
    effect::{self, Effect, PartPlace},
};
use bytes::Bytes;

use super::{
    Access, Key, KeyIs, LockMode, Locks, Logging, Slice, Step, Tx, Work, data::stricter, dispatch::no_space,
};
use crate::{
    args::Args,
    error::CommandError,
    gate::{Gate, Level},
    limits::{BIG_VALUE_BYTES, JOB_PIECE_BYTES, LOG_PART_BYTES, LOG_PARTS_AHEAD},
    reply::Reply,
};

/// What a command changes, worked out a slice at a time.
pub(crate) trait Plan: Send {
    /// Locks keys and encodes effects, for a slice. Changes nothing. An error becomes the reply.
    fn plan(
        &mut self,
        tx: &Tx,
        slice: &mut Slice<'_>,
        changes: &mut ChangeSet,
    ) -> Result<Planned, CommandError>;

    /// Writes the reply, when everything is changed.
    fn reply(&self, counts: &Counts, reply: &mut Reply<'_>);
}

/// How a slice of planning ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planned {
    /// There is more to plan.
    More,
    /// A key is held by another command.
    Locked,
    /// That is all.
    Whole,
    /// The command changes nothing, whatever was planned.
    Nothing,
}

/// What was there and what was not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Keys and fields that are new.
    pub added: usize,
    /// Keys and fields that are gone.
    pub removed: usize,
}

/// Effects of one transaction, encoded.
#[derive(Debug)]
pub(crate) struct ChangeSet {
    locks: Locks,
    /// Of tables with a log and of those without: each in order. They share no keys.
    logged: Chunks,
    unlogged: Chunks,
    policy: Option<SyncPolicy>,
}

/// Effects, in pieces that grow without being moved. Whole effects, but for a large value.
#[derive(Debug, Default)]
struct Chunks {
    done: Vec<Chunk>,
    open: Vec<u8>,
    bytes: usize,
}

#[derive(Debug)]
enum Chunk {
    /// Whole effects.
    Effects(Bytes),
    /// A put of a large value, which is not copied, and its encoding up to the value.
    Put { put: DeferredPut, header: Bytes },
}

impl Chunk {
    /// Its encoding, in two halves.
    fn halves(&self) -> [Bytes; 2] {
        match self {
            Chunk::Effects(bytes) => [bytes.clone(), Bytes::new()],
            Chunk::Put { put, header } => [header.clone(), put.value.clone()],
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

    fn put_big(&mut self, put: DeferredPut) {
        self.seal(0);
        let mut header = Vec::new();
        effect::put_header(&mut header, put.table, &put.key, put.expiry, put.value.len());
        self.bytes += header.len() + put.value.len();
        self.done.push(Chunk::Put { put, header: header.into() });
    }
}

impl ChangeSet {
    pub fn new() -> Self {
        let (logged, unlogged) = Default::default();
        Self { locks: Locks::new(LockMode::Exclusive), logged, unlogged, policy: None }
    }

    /// Locks a key; false when another command holds it.
    pub fn lock(&mut self, tx: &Tx, key: &Key<'_>) -> bool {
        if tx.locked_for(key, Access::Write) {
            return false;
        }
        self.locks.insert(key.table, key.hash);
        true
    }

    /// Where the effects of a table go.
    pub fn effects(&mut self, tx: &Tx, table: TableId) -> &mut Vec<u8> {
        let chunks = self.chunks(tx, table);
        chunks.seal(JOB_PIECE_BYTES);
        &mut chunks.open
    }

    /// Plans to set a string; a large one by reference.
    pub fn put(&mut self, tx: &Tx, key: &Key<'_>, value: StringValue<'_>, expiry: Option<UnixMs>) {
        match value {
            StringValue::Shared(value) if BIG_VALUE_BYTES <= value.len() => {
                let (table, hash, key) = (key.table, key.hash, Bytes::copy_from_slice(key.bytes));
                self.chunks(tx, table).put_big(DeferredPut { table, hash, key, value, expiry });
            }
            StringValue::Shared(bytes) => {
                effect::put(self.effects(tx, key.table), key.table, key.bytes, &bytes, expiry);
            }
            StringValue::Slice(bytes) => {
                effect::put(self.effects(tx, key.table), key.table, key.bytes, bytes, expiry);
            }
        }
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

/// A write in slices.
pub(crate) struct Write<P> {
    plan: P,
    changes: ChangeSet,
    phase: Phase,
    counts: Counts,
    /// Parts that are not yet written.
    parts: VecDeque<Lsn>,
    /// What whoever sees the change waits for.
    gate: Gate,
    now: UnixMs,
}

enum Phase {
    Planning,
    /// The next byte to be logged: chunk, half of it, and place there.
    Logging {
        chunk: usize,
        half: usize,
        at: usize,
    },
    /// The next effect to be applied.
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
        match tx.log.room(if whole { total } else { part_bytes_max } as u64) {
            Room::Granted => {}
            Room::Behind | Room::Failed { .. } => return Ok(Step::Wait),
            Room::NoSpace { message } => return Err(no_space(&message)),
        }
        let done = &self.changes.logged.done;
        tx.log.begin();
        let mut last = true;
        if whole {
            for chunk in done {
                chunk.halves().into_iter().for_each(|half| tx.log.append_shared(half));
            }
        } else {
            let first = (*chunk, *half, *at) == (0, 0, 0);
            let bytes = &done[*chunk].halves()[*half];
            let end = bytes.len().min(*at + part_bytes_max - effect::PART_OVERHEAD_BYTES);
            let piece = bytes.slice(*at..end);
            *at = end;
            while *chunk < done.len() && *at == done[*chunk].halves()[*half].len() {
                *at = 0;
                (*chunk, *half) = if *half == 0 { (*chunk, 1) } else { (*chunk + 1, 0) };
            }
            last = *chunk == done.len();
            let place = match (first, last) {
                (true, _) => PartPlace::First,
                (false, false) => PartPlace::Next,
                (false, true) => PartPlace::Last,
            };
            effect::part_header(tx.log.record(), place);
            tx.log.append_shared(piece);
        }
        let lsn = tx.log.commit(policy);
        tx.records_open += 1;
        self.parts.push_back(lsn);
        if last {
            let level = if policy == SyncPolicy::Always { Level::Durable } else { Level::Written };
            self.gate = Gate::at(lsn, level);
            self.start_applying();
        }
        Ok(Step::More)
    }

    fn start_applying(&mut self) {
        self.phase = Phase::Applying { chunk: 0, at: 0 };
    }

    fn apply(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Step {
        let Phase::Applying { chunk, at } = &mut self.phase else { return Step::More };
        let ChangeSet { logged, unlogged, .. } = &self.changes;
        loop {
            let next = logged.done.get(*chunk).or_else(|| unlogged.done.get(*chunk - logged.done.len()));
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
                Ok(match self.plan.plan(tx, slice, &mut self.changes)? {
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
        true
    }

    fn memory_bytes(&self) -> usize {
        let ChangeSet { logged, unlogged, .. } = &self.changes;
        logged.bytes + unlogged.bytes
    }
}

impl Tx {
    /// Applies an effect whose record is in the log, if its table has one; returns how many steps it took.
    fn apply_planned(&mut self, effect: Effect<'_>, gate: Gate, now: UnixMs, counts: &mut Counts) -> usize {
        let table = effect.table().expect("a planned effect is about a table");
        let bytes = effect.key().expect("a planned effect is about a key");
        let hash = self.tables.hash(bytes);
        let key = Key { table, hash, bytes };
        let (is, steps) = match effect {
            Effect::Put { value, expiry, .. } => {
                self.tables.put(table, hash, bytes, StringValue::Slice(value), expiry);
                (KeyIs::There, 1 + value.len() / BYTES_PER_STEP)
            }
            Effect::Delete { .. } => {
                let live = self.tables.get(table, hash, bytes, now).is_some();
                self.tables.delete(table, hash, bytes);
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
            Effect::Patch { .. } | Effect::Flush { .. } | Effect::Part { .. } | Effect::Catalogue(_) => {
                unreachable!("no plan has such an effect")
            }
        };
        self.planned_key_changed(&key, is, gate);
        steps
    }

    fn apply_big_put(&mut self, put: &DeferredPut, gate: Gate) {
        let key = Key { table: put.table, hash: put.hash, bytes: &put.key };
        self.tables.put(key.table, key.hash, key.bytes, StringValue::Shared(put.value.clone()), put.expiry);
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

/// Bytes copied in the time of a step.
const BYTES_PER_STEP: usize = 1024;

/// Sets one large string: SET and its kin, whose conditions are decided when this is made.
pub(crate) struct PutOne {
    put: Option<DeferredPut>,
}

/// A string that a handler wants to set.
#[derive(Debug)]
pub(crate) struct DeferredPut {
    pub table: TableId,
    pub hash: KeyHash,
    pub key: Bytes,
    pub value: Bytes,
    pub expiry: Option<UnixMs>,
}

impl PutOne {
    pub fn new(put: DeferredPut) -> Self {
        Self { put: Some(put) }
    }
}

impl Plan for PutOne {
    fn plan(&mut self, tx: &Tx, _: &mut Slice<'_>, changes: &mut ChangeSet) -> Result<Planned, CommandError> {
        if let Some(DeferredPut { table, hash, key, value, expiry }) = self.put.take() {
            let key = Key { table, hash, bytes: &key };
            // Its request was let through, so nobody has it.
            let locked = changes.lock(tx, &key);
            debug_assert!(locked, "a request for a locked key waits");
            changes.put(tx, &key, StringValue::Shared(value), expiry);
        }
        Ok(Planned::Whole)
    }

    fn reply(&self, _: &Counts, _: &mut Reply<'_>) {}
}
