//! One connection with a checked relation and its prepared statements.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
};

use tokio::time::Instant;
use tokio_postgres::{Client, Statement};

use crate::{
    Error, Settings,
    connect::{self, Ended},
    failure, limits,
    pool::Session,
    schema::{ColumnNames, Schema},
    statements,
    stats::Counters,
    write::WriteKind,
};

/// State that all sessions of a table share.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Value columns, fixed by the first session.
    columns: OnceLock<ColumnNames>,
    /// Schema that the session opened last has found; kept when connections are lost, so that keys
    /// can be parsed.
    schema: RwLock<Option<Arc<Schema>>>,
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

    /// Passes the schema to `look`; `None` when no session has ever been open.
    pub(crate) fn with_schema<T>(&self, look: impl FnOnce(&Arc<Schema>) -> T) -> Option<T> {
        self.schema.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(look)
    }

    fn publish(&self, schema: &Arc<Schema>) {
        *self.schema.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(schema));
    }

    /// Marks this session and all older ones as stale, because the relation has changed. Returns
    /// `false` if the session is so young that a new one would find the same.
    pub(crate) fn mark_stale(&self, session: &PgSession) -> bool {
        let old = session.opened.elapsed() >= limits::REOPEN_AGE_MIN;
        let mut stale_before = self.stale_before.lock().unwrap_or_else(PoisonError::into_inner);
        let known = stale_before.is_some_and(|stale| session.opened < stale);
        if old && !known {
            *stale_before = Some(Instant::now());
        }
        old || known
    }

    /// Reacts to a refused value, whose column may have changed its type: a session that is not
    /// young is reopened.
    pub(crate) fn suspect(&self, session: &PgSession) {
        if session.opened.elapsed() >= limits::SUSPECT_AGE_MIN {
            self.mark_stale(session);
        }
    }

    pub(crate) fn is_stale(&self, session: &PgSession) -> bool {
        let stale_before = self.stale_before.lock().unwrap_or_else(PoisonError::into_inner);
        stale_before.is_some_and(|stale| session.opened < stale)
    }
}

/// A connection, its relation as it was when the session was opened, and prepared statements.
pub(crate) struct PgSession {
    pub(crate) client: Client,
    ended: Ended,
    pub(crate) schema: Arc<Schema>,
    pub(crate) read: Statement,
    writes: Mutex<WriteStatements>,
    /// Time before the relation was checked.
    opened: Instant,
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

impl PgSession {
    /// Returns the prepared statement for writes of a kind.
    pub(crate) async fn write_statement(
        &self,
        kind: &WriteKind,
    ) -> Result<Statement, tokio_postgres::Error> {
        let prepared = self.writes.lock().unwrap_or_else(PoisonError::into_inner).get(kind);
        if let Some(statement) = prepared {
            return Ok(statement);
        }
        let statement = self.client.prepare(&statements::write(&self.schema, kind)).await?;
        self.writes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .put(kind.clone(), statement.clone());
        Ok(statement)
    }

    /// Returns whether nothing sent from now on can reach the server.
    pub(crate) fn is_closed(&self) -> bool {
        self.ended.is_over() || self.client.is_closed()
    }
}

/// Opens a connection and checks the relation on it.
pub(crate) async fn open(settings: &Settings, context: &Context) -> Result<PgSession, Error> {
    let connected = connect::connect(settings).await?;
    let client = connected.client;
    let opened = Instant::now();
    let opening = |error| failure::while_opening(&error);
    let mut schema =
        Schema::check(&client, settings, context.columns().map(|names| &names[..])).await?;
    let names = context.columns.get_or_init(|| schema.column_names());
    if *names != schema.column_names() {
        // Another session was first, and has found other columns.
        schema = Schema::check(&client, settings, Some(names)).await?;
    }
    let read = client.prepare(&statements::read(&schema)).await.map_err(opening)?;
    let schema = Arc::new(schema);
    context.publish(&schema);
    Ok(PgSession { client, ended: connected.ended, schema, read, writes: Mutex::default(), opened })
}

impl Session for PgSession {
    type Context = Context;

    async fn open(settings: &Arc<Settings>, context: &Arc<Context>) -> Result<Self, Error> {
        open(settings, context).await
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
        f.debug_struct("PgSession").field("relation", &self.schema.relation).finish_non_exhaustive()
    }
}
