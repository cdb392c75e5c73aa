//! A [`Batcher`] over plain functions, without a trait to implement.
//!
//! [`Batcher::from_load`] takes a function from many keys to many values;
//! [`Batcher::from_functions`] also takes one that stores. Per-key errors, merged writes, outcomes
//! of writes and memory accounting of large keys and values need a [`Service`].

use std::convert::Infallible;
use std::hash::Hash;
use std::pin::Pin;

use crate::service::{LoadedAll, StoredAll};
use crate::{Batcher, BatcherSettings, LastWins, NoWrites, Service, SettingsError};

type BatchFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;
type LoadFunction<K, V, E> = Box<dyn Fn(Vec<K>) -> BatchFuture<Vec<Option<V>>, E> + Send + Sync>;
type StoreFunction<K, V, E> = Box<dyn Fn(Vec<(K, V)>) -> BatchFuture<(), E> + Send + Sync>;

/// Return types of a function that loads: the values in the order of its keys, or a `Result` of
/// them.
pub trait LoadOutput {
    /// Value found under one key.
    type Value;
    /// Error of a whole batch, for all of its keys.
    type Error;

    /// Returns the values, or why there are none.
    ///
    /// # Errors
    /// Returns the function's error.
    fn values(self) -> Result<Vec<Option<Self::Value>>, Self::Error>;
}

impl<V> LoadOutput for Vec<Option<V>> {
    type Value = V;
    type Error = Infallible;

    fn values(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl<V, E> LoadOutput for Result<Vec<Option<V>>, E> {
    type Value = V;
    type Error = E;

    fn values(self) -> Self {
        self
    }
}

/// Return types of a function that stores: nothing, or a `Result` of nothing.
pub trait StoreOutput<E> {
    /// Returns whether all was stored.
    ///
    /// # Errors
    /// Returns the function's error.
    fn done(self) -> Result<(), E>;
}

impl<E> StoreOutput<E> for () {
    fn done(self) -> Result<(), E> {
        Ok(())
    }
}

impl<E> StoreOutput<E> for Result<(), E> {
    fn done(self) -> Self {
        self
    }
}

/// The service behind [`Batcher::from_load`]: a function that loads.
pub struct ReadFunction<K, V, E = Infallible> {
    load: LoadFunction<K, V, E>,
}

/// The service behind [`Batcher::from_functions`]: a function that loads and one that stores.
pub struct Functions<K, V, E = Infallible> {
    load: LoadFunction<K, V, E>,
    store: StoreFunction<K, V, E>,
}

impl<K, V, E> Batcher<ReadFunction<K, V, E>>
where
    K: Clone + Eq + Hash + Ord + Send + 'static,
    V: Clone + Send + 'static,
    E: Clone + Send + 'static,
{
    /// Starts a batcher over an async function that takes keys, sorted and each once, and returns
    /// their values in the same order; `None` for a key without a value. The function may return
    /// `Vec<Option<V>>` or a `Result` of that.
    ///
    /// # Errors
    /// Returns the first setting that makes no sense.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn from_load<F, T>(load: F, settings: BatcherSettings) -> Result<Self, SettingsError>
    where
        F: Fn(Vec<K>) -> T + Send + Sync + 'static,
        T: Future<Output: LoadOutput<Value = V, Error = E>> + Send + 'static,
    {
        Self::from_service(ReadFunction { load: load_function(load) }, settings)
    }
}

impl<K, V, E> Batcher<Functions<K, V, E>>
where
    K: Clone + Eq + Hash + Ord + Send + 'static,
    V: Clone + Send + 'static,
    E: Clone + Send + 'static,
{
    /// Starts a batcher over two async functions: `load` as in [`from_load`](Batcher::from_load),
    /// and one that stores values under keys, sorted and each once. The latter may return nothing
    /// or a `Result` of nothing, with the error type of `load`.
    ///
    /// # Errors
    /// Returns the first setting that makes no sense.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn from_functions<F, T, G, U>(
        load: F,
        store: G,
        settings: BatcherSettings,
    ) -> Result<Self, SettingsError>
    where
        F: Fn(Vec<K>) -> T + Send + Sync + 'static,
        T: Future<Output: LoadOutput<Value = V, Error = E>> + Send + 'static,
        G: Fn(Vec<(K, V)>) -> U + Send + Sync + 'static,
        U: Future<Output: StoreOutput<E>> + Send + 'static,
    {
        let store: StoreFunction<K, V, E> = Box::new(move |entries| {
            let batch = store(entries);
            Box::pin(async move { batch.await.done() })
        });
        Self::from_service(Functions { load: load_function(load), store }, settings)
    }
}

fn load_function<K, V, E, F, T>(load: F) -> LoadFunction<K, V, E>
where
    F: Fn(Vec<K>) -> T + Send + Sync + 'static,
    T: Future<Output: LoadOutput<Value = V, Error = E>> + Send + 'static,
{
    Box::new(move |keys| {
        let batch = load(keys);
        Box::pin(async move { batch.await.values() })
    })
}

impl<K, V, E> Service for ReadFunction<K, V, E>
where
    K: Clone + Eq + Hash + Ord + Send + 'static,
    V: Clone + Send + 'static,
    E: Clone + Send + 'static,
{
    type Key = K;
    type Value = V;
    type Write = NoWrites;
    type Outcome = ();
    type Error = E;

    async fn load(&self, keys: Vec<K>) -> LoadedAll<Self> {
        Ok((self.load)(keys).await?.into_iter().map(Ok).collect())
    }

    async fn store(&self, _entries: Vec<(K, NoWrites)>) -> StoredAll<Self> {
        Ok(Vec::new())
    }
}

impl<K, V, E> Service for Functions<K, V, E>
where
    K: Clone + Eq + Hash + Ord + Send + 'static,
    V: Clone + Send + 'static,
    E: Clone + Send + 'static,
{
    type Key = K;
    type Value = V;
    type Write = LastWins<V>;
    type Outcome = ();
    type Error = E;

    async fn load(&self, keys: Vec<K>) -> LoadedAll<Self> {
        Ok((self.load)(keys).await?.into_iter().map(Ok).collect())
    }

    async fn store(&self, entries: Vec<(K, LastWins<V>)>) -> StoredAll<Self> {
        let stored = entries.len();
        (self.store)(entries.into_iter().map(|(key, LastWins(value))| (key, value)).collect())
            .await?;
        Ok(std::iter::repeat_n(Ok(()), stored).collect())
    }
}
