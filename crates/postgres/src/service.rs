//! Executes the batches of a table: chooses a session for each, and handles its failure.
//!
//! | failure | a read | a write |
//! |---|---|---|
//! | no session | the pool's last error | the same |
//! | an item is refused | it fails alone | it fails alone |
//! | another transaction was first | again, a few times | again, a few times |
//! | connection lost | once more on another that answers | outcome unknown |
//! | relation changed | sessions reopened, once more | the same: the server refused the statement |
//! | statement ended by its timeout | deadline exceeded | deadline exceeded: nothing was changed |
//! | no answer at all | deadline exceeded, session given up | outcome unknown, session given up |

use std::{sync::Arc, time::Duration};

use busload_batch::{BatchError, Service};
use tokio::time::{Instant, timeout};

use crate::{
    Error, Settings,
    cause::describe,
    failure::{self, Class},
    key::Key,
    limits,
    pool::{Lease, Pool},
    read::{self, Rows},
    retry,
    row::Row,
    session::{Context, PgSession},
    store::{self, Outcomes},
    write::{Outcome, RowWrite},
};

/// Executes the batches of one table. It is a type of its own so that replies other than futures
/// can be used: see [`Reply`](busload_batch::Reply).
#[derive(Debug)]
pub struct PgService {
    pool: Pool<PgSession>,
    context: Arc<Context>,
    /// Timeout of a request: a batch that has found no session for this long has no waiters any
    /// more.
    timeout: Duration,
    /// Number of sessions that may have to be reopened for one batch.
    sessions: usize,
}

/// Reason why a statement gave no result.
enum StatementFailure {
    Server(tokio_postgres::Error),
    /// Neither answer nor error came in the time in which the server should end a statement.
    Hangs,
}

impl PgService {
    pub(crate) fn start(settings: &Arc<Settings>, context: &Arc<Context>) -> Self {
        Self {
            pool: Pool::start(Arc::clone(settings), Arc::clone(context)),
            context: Arc::clone(context),
            timeout: settings.timeout,
            sessions: settings.connections,
        }
    }

    pub(crate) fn pool(&self) -> &Pool<PgSession> {
        &self.pool
    }

    /// Acquires a session that knows the current relation, as far as we can tell.
    async fn session(&self) -> Result<Lease<PgSession>, Error> {
        let asked = Instant::now();
        for _ in 0..=self.sessions {
            let lease = self.pool.acquire().await?;
            if asked.elapsed() > self.timeout {
                return Err(Error::TooLate);
            }
            if !self.context.is_stale(&lease) && !lease.is_closed() {
                return Ok(lease);
            }
            self.pool.reopen(&lease);
        }
        Err(Error::TooLate)
    }

    /// Acquires a session for a read whose own was lost. The same event may have ended other
    /// sessions that have not noticed yet: the session must answer before the read is repeated,
    /// which happens only once.
    async fn another_session(&self, lost: &Lease<PgSession>) -> Result<Lease<PgSession>, Error> {
        let mut lease = self.pool.acquire_other(lost).await?;
        for _ in 0..self.sessions {
            match self.bounded(&lease, lease.client.batch_execute("")).await {
                Ok(()) => break,
                Err(StatementFailure::Hangs) => return Err(Error::TooLate),
                Err(StatementFailure::Server(_)) => lease = self.pool.acquire_other(&lease).await?,
            }
        }
        Ok(lease)
    }

    /// Gives the session up if the refused statement can succeed on a new one; returns whether it
    /// did.
    fn reopen(&self, lease: &Lease<PgSession>) -> bool {
        let worthwhile = self.context.mark_stale(lease);
        if worthwhile {
            self.pool.reopen(lease);
        }
        worthwhile
    }

    async fn bounded<T>(
        &self,
        lease: &Lease<PgSession>,
        batch: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, StatementFailure> {
        let limit = self.timeout + limits::STATEMENT_TIMEOUT_MARGIN + limits::BATCH_MARGIN;
        match timeout(limit, batch).await {
            Ok(done) => done.map_err(StatementFailure::Server),
            Err(_) => {
                self.pool.reopen(lease);
                Err(StatementFailure::Hangs)
            }
        }
    }

    async fn read(&self, keys: &[Key]) -> Result<Rows, Error> {
        let lease = self.session().await?;
        let error = match self.read_on(&lease, keys).await {
            Ok(rows) => return Ok(rows),
            Err(StatementFailure::Hangs) => return Err(Error::TooLate),
            Err(StatementFailure::Server(error)) => error,
        };
        let lease = match failure::classify(&error) {
            Class::Lost => self.another_session(&lease).await?,
            Class::Stale if self.reopen(&lease) => self.session().await?,
            _ => return Err(read_failure(&lease, &error).await),
        };
        self.context.counters.reads_repeated.add(1);
        match self.read_on(&lease, keys).await {
            Ok(rows) => Ok(rows),
            Err(StatementFailure::Hangs) => Err(Error::TooLate),
            Err(StatementFailure::Server(error)) => {
                if failure::classify(&error) == Class::Stale {
                    self.reopen(&lease);
                }
                Err(read_failure(&lease, &error).await)
            }
        }
    }

    async fn read_on(
        &self,
        lease: &Lease<PgSession>,
        keys: &[Key],
    ) -> Result<Rows, StatementFailure> {
        let counters = &self.context.counters;
        self.bounded(lease, retry::on_conflict(counters, || read::read(lease, keys, counters)))
            .await
    }

    async fn write(&self, entries: &[(Key, RowWrite)]) -> Result<Outcomes, Error> {
        let lease = self.session().await?;
        let error = match self.write_on(&lease, entries).await {
            Ok(outcomes) => return Ok(outcomes),
            Err(StatementFailure::Hangs) => {
                return Err(Error::OutcomeUnknown("postgres does not answer".into()));
            }
            Err(StatementFailure::Server(error)) => error,
        };
        if failure::classify(&error) != Class::Stale || !self.reopen(&lease) {
            return Err(write_failure(&lease, &error).await);
        }
        // The server has refused the statement: nothing was written.
        let lease = self.session().await?;
        match self.write_on(&lease, entries).await {
            Ok(outcomes) => Ok(outcomes),
            Err(StatementFailure::Hangs) => {
                Err(Error::OutcomeUnknown("postgres does not answer".into()))
            }
            Err(StatementFailure::Server(error)) => Err(write_failure(&lease, &error).await),
        }
    }

    async fn write_on(
        &self,
        lease: &Lease<PgSession>,
        entries: &[(Key, RowWrite)],
    ) -> Result<Outcomes, StatementFailure> {
        let outcomes =
            self.bounded(lease, store::store(lease, entries, &self.context.counters)).await?;
        if outcomes.iter().any(|outcome| outcome.as_ref().is_err_and(is_of_value)) {
            self.context.suspect(lease);
        }
        Ok(outcomes)
    }
}

/// Returns whether Postgres could not convert the written text to the column's type.
fn is_of_value(error: &Error) -> bool {
    matches!(error, Error::Data { sqlstate, .. } if sqlstate.starts_with("22"))
}

/// Returns the reason of a lost connection, which the connection's own task knows best.
async fn reason(lease: &Lease<PgSession>, error: &tokio_postgres::Error) -> Arc<str> {
    use crate::pool::Session;
    match error.as_db_error() {
        Some(_) => describe(error).into(),
        None if lease.is_over() => lease.ended().await,
        None => describe(error).into(),
    }
}

async fn read_failure(lease: &Lease<PgSession>, error: &tokio_postgres::Error) -> Error {
    match failure::classify(error) {
        Class::Lost => Error::ConnectionLost(reason(lease, error).await),
        Class::Canceled => Error::TooLate,
        Class::Data => failure::data(error),
        Class::Conflict | Class::Stale | Class::Exhausted | Class::Refused => {
            failure::refused(error)
        }
    }
}

async fn write_failure(lease: &Lease<PgSession>, error: &tokio_postgres::Error) -> Error {
    match failure::classify(error) {
        Class::Lost => Error::OutcomeUnknown(reason(lease, error).await),
        _ => read_failure(lease, error).await,
    }
}

impl Service for PgService {
    type Key = Key;
    type Value = Row;
    type Write = RowWrite;
    type Outcome = Outcome;
    type Error = Error;

    async fn load(&self, keys: Vec<Key>) -> Result<Rows, Error> {
        self.read(&keys).await
    }

    async fn store(&self, entries: Vec<(Key, RowWrite)>) -> Result<Outcomes, Error> {
        let outcomes = self.write(&entries).await;
        let unknown = |error: &Error| matches!(error, Error::OutcomeUnknown(_));
        self.context.counters.outcomes_unknown.add(match &outcomes {
            Ok(outcomes) => {
                outcomes.iter().filter(|outcome| outcome.as_ref().is_err_and(unknown)).count()
            }
            Err(error) if unknown(error) => entries.len(),
            Err(_) => 0,
        });
        outcomes
    }

    fn key_bytes(&self, key: &Key) -> usize {
        key.memory_bytes()
    }
}

/// Converts a batch error to the error of a read's caller.
pub fn read_error(error: BatchError<Error>) -> Error {
    match error {
        BatchError::Full => Error::Full,
        BatchError::TooLarge { .. } => Error::BadValue(error.to_string().into()),
        BatchError::TooLate { .. } => Error::TooLate,
        BatchError::Closed => Error::Closed,
        BatchError::Failed(error) => error,
        BatchError::Panicked | BatchError::Stopped | BatchError::Miscounted { .. } => {
            Error::Panicked
        }
    }
}

/// Converts a batch error to the error of a write's caller.
pub fn write_error(error: BatchError<Error>) -> Error {
    match error {
        BatchError::TooLate { sent: true } => {
            Error::OutcomeUnknown("no answer from postgres in time".into())
        }
        other if other.outcome_unknown() => Error::OutcomeUnknown(other.to_string().into()),
        other => read_error(other),
    }
}
