//! The set of tables, as effects in the log change it.

use std::collections::BTreeMap;

use busload_tables::{
    TableId,
    effect::{self, Effect, EffectError},
};

/// Tables that the log knows, by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue(pub BTreeMap<u16, KnownTable>);

/// Table that the log knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownTable {
    /// Name of the table.
    pub name: Vec<u8>,
    /// Settings of the table as text.
    pub settings: Vec<u8>,
}

impl Catalogue {
    /// Applies what a record changes of the set of tables.
    pub fn note(&mut self, record: &[u8]) -> Result<(), EffectError> {
        if !effect::is_catalogue(record) {
            return Ok(());
        }
        for effect in effect::decode(record) {
            let Effect::Catalogue(change) = effect? else { continue };
            match change {
                effect::Catalogue::Created { table, name, settings } => {
                    let known = KnownTable { name: name.to_vec(), settings: settings.to_vec() };
                    self.0.insert(table.0, known);
                }
                effect::Catalogue::Settings { table, settings } => {
                    if let Some(known) = self.0.get_mut(&table.0) {
                        known.settings = settings.to_vec();
                    }
                }
                effect::Catalogue::Dropped { table } => _ = self.0.remove(&table.0),
            }
        }
        Ok(())
    }

    /// Encodes the tables as a record that creates them.
    pub fn encode(&self) -> Vec<u8> {
        let mut record = Vec::new();
        for (&id, KnownTable { name, settings }) in &self.0 {
            effect::catalogue_created(&mut record, TableId(id), name, settings);
        }
        record
    }
}
