//! A cache: its directory on local disk and the objects in use.

mod context;
mod options;
mod registry;
mod store;

use std::{collections::HashSet, path::Path, sync::Arc};

use bytes::Bytes;
use tokio::runtime::Handle;

pub(crate) use self::context::CacheContext;
use self::registry::Registry;
pub use self::{
    options::{
        CacheOptions, CacheStats, CachedObject, CachedStore, FillFilter, Progress, StoreShare,
    },
    store::StoreHandle,
};
use crate::{
    Error, Object, ObjectMeta, Remote,
    disk::{self, CacheFile, Disk, DiskAccess, ObjectKey},
};

/// Directory of cached objects on local disk, and the objects in use.
#[derive(Debug)]
pub struct Cache {
    disk: Option<Arc<Disk>>,
    runtime: Handle,
    objects: Registry,
    context: Arc<CacheContext>,
    /// Largest object that is filled whole if the disk takes it, as it was set.
    fill_whole_max: u64,
}

impl Cache {
    /// Opens or makes the directory. Whatever is wrong with the disk leaves a cache that keeps
    /// nothing, logs that once, and tries the disk again now and then.
    ///
    /// # Errors
    /// [`Error::Locked`]: another process uses the directory; [`Error::Settings`].
    pub fn open(options: CacheOptions) -> Result<Arc<Self>, Error> {
        let disk = Disk::open(&options)?;
        let whole_max = options.fill_whole_max;
        Ok(Self::new(Some(disk), options.fill_bytes_max, whole_max, options.runtime))
    }

    /// Checks that no other process uses this directory, which need not exist. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Locked`]: another process uses it.
    pub fn check_unused(directory: &Path) -> Result<(), Error> {
        disk::check_unused(directory)
    }

    /// Makes a cache without a disk: everything comes from the store.
    pub fn none(fill_bytes_max: u64, runtime: Handle) -> Arc<Self> {
        Self::new(None, fill_bytes_max, 0, runtime)
    }

    fn new(
        disk: Option<Arc<Disk>>,
        fill_bytes_max: u64,
        fill_whole_max: u64,
        runtime: Handle,
    ) -> Arc<Self> {
        // An object larger than the disk would evict itself while it is filled.
        let data_bytes_max = disk.as_ref().map_or(u64::MAX, |disk| disk.data_bytes_max());
        let whole_max = fill_whole_max.min(data_bytes_max);
        let context = CacheContext::new(fill_bytes_max, whole_max, runtime.clone());
        Arc::new(Self { disk, runtime, objects: Registry::default(), context, fill_whole_max })
    }

    /// Changes the share of each store in the disk. A store above its new cap evicts what is too
    /// much when something more of it comes to disk.
    pub fn set_store_share(&self, share: StoreShare) {
        let Some(disk) = &self.disk else { return };
        disk.set_store_share(share);
        self.context.fills.set_whole_max(self.fill_whole_max.min(disk.data_bytes_max()));
    }

    /// Returns the handle of an object, the same one for as long as anybody has it. Reads and
    /// streams bring it to disk.
    pub fn object(self: &Arc<Self>, remote: &Arc<Remote>, meta: &ObjectMeta) -> Arc<Object> {
        self.filtered_object(remote, meta, &FillFilter::default())
    }

    /// Returns the handle of an object as [`Cache::object`] does, which reads and streams bring to
    /// disk while the filter of its store says so.
    pub fn filtered_object(
        self: &Arc<Self>,
        remote: &Arc<Remote>,
        meta: &ObjectMeta,
        filter: &FillFilter,
    ) -> Arc<Object> {
        self.objects.get_or_insert(remote.url(), meta, || {
            let disk = self.disk.as_ref().map(|disk| disk.object(remote.url(), meta));
            Arc::new(Object::new((&self.context, filter), remote, meta, disk))
        })
    }

    /// Opens a store: until its last handle is dropped, its sidecars are not evicted and its floor
    /// counts.
    pub fn open_store(&self, url: &str) -> StoreHandle {
        StoreHandle::open(self.disk.clone(), url)
    }

    /// Writes a sidecar of a store: small bytes under a name (letters, digits, `-`, `.`),
    /// checksummed, counted against the limit, evicted only while nobody has the store open. Blocks
    /// for a file's write. If the disk cannot take it, it is not there later; that is no error.
    pub fn write_sidecar(&self, store: &str, name: &str, bytes: &[u8]) {
        if let Some(disk) = &self.disk {
            disk.write_sidecar(store, name, bytes);
        }
    }

    /// Reads a sidecar of a store, if it is there and whole. Blocks for a file's read.
    pub fn read_sidecar(&self, store: &str, name: &str) -> Option<Bytes> {
        self.disk.as_ref()?.read_sidecar(store, name)
    }

    /// Removes all sidecars of a store but those of these names.
    pub fn retain_sidecars(&self, store: &str, is_wanted: &dyn Fn(&str) -> bool) {
        if let Some(disk) = &self.disk {
            disk.retain_sidecars(store, is_wanted);
        }
    }

    /// Returns the bytes of disk that a store uses, sidecars included.
    pub fn store_bytes(&self, url: &str) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.store_bytes(url))
    }

    /// Lists the objects of which something is on disk.
    pub fn list(&self) -> Vec<CachedObject> {
        self.disk.as_ref().map(|disk| disk.list()).unwrap_or_default()
    }

    /// Returns how many bytes of objects one store may have on disk; none if there is no disk.
    pub fn store_bytes_max(&self) -> Option<u64> {
        Some(self.disk.as_ref()?.data_bytes_max())
    }

    /// Lists the stores that have something on disk.
    pub async fn stores(&self) -> Vec<CachedStore> {
        self.on_disk(|disk| disk.list_stores()).await.unwrap_or_default()
    }

    /// Removes from disk all that these stores have there: later reads come from their buckets.
    /// Returns the bytes freed.
    pub async fn drop_stores(&self, urls: HashSet<String>) -> u64 {
        let in_use = self.objects.in_use(|key| urls.contains(&key.store));
        in_use.iter().for_each(|object| object.forget());
        self.on_disk(move |disk| disk.drop_stores(&urls)).await.unwrap_or(0)
    }

    /// Removes all versions of an object of a store from disk: later reads come from the store.
    /// Returns the bytes freed.
    pub async fn drop_object(&self, store: &str, name: &str) -> u64 {
        let is_meant =
            |key: &ObjectKey, store: &str, name: &str| key.store == store && key.meta.name == name;
        let in_use = self.objects.in_use(|key| is_meant(key, store, name));
        in_use.iter().for_each(|object| object.forget());
        let (store, name) = (store.to_owned(), name.to_owned());
        self.on_disk(move |disk| disk.drop_files(|key| is_meant(key, &store, &name)))
            .await
            .unwrap_or(0)
    }

    /// Removes everything from disk. Returns the bytes freed.
    pub async fn drop_all(&self) -> u64 {
        self.objects.in_use(|_| true).iter().for_each(|object| object.forget());
        self.on_disk(|disk| disk.drop_files(|_| true) + disk.drop_sidecars()).await.unwrap_or(0)
    }

    /// Reads every block on disk and removes what is corrupt.
    pub async fn verify(&self, report: &mut (dyn FnMut(Progress) + Send)) -> Progress {
        let mut progress = Progress::default();
        let Some(disk) = &self.disk else { return progress };
        let cache_files = disk.cache_files();
        progress.total = cache_files.iter().map(|cache_file| cache_file.present_data_bytes()).sum();
        report(progress);
        for cache_file in cache_files {
            for extent in 0..cache_file.extents.count() {
                if self.verify_extent(&cache_file, extent, &mut progress).await {
                    report(progress);
                }
            }
        }
        progress
    }

    /// Checks one extent. Returns whether it was there.
    async fn verify_extent(
        &self,
        cache_file: &Arc<CacheFile>,
        extent: u32,
        progress: &mut Progress,
    ) -> bool {
        if !cache_file.extents.is_present(extent) {
            return false;
        }
        let cache_file = Arc::clone(cache_file);
        let verified = self.on_disk(move |disk| disk.verify(&cache_file, extent)).await;
        let (bytes, corrupt) = verified.unwrap_or_default();
        progress.done += bytes;
        // Extents that came meanwhile are read too.
        progress.total = progress.total.max(progress.done);
        progress.corrupt += corrupt;
        true
    }

    /// Runs work that blocks for the device on a thread of this disk. None: there is no disk, or
    /// the runtime has ended.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Disk) -> T + Send + 'static,
    ) -> Option<T> {
        let disk = self.disk.as_ref()?;
        let own = Arc::clone(disk);
        disk.run(&self.runtime, DiskAccess::Write, move || work(&own)).await
    }

    /// Runs work that calls [`Cache::write_sidecar`], [`Cache::read_sidecar`] or
    /// [`Cache::retain_sidecars`] on a thread that may block, of which a hung disk holds only a
    /// few. None: the runtime ended before.
    pub async fn run_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let cache = Arc::clone(self);
        match &self.disk {
            Some(disk) => disk.run(&self.runtime, DiskAccess::Read, move || work(&cache)).await,
            None => self.runtime.spawn_blocking(move || work(&cache)).await.ok(),
        }
    }

    /// Returns counters since the start.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        self.context.add_stats(&mut stats);
        if let Some(disk) = &self.disk {
            disk.add_stats(&mut stats);
        }
        stats
    }

    /// Writes the rest of the journal and frees the directory. Aborts fills under way.
    pub async fn close(&self) {
        self.context.fills.close().await;
        self.on_disk(|disk| disk.close()).await;
    }
}
