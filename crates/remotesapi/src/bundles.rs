//! Encoded chunk bundles: the records of several chunks, concatenated. Bundles that were advertised
//! a short while ago stay in memory; others are encoded again on demand.
//!
//! ```text
//!  locations --> encode --+                             +--> identity, lengths --> URL, offsets
//!                         +--> recent, pending --> encode
//!                         |    (memory) (single-flight) +--> bytes, if they are still those
//!  download ---> get -----+                                  that the URL was made for
//! ```
//!
//! A bundle is looked up by a hash of its table and its addresses, so all requests for the same
//! chunks share the work and the bytes. A chunk can get another record later, when the store finds
//! it in another file. The check in the URL detects that, and the URL is then no longer valid.
//!
//! **Limits** ([`limits`](crate::limits)). Bytes of recently advertised bundles, and stored bytes
//! of bundles that are encoded again at a time, for which others wait (encoding for locations has a
//! limit of its own). A slow reader holds only the pieces that it is being sent. A bundle that
//! busload can never have advertised is not encoded. **Failure.** An error of one chunk fails
//! the bundle. **Time.** Encoding has the table's timeout, or that of the first waiter if it is
//! longer; each waiter has its own. **Cancellation.** Encoding stops when nobody waits for it.

mod encode;
mod recent;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use busload_dolt::{ChunkAddress, Error, Located, Location, Store};
use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use tokio::{runtime::Handle, time::timeout_at};

use self::{encode::encode, recent::RecentBundles};
use crate::{
    host::Host,
    limits::{
        RECORDS_BYTES_MAX, RECORDS_CHUNKS_MAX, RECORDS_EXPLANATION_TIME,
        RECORDS_REENCODING_BYTES_MAX, RECORDS_STORED_BYTES_MAX,
    },
    memory::TableBudgets,
    stats::{RecordsOrigin, RemotesapiStats},
    task::AbortOnDrop,
    url::BundleId,
};

/// Bundles of all tables.
#[derive(Debug)]
pub struct BundleCache {
    cache: Arc<SharedCache>,
}

/// Description of an encoded bundle that can be advertised.
#[derive(Clone, Debug)]
pub struct BundleInfo {
    /// Identity for the URL; none if none of the chunks exists.
    pub bundle: Option<BundleId>,
    /// Length of each chunk's record, in the order of the request; none if the store does not hold
    /// the chunk. The records follow each other without gaps.
    pub lengths: Vec<Option<u32>>,
}

/// An encoded bundle and its bytes.
#[derive(Debug)]
struct EncodedBundle {
    /// Identity, made of the chunks that exist.
    bundle: Option<BundleId>,
    /// Length of the record of each requested chunk.
    lengths: Vec<Option<u32>>,
    bytes: Bytes,
}

impl EncodedBundle {
    /// Returns the bundle as if only the chunks that exist had been requested.
    fn without_missing(encoded: &Arc<Self>) -> Arc<Self> {
        if encoded.lengths.iter().all(Option::is_some) {
            return Arc::clone(encoded);
        }
        let lengths = encoded.lengths.iter().copied().filter(Option::is_some).collect();
        Arc::new(Self { bundle: encoded.bundle.clone(), lengths, bytes: encoded.bytes.clone() })
    }
}

/// Cache key of a bundle: a hash of its table and its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BundleKey(ChunkAddress);

type Encoding = Shared<BoxFuture<'static, Result<Arc<EncodedBundle>, Error>>>;
type WeakEncoding = WeakShared<BoxFuture<'static, Result<Arc<EncodedBundle>, Error>>>;

/// A bundle that is being encoded, shared by all its waiters.
#[derive(Clone)]
struct PendingEncoding<E = WeakEncoding> {
    number: u64,
    /// Deadline of the encoding itself.
    until: Instant,
    encoding: E,
}

struct SharedCache {
    /// Gives access to the stores' runtime and their timeouts.
    host: Arc<dyn Host>,
    stats: Arc<RemotesapiStats>,
    recent: Mutex<RecentBundles>,
    pending: Mutex<HashMap<BundleKey, PendingEncoding>>,
    /// Number of the next encoding.
    next_number: AtomicU64,
    /// Memory budget of each table for stored bytes of bundles that are encoded again.
    memory: TableBudgets,
}

impl BundleCache {
    /// Creates a cache for the repositories that `host` has once their stores have started.
    pub fn new(host: Arc<dyn Host>, stats: Arc<RemotesapiStats>) -> Self {
        Self::with_bytes_max(host, stats, RECORDS_BYTES_MAX)
    }

    fn with_bytes_max(host: Arc<dyn Host>, stats: Arc<RemotesapiStats>, bytes_max: u64) -> Self {
        let cache = SharedCache {
            host,
            stats,
            recent: Mutex::new(RecentBundles::new(bytes_max)),
            pending: Mutex::default(),
            next_number: AtomicU64::new(0),
            memory: TableBudgets::new(RECORDS_REENCODING_BYTES_MAX),
        };
        Self { cache: Arc::new(cache) }
    }

    /// Reads chunks and encodes a bundle of their records.
    ///
    /// # Errors
    /// Returns the error of any of the chunks.
    pub async fn encode(
        &self,
        store: &Store,
        addresses: Vec<ChunkAddress>,
        deadline: Instant,
    ) -> Result<BundleInfo, Error> {
        let encoded =
            self.encoded(store, addresses.into(), deadline, RecordsOrigin::Encoded).await?;
        Ok(BundleInfo { bundle: encoded.bundle.clone(), lengths: encoded.lengths.clone() })
    }

    /// Returns the bytes of a bundle that this or an earlier process advertised; none if the store
    /// no longer holds the chunks, or would encode them to other bytes.
    ///
    /// # Errors
    /// As [`BundleCache::encode`].
    pub async fn get(
        &self,
        store: &Store,
        bundle: &BundleId,
        deadline: Instant,
    ) -> Result<Option<Bytes>, Error> {
        let (bytes, origin) = self.get_from(store, bundle, deadline).await?;
        if origin == RecordsOrigin::Memory {
            self.cache.stats.count_records(RecordsOrigin::Memory);
        }
        Ok(bytes)
    }

    /// Does what [`BundleCache::get`] does, without counting: for further pieces of a download.
    ///
    /// # Errors
    /// As [`BundleCache::encode`].
    pub async fn get_rest(
        &self,
        store: &Store,
        bundle: &BundleId,
        deadline: Instant,
    ) -> Result<Option<Bytes>, Error> {
        Ok(self.get_from(store, bundle, deadline).await?.0)
    }

    async fn get_from(
        &self,
        store: &Store,
        bundle: &BundleId,
        deadline: Instant,
    ) -> Result<(Option<Bytes>, RecordsOrigin), Error> {
        let key = BundleKey::of(store.name(), &bundle.addresses);
        let recent = self.cache.recent().get(&key);
        let (encoded, origin) = match recent {
            Some(encoded) => (encoded, RecordsOrigin::Memory),
            None => {
                let located = store.locate(&bundle.addresses, deadline).await?;
                let origin = RecordsOrigin::EncodedAgain;
                let Some(stored_bytes) = advertisable_bytes(&located) else {
                    return Ok((None, origin));
                };
                let reserved =
                    self.cache.memory.reserve(store.name(), stored_bytes, deadline).await;
                let _reservation = reserved.ok_or_else(|| deadline_exceeded(store))?;
                let addresses = Arc::from(bundle.addresses.as_slice());
                (self.encoded(store, addresses, deadline, origin).await?, origin)
            }
        };
        Ok(((encoded.bundle.as_ref() == Some(bundle)).then(|| encoded.bytes.clone()), origin))
    }

    /// Returns the bundle from memory, or encodes it once for all requests for it.
    async fn encoded(
        &self,
        store: &Store,
        addresses: Arc<[ChunkAddress]>,
        deadline: Instant,
        origin: RecordsOrigin,
    ) -> Result<Arc<EncodedBundle>, Error> {
        let own_deadline = store_deadline(deadline);
        let (until, outcome) =
            self.join_or_encode(store, Arc::clone(&addresses), deadline, origin).await?;
        match outcome {
            // The encoding that this joined began earlier and had less time than is left here.
            Err(Error::DeadlineExceeded(_)) if until < own_deadline => {
                self.join_or_encode(store, addresses, deadline, origin).await?.1
            }
            outcome => outcome,
        }
    }

    /// Looks up or joins an encoding, and returns its outcome with its deadline. The outer error
    /// says that no encoding could start, or that the caller's own deadline has passed.
    async fn join_or_encode(
        &self,
        store: &Store,
        addresses: Arc<[ChunkAddress]>,
        deadline: Instant,
        origin: RecordsOrigin,
    ) -> Result<(Instant, Result<Arc<EncodedBundle>, Error>), Error> {
        match self.cache.recent_or_pending(store, addresses, deadline, origin)? {
            Lookup::Recent(encoded) => Ok((deadline, Ok(encoded))),
            Lookup::Pending(PendingEncoding { until, encoding, .. }) => {
                let outcome = timeout_at(deadline.into(), encoding).await;
                Ok((until, outcome.map_err(|_| deadline_exceeded(store))?))
            }
        }
    }
}

/// Inputs of one encoding.
struct EncodingJob {
    store: Store,
    addresses: Arc<[ChunkAddress]>,
    deadline: Instant,
}

/// Encodes on the stores' runtime as long as somebody waits. The task is spawned at the first poll:
/// a runtime that has ended drops a task at once, which would lock `pending`, and the caller of
/// this function has it locked.
fn encoding(runtime: Handle, guard: PendingGuard, job: EncodingJob) -> Encoding {
    let encoding = async move {
        let mut task = AbortOnDrop(runtime.spawn(run(guard, job)));
        match (&mut task.0).await {
            Ok(outcome) => outcome,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::Closed),
        }
    };
    encoding.boxed().shared()
}

async fn run(guard: PendingGuard, job: EncodingJob) -> Result<Arc<EncodedBundle>, Error> {
    let encoded = Arc::new(encode(&job).await?);
    if let Some(bundle) = &encoded.bundle {
        let key = BundleKey::of(job.store.name(), &bundle.addresses);
        guard.cache.recent().insert(key, EncodedBundle::without_missing(&encoded));
    }
    Ok(encoded)
}

/// Removes an encoding from `pending` however it ends, unless a newer one has replaced it.
struct PendingGuard {
    cache: Arc<SharedCache>,
    key: BundleKey,
    number: u64,
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        let mut pending = self.cache.pending();
        if pending.get(&self.key).is_some_and(|pending| pending.number == self.number) {
            pending.remove(&self.key);
        }
    }
}

enum Lookup {
    Recent(Arc<EncodedBundle>),
    Pending(PendingEncoding<Encoding>),
}

impl SharedCache {
    /// Returns the bundle, or an encoding to wait for. Nothing is encoded twice: a finished bundle
    /// is put into `recent` before it is removed from `pending`, which is locked here.
    fn recent_or_pending(
        self: &Arc<Self>,
        store: &Store,
        addresses: Arc<[ChunkAddress]>,
        deadline: Instant,
        origin: RecordsOrigin,
    ) -> Result<Lookup, Error> {
        let key = BundleKey::of(store.name(), &addresses);
        let mut pending = self.pending();
        if let Some(encoded) = self.recent().get(&key) {
            return Ok(Lookup::Recent(encoded));
        }
        if let Some(joined) = pending.get(&key).and_then(PendingEncoding::join) {
            return Ok(Lookup::Pending(joined));
        }
        let runtime = self.host.runtime().ok_or(Error::Closed)?;
        self.stats.count_records(origin);
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let guard = PendingGuard { cache: Arc::clone(self), key, number };
        let until = store_deadline(self.encoding_deadline(store, deadline));
        let job = EncodingJob { store: store.clone(), addresses, deadline: until };
        let encoding = encoding(runtime, guard, job);
        let weak = encoding.downgrade().expect("it has not been polled");
        pending.insert(key, PendingEncoding { number, until, encoding: weak });
        Ok(Lookup::Pending(PendingEncoding { number, until, encoding }))
    }

    /// Returns the deadline for an encoding: at least the table's timeout, as later waiters may
    /// have more time than the first.
    fn encoding_deadline(&self, store: &Store, deadline: Instant) -> Instant {
        let repositories = self.host.repositories().unwrap_or_default();
        let own = repositories.iter().find(|repository| repository.name == store.name());
        let own = own.map(|own| (tokio::time::Instant::now() + own.timeout).into_std());
        own.map_or(deadline, |own| own.max(deadline))
    }

    fn recent(&self) -> MutexGuard<'_, RecentBundles> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<BundleKey, PendingEncoding>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingEncoding {
    /// Joins the encoding; none if it was cancelled.
    fn join(&self) -> Option<PendingEncoding<Encoding>> {
        let Self { number, until, ref encoding } = *self;
        Some(PendingEncoding { number, until, encoding: encoding.upgrade()? })
    }
}

impl fmt::Debug for SharedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCache")
            .field("next_number", &self.next_number)
            .finish_non_exhaustive()
    }
}

impl BundleKey {
    fn of(table: &str, addresses: &[ChunkAddress]) -> Self {
        // The name of a table never contains a zero byte.
        let table = table.bytes().chain([0]);
        let bytes: Vec<u8> = table.chain(addresses.iter().flat_map(|address| address.0)).collect();
        Self(ChunkAddress::of(&bytes))
    }
}

/// Returns a hash of a bundle's identity, which is shorter.
pub fn digest(bundle: &BundleId) -> ChunkAddress {
    let addresses = bundle.addresses.iter().flat_map(|address| address.0);
    ChunkAddress::of(&bundle.check.into_iter().chain(addresses).collect::<Vec<u8>>())
}

/// Returns the stored bytes of the chunks, or none if busload never advertises such a bundle:
/// anybody with access can make up a URL.
fn advertisable_bytes(located: &Located) -> Option<u64> {
    let locations: Vec<&Location> =
        located.locations.iter().map(Option::as_ref).collect::<Option<_>>()?;
    let stored_bytes = locations.iter().map(|location| u64::from(location.span.length)).sum();
    let is_large_frame = matches!(&*locations, [alone] if alone.dictionary.is_some());
    let fits = locations.len() <= RECORDS_CHUNKS_MAX && stored_bytes <= RECORDS_STORED_BYTES_MAX;
    (is_large_frame || fits).then_some(stored_bytes)
}

fn deadline_exceeded(store: &Store) -> Error {
    let name = store.name();
    Error::DeadlineExceeded(format!(
        "table {name}: records of chunks could not be made within the table's timeout"
    ))
}

/// Returns the deadline for the store: a little before that of the waiters, so that the store's
/// error, which says why it missed the deadline, reaches them.
fn store_deadline(deadline: Instant) -> Instant {
    let left = deadline.saturating_duration_since(tokio::time::Instant::now().into_std());
    deadline.checked_sub(RECORDS_EXPLANATION_TIME.min(left / 20)).unwrap_or(deadline)
}

#[cfg(test)]
mod tests;
