//! The table of the bench: made, loaded, found again.
//!
//! A table says in its comment who made it and how far it is: `busload-bench: 2000000 of 350000000
//! rows` while it is loaded, `busload-bench: 350000000 rows` afterwards. Rows and comment change in
//! one transaction; so a load goes on where it was interrupted, and counting, which takes minutes
//! with hundreds of millions of rows, is not needed.

use std::{fmt::Write as _, ops::Range, pin::pin};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::SinkExt;

use super::database::{Database, LOADED, RELATION, key};
use crate::{
    cli::bail_usage,
    clock::now_ns,
    limits::{LOAD_PIECE_ROWS, LOAD_TRANSACTION_ROWS},
    progress::Progress,
    stats::float,
};

/// First words of the comment of a table that this program made.
const OWNER: &str = "busload-bench:";

/// State of the table in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A table that another program made.
    Foreign,
    /// Rows that are there and rows that were to be loaded.
    Partly(u64, u64),
    /// All rows are there, and the index.
    Whole(u64),
}

impl Found {
    /// Parses the comment of the table: none if there is no table, and within it if it has none.
    fn parse(comment: Option<Option<&str>>) -> Self {
        let Some(comment) = comment else { return Self::Nothing };
        let words = comment.and_then(|comment| comment.strip_prefix(OWNER)).unwrap_or_default();
        let words: Vec<_> = words.split_ascii_whitespace().collect();
        let found = match words[..] {
            [rows, "rows"] => rows.parse().ok().map(Self::Whole),
            [loaded, "of", rows, "rows"] => loaded
                .parse()
                .ok()
                .zip(rows.parse().ok())
                .map(|(some, all)| Self::Partly(some, all)),
            _ => None,
        };
        found.unwrap_or(Self::Foreign)
    }

    /// Returns the statement that writes this into the comment.
    fn comment(self) -> String {
        let text = match self {
            Self::Partly(loaded, rows) => format!("'{OWNER} {loaded} of {rows} rows'"),
            Self::Whole(rows) => format!("'{OWNER} {rows} rows'"),
            Self::Nothing | Self::Foreign => "NULL".to_owned(),
        };
        format!("COMMENT ON TABLE {RELATION} IS {text}")
    }
}

impl Database {
    /// Sees to it that the table has exactly the rows asked for, and that they are in memory as far
    /// as there is room. Leaves alone what this program did not make.
    pub fn prepare(&self, rows: u64) -> Result<()> {
        let lock = "SELECT pg_try_advisory_lock(hashtext('busload-bench'))";
        if !self.query_one(lock)?.get::<_, bool>(0) {
            bail_usage!("another busload-bench uses this database");
        }
        let sql = format!(
            "SELECT obj_description(oid, 'pg_class') FROM pg_class \
             WHERE oid = to_regclass('{RELATION}')"
        );
        let found = self.query(&sql, &[])?;
        let found = found.first().map(|row| row.get::<_, Option<&str>>(0));
        match Found::parse(found) {
            Found::Whole(whole) if whole == rows => eprintln!("{RELATION}: {rows} rows are there"),
            Found::Foreign => bail_usage!(
                "the table {RELATION} was not made by busload-bench, which will not touch it: \
                 rename it, or name another database"
            ),
            Found::Partly(loaded, wanted) if wanted == rows => self.load(loaded..rows)?,
            Found::Nothing | Found::Partly(..) | Found::Whole(_) => {
                self.execute(&format!(
                    "BEGIN; DROP TABLE IF EXISTS {RELATION}; \
                     CREATE TABLE {RELATION} (pk text COLLATE \"C\", payload text); {}; COMMIT",
                    Found::Partly(0, rows).comment()
                ))?;
                self.load(0..rows)?;
            }
        }
        let prewarm = format!(
            "CREATE EXTENSION IF NOT EXISTS pg_prewarm; \
             SELECT pg_prewarm('{RELATION}'), pg_prewarm('{RELATION}_pkey')"
        );
        if let Err(error) = self.execute(&prewarm) {
            eprintln!("no pg_prewarm ({error:#}): the first rows measure a table that is not warm");
        }
        Ok(())
    }

    /// Loads rows that are missing, in the order of their keys, and makes the index.
    fn load(&self, missing: Range<u64>) -> Result<()> {
        let Range { start: first, end: rows } = missing;
        eprintln!("{RELATION}: loading {} of {rows} rows", rows - first);
        let started_ns = now_ns();
        // Without the index, which is made at the end.
        let mut progress = Progress::begin(format!("{RELATION}: loading"), "rows", first, rows);
        let mut loaded = first;
        while loaded < rows {
            let end = rows.min(loaded + LOAD_TRANSACTION_ROWS);
            self.execute("BEGIN")?;
            self.copy(loaded..end).context("COPY")?;
            self.execute(&format!("{}; COMMIT", Found::Partly(end, rows).comment()))?;
            loaded = end;
            progress.show(loaded);
        }
        drop(progress);
        eprintln!("{RELATION}: making the index");
        self.execute(&format!("VACUUM (FREEZE, ANALYZE) {RELATION}"))?;
        self.execute(&format!(
            "SET maintenance_work_mem = '512MB'; BEGIN; \
             ALTER TABLE {RELATION} ADD PRIMARY KEY (pk); {}; COMMIT",
            Found::Whole(rows).comment()
        ))?;
        let seconds = float(now_ns() - started_ns) / 1e9;
        eprintln!("loaded {} rows in {seconds:.1} s", rows - first);
        if let Err(error) = self.execute("CHECKPOINT") {
            eprintln!("no checkpoint after loading: {error:#}");
        }
        Ok(())
    }

    /// Appends rows by COPY.
    fn copy(&self, rows: Range<u64>) -> Result<()> {
        self.on_admin(async |admin| {
            let copy = admin.copy_in(&format!("COPY {RELATION} (pk, payload) FROM STDIN")).await?;
            let mut copy = pin!(copy);
            for first in rows.clone().step_by(LOAD_PIECE_ROWS) {
                let mut text = String::new();
                for key in (first..rows.end).take(LOAD_PIECE_ROWS).map(key) {
                    writeln!(text, "{key}\t{LOADED}{key}").context("memory")?;
                }
                copy.send(Bytes::from(text)).await?;
            }
            copy.finish().await?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_ours_only_if_its_comment_says_so() {
        let parse = |comment: &str| Found::parse(Some(Some(comment)));
        assert_eq!(parse("busload-bench: 350000000 rows"), Found::Whole(350_000_000));
        assert_eq!(parse("busload-bench: 5 of 10 rows"), Found::Partly(5, 10));
        for foreign in ["", "busload-bench: rows", "busload-bench: x rows", "10 rows", "notes"] {
            assert_eq!(parse(foreign), Found::Foreign, "{foreign}");
        }
        assert_eq!(
            (Found::parse(None), Found::parse(Some(None))),
            (Found::Nothing, Found::Foreign)
        );
        for found in [Found::Whole(7), Found::Partly(0, 7)] {
            let comment = found.comment();
            assert_eq!(parse(comment.split('\'').nth(1).unwrap()), found);
        }
    }
}
