//! Stores by pattern: opened when they are first asked for, closed when nobody uses them.
//!
//! ```text
//!  get(name) --> open? ------------------> the same OpenStore for everybody
//!                 | no
//!                 +-> known to be absent? -> Error::NoStore, without a request
//!                 | no
//!                 +-> too many open? ------> the least recently used idle one goes, else
//!                 | no                       Error::Overloaded
//!                 v
//!               Store::start: all requests meanwhile wait for the one opening
//! ```
//!
//! All stores share the client of the bucket, its window of requests, the disk cache, the runtime
//! and its threads, and the memory for indexes in transit. A store that is closed keeps nothing in
//! memory but what the disk cache knows of its objects. On disk it keeps its indexes, so opening it
//! again takes a read of its manifest.
//!
//! * **Use.** A store is in use as long as somebody has its [`OpenStore`]. Only idle stores are
//!   closed: after `idle`, or when another one needs their place or the memory of their indexes.
//! * **Absence.** A store without a manifest does not exist. Its name is remembered for
//!   [`ABSENT_REMEMBERED`], and while many are remembered, one request finds out whether a store
//!   exists: a scan of names costs the bucket little.
//! * **Freshness.** The manifest of a store is read every `poll` only while there are requests.

pub(crate) mod absent;
pub(crate) mod busiest;
pub(crate) mod limits;
pub(crate) mod listing;
pub mod template;
pub(crate) mod warm;

use std::{
    collections::HashMap,
    fmt,
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use busload_objects::{Cache, Remote, RemoteStats, StoreShare};
use tokio::time::{Instant, sleep};

use self::{
    absent::AbsentNames,
    busiest::{Busiest, BusyStore},
    limits::SetLimits,
    template::StoreTemplate,
};
use crate::{
    Error, Occasion, Settings, Store, UsageStats,
    limits::{
        ABSENT_REMEMBERED, INDEXES_COUNTED_AFTER, OPENING_STORES_MAX, SCANNED_NAMES,
        STORES_CLOSED_PART,
    },
    store::{SharedParts, check_settings, open_cache, opening_budget, remote_options},
};

/// Settings of a set of stores.
#[derive(Clone)]
pub struct SetSettings {
    /// Settings of each store. `name` is the pattern and `url` the template, for messages; the
    /// cache on disk is that of all stores together.
    pub store: Settings,
    /// URLs of the stores.
    pub template: StoreTemplate,
    /// Any name that the template takes.
    pub sample: String,
    /// Largest number of stores that are open at once.
    pub stores_max: usize,
    /// Memory for the indexes of open stores, in bytes.
    pub index_bytes_max: u64,
    /// Time without requests after which a store is closed.
    pub idle: Duration,
    /// Share of each store in the disk cache.
    pub store_share: StoreShare,
    /// Number of the busiest stores that [`StoreSet::busiest`] returns, at most.
    pub busiest_max: usize,
}

/// Stores whose names match a pattern. Cheap to clone.
#[derive(Clone)]
pub struct StoreSet {
    shared: Arc<SetParts>,
}

/// A store of a set that is open, or being opened, as long as somebody has it.
pub struct OpenStore {
    store: Store,
    /// Number that no other store of the process has had.
    number: usize,
    /// Time of the last request, in milliseconds since the set was made.
    used_ms: AtomicU64,
    /// Memory of the store's index as the set has counted it, in bytes.
    index_bytes: AtomicU64,
}

/// Counters since the start, and sizes now.
#[derive(Clone, Debug, Default)]
pub struct SetStats {
    /// Stores that are open or being opened.
    pub open: usize,
    /// Stores that are being opened.
    pub opening: usize,
    /// Stores opened since the start.
    pub opened: u64,
    /// Stores closed since the start, because nobody used them.
    pub closed: u64,
    /// Requests for stores that do not exist.
    pub absent: u64,
    /// Those of them that cost no request to the bucket.
    pub absent_remembered: u64,
    /// Requests refused because too many stores were open or being opened.
    pub refused: u64,
    /// Memory of the indexes of open stores, in bytes.
    pub index_bytes: u64,
    /// Counts of what clients got of all stores, those that are closed included.
    pub usage: UsageStats,
    /// Counters of the bucket, which all stores share.
    pub store: RemoteStats,
}

struct SetParts {
    settings: SetSettings,
    /// Store of the sample, from which the others have their client.
    remote: Arc<Remote>,
    parts: SharedParts,
    made: Instant,
    stores: Mutex<Stores>,
    opening: AtomicUsize,
    counters: Counters,
    busiest: Busiest,
}

#[derive(Default)]
struct Stores {
    limits: SetLimits,
    open: HashMap<String, Arc<OpenStore>>,
    /// Sum of what is counted for the open stores.
    index_bytes: u64,
    absent: AbsentNames,
    is_closed: bool,
}

#[derive(Default)]
struct Counters {
    opened: AtomicU64,
    closed: AtomicU64,
    absent: AtomicU64,
    absent_remembered: AtomicU64,
    refused: AtomicU64,
}

/// Number of the next store.
static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(1 << 32);

impl StoreSet {
    /// Makes a set of which no store is open. Connects to nothing.
    ///
    /// # Errors
    /// The settings are wrong, or another process uses the cache's directory.
    pub fn start(mut settings: SetSettings) -> Result<Self, Error> {
        settings.store.occasion = Occasion::Request;
        check_settings(&settings.store)?;
        let url = settings.template.url(&settings.sample);
        let remote = Remote::new(&url, remote_options(&settings.store))?;
        let cache = open_cache(&settings.store, settings.store_share)?;
        let parts = SharedParts { cache, opening: opening_budget() };
        let runtime = settings.store.runtime.clone();
        let limits = SetLimits::of(&settings);
        parts.opening.set_store_bytes_max(limits.index_bytes_max);
        let _entered = runtime.enter();
        let busiest = Busiest::new(settings.busiest_max);
        let shared = Arc::new(SetParts {
            settings,
            remote,
            parts,
            made: Instant::now(),
            stores: Mutex::new(Stores { limits, ..Stores::default() }),
            opening: AtomicUsize::new(0),
            counters: Counters::default(),
            busiest,
        });
        runtime.spawn(close_idle(Arc::downgrade(&shared)));
        Ok(Self { shared })
    }

    /// Returns the store of a name that the pattern matches, and begins to open it if nobody has.
    /// The store's own methods wait until it is open; those of one that does not exist fail with
    /// [`Error::NoStore`].
    ///
    /// # Errors
    /// [`Error::NoStore`]: the store did not exist a moment ago. [`Error::Overloaded`]: too many
    /// stores are in use, or being opened. [`Error::Closed`].
    pub fn get(&self, name: &str) -> Result<Arc<OpenStore>, Error> {
        let shared = &self.shared;
        let mut stores = shared.stores();
        if stores.is_closed {
            return Err(Error::Closed);
        }
        if let Some(open) = stores.open.get(name).cloned() {
            let now_ms = shared.now_ms();
            let idle_ms = now_ms.saturating_sub(open.used_ms.swap(now_ms, Relaxed));
            if INDEXES_COUNTED_AFTER.as_millis() <= u128::from(idle_ms) {
                stores.count_index(&open);
            }
            open.store.note_used();
            return Ok(open);
        }
        if stores.absent.contains(name, Instant::now()) {
            shared.counters.absent.fetch_add(1, Relaxed);
            shared.counters.absent_remembered.fetch_add(1, Relaxed);
            return Err(Error::NoStore(format!("there is no store {name}")));
        }
        shared.make_room(&mut stores)?;
        stores.absent.sweep(Instant::now());
        let is_scan = SCANNED_NAMES <= stores.absent.len();
        let open = shared.open(name, is_scan)?;
        stores.open.insert(name.to_owned(), open.clone());
        drop(stores);
        let opened = opened(Arc::downgrade(shared), open.store.clone(), open.number);
        shared.settings.store.runtime.spawn(opened);
        Ok(open)
    }

    /// Returns a store that is open, or being opened; opens none.
    pub fn find(&self, name: &str) -> Option<Arc<OpenStore>> {
        self.shared.stores().open.get(name).cloned()
    }

    /// Returns the stores that are open or being opened.
    pub fn open_stores(&self) -> Vec<Arc<OpenStore>> {
        self.shared.stores().open.values().cloned().collect()
    }

    /// Returns the stores with most requests lately, the busiest first. Takes no lock that readers
    /// take.
    pub fn busiest(&self) -> Arc<[BusyStore]> {
        self.shared.busiest.stores()
    }

    /// Returns the disk cache of all stores.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.shared.parts.cache
    }

    /// Collects the metrics of the set.
    pub fn stats(&self) -> SetStats {
        let SetParts { remote, opening, counters, busiest, .. } = &*self.shared;
        let (open, index_bytes) = {
            let stores = self.shared.stores();
            (stores.open.len(), stores.index_bytes)
        };
        SetStats {
            open,
            opening: opening.load(Relaxed),
            opened: counters.opened.load(Relaxed),
            closed: counters.closed.load(Relaxed),
            absent: counters.absent.load(Relaxed),
            absent_remembered: counters.absent_remembered.load(Relaxed),
            refused: counters.refused.load(Relaxed),
            index_bytes,
            usage: busiest.all().stats(),
            store: remote.stats(),
        }
    }

    /// Fails waiting and new requests with [`Error::Closed`]; [`StoreSet::close`] does the rest.
    pub fn begin_close(&self) {
        let mut stores = self.shared.stores();
        stores.is_closed = true;
        stores.open.values().for_each(|open| open.store.begin_close());
    }

    /// Closes all stores, and the disk cache.
    pub async fn close(&self) {
        self.begin_close();
        self.shared.stores().clear();
        self.cache().close().await;
    }
}

impl SetParts {
    fn stores(&self) -> MutexGuard<'_, Stores> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Closes idle stores until one more may be opened.
    fn make_room(&self, stores: &mut Stores) -> Result<(), Error> {
        let SetLimits { stores_max, index_bytes_max, .. } = stores.limits;
        let refuse = |what: String| {
            self.counters.refused.fetch_add(1, Relaxed);
            Err(Error::Overloaded(format!("{what}; try again later")))
        };
        if OPENING_STORES_MAX <= self.opening.load(Relaxed) {
            return refuse(format!("{OPENING_STORES_MAX} stores are being opened"));
        }
        if stores_max <= stores.open.len() {
            // A few more than needed, so that not every request has to look for the least recent.
            let some = 1 + stores_max / usize::from(STORES_CLOSED_PART);
            self.close_least_recent(stores, |stores| stores.open.len() + some <= stores_max);
            if stores_max <= stores.open.len() {
                return refuse(format!("{stores_max} stores are in use"));
            }
        }
        self.keep_index_bytes(stores);
        if index_bytes_max < stores.index_bytes {
            return refuse(format!(
                "the indexes of the stores in use take more than {index_bytes_max} bytes"
            ));
        }
        Ok(())
    }

    /// Closes idle stores if the indexes of all take more memory than they may.
    fn keep_index_bytes(&self, stores: &mut Stores) {
        let bytes_max = stores.limits.index_bytes_max;
        if bytes_max < stores.index_bytes {
            let bytes_low = bytes_max - bytes_max / u64::from(STORES_CLOSED_PART);
            self.close_least_recent(stores, |stores| stores.index_bytes <= bytes_low);
        }
    }

    /// Closes idle stores, the least recently used one first, until there is room.
    fn close_least_recent(&self, stores: &mut Stores, has_room: impl Fn(&Stores) -> bool) {
        let idle = stores.open.iter().filter(|(_, open)| is_idle(open));
        let mut idle: Vec<_> =
            idle.map(|(name, open)| (open.used_ms.load(Relaxed), name.clone())).collect();
        idle.sort_unstable();
        for (_, name) in idle {
            if has_room(stores) {
                break;
            }
            self.remove(stores, &name);
        }
    }

    fn remove(&self, stores: &mut Stores, name: &str) {
        if stores.remove(name) {
            self.counters.closed.fetch_add(1, Relaxed);
        }
    }

    fn open(&self, name: &str, is_scan: bool) -> Result<Arc<OpenStore>, Error> {
        let SetSettings { store: settings, template, .. } = &self.settings;
        let usage = self.busiest.open(name);
        let path = (template.folder(), &*template.path(name));
        let remote = self.remote.at_path(path, usage.traffic().clone())?;
        let url = remote.url().to_owned();
        let occasion = match is_scan {
            true => Occasion::Guess,
            false => Occasion::Request,
        };
        let settings = Settings { name: name.to_owned(), url, occasion, ..settings.clone() };
        let store = Store::start_at(settings, remote, usage, &self.parts);
        self.opening.fetch_add(1, Relaxed);
        self.counters.opened.fetch_add(1, Relaxed);
        let number = NEXT_NUMBER.fetch_add(1, Relaxed);
        let used_ms = AtomicU64::new(self.now_ms());
        Ok(Arc::new(OpenStore { store, number, used_ms, index_bytes: AtomicU64::new(0) }))
    }

    /// Takes a store that does not exist out of the open ones, and remembers its name.
    fn note_absent(&self, name: &str, number: usize) {
        let mut stores = self.stores();
        self.counters.absent.fetch_add(1, Relaxed);
        // A request for its root may have found the store since.
        let is_absent =
            |open: &Arc<OpenStore>| open.number == number && open.store.snapshot().is_none();
        if stores.open.get(name).is_some_and(is_absent) {
            stores.remove(name);
            stores.absent.insert(name, Instant::now() + ABSENT_REMEMBERED);
        }
    }

    fn sweep(&self) {
        let mut stores = self.stores();
        stores.count_indexes();
        let idle_ms = u64::try_from(stores.limits.idle.as_millis()).unwrap_or(u64::MAX);
        let now = self.now_ms();
        let is_over = |open: &OpenStore| idle_ms <= now.saturating_sub(open.used_ms.load(Relaxed));
        let idle = stores.open.iter().filter(|(_, open)| is_idle(open) && is_over(open));
        let names: Vec<String> = idle.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.remove(&mut stores, name));
        stores.absent.sweep(Instant::now());
    }
}

impl Stores {
    /// Counts the memory of an open store's index anew.
    fn count_index(&mut self, open: &OpenStore) {
        let bytes = open.store.index_bytes();
        let counted = open.index_bytes.swap(bytes, Relaxed);
        self.index_bytes = self.index_bytes - counted + bytes;
    }

    fn count_indexes(&mut self) {
        let open: Vec<_> = self.open.values().cloned().collect();
        open.iter().for_each(|open| self.count_index(open));
    }

    fn clear(&mut self) {
        self.open.clear();
        self.index_bytes = 0;
    }

    /// Returns whether the store was open.
    fn remove(&mut self, name: &str) -> bool {
        let Some(open) = self.open.remove(name) else { return false };
        self.index_bytes -= open.index_bytes.load(Relaxed);
        true
    }
}

/// Returns whether nobody but the set has this store. The set hands out no other one meanwhile,
/// because the caller has its lock.
fn is_idle(open: &Arc<OpenStore>) -> bool {
    Arc::strong_count(open) == 1
}

/// Waits until a store has been opened, or could not be.
async fn opened(shared: Weak<SetParts>, store: Store, number: usize) {
    let outcome = store.opened().await;
    let Some(shared) = shared.upgrade() else { return };
    shared.opening.fetch_sub(1, Relaxed);
    match outcome {
        Err(Error::NoStore(_)) => shared.note_absent(store.name(), number),
        Ok(()) => {
            let mut stores = shared.stores();
            if let Some(open) = stores.open.get(store.name()).cloned()
                && open.number == number
            {
                stores.count_index(&open);
            }
            shared.keep_index_bytes(&mut stores);
        }
        Err(_) => {}
    }
}

/// Closes stores that nobody has used for a while.
async fn close_idle(shared: Weak<SetParts>) {
    loop {
        let every = shared.upgrade().map(|shared| shared.stores().limits.sweep_every());
        let Some(every) = every else { return };
        sleep(every).await;
        let Some(shared) = shared.upgrade() else { return };
        shared.sweep();
        // Also when nobody asks for them: those that are closed go.
        shared.busiest.stores();
    }
}

impl OpenStore {
    /// Returns the number that no other store of the process has had.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl Deref for OpenStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl fmt::Debug for StoreSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSet")
            .field("pattern", &self.shared.settings.store.name)
            .finish_non_exhaustive()
    }
}
