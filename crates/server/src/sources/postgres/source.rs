//! The adapter that makes a Postgres table a source of the pipeline.
//!
//! A request becomes a typed key and, for a write, a checked change. Invalid requests are answered
//! at once; valid ones join the table's request queue. The table's runtime builds their answers, so
//! that the pipeline only passes them on.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use busload_batch::{BatchTrace, Loaded, Receipt, Refusal, Reply, RequestId, SentBatch, Stored};
use busload_pipeline::source::{
    Full, Operation, Source, SourceEvent, SourceInfo, SourceRequest, SourceValue, Ticket,
    Unsupported,
};
use busload_postgres::{Error, PgService, RowWrite, Settings, Table, TableStats};
use bytes::Bytes;

use super::answer::{self, Columns, RowCommand};
use crate::{
    sources::{
        finished::FinishedAnswers,
        requests::{OpenRequests, source_info},
    },
    traces::{Outcome, RequestSpan, TableTracer, Traced},
};

/// The request queue's deadline is this much earlier than the pipeline's: only the queue knows
/// whether a write was already sent.
const DEADLINE_MARGIN_MAX: Duration = Duration::from_millis(20);

/// A Postgres table as a source of the pipeline.
#[derive(Debug)]
pub struct PostgresSource {
    table: Table<PostgresWaiter>,
    context: Arc<WaiterContext>,
    /// Answers that were given at once.
    ready: Vec<SourceEvent>,
    requests: OpenRequests,
    /// Instant at which the pipeline's clock was zero.
    origin: Instant,
    timeout: Duration,
    deadline_margin: Duration,
    writable: bool,
    tracer: TableTracer,
}

/// State that the adapter shares with its waiters.
#[derive(Debug)]
struct WaiterContext {
    finished: Arc<FinishedAnswers>,
    /// Set with the first connection at the latest.
    columns: OnceLock<Columns>,
}

/// A request in the queue: the ticket and the command that its answer is for.
#[derive(Debug)]
pub struct PostgresWaiter {
    ticket: Ticket,
    command: RowCommand,
    context: Arc<WaiterContext>,
    span: RequestSpan,
}

/// Reason why a request was not queued.
enum SubmitError {
    Full,
    Error(Error),
    /// An error with a text of this module.
    Text(String),
}

impl From<Error> for SubmitError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl PostgresSource {
    /// Creates the adapter of a running table, whose later answers arrive through `finished`.
    pub fn new(
        settings: &Settings,
        table: Table<PostgresWaiter>,
        finished: Arc<FinishedAnswers>,
        origin: Instant,
        tracer: TableTracer,
    ) -> Self {
        let context = WaiterContext { finished, columns: OnceLock::new() };
        Self {
            table,
            context: Arc::new(context),
            ready: Vec::new(),
            requests: OpenRequests::default(),
            origin,
            timeout: settings.timeout,
            deadline_margin: DEADLINE_MARGIN_MAX.min(settings.timeout / 4),
            writable: settings.writable,
            tracer,
        }
    }
}

impl PostgresSource {
    fn submit_to_queue(&mut self, request: &SourceRequest<'_>) -> Result<RequestId, SubmitError> {
        // Parsed before the columns: a table that was never connected says so here.
        let key = self.table.parse_key(request.key)?;
        let columns = self.columns()?;
        let deadline = (self.origin + request.deadline).checked_sub(self.deadline_margin);
        let (command, write) = self.parse_command(request, columns)?;
        let span = self.tracer.sample(request.operation);
        let context = Arc::clone(&self.context);
        let waiter = PostgresWaiter { ticket: request.ticket, command, context, span };
        let submitted = match write {
            None => self.table.submit_load(key, waiter, deadline),
            Some(write) => self.table.submit_store(key, write, waiter, deadline),
        };
        submitted.map_err(|refused| {
            refused.waiter.span.end(Outcome::Refused);
            match refused.reason {
                Refusal::Full { .. } => SubmitError::Full,
                Refusal::Closed => SubmitError::Error(Error::Closed),
                reason @ Refusal::TooLarge { .. } => {
                    SubmitError::Text(format!("{reason} (queue_bytes)"))
                }
            }
        })
    }

    fn columns(&self) -> Result<&Columns, SubmitError> {
        if let Some(columns) = self.context.columns.get() {
            return Ok(columns);
        }
        match self.table.columns() {
            names if names.is_empty() => Err(SubmitError::Text("not connected yet".into())),
            names => Ok(self.context.columns.get_or_init(|| Columns::new(names))),
        }
    }

    /// Returns the command and, for a write, the change to be made.
    fn parse_command(
        &self,
        request: &SourceRequest<'_>,
        columns: &Columns,
    ) -> Result<(RowCommand, Option<RowWrite>), SubmitError> {
        let arguments = request.arguments;
        let first = || arguments.first().copied().unwrap_or_default();
        let read = |command| Ok((command, None));
        match request.operation {
            Operation::Get => read(RowCommand::Value),
            Operation::Exists => read(RowCommand::Exists),
            Operation::Strlen => read(RowCommand::Length),
            Operation::Type => read(RowCommand::Type),
            Operation::HashGet => read(RowCommand::Field(columns.index(first()))),
            Operation::HashGetMany => {
                read(RowCommand::Fields(arguments.iter().map(|name| columns.index(name)).collect()))
            }
            Operation::HashGetAll => read(RowCommand::AllFields),
            Operation::HashExists => read(RowCommand::FieldExists(columns.index(first()))),
            Operation::HashKeys => read(RowCommand::FieldNames),
            Operation::HashLen => read(RowCommand::FieldCount),
            Operation::Set => {
                let write = self.table.write_value(Bytes::copy_from_slice(first()))?;
                Ok((RowCommand::Set, Some(write)))
            }
            Operation::HashSet => {
                let field = |pair: &[&[u8]]| {
                    Ok((column(columns, pair[0])?, Bytes::copy_from_slice(pair[1])))
                };
                let fields =
                    arguments.chunks_exact(2).map(field).collect::<Result<_, SubmitError>>()?;
                Ok((RowCommand::Count, Some(self.table.write_fields(fields)?)))
            }
            Operation::HashDelete => {
                let fields = arguments.iter().map(|name| column(columns, name));
                let fields: Vec<usize> = fields.collect::<Result<_, SubmitError>>()?;
                Ok((RowCommand::Count, Some(self.table.write_nulls(&fields)?)))
            }
            Operation::Delete => Ok((RowCommand::Count, Some(self.table.write_delete()?))),
        }
    }
}

/// Returns the index of a column to write. A field without a column cannot be stored.
fn column(columns: &Columns, name: &[u8]) -> Result<usize, SubmitError> {
    const SHOWN_BYTES: usize = 128;
    columns.index(name).ok_or_else(|| {
        let shown = String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES)]);
        SubmitError::Text(format!(
            "there is no value column `{shown}`; there are {}",
            columns.list()
        ))
    })
}

impl Source for PostgresSource {
    fn submit(&mut self, request: SourceRequest<'_>) -> Result<(), Full> {
        let error = match self.submit_to_queue(&request) {
            Ok(id) => {
                self.requests.insert(request.ticket, id);
                return Ok(());
            }
            Err(SubmitError::Full) => return Err(Full),
            Err(SubmitError::Error(error)) => error.to_string(),
            Err(SubmitError::Text(text)) => text,
        };
        self.ready.push(self.context.finished.event(request.ticket, Err(error)));
        Ok(())
    }

    fn flush(&mut self) {
        self.table.flush();
    }

    fn cancel(&mut self, ticket: Ticket) {
        if let Some(id) = self.requests.take(ticket) {
            self.table.cancel(id);
        }
    }

    fn poll(&mut self, stream: &mut Vec<SourceEvent>) {
        stream.append(&mut self.ready);
        self.context.finished.take(stream);
    }

    fn kind(&self) -> &'static str {
        crate::config::POSTGRES
    }

    fn supports(&self, operation: Operation) -> Result<(), Unsupported> {
        if !operation.is_write() {
            return Ok(());
        }
        if !self.writable {
            return Err(Unsupported::Table(
                "the table is not writable (writable = true in its settings allows writes)".into(),
            ));
        }
        match self.columns() {
            Ok(columns) if operation == Operation::Set && 1 < columns.len() => {
                Err(Unsupported::Table(
                    format!("the table has several value columns ({}); use HSET", columns.list())
                        .into(),
                ))
            }
            _ => Ok(()),
        }
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn info(&self) -> SourceInfo {
        info(&self.table.stats())
    }
}

impl WaiterContext {
    fn answer(&self, ticket: Ticket, outcome: Result<SourceValue, Error>) {
        self.finished.push(ticket, outcome.map_err(|error| error.to_string()));
    }
}

impl Reply<PgService> for PostgresWaiter {
    fn loaded(self, outcome: Loaded<PgService>) {
        let Self { ticket, command, context, span } = self;
        span.end(Outcome::of(&outcome));
        let columns = context.columns.get().expect("it was known before anybody waited");
        let answer = outcome.map(|row| answer::of_row(&command, row.as_ref(), columns));
        context.answer(ticket, answer.map_err(busload_postgres::read_error));
    }

    fn stored(self, outcome: Stored<PgService>, receipt: Option<Receipt<PgService>>) {
        let Self { ticket, command, context, span } = self;
        span.end(Outcome::of(&outcome));
        let outcome = outcome.map_err(busload_postgres::write_error);
        let count = match (outcome, receipt) {
            (Ok(outcome), Some(receipt)) => outcome.count(&receipt),
            (Ok(_), None) => Err(Error::Panicked),
            (Err(error), _) => Err(error),
        };
        let answer = count.map(|count| match command {
            RowCommand::Set => SourceValue::Done,
            _ => SourceValue::Integer(i64::try_from(count).unwrap_or(i64::MAX)),
        });
        context.answer(ticket, answer);
    }

    fn is_traced(&self) -> bool {
        self.span.is_sampled()
    }

    fn trace_batch(&self, batch: &SentBatch) -> Option<Box<dyn BatchTrace<Self>>> {
        self.span.begin_batch(batch)
    }
}

impl Traced for PostgresWaiter {
    fn span(&mut self) -> &mut RequestSpan {
        &mut self.span
    }
}

/// Builds the fields of INFO.
fn info(stats: &TableStats) -> SourceInfo {
    let pool = &stats.pool;
    let mut fields = vec![
        ("state", state_of(stats).to_owned()),
        ("connections", format!("{}/{}", pool.up, pool.wanted)),
        ("statements", stats.statements.to_string()),
        ("retries", stats.retries().to_string()),
        ("outcomes_unknown", stats.outcomes_unknown.to_string()),
    ];
    if let Some(error) = stats.last_error() {
        fields.push(("last_error", error.to_string()));
    }
    source_info(fields, &stats.queue, stats.waiting)
}

/// Returns the state of a table and its connections as one word.
pub fn state_of(stats: &TableStats) -> &'static str {
    match (stats.pool.up, stats.pool.opened) {
        (1.., _) if stats.refusal.is_some() => "refused",
        (0, 0) if stats.pool.last_error.is_none() => "connecting",
        (0, _) => "down",
        _ => "up",
    }
}
