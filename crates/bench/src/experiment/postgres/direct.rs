//! Reads and writes of a service without batching, and the ceiling of batching.
//!
//! Not batched: one prepared statement for one key, on one of a few connections. Clients that find
//! no connection free wait for one, in order of arrival: their waiting is part of the response
//! time. Or clients share connections without waiting, in a pipeline. The ceiling: statements with
//! very many keys that follow each other without a pause. No way of batching single-key reads can
//! be faster than that on this machine.

use std::{
    future::pending,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Config, NoTls, Statement};

use super::{
    database::{RELATION, check, key, upserted},
    load::{Request, Target},
};
use crate::{failures::Failure, random::Random};

/// Keys of one statement of the ceiling.
const CEILING_KEYS: usize = 1_024;

/// Settings of every session of the bench, as busload has them: no statement is planned anew, none
/// is compiled.
pub const SESSION: &str = "SET plan_cache_mode = force_generic_plan; SET jit = off";

/// Opens one connection. Its task ends when the client is dropped.
pub async fn connect(config: &Config) -> Result<Client> {
    let (client, connection) = config.connect(NoTls).await.context("cannot connect to Postgres")?;
    tokio::spawn(async move {
        // What it ends with is reported to whoever waits for an answer.
        let _ = connection.await;
    });
    client.batch_execute(SESSION).await.context("cannot set up a session")?;
    Ok(client)
}

/// Statement that a connection repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    Read,
    /// Read of very many random rows of a table with this many.
    Ceiling(u64),
    /// Write of a row, with this stamp, whether it exists or not.
    Upsert(u64),
}

/// A connection and the statement that it repeats.
struct Session {
    client: Client,
    statement: Statement,
    query: Query,
}

impl Session {
    /// Opens connections, all at once: they may be far.
    async fn open(config: &Config, count: usize, query: Query) -> Result<Vec<Self>> {
        let sql = match query {
            Query::Read => format!("SELECT payload FROM {RELATION} WHERE pk = $1"),
            Query::Ceiling(_) => {
                format!("SELECT pk, payload FROM {RELATION} WHERE pk = ANY($1)")
            }
            Query::Upsert(_) => format!(
                "INSERT INTO {RELATION} (pk, payload) VALUES ($1, $2) \
                 ON CONFLICT (pk) DO UPDATE SET payload = excluded.payload"
            ),
        };
        let open = async || {
            let client = connect(config).await?;
            let statement = client.prepare(&sql).await?;
            Ok(Self { client, statement, query })
        };
        try_join_all((0..count).map(|_| open())).await
    }

    async fn ask(&self, row: u64) -> Result<u64, Failure> {
        let Self { client, statement, .. } = self;
        match self.query {
            Query::Read => {
                let found = client.query_opt(statement, &[&key(row)]).await.map_err(refused)?;
                let payload: Option<&str> = found.as_ref().and_then(|found| found.get(0));
                check(row, payload.map(str::as_bytes))
            }
            Query::Ceiling(rows) => {
                let keys = ceiling_keys(row, rows);
                let found = client.query(statement, &[&keys]).await.map_err(refused)?;
                if found.len() != keys.len() {
                    let counts = format!("{} rows for {} keys", found.len(), keys.len());
                    return Err(Failure::Wrong(counts));
                }
                // All keys were found and none twice, so each row only has to fit its own key.
                let checked = found.iter().map(|found| {
                    let (key, payload): (&str, Option<&str>) = (found.get(0), found.get(1));
                    check(key.parse().unwrap_or(u64::MAX), payload.map(str::as_bytes))
                });
                checked.sum()
            }
            Query::Upsert(stamp) => {
                let (key, payload) = (key(row), upserted(row, stamp));
                match client.execute(statement, &[&key, &payload]).await.map_err(refused)? {
                    1 => Ok(1),
                    rows => Err(Failure::Wrong(format!("an upsert wrote {rows} rows"))),
                }
            }
        }
    }
}

/// Connections, each of which answers one request at a time.
pub struct Pool {
    idle: Mutex<Vec<Session>>,
    free: Semaphore,
}

impl Pool {
    pub async fn open(config: Config, connections: usize, query: Query) -> Result<Self> {
        let idle = Mutex::new(Session::open(&config, connections, query).await?);
        Ok(Self { idle, free: Semaphore::new(connections) })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target for Pool {
    async fn ask(&self, Request { row, .. }: Request) -> Result<u64, Failure> {
        let _permit = self.free.acquire().await.expect("the semaphore is never closed");
        let session = self.idle().pop();
        // A task that was ended has not given its connection back: the load is over.
        let Some(session) = session else { return pending().await };
        let outcome = session.ask(row).await;
        self.idle().push(session);
        outcome
    }
}

/// Connections that clients share: the driver sends a request without waiting for earlier replies.
pub struct Pipelines {
    sessions: Vec<Session>,
}

impl Pipelines {
    pub async fn open(config: Config, connections: usize, query: Query) -> Result<Self> {
        Ok(Self { sessions: Session::open(&config, connections, query).await? })
    }
}

impl Target for Pipelines {
    async fn ask(&self, Request { client, row, .. }: Request) -> Result<u64, Failure> {
        self.sessions[client % self.sessions.len()].ask(row).await
    }
}

/// Returns keys of a row and of many others, sorted as busload sends them: Postgres would sort them
/// itself otherwise.
fn ceiling_keys(row: u64, rows: u64) -> Vec<String> {
    let mut random = Random::new(row);
    let further = std::iter::repeat_with(|| random.below(rows)).take(CEILING_KEYS - 1);
    let mut rows: Vec<u64> = further.chain([row]).collect();
    rows.sort_unstable();
    rows.dedup();
    rows.into_iter().map(key).collect()
}

/// Makes an error of the driver a refusal, with its cause: its own text names the kind only.
fn refused(error: tokio_postgres::Error) -> Failure {
    Failure::Refused(format!("{:#}", anyhow::Error::from(error)))
}
