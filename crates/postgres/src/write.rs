//! Writes that clients request, how pending writes of one row merge, and the answer of each
//! request.
//!
//! | family | merge of two writes of the family | a request's count |
//! |---|---|---|
//! | set the value (`SET`) | the last wins | none |
//! | set columns (`HSET`) | the union; of a column's values the last wins | see below |
//! | clear columns (`HDEL`) | the union | its columns that it was the first to clear |
//! | delete (`DEL`) | nothing to do | 1 for the first if there was a row |
//!
//! `HSET` counts columns only if the row is new: those that no earlier request of the entry set.
//! `HDEL` counts columns that were not NULL and that no earlier request of the entry cleared.
//!
//! Different families do not merge. An entry remembers what each request wanted: when Postgres
//! refuses the merged write, the requests are made one by one, so that one request's bad value
//! fails no other request.

mod columns;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;

use crate::Error;
pub use columns::ColumnSet;

/// Bytes that an entry counts besides its values.
const OVERHEAD_BYTES: usize = size_of::<RowWrite>();

/// One change of a row. [`Table::write_value`](crate::Table::write_value) and its siblings make and
/// check it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowWrite {
    change: Change,
    /// Changes of the requests, in order, when there are several that differ.
    requests: Vec<Change>,
}

/// A change of a row, by family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Sets the only value column.
    Set(Bytes),
    /// Sets some columns by index, each once, in order.
    SetFields(Vec<(usize, Bytes)>),
    /// Sets some columns, by index, to NULL.
    ClearFields(ColumnSet),
    /// Deletes the row of the key.
    Delete,
}

/// Kind of a write. Writes of one kind share a statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WriteKind {
    /// Sets the only value column.
    Set,
    /// Sets these columns of the row.
    SetFields(ColumnSet),
    /// Sets these columns to NULL.
    ClearFields(ColumnSet),
    /// Deletes the row of the key.
    Delete,
}

impl Change {
    pub(crate) fn set_fields(mut fields: Vec<(usize, Bytes)>) -> Self {
        // If a column is named twice, the last value counts: the sort is stable, and the reverse
        // order keeps the first.
        fields.reverse();
        fields.sort_by_key(|&(column, _)| column);
        fields.dedup_by_key(|field| field.0);
        Self::SetFields(fields)
    }

    pub(crate) fn kind(&self) -> WriteKind {
        match self {
            Self::Set(_) => WriteKind::Set,
            Self::SetFields(_) => WriteKind::SetFields(self.columns()),
            Self::ClearFields(columns) => WriteKind::ClearFields(columns.clone()),
            Self::Delete => WriteKind::Delete,
        }
    }

    /// Returns the columns that the change names.
    fn columns(&self) -> ColumnSet {
        match self {
            Self::SetFields(fields) => fields.iter().map(|&(column, _)| column).collect(),
            Self::ClearFields(columns) => columns.clone(),
            Self::Set(_) | Self::Delete => ColumnSet::default(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Set(value) => value.len(),
            Self::SetFields(fields) => {
                fields.iter().map(|(_, value)| value.len() + size_of::<(usize, Bytes)>()).sum()
            }
            Self::ClearFields(_) | Self::Delete => 0,
        }
    }

    /// Returns the effect of both, one after the other, if that is one change.
    fn then(&self, later: &Self) -> Option<Self> {
        match (self, later) {
            (Self::Set(_), Self::Set(_)) | (Self::Delete, Self::Delete) => Some(later.clone()),
            (Self::SetFields(earlier), Self::SetFields(later)) => {
                Some(Self::set_fields(earlier.iter().chain(later).cloned().collect()))
            }
            (Self::ClearFields(earlier), Self::ClearFields(later)) => {
                Some(Self::ClearFields(earlier.union(later)))
            }
            _ => None,
        }
    }
}

impl RowWrite {
    pub(crate) fn new(change: Change) -> Self {
        Self { change, requests: Vec::new() }
    }

    pub(crate) fn change(&self) -> &Change {
        &self.change
    }

    /// Returns the changes of the requests, when several that differ have merged.
    pub(crate) fn requests(&self) -> &[Change] {
        &self.requests
    }
}

impl busload_batch::Write for RowWrite {
    type Kind = WriteKind;
    type Receipt = Receipt;

    fn kind(&self) -> WriteKind {
        self.change.kind()
    }

    fn receipt(&self) -> Receipt {
        Receipt { request: 0, columns: self.change.columns() }
    }

    fn merge(&mut self, later: Self) -> Result<Receipt, Self> {
        let Some(joined) = self.change.then(&later.change) else {
            return Err(later);
        };
        let columns = later.change.columns().without(&self.change.columns());
        if self.requests.is_empty() {
            self.requests.push(std::mem::replace(&mut self.change, joined));
        } else {
            self.change = joined;
        }
        let request = self.requests.len();
        self.requests.push(later.change);
        Ok(Receipt { request, columns })
    }

    fn bytes(&self) -> usize {
        let requests: usize =
            self.requests.iter().map(|change| change.bytes() + OVERHEAD_BYTES).sum();
        requests.max(self.change.bytes() + OVERHEAD_BYTES)
    }
}

/// Part of an entry's outcome that belongs to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Number of the request in its entry.
    request: usize,
    /// Columns of the request that no earlier request of the entry named.
    columns: ColumnSet,
}

/// Outcome of an entry. [`Outcome::count`] tells what it means for one of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value was set.
    Set,
    /// The columns were set.
    FieldsSet {
        /// True if the row is new.
        inserted: bool,
    },
    /// The columns were set to NULL.
    FieldsCleared {
        /// Columns that were not NULL before.
        existed: ColumnSet,
    },
    /// The row was deleted, or there was none.
    Deleted {
        /// True if there was a row.
        existed: bool,
    },
    /// The merged write was refused and its requests were made one by one: the count, or the error,
    /// of each.
    Separate(Arc<[Result<u64, Error>]>),
}

impl Outcome {
    /// Returns the answer to a request: the number of columns added, columns cleared, or rows
    /// deleted; 0 for a value that was set.
    ///
    /// # Errors
    /// Returns the request's own error when the entry's requests were made one by one.
    pub fn count(&self, receipt: &Receipt) -> Result<u64, Error> {
        let counted = |columns: &ColumnSet| u64::try_from(columns.len()).unwrap_or(u64::MAX);
        match self {
            Self::Set => Ok(0),
            Self::FieldsSet { inserted } => {
                Ok(if *inserted { counted(&receipt.columns) } else { 0 })
            }
            Self::FieldsCleared { existed } => Ok(counted(&receipt.columns.intersection(existed))),
            Self::Deleted { existed } => Ok(u64::from(*existed && receipt.request == 0)),
            Self::Separate(counts) => {
                counts.get(receipt.request).cloned().unwrap_or(Err(Error::Panicked))
            }
        }
    }

    /// Returns the count of a request that was made alone.
    pub(crate) fn count_alone(&self, change: &Change) -> Result<u64, Error> {
        self.count(&Receipt { request: 0, columns: change.columns() })
    }
}
