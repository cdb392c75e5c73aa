//! What a user of the [`Batcher`](crate::Batcher) brings: the function that makes a trip, and how
//! answers find their callers.
//!
//! [`Service`] is the slow thing: it takes many keys at once. [`Reply`] is where one caller's
//! answer goes; the futures of `load` and `store` bring their own, a program that speaks a protocol
//! hands in what it needs to find the connection again. [`BatchError`] is all that can happen to a
//! request.

use std::hash::Hash;

use crate::{Refusal, Write};

/// What one trip for keys brings: by key, in the order asked; or one error for all of them.
pub type LoadedAll<S> = Result<Vec<LoadedOne<S>>, <S as Service>::Error>;

/// What a trip brought for one key: `None` if there is nothing under that key.
pub type LoadedOne<S> = Result<Option<<S as Service>::Value>, <S as Service>::Error>;

/// What one trip with writes brings: by entry, in the order given; or one error for all of them.
pub type StoredAll<S> = Result<Vec<StoredOne<S>>, <S as Service>::Error>;

/// What became of one written entry.
pub type StoredOne<S> = Result<<S as Service>::Outcome, <S as Service>::Error>;

/// The answer to one caller's read.
pub type Loaded<S> = Result<Option<<S as Service>::Value>, BatchError<<S as Service>::Error>>;

/// The answer to one caller's write.
pub type Stored<S> = Result<<S as Service>::Outcome, BatchError<<S as Service>::Error>>;

/// Which part of a written entry's outcome belongs to one request.
pub type Receipt<S> = <<S as Service>::Write as Write>::Receipt;

/// Something slow that is cheaper by the hundred: a database, a file, another service.
///
/// One call is one trip. Trips run at the same time, up to `batches_in_flight_max`, each in a task
/// of its own, so neither function may rely on the order in which they end. For one key the line
/// keeps the order: while a trip with writes of a key is under way, no other trip holds that key.
///
/// A panic in a trip, or a trip that brings the wrong number of answers, fails the requests of that
/// trip and no others.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Mutex;
///
/// use busload_batch::{Batcher, BatcherSettings, LastWins, LoadedAll, Service, StoredAll};
///
/// /// Stands for something slow with a function that reads many keys and one that writes many.
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
///         Ok(entries.into_iter().map(|(key, LastWins(value))| Ok(rows.insert(key, value).is_none())).collect())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let table = Batcher::from_service(Table::default(), BatcherSettings::default())?;
/// // Both wait at the same time, so they are one entry of one trip.
/// let both = tokio::join!(table.store(1, LastWins("short")), table.store(1, LastWins("stout")));
/// assert_eq!(both, (Ok(true), Ok(true)));
/// assert_eq!(table.load(1).await, Ok(Some("stout")));
/// assert_eq!(table.stats().writes.entries, 1);
/// # Ok(())
/// # }
/// ```
pub trait Service: Send + Sync + 'static {
    /// What is asked for. Cloned once per entry; `Hash`, `Eq` and `Ord` are called under the line's
    /// lock and must not panic.
    type Key: Clone + Eq + Hash + Ord + Send + 'static;
    /// What is found. One value is cloned for all who asked for its key, so make clones cheap
    /// (`Bytes`, `Arc<_>`): callers share it and cannot change it under each other.
    type Value: Clone + Send + 'static;
    /// One change of a key. [`LastWins`](crate::LastWins) and [`NoWrites`](crate::NoWrites) are
    /// ready-made.
    type Write: Write<Receipt: Send> + Send + 'static;
    /// What a written entry comes to; cloned for every request that was merged into it.
    type Outcome: Clone + Send + 'static;
    /// Why an entry or a whole trip failed; cloned for everyone concerned.
    type Error: Clone + Send + 'static;

    /// One trip for many keys, which are sorted and unique: an answer for each, in the order of
    /// `keys`.
    ///
    /// # Errors
    /// An error of the whole trip reaches all who asked for any of its keys.
    fn load(&self, keys: Vec<Self::Key>) -> impl Future<Output = LoadedAll<Self>> + Send;

    /// One trip with many writes of one kind, sorted by key, which are unique: an outcome for each,
    /// in that order.
    ///
    /// # Errors
    /// An error of the whole trip reaches all whose writes were in it.
    fn store(
        &self,
        entries: Vec<(Self::Key, Self::Write)>,
    ) -> impl Future<Output = StoredAll<Self>> + Send;

    /// How many bytes of memory a key takes, for the line's limit in bytes. Override it where keys
    /// own memory.
    fn key_bytes(&self, key: &Self::Key) -> usize {
        size_of_val(key)
    }
}

/// How an answer reaches its caller, other than by a future.
///
/// Called once per request, outside all locks, on a task of the runtime: it should hand over and
/// return. A panic in it harms nobody else. It may submit further requests.
pub trait Reply<S: Service>: Send + 'static {
    /// The answer to a read.
    fn loaded(self, outcome: Loaded<S>);

    /// The answer to a write; the receipt is there when the outcome is `Ok`.
    fn stored(self, outcome: Stored<S>, receipt: Option<Receipt<S>>);
}

/// Why a request was not answered with a result.
///
/// What a failed read means is simple: ask again or not. A failed write may have happened all the
/// same: [`outcome_unknown`](BatchError::outcome_unknown) tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BatchError<E> {
    /// The waiting line is full, in requests or in bytes. Nothing was sent.
    #[error("the waiting line is full")]
    Full,
    /// The request would not fit into an empty line either. Nothing was sent.
    #[error("the request counts {bytes} bytes, and at most {bytes_max} bytes may wait")]
    TooLarge {
        /// What the request counts.
        bytes: usize,
        /// [`LineSettings::bytes_max`](crate::LineSettings::bytes_max).
        bytes_max: usize,
    },
    /// The deadline passed.
    #[error("{}", if *sent { "no answer before the deadline; a write may have been done" } else { "the deadline passed in the waiting line; nothing was sent" })]
    TooLate {
        /// The request was under way when its deadline passed, or is a write that waited merged
        /// with others: the outcome of a write is unknown.
        sent: bool,
    },
    /// The batcher takes no more requests, or was dropped or lost its runtime while this one
    /// waited. Nothing was sent.
    #[error("the batcher is closed; nothing was sent")]
    Closed,
    /// The service failed: this entry, or the whole trip.
    #[error("{0}")]
    Failed(E),
    /// The service panicked on this trip. The outcome of a write is unknown.
    #[error("the batch function panicked; a write may have been done")]
    Panicked,
    /// The trip was under way when its task was ended, as a runtime does that shuts down. The
    /// outcome of a write is unknown.
    #[error("the batch was stopped before it had an answer; a write may have been done")]
    Stopped,
    /// The service broke its contract: it brought another number of answers than it was given
    /// entries, so that none can be told whose it is. The outcome of a write is unknown.
    #[error(
        "the batch function gave {given} answers for {asked} entries; a write may have been done"
    )]
    Miscounted {
        /// Entries of the trip.
        asked: usize,
        /// Answers it brought.
        given: usize,
    },
}

impl<E> BatchError<E> {
    /// Whether a write that got this error may have happened. For [`BatchError::Failed`] only the
    /// service's own error can tell, and this says `false`.
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
