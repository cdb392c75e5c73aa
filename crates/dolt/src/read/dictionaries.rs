//! Dictionaries of archives, ready for use, in bounded memory.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use busload_chunks::{Dictionary, FormatError, Span};
use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use quick_cache::{Weighter, sync::Cache};

use crate::{
    Error,
    fault::Fault,
    limits::{DICTIONARIES_BYTES_MAX, DICTIONARY_BYTES_MORE},
    versions::table_file::TableFile,
};

/// A file of this process and a span of it.
type Key = (u64, Span);
type Fetch = Shared<BoxFuture<'static, Result<Arc<LoadedDictionary>, Fault>>>;

/// A dictionary, and whether a chunk came out right with it: if so, a chunk that does not is wrong
/// itself.
pub(crate) struct LoadedDictionary {
    dictionary: Dictionary,
    /// As its file has it.
    stored: Bytes,
    is_right: AtomicBool,
}

impl LoadedDictionary {
    /// From the bytes of its span, which are copied: they may be a part of something large.
    pub fn decode(span: &[u8]) -> Result<Self, FormatError> {
        let (dictionary, stored) = (Dictionary::decode(span)?, Bytes::copy_from_slice(span));
        Ok(Self { dictionary, stored, is_right: AtomicBool::new(false) })
    }

    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// The bytes of its span, if a chunk came out right with it.
    pub fn stored_if_verified(&self) -> Option<Bytes> {
        self.is_right.load(Relaxed).then(|| self.stored.clone())
    }

    /// A chunk that was made with it is that of its address.
    pub fn mark_verified(&self) {
        // Not written again and again, so that readers on several cores do not take the line from
        // each other.
        if !self.is_right.load(Relaxed) {
            self.is_right.store(true, Relaxed);
        }
    }
}

/// Those in use, and those on their way.
pub(crate) struct Dictionaries {
    ready: Cache<Key, Arc<LoadedDictionary>, Weight>,
    coming: Mutex<HashMap<Key, Fetch>>,
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
    pub fn new() -> Self {
        let count = usize::try_from(DICTIONARIES_BYTES_MAX / DICTIONARY_BYTES_MORE)
            .expect("a small number");
        Self {
            ready: Cache::with_weighter(count, DICTIONARIES_BYTES_MAX, Weight),
            coming: Mutex::default(),
        }
    }

    pub fn get(&self, file: &TableFile, span: Span) -> Option<Arc<LoadedDictionary>> {
        self.ready.get(&(file.serial, span))
    }

    pub fn insert(&self, file: &TableFile, span: Span, dictionary: Arc<LoadedDictionary>) {
        self.ready.insert((file.serial, span), dictionary);
    }

    /// Something that was made with it is not right. Returns whether it is to be read again:
    /// nothing was right yet.
    pub fn doubt(&self, file: &TableFile, span: Span) -> bool {
        let key = (file.serial, span);
        let is_right =
            self.ready.get(&key).is_some_and(|dictionary| dictionary.is_right.load(Relaxed));
        if !is_right {
            self.ready.remove(&key);
        }
        !is_right
    }

    /// It is to be read again, whatever came out right with it.
    pub fn forget(&self, file: &TableFile, span: Span) {
        self.ready.remove(&(file.serial, span));
    }

    /// One read for all who wait for the same one. What is given reads and decodes.
    pub async fn get_or_read<F>(
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
        let flight = {
            let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
            coming.entry(key).or_insert_with(|| self.flight(key, read())).clone()
        };
        flight.await
    }

    fn flight<F>(self: &Arc<Self>, key: Key, read: F) -> Fetch
    where
        F: Future<Output = Result<Arc<LoadedDictionary>, Fault>> + Send + 'static,
    {
        let landed = FetchEntry { of: self.clone(), key };
        // A task of its own, so that it lands even if those who wait for it give up.
        let task = tokio::spawn(async move {
            let read = read.await;
            if let Ok(dictionary) = &read {
                landed.of.ready.insert(key, dictionary.clone());
            }
            drop(landed);
            read
        });
        let flight = async move {
            match task.await {
                Ok(read) => read,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => Err(Fault::Error(Error::Closed)),
            }
        };
        flight.boxed().shared()
    }
}

/// Takes a flight from the table however it ends.
struct FetchEntry {
    of: Arc<Dictionaries>,
    key: Key,
}

impl Drop for FetchEntry {
    fn drop(&mut self) {
        self.of.coming.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl fmt::Debug for Dictionaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionaries").field("ready", &self.ready.len()).finish_non_exhaustive()
    }
}
