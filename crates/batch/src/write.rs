//! What a line must know about a write.

/// A write of one key, and how a later one of the same key joins it while it waits.
pub trait Write: Sized {
    /// Entries of different kinds never share a batch, for example inserts and deletes.
    type Kind: PartialEq;
    /// Which part of the entry's outcome belongs to one request; `()` if all get the same.
    type Receipt;

    /// The kind of this write, asked when a batch is formed.
    fn kind(&self) -> Self::Kind;

    /// The receipt of the request whose write opened the entry.
    fn receipt(&self) -> Self::Receipt;

    /// Takes a later write of the same key in, or gives it back: then it gets an entry of its own
    /// behind this one.
    ///
    /// What both do together must be what they do one after the other. When it gives `later` back,
    /// `self` must be as it was. Together they must not have more [`bytes`](Write::bytes) than one
    /// by one.
    fn merge(&mut self, later: Self) -> Result<Self::Receipt, Self>;

    /// Bytes this write holds, for the limits of the line and of a batch.
    fn bytes(&self) -> usize;
}

/// A write of a whole value: of several that wait for one key, the last is made and all are
/// acknowledged.
///
/// Its bytes are those of `V` itself, not of what `V` points to. Where that is much, write a
/// [`Write`] that counts it.
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

/// The write of a line that only reads: there is none.
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
