//! Reads and writes of a service without batching, and the ceiling of batching.
//!
//! Not batched: one prepared statement for one key, on one of a few connections. Clients that find
//! no connection free wait for one, in order of arrival: their waiting is part of the response
//! time. The ceiling: statements with very many keys that follow each other without a pause. No
//! way of batching single-key reads can be faster than that on this machine.

use std::{
    error::Error,
    future::pending,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Config, NoTls, Statement};

use super::{
    load::{Request, Target},
    rows::{Sequence, check, key, upserted},
};
use crate::failures::Failure;

/// Keys of one statement of the ceiling.
pub const CEILING_KEYS: usize = 1_024;

/// Settings of every session of the bench, as busload has them: no statement is planned anew, none
/// is compiled.
const SESSION: &str = "SET plan_cache_mode = force_generic_plan; SET jit = off";

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

/// A connection and its statements.
struct Session {
    client: Client,
    select: Statement,
    select_many: Statement,
    upsert: Statement,
}

impl Session {
    async fn open(config: &Config, relation: &str) -> Result<Self> {
        let client = connect(config).await?;
        let select = format!("SELECT payload FROM {relation} WHERE pk = $1");
        let many = format!("SELECT pk, payload FROM {relation} WHERE pk = ANY($1)");
        let upsert = format!(
            "INSERT INTO {relation} (pk, payload) VALUES ($1, $2) \
             ON CONFLICT (pk) DO UPDATE SET payload = excluded.payload"
        );
        let select = client.prepare(&select).await?;
        let (select_many, upsert) = (client.prepare(&many).await?, client.prepare(&upsert).await?);
        Ok(Self { client, select, select_many, upsert })
    }

    async fn read(&self, row: u64) -> Result<u64, Failure> {
        let found = self.client.query_opt(&self.select, &[&key(row)]).await.map_err(refused)?;
        let payload = found.as_ref().map(|found| found.try_get::<_, &str>(0)).transpose();
        check(row, payload.map_err(refused)?.map(str::as_bytes))
    }

    async fn read_many(&self, rows: &[u64]) -> Result<u64, Failure> {
        let keys: Vec<String> = rows.iter().map(|row| key(*row)).collect();
        let found = self.client.query(&self.select_many, &[&keys]).await.map_err(refused)?;
        if found.len() != rows.len() {
            return Err(Failure::Wrong(format!("{} rows for {} keys", found.len(), rows.len())));
        }
        // All keys were found and none twice, so each row only has to fit its own key.
        found
            .iter()
            .map(|found| {
                let key: &str = found.try_get(0).map_err(refused)?;
                let payload: &str = found.try_get(1).map_err(refused)?;
                check(key.parse().unwrap_or(u64::MAX), Some(payload.as_bytes()))
            })
            .sum()
    }

    async fn upsert(&self, row: u64, version: u64) -> Result<u64, Failure> {
        let (key, payload) = (key(row), upserted(row, version));
        match self.client.execute(&self.upsert, &[&key, &payload]).await.map_err(refused)? {
            1 => Ok(1),
            rows => Err(Failure::Wrong(format!("an upsert wrote {rows} rows"))),
        }
    }
}

/// Connections, each of which answers one request at a time.
pub struct Pool {
    idle: Mutex<Vec<Session>>,
    free: Semaphore,
    /// Further rows of each read: a pool for the ceiling has them.
    further: Option<Mutex<Sequence>>,
}

impl Pool {
    pub async fn open(
        config: &Config,
        relation: &str,
        connections: usize,
        further: Option<Sequence>,
    ) -> Result<Self> {
        let mut idle = Vec::with_capacity(connections);
        for _ in 0..connections {
            idle.push(Session::open(config, relation).await?);
        }
        let (idle, free) = (Mutex::new(idle), Semaphore::new(connections));
        Ok(Self { idle, free, further: further.map(Mutex::new) })
    }

    /// Returns the rows of a read of the ceiling, sorted as busload sends them: Postgres would sort
    /// them itself otherwise.
    fn many(&self, row: u64) -> Option<Vec<u64>> {
        let mut further = lock(self.further.as_ref()?);
        let mut rows: Vec<u64> = (1..CEILING_KEYS).map(|_| further.next()).collect();
        rows.push(row);
        rows.sort_unstable();
        rows.dedup();
        Some(rows)
    }
}

impl Target for Pool {
    async fn ask(&self, Request { row, version, .. }: Request) -> Result<u64, Failure> {
        let many = self.many(row);
        let _permit = self.free.acquire().await.expect("the semaphore is never closed");
        let session = lock(&self.idle).pop();
        // A task that was ended has not given its connection back: the load is over.
        let Some(session) = session else { return pending().await };
        let outcome = match (version, many) {
            (Some(version), _) => session.upsert(row, version).await,
            (None, Some(rows)) => session.read_many(&rows).await,
            (None, None) => session.read(row).await,
        };
        lock(&self.idle).push(session);
        outcome
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an error of the driver a refusal. Its own text names the kind only; the cause says what
/// happened.
fn refused(error: tokio_postgres::Error) -> Failure {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::Refused(format!("{error}{cause}"))
}
