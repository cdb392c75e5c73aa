//! The trait of writes, and two ready-made writes.

/// A write of one key, and how a later write of the key merges with it while it is pending.
pub trait Write: Sized {
    /// Kind of a write, such as insert or delete. Entries of different kinds never share a batch.
    type Kind: PartialEq;
    /// Part of the entry's outcome that belongs to one request; `()` if all get the same.
    type Receipt;

    /// Returns the kind of this write; called when a batch is formed.
    fn kind(&self) -> Self::Kind;

    /// Returns the receipt of the request whose write opened the entry.
    fn receipt(&self) -> Self::Receipt;

    /// Merges a later write of the same key into this one, or returns it: then it gets an entry of
    /// its own after this one.
    ///
    /// The merged write must do what both do one after the other. If `later` is returned, `self`
    /// must be unchanged. The merged write must not have more [`bytes`](Write::bytes) than both
    /// together.
    fn merge(&mut self, later: Self) -> Result<Self::Receipt, Self>;

    /// Returns the bytes this write holds, for the limits of the queue and of a batch.
    fn bytes(&self) -> usize;
}

/// A write of a whole value: of several that are pending for one key, the last is made and all are
/// acknowledged.
///
/// It counts the bytes of `V` itself, not those that `V` points to. If those are many, implement a
/// [`Write`] that counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastWins<V>(pub V);

impl<V> From<V> for LastWins<V> {
    fn from(value: V) -> Self {
        Self(value)
    }
}

impl<V> Write for LastWins<V> {
    type Kind = ();
    type Receipt = ();

    fn kind(&self) {}

    fn receipt(&self) {}

    fn merge(&mut self, later: Self) -> Result<(), Self> {
        *self = later;
        Ok(())
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.0)
    }
}

/// The write type of a queue that only reads; it has no values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoWrites {}

impl Write for NoWrites {
    type Kind = ();
    type Receipt = ();

    fn kind(&self) {
        match *self {}
    }

    fn receipt(&self) {
        match *self {}
    }

    fn merge(&mut self, later: Self) -> Result<(), Self> {
        match later {}
    }

    fn bytes(&self) -> usize {
        match *self {}
    }
}
