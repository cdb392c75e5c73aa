//! Who has how much of the disk: one lock for all that changes what is there. No file is touched
//! under it.

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
    s3_fifo::{Entrance, ExtentId, ExtentStates, S3Fifo},
};
use crate::disk::limits::FILE_OVERHEAD_BYTES;

/// A change that the journal does not know yet.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A file was made.
    File(Arc<CacheFile>),
    /// An extent came or went.
    Extent(ExtentId, Presence),
    /// A file was removed.
    Gone(u32),
}

/// Whether an extent may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// Its space is set aside, and nobody else writes it.
    Granted,
    /// It is there already.
    Present,
    /// Somebody writes it or gives its space back just now.
    Refused,
    /// Its file was given up.
    Gone,
    /// Something has to go first.
    Full,
}

/// What became of an extent that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is there.
    Kept,
    /// It is not wanted any more: its space is to be given back, then [`Accounting::release`].
    Unwanted,
}

/// Everything that changes together.
#[derive(Debug)]
pub(crate) struct Accounting {
    /// Files on disk by number, also those nobody asked for since the start.
    pub(crate) cache_files: BTreeMap<u32, Arc<CacheFile>>,
    by_key: HashMap<Arc<ObjectKey>, u32>,
    objects: HashMap<Arc<ObjectKey>, Weak<DiskObject>>,
    /// Forget files without users when so many are known.
    sweep_at: usize,
    pub(crate) queues: S3Fifo,
    /// Bytes taken or set aside.
    pub(crate) bytes: u64,
    /// So many may be taken now: the limit, or less when the file system was full before that.
    pub(crate) ceiling: u64,
    /// Extents on disk.
    pub(crate) extents: u64,
    /// Extents being written or given back, and whether they are wanted.
    busy: HashMap<ExtentId, bool>,
    /// What the journal does not know yet.
    pub(crate) changes: Vec<Change>,
    next_id: u32,
    /// Bytes of what is kept by name.
    pub(crate) sidecars: BTreeMap<String, u64>,
    /// Files that could not be removed, with what they take.
    pub(crate) unremoved: Vec<(u32, u64)>,
    /// Extents whose space could not be given back. They stay busy: nobody is shown them, nobody
    /// writes them.
    pub(crate) unpunched: Vec<(Arc<CacheFile>, u32)>,
}

/// The bodies as the queues see them.
struct CacheFiles<'a>(&'a BTreeMap<u32, Arc<CacheFile>>);

impl ExtentStates for CacheFiles<'_> {
    fn is_present(&self, extent_id: ExtentId) -> bool {
        self.0
            .get(&extent_id.file)
            .is_some_and(|cache_file| cache_file.extents.is_present(extent_id.extent))
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

    fn name(&self, extent_id: ExtentId) -> u64 {
        self.0.get(&extent_id.file).map_or(0, |cache_file| cache_file.ghost_name(extent_id.extent))
    }
}

impl Accounting {
    /// Nothing is there, and there is room for so many bytes and extents.
    pub(crate) fn new(bytes_max: u64, room: usize) -> Self {
        Self {
            cache_files: BTreeMap::new(),
            by_key: HashMap::new(),
            objects: HashMap::new(),
            sweep_at: 0,
            queues: S3Fifo::new(room),
            bytes: 0,
            ceiling: bytes_max,
            extents: 0,
            busy: HashMap::new(),
            changes: Vec::new(),
            next_id: 1,
            sidecars: BTreeMap::new(),
            unremoved: Vec::new(),
            unpunched: Vec::new(),
        }
    }

    /// The handle of a key that somebody has, or a new one.
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

    /// The data file of a key.
    pub(crate) fn cache_file_of(&self, key: &ObjectKey) -> Option<Arc<CacheFile>> {
        self.by_key.get(key).and_then(|id| self.cache_files.get(id)).cloned()
    }

    /// A number that was never used, or none: four billion files have been made here.
    pub(crate) fn take_id(&mut self) -> Option<u32> {
        let id = self.next_id;
        self.next_id = id.checked_add(1)?;
        Some(id)
    }

    /// Numbers up to this one were used.
    pub(crate) fn skip_ids(&mut self, id: u32) {
        self.next_id = self.next_id.max(id.saturating_add(1));
    }

    /// Sets bytes aside. False: something has to go first.
    pub(crate) fn reserve(&mut self, bytes: u64) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= self.ceiling;
        self.bytes += if fits { bytes } else { 0 };
        fits
    }

    /// Whether more is taken than may be: the limit was larger before the start.
    pub(crate) fn is_over(&self) -> bool {
        self.ceiling < self.bytes
    }

    /// Gives bytes back.
    pub(crate) fn release_bytes(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "{bytes} of {}", self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// A file was made; its overhead is reserved.
    pub(crate) fn add_cache_file(&mut self, cache_file: &Arc<CacheFile>) {
        self.cache_files.insert(cache_file.id, Arc::clone(cache_file));
        self.by_key.insert(Arc::clone(&cache_file.key), cache_file.id);
        self.changes.push(Change::File(Arc::clone(cache_file)));
    }

    /// A file was there at the start, with extents that are marked in it. What it takes is counted
    /// here.
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
        self.bytes += cache_file.present_cost() + FILE_OVERHEAD_BYTES;
        self.by_key.insert(Arc::clone(&cache_file.key), cache_file.id);
        if let Some(file) = self.objects.get(&cache_file.key).and_then(Weak::upgrade) {
            file.attach(Some(Arc::clone(&cache_file)));
        }
        self.cache_files.insert(cache_file.id, cache_file);
    }

    /// Sets an extent's space aside.
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
        if !self.reserve(cache_file.key.extent_cost(extent)) {
            return Reservation::Full;
        }
        self.busy.insert(extent_id, true);
        Reservation::Granted
    }

    /// An extent was written, or not.
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
        Written::Kept
    }

    /// Takes an extent away from the readers; its space is to be given back, then
    /// [`Accounting::release`]. False: it is not there. One that is being written is not wanted any
    /// more.
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

    /// Takes away the extent that has to go by the queues.
    pub(crate) fn take_victim(&mut self) -> Option<(Arc<CacheFile>, u32)> {
        let extent_id = self.queues.pop(&CacheFiles(&self.cache_files))?;
        let cache_file = Arc::clone(self.cache_files.get(&extent_id.file)?);
        self.take(&cache_file, extent_id.extent).then_some((cache_file, extent_id.extent))
    }

    /// An extent's space was given back.
    pub(crate) fn release(&mut self, cache_file: &CacheFile, extent: u32) {
        self.busy.remove(&cache_file.extent_id(extent));
        self.release_bytes(cache_file.key.extent_cost(extent));
    }

    /// Whether a file holds nothing but an extent that is being given back.
    pub(crate) fn is_last(&self, cache_file: &CacheFile, extent: u32) -> bool {
        cache_file.extents.is_empty()
            && self.busy_of(cache_file).all(|extent_id| extent_id.extent == extent)
    }

    /// Whether a file holds nothing, and nobody is about to change that.
    pub(crate) fn is_unused(&self, cache_file: &CacheFile) -> bool {
        cache_file.extents.is_empty() && self.busy_of(cache_file).next().is_none()
    }

    /// Few are busy at a time.
    fn busy_of<'a>(&'a self, cache_file: &'a CacheFile) -> impl Iterator<Item = &'a ExtentId> {
        self.busy.keys().filter(|extent_id| extent_id.file == cache_file.id)
    }

    /// Gives a file up. Returns the bytes that are free when it is removed, without those of
    /// extents that are busy: who is busy with them releases them. None: it was given up already.
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
        self.cache_files.remove(&cache_file.id);
        if self.by_key.get(&cache_file.key) == Some(&cache_file.id) {
            self.by_key.remove(&cache_file.key);
        }
        self.changes.push(Change::Gone(cache_file.id));
        Some(bytes)
    }

    /// The directory is lost: nothing is there any more. Who is busy goes on and finds its file
    /// gone.
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
        let sidecars = std::mem::take(&mut self.sidecars).into_values().sum();
        let unremoved =
            std::mem::take(&mut self.unremoved).into_iter().map(|(_, bytes)| bytes).sum();
        self.release_bytes(sidecars);
        self.release_bytes(unremoved);
    }

    /// Numbers of files known here.
    pub(crate) fn ids(&self) -> HashSet<u32> {
        self.cache_files.keys().copied().collect()
    }
}

/// Marks an extent that the journal says is there, before the file is known to anybody.
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
