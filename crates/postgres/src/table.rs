//! A table: takes keys and values, returns rows and counts.
//!
//! ```text
//!  get, set, ..  --parse--> Batcher --batches--> PgService --statements--> sessions of the pool
//!  submit_*      --------->    |                                                |
//!                              +<------------------ rows, outcomes -------------+
//! ```
//!
//! * Limits: those of the request queue (`Settings::queue`); a full queue refuses at once with
//!   [`Error::Full`].
//! * Order: operations on one key take effect in the order of the requests; different keys have
//!   none.
//! * Timeout: each request has `Settings::timeout`, or a deadline of its own.
//! * Outage: while Postgres is away, requests fail at once with the reason; the pool keeps trying,
//!   and the table recovers by itself.
//! * Shutdown: [`Table::close`] serves the requests it has taken. A table that is dropped stops as
//!   its batcher does.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use busload_batch::{
    BatchError, Batcher, BatcherSettings, Loaded, QueueLatencies, Receipt, Refused, Reply,
    RequestId, Stored,
};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::{
    Error, Key, PgService, Row, Settings, TableStats,
    schema::{Schema, ValueForm, suggest},
    service::{read_error, write_error},
    session::Context,
    write::{Change, RowWrite},
};

/// One Postgres table, batched.
///
/// Clones are handles of the same table. Keys and values are as a client sends them: text, or bytes
/// for `bytea`.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use busload_postgres::{Environment, Options, Table};
///
/// let url = "postgres://app@localhost/lake?relation=objects&key=path&columns=payload\
///            &writable=true";
/// let options = Options { url: Some(url.to_owned()), ..Options::default() };
/// let table: Table = Table::start(options.resolve("objects", &Environment::of_process())?);
///
/// table.set(b"a/b", "hello").await?;
/// let row = table.get(b"a/b").await?.expect("it was just written");
/// assert_eq!(row.value(0).as_deref(), Some(&b"hello"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Table<R: Reply<PgService> = Waiter> {
    batcher: Batcher<PgService, R>,
    context: Arc<Context>,
    settings: Arc<Settings>,
}

impl<R: Reply<PgService>> Clone for Table<R> {
    fn clone(&self) -> Self {
        let Self { batcher, context, settings } = self;
        Self {
            batcher: batcher.clone(),
            context: Arc::clone(context),
            settings: Arc::clone(settings),
        }
    }
}

impl<R: Reply<PgService>> Table<R> {
    /// Starts a table on the current tokio runtime. It connects in the background and keeps trying.
    ///
    /// # Panics
    /// Panics outside a tokio runtime, or when `settings.queue` is not one that
    /// [`Options::resolve`](crate::Options::resolve) would give.
    pub fn start(settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let context = Arc::new(Context::new(&settings));
        let batching =
            BatcherSettings { queue: settings.queue.clone(), timeout: Some(settings.timeout) };
        let service = PgService::start(&settings, &context);
        let batcher =
            Batcher::start(service, batching).expect("the settings of the queue have been checked");
        Self { batcher, context, settings }
    }

    /// Waits until it is known whether Postgres can be reached and the relation fits the settings.
    ///
    /// # Errors
    /// Returns why the table cannot be served now. The pool keeps trying to connect.
    pub async fn connected(&self) -> Result<(), Error> {
        self.batcher.service().first_attempt().await
    }

    /// Returns the settings that the table was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the value columns by name. If the settings do not name them, they are known when the
    /// first session has opened, and stay the same from then on.
    pub fn columns(&self) -> &Arc<[String]> {
        static NONE: OnceLock<Arc<[String]>> = OnceLock::new();
        self.context.columns().unwrap_or_else(|| NONE.get_or_init(|| Arc::new([])))
    }

    /// Parses a key as a client writes it: the parts of a composite key with separators between
    /// them, which a backslash escapes.
    ///
    /// # Errors
    /// Returns [`Error::BadKey`]; or, if there has been no session yet, why not.
    pub fn parse_key(&self, raw: &[u8]) -> Result<Key, Error> {
        self.with_schema(|schema| schema.shape.parse(raw))
    }

    fn with_schema<T>(&self, look: impl FnOnce(&Schema) -> Result<T, Error>) -> Result<T, Error> {
        self.context.versions.with_schema(|schema| look(schema)).unwrap_or_else(|| {
            let last_error = || self.batcher.service().pool().state().last_error;
            let refusal = self.context.versions.refusal();
            Err(refusal
                .or_else(last_error)
                .unwrap_or_else(|| Error::CannotConnect("not connected to postgres yet".into())))
        })
    }

    /// Makes a write that sets the value of a table with one value column.
    ///
    /// # Errors
    /// Fails if the table has several, is read only, or its column cannot hold the value's bytes.
    pub fn write_value(&self, value: Bytes) -> Result<RowWrite, Error> {
        self.writing(|schema| {
            let [column] = &schema.values[..] else {
                let names = schema.column_names().join(", ");
                return Err(bad(format!(
                    "there are several value columns ({names}): set them by name"
                )));
            };
            check_value(&column.name, &column.form, &value)?;
            Ok(Change::Set(value))
        })
    }

    /// Makes a write that sets some columns, by index in [`columns`](Self::columns); the others
    /// keep their values, or get their defaults in a new row. If a column is named twice, the last
    /// value counts.
    ///
    /// # Errors
    /// Fails if the table is read only, there is no such column, or one cannot hold its value's
    /// bytes.
    pub fn write_fields(&self, fields: Vec<(usize, Bytes)>) -> Result<RowWrite, Error> {
        self.writing(|schema| {
            for (column, value) in &fields {
                let column = schema.values.get(*column).ok_or_else(no_such_column)?;
                check_value(&column.name, &column.form, value)?;
            }
            some(fields.len())?;
            Ok(Change::set_fields(fields))
        })
    }

    /// Makes a write that sets some columns to NULL, by index.
    ///
    /// # Errors
    /// Fails if the table is read only or there is no such column.
    pub fn write_nulls(&self, columns: &[usize]) -> Result<RowWrite, Error> {
        self.writing(|schema| {
            some(columns.len())?;
            match columns.iter().all(|&column| column < schema.values.len()) {
                true => Ok(Change::ClearFields(columns.iter().copied().collect())),
                false => Err(no_such_column()),
            }
        })
    }

    /// Makes a write that deletes the row.
    ///
    /// # Errors
    /// Fails if the table is read only.
    pub fn write_delete(&self) -> Result<RowWrite, Error> {
        self.writing(|_| Ok(Change::Delete))
    }

    fn writing(
        &self,
        change: impl FnOnce(&Schema) -> Result<Change, Error>,
    ) -> Result<RowWrite, Error> {
        if !self.settings.writable {
            return Err(Error::ReadOnly);
        }
        self.with_schema(change).map(RowWrite::new)
    }

    /// Puts a read in the queue; it is sent at the next [`flush`](Self::flush). [`read_error`]
    /// converts the errors that the reply gets.
    ///
    /// # Errors
    /// Returns the reply if the queue is full or closed.
    pub fn submit_load(
        &self,
        key: Key,
        reply: R,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused<R>> {
        self.batcher.submit_load(key, reply, deadline)
    }

    /// Puts a write in the queue; it is sent at the next [`flush`](Self::flush). The request's
    /// answer is [`Outcome::count`](crate::Outcome::count) of its receipt, or [`write_error`].
    ///
    /// # Errors
    /// Returns the reply if the queue is full or closed.
    pub fn submit_store(
        &self,
        key: Key,
        write: RowWrite,
        reply: R,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused<R>> {
        self.batcher.submit_store(key, write, reply, deadline)
    }

    /// Sends the submitted requests. Costs almost nothing if there are none.
    pub fn flush(&self) {
        self.batcher.flush();
    }

    /// Cancels a request: its reply is dropped, uncalled.
    pub fn cancel(&self, request: RequestId) {
        self.batcher.cancel(request);
    }

    /// Returns the statistics of the table and the state of its connections.
    pub fn stats(&self) -> TableStats {
        let pool = self.batcher.service().pool().state();
        TableStats::new(self.batcher.stats(), self.batcher.waiting(), pool, &self.context)
    }

    /// Returns how long requests waited in the queue and statements took.
    pub fn latencies(&self) -> Arc<QueueLatencies> {
        self.batcher.latencies()
    }

    /// Takes no more requests, answers those it has, and closes the connections.
    pub async fn close(&self) {
        self.batcher.close().await;
        self.batcher.service().pool().close().await;
    }
}

fn bad(text: String) -> Error {
    Error::BadValue(text.into())
}

fn no_such_column() -> Error {
    bad("there is no such column".to_owned())
}

fn some(count: usize) -> Result<(), Error> {
    if count == 0 { Err(bad("no column is named".to_owned())) } else { Ok(()) }
}

/// Refuses a value that no column can hold as text, before it joins a batch with others.
fn check_value(name: &str, form: &ValueForm, value: &[u8]) -> Result<(), Error> {
    if *form == ValueForm::Bytes {
        return Ok(());
    }
    if std::str::from_utf8(value).is_err() {
        return Err(bad(format!("the value of {name} is not UTF-8")));
    }
    if value.contains(&0) {
        return Err(bad(format!(
            "the value of {name} holds a NUL byte, which text in Postgres cannot"
        )));
    }
    Ok(())
}

impl Table {
    /// Reads the row under a key; `None` if there is none.
    ///
    /// Dropping the future cancels the request and affects no other.
    ///
    /// # Errors
    /// Returns why the request was refused or failed, see [`Error`].
    pub async fn get(&self, key: &[u8]) -> Result<Option<Row>, Error> {
        let (sender, receiver) = oneshot::channel();
        let request = self.submit_load(self.parse_key(key)?, Waiter::read(sender), None);
        let request = request.map_err(|refused| read_error(refused.reason.into()))?;
        self.answer(request, receiver).await
    }

    /// Sets the value of a table with one value column.
    ///
    /// A write may still be made after its future was dropped.
    ///
    /// # Errors
    /// See [`Error`]; after [`Error::OutcomeUnknown`] the write may have been made.
    pub async fn set(&self, key: &[u8], value: impl Into<Bytes>) -> Result<(), Error> {
        let write = self.write_value(value.into())?;
        self.write(key, write).await.map(|_| ())
    }

    /// Sets columns by name, and inserts the row if there is none. Returns the number of columns
    /// added: all named ones if the row is new, else none.
    ///
    /// # Errors
    /// Returns the same errors as [`set`](Self::set).
    pub async fn set_fields<V: Into<Bytes>>(
        &self,
        key: &[u8],
        fields: impl IntoIterator<Item = (&str, V)>,
    ) -> Result<u64, Error> {
        let fields = fields.into_iter().map(|(name, value)| Ok((self.column(name)?, value.into())));
        let write = self.write_fields(fields.collect::<Result<_, Error>>()?)?;
        self.write(key, write).await
    }

    /// Sets columns to NULL, by name. Returns how many of them were not NULL.
    ///
    /// # Errors
    /// Returns the same errors as [`set`](Self::set).
    pub async fn clear_fields(
        &self,
        key: &[u8],
        columns: impl IntoIterator<Item = &str>,
    ) -> Result<u64, Error> {
        let columns =
            columns.into_iter().map(|name| self.column(name)).collect::<Result<Vec<_>, _>>()?;
        let write = self.write_nulls(&columns)?;
        self.write(key, write).await
    }

    /// Deletes the row under a key. Returns whether this request deleted one.
    ///
    /// # Errors
    /// Returns the same errors as [`set`](Self::set).
    pub async fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        let write = self.write_delete()?;
        self.write(key, write).await.map(|count| count > 0)
    }

    fn column(&self, name: &str) -> Result<usize, Error> {
        self.columns().iter().position(|column| column == name).ok_or_else(|| {
            let names: Vec<_> = self.columns().iter().map(String::as_str).collect();
            bad(format!("there is no value column {name}; {}", suggest(name, &names)))
        })
    }

    async fn write(&self, key: &[u8], write: RowWrite) -> Result<u64, Error> {
        let (sender, receiver) = oneshot::channel();
        let request = self.submit_store(self.parse_key(key)?, write, Waiter::write(sender), None);
        let request = request.map_err(|refused| write_error(refused.reason.into()))?;
        self.answer(request, receiver).await
    }

    async fn answer<T>(
        &self,
        request: RequestId,
        receiver: oneshot::Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        self.flush();
        let waiting = Waiting { table: self, request: Some(request) };
        let answer = receiver.await;
        waiting.answered();
        answer.unwrap_or(Err(Error::Panicked))
    }
}

/// A request whose caller awaits the answer; dropping it before that cancels the request.
struct Waiting<'a> {
    table: &'a Table,
    request: Option<RequestId>,
}

impl Waiting<'_> {
    fn answered(mut self) {
        self.request = None;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request {
            self.table.cancel(request);
        }
    }
}

/// Answers one future: the reply of a [`Table`] whose callers await.
#[derive(Debug)]
pub struct Waiter(Sender);

type Answer<T> = oneshot::Sender<Result<T, Error>>;

#[derive(Debug)]
enum Sender {
    Read(Answer<Option<Row>>),
    Write(Answer<u64>),
}

impl Waiter {
    fn read(sender: Answer<Option<Row>>) -> Self {
        Self(Sender::Read(sender))
    }

    fn write(sender: Answer<u64>) -> Self {
        Self(Sender::Write(sender))
    }
}

/// A caller that has gone is no error: its answer is dropped.
impl Reply<PgService> for Waiter {
    fn loaded(self, outcome: Loaded<PgService>) {
        if let Sender::Read(sender) = self.0 {
            let _ = sender.send(outcome.map_err(read_error));
        }
    }

    fn stored(self, outcome: Stored<PgService>, receipt: Option<Receipt<PgService>>) {
        let Sender::Write(sender) = self.0 else { return };
        let count = match (outcome, receipt) {
            (Ok(outcome), Some(receipt)) => outcome.count(&receipt),
            (Ok(_), None) => Err(write_error(BatchError::Panicked)),
            (Err(error), _) => Err(write_error(error)),
        };
        let _ = sender.send(count);
    }
}
