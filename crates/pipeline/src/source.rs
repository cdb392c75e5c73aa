//! What cannot be answered from memory goes to a source: one per table of a kind other than
//! `memory`.
//!
//! tx submits requests, each with a ticket, says once per turn that these were all
//! ([`Source::flush`]) and goes on. Out comes **one ordered stream** of [`SourceEvent`]s; tx
//! applies it in order and nothing else: whatever a kind needs to keep a cache honest stays inside
//! the source. Operations on one key take effect in the order of submission: a read waits for an
//! earlier unfinished write of that key.

use std::{borrow::Cow, time::Duration};

use busload_io::ConnId;
use bytes::Bytes;

use crate::{limits::SOURCE_TICKETS_MAX, stats::BatchReading};

/// Names an open request. A late answer to one that is not open any more is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

impl Ticket {
    /// Bits of a ticket that are its index.
    pub(crate) const INDEX_BITS: u32 = 20;

    /// A small number that no other open ticket has: a place in an array of whoever answers.
    #[inline]
    pub fn index(self) -> usize {
        // 20 bits fit everywhere.
        (self.0 & ((1 << Self::INDEX_BITS) - 1)) as usize
    }
}

const _: () = assert!(SOURCE_TICKETS_MAX <= 1 << Ticket::INDEX_BITS);

/// What is asked about one key. Commands over several keys become one operation per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The value: `Bulk` or `Nil`.
    Get,
    /// Whether the key exists: `Integer` 0 or 1.
    Exists,
    /// Length of the value: `Integer`.
    Strlen,
    /// The type's name, `none` for no such key: `Status`.
    Type,
    /// One field (argument 1): `Bulk` or `Nil`.
    HashGet,
    /// Several fields (arguments): `Values`.
    HashGetMany,
    /// All fields: `Fields`.
    HashGetAll,
    /// Whether a field exists: `Integer`.
    HashExists,
    /// Names of fields: `Values`.
    HashKeys,
    /// Count of fields: `Integer`.
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
    /// Whether it changes the source.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Operation::Set | Operation::Delete | Operation::HashSet | Operation::HashDelete
        )
    }
}

/// One request for a source.
#[derive(Clone, Copy, Debug)]
pub struct SourceRequest<'a> {
    /// To be named in the answer.
    pub ticket: Ticket,
    /// Who asks.
    pub conn: ConnId,
    /// What.
    pub operation: Operation,
    /// The key without the table's prefix.
    pub key: &'a [u8],
    /// What the operation needs beyond the key.
    pub arguments: &'a [&'a [u8]],
    /// When it is too late (on the monotonic clock of the pipeline).
    pub deadline: Duration,
}

/// What a source answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceValue {
    /// No such key, row or field.
    Nil,
    /// A word of the protocol.
    Status(&'static str),
    /// A string.
    Bulk(Bytes),
    /// A count.
    Integer(i64),
    /// A write without a count succeeded.
    Done,
    /// Several values, in the order asked.
    Values(Vec<Option<Bytes>>),
    /// Fields with values.
    Fields(Vec<(Bytes, Option<Bytes>)>),
}

/// One element of the ordered stream of a source.
#[derive(Clone, Debug)]
pub enum SourceEvent {
    /// The answer to a ticket: exactly one per accepted submission, also after a cancel.
    Answer {
        /// Which.
        ticket: Ticket,
        /// The value, or the error as it goes to the client, without the leading `-` (`ERR table
        /// objects: ...`).
        outcome: Result<SourceValue, String>,
        /// How long the value may be kept.
        cacheable_for: Option<Duration>,
    },
    /// Whatever was cached for this key is out of date.
    Invalidate {
        /// The key without the table's prefix.
        key: Bytes,
    },
    /// Whatever was cached is out of date.
    Flush,
}

/// The waiting line is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Why an operation is not possible, whatever the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The kind of table has no such thing.
    Kind,
    /// This table's settings are in the way; the text says which (`the table is not writable ...`).
    Table(Cow<'static, str>),
}

/// A source as INFO shows it. Nothing secret.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceInfo {
    /// What leaves in batches, and how full they were.
    pub batches: Vec<(&'static str, BatchReading)>,
    /// State and figures by name.
    pub fields: Vec<(&'static str, String)>,
}

/// Answers what is not in memory. Never blocks; its work happens on threads of its own.
pub trait Source: Send {
    /// Takes a request, or says that the line is full. It may wait for [`Source::flush`] before it
    /// does anything.
    fn submit(&mut self, request: SourceRequest<'_>) -> Result<(), Full>;

    /// Nothing more is submitted in this turn. Cheap when nothing was.
    fn flush(&mut self);

    /// Nobody waits for this ticket any more. Its answer may still come and is ignored.
    fn cancel(&mut self, ticket: Ticket);

    /// Appends what has become known, in order.
    fn poll(&mut self, stream: &mut Vec<SourceEvent>);

    /// What people call this kind: `postgres`, `chunks`.
    fn kind(&self) -> &'static str;

    /// Whether the operation is possible at all; asked before anything of a command is submitted.
    fn supports(&self, operation: Operation) -> Result<(), Unsupported>;

    /// How long a request may take.
    fn timeout(&self) -> Duration;

    /// For INFO.
    fn info(&self) -> SourceInfo;
}
