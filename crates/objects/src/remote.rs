//! One object store, with retries, a window of parallel requests that adapts, and metrics.
//!
//! ```text
//!  list, head, fetch --+                                +-- attempt -- object_store -- store
//!                      +--> window (AIMD, fills wait) --+-- pause, next attempt
//!  read_range ---------+    one slot per attempt        +-- error: Unreachable, Denied, Gone
//! ```
//!
//! * Every attempt holds a slot of the window, a pause between two does not.
//! * The retries of `object_store` are off: they would hide slow-downs from the window, and bodies
//!   are resumed here.
//! * An attempt ends when no byte has come for `stall_timeout`; there is no limit on the whole of a
//!   body, which may be long.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, StreamExt};
use object_store::{GetOptions, GetResult, ObjectMeta as Found, ObjectStore, path::Path};
use tokio::{
    runtime::Handle,
    task::spawn_blocking,
    time::{Instant, timeout},
};

use crate::Error;

mod address;
mod attempts;
#[cfg(test)]
pub(crate) mod fake;
mod fault;
mod file_store;
mod http;
mod limits;
mod metrics;
mod ranged;
mod version;
mod window;

use address::Address;
use attempts::Attempts;
use fault::{Fault, FaultKind};
use http::{Seen, observed};
use limits::LIST_TIMEOUT;
use metrics::Metrics;
use window::Window;

pub(crate) use metrics::StorePace;
pub(crate) use ranged::Sink;
pub(crate) use window::Urgency;

/// Where names of variables are looked up: `std::env::var` in a process, a table in tests.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// How to talk to a store.
#[derive(Clone)]
pub struct RemoteOptions {
    /// Credentials and region, as AWS, Google and Azure name them.
    pub environment: Environment,
    /// Reads and fills run here.
    pub runtime: Handle,
    /// Requests at once, at most; fewer while the store asks to slow down.
    pub requests_max: usize,
    /// One attempt ends when no byte has come for so long.
    pub stall_timeout: Duration,
    /// Attempts at one request, with growing pauses.
    pub attempts_max: u32,
}

/// An object as the store shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Below the URL of the store.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Changes with every version. Stores without one (files) get one from time and size.
    pub etag: String,
}

/// A small object, read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// As it was when it had the ETag given.
    NotModified,
    /// There is none.
    Missing,
    /// This.
    Object {
        /// Contents.
        bytes: Bytes,
        /// Their version.
        etag: String,
    },
}

/// Metrics since the start.
#[derive(Clone, Debug, Default)]
pub struct RemoteStats {
    /// GETs, HEADs and LISTs sent, retries included.
    pub requests: u64,
    /// GETs somebody waited for.
    pub foreground_reads: u64,
    /// GETs of background fills.
    pub fill_reads: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Attempts that failed and were repeated.
    pub retries: u64,
    /// Answers that asked to slow down (503, 429).
    pub slow_downs: u64,
    /// Responses that were not what was asked for (a wrong range, another ETag, too few bytes).
    pub wrong_responses: u64,
    /// Requests at once that are allowed now.
    pub window: u64,
    /// Requests under way.
    pub in_flight: u64,
    /// Moving average of the time to the first byte.
    pub first_byte: Duration,
    /// Moving average of a stream's bytes per second.
    pub bandwidth: f64,
    /// The last failure, for people.
    pub last_error: Option<String>,
}

/// One object store, or a part of it.
#[derive(Debug)]
pub struct Remote {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    url: String,
    /// Of `file://`: without it nothing can be said about objects in it.
    directory: Option<PathBuf>,
    runtime: Handle,
    stall_timeout: Duration,
    attempts_max: u32,
    window: Arc<Window>,
    metrics: Metrics,
}

impl Remote {
    /// `file:///dir`, `s3://bucket/prefix?endpoint=..&region=..&path-style=true&anonymous=true`,
    /// `gs://..`, `az://..`. Connects to nothing.
    ///
    /// # Errors
    /// [`Error::Settings`]: the URL is none, has a key that is not known or holds something secret.
    pub fn new(url: &str, options: RemoteOptions) -> Result<Arc<Self>, Error> {
        let address = Address::parse(url, &options)?;
        Ok(Arc::new(Self::at(address, options)))
    }

    fn at(address: Address, options: RemoteOptions) -> Self {
        let Address { store, prefix, url, directory } = address;
        Self {
            store,
            prefix,
            url,
            directory,
            runtime: options.runtime,
            stall_timeout: options.stall_timeout,
            attempts_max: options.attempts_max,
            window: Window::new(options.requests_max),
            metrics: Metrics::default(),
        }
    }

    /// Over any store.
    #[cfg(test)]
    pub(crate) fn over(store: Arc<dyn ObjectStore>, options: RemoteOptions) -> Arc<Self> {
        let url = "memory://".to_owned();
        Arc::new(Self::at(Address { store, prefix: Path::ROOT, url, directory: None }, options))
    }

    /// The URL without anything secret, for people; also what cached objects are filed under.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Objects directly below a folder of the store (empty: its top), which is empty if it does not
    /// exist.
    ///
    /// # Errors
    /// The store could not be asked ([`Error::Unreachable`], [`Error::Denied`]); also when the
    /// directory of a `file://` store is not there.
    pub async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, Error> {
        let path = self.path(folder)?;
        let below = (!path.as_ref().is_empty()).then_some(&path);
        let what =
            if folder.is_empty() { "list objects".to_owned() } else { format!("list {folder}") };
        let time = LIST_TIMEOUT.max(self.stall_timeout);
        let listed = self
            .call(&what, || async {
                let (listed, seen) =
                    observed(timeout(time, self.store.list_with_delimiter(below))).await;
                self.metrics.requests.fetch_add(seen.requests.max(1), Relaxed);
                let late =
                    |_| Fault::new(FaultKind::Transient, format!("no listing within {time:?}"));
                match listed.map_err(late)? {
                    Err(error) => Err(self.fault(&error, seen).await),
                    Ok(listed) => Ok(listed),
                }
            })
            .await?;
        if listed.objects.is_empty() {
            self.directory_is_there().await.map_err(|fault| self.reported(fault, &what, 1))?;
        }
        Ok(listed.objects.iter().filter_map(|found| self.meta(found)).collect())
    }

    /// One object's size and version, or none if there is no such object.
    ///
    /// # Errors
    /// The store could not be asked: [`Error::Unreachable`], [`Error::Denied`].
    pub async fn head(&self, name: &str) -> Result<Option<ObjectMeta>, Error> {
        let path = self.path(name)?;
        let head = || async {
            let found = self.get(&path, GetOptions::new().with_head(true)).await?;
            Ok(ObjectMeta {
                name: name.to_owned(),
                size: found.meta.size,
                etag: version::etag_of(&found.meta),
            })
        };
        match self.call_or_missing(&format!("look at {name}"), head).await? {
            Answer::Object(meta) => Ok(Some(meta)),
            Answer::Missing | Answer::NotModified => Ok(None),
        }
    }

    /// A small object, whole, unless it still has this ETag.
    ///
    /// # Errors
    /// The store could not be asked: [`Error::Unreachable`], [`Error::Denied`]; the object is
    /// larger than `bytes_max`: [`Error::Denied`].
    pub async fn fetch(
        &self,
        name: &str,
        unless: Option<&str>,
        bytes_max: u64,
    ) -> Result<Fetched, Error> {
        let path = self.path(name)?;
        let fetch = || async {
            self.metrics.foreground_reads.fetch_add(1, Relaxed);
            let answer = self.get(&path, version::unless(unless, GetOptions::new())).await?;
            if unless.is_some_and(|etag| version::is_same(etag, &answer.meta)) {
                return Err(Fault::new(FaultKind::NotModified, "the same ETag"));
            }
            if bytes_max < answer.meta.size {
                let text =
                    format!("expected at most {bytes_max} bytes, it has {}", answer.meta.size);
                return Err(Fault::new(FaultKind::Denied, text));
            }
            let etag = version::etag_of(&answer.meta);
            Ok((self.whole(answer).await?, etag))
        };
        Ok(match self.call_or_missing(&format!("read {name}"), fetch).await? {
            Answer::Object((bytes, etag)) => Fetched::Object { bytes, etag },
            Answer::Missing => Fetched::Missing,
            Answer::NotModified => Fetched::NotModified,
        })
    }

    /// Metrics.
    pub fn stats(&self) -> RemoteStats {
        self.metrics.stats(self.window.metrics())
    }

    /// Moving average of the bytes per second of one read, if one was long enough to tell.
    pub fn bandwidth(&self) -> Option<f64> {
        self.metrics.pace().bandwidth
    }

    /// What reads take.
    pub(crate) fn pace(&self) -> StorePace {
        self.metrics.pace()
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.metrics.last_error()
    }

    /// Reads and fills run here.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// One request, its answer's header.
    async fn get(&self, path: &Path, options: GetOptions) -> Result<GetResult, Fault> {
        let began = Instant::now();
        let (answer, seen) =
            observed(timeout(self.stall_timeout, self.store.get_opts(path, options))).await;
        self.metrics.requests.fetch_add(seen.requests.max(1), Relaxed);
        match answer.map_err(|_| self.stalled("no answer"))? {
            Err(error) => Err(self.fault(&error, seen).await),
            Ok(answer) => {
                self.metrics.first_byte_after(began.elapsed());
                Ok(answer)
            }
        }
    }

    /// A body of known length.
    async fn whole(&self, answer: GetResult) -> Result<Bytes, Fault> {
        let size = answer.meta.size;
        let mut bytes = BytesMut::new();
        let mut body = answer.into_stream();
        loop {
            match timeout(self.stall_timeout, body.next()).await {
                Err(_) => return Err(self.stalled("the body stalled: nothing came")),
                Ok(Some(Err(error))) => return Err(Fault::of(&error, Seen::default())),
                Ok(Some(Ok(piece))) if size < (bytes.len() + piece.len()) as u64 => {
                    return Err(Fault::new(
                        FaultKind::Wrong,
                        "the body is longer than its header says",
                    ));
                }
                Ok(Some(Ok(piece))) => bytes.extend_from_slice(&piece),
                Ok(None) if bytes.len() as u64 == size => break,
                Ok(None) => {
                    let text = format!("the body ended after {} of {size} bytes", bytes.len());
                    return Err(Fault::new(FaultKind::Wrong, text));
                }
            }
        }
        self.metrics.bytes.fetch_add(size, Relaxed);
        Ok(bytes.freeze())
    }

    /// That there is nothing, or nothing new, is an answer too.
    async fn call_or_missing<T, F>(
        &self,
        what: &str,
        attempt: impl Fn() -> F,
    ) -> Result<Answer<T>, Error>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let answered = |outcome| match outcome {
            Ok(object) => Ok(Answer::Object(object)),
            Err(Fault { kind: FaultKind::Missing, .. }) => Ok(Answer::Missing),
            Err(Fault { kind: FaultKind::NotModified, .. }) => Ok(Answer::NotModified),
            Err(fault) => Err(fault),
        };
        self.call(what, || attempt().map(answered)).await
    }

    /// Attempts until one succeeds or it makes no sense any more.
    async fn call<T, F>(&self, what: &str, attempt: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let mut attempts = Attempts::new(self.attempts_max);
        loop {
            let slot = self.window.acquire(Urgency::Foreground).await;
            let outcome = attempt().await;
            let fault = match self.record_outcome(outcome, &slot) {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            drop(slot);
            if !fault.is_worth_another_try() || attempts.are_exhausted() {
                return Err(self.reported(fault, what, attempts.made()));
            }
            self.metrics.retries.fetch_add(1, Relaxed);
            attempts.pause(fault.kind).await;
        }
    }

    fn reported(&self, fault: Fault, what: &str, attempts: u32) -> Error {
        let error = fault.into_error(&format!("cannot {what} of {}", self.url), attempts);
        self.metrics.failed(&error.to_string());
        error
    }

    /// What an error means. That a file is missing can be said only while its directory is there: a
    /// disk that is not mounted is not empty.
    async fn fault(&self, error: &object_store::Error, seen: Seen) -> Fault {
        let fault = Fault::of(error, seen);
        if !matches!(fault.kind, FaultKind::Missing | FaultKind::NotModified) {
            self.metrics.failed(&fault.text);
        }
        match fault.kind {
            FaultKind::Missing => {
                self.directory_is_there().await.map_or_else(|other| other, |()| fault)
            }
            _ => fault,
        }
    }

    async fn directory_is_there(&self) -> Result<(), Fault> {
        let Some(directory) = self.directory.clone() else { return Ok(()) };
        let looked = spawn_blocking(move || match std::fs::metadata(&directory) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(format!("{} is not a directory", directory.display())),
            Err(error) => Err(format!("directory {}: {error}", directory.display())),
        });
        let found = looked.await.unwrap_or_else(|_| Err("the runtime has stopped".to_owned()));
        found.map_err(|text| Fault::new(FaultKind::Transient, text))
    }

    fn path(&self, name: &str) -> Result<Path, Error> {
        let whole = format!("{}/{name}", self.prefix);
        Path::parse(whole.trim_matches('/')).map_err(|error| {
            Error::Settings(format!("{name:?} cannot be the name of an object: {error}"))
        })
    }

    /// None: the marker of the folder itself.
    fn meta(&self, found: &Found) -> Option<ObjectMeta> {
        let name =
            found.location.as_ref().strip_prefix(self.prefix.as_ref())?.trim_start_matches('/');
        let meta =
            ObjectMeta { name: name.to_owned(), size: found.size, etag: version::etag_of(found) };
        (!name.is_empty()).then_some(meta)
    }
}

/// What a store says about an object.
enum Answer<T> {
    Object(T),
    Missing,
    NotModified,
}

#[cfg(test)]
mod tests;
