//! Applying effects to tables: one by one, or in groups when a log is replayed.

use crate::{KeyHash, StringValue, TableId, Tables};

use super::decode::{Catalogue, Effect, EffectError, decode};

/// Why an effect could not be applied. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The record's bytes are no effects.
    Effect(EffectError),
    /// The effect names a table that does not exist.
    UnknownTable(TableId),
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
        }
    }
}

impl std::error::Error for ApplyError {}

/// Applies one effect.
///
/// # Errors
/// When it names a table that does not exist.
pub fn apply(tables: &mut Tables, effect: Effect<'_>) -> Result<(), ApplyError> {
    let hash = effect.key().map_or(KeyHash(0), |key| tables.hash(key));
    apply_hashed(tables, effect, hash)
}

fn apply_hashed(tables: &mut Tables, effect: Effect<'_>, hash: KeyHash) -> Result<(), ApplyError> {
    let table = effect.table();
    if !matches!(effect, Effect::Catalogue(_)) && !tables.exists(table) {
        return Err(ApplyError::UnknownTable(table));
    }
    match effect {
        Effect::Put { key, value, expiry, .. } => {
            tables.put(table, hash, key, StringValue::Slice(value), expiry)
        }
        Effect::Patch { key, offset, bytes, .. } => _ = tables.patch(table, hash, key, offset, bytes),
        Effect::Delete { key, .. } => _ = tables.delete(table, hash, key),
        Effect::Expire { key, expiry, .. } => _ = tables.set_expiry(table, hash, key, expiry),
        Effect::HashPut { key, mut pairs, .. } => _ = tables.hash_put(table, hash, key, &mut pairs),
        Effect::HashDelete { key, mut fields, .. } => _ = tables.hash_delete(table, hash, key, &mut fields),
        Effect::Flush { .. } => tables.flush(table),
        Effect::Catalogue(Catalogue::Created { .. }) => tables.create(table),
        Effect::Catalogue(Catalogue::Settings { .. }) => {}
        Effect::Catalogue(Catalogue::Dropped { .. }) => tables.remove(table),
    }
    Ok(())
}

/// Replays records in groups whose keys are fetched ahead.
///
/// Records are applied in the order they are pushed; [`Replayer::finish`] applies what is still held back.
pub struct Replayer<'t> {
    tables: &'t mut Tables,
}

impl<'t> Replayer<'t> {
    /// A replayer onto these tables.
    pub fn new(tables: &'t mut Tables) -> Self {
        Replayer { tables }
    }

    /// Takes one record.
    ///
    /// # Errors
    /// When the record, or one pushed before that was still held back, cannot be applied.
    pub fn push(&mut self, record: &[u8]) -> Result<(), ApplyError> {
        for effect in decode(record) {
            apply(self.tables, effect?)?;
        }
        Ok(())
    }

    /// Applies what is still held back.
    ///
    /// # Errors
    /// As for [`Replayer::push`].
    pub fn finish(self) -> Result<(), ApplyError> {
        Ok(())
    }
}
