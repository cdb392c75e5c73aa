//! Executes the batches of a table: chooses a session for each, and handles its failure.
//!
//! | failure | a read | a write |
//! |---|---|---|
//! | no session | the pool's last error | the same |
//! | an item is refused | it fails alone | it fails alone |
//! | another transaction was first | again, a few times | again, a few times |
//! | connection lost | once more on another that answers | outcome unknown |
//! | statement does not fit the relation | prepared anew, again | the same: it was refused |
//! | relation cannot be served | the reason, until it can | the same |
//! | server has become a standby | | sessions reopened, again |
//! | statement ended by its timeout | deadline exceeded | deadline exceeded: nothing was changed |
//! | no answer at all | deadline exceeded, session given up | outcome unknown, session given up |

use std::sync::Arc;

use busload_batch::{BatchError, Service};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    Error, Settings,
    failure::{self, Class, Fault},
    key::Key,
    limits,
    pool::{Lease, Pool, Purpose},
    read::{self, Rows},
    retry,
    row::Row,
    session::{Context, PgSession, Prepared, Unprepared},
    store::{self, Outcomes},
    versions::{self, Verdict},
    write::{Outcome, RowWrite},
};

/// Executes the batches of one table. It is a type of its own so that replies other than futures
/// can be used: see [`Reply`](busload_batch::Reply).
#[derive(Debug)]
pub struct PgService {
    pool: Arc<Pool<PgSession>>,
    context: Arc<Context>,
    settings: Arc<Settings>,
    /// The task that checks the relation now and then.
    _watcher: JoinSet<()>,
}

/// Reason why a statement gave no result.
enum StatementFailure {
    Statement(Fault),
    /// Neither answer nor error came in the time in which the server should end a statement.
    Hangs,
    /// The relation cannot be served; no request was sent.
    Relation(Error),
}

/// Result of a change that a statement has met.
enum Change {
    /// The statement is worth sending again, prepared anew.
    Followed,
    /// The relation is the same: the error has another cause.
    None,
}

/// Second chances of one batch. The server has refused, or never got, what is sent again; only a
/// read is sent again after its connection was lost.
struct Retries {
    began: Instant,
    /// Number of changes that were followed.
    changes: u32,
    /// True if a lost connection was replaced.
    replaced: bool,
    /// Statements that were refused although the relation is the same: they are prepared anew.
    refused: Option<Arc<Prepared>>,
}

impl Retries {
    fn new() -> Self {
        Self { began: Instant::now(), changes: 0, replaced: false, refused: None }
    }

    /// Returns `true` the first time.
    fn replace(&mut self) -> bool {
        !std::mem::replace(&mut self.replaced, true)
    }
}

impl PgService {
    pub(crate) fn start(settings: &Arc<Settings>, context: &Arc<Context>) -> Self {
        let pool = Arc::new(Pool::start(Arc::clone(settings), Arc::clone(context)));
        let mut watcher = JoinSet::new();
        watcher.spawn(versions::watch(
            Arc::clone(&pool),
            Arc::clone(settings),
            Arc::clone(context),
        ));
        Self {
            pool,
            context: Arc::clone(context),
            settings: Arc::clone(settings),
            _watcher: watcher,
        }
    }

    pub(crate) fn pool(&self) -> &Pool<PgSession> {
        &self.pool
    }

    /// Waits until it is known whether the server can be reached and the relation fits.
    pub(crate) async fn first_attempt(&self) -> Result<(), Error> {
        let lease = self.pool.acquire().await?;
        match self.prepared(&lease, &Retries::new()).await {
            Ok(_) => Ok(()),
            Err(StatementFailure::Hangs) => Err(Error::TooLate),
            Err(StatementFailure::Relation(error)) => Err(error),
            Err(StatementFailure::Statement(error)) => Err(read_failure(&lease, &error).await),
        }
    }

    /// Acquires a session whose server accepts writes, as far as we can tell.
    async fn session(&self, purpose: Purpose) -> Result<Lease<PgSession>, Error> {
        let asked = Instant::now();
        for _ in 0..=self.settings.connections {
            let lease = self.pool.acquire_for(purpose).await?;
            // A batch that has found no session for this long has no waiters any more.
            if asked.elapsed() > self.settings.timeout {
                return Err(Error::TooLate);
            }
            if !self.context.is_stale(&lease) && !lease.is_closed() {
                return Ok(lease);
            }
            self.pool.reopen(&lease);
        }
        Err(Error::TooLate)
    }

    /// Acquires a session for a batch whose own was lost. The same event may have ended other
    /// sessions that have not noticed yet: the session must answer before the batch is repeated,
    /// which happens only once.
    async fn another_session(&self, lost: &Lease<PgSession>) -> Result<Lease<PgSession>, Error> {
        let mut lease = self.pool.acquire_other(lost).await?;
        for _ in 0..self.settings.connections {
            match self.bounded(&lease, lease.client.batch_execute("")).await {
                Err(StatementFailure::Statement(_)) => {
                    lease = self.pool.acquire_other(&lease).await?
                }
                Err(StatementFailure::Hangs) => return Err(Error::TooLate),
                Ok(()) | Err(StatementFailure::Relation(_)) => break,
            }
        }
        Ok(lease)
    }

    /// Gives the session up if the refused write can succeed on a new one; returns whether it did.
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
        batch: impl Future<Output = Result<T, impl Into<Fault>>>,
    ) -> Result<T, StatementFailure> {
        match timeout(limits::answer_limit(self.settings.timeout), batch).await {
            Ok(done) => done.map_err(|error| StatementFailure::Statement(error.into())),
            Err(_) => {
                self.pool.reopen(lease);
                Err(StatementFailure::Hangs)
            }
        }
    }

    async fn prepared(
        &self,
        lease: &Lease<PgSession>,
        retries: &Retries,
    ) -> Result<Arc<Prepared>, StatementFailure> {
        let preparing = lease.prepared(&self.settings, &self.context, retries.refused.as_ref());
        match timeout(limits::answer_limit(self.settings.timeout), preparing).await {
            Ok(Ok(prepared)) => Ok(prepared),
            Ok(Err(Unprepared::Relation(error))) => Err(StatementFailure::Relation(error)),
            Ok(Err(Unprepared::Statement(error))) => Err(StatementFailure::Statement(error)),
            Err(_) => {
                self.pool.reopen(lease);
                Err(StatementFailure::Hangs)
            }
        }
    }

    /// Finds out whether the relation has changed, after the server has refused statements with
    /// an error that says so.
    async fn follow(
        &self,
        lease: &mut Lease<PgSession>,
        prepared: Option<&Arc<Prepared>>,
        error: &Fault,
        retries: &mut Retries,
    ) -> Result<Change, Error> {
        let late = self.settings.timeout < retries.began.elapsed();
        if late || limits::CHANGE_RETRIES_MAX <= retries.changes {
            return Ok(Change::None);
        }
        retries.changes += 1;
        let check = versions::check(&lease.client, &self.settings, &self.context, Instant::now());
        let version = match check.await {
            Err(Error::ConnectionLost(_)) if retries.replace() => {
                *lease = self.another_session(lease).await?;
                return Ok(Change::Followed);
            }
            checked => checked?,
        };
        if let Verdict::Refused(error) = version.verdict {
            return Err(error);
        }
        let Some(prepared) = prepared.filter(|prepared| prepared.version == version.number) else {
            retries.refused = None;
            return Ok(Change::Followed);
        };
        let of_plan = error.is_of_plan();
        if retries.refused.is_some() && !of_plan {
            lease.preparing_was_useless();
            return Ok(Change::None);
        }
        // The plans of functions that triggers call may be old, or those of a pooler's server.
        if of_plan || lease.preparing_may_help() {
            retries.refused = Some(Arc::clone(prepared));
            return Ok(Change::Followed);
        }
        Ok(Change::None)
    }

    async fn read(&self, keys: &[Key]) -> Result<Rows, Error> {
        let mut retries = Retries::new();
        let mut lease = self.session(Purpose::Read).await?;
        loop {
            let (prepared, failure) = match self.prepared(&lease, &retries).await {
                Err(failure) => (None, failure),
                Ok(prepared) => match self.read_on(&lease, &prepared, keys).await {
                    Ok(rows) => return Ok(rows),
                    Err(failure) => (Some(prepared), failure),
                },
            };
            let error = match failure {
                StatementFailure::Statement(error) => error,
                StatementFailure::Hangs => return Err(Error::TooLate),
                StatementFailure::Relation(error) => return Err(error),
            };
            match error.class() {
                Class::Lost if retries.replace() => lease = self.another_session(&lease).await?,
                Class::Stale => {
                    match self.follow(&mut lease, prepared.as_ref(), &error, &mut retries).await? {
                        Change::Followed => {}
                        Change::None => return Err(error.refused()),
                    }
                }
                _ => return Err(read_failure(&lease, &error).await),
            }
            self.context.counters.reads_repeated.add(1);
        }
    }

    async fn read_on(
        &self,
        lease: &Lease<PgSession>,
        prepared: &Prepared,
        keys: &[Key],
    ) -> Result<Rows, StatementFailure> {
        let counters = &self.context.counters;
        self.bounded(lease, retry::on_conflict(counters, || read::read(prepared, keys, counters)))
            .await
    }

    async fn write(&self, entries: &[(Key, RowWrite)]) -> Result<Outcomes, Error> {
        let mut retries = Retries::new();
        let mut lease = self.session(Purpose::Write).await?;
        loop {
            let (prepared, failure) = match self.prepared(&lease, &retries).await {
                Err(failure) => (None, failure),
                Ok(prepared) => {
                    let counters = &self.context.counters;
                    match self.bounded(&lease, store::store(&prepared, entries, counters)).await {
                        Ok(outcomes) => {
                            return Ok(self.settle(&lease, &prepared, entries, outcomes).await);
                        }
                        Err(failure) => (Some(prepared), failure),
                    }
                }
            };
            let error = match (failure, &prepared) {
                (StatementFailure::Statement(error), _) => error,
                (StatementFailure::Hangs, None) => return Err(Error::TooLate),
                (StatementFailure::Hangs, Some(_)) => return Err(hangs()),
                (StatementFailure::Relation(error), _) => return Err(error),
            };
            match (error.class(), &prepared) {
                // No write was sent yet.
                (Class::Lost, None) if retries.replace() => {
                    lease = self.another_session(&lease).await?;
                }
                (Class::Standby, _) if self.reopen(&lease) => {
                    lease = self.session(Purpose::Write).await?
                }
                // The server has refused the statement: nothing was written.
                (Class::Stale, _) => {
                    match self.follow(&mut lease, prepared.as_ref(), &error, &mut retries).await? {
                        Change::Followed => self.context.counters.writes_prepared_again.add(1),
                        Change::None => {
                            return self.write_alone(&lease, prepared, entries, &error).await;
                        }
                    }
                }
                (_, None) => return Err(read_failure(&lease, &error).await),
                (_, Some(_)) => return Err(write_failure(&lease, &error).await),
            }
        }
    }

    /// Sends a refused batch's entries each alone, as one of them may be the cause.
    async fn write_alone(
        &self,
        lease: &Lease<PgSession>,
        prepared: Option<Arc<Prepared>>,
        entries: &[(Key, RowWrite)],
        refused: &Fault,
    ) -> Result<Outcomes, Error> {
        let Some(prepared) = prepared.filter(|_| !store::is_single(entries)) else {
            return Err(refused.refused());
        };
        let alone = store::store_alone(&prepared, entries, &self.context.counters);
        match self.bounded(lease, async { Ok::<_, Fault>(alone.await) }).await {
            Ok(outcomes) => Ok(self.settle(lease, &prepared, entries, outcomes).await),
            Err(_) => Err(hangs()),
        }
    }

    /// Looks at entries that the server has refused: if the relation has changed since the
    /// statements were prepared, they are sent once more.
    async fn settle(
        &self,
        lease: &Lease<PgSession>,
        prepared: &Arc<Prepared>,
        entries: &[(Key, RowWrite)],
        mut outcomes: Outcomes,
    ) -> Outcomes {
        let of_relation = |outcome: &Result<Outcome, Error>| {
            outcome.as_ref().is_err_and(failure::may_be_of_relation)
        };
        let of_value =
            |outcome: &Result<Outcome, Error>| outcome.as_ref().is_err_and(failure::is_of_value);
        let mut since = Instant::now();
        if !outcomes.iter().any(of_relation) {
            if !outcomes.iter().any(of_value) {
                return outcomes;
            }
            since = since.checked_sub(limits::VALUE_CHECK_AGE).unwrap_or(since);
        }
        let check = versions::check(&lease.client, &self.settings, &self.context, since);
        if !check.await.is_ok_and(|version| version.number != prepared.version) {
            return outcomes;
        }
        let suspects: Vec<usize> = (0..entries.len())
            .filter(|&index| of_relation(&outcomes[index]) || of_value(&outcomes[index]))
            .collect();
        let again: Vec<_> = suspects.iter().map(|&index| entries[index].clone()).collect();
        let answers = match self.prepared(lease, &Retries::new()).await {
            Ok(prepared) => {
                let alone = store::store_alone(&prepared, &again, &self.context.counters);
                match self.bounded(lease, async { Ok::<_, Fault>(alone.await) }).await {
                    Ok(answers) => answers,
                    Err(_) => vec![Err(hangs()); again.len()],
                }
            }
            Err(StatementFailure::Relation(error)) => vec![Err(error); again.len()],
            // The first answers stand.
            Err(_) => return outcomes,
        };
        for (index, answer) in suspects.into_iter().zip(answers) {
            outcomes[index] = answer;
        }
        outcomes
    }
}

fn hangs() -> Error {
    Error::OutcomeUnknown("postgres does not answer".into())
}

/// Returns the reason of a lost connection, which the connection's own task knows best.
async fn reason(lease: &Lease<PgSession>, error: &Fault) -> Arc<str> {
    use crate::pool::Session;
    match error {
        Fault::Driver(driver) if driver.as_db_error().is_none() && lease.is_over() => {
            lease.ended().await
        }
        _ => error.describe().into(),
    }
}

async fn read_failure(lease: &Lease<PgSession>, error: &Fault) -> Error {
    match error.class() {
        Class::Lost => Error::ConnectionLost(reason(lease, error).await),
        Class::Canceled => Error::TooLate,
        Class::Data => error.data(),
        Class::Conflict | Class::Stale | Class::Standby | Class::Exhausted | Class::Refused => {
            error.refused()
        }
    }
}

async fn write_failure(lease: &Lease<PgSession>, error: &Fault) -> Error {
    match error.class() {
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

    fn is_overloaded(&self, error: &Error) -> bool {
        error.is_overload()
    }

    fn is_growing(&self) -> bool {
        self.pool.is_growing()
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
