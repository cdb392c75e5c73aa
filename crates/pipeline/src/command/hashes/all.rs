//! HGETALL, HKEYS and HVALS: a whole hash.

use busload_tables::{HashCursor, KeyHash, TableId, Value};

use super::read_hash;
use crate::{
    args::Args,
    error::CommandError,
    tx::{Key, LockMode, Locks, Slice, Step, Tx, Work},
};

/// Selects what a command returns of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Names and values (HGETALL).
    FieldsAndValues,
    /// Names of fields only (HKEYS).
    Fields,
    /// Values of fields only (HVALS).
    Values,
}

/// Work of HGETALL, HKEYS and HVALS: reads a whole hash as if at one moment.
pub(super) struct AllFields {
    shown: Shown,
    table: TableId,
    hash: KeyHash,
    /// Position in the hash where the next slice continues.
    cursor: Option<HashCursor>,
    /// Lock of the key, once it takes more than a slice.
    locks: Option<Locks>,
}

impl AllFields {
    pub fn new(key: &Key<'_>, shown: Shown) -> Self {
        Self { shown, table: key.table, hash: key.hash, cursor: None, locks: None }
    }
}

impl Work for AllFields {
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        let key = Key { table: self.table, hash: self.hash, bytes: slice.args.at(1) };
        let (hash, cursor) = match self.cursor {
            Some(cursor) => (tx.get_locked(&key).and_then(Value::hash), cursor),
            None => {
                let found = read_hash(tx, &key)?;
                let count = found.map_or(0, |hash| hash.len());
                match self.shown {
                    Shown::FieldsAndValues => slice.reply.map(count),
                    Shown::Fields | Shown::Values => slice.reply.array(count),
                }
                (found, HashCursor::default())
            }
        };
        let Some(hash) = hash else { return Ok(Step::Done) };
        let mut fields = hash.iter_from(cursor);
        while let Some((field, value)) = fields.next() {
            if self.shown != Shown::Values {
                slice.reply.bulk(field);
            }
            if self.shown != Shown::Fields {
                slice.reply.bulk(value);
            }
            if !slice.step()
                && let Some(cursor) = fields.cursor()
            {
                self.cursor = Some(cursor);
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
