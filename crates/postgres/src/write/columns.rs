//! Sets of value columns.

/// A set of value columns, by index. The first 64 need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ColumnSet {
    first: u64,
    /// Following words; the last one is never 0, so that equal sets compare as equal.
    rest: Vec<u64>,
}

const WORD_BITS: usize = 64;

impl ColumnSet {
    fn of_words(mut words: impl Iterator<Item = u64>) -> Self {
        let first = words.next().unwrap_or_default();
        let mut rest: Vec<_> = words.collect();
        while rest.last() == Some(&0) {
            rest.pop();
        }
        Self { first, rest }
    }

    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.first).chain(self.rest.iter().copied())
    }

    fn padded(&self, count: usize) -> impl Iterator<Item = u64> + '_ {
        self.words().chain(std::iter::repeat(0)).take(count)
    }

    fn combine(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let count = 1 + self.rest.len().max(other.rest.len());
        Self::of_words(
            self.padded(count).zip(other.padded(count)).map(|(one, two)| combine(one, two)),
        )
    }

    /// Returns the columns in either set.
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |one, two| one | two)
    }

    /// Returns the columns in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |one, two| one & two)
    }

    /// Returns the columns that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        self.combine(other, |one, two| one & !two)
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns whether the set has no columns.
    pub fn is_empty(&self) -> bool {
        self.words().all(|word| word == 0)
    }

    /// Returns whether the column is in the set.
    pub fn contains(&self, column: usize) -> bool {
        self.words()
            .nth(column / WORD_BITS)
            .is_some_and(|word| word >> (column % WORD_BITS) & 1 == 1)
    }

    /// Returns the columns in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words().enumerate().flat_map(|(index, word)| {
            (0..WORD_BITS)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| index * WORD_BITS + bit)
        })
    }

    fn insert(&mut self, column: usize) {
        let (word, bit) = (column / WORD_BITS, 1 << (column % WORD_BITS));
        match word.checked_sub(1) {
            None => self.first |= bit,
            Some(index) => {
                self.rest.resize(self.rest.len().max(index + 1), 0);
                self.rest[index] |= bit;
            }
        }
    }
}

impl FromIterator<usize> for ColumnSet {
    fn from_iter<I: IntoIterator<Item = usize>>(columns: I) -> Self {
        let mut set = Self::default();
        columns.into_iter().for_each(|column| set.insert(column));
        set
    }
}
