//! Dictionaries of archives, loaded for use, in bounded memory.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use busload_chunks::{Dictionary, FormatError, Span};
use busload_objects::{ReadOptions, Reading};
use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use quick_cache::{Weighter, sync::Cache};
use tokio::time;

use crate::{
    Error,
    fault::Fault,
    limits::{
        DICTIONARIES_BYTES_MAX, DICTIONARY_BYTES_MORE, DICTIONARY_STORED_BYTES_MAX,
        DICTIONARY_TIMEOUT, INLINE_STORED_BYTES_MAX,
    },
    versions::table_file::{TableFile, range},
};

/// Serial number of an open file, and a span of it.
type Key = (u64, Span);
/// One read of a dictionary that concurrent requests wait for.
type Fetch = Shared<BoxFuture<'static, Result<Arc<LoadedDictionary>, Fault>>>;

/// A dictionary, and whether a chunk was verified with it. If so, another chunk that fails to
/// verify is most likely wrong itself.
pub(crate) struct LoadedDictionary {
    dictionary: Dictionary,
    /// Bytes of the span, as the file holds them.
    stored: Bytes,
    is_verified: AtomicBool,
}

impl LoadedDictionary {
    /// Decodes the bytes of a span. Copies them, because they may be part of a larger buffer.
    pub fn decode(span: &[u8]) -> Result<Self, FormatError> {
        let (dictionary, stored) = (Dictionary::decode(span)?, Bytes::copy_from_slice(span));
        Ok(Self { dictionary, stored, is_verified: AtomicBool::new(false) })
    }

    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Returns the bytes of the span, if a chunk was verified with the dictionary.
    pub fn stored_if_verified(&self) -> Option<Bytes> {
        self.is_verified.load(Relaxed).then(|| self.stored.clone())
    }

    /// Notes that a chunk was verified with the dictionary.
    pub fn mark_verified(&self) {
        // Written once, so that readers on several cores do not contend for the cache line.
        if !self.is_verified.load(Relaxed) {
            self.is_verified.store(true, Relaxed);
        }
    }
}

/// Loaded dictionaries, and fetches in progress.
#[derive(Default)]
pub(crate) struct Dictionaries {
    /// Made with the first dictionary: many stores have none.
    loaded: OnceLock<Cache<Key, Arc<LoadedDictionary>, Weight>>,
    fetches: Mutex<HashMap<Key, Fetch>>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Arc<LoadedDictionary>> for Weight {
    fn weight(&self, _: &Key, dictionary: &Arc<LoadedDictionary>) -> u64 {
        let bytes = dictionary.dictionary.bytes().len() + dictionary.stored.len();
        DICTIONARY_BYTES_MORE + u64::try_from(bytes).unwrap_or(u64::MAX / 2)
    }
}

impl Dictionaries {
    pub fn get(&self, file: &TableFile, span: Span) -> Option<Arc<LoadedDictionary>> {
        self.loaded.get()?.get(&(file.serial, span))
    }

    pub fn insert(&self, file: &TableFile, span: Span, dictionary: Arc<LoadedDictionary>) {
        self.insert_at((file.serial, span), dictionary);
    }

    fn insert_at(&self, key: Key, dictionary: Arc<LoadedDictionary>) {
        let loaded = self.loaded.get_or_init(|| {
            let count = usize::try_from(DICTIONARIES_BYTES_MAX / DICTIONARY_BYTES_MORE)
                .expect("a small number");
            Cache::with_weighter(count, DICTIONARIES_BYTES_MAX, Weight)
        });
        loaded.insert(key, dictionary);
    }

    /// Evicts a dictionary with which a chunk failed to verify, unless another chunk was verified
    /// with it. Returns whether it has to be read again.
    pub fn evict_unless_verified(&self, file: &TableFile, span: Span) -> bool {
        let is_verified =
            self.get(file, span).is_some_and(|dictionary| dictionary.is_verified.load(Relaxed));
        if !is_verified {
            self.evict(file, span);
        }
        !is_verified
    }

    /// Evicts a dictionary, so that it is read again.
    pub fn evict(&self, file: &TableFile, span: Span) {
        if let Some(loaded) = self.loaded.get() {
            loaded.remove(&(file.serial, span));
        }
    }

    /// Returns a dictionary that is loaded, or can be without waiting.
    pub fn try_load(&self, file: &TableFile, span: Span) -> Option<Arc<LoadedDictionary>> {
        if let Some(dictionary) = self.get(file, span) {
            return Some(dictionary);
        }
        if INLINE_STORED_BYTES_MAX < span.length {
            return None;
        }
        let bytes = file.object.try_read(range(span))?;
        let dictionary = Arc::new(LoadedDictionary::decode(&bytes).ok()?);
        self.insert(file, span, dictionary.clone());
        Some(dictionary)
    }

    /// Returns a dictionary, waiting for its bytes if need be. Chunks that are decoded with it show
    /// whether it is right.
    pub async fn load(
        self: &Arc<Self>,
        file: &Arc<TableFile>,
        span: Span,
        options: ReadOptions,
    ) -> Result<Arc<LoadedDictionary>, Fault> {
        if let Some(dictionary) = self.try_load(file, span) {
            return Ok(dictionary);
        }
        if DICTIONARY_STORED_BYTES_MAX < span.length {
            return Err(Fault::Corrupt(format!(
                "its dictionary has {} bytes, expected at most {DICTIONARY_STORED_BYTES_MAX}",
                span.length
            )));
        }
        if options.local_only {
            return decode(file.object.read(range(span), options)).await;
        }
        let object = file.object.clone();
        let read = || {
            let deadline = (time::Instant::now() + DICTIONARY_TIMEOUT).into_std();
            decode(object.read(range(span), ReadOptions { deadline, local_only: false }))
        };
        self.get_or_fetch(file, span, read).await
    }

    /// Returns a loaded dictionary, or starts a fetch that concurrent callers share. `read` reads
    /// and decodes.
    async fn get_or_fetch<F>(
        self: &Arc<Self>,
        file: &TableFile,
        span: Span,
        read: impl FnOnce() -> F,
    ) -> Result<Arc<LoadedDictionary>, Fault>
    where
        F: Future<Output = Result<Arc<LoadedDictionary>, Fault>> + Send + 'static,
    {
        if let Some(dictionary) = self.get(file, span) {
            return Ok(dictionary);
        }
        let key = (file.serial, span);
        let fetch = {
            let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
            fetches.entry(key).or_insert_with(|| self.start_fetch(key, read())).clone()
        };
        fetch.await
    }

    fn start_fetch<F>(self: &Arc<Self>, key: Key, read: F) -> Fetch
    where
        F: Future<Output = Result<Arc<LoadedDictionary>, Fault>> + Send + 'static,
    {
        let entry = FetchEntry { dictionaries: self.clone(), key };
        // A task of its own, so that the fetch completes even if all waiters give up.
        let task = tokio::spawn(async move {
            let read = read.await;
            if let Ok(dictionary) = &read {
                entry.dictionaries.insert_at(key, dictionary.clone());
            }
            drop(entry);
            read
        });
        let fetch = async move {
            match task.await {
                Ok(read) => read,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => Err(Fault::Error(Error::Closed)),
            }
        };
        fetch.boxed().shared()
    }
}

async fn decode(reading: Reading) -> Result<Arc<LoadedDictionary>, Fault> {
    let bytes = reading.await?;
    Ok(Arc::new(LoadedDictionary::decode(&bytes)?))
}

/// Removes a fetch from the table when it completes, fails or panics.
struct FetchEntry {
    dictionaries: Arc<Dictionaries>,
    key: Key,
}

impl Drop for FetchEntry {
    fn drop(&mut self) {
        self.dictionaries.fetches.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl fmt::Debug for Dictionaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionaries")
            .field("loaded", &self.loaded.get().map_or(0, Cache::len))
            .finish_non_exhaustive()
    }
}
