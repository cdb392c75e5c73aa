//! Records of chunks, one after the other: what is given out lately stays in memory, everything
//! else is made again.
//!
//! ```text
//!  locations --> make --+                              +--> Recipe, lengths --> URL, places in it
//!                       +--> recent, coming --> lay_out
//!  download ---> get ---+    (memory)  (once)  (stores' runtime)
//!                                                      +--> bytes, if they are laid out as the recipe says
//! ```
//!
//! A resource has a name, which is a hash of its table and its addresses; whoever asks for the same
//! chunks shares the work and the bytes. The same chunk may have another record one day, when it is
//! found in another file: the recipe's check tells, and then the URL is not good any more.
//!
//! **Limits** ([`limits`](super::limits)). Bytes that were given out lately; stored bytes of what
//! is made again at once, for which others wait (who makes for locations has a limit of its own).
//! Nothing is in memory for slow readers but the pieces that they are being sent. A recipe that can
//! never have been given out is not made at all. **Failure.** An error of one chunk is one of all.
//! **Time.** A making has the table's timeout, or that of who asked first if it is longer; each of
//! those who wait has its own. **Cancellation.** What nobody waits for any more is given up.

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
        RECORDS_REMAKING_BYTES_MAX, RECORDS_STORED_BYTES_MAX,
    },
    rooms::Rooms,
    stats::RecordsOrigin,
    url::Recipe,
};
use crate::status::Status;

/// Of all tables.
#[derive(Debug)]
pub struct RecordsCache {
    shared: Arc<Cache>,
}

/// Records that can be given out.
#[derive(Clone, Debug)]
pub struct Made {
    /// For their URL; none of the chunks exists: none.
    pub recipe: Option<Recipe>,
    /// Length of each chunk's record, in the order asked for; none: the store does not hold it.
    /// They lie one after the other.
    pub lengths: Vec<Option<u32>>,
}

/// Made records.
#[derive(Debug)]
struct Laid {
    /// Of the chunks that exist.
    recipe: Option<Recipe>,
    /// Of all that were asked for.
    lengths: Vec<Option<u32>>,
    bytes: Bytes,
}

impl Laid {
    /// As if only the chunks that exist had been asked for.
    fn without_missing(laid: &Arc<Self>) -> Arc<Self> {
        if laid.lengths.iter().all(Option::is_some) {
            return Arc::clone(laid);
        }
        let lengths = laid.lengths.iter().copied().filter(Option::is_some).collect();
        Arc::new(Self { recipe: laid.recipe.clone(), lengths, bytes: laid.bytes.clone() })
    }
}

/// Of a resource: a hash of its table and its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name(ChunkAddress);

type Flight = Shared<BoxFuture<'static, Result<Arc<Laid>, Error>>>;
type WeakFlight = WeakShared<BoxFuture<'static, Result<Arc<Laid>, Error>>>;

/// On its way, for whoever waits for it.
#[derive(Clone)]
struct Coming<Flying = WeakFlight> {
    number: u64,
    /// Its own deadline.
    until: Instant,
    flight: Flying,
}

struct Cache {
    /// Has the stores' runtime, and the metrics.
    status: Arc<Status>,
    recent: Mutex<Recent>,
    coming: Mutex<HashMap<Name, Coming>>,
    /// Numbers flights.
    flights: AtomicU64,
    /// For stored bytes of what is made again.
    rooms: Rooms,
}

impl RecordsCache {
    /// Of the stores that the status will have.
    pub fn new(status: Arc<Status>) -> Self {
        Self::with_bytes_max(status, RECORDS_BYTES_MAX)
    }

    fn with_bytes_max(status: Arc<Status>, bytes_max: u64) -> Self {
        let shared = Cache {
            status,
            recent: Mutex::new(Recent::new(bytes_max)),
            coming: Mutex::default(),
            flights: AtomicU64::new(0),
            rooms: Rooms::new(RECORDS_REMAKING_BYTES_MAX),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Reads chunks and lays their records out.
    ///
    /// # Errors
    /// That of any of the chunks.
    pub async fn make(
        &self,
        store: &Store,
        addresses: Vec<ChunkAddress>,
        deadline: Instant,
    ) -> Result<Made, Error> {
        let laid = self.laid(store, addresses.into(), deadline, RecordsOrigin::Made).await?;
        Ok(Made { recipe: laid.recipe.clone(), lengths: laid.lengths.clone() })
    }

    /// The bytes of what was given out, here or by an earlier process; none if the store does not
    /// hold the chunks any more, or not in this layout.
    ///
    /// # Errors
    /// As [`RecordsCache::make`].
    pub async fn get(
        &self,
        store: &Store,
        recipe: &Recipe,
        deadline: Instant,
    ) -> Result<Option<Bytes>, Error> {
        let (bytes, origin) = self.get_from(store, recipe, deadline).await?;
        if origin == RecordsOrigin::Memory {
            self.shared.status.remotesapi.count_records(RecordsOrigin::Memory);
        }
        Ok(bytes)
    }

    /// The same, for further pieces of what was counted before.
    ///
    /// # Errors
    /// As [`RecordsCache::make`].
    pub async fn get_rest(
        &self,
        store: &Store,
        recipe: &Recipe,
        deadline: Instant,
    ) -> Result<Option<Bytes>, Error> {
        Ok(self.get_from(store, recipe, deadline).await?.0)
    }

    async fn get_from(
        &self,
        store: &Store,
        recipe: &Recipe,
        deadline: Instant,
    ) -> Result<(Option<Bytes>, RecordsOrigin), Error> {
        let name = Name::of(store.name(), &recipe.addresses);
        let recent = self.shared.recent().get(&name);
        let (laid, origin) = match recent {
            Some(laid) => (laid, RecordsOrigin::Memory),
            None => {
                let located = store.locate(&recipe.addresses, deadline).await?;
                let origin = RecordsOrigin::MadeAgain;
                let Some(stored_bytes) = may_have_been_given_out(&located) else {
                    return Ok((None, origin));
                };
                let _room = self
                    .shared
                    .rooms
                    .take(store.name(), stored_bytes, deadline)
                    .await
                    .ok_or_else(|| too_late(store))?;
                let addresses = Arc::from(recipe.addresses.as_slice());
                (self.laid(store, addresses, deadline, origin).await?, origin)
            }
        };
        Ok(((laid.recipe.as_ref() == Some(recipe)).then(|| laid.bytes.clone()), origin))
    }

    /// From memory, or made together with whoever else asks for it.
    async fn laid(
        &self,
        store: &Store,
        addresses: Arc<[ChunkAddress]>,
        deadline: Instant,
        origin: RecordsOrigin,
    ) -> Result<Arc<Laid>, Error> {
        let leave = a_little_before(deadline);
        let (until, landed) =
            self.laid_once(store, Arc::clone(&addresses), deadline, origin).await?;
        match landed {
            // It began so long ago that it had less time than there is here.
            Err(Error::DeadlineExceeded(_)) if until < leave => {
                self.laid_once(store, addresses, deadline, origin).await?.1
            }
            landed => landed,
        }
    }

    /// With the deadline of what was waited for. An error of its own: that there is nothing to wait
    /// for, or no time.
    async fn laid_once(
        &self,
        store: &Store,
        addresses: Arc<[ChunkAddress]>,
        deadline: Instant,
        origin: RecordsOrigin,
    ) -> Result<(Instant, Result<Arc<Laid>, Error>), Error> {
        match self.shared.laid_or_coming(store, addresses, deadline, origin)? {
            LaidOrComing::Laid(laid) => Ok((deadline, Ok(laid))),
            LaidOrComing::Coming(Coming { until, flight, .. }) => {
                let landed =
                    timeout_at(deadline.into(), flight).await.map_err(|_| too_late(store))?;
                Ok((until, landed))
            }
        }
    }
}

/// What is to be laid out.
struct Work {
    store: Store,
    addresses: Arc<[ChunkAddress]>,
    deadline: Instant,
}

/// Runs where the stores run, as long as somebody waits for it. It begins when it is first polled:
/// a runtime that has ended drops what it is given at once, and the table of flights is locked now.
fn flight(runtime: Handle, landing: Landing, work: Work) -> Flight {
    let flight = async move {
        let mut task = GivenUp(runtime.spawn(land(landing, work)));
        match (&mut task.0).await {
            Ok(laid) => laid,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::Closed),
        }
    };
    flight.boxed().shared()
}

async fn land(landing: Landing, work: Work) -> Result<Arc<Laid>, Error> {
    let laid = Arc::new(lay_out(&work).await?);
    if let Some(recipe) = &laid.recipe {
        let name = Name::of(work.store.name(), &recipe.addresses);
        landing.of.recent().insert(name, Laid::without_missing(&laid));
    }
    Ok(laid)
}

/// Ends a task when it is dropped.
struct GivenUp<T>(JoinHandle<T>);

impl<T> Drop for GivenUp<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Takes a flight from the table however it ends, unless another one has taken its place.
struct Landing {
    of: Arc<Cache>,
    name: Name,
    number: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut coming = self.of.coming();
        if coming.get(&self.name).is_some_and(|coming| coming.number == self.number) {
            coming.remove(&self.name);
        }
    }
}

enum LaidOrComing {
    Laid(Arc<Laid>),
    Coming(Coming<Flight>),
}

impl Cache {
    /// What lands is in memory before its flight leaves the table, which is locked here: so nothing
    /// is made twice.
    fn laid_or_coming(
        self: &Arc<Self>,
        store: &Store,
        addresses: Arc<[ChunkAddress]>,
        deadline: Instant,
        origin: RecordsOrigin,
    ) -> Result<LaidOrComing, Error> {
        let name = Name::of(store.name(), &addresses);
        let mut coming = self.coming();
        if let Some(laid) = self.recent().get(&name) {
            return Ok(LaidOrComing::Laid(laid));
        }
        if let Some(joined) = coming.get(&name).and_then(Coming::join) {
            return Ok(LaidOrComing::Coming(joined));
        }
        let runtime = self.runtime()?;
        self.status.remotesapi.count_records(origin);
        let number = self.flights.fetch_add(1, Ordering::Relaxed);
        let landing = Landing { of: Arc::clone(self), name, number };
        let until = a_little_before(self.making_deadline(store, deadline));
        let flight =
            flight(runtime, landing, Work { store: store.clone(), addresses, deadline: until });
        let weak = flight.downgrade().expect("it has not been polled");
        coming.insert(name, Coming { number, until, flight: weak });
        Ok(LaidOrComing::Coming(Coming { number, until, flight }))
    }

    /// Others may come to wait for the same with more time than the first.
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
    /// None if it was given up.
    fn join(&self) -> Option<Coming<Flight>> {
        let Self { number, until, ref flight } = *self;
        Some(Coming { number, until, flight: flight.upgrade()? })
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("flights", &self.flights).finish_non_exhaustive()
    }
}

impl Name {
    fn of(table: &str, addresses: &[ChunkAddress]) -> Self {
        // No name of a table has a zero in it.
        let table = table.bytes().chain([0]);
        let bytes: Vec<u8> = table.chain(addresses.iter().flat_map(|address| address.0)).collect();
        Self(ChunkAddress::of(&bytes))
    }
}

/// Says the same as a recipe, but is short.
pub fn digest(recipe: &Recipe) -> ChunkAddress {
    let addresses = recipe.addresses.iter().flat_map(|address| address.0);
    ChunkAddress::of(&recipe.check.into_iter().chain(addresses).collect::<Vec<u8>>())
}

/// Stored bytes of chunks that may be those of one resource: everybody who may download can write a
/// recipe of their own.
fn may_have_been_given_out(located: &Located) -> Option<u64> {
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

/// The store says why it is too late, so it has a little less time than those who wait for it.
fn a_little_before(deadline: Instant) -> Instant {
    let left = deadline.saturating_duration_since(tokio::time::Instant::now().into_std());
    deadline.checked_sub(RECORDS_EXPLANATION_TIME.min(left / 20)).unwrap_or(deadline)
}

#[cfg(test)]
mod tests;
