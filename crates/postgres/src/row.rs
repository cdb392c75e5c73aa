//! A row's values, and the matching of returned rows to keys.

use std::fmt;

use bytes::Bytes;

use crate::key::Key;

/// Bit in a row's offset table: the column is NULL. No value reaches 2 GiB, because a message of
/// Postgres has at most 1 GiB.
const NULL: u32 = 1 << 31;
const ENTRY_BYTES: usize = 4;

/// Value columns of one row, in the order of [`Table::columns`](crate::Table::columns): text as
/// `column::text` gives it, `bytea` as it is.
///
/// Clones share the values. A row owns its memory, so keeping one keeps nothing else alive.
#[derive(Clone, PartialEq, Eq)]
pub struct Row {
    /// Offset table, with four bytes per column (the end of its value, and whether it is NULL),
    /// followed by the values.
    packed: Bytes,
    columns: usize,
}

impl Row {
    /// Returns the value of a column; `None` if it is NULL.
    ///
    /// # Panics
    /// Panics if there is no such column.
    pub fn value(&self, column: usize) -> Option<Bytes> {
        self.bounds(column).map(|(start, end)| self.packed.slice(start..end))
    }

    /// Borrows the value of a column; `None` if it is NULL.
    ///
    /// # Panics
    /// Panics if there is no such column.
    pub fn get(&self, column: usize) -> Option<&[u8]> {
        self.bounds(column).map(|(start, end)| &self.packed[start..end])
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.columns
    }

    /// Returns whether there are no values: never, as a table has at least one value column.
    pub fn is_empty(&self) -> bool {
        self.columns == 0
    }

    /// Iterates over all values in order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Option<Bytes>> + '_ {
        (0..self.columns).map(|column| self.value(column))
    }

    fn bounds(&self, column: usize) -> Option<(usize, usize)> {
        assert!(column < self.columns, "column {column} of {}", self.columns);
        let (end, null) = self.end(column);
        let start = if column == 0 { self.columns * ENTRY_BYTES } else { self.end(column - 1).0 };
        (!null).then_some((start, end))
    }

    fn end(&self, column: usize) -> (usize, bool) {
        let entry = &self.packed[column * ENTRY_BYTES..][..ENTRY_BYTES];
        let entry = u32::from_be_bytes(entry.try_into().expect("the slice has four bytes"));
        (usize::try_from(entry & !NULL).expect("31 bits fit"), entry & NULL != 0)
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}

/// Packs the values of rows, one after the other.
#[derive(Debug)]
pub(crate) struct RowPacker {
    packed: Vec<u8>,
    columns: usize,
}

impl RowPacker {
    pub(crate) fn new(columns: usize, values_bytes: usize) -> Self {
        let mut packed = Vec::with_capacity(columns * ENTRY_BYTES + values_bytes);
        packed.resize(columns * ENTRY_BYTES, 0);
        Self { packed, columns }
    }

    /// Adds the value of the given column. Columns come in order.
    pub(crate) fn value(&mut self, column: usize, value: Option<&[u8]>) {
        self.packed.extend_from_slice(value.unwrap_or_default());
        let end = u32::try_from(self.packed.len()).unwrap_or(NULL - 1);
        let entry = if value.is_some() { end } else { end | NULL };
        self.packed[column * ENTRY_BYTES..][..ENTRY_BYTES].copy_from_slice(&entry.to_be_bytes());
    }

    pub(crate) fn row(self) -> Row {
        Row { packed: self.packed.into(), columns: self.columns }
    }
}

/// Finds the index of each returned key among the sorted keys of a batch.
///
/// An index scan returns rows in the order of the index, mostly that of the keys: then a step or
/// two is enough. Where an ICU collation orders otherwise, each key is searched for.
#[derive(Debug)]
pub(crate) struct Matcher<'a> {
    keys: &'a [Key],
    next: usize,
}

/// Number of keys without a row to step over before a binary search is cheaper.
const STEPS_MAX: usize = 8;

impl<'a> Matcher<'a> {
    pub(crate) fn new(keys: &'a [Key]) -> Self {
        debug_assert!(keys.is_sorted());
        Self { keys, next: 0 }
    }

    pub(crate) fn find(&mut self, encoded: &[u8]) -> Option<usize> {
        let near = self.keys.iter().enumerate().skip(self.next).take(STEPS_MAX);
        let index = near
            .take_while(|(_, key)| key.encoded() <= encoded)
            .find(|(_, key)| key.encoded() == encoded)
            .map(|(index, _)| index)
            .or_else(|| self.keys.binary_search_by(|key| key.encoded().cmp(encoded)).ok())?;
        self.next = index + 1;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Matcher, RowPacker};
    use crate::key::{Key, KeyShape, KeyType};

    fn keys(numbers: &[i64]) -> Vec<Key> {
        let shape = KeyShape::new(&[("id".to_owned(), KeyType::Int8)], ':');
        numbers
            .iter()
            .map(|number| shape.parse(number.to_string().as_bytes()).expect("a number"))
            .collect()
    }

    proptest! {
        #[test]
        fn every_row_finds_its_key_in_any_order_and_strangers_find_none(
            asked in prop::collection::btree_set(0_i64..200, 1..60),
            mut returned in prop::collection::vec(0_i64..200, 0..60),
            sorted: bool,
        ) {
            if sorted {
                returned.sort_unstable();
            }
            let asked: Vec<_> = asked.into_iter().collect();
            let (asked_keys, returned_keys) = (keys(&asked), keys(&returned));
            let mut matcher = Matcher::new(&asked_keys);
            for (number, key) in returned.iter().zip(&returned_keys) {
                prop_assert_eq!(matcher.find(key.encoded()), asked.binary_search(number).ok());
            }
        }

        #[test]
        fn a_row_gives_back_what_was_packed(values: Vec<Option<Vec<u8>>>) {
            let mut packer = RowPacker::new(values.len(), 0);
            for (column, value) in values.iter().enumerate() {
                packer.value(column, value.as_deref());
            }
            let row = packer.row();
            prop_assert_eq!(row.len(), values.len());
            let unpacked: Vec<_> =
                row.values().map(|value| value.map(|bytes| bytes.to_vec())).collect();
            prop_assert_eq!(unpacked, values);
        }
    }
}
