//! Reads and writes of a service without batching: one prepared statement for one key, on one of a
//! few connections.
//!
//! Clients that find no connection free wait for one, in order of arrival: their waiting is part of
//! the response time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Config, NoTls, Statement};

use super::{
    rows::{Key, Payload, belongs_to},
    tasks::Requests,
};
use crate::failures::Failure;

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
    upsert: Statement,
}

impl Session {
    async fn open(config: &Config, relation: &str) -> Result<Self> {
        let client = connect(config).await?;
        let select = client.prepare(&format!("SELECT payload FROM {relation} WHERE pk = $1")).await;
        let upsert = client
            .prepare(&format!(
                "INSERT INTO {relation} (pk, payload) VALUES ($1, $2) \
                 ON CONFLICT (pk) DO UPDATE SET payload = excluded.payload"
            ))
            .await;
        Ok(Self {
            client,
            select: select.context("cannot prepare the read")?,
            upsert: upsert.context("cannot prepare the upsert")?,
        })
    }
}

/// A pool of connections.
pub struct Plain {
    sessions: Vec<Session>,
    idle: Mutex<Vec<usize>>,
    free: Semaphore,
}

impl Plain {
    pub async fn open(config: &Config, relation: &str, connections: usize) -> Result<Self> {
        let mut sessions = Vec::with_capacity(connections);
        for _ in 0..connections {
            sessions.push(Session::open(config, relation).await?);
        }
        let idle = Mutex::new((0..connections).collect());
        Ok(Self { sessions, idle, free: Semaphore::new(connections) })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<usize>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Requests for Plain {
    async fn read(&self, row: u64) -> Result<(), Failure> {
        let _permit = self.free.acquire().await.expect("the semaphore is never closed");
        let lease = Lease::take(self);
        let session = lease.session();
        let key = Key::of(row);
        let found =
            session.client.query_opt(&session.select, &[&key.text()]).await.map_err(refused)?;
        let payload: Option<&str> = match &found {
            Some(found) => found.try_get(0).map_err(refused)?,
            None => None,
        };
        check(row, payload.map(str::as_bytes))
    }

    async fn upsert(&self, row: u64, version: u64) -> Result<(), Failure> {
        let _permit = self.free.acquire().await.expect("the semaphore is never closed");
        let lease = Lease::take(self);
        let session = lease.session();
        let (key, payload) = (Key::of(row), Payload::upserted(row, version));
        let written =
            session.client.execute(&session.upsert, &[&key.text(), &payload.text()]).await;
        match written.map_err(refused)? {
            1 => Ok(()),
            rows => Err(Failure::Wrong(format!("an upsert wrote {rows} rows"))),
        }
    }
}

/// A connection while it is used. There is one for every permit.
struct Lease<'a> {
    pool: &'a Plain,
    index: usize,
}

impl<'a> Lease<'a> {
    fn take(pool: &'a Plain) -> Self {
        let index = pool.idle().pop().expect("there are as many permits as connections");
        Self { pool, index }
    }

    fn session(&self) -> &'a Session {
        &self.pool.sessions[self.index]
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.pool.idle().push(self.index);
    }
}

/// Whether this is what row `row` may hold.
pub fn check(row: u64, payload: Option<&[u8]>) -> Result<(), Failure> {
    match payload {
        Some(payload) if belongs_to(payload, row) => Ok(()),
        Some(payload) => Err(Failure::Wrong(format!(
            "row {row} is said to hold `{}`",
            String::from_utf8_lossy(payload)
        ))),
        None => Err(Failure::Wrong(format!("row {row} is said to be missing"))),
    }
}

/// An error of the driver as a refusal. Its own text names the kind only; the cause says what
/// happened.
pub fn refused(error: tokio_postgres::Error) -> Failure {
    let cause =
        std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::Refused(format!("{error}{cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_must_fit_its_key() {
        assert_eq!(check(5, Some(Payload::loaded(5).bytes())), Ok(()));
        assert!(matches!(check(5, Some(Payload::loaded(6).bytes())), Err(Failure::Wrong(_))));
        assert!(matches!(check(5, None), Err(Failure::Wrong(_))));
    }
}
