//! What leaves a line together.

/// Entries that leave together, for one trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<K, T> {
    /// What [`Line::answer`](crate::Line::answer) and [`Line::end`](crate::Line::end) are told.
    pub id: BatchId,
    /// What to read or to write.
    pub content: Content<K, T>,
}

/// Names one batch of one line, forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchId {
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

/// What to read or to write. An entry's index in it is what [`Line::answer`](crate::Line::answer)
/// takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content<K, T> {
    /// Keys to read, sorted, each once.
    Read(Vec<K>),
    /// Writes to make, all of one kind.
    Write {
        /// The lane they belong to. It has no other batch under way.
        lane: usize,
        /// Sorted by key, each key once.
        entries: Vec<(K, T)>,
    },
}

impl<K, T> Content<K, T> {
    /// Number of entries; never 0.
    pub fn len(&self) -> usize {
        match self {
            Self::Read(keys) => keys.len(),
            Self::Write { entries, .. } => entries.len(),
        }
    }

    /// Never true: no empty batch leaves.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
