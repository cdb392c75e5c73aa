//! The table: made and loaded, or found as it should be.

use anyhow::Result;

use super::{
    database::Database,
    rows::{KEY_BYTES, LOADED, key},
};
use crate::{cli::bail_usage, clock::now_ns, stats::float};

/// Rows that one statement loads, unless there are very many.
const STEP_ROWS: u64 = 1_000_000;

/// Most lines that say how far loading is.
const STEPS_MAX: u64 = 20;

/// Sees to it that the table has exactly these rows, and that they are in memory as far as there is
/// room.
pub fn prepare(database: &mut Database, rows: u64, reload: bool) -> Result<()> {
    let relation = database.relation.clone();
    let exists = format!("SELECT count(to_regclass('{relation}'))");
    let is_new = reload || database.number(&exists)? == 0;
    match if is_new { None } else { find_fault(database, rows)? } {
        None if is_new => load(database, rows)?,
        None => eprintln!("{relation}: {rows} rows are there"),
        // A cluster of ours holds nothing but what we put there.
        Some(why) if database.is_own() => {
            eprintln!("{relation}: {why}; it is loaded anew");
            load(database, rows)?;
        }
        Some(why) => {
            bail_usage!("{relation}: {why}; --reload replaces it, --relation names another")
        }
    }
    settle(database)
}

/// Says what is wrong with the table. Counting hundreds of millions of rows takes minutes; so a
/// table we loaded says in its comment how many it has, and the first and the last are looked at.
fn find_fault(database: &mut Database, rows: u64) -> Result<Option<String>> {
    let relation = database.relation.clone();
    let sql = "SELECT obj_description(c.oid, 'pg_class'), \
         (SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' \
          ORDER BY a.attnum) \
          FROM pg_attribute a WHERE a.attrelid = c.oid AND 0 < a.attnum AND NOT a.attisdropped), \
         EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique \
          AND i.indisvalid AND i.indnkeyatts = 1 \
          AND pg_get_indexdef(i.indexrelid, 1, true) = 'pk') \
         FROM pg_class c WHERE c.oid = to_regclass($1)";
    let found = database.query_one(sql, &[&relation])?;
    let (described, columns): (Option<String>, Option<String>) = (found.get(0), found.get(1));
    if columns.as_deref() != Some("pk text, payload text") || !found.get::<_, bool>(2) {
        return Ok(Some(format!("has the columns `{columns:?}`, or no unique index on pk")));
    }
    let row = database.query_one(&format!("SELECT min(pk), max(pk) FROM {relation}"), &[])?;
    let ends: [Option<String>; 2] = [row.get(0), row.get(1)];
    if ends != [Some(key(0)), Some(key(rows - 1))] {
        return Ok(Some("does not hold the rows asked for".to_owned()));
    }
    if described == Some(comment(rows)) {
        return Ok(None);
    }
    eprintln!("{relation}: counting the rows");
    let count = database.number(&format!("SELECT count(*) FROM {relation}"))?;
    Ok((count != rows).then(|| format!("has {count} rows")))
}

fn comment(rows: u64) -> String {
    format!("busload-bench: {rows} rows")
}

/// Loads the table in one transaction: an interrupted load leaves nothing behind. The server makes
/// the rows itself, in the order of their keys, and the index afterwards.
fn load(database: &mut Database, rows: u64) -> Result<()> {
    let (relation, started_ns) = (database.relation.clone(), now_ns());
    let seconds = || float(now_ns() - started_ns) / 1e9;
    database.execute(&format!(
        "BEGIN; DROP TABLE IF EXISTS {relation}; \
         CREATE TABLE {relation} (pk text COLLATE \"C\", payload text); \
         COMMENT ON TABLE {relation} IS '{}'",
        comment(rows)
    ))?;
    let step = STEP_ROWS.max(rows.div_ceil(STEPS_MAX));
    let mut from = 0;
    while from < rows {
        let until = rows.min(from + step);
        database.execute(&format!(
            "INSERT INTO {relation} SELECT key, '{LOADED}' || key \
             FROM (SELECT lpad(number::text, {KEY_BYTES}, '0') AS key \
             FROM generate_series({from}::int8, {until} - 1) number) keys"
        ))?;
        eprintln!("loading: {until} of {rows} rows, {:.1} s", seconds());
        from = until;
    }
    database.execute(&format!("ALTER TABLE {relation} ADD PRIMARY KEY (pk); COMMIT"))?;
    database.execute(&format!("VACUUM (FREEZE, ANALYZE) {relation}"))?;
    eprintln!("loaded {rows} rows in {:.1} s", seconds());
    database.execute("CHECKPOINT").or_else(|error| {
        eprintln!("no checkpoint after loading: {error:#}");
        Ok(())
    })
}

/// Brings table and index into memory as far as there is room, so that no row measures warming.
pub fn settle(database: &mut Database) -> Result<()> {
    let relation = database.relation.clone();
    let prewarm = format!(
        "CREATE EXTENSION IF NOT EXISTS pg_prewarm; \
         SELECT pg_prewarm(c.oid) FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid \
         WHERE c.oid = '{relation}'::regclass OR i.indrelid = '{relation}'::regclass"
    );
    // Without the extension the first of these reads the table, the second the index.
    let scans = format!(
        "SELECT sum(length(payload)) FROM {relation}; \
         SET enable_seqscan = off; SELECT count(pk) FROM {relation}; RESET enable_seqscan"
    );
    database.execute(&prewarm).or_else(|_| database.execute(&scans))
}
