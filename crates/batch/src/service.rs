//! The interface between a [`Batcher`](crate::Batcher) and its user.
//!
//! [`Service`] is the slow backend: it takes many keys at once. [`Reply`] receives one caller's
//! answer; the futures of `load` and `store` bring their own, and a program that speaks a protocol
//! passes a value that names the connection. [`BatchError`] lists all that can happen to a
//! request.

use std::hash::Hash;

use crate::trace::BatchTrace;
use crate::{Refusal, SentBatch, Write};

/// Result of one batch of reads: an answer per key in the given order, or one error for all.
pub type LoadedAll<S> = Result<Vec<LoadedOne<S>>, <S as Service>::Error>;

/// Result of a read for one key: `None` if the key has no value.
pub type LoadedOne<S> = Result<Option<<S as Service>::Value>, <S as Service>::Error>;

/// Result of one batch of writes: an outcome per entry in the given order, or one error for all.
pub type StoredAll<S> = Result<Vec<StoredOne<S>>, <S as Service>::Error>;

/// Result of one written entry.
pub type StoredOne<S> = Result<<S as Service>::Outcome, <S as Service>::Error>;

/// Answer to one caller's read.
pub type Loaded<S> = Result<Option<<S as Service>::Value>, BatchError<<S as Service>::Error>>;

/// Answer to one caller's write.
pub type Stored<S> = Result<<S as Service>::Outcome, BatchError<<S as Service>::Error>>;

/// Part of a written entry's outcome that belongs to one request.
pub type Receipt<S> = <<S as Service>::Write as Write>::Receipt;

/// A slow backend that serves a hundred keys more cheaply together than one by one: a database, a
/// file, another service.
///
/// One call serves one batch. Batches run at the same time, up to `batches_in_flight_max`, each in
/// a task of its own, so neither function may rely on the order in which they end. The queue keeps
/// the order of one key: while a batch with writes of a key is in flight, no other batch holds that
/// key.
///
/// A panic in a batch, or a batch with the wrong number of answers, fails the requests of that
/// batch and no others.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Mutex;
///
/// use busload_batch::{Batcher, BatcherSettings, LastWins, LoadedAll, Service, StoredAll};
///
/// /// Stands for a slow backend with a function that reads many keys and one that writes many.
/// #[derive(Default)]
/// struct Table(Mutex<BTreeMap<u64, &'static str>>);
///
/// impl Service for Table {
///     type Key = u64;
///     type Value = &'static str;
///     type Write = LastWins<&'static str>;
///     type Outcome = bool;
///     type Error = &'static str;
///
///     async fn load(&self, keys: Vec<u64>) -> LoadedAll<Self> {
///         let rows = self.0.lock().map_err(|_| "the table is broken")?;
///         Ok(keys.iter().map(|key| Ok(rows.get(key).copied())).collect())
///     }
///
///     /// Tells whether the key is new.
///     async fn store(&self, entries: Vec<(u64, LastWins<&'static str>)>) -> StoredAll<Self> {
///         let mut rows = self.0.lock().map_err(|_| "the table is broken")?;
///         let stored = entries.into_iter().map(|(key, LastWins(value))| rows.insert(key, value));
///         Ok(stored.map(|before| Ok(before.is_none())).collect())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let table = Batcher::from_service(Table::default(), BatcherSettings::default())?;
/// // Both are pending at the same time, so they are one entry of one batch.
/// let both = tokio::join!(table.store(1, LastWins("short")), table.store(1, LastWins("stout")));
/// assert_eq!(both, (Ok(true), Ok(true)));
/// assert_eq!(table.load(1).await, Ok(Some("stout")));
/// assert_eq!(table.stats().writes.entries, 1);
/// # Ok(())
/// # }
/// ```
pub trait Service: Sized + Send + Sync + 'static {
    /// Key of a request. It is cloned once per entry; `Hash`, `Eq` and `Ord` are called under the
    /// queue's lock and must not panic.
    type Key: Clone + Eq + Hash + Ord + Send + 'static;
    /// Value of a key. It is cloned for every caller that asked for the key, so make clones cheap
    /// (`Bytes`, `Arc<_>`): callers share it and cannot change it under each other.
    type Value: Clone + Send + 'static;
    /// Change of a key. [`LastWins`](crate::LastWins) and [`NoWrites`](crate::NoWrites) are
    /// ready-made.
    type Write: Write<Receipt: Send> + Send + 'static;
    /// Outcome of a written entry; cloned for every request that was merged into it.
    type Outcome: Clone + Send + 'static;
    /// Error of an entry or a whole batch; cloned for every caller concerned.
    type Error: Clone + Send + 'static;

    /// Reads many keys, which are sorted and unique, and returns an answer for each, in the order
    /// of `keys`.
    ///
    /// # Errors
    /// An error of the whole batch reaches every caller that asked for one of its keys.
    fn load(&self, keys: Vec<Self::Key>) -> impl Future<Output = LoadedAll<Self>> + Send;

    /// Reads many keys like [`load`](Self::load), and may give answers to single entries before
    /// all are there. This is what a [`Batcher`](crate::Batcher) calls; it calls `load` unless it
    /// is overridden.
    ///
    /// A function that gives all answers to `early` returns an empty list.
    ///
    /// # Errors
    /// An error of the whole batch reaches every caller that has no answer yet.
    fn load_each(
        &self,
        keys: Vec<Self::Key>,
        early: EarlyAnswers<'_, Self>,
    ) -> impl Future<Output = LoadedAll<Self>> + Send {
        let _ = early;
        self.load(keys)
    }

    /// Returns whether a batch of reads that no caller waits for any more is dropped before it
    /// ends. It must then be safe to drop its future at any await. Reads that share an answer in
    /// flight ([`Sharing::InFlight`](crate::Sharing::InFlight)) are never dropped.
    fn drops_abandoned_loads(&self) -> bool {
        false
    }

    /// Makes many writes of one kind, with unique keys and sorted by key, and returns an outcome
    /// for each, in that order.
    ///
    /// # Errors
    /// An error of the whole batch reaches every caller whose write was in it.
    fn store(
        &self,
        entries: Vec<(Self::Key, Self::Write)>,
    ) -> impl Future<Output = StoredAll<Self>> + Send;

    /// Returns whether a batch failed with `error` because the backend has too much to do. The
    /// queue then has fewer batches in flight.
    fn is_overloaded(&self, error: &Self::Error) -> bool {
        let _ = error;
        false
    }

    /// Returns whether the service is opening connections for batches in flight, so that it cannot
    /// show yet how fast it is. The queue then judges no limit.
    fn is_growing(&self) -> bool {
        false
    }

    /// Returns the bytes of memory that a key takes, for the queue's limit in bytes. Override it
    /// where keys own memory.
    fn key_bytes(&self, key: &Self::Key) -> usize {
        size_of_val(key)
    }
}

/// Takes the answers to single entries of a batch of reads while the batch is in flight.
#[derive(Clone, Copy)]
pub struct EarlyAnswers<'a, S: Service>(pub(crate) &'a (dyn AnswerEntries<S> + Sync));

impl<S: Service> EarlyAnswers<'_, S> {
    /// Answers entries, given by their index in the batch, and leaves `answers` empty. The second
    /// answer to an entry is dropped.
    ///
    /// The answers of one call share a lock of the queue.
    pub fn give(&self, answers: &mut Vec<(usize, LoadedOne<S>)>) {
        self.0.answer(answers);
    }
}

impl<S: Service> std::fmt::Debug for EarlyAnswers<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EarlyAnswers")
    }
}

/// The batch in flight behind [`EarlyAnswers`], for any kind of replies.
pub(crate) trait AnswerEntries<S: Service> {
    fn answer(&self, answers: &mut Vec<(usize, LoadedOne<S>)>);
}

/// Delivers an answer to its caller by other means than a future.
///
/// It is called once per request, outside all locks, on a task of the runtime: it should hand the
/// answer over and return. A panic in it affects no other request. It may submit further requests.
pub trait Reply<S: Service>: Send + 'static {
    /// Delivers the answer to a read.
    fn loaded(self, outcome: Loaded<S>);

    /// Delivers the answer to a read that shared the entry of an earlier request of the batch.
    fn loaded_shared(self, outcome: Loaded<S>)
    where
        Self: Sized,
    {
        self.loaded(outcome);
    }

    /// Delivers the answer to a write; the receipt is there when the outcome is `Ok`.
    fn stored(self, outcome: Stored<S>, receipt: Option<Receipt<S>>);

    /// Returns whether the request is followed into the batch that carries it. The answer must
    /// always be the same.
    fn is_traced(&self) -> bool {
        false
    }

    /// Begins the trace of a batch that carries this request, the first traced one in it. This is
    /// called under the queue's lock: it must be short and must not panic.
    fn trace_batch(&self, batch: &SentBatch) -> Option<Box<dyn BatchTrace<Self>>>
    where
        Self: Sized,
    {
        let _ = batch;
        None
    }
}

/// Why a request was not answered with a result.
///
/// A failed read can simply be repeated. A failed write may still have happened:
/// [`outcome_unknown`](BatchError::outcome_unknown) tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BatchError<E> {
    /// The request queue is full, in requests or in bytes. Nothing was sent.
    #[error("the request queue is full")]
    Full,
    /// The request would not fit into an empty queue either. Nothing was sent.
    #[error("the request counts {bytes} bytes, and at most {bytes_max} bytes may wait")]
    TooLarge {
        /// Bytes that the request counts.
        bytes: usize,
        /// The limit: the value of [`QueueSettings::bytes_max`](crate::QueueSettings::bytes_max).
        bytes_max: usize,
    },
    /// The request's deadline passed.
    #[error("{}", if *sent {
        "no answer before the deadline; a write may have been done"
    } else {
        "the deadline passed in the request queue; nothing was sent"
    })]
    TooLate {
        /// Set if the request was in flight when its deadline passed, or is a pending write that
        /// was merged with others: the outcome of a write is then unknown.
        sent: bool,
    },
    /// The batcher takes no more requests, or was dropped or lost its runtime while this request
    /// was pending. Nothing was sent.
    #[error("the batcher is closed; nothing was sent")]
    Closed,
    /// The service returned an error, for this entry or for the whole batch.
    #[error("{0}")]
    Failed(E),
    /// The service panicked on this batch. The outcome of a write is unknown.
    #[error("the batch function panicked; a write may have been done")]
    Panicked,
    /// The batch's task was ended while the batch was in flight, as a runtime that shuts down does.
    /// The outcome of a write is unknown.
    #[error("the batch was stopped before it had an answer; a write may have been done")]
    Stopped,
    /// The service broke its contract: it returned more or fewer answers than it got entries, so
    /// that no answer can be matched to its entry. The outcome of a write is unknown.
    #[error(
        "the batch function gave {given} answers for {asked} entries; a write may have been done"
    )]
    Miscounted {
        /// Number of entries in the batch.
        asked: usize,
        /// Number of answers it returned.
        given: usize,
    },
}

impl<E> BatchError<E> {
    /// Returns whether a write that got this error may have happened. For [`BatchError::Failed`]
    /// only the service's own error can tell, and this returns `false`.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Full | Self::TooLarge { .. } | Self::Closed => false,
            Self::Failed(_) | Self::TooLate { sent: false } => false,
            Self::TooLate { sent: true }
            | Self::Panicked
            | Self::Stopped
            | Self::Miscounted { .. } => true,
        }
    }
}

impl<E> From<Refusal> for BatchError<E> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full { .. } => Self::Full,
            Refusal::TooLarge { bytes, bytes_max } => Self::TooLarge { bytes, bytes_max },
            Refusal::Closed => Self::Closed,
        }
    }
}
