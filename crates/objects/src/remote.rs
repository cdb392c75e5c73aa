//! One object store: retries, an adaptive window of parallel requests, checks of answers, metrics.
//!
//! ```text
//!  list, head, fetch --+                                +-- attempt -- object_store -- store
//!                      +--> window (AIMD, fills wait) --+-- pause, next attempt
//!  read_range ---------+    one slot per attempt        +-- error: Unreachable, Denied, Gone
//! ```
//!
//! * Every attempt holds a slot of the window; a pause between two does not.
//! * The retries of `object_store` are off: they would hide slow-downs from the window, and
//!   [`ranged`] resumes bodies itself.
//! * An attempt ends when no byte has come for `stall_timeout`; over a slow link, when none has
//!   come for some of them, or none of other answers either. A body as a whole has no limit of
//!   time: it may be long.
//! * The slowest percent of the requests that somebody waits for is sent a second time ([`hedge`]).
//! * Over a slow link fills pause while somebody waits for other bytes.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, StreamExt};
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta as Found, ObjectStore, path::Path};
use tokio::{
    runtime::Handle,
    task::spawn_blocking,
    time::{Instant, timeout},
};

use crate::Error;

mod address;
mod attempts;
mod aws_api;
mod aws_credentials;
mod body_rate;
#[cfg(test)]
pub(crate) mod fake;
mod fault;
mod file_store;
mod give_way;
mod hedge;
mod http;
mod limits;
mod metrics;
mod ranged;
mod side_by_side;
mod version;
mod window;

use address::Address;
use attempts::Attempts;
use fault::{Fault, FaultKind};
use hedge::HedgeBudget;
use http::{Seen, observed};
use limits::{BODY_RESERVED_BYTES_MAX, LIST_TIMEOUT};
use metrics::Metrics;
use window::Window;

pub use aws_api::{ApiAnswer, ApiError, AwsApi, ItemAddress};
pub use metrics::PathTraffic;
pub(crate) use metrics::StorePace;
pub(crate) use ranged::Sink;
pub(crate) use window::Urgency;

/// Lookup of environment variables: `std::env::var` in a process, a table in tests.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Credentials, limits and runtime of a store.
#[derive(Clone)]
pub struct RemoteOptions {
    /// Environment with credentials and region, as AWS, Google and Azure name them.
    pub environment: Environment,
    /// Runtime on which reads and fills run.
    pub runtime: Handle,
    /// Requests at once, at most; fewer while the store asks to slow down.
    pub requests_max: usize,
    /// Time without a byte after which an attempt ends.
    pub stall_timeout: Duration,
    /// Attempts at one request, at most, with growing pauses between them.
    pub attempts_max: u32,
    /// True to send the slowest percent of the requests that somebody waits for a second time.
    pub hedge: bool,
}

/// Name, size and version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Name below the URL of the store.
    pub name: String,
    /// Size of the object in bytes.
    pub size: u64,
    /// ETag, which changes with every version. Stores without ETags (files) get one from time and
    /// size.
    pub etag: String,
}

/// Answer that [`Remote::fetch`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The object still has the ETag that the caller gave.
    NotModified,
    /// No object has this name.
    Missing,
    /// The object has another version.
    Object {
        /// Contents of the object.
        bytes: Bytes,
        /// ETag of these contents.
        etag: String,
    },
}

/// Counters since the start, and rates now.
#[derive(Clone, Debug, Default)]
pub struct RemoteStats {
    /// GETs, HEADs and LISTs sent, retries included.
    pub requests: u64,
    /// LISTs among them, which stores bill at another price.
    pub lists: u64,
    /// GETs for which somebody waited.
    pub foreground_reads: u64,
    /// GETs of background fills.
    pub fill_reads: u64,
    /// Bytes of bodies received.
    pub bytes: u64,
    /// Attempts that failed and were retried.
    pub retries: u64,
    /// Answers that asked to slow down (503, 429).
    pub slow_downs: u64,
    /// Responses refused by the checks (a wrong range, another ETag, too few bytes).
    pub wrong_responses: u64,
    /// Requests sent a second time because the first byte was late.
    pub hedges: u64,
    /// Those of them that were answered first.
    pub hedges_won: u64,
    /// Size of the window: requests that may be under way at once now.
    pub window: u64,
    /// Number of requests under way.
    pub in_flight: u64,
    /// Moving average of the time to the first byte.
    pub first_byte: Duration,
    /// Moving average of the bytes per second of one response.
    pub bandwidth: f64,
    /// Text of the last failure, for people.
    pub last_error: Option<String>,
}

/// An object store, or a prefix of one.
#[derive(Debug)]
pub struct Remote {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    url: String,
    /// Directory of a `file://` store: while it is missing, a missing file says nothing.
    directory: Option<PathBuf>,
    item: Option<ItemAddress>,
    runtime: Handle,
    stall_timeout: Duration,
    attempts_max: u32,
    window: Arc<Window>,
    metrics: Arc<Metrics>,
    traffic: Arc<PathTraffic>,
    is_hedged: bool,
    hedges: Arc<HedgeBudget>,
}

impl Remote {
    /// Parses the URL of a store; connects to nothing. `file:///dir`,
    /// `s3://bucket/prefix?endpoint=..&region=..&path-style=true&anonymous=true`,
    /// `aws://[table:bucket]/prefix?dynamodb-endpoint=..`, `gs://..`, `az://..`.
    ///
    /// # Errors
    /// [`Error::Settings`]: the text is no URL, has an unknown key or contains a secret.
    pub fn new(url: &str, options: RemoteOptions) -> Result<Arc<Self>, Error> {
        let address = Address::parse(url, &options)?;
        Ok(Arc::new(Self::at(address, options)))
    }

    fn at(address: Address, options: RemoteOptions) -> Self {
        let Address { store, prefix, url, directory, item } = address;
        Self {
            store,
            prefix,
            url,
            directory,
            item,
            runtime: options.runtime,
            stall_timeout: options.stall_timeout,
            attempts_max: options.attempts_max,
            window: Window::new(options.requests_max),
            metrics: Arc::default(),
            traffic: Arc::default(),
            is_hedged: options.hedge,
            hedges: Arc::default(),
        }
    }

    /// Returns the store at another path of the same bucket, below `folder` (of a `file://` store
    /// the one that must exist). Both share client, window and counters, so that thousands of them
    /// cost little more than their names; `traffic` alone counts for this path.
    ///
    /// # Errors
    /// [`Error::Settings`]: the path cannot be part of an object's name.
    pub fn at_path(
        &self,
        (folder, path): (&str, &str),
        traffic: Arc<PathTraffic>,
    ) -> Result<Arc<Self>, Error> {
        let prefix = Path::parse(path).map_err(|error| {
            Error::Settings(format!("{path:?} cannot be the path of a store: {error}"))
        })?;
        let (location, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let scheme_end = location.find("://").map_or(0, |at| at + "://".len());
        let host_end =
            location[scheme_end..].find('/').map_or(location.len(), |at| scheme_end + at);
        let question = if query.is_empty() { "" } else { "?" };
        let url = format!("{}/{path}{question}{query}", &location[..host_end]);
        // A store that is not there is missing; a disk that is not mounted is not.
        let directory = self.directory.as_ref().map(|_| PathBuf::from(format!("/{folder}")));
        Ok(Arc::new(Self {
            store: self.store.clone(),
            prefix,
            url,
            directory,
            item: self.item.as_ref().map(|item| item.of_key(path)),
            runtime: self.runtime.clone(),
            stall_timeout: self.stall_timeout,
            attempts_max: self.attempts_max,
            window: self.window.clone(),
            metrics: self.metrics.clone(),
            traffic,
            is_hedged: self.is_hedged,
            hedges: self.hedges.clone(),
        }))
    }

    /// Makes a remote over any store.
    #[cfg(test)]
    pub(crate) fn over(store: Arc<dyn ObjectStore>, options: RemoteOptions) -> Arc<Self> {
        let (prefix, url) = (Path::ROOT, "memory://".to_owned());
        Arc::new(Self::at(Address { store, prefix, url, directory: None, item: None }, options))
    }

    /// URL without secrets, for people; part of the key of cached objects.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Item of a DynamoDB table that the URL names beside the bucket, if it is an `aws://` URL.
    pub fn item(&self) -> Option<&ItemAddress> {
        self.item.as_ref()
    }

    /// Lists the objects directly below a folder of the store (empty: its top). A folder that does
    /// not exist is empty.
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
                self.count_requests(seen);
                self.metrics.lists.fetch_add(seen.requests.max(1), Relaxed);
                let late = |_| {
                    Fault::new(
                        FaultKind::Transient,
                        format!("the listing timed out after {time:?}"),
                    )
                };
                match listed.map_err(late)? {
                    Err(error) => Err(self.fault(&error, seen).await),
                    Ok(listed) => Ok(listed),
                }
            })
            .await?;
        if listed.objects.is_empty() {
            self.directory_is_there().await.map_err(|fault| self.final_error(fault, &what, 1))?;
        }
        Ok(listed.objects.iter().filter_map(|found| self.meta(found)).collect())
    }

    /// Asks for the size and version of an object. None: there is no such object.
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

    /// Reads a small object whole, unless it still has this ETag.
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

    /// Reads at most this many bytes of the end of an object of which only the name is known. None:
    /// there is no such object.
    ///
    /// # Errors
    /// The store could not be asked: [`Error::Unreachable`], [`Error::Denied`].
    pub async fn fetch_end(
        &self,
        name: &str,
        bytes: u64,
    ) -> Result<Option<(ObjectMeta, Bytes)>, Error> {
        let path = self.path(name)?;
        let fetch = || async {
            self.metrics.foreground_reads.fetch_add(1, Relaxed);
            let range = Some(GetRange::Suffix(bytes));
            let answer = self.get(&path, GetOptions::new().with_range(range)).await?;
            let size = answer.meta.size;
            let expected = size.saturating_sub(bytes)..size;
            if answer.range != expected {
                let text = format!("expected the range {expected:?}, got {:?}", answer.range);
                return Err(Fault::new(FaultKind::Wrong, text));
            }
            let etag = version::etag_of(&answer.meta);
            let meta = ObjectMeta { name: name.to_owned(), size, etag };
            Ok((meta, self.whole(answer).await?))
        };
        match self.call_or_missing(&format!("read the end of {name}"), fetch).await? {
            Answer::Object(found) => Ok(Some(found)),
            Answer::Missing | Answer::NotModified => Ok(None),
        }
    }

    /// Returns counters since the start.
    pub fn stats(&self) -> RemoteStats {
        self.metrics.stats(self.window.metrics())
    }

    /// Returns the requests and bytes of this path alone.
    pub fn traffic(&self) -> &Arc<PathTraffic> {
        &self.traffic
    }

    /// Number of requests under way.
    pub fn in_flight(&self) -> u64 {
        self.window.metrics().1
    }

    /// Moving average of the bytes per second of one response, if one was long enough to measure.
    pub fn bandwidth(&self) -> Option<f64> {
        self.metrics.pace().bandwidth
    }

    /// Measured pace of the store.
    pub(crate) fn pace(&self) -> StorePace {
        self.metrics.pace()
    }

    /// Returns whether several ranges side by side were measured to come sooner than one: the store
    /// is far, and the link is not the limit.
    pub fn gains_side_by_side(&self) -> bool {
        self.pace().is_far() && self.metrics.side_by_side().gains_by_several()
    }

    /// Returns whether one fill or readahead more, beside those under way, is likely to bring more
    /// bytes.
    pub(crate) fn gains_by_one_more(&self) -> bool {
        self.pace().is_far() && self.metrics.side_by_side().gains_by_one_more(Instant::now())
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.metrics.last_error()
    }

    /// Runtime on which reads and fills run.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Counts the requests of a call to the store.
    fn count_requests(&self, seen: Seen) {
        let count = seen.requests.max(1);
        self.metrics.requests.fetch_add(count, Relaxed);
        self.traffic.count_requests(count);
    }

    /// Sends one request and waits for the header of its answer.
    async fn get(&self, path: &Path, options: GetOptions) -> Result<GetResult, Fault> {
        let began = Instant::now();
        let (answer, seen) = observed(self.unless_silent(self.store.get_opts(path, options))).await;
        self.count_requests(seen);
        match answer.ok_or_else(|| self.stalled("no answer"))? {
            Err(error) => Err(self.fault(&error, seen).await),
            Ok(answer) => {
                self.metrics.first_byte_after(began.elapsed());
                Ok(answer)
            }
        }
    }

    /// Reads a body of known length.
    async fn whole(&self, answer: GetResult) -> Result<Bytes, Fault> {
        let size = answer.range.end - answer.range.start;
        // Callers may keep the buffer, so it is no longer than the body; but headers can lie.
        let reserved = usize::try_from(size).unwrap_or(usize::MAX).min(BODY_RESERVED_BYTES_MAX);
        let mut bytes = BytesMut::with_capacity(reserved);
        let mut body = answer.into_stream();
        loop {
            match self.unless_silent(body.next()).await {
                None => return Err(self.stalled("the body stalled: nothing came")),
                Some(Some(Err(error))) => return Err(Fault::of(&error, Seen::default())),
                Some(Some(Ok(piece))) if size < (bytes.len() + piece.len()) as u64 => {
                    return Err(Fault::new(
                        FaultKind::Wrong,
                        "the body is longer than its header says",
                    ));
                }
                Some(Some(Ok(piece))) => {
                    self.metrics.bytes.fetch_add(piece.len() as u64, Relaxed);
                    self.traffic.count_bytes(piece.len() as u64);
                    bytes.extend_from_slice(&piece);
                }
                Some(None) if bytes.len() as u64 == size => break,
                Some(None) => {
                    let text = format!("the body ended after {} of {size} bytes", bytes.len());
                    return Err(Fault::new(FaultKind::Wrong, text));
                }
            }
        }
        Ok(bytes.freeze())
    }

    /// Attempts a request to which "missing" and "not modified" are answers, too.
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

    /// Attempts a request until it succeeds or a retry makes no sense.
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
                return Err(self.final_error(fault, what, attempts.made()));
            }
            self.metrics.retries.fetch_add(1, Relaxed);
            attempts.pause(fault.kind).await;
        }
    }

    fn final_error(&self, fault: Fault, what: &str, attempts: u32) -> Error {
        let error = fault.into_error(&format!("cannot {what} of {}", self.url), attempts);
        self.metrics.failed(&error.to_string());
        error
    }

    /// Classifies an error. A file counts as missing only while the directory of its store is
    /// there: a disk that is not mounted is not empty.
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

    /// Converts a listing's entry. None: it is the marker of the folder itself.
    fn meta(&self, found: &Found) -> Option<ObjectMeta> {
        let name =
            found.location.as_ref().strip_prefix(self.prefix.as_ref())?.trim_start_matches('/');
        let meta =
            ObjectMeta { name: name.to_owned(), size: found.size, etag: version::etag_of(found) };
        (!name.is_empty()).then_some(meta)
    }
}

/// Answer of a store about an object.
enum Answer<T> {
    Object(T),
    Missing,
    NotModified,
}

#[cfg(test)]
mod tests;
