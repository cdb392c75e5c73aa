//! One connection, and the statements prepared on it for the current version of the relation.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use tokio::time::Instant;
use tokio_postgres::{Client, Statement};

use crate::{
    Error, Settings,
    connect::{self, Ended},
    failure::{self, Class, Fault},
    limits,
    pool::Session,
    schema::{ColumnNames, Schema},
    statements,
    stats::Counters,
    versions::{self, Verdict, Versions},
    write::WriteKind,
};

/// State that all sessions of a table share.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Value columns, fixed by the first check.
    columns: OnceLock<ColumnNames>,
    pub(crate) versions: Versions,
    /// Sessions opened before this time must not be used any more.
    stale_before: Mutex<Option<Instant>>,
    pub(crate) counters: Counters,
}

impl Context {
    pub(crate) fn new(settings: &Settings) -> Self {
        let context = Self::default();
        if let Some(columns) = &settings.columns {
            context.columns.get_or_init(|| columns.as_slice().into());
        }
        context
    }

    pub(crate) fn columns(&self) -> Option<&ColumnNames> {
        self.columns.get()
    }

    /// Fixes the value columns to those of a relation that fits. Checks come one after the other,
    /// so that no other can have found other columns.
    pub(crate) fn fix_columns(&self, schema: &Schema) {
        self.columns.get_or_init(|| schema.column_names());
    }

    /// Marks this session and all older ones as stale, because their server no longer accepts
    /// writes. Returns `false` if the session is so young that a new one would find the same.
    pub(crate) fn mark_stale(&self, session: &PgSession) -> bool {
        let old = session.opened.elapsed() >= limits::REOPEN_AGE_MIN;
        let mut stale_before = self.stale_before.lock().unwrap_or_else(PoisonError::into_inner);
        let known = stale_before.is_some_and(|stale| session.opened < stale);
        if old && !known {
            *stale_before = Some(Instant::now());
        }
        old || known
    }

    pub(crate) fn is_stale(&self, session: &PgSession) -> bool {
        let stale_before = self.stale_before.lock().unwrap_or_else(PoisonError::into_inner);
        stale_before.is_some_and(|stale| session.opened < stale)
    }
}

/// A connection, and the statements that were prepared on it last.
pub(crate) struct PgSession {
    pub(crate) client: Arc<Client>,
    ended: Ended,
    opened: Instant,
    prepared: Mutex<Option<Arc<Prepared>>>,
    /// Held while statements are prepared, so that batches on one session do it once.
    preparing: tokio::sync::Mutex<()>,
    /// Time at which a statement was refused although it had just been prepared, with an error that
    /// looks like one of a changed relation.
    refused: Mutex<Option<Instant>>,
}

/// Statements of one session, for one version of the relation.
pub(crate) struct Prepared {
    pub(crate) client: Arc<Client>,
    /// Number of the relation's version.
    pub(crate) version: u64,
    pub(crate) schema: Arc<Schema>,
    pub(crate) read: Statement,
    writes: Mutex<WriteStatements>,
}

/// Reason why a session has no statements for the relation.
pub(crate) enum Unprepared {
    /// The relation cannot be served, or it is not known whether it can.
    Relation(Error),
    /// The preparation failed; no request was sent.
    Statement(Fault),
}

/// Prepared statements of the most recently used kinds of writes.
#[derive(Default)]
struct WriteStatements {
    by_kind: HashMap<WriteKind, (Statement, u64)>,
    uses: u64,
}

impl WriteStatements {
    fn get(&mut self, kind: &WriteKind) -> Option<Statement> {
        self.uses += 1;
        let (statement, used) = self.by_kind.get_mut(kind)?;
        *used = self.uses;
        Some(statement.clone())
    }

    /// Dropping a statement closes it on the server.
    fn put(&mut self, kind: WriteKind, statement: Statement) {
        if self.by_kind.len() >= limits::WRITE_STATEMENTS_MAX {
            let oldest = self
                .by_kind
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(kind, _)| kind.clone());
            oldest.map(|kind| self.by_kind.remove(&kind));
        }
        self.by_kind.insert(kind, (statement, self.uses));
    }
}

impl Prepared {
    /// Returns the prepared statement for writes of a kind.
    pub(crate) async fn write_statement(&self, kind: &WriteKind) -> Result<Statement, Fault> {
        let prepared = self.writes.lock().unwrap_or_else(PoisonError::into_inner).get(kind);
        if let Some(statement) = prepared {
            return Ok(statement);
        }
        let statement = self.client.prepare(&statements::write(&self.schema, kind)).await?;
        // From here on the server refuses the statement when a column that it writes has another
        // type.
        if !self.schema.results_have_types(kind, statement.columns()) {
            return Err(Fault::WrongTypes);
        }
        self.writes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .put(kind.clone(), statement.clone());
        Ok(statement)
    }
}

impl PgSession {
    /// Returns statements for the current version of the relation, and prepares them if the
    /// session has none. `not` are statements that the server has refused.
    ///
    /// Plans are discarded before: functions that triggers call remember the types of a row's
    /// columns for as long as their plans live.
    pub(crate) async fn prepared(
        &self,
        settings: &Settings,
        context: &Context,
        not: Option<&Arc<Prepared>>,
    ) -> Result<Arc<Prepared>, Unprepared> {
        if let Some(prepared) = self.current(context, not) {
            return Ok(prepared);
        }
        let _preparing = self.preparing.lock().await;
        if let Some(prepared) = self.current(context, not) {
            return Ok(prepared);
        }
        let mut version = context.versions.current();
        if matches!(version.verdict, Verdict::Unknown) {
            let check = versions::check(&self.client, settings, context, Instant::now());
            version = check.await.map_err(Unprepared::Relation)?;
        }
        let schema = match version.verdict {
            Verdict::Fits(schema) => schema,
            Verdict::Refused(error) => return Err(Unprepared::Relation(error)),
            Verdict::Unknown => return Err(Unprepared::Relation(Error::TooLate)),
        };
        let sql = statements::read(&schema);
        let (_, read) =
            tokio::join!(self.client.batch_execute("DISCARD PLANS"), self.client.prepare(&sql));
        let read = read.map_err(|error| Unprepared::Statement(error.into()))?;
        // From here on the server refuses the statement when its result would have other types.
        if !schema.rows_have_types(read.columns()) {
            return Err(Unprepared::Statement(Fault::WrongTypes));
        }
        let prepared = Arc::new(Prepared {
            client: Arc::clone(&self.client),
            version: version.number,
            schema,
            read,
            writes: Mutex::default(),
        });
        *self.prepared.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&prepared));
        Ok(prepared)
    }

    /// Returns the statements if they are those of the current version, and not `not`.
    fn current(&self, context: &Context, not: Option<&Arc<Prepared>>) -> Option<Arc<Prepared>> {
        let version = context.versions.current();
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        prepared
            .filter(|prepared| prepared.version == version.number)
            .filter(|prepared| not.is_none_or(|not| !Arc::ptr_eq(not, prepared)))
            .filter(|_| matches!(version.verdict, Verdict::Fits(_)))
    }

    /// Notes that preparing a refused statement anew has not helped.
    pub(crate) fn preparing_was_useless(&self) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Returns whether preparing a refused statement anew may help, though the relation is the
    /// same.
    pub(crate) fn preparing_may_help(&self) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.is_none_or(|refused| limits::PREPARE_PAUSE <= refused.elapsed())
    }

    /// Returns whether nothing sent from now on can reach the server.
    pub(crate) fn is_closed(&self) -> bool {
        self.ended.is_over() || self.client.is_closed()
    }
}

/// Opens a connection, without a look at the relation.
pub(crate) async fn connect(settings: &Settings) -> Result<PgSession, Error> {
    let connected = connect::connect(settings).await?;
    Ok(PgSession {
        client: Arc::new(connected.client),
        ended: connected.ended,
        opened: Instant::now(),
        prepared: Mutex::default(),
        preparing: tokio::sync::Mutex::default(),
        refused: Mutex::default(),
    })
}

impl Session for PgSession {
    type Context = Context;

    /// Opens a connection, checks the relation and prepares its statements. A relation that does
    /// not fit, or that others have locked, keeps no connection from being opened: its requests get
    /// that answer.
    async fn open(settings: &Arc<Settings>, context: &Arc<Context>) -> Result<Self, Error> {
        // Sessions that are opened at the same time share a check.
        let began = Instant::now();
        let session = connect(settings).await?;
        match versions::check(&session.client, settings, context, began).await {
            Ok(_) => {}
            Err(Error::TooLate) => return Ok(session),
            Err(error) => return Err(error),
        }
        match session.prepared(settings, context, None).await {
            Err(Unprepared::Statement(Fault::Driver(error)))
                if failure::classify(&error) == Class::Lost =>
            {
                Err(failure::while_checking(&error))
            }
            _ => Ok(session),
        }
    }

    async fn ended(&self) -> Arc<str> {
        self.ended.wait().await
    }

    fn is_over(&self) -> bool {
        self.is_closed()
    }
}

impl std::fmt::Debug for PgSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PgSession").finish_non_exhaustive()
    }
}
