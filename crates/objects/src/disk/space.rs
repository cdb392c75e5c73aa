//! Takes and gives back space: writes of extents, eviction, removal.

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
    s3_fifo::Entrance,
};
use crate::disk::limits::{
    EVICTIONS_PER_WRITE_MAX, FILE_OVERHEAD_BYTES, FLOOR_EVICTIONS_MAX, SCRATCH_BLOCKS,
};

impl Disk {
    /// Writes an extent. None: the file was given up before anything was written, maybe to make
    /// room for this.
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
            Reservation::Full => {
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
            if reservation != Reservation::Full || !self.evict_one() {
                return reservation;
            }
        }
        Reservation::Full
    }

    /// Extents that may come before the first of them goes again, if nothing else comes meanwhile.
    pub(super) fn room(&self) -> u64 {
        let accounting = self.accounting();
        let free = accounting.ceiling.saturating_sub(accounting.bytes)
            / (EXTENT_BLOCKS * BLOCK_BYTES) as u64;
        free + accounting.queues.small_room() as u64
    }

    /// Sets bytes aside, if need be in place of extents.
    pub(super) fn reserve(&self, bytes: u64) -> bool {
        for _ in 0..EVICTIONS_PER_WRITE_MAX {
            if self.accounting().reserve(bytes) {
                return true;
            }
            if !self.evict_one() {
                return false;
            }
        }
        false
    }

    /// A data file with nothing in it. None: it cannot be had now.
    pub(super) fn make_cache_file(&self, key: &Arc<ObjectKey>) -> Option<Arc<CacheFile>> {
        if let Some(cache_file) = self.accounting().cache_file_of(key) {
            return Some(cache_file);
        }
        if !self.reserve(FILE_OVERHEAD_BYTES) {
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
        // Its length is set at once: some file systems set space aside behind the end of a file
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
                // An empty file more or less: the next start removes it.
                let _ = self.file_system.remove(&path);
                None
            }
        }
    }

    /// Writes the blocks of an extent. Where the file system is full although there should be room,
    /// something goes, and once more.
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

    /// The file system is full before our limit is reached: what fits now is the limit until there
    /// is more. False: there is nothing of ours that could go.
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
        self.evict_one()
    }

    /// Evicts one extent. False: there is none.
    pub(super) fn evict_one(&self) -> bool {
        let Some((cache_file, extent)) = self.accounting().take_victim() else { return false };
        self.evicted.fetch_add(1, Relaxed);
        self.give_back(&cache_file, extent);
        self.changed();
        true
    }

    /// Evicts what is more than the limit.
    pub(super) fn shrink(&self) {
        loop {
            let is_over = self.accounting().is_over();
            if !is_over || !self.evict_one() {
                return;
            }
        }
    }

    /// Forgets an extent, if it is there.
    pub(super) fn remove_extent(&self, cache_file: &Arc<CacheFile>, extent: u32) {
        if self.accounting().take(cache_file, extent) {
            self.give_back(cache_file, extent);
            self.changed();
        }
    }

    /// Gives back the space of an extent that nobody is shown any more. With the last one the file
    /// goes, and also where single extents cannot be given back.
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
        // With a file that was given up go its extents.
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

    /// A file into which nothing came after all.
    fn drop_if_unused(&self, cache_file: &Arc<CacheFile>) {
        let is_unused = self.accounting().is_unused(cache_file);
        if is_unused {
            self.drop_cache_file(cache_file);
        }
    }

    /// Removes a file with all that is in it. Returns the bytes that this frees.
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

    /// Gives back what could not be given back before. Returns whether nothing of that is left.
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

    /// Whether so many bytes may be written without taking from others what is to stay free: else
    /// something of ours goes for it.
    fn is_above_floor(&self, cost: u64) -> bool {
        if self.free_bytes_min == 0 {
            return true;
        }
        match self.file_system.free_bytes(&self.directory) {
            Ok(free) if self.free_bytes_min.saturating_add(cost) <= free => self.set_low(false),
            Ok(_) => {
                let is_evicted = self.evict_one();
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

    /// Why nothing is kept although the disk is well.
    pub(super) fn low(&self) -> Option<String> {
        let floor = self.free_bytes_min;
        self.is_low
            .load(Relaxed)
            .then(|| format!("less than {floor} bytes of the file system are free"))
    }

    /// Gives space to others where they have less than is to stay free, and takes what they gave
    /// back.
    pub(super) fn look_at_space(&self) {
        let Ok(free) = self.file_system.free_bytes(&self.directory) else {
            return self.health.count_error();
        };
        let missing = self.free_bytes_min.saturating_sub(free) >> 20;
        for _ in 0..missing.min(FLOOR_EVICTIONS_MAX) {
            if !self.evict_one() {
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

/// Whether the file system, or a quota, has no space left.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A number that nobody can know before.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
