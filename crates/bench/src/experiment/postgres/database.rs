//! The Postgres under measurement: given, or a cluster of our own; and what it says about itself.

use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use busload_cluster::{Cluster, ClusterError, Profile, StopMode};
use rustix::process::Pid;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, Row, types::ToSql};

use super::{arguments::Postgres, direct::connect};
use crate::{
    clock::{duration_ns, now_ns, pause},
    limits::{POLL, SESSIONS_END, TABLE_BYTES_PER_ROW},
    machine::{memory_bytes, parent_named},
};

/// Extension that counts statements.
const COUNTER: &str = "pg_stat_statements";

/// A Postgres and the table in it.
pub struct Database {
    /// The server and its database, without a password.
    pub url: String,
    /// Address of the server for the driver.
    pub config: Config,
    pub relation: String,
    cluster: Option<Cluster>,
    is_kept: bool,
    /// Connection for everything that is not measured.
    admin: Option<Client>,
    /// Runs only while somebody asks; so the idle connection costs nothing.
    runtime: Runtime,
    /// Set if the extension counts statements, exactly and at once. Otherwise the server's
    /// statistics count transactions: sessions report at their ends, and else after ten idle
    /// seconds.
    pub counts_statements: bool,
}

impl Database {
    /// Connects to the given one, or makes a cluster or starts a kept one.
    pub fn open(arguments: &Postgres) -> Result<Self> {
        let source = &arguments.source;
        let (cluster, url) = match &source.url {
            Some(url) => (None, url.clone()),
            None => {
                let cluster = start_cluster(arguments)?;
                let url = cluster.url();
                (Some(cluster), url)
            }
        };
        let mut config = Config::from_str(&url).map_err(|error| anyhow!("--url: {error}"))?;
        if let (Some(_), Ok(password)) = (&source.url, std::env::var("PGPASSWORD")) {
            config.password(password);
        }
        config.application_name("busload-bench");
        let mut database = Self {
            url,
            config,
            relation: source.relation.clone(),
            cluster,
            is_kept: source.cluster.is_some(),
            admin: None,
            runtime: Builder::new_current_thread().enable_all().build().context("a runtime")?,
            counts_statements: false,
        };
        database.connect()?;
        database.forget_settings()?;
        database.find_counter();
        Ok(database)
    }

    fn connect(&mut self) -> Result<()> {
        self.admin = Some(self.runtime.block_on(connect(&self.config))?);
        Ok(())
    }

    /// Removes what an interrupted run has set in a kept cluster.
    fn forget_settings(&mut self) -> Result<()> {
        let set = "SELECT count(*) FROM pg_settings WHERE sourcefile LIKE '%postgresql.auto.conf'";
        if self.is_own() && 0 < self.number(set)? {
            self.restart_with_buffers(None)?;
        }
        Ok(())
    }

    fn find_counter(&mut self) {
        let make = format!("CREATE EXTENSION IF NOT EXISTS {COUNTER}");
        self.counts_statements = true;
        if let Err(error) = self.execute(&make).and_then(|()| self.statements()) {
            eprintln!("no {COUNTER} ({error:#}): transactions are counted instead");
            self.counts_statements = false;
        }
    }

    /// Describes the server's place for people.
    pub fn place(&self) -> String {
        match &self.cluster {
            Some(cluster) => format!("own cluster in {}", cluster.directory().display()),
            None => self.url.clone(),
        }
    }

    /// Returns whether it is ours to restart.
    pub fn is_own(&self) -> bool {
        self.cluster.is_some()
    }

    /// Returns the server's process if it runs on this machine.
    pub fn pid(&mut self) -> Result<Option<Pid>> {
        let asked = "SELECT pg_backend_pid(), \
                     inet_server_addr() IS NULL OR inet_server_addr() <<= '127.0.0.0/8' \
                     OR inet_server_addr() = '::1'";
        let row = self.query_one(asked, &[])?;
        let session = Pid::from_raw(row.get(0)).filter(|_| row.get(1));
        Ok(session.and_then(|session| parent_named(session, "postgres")))
    }

    /// Runs statements whose rows nobody needs.
    pub fn execute(&mut self, sql: &str) -> Result<()> {
        let admin = self.admin.as_ref().context("no connection to Postgres")?;
        self.runtime.block_on(admin.batch_execute(sql)).map_err(described)
    }

    pub fn query(&mut self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let admin = self.admin.as_ref().context("no connection to Postgres")?;
        self.runtime.block_on(admin.query(sql, parameters)).map_err(described)
    }

    /// Returns the only row of a statement.
    pub fn query_one(&mut self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Row> {
        let mut rows = self.query(sql, parameters)?;
        match (rows.pop(), rows.is_empty()) {
            (Some(row), true) => Ok(row),
            _ => bail!("not one row: {sql}"),
        }
    }

    /// Returns the only number of a statement, a `bigint` from 0 on.
    pub fn number(&mut self, sql: &str) -> Result<u64> {
        let number: i64 = self.query_one(sql, &[])?.get(0);
        u64::try_from(number).with_context(|| format!("below 0: {sql}"))
    }

    /// Waits until sessions that were closed have reported what they did.
    pub fn wait_for_counters(&mut self) -> Result<()> {
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                      AND usename = current_user AND pid <> pg_backend_pid()";
        let until_ns = now_ns() + duration_ns(SESSIONS_END);
        while !self.counts_statements && 0 < self.number(others)? && now_ns() < until_ns {
            pause(POLL);
        }
        Ok(())
    }

    /// Counts the statements that name the table, since the server started to count.
    pub fn statements(&mut self) -> Result<u64> {
        self.number(&match self.counts_statements {
            true => format!(
                "SELECT coalesce(sum(calls), 0)::int8 FROM {COUNTER} \
                 WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND query LIKE '%{}%' AND query !~ '{COUNTER}|EXPLAIN|COPY|VACUUM'",
                self.relation
            ),
            false => "SELECT xact_commit + xact_rollback FROM pg_stat_database \
                      WHERE datname = current_database()"
                .to_owned(),
        })
    }

    /// Returns the bytes of the table and of its indexes.
    pub fn table_bytes(&mut self) -> Result<u64> {
        let size = format!("SELECT pg_total_relation_size('{}'::regclass)", self.relation);
        self.number(&size)
    }

    /// Returns settings as the server shows them, in one line.
    pub fn settings(&mut self, names: &[&str]) -> Result<String> {
        let sql = "SELECT string_agg(name || ' ' || current_setting(name), '; ' ORDER BY number) \
                   FROM unnest($1::text[]) WITH ORDINALITY settings (name, number)";
        Ok(self.query_one(sql, &[&names])?.get(0))
    }

    /// Restarts an own cluster with another `shared_buffers`, or with its usual one.
    pub fn restart_with_buffers(&mut self, size: Option<&str>) -> Result<()> {
        let set = |size: &str| {
            format!("ALTER SYSTEM SET shared_buffers = '{}'", size.replace('\'', "''"))
        };
        self.execute(&size.map_or_else(|| "ALTER SYSTEM RESET ALL".to_owned(), set))?;
        self.admin = None;
        let cluster = self.cluster.as_ref().context("only an own cluster can be restarted")?;
        cluster.stop(StopMode::Fast).context("cannot stop Postgres")?;
        cluster.start().context("cannot start Postgres again")?;
        self.connect()
    }
}

impl Drop for Database {
    /// A kept cluster ends in order, so that the next start has nothing to recover; what is not
    /// kept is removed anyway.
    fn drop(&mut self) {
        self.admin = None;
        if let Some(cluster) = self.cluster.as_ref().filter(|_| self.is_kept) {
            let _ = cluster.stop(StopMode::Fast);
        }
    }
}

fn start_cluster(arguments: &Postgres) -> Result<Cluster> {
    let start = |preload: Option<&str>| {
        let mut builder = Cluster::builder().profile(Profile::Stock);
        let preload = preload.map(|library| ("shared_preload_libraries", library.to_owned()));
        for (name, value) in settings(arguments).into_iter().chain(preload) {
            builder = builder.setting(name, value);
        }
        for (name, value) in &arguments.source.pg_setting {
            builder = builder.setting(name, value);
        }
        if let Some(directory) = &arguments.source.cluster {
            builder = builder.directory(directory);
        }
        builder.start()
    };
    // The extension belongs to another package on some systems.
    let started = match start(Some(COUNTER)) {
        Err(ClusterError::NotStarted { log, .. }) if log.contains(COUNTER) => start(None),
        started => started,
    };
    started.context("cannot start a Postgres cluster")
}

/// Returns the settings that differ from a Postgres as it comes.
fn settings(arguments: &Postgres) -> [(&'static str, String); 4] {
    let buffers = arguments.source.shared_buffers.clone().unwrap_or_else(|| {
        let table = arguments.source.rows.saturating_mul(TABLE_BYTES_PER_ROW);
        let memory = memory_bytes().unwrap_or(u64::MAX) / 10 * 4;
        format!("{}MB", (table.min(memory) >> 20).max(128))
    });
    let connections = arguments.database_connections().max().unwrap_or_default();
    [
        ("shared_buffers", buffers),
        // The server's own sessions, and those of the busload server, come on top.
        ("max_connections", (connections + 100).to_string()),
        ("checkpoint_timeout", "30min".to_owned()),
        ("max_wal_size", "8GB".to_owned()),
    ]
}

/// Makes an error that people can read: the driver's own text only names the kind.
fn described(error: tokio_postgres::Error) -> anyhow::Error {
    match error.as_db_error() {
        Some(database) => anyhow!("{}", database.message()),
        None => error.into(),
    }
}
