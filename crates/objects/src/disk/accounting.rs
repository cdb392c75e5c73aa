//! Space accounting: one lock for all that changes what is on disk. Nobody touches a file under it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Weak,
        atomic::Ordering::{AcqRel, Acquire},
    },
};

use super::{
    cache_file::{CacheFile, ObjectKey},
    journal::Presence,
    object::DiskObject,
    s3_fifo::{Entrance, ExtentId, ExtentStates, Floors, S3Fifo},
    stores::{StoreKey, Stores},
};
use crate::{
    StoreShare,
    disk::limits::{FILE_OVERHEAD_BYTES, PASSED_OVER_MAX, QUEUE_SLACK_MAX},
};

/// A change that is not in the journal yet.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A file was made.
    File(Arc<CacheFile>),
    /// An extent came or went.
    Extent(ExtentId, Presence),
    /// A file was removed.
    Gone(u32),
}

/// Answer to a request for space for an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// Space is reserved for the extent, and nobody else writes it.
    Granted,
    /// The extent is there already.
    Present,
    /// Another thread writes or evicts it just now.
    Refused,
    /// The extent's file was dropped.
    Gone,
    /// The disk is full: the caller has to evict something first.
    Full,
    /// The store is at its cap: the caller has to evict something of it first.
    Capped,
}

/// Outcome of a write of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The extent is on disk.
    Kept,
    /// The extent is not wanted any more: the caller punches its hole, then calls
    /// [`Accounting::release`].
    Unwanted,
}

/// Index, queues and space, which change together.
#[derive(Debug)]
pub(crate) struct Accounting {
    /// Cache files by number, also those that nobody asked for since the start.
    pub(crate) cache_files: BTreeMap<u32, Arc<CacheFile>>,
    by_key: HashMap<Arc<ObjectKey>, u32>,
    objects: HashMap<Arc<ObjectKey>, Weak<DiskObject>>,
    /// Number of objects at which those without users are swept out.
    sweep_at: usize,
    pub(crate) queues: S3Fifo,
    /// Bytes used or reserved.
    pub(crate) bytes: u64,
    /// Bytes that may be used now: the limit, or less when the file system was full before that.
    pub(crate) ceiling: u64,
    /// Number of extents on disk.
    pub(crate) extents: u64,
    /// Extents being written or evicted, and whether they are wanted.
    busy: HashMap<ExtentId, bool>,
    /// Changes that are not in the journal yet.
    pub(crate) changes: Vec<Change>,
    next_id: u32,
    /// Bytes, floors and sidecars of the stores.
    pub(crate) stores: Stores,
    /// Files that could not be removed, with their bytes.
    pub(crate) unremoved: Vec<(u32, u64)>,
    /// Extents whose hole could not be punched. They stay busy: nobody reads or writes them.
    pub(crate) unpunched: Vec<(Arc<CacheFile>, u32)>,
}

/// The cache files as the queues see them.
struct CacheFiles<'a>(&'a BTreeMap<u32, Arc<CacheFile>>, &'a Stores);

impl ExtentStates for CacheFiles<'_> {
    fn is_present(&self, extent_id: ExtentId) -> bool {
        is_present(self.0, extent_id)
    }

    fn unqueue(&self, extent_id: ExtentId) {
        if let Some(cache_file) = self.0.get(&extent_id.file) {
            cache_file.extents.unqueue(extent_id.extent);
        }
    }

    fn take_reads(&self, extent_id: ExtentId, leave: fn(u8) -> u8) -> u8 {
        self.0
            .get(&extent_id.file)
            .map_or(0, |cache_file| cache_file.extents.take_reads(extent_id.extent, leave))
    }

    fn is_spared(&self, extent_id: ExtentId) -> bool {
        self.0.get(&extent_id.file).is_some_and(|cache_file| {
            // With its last extent the file goes, too.
            let bytes = cache_file.key.extent_cost(extent_id.extent) + FILE_OVERHEAD_BYTES;
            self.1.is_spared(cache_file.store, bytes)
        })
    }

    fn name(&self, extent_id: ExtentId) -> u64 {
        self.0.get(&extent_id.file).map_or(0, |cache_file| cache_file.ghost_name(extent_id.extent))
    }
}

impl Accounting {
    /// Makes an empty accounting of a disk that may hold this many bytes and extents.
    pub(crate) fn new(bytes_max: u64, extents_max: usize, share: StoreShare) -> Self {
        Self {
            cache_files: BTreeMap::new(),
            by_key: HashMap::new(),
            objects: HashMap::new(),
            sweep_at: 0,
            queues: S3Fifo::new(extents_max),
            bytes: 0,
            ceiling: bytes_max,
            extents: 0,
            busy: HashMap::new(),
            changes: Vec::new(),
            next_id: 1,
            stores: Stores::new(bytes_max, share),
            unremoved: Vec::new(),
            unpunched: Vec::new(),
        }
    }

    /// Returns the handle of a key that somebody has, or makes one.
    pub(crate) fn object(
        &mut self,
        key: ObjectKey,
        make: impl FnOnce(Arc<ObjectKey>) -> Arc<DiskObject>,
    ) -> Arc<DiskObject> {
        if let Some(file) = self.objects.get(&key).and_then(Weak::upgrade) {
            return file;
        }
        if self.sweep_at <= self.objects.len() {
            self.objects.retain(|_, file| 0 < file.strong_count());
            self.sweep_at = 2 * self.objects.len() + 16;
        }
        let cache_file = self.cache_file_of(&key);
        let key = cache_file
            .as_ref()
            .map_or_else(|| Arc::new(key), |cache_file| Arc::clone(&cache_file.key));
        let file = make(Arc::clone(&key));
        file.attach(cache_file);
        self.objects.insert(key, Arc::downgrade(&file));
        file
    }

    /// Finds the cache file of a key.
    pub(crate) fn cache_file_of(&self, key: &ObjectKey) -> Option<Arc<CacheFile>> {
        self.by_key.get(key).and_then(|id| self.cache_files.get(id)).cloned()
    }

    /// Takes a number that was never used. None: four billion files have been made here.
    pub(crate) fn take_id(&mut self) -> Option<u32> {
        let id = self.next_id;
        self.next_id = id.checked_add(1)?;
        Some(id)
    }

    /// Skips the numbers up to this one, which were used.
    pub(crate) fn skip_ids(&mut self, id: u32) {
        self.next_id = self.next_id.max(id.saturating_add(1));
    }

    /// Reserves bytes. False: the caller has to evict something first.
    pub(crate) fn reserve(&mut self, bytes: u64) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= self.ceiling;
        self.bytes += if fits { bytes } else { 0 };
        fits
    }

    /// Returns whether more is used than the limit, which was larger before the start.
    pub(crate) fn is_over(&self) -> bool {
        self.ceiling < self.bytes
    }

    /// Releases bytes that were reserved.
    pub(crate) fn release_bytes(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "{bytes} of {}", self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Adds a file that was made, and whose overhead is reserved.
    pub(crate) fn add_cache_file(&mut self, cache_file: &Arc<CacheFile>) {
        self.cache_files.insert(cache_file.id, Arc::clone(cache_file));
        self.by_key.insert(Arc::clone(&cache_file.key), cache_file.id);
        self.count_file(cache_file, FILE_OVERHEAD_BYTES);
        self.changes.push(Change::File(Arc::clone(cache_file)));
    }

    /// Adds a file that was there at the start, with the extents that are marked in it, and counts
    /// its space.
    pub(crate) fn restore_cache_file(&mut self, cache_file: CacheFile) {
        let cache_file = Arc::new(cache_file);
        for extent in cache_file.extents.present() {
            self.queues.push(
                cache_file.extent_id(extent),
                cache_file.ghost_name(extent),
                Entrance::Restored,
            );
            self.extents += 1;
        }
        let bytes = cache_file.present_cost() + FILE_OVERHEAD_BYTES;
        self.bytes += bytes;
        self.count_file(&cache_file, bytes);
        self.by_key.insert(Arc::clone(&cache_file.key), cache_file.id);
        if let Some(file) = self.objects.get(&cache_file.key).and_then(Weak::upgrade) {
            file.attach(Some(Arc::clone(&cache_file)));
        }
        self.cache_files.insert(cache_file.id, cache_file);
    }

    /// Reserves the space of an extent.
    pub(crate) fn reserve_extent(&mut self, cache_file: &CacheFile, extent: u32) -> Reservation {
        let extent_id = cache_file.extent_id(extent);
        if cache_file.is_gone.load(Acquire) {
            return Reservation::Gone;
        }
        if self.busy.contains_key(&extent_id) {
            return Reservation::Refused;
        }
        if cache_file.extents.is_present(extent) {
            return Reservation::Present;
        }
        let cost = cache_file.key.extent_cost(extent);
        if !self.stores.is_below_cap(cache_file.store, cost) {
            return Reservation::Capped;
        }
        if !self.reserve(cost) {
            return Reservation::Full;
        }
        self.stores.add_bytes(cache_file.store, cost);
        self.busy.insert(extent_id, true);
        Reservation::Granted
    }

    /// Ends a write, which has written the whole extent or failed.
    pub(crate) fn finish_write(
        &mut self,
        cache_file: &CacheFile,
        extent: u32,
        entrance: Entrance,
        is_whole: bool,
    ) -> Written {
        let extent_id = cache_file.extent_id(extent);
        let is_wanted = self.busy.get(&extent_id).copied().unwrap_or(false);
        if !is_whole || !is_wanted || cache_file.is_gone.load(Acquire) {
            return Written::Unwanted;
        }
        self.busy.remove(&extent_id);
        self.queues.count_insertion();
        if cache_file.extents.insert(extent, self.queues.tick()) {
            self.queues.push(extent_id, cache_file.ghost_name(extent), entrance);
        }
        self.extents += 1;
        self.changes.push(Change::Extent(extent_id, Presence::Present));
        self.sweep_queues();
        Written::Kept
    }

    /// Takes absent extents out of the queues if they hold more of them than of others: what a
    /// store evicts for its cap leaves entries that no other eviction may ever meet.
    fn sweep_queues(&mut self) {
        let extents = usize::try_from(self.extents).unwrap_or(usize::MAX / 4);
        if 2 * extents + QUEUE_SLACK_MAX < self.queues.len() {
            self.queues.sweep(&CacheFiles(&self.cache_files, &self.stores));
        }
    }

    /// Marks absent the extent that a store at its cap evicts next: the first from its hand on that
    /// was not read since the hand passed it, within a number of steps (CLOCK).
    pub(crate) fn take_own_victim(&mut self, store: StoreKey) -> Option<(Arc<CacheFile>, u32)> {
        for passed_over in 0..=PASSED_OVER_MAX {
            let (cache_file, extent) = self.next_of_store(store)?;
            let hand = ExtentId { file: cache_file.id, extent: extent + 1 };
            self.stores.set_hand(store, hand);
            let reads = cache_file.extents.take_reads(extent, |reads| reads.saturating_sub(1));
            if reads == 0 || passed_over == PASSED_OVER_MAX {
                return self.take(&cache_file, extent).then_some((cache_file, extent));
            }
        }
        None
    }

    /// First extent on disk of a store from its hand on.
    fn next_of_store(&self, store: StoreKey) -> Option<(Arc<CacheFile>, u32)> {
        self.stores.files_from_hand(store).find_map(|(id, first)| {
            let cache_file = self.cache_files.get(&id)?;
            let extent = cache_file.extents.present_from(first).next()?;
            Some((Arc::clone(cache_file), extent))
        })
    }

    fn count_file(&mut self, cache_file: &CacheFile, bytes: u64) {
        self.stores.add_file(cache_file.store, cache_file.id);
        self.stores.add_bytes(cache_file.store, bytes);
    }

    /// Marks an extent absent; the caller punches its hole, then calls [`Accounting::release`].
    /// False: it is not there. One that is being written is not wanted any more.
    pub(crate) fn take(&mut self, cache_file: &CacheFile, extent: u32) -> bool {
        let extent_id = cache_file.extent_id(extent);
        if let Some(is_wanted) = self.busy.get_mut(&extent_id) {
            *is_wanted = false;
            return false;
        }
        if !cache_file.extents.remove(extent) {
            return false;
        }
        cache_file.evictions.fetch_add(1, AcqRel);
        self.extents -= 1;
        self.busy.insert(extent_id, false);
        self.changes.push(Change::Extent(extent_id, Presence::Absent));
        true
    }

    /// Marks absent the extent that the queues evict next.
    pub(crate) fn take_victim(&mut self, floors: Floors) -> Option<(Arc<CacheFile>, u32)> {
        let extent_id = self.queues.pop(&CacheFiles(&self.cache_files, &self.stores), floors)?;
        let cache_file = Arc::clone(self.cache_files.get(&extent_id.file)?);
        self.take(&cache_file, extent_id.extent).then_some((cache_file, extent_id.extent))
    }

    /// Releases the space of an extent whose hole is punched.
    pub(crate) fn release(&mut self, cache_file: &CacheFile, extent: u32) {
        self.busy.remove(&cache_file.extent_id(extent));
        let cost = cache_file.key.extent_cost(extent);
        self.stores.release_bytes(cache_file.store, cost);
        self.release_bytes(cost);
    }

    /// Returns whether a file holds nothing but this extent, which is being evicted.
    pub(crate) fn is_last(&self, cache_file: &CacheFile, extent: u32) -> bool {
        cache_file.extents.is_empty()
            && self.busy_of(cache_file).all(|extent_id| extent_id.extent == extent)
    }

    /// Returns whether a file holds nothing, and nobody writes to it.
    pub(crate) fn is_unused(&self, cache_file: &CacheFile) -> bool {
        cache_file.extents.is_empty() && self.busy_of(cache_file).next().is_none()
    }

    /// Busy extents of a file; few are busy at a time.
    fn busy_of<'a>(&'a self, cache_file: &'a CacheFile) -> impl Iterator<Item = &'a ExtentId> {
        self.busy.keys().filter(|extent_id| extent_id.file == cache_file.id)
    }

    /// Drops a file. Returns the bytes that are free once it is removed, without those of busy
    /// extents, which their threads release. None: it was dropped already.
    pub(crate) fn give_up(&mut self, cache_file: &CacheFile) -> Option<u64> {
        if cache_file.is_gone.swap(true, AcqRel) {
            return None;
        }
        let bytes = cache_file.present_cost() + FILE_OVERHEAD_BYTES;
        cache_file.evictions.fetch_add(1, AcqRel);
        let taken = cache_file
            .extents
            .present()
            .filter(|&extent| cache_file.extents.remove(extent))
            .count();
        self.extents -= u64::try_from(taken).expect("a count");
        self.stores.remove_file(cache_file.store, cache_file.id);
        self.stores.release_bytes(cache_file.store, bytes);
        self.cache_files.remove(&cache_file.id);
        if self.by_key.get(&cache_file.key) == Some(&cache_file.id) {
            self.by_key.remove(&cache_file.key);
        }
        self.changes.push(Change::Gone(cache_file.id));
        Some(bytes)
    }

    /// Forgets everything: the directory is lost. Busy threads go on and find their file dropped.
    pub(crate) fn forget_all(&mut self) {
        let cache_files: Vec<Arc<CacheFile>> = self.cache_files.values().cloned().collect();
        for cache_file in cache_files {
            let bytes = self.give_up(&cache_file).unwrap_or(0);
            self.release_bytes(bytes);
            cache_file.handle.store(None);
        }
        self.queues.clear();
        self.changes.clear();
        for (cache_file, extent) in std::mem::take(&mut self.unpunched) {
            self.release(&cache_file, extent);
        }
        let sidecars = self.stores.forget_sidecars();
        let unremoved =
            std::mem::take(&mut self.unremoved).into_iter().map(|(_, bytes)| bytes).sum();
        self.release_bytes(sidecars);
        self.release_bytes(unremoved);
    }

    /// Numbers of all cache files.
    pub(crate) fn ids(&self) -> HashSet<u32> {
        self.cache_files.keys().copied().collect()
    }
}

fn is_present(cache_files: &BTreeMap<u32, Arc<CacheFile>>, extent_id: ExtentId) -> bool {
    cache_files
        .get(&extent_id.file)
        .is_some_and(|cache_file| cache_file.extents.is_present(extent_id.extent))
}

/// Marks extents as the journal says, before anybody knows the file.
pub(crate) fn mark(
    cache_file: &CacheFile,
    extents: std::ops::RangeInclusive<u32>,
    presence: Presence,
) {
    let last = (*extents.end()).min(cache_file.extents.count().saturating_sub(1));
    for extent in *extents.start()..=last {
        match presence {
            Presence::Present => {
                cache_file.extents.insert(extent, 0);
            }
            Presence::Absent => {
                cache_file.extents.remove(extent);
                cache_file.extents.unqueue(extent);
            }
        }
    }
}
