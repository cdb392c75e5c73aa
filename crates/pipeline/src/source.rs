//! The seam to tables that are not in memory. Each such table has one source.
//!
//! tx submits requests, each with a ticket, calls [`Source::flush`] once per turn when it has
//! submitted all of them, and continues without waiting. The source returns **one ordered stream**
//! of [`SourceEvent`]s, which tx applies in order: whatever a kind of table needs to keep a cache
//! consistent stays inside its source. Operations on one key take effect in the order of
//! submission: a read waits for an earlier unfinished write of that key.

use std::{any::Any, borrow::Cow, time::Duration};

use busload_io::ConnId;
use bytes::Bytes;

use crate::{limits::SOURCE_TICKETS_MAX, stats::BatchReading};

/// Name of an open request. tx ignores a late answer whose ticket is not open any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

impl Ticket {
    /// Bits of a ticket that are its index.
    pub(crate) const INDEX_BITS: u32 = 20;

    /// Returns a small number that no other open ticket has, usable as an array index by the
    /// source.
    #[inline]
    pub fn index(self) -> usize {
        // 20 bits fit everywhere.
        (self.0 & ((1 << Self::INDEX_BITS) - 1)) as usize
    }
}

const _: () = assert!(SOURCE_TICKETS_MAX <= 1 << Ticket::INDEX_BITS);

/// Operation on one key. A command over several keys becomes one operation per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads the value: `Bulk` or `Nil`.
    Get,
    /// Reads whether the key exists: `Integer` 0 or 1.
    Exists,
    /// Reads the length of the value: `Integer`.
    Strlen,
    /// Reads the type's name, `none` when the key does not exist: `Status`.
    Type,
    /// Reads one field (argument 1): `Bulk` or `Nil`.
    HashGet,
    /// Reads several fields (arguments): `Values`.
    HashGetMany,
    /// Reads all fields: `Fields`.
    HashGetAll,
    /// Reads whether a field exists: `Integer`.
    HashExists,
    /// Reads the names of all fields: `Values`.
    HashKeys,
    /// Reads the number of fields: `Integer`.
    HashLen,
    /// Sets the value (argument 1): `Done`.
    Set,
    /// Removes the key: `Integer` count removed.
    Delete,
    /// Sets fields (arguments: field, value, ...): `Integer` count added.
    HashSet,
    /// Removes fields (arguments): `Integer` count removed.
    HashDelete,
}

impl Operation {
    /// Returns whether the operation changes the source.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Operation::Set | Operation::Delete | Operation::HashSet | Operation::HashDelete
        )
    }
}

/// One request to a source.
#[derive(Clone, Copy, Debug)]
pub struct SourceRequest<'a> {
    /// Ticket that the answer must name.
    pub ticket: Ticket,
    /// Connection that sent the command.
    pub conn: ConnId,
    /// Operation to be carried out.
    pub operation: Operation,
    /// Key without the table's prefix; at the source of a pattern of names, the whole key.
    pub key: &'a [u8],
    /// Arguments of the operation beyond the key.
    pub arguments: &'a [&'a [u8]],
    /// Time of the timeout, on the monotonic clock of the pipeline.
    pub deadline: Duration,
}

/// Value that a source answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceValue {
    /// No such key, row or field exists.
    Nil,
    /// A status word of the protocol.
    Status(&'static str),
    /// A string, such as a value.
    Bulk(Bytes),
    /// A count, or a truth value as 0 or 1.
    Integer(i64),
    /// A write without a count succeeded.
    Done,
    /// Several values, in the order of the request.
    Values(Vec<Option<Bytes>>),
    /// Fields with their values.
    Fields(Vec<(Bytes, Option<Bytes>)>),
}

/// One element of the ordered stream of a source.
#[derive(Clone, Debug)]
pub enum SourceEvent {
    /// Answer to a ticket: exactly one per accepted submission, also after a cancel.
    Answer {
        /// Ticket that is answered.
        ticket: Ticket,
        /// Value, or the error as it goes to the client, without the leading `-` (`ERR table
        /// objects: ...`).
        outcome: Result<SourceValue, String>,
        /// Time for which the value may be cached.
        cacheable_for: Option<Duration>,
    },
    /// Whatever was cached for this key is out of date. No source sends it yet: together with
    /// [`SourceEvent::Flush`] and `cacheable_for` it is the seam for a coherent cache of answers in
    /// tx, fed by a change stream of the database.
    Invalidate {
        /// Key without the table's prefix.
        key: Bytes,
    },
    /// Everything that was cached is out of date.
    Flush,
}

/// Error of a submission: the request queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Reason for which an operation is not possible, whatever the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The kind of table does not support the operation.
    Kind,
    /// This table's settings forbid it; the text says which (`the table is not writable ...`).
    Table(Cow<'static, str>),
}

/// Facts about a source that INFO shows; nothing in it is secret.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceInfo {
    /// Names of the batches it sends, and how full they were.
    pub batches: Vec<(&'static str, BatchReading)>,
    /// State and metrics by name.
    pub fields: Vec<(&'static str, String)>,
}

/// Answers requests for keys that are not in memory. None of its functions blocks: a source works
/// on other threads, or in a runtime that runs while the pipeline's thread waits.
pub trait Source: Any + Send {
    /// Accepts a request, or fails because the request queue is full. It may wait for
    /// [`Source::flush`] before it does anything.
    fn submit(&mut self, request: SourceRequest<'_>) -> Result<(), Full>;

    /// Ends the submissions of this turn. It is cheap when nothing was submitted.
    fn flush(&mut self);

    /// Says that nobody waits for this ticket any more. Its answer may still come and is ignored.
    fn cancel(&mut self, ticket: Ticket);

    /// Appends the events since the last call, in order.
    fn poll(&mut self, stream: &mut Vec<SourceEvent>);

    /// Returns what people call this kind: `postgres`, `chunks`.
    fn kind(&self) -> &'static str;

    /// Returns whether the operation is possible at all; tx asks before it submits any part of a
    /// command.
    fn supports(&self, operation: Operation) -> Result<(), Unsupported>;

    /// Returns how long a request may take.
    fn timeout(&self) -> Duration;

    /// Returns the facts that INFO shows.
    fn info(&self) -> SourceInfo;
}
