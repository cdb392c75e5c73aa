//! The store.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use busload_chunks::{ChunkAddress, FileId, FileKind};
use busload_objects::{Cache, CacheOptions, Progress, Remote, RemoteOptions};
use bytes::Bytes;
use tokio::task::{JoinHandle, coop::consume_budget};

use crate::{
    Attempt, Chunk, DictionaryId, Error, Form, ManyReads, Request, Settings, Snapshot, StoreStats,
    StoreStatus,
    fault::Fault,
    limits::{ATTEMPTS_MAX, POLL_MIN, STALL_TIMEOUT},
    read::decode::{Decoded, Wanted},
    read::reader::ReadRequest,
    shared::{Parts, Shared},
    task::blocking,
    versions::opener::Opener,
    versions::refresher::Refresher,
    versions::table_file::{TableFile, range},
    versions::version::{ChunkCopy, Version},
};

/// One chunk store. Cheap to clone; the last clone ends it.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

/// What ends the store when it is dropped.
struct Handle {
    shared: Arc<Shared>,
    refresher: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.set_closed();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, remote, .. } = &**self.shared();
        f.debug_struct("Store")
            .field("name", name)
            .field("url", &remote.url())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Starts to open it on the settings' runtime. An error is one of the settings, or another
    /// process in the cache's directory.
    pub fn start(settings: Settings) -> Result<Self, Error> {
        check_settings(&settings)?;
        let remote = Remote::new(&settings.url, remote_options(&settings))?;
        let cache = open_cache(&settings)?;
        let opener = Opener::new(&settings.url, remote.clone(), cache.clone());
        let shared = Arc::new(Shared::new(Parts { settings, remote, cache }));
        let refresher = shared.runtime.spawn(Refresher::new(shared.clone(), opener).run());
        Ok(Self { handle: Arc::new(Handle { shared, refresher: Mutex::new(Some(refresher)) }) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// The outcome of the first attempt to open it, or of a later one that succeeded.
    pub async fn opened(&self) -> Result<(), Error> {
        let shared = self.shared().clone();
        tokio::select! {
            biased;
            () = shared.closed() => Err(Error::Closed),
            opened = shared.opened_version() => opened.map(drop),
        }
    }

    /// Now.
    pub fn status(&self) -> StoreStatus {
        self.shared().state.borrow().clone()
    }

    /// The current version.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.shared().version.load().as_ref().map(|version| version.snapshot.clone())
    }

    /// An open file: of the current version, or dropped from the manifest lately.
    pub fn table_file(&self, id: &FileId) -> Option<Arc<TableFile>> {
        let version = self.shared().version.load();
        version.as_ref()?.files().find(|file| file.id == *id).cloned()
    }

    /// Looks at the manifest now, together with whoever else asks.
    pub async fn refresh(&self) -> Result<(), Error> {
        let shared = self.shared();
        tokio::select! {
            biased;
            () = shared.closed() => Err(Error::Closed),
            outcome = shared.checks.check() => outcome,
        }
    }

    /// A chunk that can be had without waiting for a device or the network; never blocks.
    pub fn try_get(&self, address: &ChunkAddress, form: Form) -> Attempt<Option<Chunk>> {
        match self.shared().try_answer(address, Wanted::Chunk(form)) {
            Attempt::Ready(answer) => {
                Attempt::Ready(answer.map(|answer| answer.map(Decoded::into_chunk)))
            }
            Attempt::Wait => Attempt::Wait,
        }
    }

    /// A chunk; none if the store does not hold it, which is certain.
    pub async fn get(
        &self,
        address: ChunkAddress,
        request: Request,
    ) -> Result<Option<Chunk>, Error> {
        let want = Wanted::Chunk(request.form);
        Ok(self.answer(address, want, request).await?.map(Decoded::into_chunk))
    }

    /// Many chunks: nearby ones share trips.
    pub fn get_many(&self, addresses: Vec<ChunkAddress>, request: Request) -> ManyReads {
        ManyReads::new(self.shared().clone(), addresses, request)
    }

    /// Whether a chunk exists, if that is known without a trip.
    pub fn try_has(&self, address: &ChunkAddress) -> Attempt<bool> {
        let shared = self.shared();
        if shared.is_closed() {
            return Attempt::Ready(Err(Error::Closed));
        }
        match &*shared.version.load() {
            Some(version) if version.find(address).is_some() => Attempt::Ready(Ok(true)),
            Some(_) => Attempt::Wait,
            None => shared.failure().map_or(Attempt::Wait, |error| Attempt::Ready(Err(error))),
        }
    }

    /// Whether each exists (`local_only`: is on local disk).
    pub async fn has_many(
        &self,
        addresses: &[ChunkAddress],
        request: Request,
    ) -> Result<Vec<bool>, Error> {
        let shared = self.shared();
        if shared.is_closed() {
            return Err(Error::Closed);
        }
        let version = match shared.version.load_full() {
            Some(version) => version,
            None if request.local_only => return Err(shared.failure().unwrap_or(Error::NotLocal)),
            None => {
                let waiting = shared.clone();
                shared.run(request.deadline, async move { waiting.opened_version().await }).await?
            }
        };
        if request.local_only {
            return Ok(addresses
                .iter()
                .map(|address| shared.is_local(&version, address))
                .collect());
        }
        let has = |version: &Version| {
            addresses.iter().map(|address| version.find(address).is_some()).collect()
        };
        let known: Vec<bool> = has(&version);
        let Some((first, _)) = addresses.iter().zip(&known).find(|(_, known)| !**known) else {
            return Ok(known);
        };
        let (waiting, first) = (shared.clone(), *first);
        let check = async move { waiting.refreshed_version(&first).await };
        Ok(has(&*shared.run(request.deadline, check).await?))
    }

    /// The length of a chunk's contents.
    pub async fn length(
        &self,
        address: ChunkAddress,
        request: Request,
    ) -> Result<Option<u64>, Error> {
        Ok(self.answer(address, Wanted::Length, request).await?.map(Decoded::into_length))
    }

    /// A dictionary by the name a stored chunk gave.
    pub async fn dictionary(
        &self,
        id: &DictionaryId,
        request: Request,
    ) -> Result<Option<Bytes>, Error> {
        let (shared, id) = (self.shared().clone(), *id);
        self.shared()
            .run(request.deadline, async move { shared.find_dictionary(id, request).await })
            .await
    }

    /// Brings everything to local disk.
    pub async fn warm(&self, report: &mut (dyn FnMut(Progress) + Send)) -> Result<Progress, Error> {
        self.shared().warm(report).await
    }

    /// Reads and checks every chunk of the current version against its address, from the object
    /// store where need be. The function gets the progress, and each address with what is wrong
    /// with it.
    pub async fn verify(
        &self,
        report: &mut (dyn FnMut(Progress, Option<(ChunkAddress, Error)>) + Send),
    ) -> Result<Progress, Error> {
        self.shared().verify(report).await
    }

    /// Compares every chunk of the current version that is on local disk with its address, but for
    /// those that were compared as they are there. Wrong ones are read again from the object store.
    /// Before the store has been opened: nothing.
    ///
    /// # Errors
    /// The store is closed, or was never opened; and those of reads.
    pub async fn verify_local(
        &self,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Progress, Error> {
        self.shared().verify_local(report).await
    }

    /// The cache, for looking at it and dropping from it.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.shared().cache
    }

    /// Metrics.
    pub fn stats(&self) -> StoreStats {
        let shared = self.shared();
        let version = shared.version.load();
        let snapshot = version.as_ref().map(|version| &version.snapshot);
        StoreStats {
            files: snapshot.map_or(0, |snapshot| {
                u64::try_from(snapshot.files.len()).expect("a count has at most 64 bits")
            }),
            chunks: snapshot.map_or(0, |snapshot| snapshot.chunk_count()),
            root: snapshot.map(|snapshot| snapshot.manifest.root),
            index_bytes: version.as_ref().map_or(0, |version| version.memory_bytes()),
            memory_bytes: shared.memory.bytes(),
            prefetches: shared.prefetches.under_way(),
            prefetches_skipped: shared.prefetches.skipped(),
            cache: shared.cache.stats(),
            store: shared.remote.stats(),
            ..shared.counters.stats()
        }
    }

    /// What waits is answered with [`Error::Closed`] from now on, and so is what comes;
    /// [`Store::close`] does the rest.
    pub fn begin_close(&self) {
        self.shared().set_closed();
    }

    /// Ends it: what waits is answered with [`Error::Closed`].
    pub async fn close(&self) {
        let shared = self.shared();
        shared.set_closed();
        let refresher = self.handle.refresher.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(refresher) = refresher {
            // However the task ended, it has.
            let _ = refresher.await;
        }
        let cache = shared.cache.clone();
        let _ = shared.runtime.spawn(async move { cache.close().await }).await;
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    async fn answer(
        &self,
        address: ChunkAddress,
        want: Wanted,
        request: Request,
    ) -> Result<Option<Decoded>, Error> {
        let shared = self.shared();
        if let Attempt::Ready(answer) = shared.try_answer(&address, want) {
            // Whoever asks in a loop lets others run now and then, as with anything else that is
            // awaited.
            consume_budget().await;
            return answer;
        }
        let Request { local_only, deadline, .. } = request;
        let job = ReadRequest { address, want, local_only, deadline };
        let waiting = shared.clone();
        shared.run(deadline, async move { waiting.answer(job).await }).await
    }
}

impl Shared {
    fn is_local(&self, version: &Version, address: &ChunkAddress) -> bool {
        version.find(address).is_some_and(|(file, position)| {
            let location = file.location(position);
            let is_local = |span| file.object.is_local(range(span));
            let has_dictionary = |span| {
                self.dictionaries.get(file, span).is_some() || file.object.is_local(range(span))
            };
            is_local(location.span) && location.dictionary.is_none_or(has_dictionary)
        })
    }

    /// A dictionary is as right as what was made with it: so a chunk is read first that needs it.
    async fn find_dictionary(
        self: &Arc<Self>,
        id: DictionaryId,
        request: Request,
    ) -> Result<Option<Bytes>, Error> {
        let version = self.opened_version().await?;
        let (wanted, span) = (id.file(), id.span());
        let candidates =
            version.files().filter(|file| file.id == wanted && file.kind == FileKind::Archive);
        for file in candidates.cloned().collect::<Vec<_>>() {
            let looked = file.clone();
            let chunk = move || {
                looked.has_dictionary(span).then(|| looked.chunk_with_dictionary(span)).flatten()
            };
            let Some((address, position)) = blocking(chunk).await? else { continue };
            let Request { local_only, deadline, .. } = request;
            let job = ReadRequest { address, want: Wanted::Length, local_only, deadline };
            let place = ChunkCopy { file: file.clone(), position };
            let dictionary = match self.read_copy(&place, None, job).await {
                Ok(_) => self.read_dictionary(&file, span, job).await,
                Err(fault) => Err(fault),
            };
            return dictionary
                .map(|dictionary| Some(dictionary.dictionary().bytes().clone()))
                .map_err(|fault| match fault {
                    Fault::Error(error) => error,
                    Fault::Corrupt(text) => Error::Corrupt(text),
                    Fault::Gone => {
                        Error::Unreachable(format!("{} is being replaced: ask again", file.name()))
                    }
                });
        }
        Ok(None)
    }
}

fn check_settings(settings: &Settings) -> Result<(), Error> {
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

fn remote_options(settings: &Settings) -> RemoteOptions {
    RemoteOptions {
        environment: settings.environment.clone(),
        runtime: settings.runtime.clone(),
        requests_max: settings.requests_max,
        stall_timeout: STALL_TIMEOUT,
        attempts_max: ATTEMPTS_MAX,
    }
}

fn open_cache(settings: &Settings) -> Result<Arc<Cache>, Error> {
    if settings.disk_bytes_max == 0 {
        return Ok(Cache::none(settings.fill_bytes_max, settings.runtime.clone()));
    }
    Ok(Cache::open(CacheOptions {
        directory: settings.directory.clone(),
        bytes_max: settings.disk_bytes_max,
        free_bytes_min: settings.disk_free_bytes_min,
        fill_bytes_max: settings.fill_bytes_max,
        fill_whole_max: settings.fill_whole_max,
        runtime: settings.runtime.clone(),
    })?)
}

impl Decoded {
    pub(crate) fn into_chunk(self) -> Chunk {
        match self {
            Self::Chunk(chunk) => chunk,
            Self::Length(_) => unreachable!("a chunk was asked for"),
        }
    }

    fn into_length(self) -> u64 {
        match self {
            Self::Length(length) => length,
            Self::Chunk(_) => unreachable!("the length was asked for"),
        }
    }
}
