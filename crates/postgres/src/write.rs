//! What a client asks to be written, how writes of one row join while they wait, and what each
//! request is told.
//!
//! | family | joins another of its family by | a request's count |
//! |---|---|---|
//! | set the value (`SET`) | the last wins | none |
//! | set columns (`HSET`) | the union; of a column's values the last wins | if the row is new, its columns that no earlier request of the entry set |
//! | clear columns (`HDEL`) | the union | its columns that were not NULL and that no earlier request cleared |
//! | delete (`DEL`) | nothing to do | 1 for the first if there was a row |
//!
//! Different families do not join. An entry remembers what each request wanted: when Postgres
//! refuses the joined write, they are made one by one, so that one request's bad value is nobody
//! else's error.

mod columns;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;

use crate::Error;
pub use columns::ColumnSet;

/// What an entry costs besides its values.
const OVERHEAD_BYTES: usize = size_of::<RowWrite>();

/// One change of a row. Made by [`Table::write_value`](crate::Table::write_value) and its siblings,
/// which check it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowWrite {
    change: Change,
    /// What each request wanted, in order, when there are several that differ.
    requests: Vec<Change>,
}

/// A change of a row, by family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The only value column.
    Set(Bytes),
    /// Some columns by index, each once, in order.
    SetFields(Vec<(usize, Bytes)>),
    /// Some columns by index become NULL.
    ClearFields(ColumnSet),
    /// The row goes.
    Delete,
}

/// Writes of one kind share a statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The only value column is set.
    Set,
    /// These columns are set.
    SetFields(ColumnSet),
    /// These columns become NULL.
    ClearFields(ColumnSet),
    /// Rows are deleted.
    Delete,
}

impl Change {
    pub(crate) fn set_fields(mut fields: Vec<(usize, Bytes)>) -> Self {
        // Of a column named twice the last value stays: the sort is stable, and the reverse order
        // keeps the first.
        fields.reverse();
        fields.sort_by_key(|&(column, _)| column);
        fields.dedup_by_key(|field| field.0);
        Self::SetFields(fields)
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Set(_) => Kind::Set,
            Self::SetFields(_) => Kind::SetFields(self.columns()),
            Self::ClearFields(columns) => Kind::ClearFields(columns.clone()),
            Self::Delete => Kind::Delete,
        }
    }

    /// The columns it names.
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

    /// What both do one after the other, if that is one change.
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

    /// What each request wanted, when several that differ have joined.
    pub(crate) fn requests(&self) -> &[Change] {
        &self.requests
    }
}

impl busload_batch::Write for RowWrite {
    type Kind = Kind;
    type Receipt = Receipt;

    fn kind(&self) -> Kind {
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

/// Which part of an entry's outcome is one request's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Its number in the entry.
    request: usize,
    /// Its columns that no earlier request of the entry named.
    columns: ColumnSet,
}

/// What became of an entry. [`Outcome::count`] tells what that means for one of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value is set.
    Set,
    /// The columns are set.
    FieldsSet {
        /// Whether the row is new.
        inserted: bool,
    },
    /// The columns are NULL.
    FieldsCleared {
        /// Those that were not before.
        existed: ColumnSet,
    },
    /// There is no row any more.
    Deleted {
        /// Whether there was one.
        existed: bool,
    },
    /// The joined write was refused and its requests were made one by one: the count, or the error,
    /// of each.
    Separate(Arc<[Result<u64, Error>]>),
}

impl Outcome {
    /// What a request is told: columns added, columns cleared, or rows deleted. A value that was
    /// set counts as none.
    ///
    /// # Errors
    /// The request's own error when the entry's requests were made one by one.
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

    /// The count of a request that was made alone.
    pub(crate) fn count_alone(&self, change: &Change) -> Result<u64, Error> {
        self.count(&Receipt { request: 0, columns: change.columns() })
    }
}
