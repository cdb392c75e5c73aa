//! Bytes, files and sidecars of each store in the cache. Part of the accounting, under its lock.
//!
//! ```text
//!   open ----> a handle is there: sidecars stay, and the floor counts
//!    ^              | the last handle is dropped
//!    |              v
//!    +------- closed, in order of closing: the first one's sidecars go when there must be room
//! ```
//!
//! * **Cost**: every change of an extent is one lookup. A store that nobody has open and that has
//!   nothing in the cache takes no memory.
//! * **Floor**: counts while the store is open. All floors together take at most half of the disk;
//!   where more stores are open, those opened first have theirs, and the next one waits until one
//!   of them is closed.
//! * **Cap**: counts always.
//! * **Names**: sidecars on disk carry a hash of the store's URL in their names, so a start knows
//!   which belong together. To which store they belong their files say, which nobody reads until
//!   somebody lists the stores.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound::{self, Included, Unbounded},
};

use super::s3_fifo::ExtentId;
use crate::{StoreShare, disk::limits::FLOORS_SHARE};

/// Hexadecimal digits of a store's hash in the name of a sidecar.
const KEY_DIGITS: usize = 16;

/// Hash of a store's URL: FNV-1a, because it has to be the same in every release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StoreKey(u64);

impl StoreKey {
    /// Hashes the URL of a store.
    pub(crate) fn of(url: &str) -> Self {
        let hash = url.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash)
    }

    /// Name of a store's sidecar in the directory, without its suffix.
    pub(crate) fn file_name(self, name: &str) -> String {
        format!("{:016x}-{name}", self.0)
    }

    /// Reads such a name.
    pub(crate) fn parse(file_name: &str) -> Option<(Self, &str)> {
        let (digits, name) = file_name.split_at_checked(KEY_DIGITS)?;
        let name = name.strip_prefix('-')?;
        let key = Self(u64::from_str_radix(digits, 16).ok()?);
        (key.file_name(name) == file_name).then_some((key, name))
    }
}

/// All stores that are open or have something in the cache.
#[derive(Debug)]
pub(crate) struct Stores {
    share: StoreShare,
    by_key: HashMap<StoreKey, Store>,
    /// Closed stores with sidecars, the one closed first in front.
    closed: BTreeMap<u64, StoreKey>,
    /// Open stores without a floor because others have all, the one opened first in front.
    waiting: BTreeMap<u64, StoreKey>,
    /// Number of floors that others may have.
    floors_left: u64,
    /// Number of openings and closings, which orders them.
    clock: u64,
    /// Bytes of all sidecars.
    sidecar_bytes: u64,
    /// Bytes of the sidecars of closed stores.
    closed_sidecar_bytes: u64,
}

/// Number of floors that a disk of this many bytes has.
fn floor_count(bytes_max: u64, share: StoreShare) -> u64 {
    (bytes_max / FLOORS_SHARE).checked_div(share.floor_bytes).unwrap_or(0)
}

/// One store of the cache.
#[derive(Debug, Default)]
struct Store {
    /// Handles of the store; 0: it is closed.
    handles: usize,
    /// True while its floor counts.
    has_floor: bool,
    /// Place among the waiting or closed stores.
    place: u64,
    /// Bytes of its objects, used or reserved.
    bytes: u64,
    files: BTreeSet<u32>,
    sidecars: BTreeMap<Box<str>, u64>,
    sidecar_bytes: u64,
    /// Extent from which on the next one is evicted for the cap.
    hand: ExtentId,
}

impl Store {
    fn is_empty(&self) -> bool {
        self.handles == 0 && self.bytes == 0 && self.files.is_empty() && self.sidecars.is_empty()
    }
}

impl Stores {
    /// Makes an empty list for a disk that may hold this many bytes.
    pub(crate) fn new(bytes_max: u64, share: StoreShare) -> Self {
        Self {
            share,
            by_key: HashMap::new(),
            closed: BTreeMap::new(),
            waiting: BTreeMap::new(),
            floors_left: floor_count(bytes_max, share),
            clock: 0,
            sidecar_bytes: 0,
            closed_sidecar_bytes: 0,
        }
    }

    /// Counts a handle of a store.
    pub(crate) fn open(&mut self, key: StoreKey) {
        self.leave_closed(key);
        let store = self.by_key.entry(key).or_default();
        store.handles += 1;
        if 1 < store.handles || self.share.floor_bytes == 0 {
            return;
        }
        self.clock += 1;
        store.place = self.clock;
        self.waiting.insert(store.place, key);
        self.give_floors();
    }

    /// Drops a handle of a store.
    pub(crate) fn close(&mut self, key: StoreKey) {
        let Some(store) = self.by_key.get_mut(&key) else { return };
        if store.handles != 1 {
            store.handles = store.handles.saturating_sub(1);
            return;
        }
        store.handles = 0;
        self.waiting.remove(&store.place);
        self.floors_left += u64::from(std::mem::take(&mut store.has_floor));
        self.give_floors();
        self.join_closed(key);
        self.tidy(key);
    }

    fn give_floors(&mut self) {
        while 0 < self.floors_left
            && let Some((_, key)) = self.waiting.pop_first()
        {
            self.floors_left -= 1;
            self.by_key.get_mut(&key).expect("open stores have an entry").has_floor = true;
        }
    }

    pub(crate) fn add_file(&mut self, key: StoreKey, id: u32) {
        self.by_key.entry(key).or_default().files.insert(id);
    }

    pub(crate) fn remove_file(&mut self, key: StoreKey, id: u32) {
        if let Some(store) = self.by_key.get_mut(&key) {
            store.files.remove(&id);
        }
        self.tidy(key);
    }

    pub(crate) fn add_bytes(&mut self, key: StoreKey, bytes: u64) {
        self.by_key.entry(key).or_default().bytes += bytes;
    }

    pub(crate) fn release_bytes(&mut self, key: StoreKey, bytes: u64) {
        if let Some(store) = self.by_key.get_mut(&key) {
            debug_assert!(bytes <= store.bytes, "{bytes} of {}", store.bytes);
            store.bytes = store.bytes.saturating_sub(bytes);
        }
        self.tidy(key);
    }

    /// Returns whether a store would be below its floor without so many bytes.
    pub(crate) fn is_spared(&self, key: StoreKey, bytes: u64) -> bool {
        self.by_key.get(&key).is_some_and(|store| {
            store.has_floor && store.bytes.saturating_sub(bytes) < self.share.floor_bytes
        })
    }

    /// Returns whether so many bytes more are within the store's cap.
    pub(crate) fn is_below_cap(&self, key: StoreKey, bytes: u64) -> bool {
        let used = self.by_key.get(&key).map_or(0, |store| store.bytes);
        used.saturating_add(bytes) <= self.share.cap_bytes
    }

    /// Numbers of a store's files from that of its hand on, each with the first extent that the
    /// hand has before it; the file of the hand comes last once more.
    pub(crate) fn files_from_hand(&self, key: StoreKey) -> impl Iterator<Item = (u32, u32)> + '_ {
        let store = self.by_key.get(&key);
        let hand = store.map_or(ExtentId::default(), |store| store.hand);
        let files = move |range: (Bound<u32>, Bound<u32>)| {
            store.into_iter().flat_map(move |store| store.files.range(range))
        };
        let first = move |&id| (id, if id == hand.file { hand.extent } else { 0 });
        files((Included(hand.file), Unbounded))
            .map(first)
            .chain(files((Unbounded, Included(hand.file))).map(|&id| (id, 0)))
    }

    /// Sets the extent from which on the next one is evicted for the cap.
    pub(crate) fn set_hand(&mut self, key: StoreKey, hand: ExtentId) {
        if let Some(store) = self.by_key.get_mut(&key) {
            store.hand = hand;
        }
    }

    /// Bytes of a store's sidecars and objects.
    pub(crate) fn bytes(&self, key: StoreKey) -> u64 {
        self.by_key.get(&key).map_or(0, |store| store.bytes + store.sidecar_bytes)
    }

    /// Bytes of all sidecars.
    pub(crate) fn sidecar_bytes(&self) -> u64 {
        self.sidecar_bytes
    }

    /// Bytes of the sidecars of closed stores.
    pub(crate) fn closed_sidecar_bytes(&self) -> u64 {
        self.closed_sidecar_bytes
    }

    /// Bytes of one sidecar, if it is there.
    pub(crate) fn sidecar(&self, key: StoreKey, name: &str) -> Option<u64> {
        self.by_key.get(&key)?.sidecars.get(name).copied()
    }

    /// Adds a sidecar. Returns the bytes of the one that it replaces.
    pub(crate) fn put_sidecar(&mut self, key: StoreKey, name: &str, bytes: u64) -> u64 {
        self.leave_closed(key);
        let store = self.by_key.entry(key).or_default();
        let before = store.sidecars.insert(name.into(), bytes).unwrap_or(0);
        store.sidecar_bytes = store.sidecar_bytes + bytes - before;
        self.sidecar_bytes = self.sidecar_bytes + bytes - before;
        self.join_closed(key);
        before
    }

    /// Removes a sidecar. Returns its bytes.
    pub(crate) fn remove_sidecar(&mut self, key: StoreKey, name: &str) -> u64 {
        let Some(store) = self.by_key.get_mut(&key) else { return 0 };
        let bytes = store.sidecars.remove(name).unwrap_or(0);
        store.sidecar_bytes -= bytes;
        self.sidecar_bytes -= bytes;
        if store.handles == 0 {
            self.closed_sidecar_bytes -= bytes;
            if store.sidecars.is_empty() {
                self.closed.remove(&store.place);
            }
        }
        self.tidy(key);
        bytes
    }

    /// Names of a store's sidecars.
    pub(crate) fn sidecar_names(&self, key: StoreKey) -> Vec<Box<str>> {
        let store = self.by_key.get(&key);
        store.map(|store| store.sidecars.keys().cloned().collect()).unwrap_or_default()
    }

    /// All sidecars with their bytes.
    pub(crate) fn sidecars(&self) -> Vec<(u64, StoreKey, Box<str>)> {
        let of_store = |(key, store): (&StoreKey, &Store)| {
            let sidecars = store.sidecars.iter();
            sidecars.map(|(name, bytes)| (*bytes, *key, name.clone())).collect::<Vec<_>>()
        };
        self.by_key.iter().flat_map(of_store).collect()
    }

    /// All stores with sidecars.
    pub(crate) fn with_sidecars(&self) -> Vec<StoreKey> {
        let stores = self.by_key.iter().filter(|(_, store)| !store.sidecars.is_empty());
        stores.map(|(key, _)| *key).collect()
    }

    /// Share of each store.
    pub(crate) fn share(&self) -> StoreShare {
        self.share
    }

    /// Changes the share of each store on a disk of this many bytes. The floors go to the stores
    /// that were opened first; a store above its new cap comes below it when it is written to.
    pub(crate) fn set_share(&mut self, bytes_max: u64, share: StoreShare) {
        let had_floors = 0 < self.share.floor_bytes;
        self.share = share;
        self.floors_left = floor_count(bytes_max, share);
        self.waiting.clear();
        let open = self.by_key.iter_mut().filter(|(_, store)| 0 < store.handles);
        for (key, store) in open {
            store.has_floor = false;
            if share.floor_bytes == 0 {
                continue;
            }
            if !had_floors {
                // Nobody has noted which of them was opened first.
                self.clock += 1;
                store.place = self.clock;
            }
            self.waiting.insert(store.place, *key);
        }
        self.give_floors();
    }

    /// One sidecar of the store that was closed first.
    pub(crate) fn oldest_closed_sidecar(&self) -> Option<(StoreKey, Box<str>)> {
        let (_, key) = self.closed.first_key_value()?;
        let (name, _) = self.by_key.get(key)?.sidecars.first_key_value()?;
        Some((*key, name.clone()))
    }

    /// Forgets all sidecars. Returns their bytes.
    pub(crate) fn forget_sidecars(&mut self) -> u64 {
        let sidecars = self.sidecars();
        sidecars.iter().map(|(_, key, name)| self.remove_sidecar(*key, name)).sum()
    }

    fn join_closed(&mut self, key: StoreKey) {
        let Some(store) = self.by_key.get_mut(&key) else { return };
        if 0 < store.handles || store.sidecars.is_empty() {
            return;
        }
        self.clock += 1;
        store.place = self.clock;
        self.closed.insert(self.clock, key);
        self.closed_sidecar_bytes += store.sidecar_bytes;
    }

    fn leave_closed(&mut self, key: StoreKey) {
        let Some(store) = self.by_key.get_mut(&key) else { return };
        if store.handles == 0 && self.closed.remove(&store.place).is_some() {
            self.closed_sidecar_bytes -= store.sidecar_bytes;
        }
    }

    fn tidy(&mut self, key: StoreKey) {
        if self.by_key.get(&key).is_some_and(Store::is_empty) {
            self.by_key.remove(&key);
        }
    }

    /// Returns whether the floor of a store counts.
    #[cfg(test)]
    pub(crate) fn has_floor(&self, key: StoreKey) -> bool {
        self.by_key.get(&key).is_some_and(|store| store.has_floor)
    }

    /// Bytes of a store's objects.
    #[cfg(test)]
    pub(crate) fn object_bytes(&self, key: StoreKey) -> u64 {
        self.by_key.get(&key).map_or(0, |store| store.bytes)
    }

    /// Checks the sums of all stores against those of the disk.
    #[cfg(test)]
    pub(crate) fn check(&self, object_bytes: u64) {
        let stores = || self.by_key.values();
        let of = |store: &Store| store.sidecars.values().sum::<u64>();
        assert!(stores().all(|store| store.sidecar_bytes == of(store) && !store.is_empty()));
        assert_eq!(stores().map(|store| store.bytes).sum::<u64>(), object_bytes);
        assert_eq!(stores().map(of).sum::<u64>(), self.sidecar_bytes);
        let closed = || stores().filter(|store| store.handles == 0);
        assert_eq!(closed().map(of).sum::<u64>(), self.closed_sidecar_bytes);
        let with_sidecars = closed().filter(|store| !store.sidecars.is_empty());
        assert_eq!(with_sidecars.count(), self.closed.len());
        assert!(closed().all(|store| !store.has_floor));
        let without = stores().filter(|store| 0 < store.handles && !store.has_floor).count();
        assert!(self.share.floor_bytes == 0 || without == self.waiting.len());
        assert!(self.floors_left == 0 || self.waiting.is_empty());
    }
}
