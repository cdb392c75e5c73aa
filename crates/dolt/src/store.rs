//! The store: what the rest of the process calls.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use busload_chunks::{ChunkAddress, FileId, FileKind};
use busload_objects::{
    Cache, CacheOptions, FillFilter, ObjectMeta, Progress, Remote, RemoteOptions, StoreHandle,
    StoreShare,
};
use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::{
    Attempt, Chunk, DictionaryId, Error, FileBytes, Form, Located, ManyReads, Request, Requester,
    Settings, Snapshot, StoreStats, StoreStatus, StoreUsage, TableFile,
    jobs::{
        self,
        verify::{verify_all, verify_local},
        warm::{bytes_of, wanted, warm},
    },
    lifecycle::Lifecycle,
    limits::{ATTEMPTS_MAX, OPENING_BYTES_MAX, POLL_MIN, STALL_TIMEOUT},
    object_source::ObjectSource,
    read::{
        decode::{Decoded, Wanted},
        file_chunk_reader::{FileChunkReader, ReadRequest},
        memory_cache::MemoryCache,
        reader::Reader,
    },
    serve::{
        self, file_bytes::FileServer, local_verifier::LocalVerifier,
        pin_dictionaries::pin_dictionaries, prefetch::Prefetcher,
        reference_prefetch::ReferencePrefetcher,
    },
    versions::{
        Versions,
        dropped_files::FileKey,
        opener::{MemoryBudget, Opener},
        refresher::Refresher,
        version::Version,
    },
};

/// One chunk store. Cheap to clone; dropping the last clone closes it.
#[derive(Clone)]
pub struct Store {
    parts: Arc<Parts>,
}

/// Parts of a store, each of which owns its state.
struct Parts {
    lifecycle: Arc<Lifecycle>,
    source: ObjectSource,
    /// Keeps the sidecars on disk, and the floor.
    _on_disk: StoreHandle,
    versions: Arc<Versions>,
    reader: Arc<Reader>,
    prefetcher: Arc<Prefetcher>,
    references: Arc<ReferencePrefetcher>,
    files: Arc<FileServer>,
    usage: Arc<StoreUsage>,
    disk_bytes_max: u64,
    refresher: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.lifecycle.close();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("name", &self.name())
            .field("url", &self.parts.lifecycle.url())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Starts to open a store on the runtime of the settings.
    ///
    /// # Errors
    /// The settings are wrong, or another process uses the cache's directory.
    pub fn start(settings: Settings) -> Result<Self, Error> {
        check_settings(&settings)?;
        let remote = Remote::new(&settings.url, remote_options(&settings))?;
        let cache = open_cache(&settings, StoreShare::default())?;
        let shared = SharedParts { cache, opening: opening_budget() };
        let usage = StoreUsage::new(&settings.name, remote.traffic().clone());
        Ok(Self::start_at(settings, remote, Arc::new(usage), &shared))
    }

    /// Starts to open a store at `remote`, with parts that other stores use, too.
    pub(crate) fn start_at(
        settings: Settings,
        remote: Arc<Remote>,
        usage: Arc<StoreUsage>,
        shared: &SharedParts,
    ) -> Self {
        let cache = shared.cache.clone();
        let on_disk = cache.open_store(remote.url());
        let filter = fill_filter(&settings);
        let source = ObjectSource::new(&settings.url, remote, cache, filter);
        let Settings { name, runtime, peers, .. } = settings;
        let item = source.remote.item().map(|address| settings.tables.reader(address, &runtime));
        let lifecycle = Arc::new(Lifecycle::new(name, source.remote.url(), runtime));
        let versions = Arc::new(Versions::new(lifecycle.clone()));
        let memory = MemoryCache::new(settings.memory_bytes_max);
        let file_chunks = Arc::new(FileChunkReader::new(lifecycle.clone(), source.clone(), memory));
        let local_verifier = Arc::new(LocalVerifier::new(file_chunks.clone()));
        let prefetcher = Arc::new(Prefetcher::new(file_chunks.clone()));
        let references = Arc::new(ReferencePrefetcher::new(
            versions.clone(),
            file_chunks.clone(),
            prefetcher.clone(),
        ));
        let reader = Reader::new(
            versions.clone(),
            file_chunks.clone(),
            references.clone(),
            peers,
            usage.clone(),
        );
        let budget = shared.opening.clone();
        let refresher = Refresher {
            lifecycle: lifecycle.clone(),
            versions: versions.clone(),
            opener: Opener::new(source.clone(), item, budget, settings.occasion, usage.clone()),
            poll: settings.poll,
            occasion: settings.occasion,
            grace_period: settings.grace_period,
        };
        let refresher = lifecycle.spawn(refresher.run());
        let parts = Parts {
            lifecycle,
            source,
            _on_disk: on_disk,
            versions: versions.clone(),
            reader: Arc::new(reader),
            prefetcher,
            references,
            usage,
            files: Arc::new(FileServer::new(versions, file_chunks, local_verifier)),
            disk_bytes_max: settings.disk_bytes_max,
            refresher: Mutex::new(Some(refresher)),
        };
        Self { parts: Arc::new(parts) }
    }

    /// Returns the table's name.
    pub fn name(&self) -> &str {
        self.parts.lifecycle.name()
    }

    /// Returns the URL of the object store, for messages.
    pub fn url(&self) -> &str {
        self.parts.lifecycle.url()
    }

    /// Waits for the first attempt to open the store, or for a later one that succeeded.
    pub async fn opened(&self) -> Result<(), Error> {
        let Parts { lifecycle, versions, .. } = &*self.parts;
        lifecycle.until_closed(async { versions.opened().await.map(drop) }).await
    }

    /// Returns whether the store is served now.
    pub fn status(&self) -> StoreStatus {
        self.parts.lifecycle.status()
    }

    /// Returns the memory of the indexes of the current version, in bytes.
    pub fn index_bytes(&self) -> u64 {
        self.parts.versions.load().as_ref().map_or(0, |version| version.memory_bytes())
    }

    /// Notes that there are requests, for which the manifest has to be read.
    pub(crate) fn note_used(&self) {
        self.parts.versions.note_used();
    }

    /// Returns the current version, if the store was ever opened.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.parts.versions.load().as_ref().map(|version| version.snapshot.clone())
    }

    /// Finds an open file: of the current version, or in its grace period.
    pub fn table_file(&self, id: &FileId) -> Option<Arc<TableFile>> {
        let version = self.parts.versions.load();
        version.as_ref()?.files().find(|file| file.id == *id).cloned()
    }

    /// Reads the manifest now; concurrent callers share one refresh.
    pub async fn refresh(&self) -> Result<(), Error> {
        let Parts { lifecycle, versions, .. } = &*self.parts;
        lifecycle.until_closed(versions.refreshes.refresh()).await
    }

    /// Reads a chunk for a client if that takes neither a device nor the network; never blocks.
    pub fn try_get(&self, address: &ChunkAddress, form: Form) -> Attempt<Option<Chunk>> {
        self.try_get_for(Requester::Client, address, form)
    }

    /// Reads a chunk as [`Store::try_get`] does, whoever asks for it.
    pub fn try_get_for(
        &self,
        requester: Requester,
        address: &ChunkAddress,
        form: Form,
    ) -> Attempt<Option<Chunk>> {
        match self.parts.reader.try_get(address, Wanted::Chunk(form), requester) {
            Attempt::Ready(found) => {
                Attempt::Ready(found.map(|found| found.map(Decoded::into_chunk)))
            }
            Attempt::Wait => Attempt::Wait,
        }
    }

    /// Reads a chunk; none if the store does not hold it, as a refresh has confirmed.
    pub async fn get(
        &self,
        address: ChunkAddress,
        request: Request,
    ) -> Result<Option<Chunk>, Error> {
        let read = ReadRequest::new(address, Wanted::Chunk(request.form), request);
        Ok(self.parts.reader.get(read, request.requester).await?.map(Decoded::into_chunk))
    }

    /// Reads many chunks; neighbours in a file share ranged reads.
    pub fn get_many(&self, addresses: Vec<ChunkAddress>, request: Request) -> ManyReads {
        ManyReads::new(self.parts.reader.clone(), addresses, request)
    }

    /// Tells whether a chunk exists, if the current version knows.
    pub fn try_has(&self, address: &ChunkAddress) -> Attempt<bool> {
        let Parts { lifecycle, versions, .. } = &*self.parts;
        if lifecycle.is_closed() {
            return Attempt::Ready(Err(Error::Closed));
        }
        match &*versions.load() {
            Some(version) if version.find(address).is_some() => Attempt::Ready(Ok(true)),
            Some(_) => Attempt::Wait,
            None => lifecycle.failure().map_or(Attempt::Wait, |error| Attempt::Ready(Err(error))),
        }
    }

    /// Tells which chunks exist; with `local_only`, which are on local disk.
    pub async fn has_many(
        &self,
        addresses: &[ChunkAddress],
        request: Request,
    ) -> Result<Vec<bool>, Error> {
        let Parts { lifecycle, versions, reader, .. } = &*self.parts;
        if lifecycle.is_closed() {
            return Err(Error::Closed);
        }
        let version = versions.opened_by(request.deadline, request.local_only).await?;
        if request.local_only {
            return Ok(addresses
                .iter()
                .map(|address| reader.is_local(&version, address))
                .collect());
        }
        let has = |version: &Version| -> Vec<bool> {
            addresses.iter().map(|address| version.find(address).is_some()).collect()
        };
        let known = has(&version);
        let Some((first, _)) = addresses.iter().zip(&known).find(|(_, known)| !**known) else {
            return Ok(known);
        };
        Ok(has(&*versions.refreshed_by(request.deadline, *first).await?))
    }

    /// Reads the length of a chunk's contents; none if the store does not hold the chunk.
    pub async fn length(
        &self,
        address: ChunkAddress,
        request: Request,
    ) -> Result<Option<u64>, Error> {
        let read = ReadRequest::new(address, Wanted::Length, request);
        Ok(self.parts.reader.get(read, request.requester).await?.map(Decoded::into_length))
    }

    /// Reads a dictionary by the name that [`Chunk::Zstd`] gives.
    pub async fn dictionary(
        &self,
        id: &DictionaryId,
        request: Request,
    ) -> Result<Option<Bytes>, Error> {
        let (reader, id) = (self.parts.reader.clone(), *id);
        let read = async move { reader.dictionary(id, request).await };
        self.parts.lifecycle.run(request.deadline, read).await
    }

    /// Locates chunks in table files. Reads nothing of the chunks; refreshes once if some are in no
    /// open file.
    ///
    /// # Errors
    /// As [`Store::get`], for all chunks: the store is not open, or the refresh failed.
    pub async fn locate(
        &self,
        addresses: &[ChunkAddress],
        deadline: Instant,
    ) -> Result<Located, Error> {
        if self.parts.lifecycle.is_closed() {
            return Err(Error::Closed);
        }
        serve::locate(&self.parts.versions, addresses, deadline).await
    }

    /// Starts to bring located chunks to where they can be read at once, because a client was told
    /// where they are. Returns at once; skips chunks when too many prefetches are in progress.
    pub fn prefetch(&self, located: &Located) {
        self.parts.prefetcher.prefetch(located);
    }

    /// Pins the dictionaries of located chunks, so that [`FileBytes`] can serve them until their
    /// files are closed and dictionaries of other closed files have taken their memory.
    ///
    /// # Errors
    /// A dictionary cannot be read, or is corrupt; those that are pinned by then stay pinned.
    pub async fn pin_dictionaries(
        &self,
        located: &Located,
        deadline: Instant,
    ) -> Result<(), Error> {
        pin_dictionaries(&self.parts.reader.file_chunks, located, deadline).await
    }

    /// Finds a table file by its name; none if the store does not hold it in this version, and for
    /// a journal.
    ///
    /// # Errors
    /// As [`Store::get`]; and [`Error::Unreachable`] when the object store cannot be asked for a
    /// file that no version names.
    pub async fn file_bytes(
        &self,
        id: FileId,
        kind: FileKind,
        version: u64,
        deadline: Instant,
    ) -> Result<Option<FileBytes>, Error> {
        if self.parts.lifecycle.is_closed() {
            return Err(Error::Closed);
        }
        self.parts.files.find(FileKey { id, kind, version }, deadline).await
    }

    /// Returns the bytes of the files of the current version that are to be on this disk.
    pub(crate) fn wanted_bytes(&self) -> u64 {
        let version = self.parts.versions.load();
        version.as_ref().map_or(0, |version| bytes_of(&wanted(&version.snapshot)))
    }

    /// Brings all files of the current version to local disk.
    pub async fn warm(&self, report: &mut (dyn FnMut(Progress) + Send)) -> Result<Progress, Error> {
        let Parts { lifecycle, versions, disk_bytes_max, .. } = &*self.parts;
        let (versions, disk_bytes_max) = (versions.clone(), *disk_bytes_max);
        let job = |reporter| warm(versions, disk_bytes_max, reporter);
        jobs::run(lifecycle, job, &mut |progress, _| report(progress)).await
    }

    /// Reads every chunk of the current version, from the object store where need be, and verifies
    /// it against its address. `report` gets the progress, and each corrupt chunk with its error.
    pub async fn verify(
        &self,
        report: &mut (dyn FnMut(Progress, Option<(ChunkAddress, Error)>) + Send),
    ) -> Result<Progress, Error> {
        let Parts { lifecycle, versions, reader, .. } = &*self.parts;
        let (versions, file_chunks) = (versions.clone(), reader.file_chunks.clone());
        let job = |reporter| verify_all(versions, file_chunks, reporter);
        jobs::run(lifecycle, job, report).await
    }

    /// Verifies every chunk of the current version that is on local disk, except those that are
    /// verified as they are there. Reads wrong ones again from the object store. Waits until the
    /// store is open.
    ///
    /// # Errors
    /// The store is closed, or was never opened; and those of reads.
    pub async fn verify_local(
        &self,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Progress, Error> {
        let Parts { lifecycle, versions, files, .. } = &*self.parts;
        let (versions, verifier) = (versions.clone(), files.local_verifier.clone());
        let job = |reporter| verify_local(versions, verifier, reporter);
        jobs::run(lifecycle, job, &mut |progress, _| report(progress)).await
    }

    /// Returns the disk cache, to inspect it and to drop objects from it.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.parts.source.cache
    }

    /// Returns the counters of what clients got.
    pub fn usage(&self) -> &Arc<StoreUsage> {
        &self.parts.usage
    }

    /// Collects the store's metrics.
    pub fn stats(&self) -> StoreStats {
        let Parts { source, versions, reader, prefetcher, references, usage, .. } = &*self.parts;
        let version = versions.load();
        let snapshot = version.as_ref().map(|version| &version.snapshot);
        let files = snapshot.map_or(0, |snapshot| snapshot.files.len());
        StoreStats {
            versions: versions.count(),
            files: u64::try_from(files).expect("a count has at most 64 bits"),
            chunks: snapshot.map_or(0, |snapshot| snapshot.chunk_count()),
            root: snapshot.map(|snapshot| snapshot.manifest.root),
            index_bytes: version.as_ref().map_or(0, |version| version.memory_bytes()),
            memory_bytes: reader.file_chunks.memory.bytes(),
            corrupt: reader.file_chunks.corrupt_count(),
            prefetches: prefetcher.in_progress(),
            prefetches_skipped: prefetcher.skipped(),
            references_prefetched: references.prefetched(),
            references_read: references.read(),
            usage: usage.stats(),
            cache: source.cache.stats(),
            store: source.remote.stats(),
            ..reader.counters().stats()
        }
    }

    /// Fails waiting and new requests with [`Error::Closed`]; [`Store::close`] does the rest.
    pub fn begin_close(&self) {
        self.parts.lifecycle.close();
    }

    /// Closes the store: fails waiting requests with [`Error::Closed`], ends the refresher, and
    /// closes the cache.
    pub async fn close(&self) {
        let Parts { lifecycle, source, refresher, .. } = &*self.parts;
        lifecycle.close();
        let refresher = refresher.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(refresher) = refresher {
            // The task has ended, whether it panicked or not.
            let _ = refresher.await;
        }
        let cache = source.cache.clone();
        let _ = lifecycle.spawn(async move { cache.close().await }).await;
    }
}

/// Parts that several stores may share.
#[derive(Clone)]
pub(crate) struct SharedParts {
    pub cache: Arc<Cache>,
    /// Memory for indexes in transit.
    pub opening: Arc<MemoryBudget>,
}

/// Returns the memory budget of stores that are being opened.
pub(crate) fn opening_budget() -> Arc<MemoryBudget> {
    Arc::new(MemoryBudget::new(OPENING_BYTES_MAX))
}

/// Returns the filter by which a store brings the files of its peers to no disk.
fn fill_filter(settings: &Settings) -> FillFilter {
    let Some(peers) = settings.peers.clone() else { return FillFilter::default() };
    let name = settings.name.clone();
    FillFilter::new(move |meta| file_id(meta).is_none_or(|id| peers.is_mine(&name, &id)))
}

/// Returns the id with which the name of a table file's object begins.
fn file_id(object: &ObjectMeta) -> Option<FileId> {
    object.name.rsplit('/').next()?.split('.').next()?.parse().ok()
}

pub(crate) fn check_settings(settings: &Settings) -> Result<(), Error> {
    if settings.poll < POLL_MIN {
        return Err(Error::Refused(format!(
            "poll: expected at least {POLL_MIN:?}, got {:?}",
            settings.poll
        )));
    }
    if settings.requests_max == 0 {
        return Err(Error::Refused("requests: expected at least 1, got 0".to_owned()));
    }
    Ok(())
}

pub(crate) fn remote_options(settings: &Settings) -> RemoteOptions {
    RemoteOptions {
        environment: settings.environment.clone(),
        runtime: settings.runtime.clone(),
        requests_max: settings.requests_max,
        stall_timeout: STALL_TIMEOUT,
        attempts_max: ATTEMPTS_MAX,
        hedge: settings.hedge,
    }
}

pub(crate) fn open_cache(
    settings: &Settings,
    store_share: StoreShare,
) -> Result<Arc<Cache>, Error> {
    if settings.disk_bytes_max == 0 {
        return Ok(Cache::none(settings.fill_bytes_max, settings.runtime.clone()));
    }
    Ok(Cache::open(CacheOptions {
        directory: settings.directory.clone(),
        bytes_max: settings.disk_bytes_max,
        free_bytes_min: settings.disk_free_bytes_min,
        fill_bytes_max: settings.fill_bytes_max,
        fill_whole_max: settings.fill_whole_max,
        store_share,
        runtime: settings.runtime.clone(),
    })?)
}
