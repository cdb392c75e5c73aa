//! Applies effects to tables: one by one, or in groups when a log is replayed.

use std::collections::BTreeMap;

use crate::limits::{REPLAY_GROUP_BYTES, REPLAY_GROUP_COUNT};
use crate::{KeyHash, StringValue, TableId, Tables};

use super::decode::{Catalogue, Effect, EffectError, PartPosition, decode};
use super::is_part;

/// Reason why an effect could not be applied. No part of it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The bytes of the record are not effects.
    Effect(EffectError),
    /// The effect names a table that does not exist.
    UnknownTable(TableId),
    /// A part that is not alone in its record, or whose predecessors are missing.
    MisplacedPart,
}

impl From<EffectError> for ApplyError {
    fn from(error: EffectError) -> Self {
        ApplyError::Effect(error)
    }
}

impl std::fmt::Display for ApplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ApplyError::Effect(error) => error.fmt(f),
            ApplyError::UnknownTable(table) => {
                write!(f, "the effect names table {}, which does not exist", table.0)
            }
            ApplyError::MisplacedPart => f.write_str(
                "a part of a transaction without those before it, or inside of another record",
            ),
        }
    }
}

impl std::error::Error for ApplyError {}

/// Applies one effect to the tables.
///
/// # Errors
/// If it names a table that does not exist, or is only a part.
pub fn apply(tables: &mut Tables, effect: Effect<'_>) -> Result<(), ApplyError> {
    let hash = effect.key().map_or(KeyHash(0), |key| tables.hash(key));
    apply_hashed(tables, effect, hash)
}

fn apply_hashed(tables: &mut Tables, effect: Effect<'_>, hash: KeyHash) -> Result<(), ApplyError> {
    let table = effect.table().ok_or(ApplyError::MisplacedPart)?;
    if !matches!(effect, Effect::Catalogue(_)) && !tables.exists(table) {
        return Err(ApplyError::UnknownTable(table));
    }
    match effect {
        Effect::Part { .. } => return Err(ApplyError::MisplacedPart),
        Effect::Put { key, value, expiry, .. } => {
            tables.put(table, hash, key, StringValue::Slice(value), expiry)
        }
        Effect::Patch { key, offset, bytes, .. } => {
            _ = tables.patch(table, hash, key, offset, bytes)
        }
        Effect::Delete { key, .. } => _ = tables.delete(table, hash, key),
        Effect::Expire { key, expiry, .. } => _ = tables.set_expiry(table, hash, key, expiry),
        Effect::HashPut { key, mut pairs, .. } => _ = tables.hash_put(table, hash, key, &mut pairs),
        Effect::HashDelete { key, mut fields, .. } => {
            _ = tables.hash_delete(table, hash, key, &mut fields)
        }
        Effect::Flush { .. } => tables.flush(table),
        Effect::Catalogue(Catalogue::Created { .. }) => tables.create(table),
        Effect::Catalogue(Catalogue::Settings { .. }) => {}
        Effect::Catalogue(Catalogue::Dropped { .. }) => tables.remove(table),
    }
    Ok(())
}

/// Parts of a transaction whose last part is still to come.
#[derive(Debug, Default)]
pub struct OpenParts(Option<Vec<u8>>);

impl OpenParts {
    /// Takes a record for which [`is_part`] holds. Returns the effects of the whole transaction if
    /// this is its last part.
    ///
    /// # Errors
    /// If the parts before it are missing, or it is malformed.
    pub fn join(&mut self, record: &[u8]) -> Result<Option<Vec<u8>>, ApplyError> {
        let Some(Effect::Part { position, bytes }) = decode(record).next().transpose()? else {
            return Err(ApplyError::MisplacedPart);
        };
        if position == PartPosition::First {
            self.0 = Some(Vec::new());
        }
        self.0.as_mut().ok_or(ApplyError::MisplacedPart)?.extend_from_slice(bytes);
        if position != PartPosition::Last {
            return Ok(None);
        }
        match self.0.take() {
            Some(whole) if is_part(&whole) => Err(ApplyError::MisplacedPart),
            whole => Ok(whole),
        }
    }

    /// Returns whether there are parts whose last one is missing.
    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }
}

/// Replays records in groups whose keys are prefetched.
///
/// A record is checked as a whole when it is pushed; nothing of a bad one is applied. Effects are
/// applied in groups, in the order in which they are pushed; [`Replayer::finish`] applies the last
/// group. While effects are pending the tables are borrowed, so nobody sees a state in between.
pub struct Replayer<'t> {
    tables: &'t mut Tables,
    /// Copies of the records whose effects are pending.
    bytes: Vec<u8>,
    pending: Vec<Pending>,
    /// Parts of a transaction whose last part is still to come.
    parts: OpenParts,
}

/// Effect that is decoded but not yet applied.
struct Pending {
    /// Offset of the effect in the copied bytes.
    start: usize,
    table: TableId,
    hash: KeyHash,
}

impl<'t> Replayer<'t> {
    /// Creates a replayer onto these tables.
    pub fn new(tables: &'t mut Tables) -> Self {
        Replayer {
            tables,
            bytes: Vec::with_capacity(2 * REPLAY_GROUP_BYTES),
            pending: Vec::with_capacity(2 * REPLAY_GROUP_COUNT),
            parts: OpenParts::default(),
        }
    }

    /// Returns the hash of a key, as [`Tables::hash`] does.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.tables.hash(key)
    }

    /// Takes one record.
    ///
    /// # Errors
    /// If the record is malformed or names a table that does not exist. Records pushed before are
    /// applied.
    pub fn push(&mut self, record: &[u8]) -> Result<(), ApplyError> {
        if is_part(record) {
            return match self.parts.join(record)? {
                Some(whole) => self.push(&whole),
                None => Ok(()),
            };
        }
        if REPLAY_GROUP_BYTES < record.len() {
            return self.apply_directly(record);
        }
        let pending_count = self.pending.len();
        let base = self.bytes.len();
        let mut effects = decode(record);
        loop {
            let start = effects.offset();
            let Some(effect) = effects.next() else { break };
            match self.check(effect) {
                Ok(Some((table, hash))) => {
                    self.pending.push(Pending { start: base + start, table, hash })
                }
                // A change of the set of tables decides what the effects after it mean.
                Ok(None) => {
                    self.pending.truncate(pending_count);
                    return self.apply_directly(record);
                }
                Err(error) => {
                    self.pending.truncate(pending_count);
                    self.apply_pending();
                    return Err(error);
                }
            }
        }
        self.bytes.extend_from_slice(record);
        if REPLAY_GROUP_COUNT <= self.pending.len() || REPLAY_GROUP_BYTES <= self.bytes.len() {
            self.apply_pending();
        }
        Ok(())
    }

    /// Applies what is still pending. Returns whether parts of a transaction are left whose last
    /// one is missing: that transaction never took effect.
    pub fn finish(mut self) -> bool {
        self.apply_pending();
        self.parts.is_open()
    }

    /// Returns the table and the hash of an effect's key, and prefetches the key's bucket; `None`
    /// for a change of the set of tables.
    #[inline]
    fn check(
        &self,
        effect: Result<Effect<'_>, EffectError>,
    ) -> Result<Option<(TableId, KeyHash)>, ApplyError> {
        let effect = effect?;
        let table = effect.table().ok_or(ApplyError::MisplacedPart)?;
        if matches!(effect, Effect::Catalogue(_)) {
            return Ok(None);
        }
        if !self.tables.exists(table) {
            return Err(ApplyError::UnknownTable(table));
        }
        let Some(key) = effect.key() else { return Ok(Some((table, KeyHash(0)))) };
        let hash = self.tables.hash(key);
        self.tables.prefetch_bucket(table, hash);
        self.tables.prefetch_write(table, hash);
        Ok(Some((table, hash)))
    }

    fn apply_pending(&mut self) {
        for pending in &self.pending {
            self.tables.prefetch_entry(pending.table, pending.hash);
        }
        for Pending { start, hash, .. } in self.pending.drain(..) {
            let effect = decode(&self.bytes[start..]).next();
            let applied = effect.map(|effect| apply_hashed(self.tables, effect?, hash));
            debug_assert!(applied == Some(Ok(())), "the record was checked when it was pushed");
        }
        self.bytes.clear();
    }

    /// Applies a record that is large or changes the set of tables, after the pending ones.
    fn apply_directly(&mut self, record: &[u8]) -> Result<(), ApplyError> {
        self.apply_pending();
        self.check_record(record)?;
        decode(record).try_for_each(|effect| apply(self.tables, effect?))
    }

    /// Checks that a whole record can be applied.
    fn check_record(&self, record: &[u8]) -> Result<(), ApplyError> {
        let mut changed = BTreeMap::new();
        for effect in decode(record) {
            let effect = effect?;
            let table = effect.table().ok_or(ApplyError::MisplacedPart)?;
            match effect {
                Effect::Catalogue(Catalogue::Created { .. }) => _ = changed.insert(table, true),
                Effect::Catalogue(Catalogue::Dropped { .. }) => _ = changed.insert(table, false),
                Effect::Catalogue(Catalogue::Settings { .. }) => {}
                _ if changed.get(&table).copied().unwrap_or(self.tables.exists(table)) => {}
                _ => return Err(ApplyError::UnknownTable(table)),
            }
        }
        Ok(())
    }
}
