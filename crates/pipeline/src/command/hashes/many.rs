//! HMGET, HSET, HMSET and HDEL with many fields, in slices.

use busload_tables::{KeyHash, TableId, Value, effect};

use super::read_hash;
use crate::{
    args::Args,
    error::CommandError,
    limits::JOB_PIECE_BYTES,
    reply::Reply,
    tx::{ChangeSet, Counts, Key, LockMode, Locks, Plan, Planned, Slice, Step, Tx, Work},
};

/// Work of HMGET: reads fields of a hash as if at one moment.
pub(super) struct SomeFields {
    table: TableId,
    hash: KeyHash,
    shown: usize,
    locks: Option<Locks>,
}

impl SomeFields {
    pub fn new(key: &Key<'_>) -> Self {
        Self { table: key.table, hash: key.hash, shown: 0, locks: None }
    }
}

impl Work for SomeFields {
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        let key = Key { table: self.table, hash: self.hash, bytes: slice.args.at(1) };
        let hash = match self.locks {
            Some(_) => tx.get_locked(&key).and_then(Value::hash),
            None => {
                let hash = read_hash(tx, &key)?;
                slice.reply.array(slice.args.len() - 2);
                hash
            }
        };
        while let Some(field) = slice.args.get(2 + self.shown) {
            slice.reply.bulk_or_null(hash.and_then(|hash| hash.get(field)));
            self.shown += 1;
            if !slice.step() {
                return Ok(Step::More);
            }
        }
        Ok(Step::Done)
    }

    fn suspend(&mut self, _: &Tx, _: u16, _: &Args<'_>) {
        let mut locks = Locks::new(LockMode::Shared);
        locks.insert(self.table, self.hash);
        self.locks = Some(locks);
    }

    fn locks(&self) -> Option<&Locks> {
        self.locks.as_ref()
    }
}

/// Kind of reply that the client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutReply {
    /// Number of fields that are new.
    Added,
    /// Status `+OK` of HMSET.
    Ok,
}

/// Plan of HSET and HMSET with many fields. The key holds no other kind of value.
pub(super) struct PutFields {
    reply: PutReply,
    planned: usize,
    locked: bool,
}

impl PutFields {
    pub fn new(reply: PutReply) -> Self {
        Self { reply, planned: 0, locked: false }
    }
}

impl Plan for PutFields {
    fn plan(
        &mut self,
        tx: &Tx,
        slice: &mut Slice<'_>,
        changes: &mut ChangeSet,
    ) -> Result<Planned, CommandError> {
        let key = tx.key_in(slice.space, slice.args.at(1));
        if !std::mem::replace(&mut self.locked, true) {
            lock_only(tx, &key, changes);
            if tx.is_expired(&key) {
                effect::delete(changes.effects(tx, key.table), key.table, key.bytes);
            }
        }
        let args = slice.args;
        let count = (args.len() - 2) / 2;
        while self.planned < count {
            let mut end = self.planned;
            let mut bytes = 0;
            let mut more = true;
            while end < count && bytes < JOB_PIECE_BYTES && more {
                bytes += args.at(2 + 2 * end).len() + args.at(3 + 2 * end).len();
                end += 1;
                more = slice.step();
            }
            let effects = changes.effects(tx, key.table);
            effect::hash_put_header(effects, key.table, key.bytes, end - self.planned);
            for index in self.planned..end {
                effect::hash_put_pair(effects, args.at(2 + 2 * index), args.at(3 + 2 * index));
            }
            self.planned = end;
            if !more {
                return Ok(Planned::More);
            }
        }
        Ok(Planned::Whole)
    }

    fn reply(&self, counts: &Counts, reply: &mut Reply<'_>) {
        match self.reply {
            PutReply::Added => reply.count(counts.added),
            PutReply::Ok => reply.ok(),
        }
    }
}

/// Plan of HDEL with many fields. The key holds a hash.
#[derive(Default)]
pub(super) struct DeleteFields {
    planned: usize,
    locked: bool,
}

impl Plan for DeleteFields {
    fn plan(
        &mut self,
        tx: &Tx,
        slice: &mut Slice<'_>,
        changes: &mut ChangeSet,
    ) -> Result<Planned, CommandError> {
        let key = tx.key_in(slice.space, slice.args.at(1));
        if !std::mem::replace(&mut self.locked, true) {
            lock_only(tx, &key, changes);
        }
        let Some(hash) = tx.get_locked(&key).and_then(Value::hash) else {
            return Ok(Planned::Nothing);
        };
        let mut there: Vec<&[u8]> = Vec::new();
        let mut planned = Planned::Whole;
        while let Some(field) = slice.args.get(2 + self.planned) {
            there.extend(hash.get(field).map(|_| field));
            self.planned += 1;
            if !slice.step() {
                planned = Planned::More;
                break;
            }
        }
        if !there.is_empty() {
            let effects = changes.effects(tx, key.table);
            effect::hash_delete_header(effects, key.table, key.bytes, there.len());
            there.iter().for_each(|field| effect::hash_delete_field(effects, field));
        }
        Ok(planned)
    }

    fn reply(&self, counts: &Counts, reply: &mut Reply<'_>) {
        reply.count(counts.removed);
    }
}

/// Locks the key. This request was let through, so nobody else holds it.
fn lock_only(tx: &Tx, key: &Key<'_>, changes: &mut ChangeSet) {
    let locked = changes.lock(tx, key);
    debug_assert!(locked, "a request for a locked key waits");
}
