//! Takes and releases space: writes of extents, eviction, removal.

use std::{
    io,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed, Release},
    },
};

use super::{
    BLOCK_BYTES, BLOCK_DATA_BYTES, CacheFile, Disk, EXTENT_BLOCKS,
    accounting::{Reservation, Written},
    cache_file::ObjectKey,
    file_system::{OpenFile, OpenMode, write_full},
    health::Bypass,
    s3_fifo::{Entrance, Floors},
    stores::StoreKey,
};
use crate::disk::limits::{
    CLOSED_SIDECAR_SHARE, EVICTIONS_PER_WRITE_MAX, FILE_OVERHEAD_BYTES, FLOOR_EVICTIONS_MAX,
    SCRATCH_BLOCKS,
};

impl Disk {
    /// Writes an extent. Returns whether it is on disk, or none if the file was dropped before
    /// anything was written, maybe to make space for this.
    pub(super) fn write(
        &self,
        cache_file: &Arc<CacheFile>,
        extent: u32,
        data: &[u8],
        entrance: Entrance,
    ) -> Option<bool> {
        match self.reserve_extent(cache_file, extent) {
            Reservation::Granted => Some(self.write_reserved(cache_file, extent, data, entrance)),
            Reservation::Present => Some(true),
            Reservation::Refused => Some(false),
            Reservation::Gone => None,
            Reservation::Full | Reservation::Capped => {
                self.drop_if_unused(cache_file);
                Some(false)
            }
        }
    }

    fn write_reserved(
        &self,
        cache_file: &Arc<CacheFile>,
        extent: u32,
        data: &[u8],
        entrance: Entrance,
    ) -> bool {
        let is_whole = self.write_extent(cache_file, extent, data);
        let written = self.accounting().finish_write(cache_file, extent, entrance, is_whole);
        if written == Written::Unwanted {
            self.give_back(cache_file, extent);
        }
        self.changed();
        written == Written::Kept
    }

    fn reserve_extent(&self, cache_file: &CacheFile, extent: u32) -> Reservation {
        if !self.is_above_floor(cache_file.key.extent_cost(extent)) {
            return Reservation::Full;
        }
        for _ in 0..EVICTIONS_PER_WRITE_MAX {
            let reservation = self.accounting().reserve_extent(cache_file, extent);
            let is_evicted = match reservation {
                Reservation::Full => self.evict_for(Some(cache_file.store)),
                Reservation::Capped => self.evict_own(cache_file.store),
                _ => false,
            };
            if !is_evicted {
                return reservation;
            }
        }
        Reservation::Full
    }

    /// Number of new extents of a store that the disk takes before it evicts the first of them.
    pub(super) fn new_extents_max(&self) -> u64 {
        let accounting = self.accounting();
        let extents = |bytes| bytes / (EXTENT_BLOCKS * BLOCK_BYTES) as u64;
        let free = extents(accounting.ceiling.saturating_sub(accounting.bytes));
        let new_max = free + accounting.queues.small_capacity() as u64;
        new_max.min(extents(accounting.stores.share().cap_bytes))
    }

    /// Reserves bytes for a store, or for the disk itself; evicts something for them if it must.
    pub(super) fn reserve(&self, bytes: u64, store: Option<StoreKey>) -> bool {
        for _ in 0..EVICTIONS_PER_WRITE_MAX {
            if self.accounting().reserve(bytes) {
                return true;
            }
            if !self.evict_for(store) {
                return false;
            }
        }
        false
    }

    /// Makes an empty cache file. None: it cannot be made now.
    pub(super) fn make_cache_file(&self, key: &Arc<ObjectKey>) -> Option<Arc<CacheFile>> {
        if let Some(cache_file) = self.accounting().cache_file_of(key) {
            return Some(cache_file);
        }
        if !self.reserve(FILE_OVERHEAD_BYTES, Some(StoreKey::of(&key.store))) {
            return None;
        }
        let made = self.make_data_file(key);
        if made.is_none() {
            self.accounting().release_bytes(FILE_OVERHEAD_BYTES);
        }
        made
    }

    fn make_data_file(&self, key: &Arc<ObjectKey>) -> Option<Arc<CacheFile>> {
        let id = self.accounting().take_id()?;
        let cache_file = Arc::new(CacheFile::new(id, random(), Arc::clone(key)));
        let path = cache_file.path(&self.directory);
        // The length is set at once: some file systems preallocate space behind the end of a file
        // that grows.
        let made = self.file_system.open(&path, OpenMode::Replace).and_then(|file| {
            file.set_length(key.file_bytes())?;
            Ok(file)
        });
        match made {
            Ok(file) => {
                self.handles.keep(&cache_file, file);
                self.accounting().add_cache_file(&cache_file);
                Some(cache_file)
            }
            Err(error) => {
                self.health.fail(Bypass::Writes, &format!("making {}", path.display()), &error);
                // An empty file may be left; the next start removes it.
                let _ = self.file_system.remove(&path);
                None
            }
        }
    }

    /// Writes the blocks of an extent. Where the file system is full although there should be
    /// space, evicts something and tries once more.
    fn write_extent(&self, cache_file: &Arc<CacheFile>, extent: u32, data: &[u8]) -> bool {
        let Some(file) = self.handle(cache_file) else { return false };
        let mut written = write_blocks(cache_file, file.as_ref().as_ref(), extent, data);
        if written.as_ref().is_err_and(is_full)
            && self.lower_ceiling(cache_file.key.extent_cost(extent))
        {
            written = write_blocks(cache_file, file.as_ref().as_ref(), extent, data);
        }
        if let Err(error) = &written {
            let path = cache_file.path(&self.directory);
            self.health.fail(Bypass::Writes, &format!("writing {}", path.display()), error);
        }
        written.is_ok()
    }

    /// Lowers the limit to what fits now: the file system is full before the limit is reached.
    /// False: there is nothing to evict.
    fn lower_ceiling(&self, cost: u64) -> bool {
        self.health.count_error();
        let mut accounting = self.accounting();
        let was_whole = accounting.ceiling == self.bytes_max;
        accounting.ceiling = accounting.ceiling.min(accounting.bytes.saturating_sub(cost));
        let ceiling = accounting.ceiling;
        drop(accounting);
        if was_whole {
            let directory = self.directory.display();
            log::warn!(
                "cache {directory}: the file system is full; {ceiling} bytes are used until there \
                 is more"
            );
        }
        self.evict_for(None)
    }

    /// Evicts something for a store, which leaves the others their floors, or for the disk itself.
    /// False: there is nothing.
    fn evict_for(&self, store: Option<StoreKey>) -> bool {
        match store {
            // Below its floor a store makes room for itself.
            Some(store) => self.evict_one(Floors::Kept) || self.evict_own(store),
            None => self.evict_one(Floors::Ignored),
        }
    }

    /// Evicts one extent, or a sidecar of a closed store where these have more than their share or
    /// no extent may go. False: there is nothing.
    fn evict_one(&self, floors: Floors) -> bool {
        let closed_max = self.bytes_max / CLOSED_SIDECAR_SHARE;
        let is_beyond = closed_max < self.accounting().stores.closed_sidecar_bytes();
        if is_beyond && self.evict_closed_sidecar() {
            return true;
        }
        let victim = self.accounting().take_victim(floors);
        let Some((cache_file, extent)) = victim else { return self.evict_closed_sidecar() };
        self.give_back_victim(&cache_file, extent);
        true
    }

    /// Evicts one extent of a store. False: there is none.
    fn evict_own(&self, store: StoreKey) -> bool {
        let victim = self.accounting().take_own_victim(store);
        let Some((cache_file, extent)) = victim else { return false };
        self.give_back_victim(&cache_file, extent);
        true
    }

    fn give_back_victim(&self, cache_file: &Arc<CacheFile>, extent: u32) {
        self.evicted.fetch_add(1, Relaxed);
        self.give_back(cache_file, extent);
        self.changed();
    }

    /// Evicts extents until the limit holds.
    pub(super) fn shrink(&self) {
        loop {
            let is_over = self.accounting().is_over();
            if !is_over || !self.evict_for(None) {
                return;
            }
        }
    }

    /// Removes an extent, if it is there.
    pub(super) fn remove_extent(&self, cache_file: &Arc<CacheFile>, extent: u32) {
        if self.accounting().take(cache_file, extent) {
            self.give_back(cache_file, extent);
            self.changed();
        }
    }

    /// Releases the space of an extent that is marked absent. Removes the whole file with its last
    /// extent, and where the file system cannot punch holes.
    fn give_back(&self, cache_file: &Arc<CacheFile>, extent: u32) {
        let is_last = self.accounting().is_last(cache_file, extent);
        if is_last || !self.can_punch.load(Acquire) {
            self.drop_cache_file(cache_file);
        }
        if self.is_given_back(cache_file, extent) {
            self.accounting().release(cache_file, extent);
        } else {
            self.accounting().unpunched.push((Arc::clone(cache_file), extent));
        }
    }

    fn is_given_back(&self, cache_file: &Arc<CacheFile>, extent: u32) -> bool {
        // The extents of a dropped file go with it.
        if cache_file.is_gone.load(Acquire) {
            return true;
        }
        let Some(file) = self.handle(cache_file) else { return cache_file.is_gone.load(Acquire) };
        match file.punch(CacheFile::extent_offset(extent), cache_file.key.extent_disk_bytes(extent))
        {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.do_without_holes();
                self.drop_cache_file(cache_file);
                true
            }
            Err(error) => {
                let path = cache_file.path(&self.directory);
                self.health.fail(
                    Bypass::Writes,
                    &format!("giving back space of {}", path.display()),
                    &error,
                );
                false
            }
        }
    }

    fn do_without_holes(&self) {
        if self.can_punch.swap(false, Release) {
            let directory = self.directory.display();
            log::warn!(
                "cache {directory}: the file system takes no holes; whole files are evicted"
            );
        }
    }

    /// Drops a file into which nothing was written after all.
    fn drop_if_unused(&self, cache_file: &Arc<CacheFile>) {
        let is_unused = self.accounting().is_unused(cache_file);
        if is_unused {
            self.drop_cache_file(cache_file);
        }
    }

    /// Removes a file with all that is in it. Returns the bytes freed.
    pub(super) fn drop_cache_file(&self, cache_file: &Arc<CacheFile>) -> u64 {
        let Some(bytes) = self.accounting().give_up(cache_file) else { return 0 };
        cache_file.handle.store(None);
        self.release_file(cache_file.id, bytes);
        bytes
    }

    fn release_file(&self, id: u32, bytes: u64) {
        if self.remove_file(id) {
            self.accounting().release_bytes(bytes);
        } else {
            self.accounting().unremoved.push((id, bytes));
        }
    }

    fn remove_file(&self, id: u32) -> bool {
        let path = self.directory.join(super::cache_file::data_name(id));
        match self.file_system.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.health.fail(Bypass::Writes, &format!("removing {}", path.display()), &error);
                false
            }
            _ => true,
        }
    }

    /// Retries what could not be punched or removed before. Returns whether nothing of that is
    /// left.
    pub(super) fn reclaim_space(&self) -> bool {
        let unpunched = std::mem::take(&mut self.accounting().unpunched);
        for (cache_file, extent) in unpunched {
            self.give_back(&cache_file, extent);
        }
        let unremoved = std::mem::take(&mut self.accounting().unremoved);
        for (id, bytes) in unremoved {
            self.release_file(id, bytes);
        }
        let accounting = self.accounting();
        accounting.unremoved.is_empty() && accounting.unpunched.is_empty()
    }

    /// Returns whether this many bytes may be written with enough of the file system left free for
    /// others. If not, evicts an extent in exchange.
    fn is_above_floor(&self, cost: u64) -> bool {
        if self.free_bytes_min == 0 {
            return true;
        }
        match self.file_system.free_bytes(&self.directory) {
            Ok(free) if self.free_bytes_min.saturating_add(cost) <= free => self.set_low(false),
            Ok(_) => {
                let is_evicted = self.evict_for(None);
                self.set_low(!is_evicted);
                return is_evicted;
            }
            Err(error) => {
                self.health.fail(Bypass::Writes, "asking for free space", &error);
                return false;
            }
        }
        true
    }

    fn set_low(&self, is_low: bool) {
        if self.is_low.load(Relaxed) == is_low || self.is_low.swap(is_low, Relaxed) == is_low {
            return;
        }
        match self.low() {
            Some(why) => log::warn!("cache {}: {why}; nothing is kept", self.directory.display()),
            None => log::info!("cache {}: there is space again", self.directory.display()),
        }
    }

    /// Reason why a healthy disk keeps nothing new.
    pub(super) fn low(&self) -> Option<String> {
        let floor = self.free_bytes_min;
        self.is_low
            .load(Relaxed)
            .then(|| format!("less than {floor} bytes of the file system are free"))
    }

    /// Evicts extents where less of the file system is free than should be, and raises the limit
    /// again when there is space.
    pub(super) fn check_space(&self) {
        let Ok(free) = self.file_system.free_bytes(&self.directory) else {
            return self.health.count_error();
        };
        let missing = self.free_bytes_min.saturating_sub(free) >> 20;
        for _ in 0..missing.min(FLOOR_EVICTIONS_MAX) {
            if !self.evict_for(None) {
                break;
            }
        }
        if self.free_bytes_min.saturating_add(FLOOR_EVICTIONS_MAX << 20) <= free {
            self.accounting().ceiling = self.bytes_max;
        }
    }
}

fn write_blocks(
    cache_file: &CacheFile,
    file: &dyn OpenFile,
    extent: u32,
    data: &[u8],
) -> io::Result<()> {
    let mut block = u64::from(extent) * EXTENT_BLOCKS as u64;
    let mut blocks = Vec::with_capacity(SCRATCH_BLOCKS * BLOCK_BYTES);
    for part in data.chunks(SCRATCH_BLOCKS * BLOCK_DATA_BYTES) {
        blocks.clear();
        cache_file.seal.close(block, part, &mut blocks);
        write_full(file, &blocks, block * BLOCK_BYTES as u64)?;
        block += SCRATCH_BLOCKS as u64;
    }
    Ok(())
}

/// Returns whether an error says that the file system, or a quota, has no space left.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Random number that nobody can predict.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
