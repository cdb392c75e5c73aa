//! Dictionaries of archives, ready for use, in bounded memory.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use busload_chunks::{Dictionary, Span};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use quick_cache::{Weighter, sync::Cache};

use crate::{
    Error,
    fault::Fault,
    limits::{DICTIONARIES_BYTES_MAX, DICTIONARY_BYTES_MORE},
    table_file::TableFile,
};

/// A file of this process and a span of it.
type Key = (u64, Span);
type Flight = Shared<BoxFuture<'static, Result<Arc<Dictionary>, Fault>>>;

/// Those in use, and those on their way.
pub(crate) struct Dictionaries {
    ready: Cache<Key, Arc<Dictionary>, Weight>,
    coming: Mutex<HashMap<Key, Flight>>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Arc<Dictionary>> for Weight {
    fn weight(&self, _: &Key, dictionary: &Arc<Dictionary>) -> u64 {
        DICTIONARY_BYTES_MORE + u64::try_from(dictionary.bytes().len()).unwrap_or(u64::MAX / 2)
    }
}

impl Dictionaries {
    pub fn new() -> Self {
        let count = usize::try_from(DICTIONARIES_BYTES_MAX / DICTIONARY_BYTES_MORE).expect("a small number");
        Self { ready: Cache::with_weighter(count, DICTIONARIES_BYTES_MAX, Weight), coming: Mutex::default() }
    }

    pub fn get(&self, file: &TableFile, span: Span) -> Option<Arc<Dictionary>> {
        self.ready.get(&(file.serial, span))
    }

    pub fn insert(&self, file: &TableFile, span: Span, dictionary: Arc<Dictionary>) {
        self.ready.insert((file.serial, span), dictionary);
    }

    /// It, or what was made with it, is not right.
    pub fn remove(&self, file: &TableFile, span: Span) {
        self.ready.remove(&(file.serial, span));
    }

    /// One read for all who wait for the same one. What is given reads and decodes.
    pub async fn get_or_read<F>(
        self: &Arc<Self>,
        file: &TableFile,
        span: Span,
        read: impl FnOnce() -> F,
    ) -> Result<Arc<Dictionary>, Fault>
    where
        F: Future<Output = Result<Arc<Dictionary>, Fault>> + Send + 'static,
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

    fn flight<F>(self: &Arc<Self>, key: Key, read: F) -> Flight
    where
        F: Future<Output = Result<Arc<Dictionary>, Fault>> + Send + 'static,
    {
        let landed = Landed { of: self.clone(), key };
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
struct Landed {
    of: Arc<Dictionaries>,
    key: Key,
}

impl Drop for Landed {
    fn drop(&mut self) {
        self.of.coming.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl fmt::Debug for Dictionaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionaries").field("ready", &self.ready.len()).finish_non_exhaustive()
    }
}
