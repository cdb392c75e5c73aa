//! Generates the SQL of every statement from a checked schema.
//!
//! Each key column and each value has one array parameter, so the text does not depend on the
//! number of entries, and one prepared statement with one plan serves all sizes. Every statement
//! that changes rows locks them in the order of the key column's collation, whatever the order of
//! the parameters, so that busload's batches and those of other processes wait for each other
//! instead of deadlocking.
//!
//! Reads and writes end with a comment that names the types of the value columns: a pooler that
//! shares prepared statements by their text would otherwise give one that was prepared for the old
//! type of a column, which the server refuses for as long as it lives.
//!
//! Joins are written so that nested loops over the index suit them: the session's settings leave no
//! other plan.

use std::fmt::Write;

use crate::{
    schema::{KeyColumn, Schema, ValueColumn, ValueForm},
    write::{ColumnSet, WriteKind},
};

/// Returns the statement that reads rows by key. Result: key columns, value columns.
pub(crate) fn read(schema: &Schema) -> String {
    let columns = list(schema.values.iter().map(|column| format!(", {}", read_value(column))), "");
    let keys = key_columns(schema, "t");
    let types = type_names(&schema.values.iter().collect::<Vec<_>>());
    format!("SELECT {keys}{columns} FROM {}{types}", rows_by_key(schema))
}

/// Returns the statement that changes rows. Results:
///
/// | kind | columns | rows |
/// |---|---|---|
/// | `Set` | key, types | every row written |
/// | `SetFields` | key, types, inserted | every row written, except one that appeared meanwhile |
/// | `ClearFields` | key, whether each column was set | every row found |
/// | `Delete` | key | every row deleted |
///
/// The types are a NULL of the type of each column that gets a value. The server refuses a prepared
/// statement whose result would have other types than before, and does so before it has changed
/// anything. Otherwise a value would still be converted to the old type of a column first: `007`,
/// written to an `int` that has just become `text`, would be stored as `7`.
pub(crate) fn write(schema: &Schema, kind: &WriteKind) -> String {
    match kind {
        WriteKind::Set => set(schema, &schema.values.iter().take(1).collect::<Vec<_>>()),
        WriteKind::SetFields(columns) => set_fields(schema, &chosen(schema, columns)),
        WriteKind::ClearFields(columns) => clear_fields(schema, &chosen(schema, columns)),
        WriteKind::Delete => delete(schema),
    }
}

fn set(schema: &Schema, columns: &[&ValueColumn]) -> String {
    format!(
        "INSERT INTO {relation} AS t ({names}) SELECT {inputs} FROM {arrays} ORDER BY {order} \
         ON CONFLICT ({conflict}) DO UPDATE SET {updates} RETURNING {keys}{types}{type_names}",
        relation = schema.relation,
        names = insert_names(schema, columns),
        inputs = insert_inputs(schema, columns),
        arrays = arrays(schema, columns),
        order = input_order(schema),
        conflict = conflict(schema),
        updates =
            list(columns.iter().map(|column| format!("{0} = EXCLUDED.{0}", column.sql)), ", "),
        keys = key_columns(schema, "t"),
        types = types(columns),
        type_names = type_names(columns),
    )
}

/// Updates first and inserts only missing rows: an insert of some columns fails where others allow
/// no NULL, even if it were to end as an update.
fn set_fields(schema: &Schema, columns: &[&ValueColumn]) -> String {
    let inputs = list((0..columns.len()).map(|index| format!(", q.v{index}")), "");
    let keys = key_columns(schema, "t");
    let types = types(columns);
    format!(
        "WITH q AS (SELECT * FROM {arrays}), \
         locked AS (SELECT {named}{inputs} FROM q JOIN {relation} AS t ON {join_q} \
         ORDER BY {lock_order} FOR UPDATE OF t), \
         updated AS (UPDATE {relation} AS t SET {updates} FROM locked AS l WHERE {join_l} \
         RETURNING {named}{types}), \
         inserted AS (INSERT INTO {relation} AS t ({names}) SELECT {values} FROM q \
         WHERE ({q_keys}) NOT IN (SELECT {u_keys} FROM updated AS u) ORDER BY {order} \
         ON CONFLICT ({conflict}) DO NOTHING RETURNING {keys}{types}) \
         SELECT u.*, false FROM updated AS u \
         UNION ALL SELECT i.*, true FROM inserted AS i{type_names}",
        type_names = type_names(columns),
        arrays = arrays(schema, columns),
        named = named_keys(schema),
        relation = schema.relation,
        join_q = join(schema, "q"),
        join_l = join(schema, "l"),
        lock_order = keys,
        updates = list(
            columns.iter().enumerate().map(|(index, column)| format!(
                "{} = {}",
                column.sql,
                cast(column, "l", index)
            )),
            ", "
        ),
        names = insert_names(schema, columns),
        values = insert_inputs(schema, columns),
        q_keys = numbered("q", schema),
        u_keys = numbered("u", schema),
        order = input_order(schema),
        conflict = conflict(schema),
    )
}

fn clear_fields(schema: &Schema, columns: &[&ValueColumn]) -> String {
    // `IS DISTINCT FROM NULL`: a row value of NULLs only is a value, but `IS NOT NULL` is false for
    // it.
    let were = columns
        .iter()
        .enumerate()
        .map(|(index, column)| format!(", (t.{} IS DISTINCT FROM NULL) AS n{index}", column.sql));
    format!(
        "WITH locked AS (SELECT {named}{were} FROM {rows} ORDER BY {keys} FOR UPDATE OF t), \
         cleared AS (UPDATE {relation} AS t SET {updates} FROM locked AS l \
         WHERE {join} AND ({any})) \
         SELECT * FROM locked",
        named = named_keys(schema),
        were = list(were, ""),
        rows = rows_by_key(schema),
        keys = key_columns(schema, "t"),
        relation = schema.relation,
        updates = list(columns.iter().map(|column| format!("{} = NULL", column.sql)), ", "),
        join = join(schema, "l"),
        any = list((0..columns.len()).map(|index| format!("l.n{index}")), " OR "),
    )
}

fn delete(schema: &Schema) -> String {
    format!(
        "WITH locked AS (SELECT {named} FROM {rows} ORDER BY {keys} FOR UPDATE OF t) \
         DELETE FROM {relation} AS t USING locked AS l WHERE {join} RETURNING {keys}",
        named = named_keys(schema),
        rows = rows_by_key(schema),
        keys = key_columns(schema, "t"),
        relation = schema.relation,
        join = join(schema, "l"),
    )
}

/// Returns a NULL of each column's type. The planner leaves nothing else of it.
fn types(columns: &[&ValueColumn]) -> String {
    list(columns.iter().map(|column| format!(", CASE WHEN false THEN t.{} END", column.sql)), "")
}

/// Returns a comment that names the columns' types.
fn type_names(columns: &[&ValueColumn]) -> String {
    format!(" /*{} */", list(columns.iter().map(|column| format!(" {}", column.base_oid)), ""))
}

fn chosen<'a>(schema: &'a Schema, columns: &ColumnSet) -> Vec<&'a ValueColumn> {
    columns.iter().filter_map(|column| schema.values.get(column)).collect()
}

/// Returns `relation AS t` and the condition that finds the rows of the key parameters.
fn rows_by_key(schema: &Schema) -> String {
    let relation = &schema.relation;
    match &schema.key[..] {
        [key] => {
            format!("{relation} AS t WHERE t.{} = ANY ({})", key.sql, array(0, key.key_type.sql()))
        }
        _ => format!("{} JOIN {relation} AS t ON {}", arrays(schema, &[]), join(schema, "q")),
    }
}

/// Returns the parameters as rows `q(k0, k1, .., v0, v1, ..)`.
fn arrays(schema: &Schema, columns: &[&ValueColumn]) -> String {
    let keys = schema.key.iter().map(|key| key.key_type.sql());
    let values = columns.iter().map(|column| match column.form {
        ValueForm::Bytes => "bytea",
        ValueForm::Text | ValueForm::Cast(_) => "text",
    });
    let parameters = keys.chain(values).enumerate().map(|(index, name)| array(index, name));
    let names = (0..schema.key.len()).map(|index| format!("k{index}"));
    let names = names.chain((0..columns.len()).map(|index| format!("v{index}")));
    // Of several arrays at once only the bare name `unnest` makes one row each.
    format!("unnest({}) AS q({})", list(parameters, ", "), list(names, ", "))
}

fn array(index: usize, element: &str) -> String {
    format!("${}::pg_catalog.{element}[]", index + 1)
}

fn key_columns(schema: &Schema, alias: &str) -> String {
    list(schema.key.iter().map(|key| format!("{alias}.{}", key.sql)), ", ")
}

/// Returns the key columns of `t`, with the names of the parameters' columns.
fn named_keys(schema: &Schema) -> String {
    list(
        schema.key.iter().enumerate().map(|(index, key)| format!("t.{} AS k{index}", key.sql)),
        ", ",
    )
}

fn numbered(alias: &str, schema: &Schema) -> String {
    list((0..schema.key.len()).map(|index| format!("{alias}.k{index}")), ", ")
}

fn join(schema: &Schema, alias: &str) -> String {
    let conditions = schema
        .key
        .iter()
        .enumerate()
        .map(|(index, key)| format!("t.{} = {alias}.k{index}", key.sql));
    list(conditions, " AND ")
}

fn insert_names(schema: &Schema, columns: &[&ValueColumn]) -> String {
    list(
        schema
            .key
            .iter()
            .map(|key| &key.sql)
            .chain(columns.iter().map(|column| &column.sql))
            .cloned(),
        ", ",
    )
}

fn insert_inputs(schema: &Schema, columns: &[&ValueColumn]) -> String {
    let keys = (0..schema.key.len()).map(|index| format!("q.k{index}"));
    let values = columns.iter().enumerate().map(|(index, column)| cast(column, "q", index));
    list(keys.chain(values), ", ")
}

/// Returns the columns of the unique index.
fn conflict(schema: &Schema) -> String {
    list(schema.key.iter().map(|key| key.sql.clone()), ", ")
}

/// Returns the order of the parameters that matches the lock order of other statements.
fn input_order(schema: &Schema) -> String {
    let order = |(index, key): (usize, &KeyColumn)| match &key.collation {
        Some(collation) => format!("q.k{index} COLLATE {collation}"),
        None => format!("q.k{index}"),
    };
    list(schema.key.iter().enumerate().map(order), ", ")
}

fn read_value(column: &ValueColumn) -> String {
    match column.form {
        ValueForm::Bytes | ValueForm::Text => format!("t.{}", column.sql),
        ValueForm::Cast(_) => format!("t.{}::pg_catalog.text", column.sql),
    }
}

fn cast(column: &ValueColumn, alias: &str, index: usize) -> String {
    match &column.form {
        ValueForm::Bytes | ValueForm::Text => format!("{alias}.v{index}"),
        ValueForm::Cast(to) => format!("{alias}.v{index}::{to}"),
    }
}

fn list(items: impl Iterator<Item = String>, separator: &str) -> String {
    let mut out = String::new();
    for (index, item) in items.enumerate() {
        let separator = if index == 0 { "" } else { separator };
        // Writing to a string cannot fail.
        let _ = write!(out, "{separator}{item}");
    }
    out
}
