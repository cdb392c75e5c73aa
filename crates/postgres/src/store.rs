//! Writes many rows with one statement; sends a refused batch again entry by entry.
//!
//! ```text
//!  batch --statement--> ok --------------------------> outcomes
//!          |  ^          |
//!          |  +-- conflict: the same again, later
//!          v
//!       refused --each entry alone, pipelined--> outcome or error of each
//!                        |
//!                        +-- an entry of several requests: each request alone, in order
//! ```
//!
//! Every statement is a transaction of its own: one that fails has changed nothing. A statement
//! that was in flight when the connection ended is never sent again. A batch that is refused
//! because the relation has changed goes back to the service, which knows whether it has.

use std::{pin::pin, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio_postgres::types::{ToSql, Type};

use crate::{
    Error,
    failure::{Class, Fault},
    key::Key,
    limits,
    parameters::ValueArray,
    read::{RowMatcher, key_arrays, stranger},
    retry,
    row::Matcher,
    schema::ValueForm,
    session::Prepared,
    stats::Counters,
    write::{Change, ColumnSet, Outcome, RowWrite, WriteKind},
};

/// Outcomes of the entries, in their order.
pub(crate) type Outcomes = Vec<Result<Outcome, Error>>;

/// Writes entries of one kind, with unique keys and sorted by key. An error concerns all entries:
/// the statement as a whole was refused, or the connection ended before anything was answered.
pub(crate) async fn store(
    session: &Prepared,
    entries: &[(Key, RowWrite)],
    counters: &Counters,
) -> Result<Outcomes, Fault> {
    let store = Store { session, counters };
    if entries.iter().any(|(key, _)| !session.schema.shape.fits(key)) {
        return Ok(store.alone(entries).await);
    }
    let (keys, changes): (Vec<_>, Vec<_>) =
        entries.iter().map(|(key, write)| (key.clone(), write.change())).unzip();
    let error = match store.batch(&keys, &changes).await {
        Ok(outcomes) => return Ok(outcomes),
        Err(error) => error,
    };
    match error.class() {
        class if class.may_be_one_entrys() && !is_single(entries) => Ok(store.alone(entries).await),
        Class::Data => Ok(vec![Err(error.data())]),
        _ => Err(error),
    }
}

/// Writes the entries, each in a statement of its own.
pub(crate) async fn store_alone(
    session: &Prepared,
    entries: &[(Key, RowWrite)],
    counters: &Counters,
) -> Outcomes {
    Store { session, counters }.alone(entries).await
}

/// Returns whether sending the entries alone would send the same again.
pub(crate) fn is_single(entries: &[(Key, RowWrite)]) -> bool {
    matches!(entries, [(_, write)] if write.requests().is_empty())
}

#[derive(Clone, Copy)]
struct Store<'a> {
    session: &'a Prepared,
    counters: &'a Counters,
}

impl Store<'_> {
    /// Sends each entry in a statement of its own. Never fails as a whole: some may have been
    /// written.
    async fn alone(self, entries: &[(Key, RowWrite)]) -> Outcomes {
        let one = |index: usize| async move {
            let (key, write) = &entries[index];
            self.entry(key, write).await
        };
        let outcomes =
            stream::iter(0..entries.len()).map(one).buffered(limits::ALONE_IN_FLIGHT_MAX);
        outcomes.collect().await
    }

    /// Sends one entry; if it is refused and holds several requests, sends each of them, so that
    /// only the bad ones fail.
    async fn entry(self, key: &Key, write: &RowWrite) -> Result<Outcome, Error> {
        let outcome = self.one(key, write.change()).await;
        match outcome {
            Err(Error::Data { .. } | Error::Statement { .. }) if !write.requests().is_empty() => {
                let mut counts = Vec::with_capacity(write.requests().len());
                for change in write.requests() {
                    let outcome = self.one(key, change).await;
                    counts.push(outcome.and_then(|outcome| outcome.count_alone(change)));
                }
                Ok(Outcome::Separate(counts.into()))
            }
            outcome => outcome,
        }
    }

    async fn one(self, key: &Key, change: &Change) -> Result<Outcome, Error> {
        if !self.session.schema.shape.fits(key) {
            return Err(stranger());
        }
        self.counters.sent_alone.add(1);
        match self.batch(std::slice::from_ref(key), &[change]).await {
            Ok(mut outcomes) => outcomes.pop().unwrap_or(Err(Error::Panicked)),
            Err(error) => Err(entry_error(&error)),
        }
    }

    /// Sends one statement, and then again, each alone, the entries whose rows it has missed. If
    /// one of these fails, the others stay written and are not sent again.
    async fn batch(self, keys: &[Key], changes: &[&Change]) -> Result<Outcomes, Fault> {
        let answered = self.retrying(keys, changes).await?;
        let mut outcomes = Vec::with_capacity(answered.len());
        for (outcome, (key, change)) in answered.into_iter().zip(keys.iter().zip(changes)) {
            outcomes.push(match outcome {
                Some(outcome) => Ok(outcome),
                None => self.missed(key, change).await,
            });
        }
        Ok(outcomes)
    }

    /// Handles a row that was neither updated nor inserted: when only some columns are set, others
    /// may have inserted it after the update had looked for it.
    async fn missed(self, key: &Key, change: &Change) -> Result<Outcome, Error> {
        let attempts =
            if matches!(change, Change::SetFields(_)) { limits::MISSED_ROW_RETRIES_MAX } else { 0 };
        for _ in 0..attempts {
            let answered = self.retrying(std::slice::from_ref(key), &[change]).await;
            if let Some(outcome) = answered.map_err(|error| entry_error(&error))?.pop().flatten() {
                return Ok(outcome);
            }
        }
        Err(not_written())
    }

    /// Sends the statement, again while it loses against other transactions.
    async fn retrying(
        self,
        keys: &[Key],
        changes: &[&Change],
    ) -> Result<Vec<Option<Outcome>>, Fault> {
        retry::on_conflict(self.counters, || self.once(keys, changes)).await
    }

    /// Returns the outcome of each entry; `None` for one that Postgres has not written.
    async fn once(self, keys: &[Key], changes: &[&Change]) -> Result<Vec<Option<Outcome>>, Fault> {
        let Some(kind) = changes.first().map(|change| change.kind()) else {
            return Ok(Vec::new());
        };
        let schema = &self.session.schema;
        let statement = self.session.write_statement(&kind).await?;
        self.counters.statements.add(1);
        let key_list: Vec<_> = keys.iter().collect();
        let key_arrays = key_arrays(&schema.shape, &key_list);
        let value_arrays = self.value_arrays(&kind, changes);
        let key_parameters = key_arrays.iter().map(|array| array as &(dyn ToSql + Sync));
        let parameters =
            key_parameters.chain(value_arrays.iter().map(|array| array as &(dyn ToSql + Sync)));
        let parameters: Vec<_> = parameters.collect();
        let mut rows = pin!(self.session.client.query_raw(&statement, parameters).await?);
        let mut matcher = RowMatcher::new(&schema.shape, Matcher::new(keys));
        let mut outcomes = vec![untouched(&kind); keys.len()];
        let mut count = 0;
        while let Some(row) = rows.try_next().await? {
            count += 1;
            if let Some(index) = matcher.find(&row)? {
                outcomes[index] = Some(touched(&kind, &row, matcher.key_columns())?);
            }
        }
        self.counters.rows_written.add(count);
        Ok(outcomes)
    }

    /// Returns one parameter per column that gets a value.
    fn value_arrays<'c>(self, kind: &WriteKind, changes: &[&'c Change]) -> Vec<ValueArray<'c>> {
        let columns: Vec<usize> = match kind {
            WriteKind::Set => vec![0],
            WriteKind::SetFields(columns) => columns.iter().collect(),
            WriteKind::ClearFields(_) | WriteKind::Delete => Vec::new(),
        };
        let array = |(position, column): (usize, usize)| {
            let form = self.session.schema.values.get(column).map(|column| &column.form);
            let element = if form == Some(&ValueForm::Bytes) { Type::BYTEA } else { Type::TEXT };
            ValueArray {
                values: changes.iter().map(|change| value(change, position)).collect(),
                element,
            }
        };
        columns.into_iter().enumerate().map(array).collect()
    }
}

/// Returns a value of a change by its position. All changes of a kind set the same columns in one
/// order.
fn value(change: &Change, position: usize) -> &[u8] {
    match change {
        Change::Set(value) => value,
        Change::SetFields(fields) => {
            fields.get(position).map_or(&[], |(_, value): &(usize, Bytes)| value)
        }
        Change::ClearFields(_) | Change::Delete => &[],
    }
}

/// Returns the outcome of an entry for which no row comes back.
fn untouched(kind: &WriteKind) -> Option<Outcome> {
    match kind {
        WriteKind::Set | WriteKind::SetFields(_) => None,
        WriteKind::ClearFields(_) => Some(Outcome::FieldsCleared { existed: ColumnSet::default() }),
        WriteKind::Delete => Some(Outcome::Deleted { existed: false }),
    }
}

/// Returns the outcome of an entry, from the row that came back for it.
fn touched(kind: &WriteKind, row: &tokio_postgres::Row, first: usize) -> Result<Outcome, Fault> {
    Ok(match kind {
        WriteKind::Set => Outcome::Set,
        WriteKind::SetFields(columns) => {
            let inserted = row.try_get(first + columns.iter().count())?;
            Outcome::FieldsSet { inserted }
        }
        WriteKind::ClearFields(columns) => {
            let mut existed = Vec::new();
            for (index, column) in columns.iter().enumerate() {
                if row.try_get(first + index)? {
                    existed.push(column);
                }
            }
            Outcome::FieldsCleared { existed: existed.into_iter().collect() }
        }
        WriteKind::Delete => Outcome::Deleted { existed: true },
    })
}

/// Returns the error of a row that was neither updated nor inserted, several times.
fn not_written() -> Error {
    let message: Arc<str> =
        "postgres has not written the row: a trigger may have prevented it".into();
    Error::Data { sqlstate: "02000".into(), message }
}

/// Returns the error for the requests of an entry that was sent alone.
fn entry_error(error: &Fault) -> Error {
    match error.class() {
        Class::Lost => Error::OutcomeUnknown(error.describe().into()),
        Class::Data => error.data(),
        Class::Canceled => Error::TooLate,
        Class::Conflict | Class::Stale | Class::Standby | Class::Exhausted | Class::Refused => {
            error.refused()
        }
    }
}
