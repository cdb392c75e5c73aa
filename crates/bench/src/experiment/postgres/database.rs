//! The Postgres under measurement: given, or a cluster of our own; and what it says about itself.

use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use busload_cluster::{Cluster, Profile, StopMode};
use rustix::process::Pid;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, Row, types::ToSql};

use super::{arguments::Postgres, plain::connect};
use crate::{
    clock::{duration_ns, now_ns, pause},
    limits::{POLL, SESSIONS_END, TABLE_BYTES_PER_ROW},
    machine::{memory_bytes, parent_named},
};

/// The extension that counts statements.
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
    /// The process of a server that was given.
    given_pid: Option<Pid>,
    admin: Option<Admin>,
    counts: Counts,
}

/// Source of the number of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// The extension, exactly and at once.
    Statements,
    /// The server's statistics: sessions report at their ends, and else after ten idle seconds.
    Transactions,
}

/// A connection for everything that is not measured.
struct Admin {
    client: Client,
    /// Runs only while somebody asks; so an idle connection costs nothing.
    runtime: Runtime,
}

impl Admin {
    fn open(config: &Config) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("a runtime")?;
        let client = runtime.block_on(connect(config))?;
        Ok(Self { client, runtime })
    }
}

impl Database {
    /// Connects to the given one, or makes a cluster or starts a kept one.
    pub fn open(arguments: &Postgres) -> Result<Self> {
        let source = &arguments.source;
        let cluster = match &source.url {
            Some(_) => None,
            None => Some(start_cluster(arguments)?),
        };
        let url = match (&source.url, &cluster) {
            (Some(url), _) => url.clone(),
            (None, Some(cluster)) => cluster.url(),
            (None, None) => bail!("neither a URL nor a cluster"),
        };
        let mut config = Config::from_str(&url).map_err(|error| anyhow!("--url: {error}"))?;
        if let (Some(_), Ok(password)) = (&source.url, std::env::var("PGPASSWORD")) {
            config.password(password);
        }
        config.application_name("busload-bench");
        let admin = Some(Admin::open(&config)?);
        let relation = source.relation.clone();
        let is_kept = source.cluster.is_some();
        let counts = Counts::Transactions;
        let mut database =
            Self { url, config, relation, cluster, is_kept, given_pid: None, admin, counts };
        database.given_pid = database.find_given_pid()?;
        database.forget_settings()?;
        database.find_counter();
        Ok(database)
    }

    /// A kept cluster may hold what an interrupted run had set.
    fn forget_settings(&mut self) -> Result<()> {
        if self.cluster.is_none() {
            return Ok(());
        }
        let set = "SELECT count(*) FROM pg_settings WHERE sourcefile LIKE '%postgresql.auto.conf'";
        if 0 < self.query_one(set, &[])?.get::<_, i64>(0) {
            self.restart_with("ALTER SYSTEM RESET ALL")?;
        }
        Ok(())
    }

    fn find_counter(&mut self) {
        let make = format!("CREATE EXTENSION IF NOT EXISTS {COUNTER}");
        let works = self
            .execute(&make)
            .and_then(|()| self.query_one(&self.count_statements(), &[]).map(drop));
        match works {
            Ok(()) => self.counts = Counts::Statements,
            Err(error) => eprintln!("no {COUNTER} ({error:#}): transactions are counted instead"),
        }
    }

    /// Describes the server's place for people.
    pub fn place(&self) -> String {
        match &self.cluster {
            Some(cluster) => format!("own cluster in {}", cluster.directory().display()),
            None => self.url.clone(),
        }
    }

    /// Whether it is ours to restart.
    pub fn is_own(&self) -> bool {
        self.cluster.is_some()
    }

    /// The server's process, if it runs on this machine.
    pub fn pid(&self) -> Option<Pid> {
        match &self.cluster {
            Some(cluster) => {
                cluster.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw)
            }
            None => self.given_pid,
        }
    }

    fn find_given_pid(&mut self) -> Result<Option<Pid>> {
        let asked = "SELECT pg_backend_pid(), \
                     inet_server_addr() IS NULL OR inet_server_addr() <<= '127.0.0.0/8' \
                     OR inet_server_addr() = '::1'";
        let row = self.query_one(asked, &[])?;
        let is_local: bool = row.get(1);
        let session = Pid::from_raw(row.get::<_, i32>(0)).filter(|_| is_local);
        Ok(session.and_then(|session| parent_named(session, "postgres")))
    }

    /// Runs statements whose rows nobody needs.
    pub fn execute(&mut self, sql: &str) -> Result<()> {
        self.with_admin(async |client| client.batch_execute(sql).await.map_err(said))
    }

    /// The rows of a statement.
    pub fn query(&mut self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.with_admin(async |client| client.query(sql, parameters).await.map_err(said))
    }

    /// The only row of a statement.
    pub fn query_one(&mut self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Row> {
        let mut rows = self.query(sql, parameters)?;
        match (rows.pop(), rows.is_empty()) {
            (Some(row), true) => Ok(row),
            _ => bail!("not one row: {sql}"),
        }
    }

    /// Runs something with the connection for what is not measured.
    pub fn with_admin<T>(
        &mut self,
        action: impl AsyncFnOnce(&mut Client) -> Result<T>,
    ) -> Result<T> {
        let admin = self.admin.as_mut().context("no connection to Postgres")?;
        admin.runtime.block_on(action(&mut admin.client))
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Waits until sessions that were closed have reported what they did.
    pub fn wait_for_counters(&mut self) -> Result<()> {
        if self.counts == Counts::Statements {
            return Ok(());
        }
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                      AND usename = current_user AND pid <> pg_backend_pid()";
        let until_ns = now_ns() + duration_ns(SESSIONS_END);
        while 0 < self.query_one(others, &[])?.get::<_, i64>(0) && now_ns() < until_ns {
            pause(POLL);
        }
        Ok(())
    }

    /// Statements that name the table, since the server started to count.
    pub fn statements(&mut self) -> Result<u64> {
        let sql = match self.counts {
            Counts::Statements => self.count_statements(),
            Counts::Transactions => {
                let from = "FROM pg_stat_database WHERE datname = current_database()";
                format!("SELECT xact_commit + xact_rollback {from}")
            }
        };
        let count: i64 = self.query_one(&sql, &[])?.get(0);
        u64::try_from(count).context("a count below 0")
    }

    fn count_statements(&self) -> String {
        format!(
            "SELECT coalesce(sum(calls), 0)::int8 FROM {COUNTER} \
             WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) \
             AND query LIKE '%{}%' AND query !~ '{COUNTER}|EXPLAIN|COPY|VACUUM'",
            self.relation
        )
    }

    /// A setting as the server shows it.
    pub fn setting(&mut self, name: &str) -> Result<String> {
        Ok(self.query_one("SELECT current_setting($1)", &[&name])?.get(0))
    }

    /// Restarts an own cluster with another `shared_buffers`, or with its usual one.
    pub fn restart_with_buffers(&mut self, size: Option<&str>) -> Result<()> {
        match size {
            Some(size) => {
                let size = size.replace('\'', "''");
                self.restart_with(&format!("ALTER SYSTEM SET shared_buffers = '{size}'"))
            }
            None => self.restart_with("ALTER SYSTEM RESET ALL"),
        }
    }

    fn restart_with(&mut self, change: &str) -> Result<()> {
        self.execute(change)?;
        self.admin = None;
        let cluster = self.cluster.as_ref().context("only an own cluster can be restarted")?;
        cluster.stop(StopMode::Fast).context("cannot stop Postgres")?;
        cluster.start().context("cannot start Postgres again")?;
        self.admin = Some(Admin::open(&self.config)?);
        Ok(())
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
        let source = &arguments.source;
        let mut builder = Cluster::builder().profile(Profile::Stock);
        for (name, value) in settings(arguments) {
            builder = builder.setting(name, value);
        }
        if let Some(preload) = preload {
            builder = builder.setting("shared_preload_libraries", preload);
        }
        for (name, value) in &source.pg_setting {
            builder = builder.setting(name, value);
        }
        if let Some(directory) = &source.cluster {
            builder = builder.directory(directory);
        }
        builder.start()
    };
    // The extension belongs to another package on some systems.
    match start(Some(COUNTER)) {
        Err(busload_cluster::ClusterError::NotStarted { log, .. }) if log.contains(COUNTER) => {
            start(None).context("cannot start a Postgres cluster")
        }
        started => started.context("cannot start a Postgres cluster"),
    }
}

/// Returns the settings that differ from a Postgres as it comes.
fn settings(arguments: &Postgres) -> Vec<(&'static str, String)> {
    let most = arguments.connections.iter().chain(&arguments.upsert_connections);
    let most = most.chain([&arguments.window_connections]).chain(&arguments.busload_connections);
    let connections = most.max().copied().unwrap_or_default();
    vec![
        ("shared_buffers", shared_buffers(arguments)),
        // The server's own sessions, and those of the busload server, come on top.
        ("max_connections", (connections + 100).to_string()),
        ("checkpoint_timeout", "30min".to_owned()),
        ("max_wal_size", "8GB".to_owned()),
    ]
}

fn shared_buffers(arguments: &Postgres) -> String {
    if let Some(size) = &arguments.source.shared_buffers {
        return size.clone();
    }
    let table = arguments.source.rows.saturating_mul(TABLE_BYTES_PER_ROW);
    let memory = memory_bytes().unwrap_or(u64::MAX) / 10 * 4;
    format!("{}MB", (table.min(memory) >> 20).max(128))
}

/// An error as people read it: the driver's own text only names the kind.
fn said(error: tokio_postgres::Error) -> anyhow::Error {
    match error.as_db_error() {
        Some(database) => anyhow!("{}", database.message()),
        None => error.into(),
    }
}
