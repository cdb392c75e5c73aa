//! The table: made and loaded, or found as it should be.

use std::{
    io::{IsTerminal, Write as _},
    pin::pin,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use tokio_postgres::{Client, CopyInSink};

use super::{
    database::Database,
    rows::{Key, Payload},
};
use crate::{
    cli::UsageError,
    clock::{duration_ns, now_ns},
    stats::float,
};

/// Bytes handed to the driver at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// Between two lines of progress, on a terminal and elsewhere.
const PROGRESS_TERMINAL: Duration = Duration::from_millis(200);
const PROGRESS_LOG: Duration = Duration::from_secs(5);

/// Sees to it that the table has exactly these rows, and that they are in memory as far as there is
/// room.
pub fn prepare(database: &mut Database, rows: u64, reload: bool) -> Result<()> {
    match find(database, rows)? {
        _ if reload => load(database, rows)?,
        Found::Missing => load(database, rows)?,
        Found::Right => eprintln!("{}: {rows} rows are there", database.relation),
        // A cluster of ours holds nothing but what we put there.
        Found::Other(why) if database.is_own() => {
            eprintln!("{}: {why}; it is loaded anew", database.relation);
            load(database, rows)?;
        }
        Found::Other(why) => {
            let hint = "--reload replaces it, --relation names another";
            return Err(UsageError(format!("{}: {why}; {hint}", database.relation)).into());
        }
    }
    settle(database)
}

enum Found {
    Missing,
    Right,
    Other(String),
}

/// Counting hundreds of millions of rows takes minutes; so a table we loaded says in its comment
/// how many it has, and the first and the last are looked at.
fn find(database: &mut Database, rows: u64) -> Result<Found> {
    let relation = database.relation.clone();
    let sql = "SELECT obj_description(c.oid, 'pg_class'), \
         (SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' \
          ORDER BY a.attnum) \
          FROM pg_attribute a WHERE a.attrelid = c.oid AND 0 < a.attnum AND NOT a.attisdropped), \
         EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique \
          AND i.indisvalid AND i.indnkeyatts = 1 \
          AND pg_get_indexdef(i.indexrelid, 1, true) = 'pk') \
         FROM pg_class c WHERE c.oid = to_regclass($1)";
    let found = database.query(sql, &[&relation])?;
    let Some(found) = found.first() else { return Ok(Found::Missing) };
    let (said, columns, is_indexed): (Option<String>, Option<String>, bool) =
        (found.get(0), found.get(1), found.get(2));
    let columns = columns.unwrap_or_default();
    if columns != "pk text, payload text" || !is_indexed {
        return Ok(Found::Other(format!("has the columns `{columns}`, or no unique index on pk")));
    }
    let row = database.query_one(&format!("SELECT min(pk), max(pk) FROM {relation}"), &[])?;
    let (first, last): (Option<String>, Option<String>) = (row.get(0), row.get(1));
    let wanted = (Key::of(0), Key::of(rows - 1));
    if first.as_deref() != Some(wanted.0.text()) || last.as_deref() != Some(wanted.1.text()) {
        return Ok(Found::Other("does not hold the rows asked for".to_owned()));
    }
    if said.as_deref() == Some(comment(rows).as_str()) {
        return Ok(Found::Right);
    }
    eprintln!("{relation}: counting the rows");
    let count: i64 = database.query_one(&format!("SELECT count(*) FROM {relation}"), &[])?.get(0);
    match u64::try_from(count) == Ok(rows) {
        true => Ok(Found::Right),
        false => Ok(Found::Other(format!("has {count} rows"))),
    }
}

fn comment(rows: u64) -> String {
    format!("busload-bench: {rows} rows")
}

/// One transaction: an interrupted load leaves nothing behind. Rows come in the order of their
/// keys, so that the index grows at its end only.
fn load(database: &mut Database, rows: u64) -> Result<()> {
    let relation = database.relation.clone();
    database
        .with_admin(async |client| load_with(client, &relation, rows).await)
        .context("cannot load the table")?;
    database.execute(&format!("VACUUM (ANALYZE) {relation}"))?;
    database.execute("CHECKPOINT").or_else(|error| {
        eprintln!("no checkpoint after loading: {error:#}");
        Ok(())
    })
}

async fn load_with(client: &mut Client, relation: &str, rows: u64) -> Result<()> {
    let transaction = client.transaction().await?;
    let make = format!(
        "DROP TABLE IF EXISTS {relation}; \
         CREATE TABLE {relation} (pk text COLLATE \"C\" PRIMARY KEY, payload text); \
         COMMENT ON TABLE {relation} IS '{}'",
        comment(rows)
    );
    transaction.batch_execute(&make).await?;
    let copy = format!("COPY {relation} (pk, payload) FROM STDIN WITH (FREEZE)");
    let sink = transaction.copy_in(copy.as_str()).await?;
    let copied = send_rows(sink, rows).await?;
    if copied != rows {
        bail!("{copied} rows were stored, not {rows}");
    }
    transaction.commit().await?;
    Ok(())
}

async fn send_rows(sink: CopyInSink<Bytes>, rows: u64) -> Result<u64> {
    let mut sink = pin!(sink);
    let mut progress = Progress::new(rows);
    let mut chunk = BytesMut::with_capacity(CHUNK_BYTES + 64);
    for row in 0..rows {
        chunk.put_slice(Key::of(row).bytes());
        chunk.put_u8(b'\t');
        chunk.put_slice(Payload::loaded(row).bytes());
        chunk.put_u8(b'\n');
        if CHUNK_BYTES <= chunk.len() {
            sink.send(chunk.split().freeze()).await?;
            progress.show(row);
        }
    }
    sink.send(chunk.freeze()).await?;
    let copied = sink.finish().await?;
    progress.end();
    Ok(copied)
}

/// Brings table and index into memory as far as there is room, so that no row measures warming.
pub fn settle(database: &mut Database) -> Result<()> {
    let relation = database.relation.clone();
    let prewarm = "CREATE EXTENSION IF NOT EXISTS pg_prewarm; \
                   SELECT pg_prewarm(c.oid) FROM pg_class c \
                   LEFT JOIN pg_index i ON i.indexrelid = c.oid";
    let prewarm = format!(
        "{prewarm} WHERE c.oid = '{relation}'::regclass OR i.indrelid = '{relation}'::regclass"
    );
    if database.execute(&prewarm).is_ok() {
        return Ok(());
    }
    // The first reads the table, the second the index.
    database.execute(&format!(
        "SELECT sum(length(payload)) FROM {relation}; \
         SET enable_seqscan = off; SELECT count(pk) FROM {relation}; RESET enable_seqscan"
    ))
}

/// After upserts: the next run finds the table as small and as visible as it can be.
pub fn tidy(database: &mut Database) -> Result<()> {
    let relation = database.relation.clone();
    database.execute(&format!("VACUUM (ANALYZE) {relation}"))
}

/// Bytes of the table and of its indexes.
pub fn table_bytes(database: &mut Database) -> Result<u64> {
    let relation = database.relation.clone();
    let bytes: i64 =
        database.query_one("SELECT pg_total_relation_size(to_regclass($1))", &[&relation])?.get(0);
    u64::try_from(bytes).context("a size below 0")
}

/// A line that says how far loading has come.
struct Progress {
    rows: u64,
    started_ns: u64,
    shown_ns: u64,
    is_terminal: bool,
}

impl Progress {
    fn new(rows: u64) -> Self {
        let now_ns = now_ns();
        Self {
            rows,
            started_ns: now_ns,
            shown_ns: now_ns,
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, done: u64) {
        let every = if self.is_terminal { PROGRESS_TERMINAL } else { PROGRESS_LOG };
        let now_ns = now_ns();
        if now_ns < self.shown_ns + duration_ns(every) {
            return;
        }
        self.shown_ns = now_ns;
        let line = progress_line(done, self.rows, Duration::from_nanos(now_ns - self.started_ns));
        let mut out = std::io::stderr();
        let _ =
            if self.is_terminal { write!(out, "\r{line:<78}") } else { writeln!(out, "{line}") };
    }

    fn end(&self) {
        let seconds = float(now_ns() - self.started_ns) / 1e9;
        let start = if self.is_terminal { "\r" } else { "" };
        eprintln!("{start}{:<78}", format!("loaded {} rows in {seconds:.1} s", self.rows));
    }
}

fn progress_line(done: u64, rows: u64, since: Duration) -> String {
    let per_s = float(done) / since.as_secs_f64().max(1e-9);
    let left_s = float(rows.saturating_sub(done)) / per_s.max(1e-9);
    format!(
        "loading: {:.1} of {:.1} M rows ({:.0}%), {:.0} k rows/s, {left_s:.0} s left",
        float(done) / 1e6,
        float(rows) / 1e6,
        float(done) / float(rows) * 100.0,
        per_s / 1e3,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_tells_rate_and_rest() {
        assert_eq!(
            progress_line(2_500_000, 10_000_000, Duration::from_secs(5)),
            "loading: 2.5 of 10.0 M rows (25%), 500 k rows/s, 15 s left"
        );
    }
}
