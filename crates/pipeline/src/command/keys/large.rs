//! DEL of many keys, RENAME and COPY of large values, in slices.

use busload_tables::{HashCursor, KeyHash, StringValue, TableId, UnixMs, Value, effect};
use bytes::Bytes;

use crate::{
    error::CommandError,
    limits::JOB_PIECE_BYTES,
    reply::Reply,
    tx::{ChangeSet, Counts, Key, Plan, Planned, Slice, Tx},
};

/// Plan of DEL and UNLINK with many keys.
#[derive(Default)]
pub(super) struct DeleteMany {
    planned: usize,
}

impl Plan for DeleteMany {
    fn plan(
        &mut self,
        tx: &Tx,
        slice: &mut Slice<'_>,
        changes: &mut ChangeSet,
    ) -> Result<Planned, CommandError> {
        while let Some(bytes) = slice.args.get(1 + self.planned) {
            let key = tx.key_in(slice.space, bytes);
            if !changes.lock(tx, &key) {
                return Ok(Planned::Locked);
            }
            // Delete an expired key, too, so that the log contains the delete.
            let live = tx.get(&key).is_some();
            if live || tx.is_expired(&key) {
                effect::delete(changes.effects(tx, key.table), key.table, key.bytes);
            }
            self.planned += 1;
            if !slice.step() {
                return Ok(Planned::More);
            }
        }
        Ok(Planned::Whole)
    }

    fn reply(&self, counts: &Counts, reply: &mut Reply<'_>) {
        reply.count(counts.removed);
    }
}

/// Says whether the copied key stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The key stays (COPY).
    Kept,
    /// The key is removed (RENAME).
    Removed,
}

/// Kind of reply that the client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyReply {
    /// Status `+OK` of RENAME.
    Ok,
    /// Integer `:1` of COPY and RENAMENX.
    One,
}

/// Plan that copies a large value to another key, in place of what is there.
pub(super) struct CopyKey {
    from: OwnedKey,
    to: OwnedKey,
    expiry: Option<UnixMs>,
    source: Source,
    reply: CopyReply,
    /// Position in a hash where the next slice continues.
    cursor: HashCursor,
    begun: bool,
}

struct OwnedKey {
    table: TableId,
    hash: KeyHash,
    bytes: Bytes,
}

impl OwnedKey {
    fn new(key: &Key<'_>) -> Self {
        Self { table: key.table, hash: key.hash, bytes: Bytes::copy_from_slice(key.bytes) }
    }

    fn key(&self) -> Key<'_> {
        Key { table: self.table, hash: self.hash, bytes: &self.bytes }
    }
}

impl CopyKey {
    pub fn new(tx: &Tx, from: &Key<'_>, to: &Key<'_>, source: Source, reply: CopyReply) -> Self {
        Self {
            from: OwnedKey::new(from),
            to: OwnedKey::new(to),
            expiry: tx.expiry(from).flatten(),
            source,
            reply,
            cursor: HashCursor::default(),
            begun: false,
        }
    }
}

impl Plan for CopyKey {
    fn plan(
        &mut self,
        tx: &Tx,
        slice: &mut Slice<'_>,
        changes: &mut ChangeSet,
    ) -> Result<Planned, CommandError> {
        let (from, to) = (self.from.key(), self.to.key());
        if !std::mem::replace(&mut self.begun, true) {
            // This request was let through, so nobody else holds its keys.
            let locked = changes.lock(tx, &from) && changes.lock(tx, &to);
            debug_assert!(locked, "a request for a locked key waits");
        }
        match tx.get_locked(&from) {
            None => return Ok(Planned::Nothing),
            Some(Value::String(value)) => {
                let value = value
                    .shared()
                    .map_or(StringValue::Slice(value.as_slice()), StringValue::Shared);
                changes.put(tx, &to, value, self.expiry);
            }
            Some(Value::Hash(hash)) => {
                if self.cursor == HashCursor::default() {
                    effect::delete(changes.effects(tx, to.table), to.table, to.bytes);
                }
                let mut fields = hash.iter_from(self.cursor);
                let mut group: Vec<(&[u8], &[u8])> = Vec::new();
                let mut bytes = 0;
                let cursor = loop {
                    let Some((field, value)) = fields.next() else { break None };
                    bytes += field.len() + value.len();
                    group.push((field, value));
                    if JOB_PIECE_BYTES <= bytes {
                        put_fields(changes.effects(tx, to.table), &to, &group);
                        group.clear();
                        if !slice.budget.spend(bytes / BYTES_PER_STEP) {
                            break fields.cursor();
                        }
                        bytes = 0;
                    }
                    if !slice.step() && fields.cursor().is_some() {
                        break fields.cursor();
                    }
                };
                put_fields(changes.effects(tx, to.table), &to, &group);
                if let Some(cursor) = cursor {
                    self.cursor = cursor;
                    return Ok(Planned::More);
                }
                if let Some(at) = self.expiry {
                    effect::expire(changes.effects(tx, to.table), to.table, to.bytes, at);
                }
            }
        }
        if self.source == Source::Removed {
            effect::delete(changes.effects(tx, from.table), from.table, from.bytes);
        }
        Ok(Planned::Whole)
    }

    fn reply(&self, _: &Counts, reply: &mut Reply<'_>) {
        match self.reply {
            CopyReply::Ok => reply.ok(),
            CopyReply::One => reply.integer(1),
        }
    }
}

/// Number of bytes that are copied in the time of a step.
const BYTES_PER_STEP: usize = 1024;

fn put_fields(effects: &mut Vec<u8>, key: &Key<'_>, pairs: &[(&[u8], &[u8])]) {
    if pairs.is_empty() {
        return;
    }
    effect::hash_put_header(effects, key.table, key.bytes, pairs.len());
    pairs.iter().for_each(|(field, value)| effect::hash_put_pair(effects, field, value));
}
