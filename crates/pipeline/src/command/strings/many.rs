//! Commands that read or set many keys.

use crate::{
    args::Args,
    error::CommandError,
    reply::Reply,
    tx::{Access, ChangeSet, Counts, Key, LockMode, Locks, Plan, Planned, Slice, Step, Tx, Work},
};

use super::value;

/// Selects what a command returns of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) enum Shown {
    /// Every value; null for a key that holds no string.
    Values,
    /// Number of keys that exist.
    Count,
}

/// Work of MGET, EXISTS and TOUCH: reads all keys as if at one moment.
pub(in crate::command) struct ReadKeys {
    shown: Shown,
    /// Number of keys read so far.
    read: usize,
    found: usize,
    /// Locks of the keys that were read, once it takes more than a slice.
    locks: Option<Locks>,
}

/// Number of keys that are prefetched together.
const GROUP_KEYS: usize = 32;

impl ReadKeys {
    pub fn new(shown: Shown) -> Self {
        Self { shown, read: 0, found: 0, locks: None }
    }

    /// Reads a key. Returns how the slice continues.
    fn read(&mut self, tx: &Tx, slice: &mut Slice<'_>, key: &Key<'_>) -> Step {
        if tx.locked_for(key, Access::Read) {
            return Step::Wait;
        }
        if let Some(locks) = &mut self.locks {
            locks.insert(key.table, key.hash);
        }
        let value = tx.read(key);
        self.found += usize::from(value.is_some());
        if self.shown == Shown::Values {
            match value.and_then(|value| value.string()) {
                Some(value) => slice.reply.value(value),
                None => slice.reply.null(),
            }
        }
        self.read += 1;
        if slice.step() { Step::Done } else { Step::More }
    }
}

impl Work for ReadKeys {
    fn step(&mut self, tx: &mut Tx, slice: &mut Slice<'_>) -> Result<Step, CommandError> {
        let args = slice.args;
        let count = args.len() - 1;
        if self.read == 0 && self.locks.is_none() && self.shown == Shown::Values {
            slice.reply.array(count);
        }
        while self.read < count {
            let group = args.iter_from(1 + self.read).take(GROUP_KEYS);
            let keys: Vec<Key<'_>> = group.map(|bytes| tx.key_in(slice.space, bytes)).collect();
            tx.prefetch(&keys);
            for key in &keys {
                let step = self.read(tx, slice, key);
                if step != Step::Done && self.read < count {
                    return Ok(step);
                }
            }
        }
        if self.shown == Shown::Count {
            slice.reply.count(self.found);
        }
        Ok(Step::Done)
    }

    fn suspend(&mut self, tx: &Tx, space: u16, args: &Args<'_>) {
        let mut locks = Locks::new(LockMode::Shared);
        for bytes in args.iter_from(1).take(self.read) {
            let key = tx.key_in(space, bytes);
            locks.insert(key.table, key.hash);
        }
        self.locks = Some(locks);
    }

    fn locks(&self) -> Option<&Locks> {
        self.locks.as_ref()
    }

    fn locks_many(&self) -> bool {
        true
    }
}

/// Condition under which the keys are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Always {
    /// Set in any case (MSET).
    Yes,
    /// Set if none of the keys exists (MSETNX).
    OnlyIfNoneExists,
}

/// Plan of MSET and MSETNX with many keys or large values.
pub(super) struct SetMany {
    always: Always,
    /// Number of keys known to be absent, and locked.
    checked: usize,
    planned: usize,
    any_exists: bool,
}

impl SetMany {
    pub fn new(always: Always) -> Self {
        Self { always, checked: 0, planned: 0, any_exists: false }
    }
}

impl Plan for SetMany {
    fn plan(
        &mut self,
        tx: &Tx,
        slice: &mut Slice<'_>,
        changes: &mut ChangeSet,
    ) -> Result<Planned, CommandError> {
        let count = slice.args.len() / 2;
        let (space, args) = (slice.space, slice.args);
        let key = |index: usize| tx.key_in(space, args.at(1 + 2 * index));
        while self.always == Always::OnlyIfNoneExists && self.checked < count {
            let key = key(self.checked);
            if !changes.lock(tx, &key) {
                return Ok(Planned::Locked);
            }
            if tx.get(&key).is_some() {
                self.any_exists = true;
                return Ok(Planned::Nothing);
            }
            self.checked += 1;
            if !slice.step() {
                return Ok(Planned::More);
            }
        }
        while self.planned < count {
            let key = key(self.planned);
            if !changes.lock(tx, &key) {
                return Ok(Planned::Locked);
            }
            changes.put(tx, &key, value(&slice.args, 2 + 2 * self.planned), None);
            self.planned += 1;
            if !slice.step() {
                return Ok(Planned::More);
            }
        }
        Ok(Planned::Whole)
    }

    fn reply(&self, _: &Counts, reply: &mut Reply<'_>) {
        match self.always {
            Always::Yes => reply.ok(),
            Always::OnlyIfNoneExists => reply.integer(i64::from(!self.any_exists)),
        }
    }
}
