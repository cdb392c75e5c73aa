//! Chooses the unique index that finds the keys.

use super::{
    RelationKind,
    catalogue::{Column, Index, RelationRow},
    schema_error,
};
use crate::Error;

/// Returns the name of a unique index on exactly the key columns, in any order; else what would
/// help.
pub(super) fn choose(
    indexes: &[Index],
    key: &[&Column],
    relation: &RelationRow,
    kind: RelationKind,
    writable: bool,
) -> Result<String, Error> {
    let on_key: Vec<_> = indexes.iter().filter(|index| covers(index, key)).collect();
    let good = on_key.iter().find(|index| flaw(index, writable).is_none());
    if let Some(index) = good {
        return Ok(index.name.clone());
    }
    let columns = key.iter().map(|column| column.sql.as_str()).collect::<Vec<_>>().join(", ");
    let flaws = on_key
        .iter()
        .filter_map(|index| Some(format!("{} {}; ", index.name, flaw(index, writable)?)));
    // Postgres cannot build the index of a partitioned table concurrently.
    let concurrently = if kind == RelationKind::Partitioned { "" } else { "CONCURRENTLY " };
    Err(schema_error(format!(
        "{on} has no unique index on exactly its key ({columns}), which every read would need; \
         {flaws}this would help: \
         CREATE UNIQUE INDEX {concurrently}ON {on} ({columns})",
        on = relation.sql,
        flaws = flaws.collect::<String>(),
    )))
}

fn covers(index: &Index, key: &[&Column]) -> bool {
    let has = |column: &&&Column| index.columns.contains(&column.number);
    index.columns.len() == key.len() && key.iter().filter(has).count() == key.len()
}

/// Returns why an index on the key cannot be used, if so.
fn flaw(index: &Index, writable: bool) -> Option<&'static str> {
    if !index.usable {
        return Some(
            "is not valid: building it has failed or has not ended (DROP INDEX it if it failed)",
        );
    }
    if index.partial {
        return Some("covers only some rows (it has a WHERE)");
    }
    (writable && !index.immediate).then_some("is deferrable, which writes cannot use")
}
