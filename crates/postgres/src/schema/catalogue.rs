//! Queries of the system catalogue about a relation.

use tokio_postgres::{Client, Row, types::Type};

use super::{Facts, schema_error, suggest};
use crate::{Error, Relation, failure};

/// The relation itself, and the role that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelationRow {
    pub(super) oid: u32,
    pub(super) sql: String,
    pub(super) kind: String,
    pub(super) may_delete: bool,
    pub(super) user: String,
    pub(super) server_version: String,
}

const RELATION: &str = "
SELECT c.oid,
       pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname),
       c.relkind::text,
       coalesce(pg_catalog.has_table_privilege(c.oid, 'DELETE'), false),
       current_user::text,
       pg_catalog.current_setting('server_version')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1)";

const RELATIONS: &str = "
SELECT CASE WHEN pg_catalog.pg_table_is_visible(c.oid) THEN ''
            ELSE pg_catalog.quote_ident(n.nspname) || '.' END
       || pg_catalog.quote_ident(c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm') AND NOT c.relispartition
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'
ORDER BY 1 LIMIT 1000";

/// Finds the relation. `known` are the facts of an earlier check, if there was one.
pub(super) async fn relation(
    client: &Client,
    relation: &Relation,
    known: Option<&Facts>,
) -> Result<RelationRow, Error> {
    let rows = query(client, RELATION, &[(&relation.sql(), Type::TEXT)]).await?;
    let Some(row) = rows.first() else {
        return Err(no_such_relation(client, relation, known).await?);
    };
    Ok(RelationRow {
        oid: get(row, 0)?,
        sql: get(row, 1)?,
        kind: get(row, 2)?,
        may_delete: get(row, 3)?,
        user: get(row, 4)?,
        server_version: get(row, 5)?,
    })
}

async fn no_such_relation(
    client: &Client,
    relation: &Relation,
    known: Option<&Facts>,
) -> Result<Error, Error> {
    let rows = query(client, RELATIONS, &[]).await?;
    let names = rows.iter().map(|row| get::<String>(row, 0)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let plain = match &relation.schema {
        Some(schema) => format!("{schema}.{}", relation.name),
        None => relation.name.clone(),
    };
    let hint = suggest(&plain, &names);
    Ok(schema_error(match known {
        Some(known) => format!("{} is gone; {hint}", known.relation.sql),
        None => format!("relation {plain} does not exist; {hint}"),
    }))
}

/// Partitioned tables have statistics of their own only after an ANALYZE of the parent: otherwise
/// this adds up those of their partitions.
const ROWS: &str = "
SELECT CASE WHEN c.relkind = 'p' AND c.reltuples < 0
            THEN (SELECT coalesce(sum(p.reltuples) FILTER (WHERE p.reltuples >= 0), -1)
                  FROM pg_catalog.pg_partition_tree(c.oid) t
                  JOIN pg_catalog.pg_class p ON p.oid = t.relid WHERE t.isleaf)
            ELSE c.reltuples END::float8
FROM pg_catalog.pg_class c WHERE c.oid = $1";

/// Returns the estimated number of rows; `None` if the statistics were never collected.
pub(super) async fn estimated_rows(client: &Client, relation: u32) -> Result<Option<f64>, Error> {
    let rows = query(client, ROWS, &[(&relation, Type::OID)]).await?;
    let count = rows.first().map(|row| get::<f64>(row, 0)).transpose()?;
    Ok(count.filter(|count| *count >= 0.0))
}

/// One column of the relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) number: i16,
    pub(super) name: String,
    /// Name, quoted where needed.
    pub(super) sql: String,
    /// Type as the table declares it.
    pub(super) declared: String,
    /// Schema of the type behind all domains.
    pub(super) base_schema: String,
    pub(super) base_type: String,
    pub(super) base_oid: u32,
    pub(super) base_sql: String,
    pub(super) not_null: bool,
    pub(super) generated: bool,
    pub(super) collation: Option<String>,
    pub(super) deterministic: bool,
    pub(super) may_select: bool,
    pub(super) may_insert: bool,
    pub(super) may_update: bool,
    /// The n of `varchar(n)`, the maximum number of characters.
    pub(super) characters_max: Option<usize>,
}

const COLUMNS: &str = "
SELECT a.attnum, a.attname::text, pg_catalog.quote_ident(a.attname),
       pg_catalog.format_type(a.atttypid, a.atttypmod),
       b.nspname::text, b.typname::text,
       pg_catalog.quote_ident(b.nspname) || '.' || pg_catalog.quote_ident(b.typname),
       a.attnotnull, a.attgenerated <> '' OR a.attidentity = 'a',
       pg_catalog.quote_ident(ln.nspname) || '.' || pg_catalog.quote_ident(l.collname),
       coalesce(l.collisdeterministic, true),
       coalesce(pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT'), false),
       coalesce(pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'INSERT'), false),
       coalesce(pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'UPDATE'), false),
       CASE WHEN b.typname = 'varchar' AND b.typmod >= 4 THEN b.typmod - 4 END,
       b.oid
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
LEFT JOIN pg_catalog.pg_namespace ln ON ln.oid = l.collnamespace
CROSS JOIN LATERAL (
    WITH RECURSIVE chain(oid, typmod) AS (
        SELECT a.atttypid, a.atttypmod
        UNION ALL
        SELECT t.typbasetype, t.typtypmod
        FROM chain JOIN pg_catalog.pg_type t ON t.oid = chain.oid WHERE t.typtype = 'd')
    SELECT t.oid, n.nspname, t.typname, chain.typmod
    FROM chain JOIN pg_catalog.pg_type t ON t.oid = chain.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    WHERE t.typtype <> 'd') b
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum";

pub(super) async fn columns(client: &Client, relation: u32) -> Result<Vec<Column>, Error> {
    let rows = query(client, COLUMNS, &[(&relation, Type::OID)]).await?;
    rows.iter().map(column).collect()
}

fn column(row: &Row) -> Result<Column, Error> {
    Ok(Column {
        number: get(row, 0)?,
        name: get(row, 1)?,
        sql: get(row, 2)?,
        declared: get(row, 3)?,
        base_schema: get(row, 4)?,
        base_type: get(row, 5)?,
        base_sql: get(row, 6)?,
        not_null: get(row, 7)?,
        generated: get(row, 8)?,
        collation: get(row, 9)?,
        deterministic: get(row, 10)?,
        may_select: get(row, 11)?,
        may_insert: get(row, 12)?,
        may_update: get(row, 13)?,
        characters_max: get::<Option<i32>>(row, 14)?.and_then(|count| usize::try_from(count).ok()),
        base_oid: get(row, 15)?,
    })
}

/// One unique index of the relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Index {
    oid: u32,
    pub(super) name: String,
    /// Valid and ready: built to its end and kept up to date.
    pub(super) usable: bool,
    pub(super) partial: bool,
    /// Checked at once, not at the end of a transaction.
    pub(super) immediate: bool,
    /// Built while rows had versions that it does not hold: older transactions must not use it.
    pub(super) checks_xmin: bool,
    /// Attribute numbers of its key columns; 0 is an expression.
    pub(super) columns: Vec<i16>,
}

const INDEXES: &str = "
SELECT i.indexrelid, i.indexrelid::pg_catalog.regclass::text, i.indisvalid AND i.indisready,
       i.indpred IS NOT NULL, i.indimmediate,
       i.indkey::text, i.indnkeyatts, i.indcheckxmin
FROM pg_catalog.pg_index i
WHERE i.indrelid = $1 AND i.indisunique
ORDER BY i.indisprimary DESC, i.indexrelid";

pub(super) async fn unique_indexes(client: &Client, relation: u32) -> Result<Vec<Index>, Error> {
    let rows = query(client, INDEXES, &[(&relation, Type::OID)]).await?;
    rows.iter().map(index).collect()
}

fn index(row: &Row) -> Result<Index, Error> {
    let (numbers, count): (String, i16) = (get(row, 5)?, get(row, 6)?);
    let numbers = numbers.split_whitespace().map(|number| number.parse().unwrap_or_default());
    Ok(Index {
        oid: get(row, 0)?,
        name: get(row, 1)?,
        usable: get(row, 2)?,
        partial: get(row, 3)?,
        immediate: get(row, 4)?,
        checks_xmin: get(row, 7)?,
        columns: numbers.take(usize::try_from(count).unwrap_or_default()).collect(),
    })
}

async fn query(
    client: &Client,
    sql: &str,
    parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)],
) -> Result<Vec<Row>, Error> {
    client.query_typed(sql, parameters).await.map_err(|error| failure::while_checking(&error))
}

fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, Error> {
    row.try_get(column).map_err(|error| failure::while_checking(&error))
}
