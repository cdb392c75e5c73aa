//! What all handles of a store share, and the way without waiting.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use busload_chunks::{ChunkAddress, Span};
use busload_objects::{Cache, Remote};
use tokio::{runtime::Handle, sync::watch};

use crate::{
    Attempt, Chunk, Error, Form,
    limits::{INLINE_CONTENTS_BYTES_MAX, INLINE_STORED_BYTES_MAX},
    read::decode::{Decoded, RawChunk, Trust, Wanted},
    read::dictionaries::{Dictionaries, LoadedDictionary},
    read::known_corruption::KnownCorruption,
    read::memory_cache::MemoryCache,
    serve::{LocalVerifier, Prefetches},
    state::StoreStatus,
    stats::{Counters, Origin},
    versions::dropped_files::DroppedFiles,
    versions::refresh_coalescer::RefreshCoalescer,
    versions::table_file::{TableFile, range},
    versions::version::Version,
};

/// What all handles of a store share.
pub(crate) struct Shared {
    pub name: String,
    pub poll: Duration,
    pub grace_period: Duration,
    pub disk_bytes_max: u64,
    pub runtime: Handle,
    pub remote: Arc<Remote>,
    pub cache: Arc<Cache>,
    /// None until the store was opened for the first time.
    pub version: ArcSwapOption<Version>,
    pub state: watch::Sender<StoreStatus>,
    pub checks: RefreshCoalescer,
    pub memory: MemoryCache,
    pub dictionaries: Arc<Dictionaries>,
    pub corruption: KnownCorruption,
    pub counters: Counters,
    pub prefetches: Prefetches,
    pub copies: LocalVerifier,
    pub old_files: DroppedFiles,
    is_closed: AtomicBool,
    closed: watch::Sender<()>,
}

/// What a store is made of.
pub(crate) struct Parts {
    pub settings: crate::Settings,
    pub remote: Arc<Remote>,
    pub cache: Arc<Cache>,
}

impl Shared {
    pub fn new(parts: Parts) -> Self {
        let Parts { settings, remote, cache } = parts;
        Self {
            name: settings.name,
            poll: settings.poll,
            grace_period: settings.grace_period,
            disk_bytes_max: settings.disk_bytes_max,
            runtime: settings.runtime,
            remote,
            cache,
            version: ArcSwapOption::empty(),
            state: watch::Sender::new(StoreStatus::Opening),
            checks: RefreshCoalescer::new(),
            memory: MemoryCache::new(settings.memory_bytes_max),
            dictionaries: Arc::new(Dictionaries::new()),
            corruption: KnownCorruption::default(),
            counters: Counters::default(),
            prefetches: Prefetches::new(),
            copies: LocalVerifier::default(),
            old_files: DroppedFiles::default(),
            is_closed: AtomicBool::new(false),
            closed: watch::Sender::new(()),
        }
    }

    /// Whoever waits is answered with [`Error::Closed`] from now on.
    pub fn set_closed(&self) {
        self.is_closed.store(true, Relaxed);
        self.closed.send_replace(());
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// When the store has been closed.
    pub async fn closed(&self) {
        let mut closed = self.closed.subscribe();
        // What is sent after the look at the flag is noticed by the subscription made before it.
        while !self.is_closed() && closed.changed().await.is_ok() {}
    }

    /// An answer that takes no waiting, counted if there is one. That a chunk does not exist is
    /// none of these.
    pub fn try_answer(&self, address: &ChunkAddress, want: Wanted) -> Attempt<Option<Decoded>> {
        match self.try_find(address, want) {
            Some(Ok((answer, origin))) => {
                self.counters.count_found(origin);
                Attempt::Ready(Ok(Some(answer)))
            }
            Some(Err(error)) => {
                self.counters.count_other(Some(&error));
                Attempt::Ready(Err(error))
            }
            None => Attempt::Wait,
        }
    }

    /// Why nothing can be answered at all, if that is so.
    pub fn failure(&self) -> Option<Error> {
        match &*self.state.borrow() {
            StoreStatus::Failed(error) => Some(error.clone()),
            StoreStatus::Opening | StoreStatus::Open => None,
        }
    }

    fn try_find(
        &self,
        address: &ChunkAddress,
        want: Wanted,
    ) -> Option<Result<(Decoded, Origin), Error>> {
        if self.is_closed() {
            return Some(Err(Error::Closed));
        }
        if let Some(answer) = self.remembered(address, want) {
            return Some(Ok((answer, Origin::MemoryCache)));
        }
        let version = self.version.load();
        let Some(version) = version.as_ref() else {
            return self.failure().map(Err);
        };
        let (file, position) = version.find(address)?;
        let answer = self.try_read(file, position, address, want)?;
        Some(Ok((answer, Origin::Disk)))
    }

    fn remembered(&self, address: &ChunkAddress, want: Wanted) -> Option<Decoded> {
        match want {
            Wanted::Chunk(Form::Contents) => {
                self.memory.get(address).map(Chunk::Contents).map(Decoded::Chunk)
            }
            Wanted::Length => {
                let contents = self.memory.get(address)?;
                Some(Decoded::Length(
                    u64::try_from(contents.len()).expect("lengths have at most 64 bits"),
                ))
            }
            Wanted::Chunk(Form::Stored | Form::Record) => None,
        }
    }

    /// From local disk, if that takes neither a device nor long. Whatever is wrong is left to who
    /// may wait.
    pub fn try_read(
        &self,
        file: &TableFile,
        position: u32,
        address: &ChunkAddress,
        want: Wanted,
    ) -> Option<Decoded> {
        let location = file.location(position);
        if INLINE_STORED_BYTES_MAX < location.span.length {
            return None;
        }
        let writes = file.object.disk_writes();
        let bytes = file.object.try_read(range(location.span))?;
        let is_same = || file.object.disk_writes() == writes;
        let trust = match file.verified.has(position, writes) && is_same() {
            true => Trust::Verified,
            false => Trust::Unverified,
        };
        let raw = RawChunk::parse(bytes, location).ok()?;
        let dictionary = match want.needs_contents(trust, &location) {
            true if INLINE_CONTENTS_BYTES_MAX < raw.contents_bytes().ok()? => return None,
            true => match location.dictionary {
                Some(span) => Some(self.try_dictionary(file, span)?),
                None => None,
            },
            false => None,
        };
        let with = dictionary.as_deref().map(LoadedDictionary::dictionary);
        let answer = raw.answer(address, &file.id, with, (want, trust)).ok()?;
        if trust == Trust::Unverified && is_same() {
            file.verified.set(position, writes);
            dictionary.iter().for_each(|dictionary| dictionary.mark_verified());
        }
        self.remember(address, &answer);
        Some(answer)
    }

    /// Keeps checked contents in memory.
    pub fn remember(&self, address: &ChunkAddress, answer: &Decoded) {
        if let Decoded::Chunk(Chunk::Contents(contents)) = answer {
            self.memory.insert(*address, contents);
        }
    }

    /// A dictionary that is ready, or on local disk.
    pub fn try_dictionary(&self, file: &TableFile, span: Span) -> Option<Arc<LoadedDictionary>> {
        if let Some(dictionary) = self.dictionaries.get(file, span) {
            return Some(dictionary);
        }
        if INLINE_STORED_BYTES_MAX < span.length {
            return None;
        }
        let bytes = file.object.try_read(range(span))?;
        let dictionary = Arc::new(LoadedDictionary::decode(&bytes).ok()?);
        self.dictionaries.insert(file, span, dictionary.clone());
        Some(dictionary)
    }
}
