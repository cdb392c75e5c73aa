//! The Postgres under measurement: given, or a cluster of our own; its table, and what it counts.
//!
//! Row `n` of the table has `n` as its key, padded to 20 digits, and a payload of 35 bytes that
//! ends with the key. So every reply can be checked without knowing who wrote the row when.

use anyhow::{Context, Result};
use busload_cluster::{Cluster, Profile, StopMode};
use rustix::process::Pid;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, Row, types::ToSql};

use super::{arguments::Common, direct::connect};
use crate::{
    failures::Failure,
    limits::TABLE_BYTES_PER_ROW,
    machine::{memory_bytes, parent_named},
};

/// Table of the bench, which nobody else has: it is dropped at the end.
pub const RELATION: &str = "busload_bench";

/// Digits of a key.
pub const KEY_BYTES: usize = 20;

/// Text before the key in the payload of a loaded row.
pub const LOADED: &str = "payload of row ";

/// Stamps after which they begin again: a payload has room for seven digits.
const STAMPS: u64 = 10_000_000;

pub fn key(row: u64) -> String {
    format!("{row:020}")
}

/// Returns the payload that an upsert writes, as long as a loaded one.
pub fn upserted(row: u64, stamp: u64) -> String {
    format!("upsert {:07} {row:020}", stamp % STAMPS)
}

/// Checks that a row may hold this payload. Returns the number of rows, 1.
pub fn check(row: u64, payload: Option<&[u8]>) -> Result<u64, Failure> {
    let Some(payload) = payload else {
        return Err(Failure::Wrong(format!("row {row} is said to be missing")));
    };
    let are_digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    let fits = payload.split_at_checked(LOADED.len()).is_some_and(|(prefix, digits)| {
        let stamp = prefix.strip_prefix(b"upsert ").and_then(|rest| rest.strip_suffix(b" "));
        let is_ours = prefix == LOADED.as_bytes() || stamp.is_some_and(are_digits);
        let is_key = digits.len() == KEY_BYTES && are_digits(digits);
        is_ours && is_key && str::from_utf8(digits).is_ok_and(|digits| digits.parse() == Ok(row))
    });
    if fits {
        return Ok(1);
    }
    let payload = String::from_utf8_lossy(payload);
    Err(Failure::Wrong(format!("row {row} is said to hold `{payload}`")))
}

/// Extension that counts statements, exactly and at once.
const COUNTER: &str = "pg_stat_statements";

/// A Postgres and the table in it.
pub struct Database {
    /// The server and its database, without a password.
    pub url: String,
    /// Address of the server for the driver.
    pub config: Config,
    cluster: Option<Cluster>,
    ending: Ending,
    /// Connection for everything that is not measured.
    admin: Client,
    /// Runs only while somebody asks; so the idle connection costs nothing.
    runtime: Runtime,
    counts_statements: bool,
}

/// Fate of the table and of a cluster when the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Nothing: a given Postgres keeps the table, or has none yet; a cluster is removed.
    Nothing,
    /// A given Postgres loses the table.
    DropTable,
    /// A kept cluster is stopped in order, so that the next start has nothing to recover.
    StopCluster,
}

/// Parses the URL of a Postgres, whose password is in the environment.
pub fn config_of(url: &str) -> Result<Config> {
    let mut config: Config = url.parse().context("the URL of Postgres")?;
    if let Ok(password) = std::env::var("PGPASSWORD") {
        config.password(password);
    }
    config.application_name("busload-bench");
    Ok(config)
}

impl Database {
    /// Connects to the given one, or makes a cluster or starts a kept one, for rows with so many
    /// connections. Loads the table if it is not there.
    pub fn open(arguments: &Common, connections: usize) -> Result<Self> {
        let cluster = match &arguments.database {
            Some(_) => None,
            None => Some(start_cluster(arguments, connections)?),
        };
        let given = || arguments.database.clone().unwrap_or_default();
        let url = cluster.as_ref().map_or_else(given, Cluster::url);
        let config = config_of(&url)?;
        let runtime = Builder::new_current_thread().enable_all().build().context("a runtime")?;
        let admin = runtime.block_on(connect(&config))?;
        let ending = match arguments.cluster {
            Some(_) => Ending::StopCluster,
            None => Ending::Nothing,
        };
        let mut database =
            Self { url, config, cluster, ending, admin, runtime, counts_statements: true };
        let make = format!("CREATE EXTENSION IF NOT EXISTS {COUNTER}");
        if let Err(error) = database.execute(&make).and_then(|()| database.statements()) {
            eprintln!("no {COUNTER} ({error:#}): statements are not counted");
            database.counts_statements = false;
        }
        database.prepare(arguments.rows)?;
        if arguments.database.is_some() && !arguments.keep {
            database.ending = Ending::DropTable;
        }
        Ok(database)
    }

    /// Describes the server, its settings and the table in one line.
    pub fn describe(&self) -> Result<String> {
        let settings = format!(
            "SELECT string_agg(name || ' ' || current_setting(name), '; ') || '; ' || \
             pg_size_pretty(pg_total_relation_size('{RELATION}')) || ' with the index' \
             FROM unnest('{{server_version, shared_buffers, fsync, synchronous_commit}}'::text[]) \
             name"
        );
        let settings: String = self.query_one(&settings)?.get(0);
        Ok(format!("Postgres: {}; {settings}", self.url))
    }

    /// Returns the server's process if it runs on this machine.
    pub fn pid(&self) -> Result<Option<Pid>> {
        let row = self.query_one(
            "SELECT pg_backend_pid(), inet_server_addr() IS NULL \
             OR inet_server_addr() <<= '127.0.0.0/8' OR inet_server_addr() = '::1'",
        )?;
        let session = Pid::from_raw(row.get(0)).filter(|_| row.get(1));
        Ok(session.and_then(|session| parent_named(session, "postgres")))
    }

    /// Counts the statements that name the table, since the server started to count.
    pub fn statements(&self) -> Result<Option<u64>> {
        if !self.counts_statements {
            return Ok(None);
        }
        let count: i64 = self
            .query_one(&format!(
                "SELECT coalesce(sum(calls), 0)::int8 FROM {COUNTER} \
                 WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND query LIKE '%{RELATION}%' AND query !~ '{COUNTER}|EXPLAIN|COPY|VACUUM'"
            ))?
            .get(0);
        Ok(Some(u64::try_from(count).context("statements below 0")?))
    }

    /// Runs statements whose rows nobody needs.
    pub fn execute(&self, sql: &str) -> Result<()> {
        Ok(self.runtime.block_on(self.admin.batch_execute(sql))?)
    }

    pub fn query(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        Ok(self.runtime.block_on(self.admin.query(sql, parameters))?)
    }

    pub fn query_one(&self, sql: &str) -> Result<Row> {
        Ok(self.runtime.block_on(self.admin.query_one(sql, &[]))?)
    }

    /// Waits for something that is asked on the connection that is not measured.
    pub fn on_admin<T>(&self, ask: impl AsyncFnOnce(&Client) -> Result<T>) -> Result<T> {
        self.runtime.block_on(ask(&self.admin))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        match self.ending {
            Ending::Nothing => {}
            Ending::DropTable => {
                if let Err(error) = self.execute(&format!("DROP TABLE IF EXISTS {RELATION}")) {
                    eprintln!("cannot drop {RELATION}: {error:#}");
                }
            }
            Ending::StopCluster => {
                let _ = self.cluster.as_ref().map(|cluster| cluster.stop(StopMode::Fast));
            }
        }
    }
}

fn start_cluster(arguments: &Common, connections: usize) -> Result<Cluster> {
    let Common { rows, pg_setting, cluster, .. } = arguments;
    let memory = memory_bytes().unwrap_or(u64::MAX) / 10 * 4;
    let buffers = (rows.saturating_mul(TABLE_BYTES_PER_ROW).min(memory) >> 20).max(128);
    let settings = [
        ("shared_buffers", format!("{buffers}MB")),
        // Those of busload come on top.
        ("max_connections", (connections + 100).to_string()),
        ("checkpoint_timeout", "30min".to_owned()),
        ("max_wal_size", "8GB".to_owned()),
        ("shared_preload_libraries", COUNTER.to_owned()),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value));
    let mut builder = Cluster::builder().profile(Profile::Stock);
    for (name, value) in settings.iter().chain(pg_setting) {
        builder = builder.setting(name, value);
    }
    if let Some(directory) = cluster {
        builder = builder.directory(directory);
    }
    builder.start().context("cannot start a Postgres cluster")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_row_can_hold_belongs_to_it() {
        let loaded = format!("{LOADED}{}", key(7));
        for payload in [loaded, upserted(7, 0), upserted(7, STAMPS - 1), upserted(7, STAMPS)] {
            assert_eq!(check(7, Some(payload.as_bytes())), Ok(1), "{payload}");
            assert!(check(8, Some(payload.as_bytes())).is_err(), "{payload}");
            assert!(check(7, Some(&payload.as_bytes()[1..])).is_err(), "{payload}");
        }
        let altered = upserted(7, 0).replace("0000000 ", "00x0000 ");
        for wrong in ["", LOADED, "payload of rox 00000000000000000007", &altered] {
            assert!(matches!(check(7, Some(wrong.as_bytes())), Err(Failure::Wrong(_))), "{wrong}");
        }
        assert!(matches!(check(7, None), Err(Failure::Wrong(_))));
    }
}
