//! Encoded chunk bundles: the records of several chunks, concatenated. Bundles that were advertised
//! a short while ago stay in memory; others are encoded again on demand.
//!
//! ```text
//!  locations --> make --+                               +--> identity, lengths --> URL, offsets
//!                       +--> recent, coming --> lay_out
//!                       |    (memory) (encoded once)    +--> bytes, if they are still those
//!  download ---> get ---+                                    that the URL was made for
//! ```
//!
//! A bundle is looked up by a hash of its table and its addresses, so all who ask for the same
//! chunks share the work and the bytes. A chunk can get another record later, when the store finds
//! it in another file. The check in the URL detects that, and the URL is then no longer valid.
//!
//! **Limits** ([`limits`](super::limits)). Bytes of recently advertised bundles, and stored bytes
//! of bundles that are encoded again at a time, for which others wait (encoding for locations has a
//! limit of its own). A slow reader holds only the pieces that it is being sent. A bundle that
//! busload can never have advertised is not encoded. **Failure.** An error of one chunk fails
//! the bundle. **Time.** Encoding has the table's timeout, or that of the first waiter if it is
//! longer; each waiter has its own. **Cancellation.** Encoding stops when nobody waits for it.

mod lay_out;
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
use tokio::{runtime::Handle, task::JoinHandle, time::timeout_at};

use self::{lay_out::lay_out, recent::Recent};
use super::{
    limits::{
        RECORDS_BYTES_MAX, RECORDS_CHUNKS_MAX, RECORDS_EXPLANATION_TIME,
        RECORDS_REENCODING_BYTES_MAX, RECORDS_STORED_BYTES_MAX,
    },
    rooms::Budgets,
    stats::RecordsOrigin,
    url::Bundle,
};
use crate::status::Status;

/// Bundles of all tables.
#[derive(Debug)]
pub struct RecordsCache {
    shared: Arc<Cache>,
}

/// Description of an encoded bundle that can be advertised.
#[derive(Clone, Debug)]
pub struct BundleInfo {
    /// Identity for the URL; none if none of the chunks exists.
    pub bundle: Option<Bundle>,
    /// Length of each chunk's record, in the order of the request; none if the store does not hold
    /// the chunk. The records follow each other without gaps.
    pub lengths: Vec<Option<u32>>,
}

/// An encoded bundle and its bytes.
#[derive(Debug)]
struct Laid {
    /// Identity, made of the chunks that exist.
    bundle: Option<Bundle>,
    /// Length of the record of each requested chunk.
    lengths: Vec<Option<u32>>,
    bytes: Bytes,
}

impl Laid {
    /// Returns the bundle as if only the chunks that exist had been requested.
    fn without_missing(laid: &Arc<Self>) -> Arc<Self> {
        if laid.lengths.iter().all(Option::is_some) {
            return Arc::clone(laid);
        }
        let lengths = laid.lengths.iter().copied().filter(Option::is_some).collect();
        Arc::new(Self { bundle: laid.bundle.clone(), lengths, bytes: laid.bytes.clone() })
    }
}

/// Cache key of a bundle: a hash of its table and its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name(ChunkAddress);

type Encoding = Shared<BoxFuture<'static, Result<Arc<Laid>, Error>>>;
type WeakEncoding = WeakShared<BoxFuture<'static, Result<Arc<Laid>, Error>>>;

/// A bundle that is being encoded, shared by all its waiters.
#[derive(Clone)]
struct Coming<Flying = WeakEncoding> {
    number: u64,
    /// Deadline of the encoding itself.
    until: Instant,
    encoding: Flying,
}

struct Cache {
    /// Gives access to the stores' runtime and the metrics.
    status: Arc<Status>,
    recent: Mutex<Recent>,
    coming: Mutex<HashMap<Name, Coming>>,
    /// Number of the next encoding.
    next_number: AtomicU64,
    /// Memory budget of each table for stored bytes of bundles that are encoded again.
    rooms: Budgets,
}

impl RecordsCache {
    /// Creates a cache for the stores that `status` holds once they have started.
    pub fn new(status: Arc<Status>) -> Self {
        Self::with_bytes_max(status, RECORDS_BYTES_MAX)
    }

    fn with_bytes_max(status: Arc<Status>, bytes_max: u64) -> Self {
        let shared = Cache {
            status,
            recent: Mutex::new(Recent::new(bytes_max)),
            coming: Mutex::default(),
            next_number: AtomicU64::new(0),
            rooms: Budgets::new(RECORDS_REENCODING_BYTES_MAX),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Reads chunks and encodes a bundle of their records.
    ///
    /// # Errors
    /// Returns the error of any of the chunks.
    pub async fn make(
        &self,
        store: &Store,
        addresses: Vec<ChunkAddress>,
        deadline: Instant,
    ) -> Result<BundleInfo, Error> {
        let laid = self.laid(store, addresses.into(), deadline, RecordsOrigin::BundleInfo).await?;
        Ok(BundleInfo { bundle: laid.bundle.clone(), lengths: laid.lengths.clone() })
    }

    /// Returns the bytes of a bundle that this or an earlier process advertised; none if the store
    /// no longer holds the chunks, or would encode them to other bytes.
    ///
    /// # Errors
    /// As [`RecordsCache::make`].
    pub async fn get(
        &self,
        store: &Store,
        bundle: &Bundle,
        deadline: Instant,
    ) -> Result<Option<Bytes>, Error> {
        let (bytes, origin) = self.get_from(store, bundle, deadline).await?;
        if origin == RecordsOrigin::Memory {
            self.shared.status.remotesapi.count_records(RecordsOrigin::Memory);
        }
        Ok(bytes)
    }

    /// Does what [`RecordsCache::get`] does, without counting: for further pieces of a download.
    ///
    /// # Errors
    /// As [`RecordsCache::make`].
    pub async fn get_rest(
        &self,
        store: &Store,
        bundle: &Bundle,
        deadline: Instant,
    ) -> Result<Option<Bytes>, Error> {
        Ok(self.get_from(store, bundle, deadline).await?.0)
    }

    async fn get_from(
        &self,
        store: &Store,
        bundle: &Bundle,
        deadline: Instant,
    ) -> Result<(Option<Bytes>, RecordsOrigin), Error> {
        let name = Name::of(store.name(), &bundle.addresses);
        let recent = self.shared.recent().get(&name);
        let (laid, origin) = match recent {
            Some(laid) => (laid, RecordsOrigin::Memory),
            None => {
                let located = store.locate(&bundle.addresses, deadline).await?;
                let origin = RecordsOrigin::MadeAgain;
                let Some(stored_bytes) = advertisable_bytes(&located) else {
                    return Ok((None, origin));
                };
                let _room = self
                    .shared
                    .rooms
                    .take(store.name(), stored_bytes, deadline)
                    .await
                    .ok_or_else(|| too_late(store))?;
                let addresses = Arc::from(bundle.addresses.as_slice());
                (self.laid(store, addresses, deadline, origin).await?, origin)
            }
        };
        Ok(((laid.bundle.as_ref() == Some(bundle)).then(|| laid.bytes.clone()), origin))
    }

    /// Returns the bundle from memory, or encodes it once for all who ask for it now.
    async fn laid(
        &self,
        store: &Store,
        addresses: Arc<[ChunkAddress]>,
        deadline: Instant,
        origin: RecordsOrigin,
    ) -> Result<Arc<Laid>, Error> {
        let leave = store_deadline(deadline);
        let (until, landed) =
            self.join_or_encode(store, Arc::clone(&addresses), deadline, origin).await?;
        match landed {
            // The encoding that this joined began earlier and had less time than is left here.
            Err(Error::DeadlineExceeded(_)) if until < leave => {
                self.join_or_encode(store, addresses, deadline, origin).await?.1
            }
            landed => landed,
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
    ) -> Result<(Instant, Result<Arc<Laid>, Error>), Error> {
        match self.shared.laid_or_coming(store, addresses, deadline, origin)? {
            Lookup::Laid(laid) => Ok((deadline, Ok(laid))),
            Lookup::Coming(Coming { until, encoding, .. }) => {
                let landed =
                    timeout_at(deadline.into(), encoding).await.map_err(|_| too_late(store))?;
                Ok((until, landed))
            }
        }
    }
}

/// Inputs of one encoding.
struct Work {
    store: Store,
    addresses: Arc<[ChunkAddress]>,
    deadline: Instant,
}

/// Encodes on the stores' runtime as long as somebody waits. The task is spawned at the first poll:
/// a runtime that has ended drops a task at once, which would lock `coming`, and the caller of this
/// function has it locked.
fn encoding(runtime: Handle, landing: PendingGuard, work: Work) -> Encoding {
    let encoding = async move {
        let mut task = AbortOnDrop(runtime.spawn(land(landing, work)));
        match (&mut task.0).await {
            Ok(laid) => laid,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::Closed),
        }
    };
    encoding.boxed().shared()
}

async fn land(landing: PendingGuard, work: Work) -> Result<Arc<Laid>, Error> {
    let laid = Arc::new(lay_out(&work).await?);
    if let Some(bundle) = &laid.bundle {
        let name = Name::of(work.store.name(), &bundle.addresses);
        landing.of.recent().insert(name, Laid::without_missing(&laid));
    }
    Ok(laid)
}

/// Aborts a task when it is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Removes an encoding from `coming` however it ends, unless a newer one has replaced it.
struct PendingGuard {
    of: Arc<Cache>,
    name: Name,
    number: u64,
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        let mut coming = self.of.coming();
        if coming.get(&self.name).is_some_and(|coming| coming.number == self.number) {
            coming.remove(&self.name);
        }
    }
}

enum Lookup {
    Laid(Arc<Laid>),
    Coming(Coming<Encoding>),
}

impl Cache {
    /// Returns the bundle, or an encoding to wait for. Nothing is encoded twice: a finished bundle
    /// is put into `recent` before it is removed from `coming`, which is locked here.
    fn laid_or_coming(
        self: &Arc<Self>,
        store: &Store,
        addresses: Arc<[ChunkAddress]>,
        deadline: Instant,
        origin: RecordsOrigin,
    ) -> Result<Lookup, Error> {
        let name = Name::of(store.name(), &addresses);
        let mut coming = self.coming();
        if let Some(laid) = self.recent().get(&name) {
            return Ok(Lookup::Laid(laid));
        }
        if let Some(joined) = coming.get(&name).and_then(Coming::join) {
            return Ok(Lookup::Coming(joined));
        }
        let runtime = self.runtime()?;
        self.status.remotesapi.count_records(origin);
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let landing = PendingGuard { of: Arc::clone(self), name, number };
        let until = store_deadline(self.making_deadline(store, deadline));
        let encoding =
            encoding(runtime, landing, Work { store: store.clone(), addresses, deadline: until });
        let weak = encoding.downgrade().expect("it has not been polled");
        coming.insert(name, Coming { number, until, encoding: weak });
        Ok(Lookup::Coming(Coming { number, until, encoding }))
    }

    /// Returns the deadline for an encoding: at least the table's timeout, as later waiters may
    /// have more time than the first.
    fn making_deadline(&self, store: &Store, deadline: Instant) -> Instant {
        let stores = self.status.chunk_stores();
        let tables = stores.iter().flat_map(|stores| stores.tables());
        let table = tables.into_iter().find(|table| table.settings.name == store.name());
        let own =
            table.map(|table| (tokio::time::Instant::now() + table.settings.timeout).into_std());
        own.map_or(deadline, |own| own.max(deadline))
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn coming(&self) -> MutexGuard<'_, HashMap<Name, Coming>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runtime(&self) -> Result<Handle, Error> {
        self.status.chunk_stores().and_then(|stores| stores.handle()).ok_or(Error::Closed)
    }
}

impl Coming {
    /// Joins the encoding; none if it was cancelled.
    fn join(&self) -> Option<Coming<Encoding>> {
        let Self { number, until, ref encoding } = *self;
        Some(Coming { number, until, encoding: encoding.upgrade()? })
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("next_number", &self.next_number).finish_non_exhaustive()
    }
}

impl Name {
    fn of(table: &str, addresses: &[ChunkAddress]) -> Self {
        // The name of a table never contains a zero byte.
        let table = table.bytes().chain([0]);
        let bytes: Vec<u8> = table.chain(addresses.iter().flat_map(|address| address.0)).collect();
        Self(ChunkAddress::of(&bytes))
    }
}

/// Returns a hash of a bundle's identity, which is shorter.
pub fn digest(bundle: &Bundle) -> ChunkAddress {
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

fn too_late(store: &Store) -> Error {
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
