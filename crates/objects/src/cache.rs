//! The directory with what is on local disk, and the objects that are in use.

mod kept;
mod options;
mod registry;

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use tokio::runtime::Handle;

pub use self::options::{CacheOptions, CacheStats, CachedObject, Progress};
use self::registry::Registry;
use crate::{
    Error, Object, ObjectMeta, Remote,
    disk::{self, Access, Body, Disk},
    object::Fills,
};

/// The directory with what is on local disk, and the objects that are in use.
#[derive(Debug)]
pub struct Cache {
    disk: Option<Arc<Disk>>,
    runtime: Handle,
    objects: Registry,
    /// What the reads of all objects share.
    fills: Arc<Fills>,
}

impl Cache {
    /// Opens or makes the directory. Only another process in it, or settings that make no sense,
    /// are errors: whatever else is wrong with the disk leaves a cache that keeps nothing, says so
    /// once, and tries again now and then.
    pub fn open(options: CacheOptions) -> Result<Arc<Self>, Error> {
        let disk = Disk::open(&options)?;
        // An object larger than the disk would be brought there only to drive itself out again.
        let whole_max = options.fill_whole_max.min(disk.data_bytes_max());
        Ok(Self::new(Some(disk), options.fill_bytes_max, whole_max, options.runtime))
    }

    /// Whether a cache could be opened in this directory, which need not exist, as far as other
    /// processes are concerned. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Locked`]: another process uses it.
    pub fn check_unused(directory: &Path) -> Result<(), Error> {
        disk::check_unused(directory)
    }

    /// Without a disk: everything comes from the store.
    pub fn none(fill_bytes_max: u64, runtime: Handle) -> Arc<Self> {
        Self::new(None, fill_bytes_max, 0, runtime)
    }

    fn new(
        disk: Option<Arc<Disk>>,
        fill_bytes_max: u64,
        fill_whole_max: u64,
        runtime: Handle,
    ) -> Arc<Self> {
        let fills = Fills::new(fill_bytes_max, fill_whole_max, runtime.clone());
        Arc::new(Self { disk, runtime, objects: Registry::default(), fills })
    }

    /// One object of a store. The same object gives the same handle while anybody has it.
    pub fn object(self: &Arc<Self>, remote: &Arc<Remote>, meta: &ObjectMeta) -> Arc<Object> {
        self.objects.get_or_insert(remote.url(), meta, || {
            let file = self.disk.as_ref().map(|disk| disk.file(remote.url(), meta));
            Arc::new(Object::new(&self.fills, remote, meta, file))
        })
    }

    /// Keeps small bytes under a name (letters, digits, `-`, `.`), checksummed; not evicted, but
    /// counted. Blocks for a file's write. A disk that cannot take it is no error: it is not there
    /// later.
    pub fn keep(&self, name: &str, bytes: &[u8]) {
        if let Some(disk) = self.disk.as_ref().filter(|_| kept::is_name(name)) {
            disk.keep(name, bytes);
        }
    }

    /// What was kept, if it is there and whole. Blocks for a file's read.
    pub fn kept(&self, name: &str) -> Option<Bytes> {
        self.disk.as_ref().filter(|_| kept::is_name(name))?.kept(name)
    }

    /// Forgets what was kept, but for these names.
    pub fn keep_only(&self, is_wanted: &dyn Fn(&str) -> bool) {
        if let Some(disk) = &self.disk {
            disk.keep_only(is_wanted);
        }
    }

    /// Everything of which something is on disk.
    pub fn list(&self) -> Vec<CachedObject> {
        self.disk.as_ref().map(|disk| disk.list()).unwrap_or_default()
    }

    /// Removes an object, or all of a name's versions: what is read afterwards comes from the
    /// store. Returns bytes freed.
    pub async fn drop_object(&self, name: &str) -> u64 {
        self.objects.in_use(|meta| meta.name == name).iter().for_each(|object| object.forget());
        let name = name.to_owned();
        self.on_disk(move |disk| disk.drop_files(|meta| meta.name == name)).await.unwrap_or(0)
    }

    /// Removes everything. Returns bytes freed.
    pub async fn drop_all(&self) -> u64 {
        self.objects.in_use(|_| true).iter().for_each(|object| object.forget());
        self.on_disk(|disk| disk.drop_files(|_| true) + disk.keep_only(&|_| false))
            .await
            .unwrap_or(0)
    }

    /// Reads every block on disk and removes what is corrupt.
    pub async fn verify(&self, report: &mut (dyn FnMut(Progress) + Send)) -> Progress {
        let mut progress = Progress::default();
        let Some(disk) = &self.disk else { return progress };
        let bodies = disk.bodies();
        progress.total = bodies.iter().map(|body| body.present_data_bytes()).sum();
        report(progress);
        for body in bodies {
            for extent in 0..body.extents.count() {
                if self.verify_extent(&body, extent, &mut progress).await {
                    report(progress);
                }
            }
        }
        progress
    }

    /// Whether it was there.
    async fn verify_extent(&self, body: &Arc<Body>, extent: u32, progress: &mut Progress) -> bool {
        if !body.extents.is_present(extent) {
            return false;
        }
        let body = Arc::clone(body);
        let verified = self.on_disk(move |disk| disk.verify(&body, extent)).await;
        let (bytes, corrupt) = verified.unwrap_or_default();
        progress.done += bytes;
        // What came meanwhile is read too.
        progress.total = progress.total.max(progress.done);
        progress.corrupt += corrupt;
        true
    }

    /// Work that blocks for the device, where that hurts nobody. None: no disk, or the runtime is
    /// at its end.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Disk) -> T + Send + 'static,
    ) -> Option<T> {
        let disk = self.disk.as_ref()?;
        let own = Arc::clone(disk);
        disk.run(&self.runtime, Access::Write, move || work(&own)).await
    }

    /// Runs work that calls [`Cache::keep`], [`Cache::kept`] or [`Cache::keep_only`] on a thread
    /// that may block, of which a disk that hangs holds only a few. None: the runtime ended before.
    pub async fn run_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let cache = Arc::clone(self);
        match &self.disk {
            Some(disk) => disk.run(&self.runtime, Access::Read, move || work(&cache)).await,
            None => self.runtime.spawn_blocking(move || work(&cache)).await.ok(),
        }
    }

    /// Metrics.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        self.fills.add_stats(&mut stats);
        if let Some(disk) = &self.disk {
            disk.add_stats(&mut stats);
        }
        stats
    }

    /// Writes what is not written yet. Fills under way are given up.
    pub async fn close(&self) {
        self.fills.close().await;
        self.on_disk(|disk| disk.close()).await;
    }
}
