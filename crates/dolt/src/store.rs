//! The store.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use busload_chunks::{ChunkAddress, FileKind, Manifest};
use busload_objects::{Cache, CacheStats, Environment, Object, Progress, RemoteStats};
use bytes::Bytes;
use tokio::runtime::Handle;

use crate::{Chunk, DictionaryId, Error, Form};

/// What to serve and how.
#[derive(Clone)]
pub struct Settings {
    /// The table's name.
    pub name: String,
    /// Of the object store: `s3://..`, `file:///..`.
    pub url: String,
    /// Of the cache, which is this store's alone.
    pub directory: PathBuf,
    /// Disk space for it; 0: no cache on disk.
    pub disk_bytes_max: u64,
    /// Of the file system, for others.
    pub disk_free_bytes_min: u64,
    /// Objects up to this size come to disk whole. 0: only what is touched.
    pub fill_whole_max: u64,
    /// Bytes of fills in memory, at most.
    pub fill_bytes_max: u64,
    /// How often the manifest is looked at.
    pub poll: Duration,
    /// Memory for decoded chunks; 0: none.
    pub memory_bytes_max: u64,
    /// Requests to the object store at once.
    pub requests_max: usize,
    /// A file dropped from the manifest stays readable for so long.
    pub linger: Duration,
    /// Where names of variables are looked up.
    pub environment: Environment,
    /// Everything that waits runs here.
    pub runtime: Handle,
}

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What is wanted.
    pub form: Form,
    /// Only from local disk.
    pub local_only: bool,
    /// When it is too late.
    pub deadline: Instant,
}

/// The outcome of what could be done without waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt<T> {
    /// Known.
    Ready(Result<T, Error>),
    /// It has to be waited for.
    Wait,
}

/// One table file of a snapshot, open.
#[derive(Debug)]
pub struct TableFile {
    /// Its kind.
    pub kind: FileKind,
    /// Its bytes.
    pub object: Arc<Object>,
}

/// One version of the store: root and files belong together.
#[derive(Debug)]
pub struct Snapshot {
    /// As read.
    pub manifest: Manifest,
    /// In the order of lookup.
    pub files: Vec<Arc<TableFile>>,
}

/// Whether the store is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It was never reached yet.
    Opening,
    /// Served.
    Open,
    /// It is not served, and why; tried again at the pace of `poll`. If it was open before, the last version is served on, and this is why there is no newer one.
    Failed(Error),
}

/// Figures.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    /// Chunks asked for.
    pub requests: u64,
    /// Answered from the memory cache.
    pub memory_hits: u64,
    /// Answered from disk.
    pub local: u64,
    /// Answered with bytes of the object store.
    pub remote: u64,
    /// Known not to exist.
    pub absent: u64,
    /// Answered with an error.
    pub errors: u64,
    /// Chunks whose contents were not those of the address.
    pub damaged: u64,
    /// Versions of the manifest seen.
    pub versions: u64,
    /// Files of the current version.
    pub files: u64,
    /// Chunks of the current version.
    pub chunks: u64,
    /// Memory of the indexes.
    pub index_bytes: u64,
    /// Memory of the cache of decoded chunks.
    pub memory_bytes: u64,
    /// Root of the current version.
    pub root: Option<ChunkAddress>,
    /// The disk.
    pub cache: CacheStats,
    /// The object store.
    pub store: RemoteStats,
}

/// One chunk store. Cheap to clone; the last clone ends it.
#[derive(Clone, Debug)]
pub struct Store {}

/// Answers to many addresses as they come, each once, by index.
#[derive(Debug)]
pub struct ManyReads {}

impl ManyReads {
    /// The next answers, as many as are there, appended to `into`; false: that was all.
    pub async fn next(&mut self, _into: &mut Vec<(u32, Result<Option<Chunk>, Error>)>) -> bool {
        unimplemented!()
    }
}

impl Store {
    /// Starts to open it on the settings' runtime. An error is one of the settings, or another process in the cache's directory.
    pub fn start(_settings: Settings) -> Result<Self, Error> {
        unimplemented!()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        unimplemented!()
    }

    /// The outcome of the first attempt to open it, or of a later one that succeeded.
    pub async fn opened(&self) -> Result<(), Error> {
        unimplemented!()
    }

    /// Now.
    pub fn state(&self) -> State {
        unimplemented!()
    }

    /// The current version.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        unimplemented!()
    }

    /// Looks at the manifest now, together with whoever else asks.
    pub async fn refresh(&self) -> Result<(), Error> {
        unimplemented!()
    }

    /// A chunk that can be had without waiting for a device or the network; never blocks.
    pub fn try_get(&self, _address: &ChunkAddress, _form: Form) -> Attempt<Option<Chunk>> {
        unimplemented!()
    }

    /// A chunk; none if the store does not hold it, which is certain.
    pub async fn get(&self, _address: ChunkAddress, _request: Request) -> Result<Option<Chunk>, Error> {
        unimplemented!()
    }

    /// Many chunks: nearby ones share trips.
    pub fn get_many(&self, _addresses: Vec<ChunkAddress>, _request: Request) -> ManyReads {
        unimplemented!()
    }

    /// Whether a chunk exists, if that is known without a trip.
    pub fn try_has(&self, _address: &ChunkAddress) -> Attempt<bool> {
        unimplemented!()
    }

    /// Whether each exists (`local_only`: is on local disk).
    pub async fn has_many(&self, _addresses: &[ChunkAddress], _request: Request) -> Result<Vec<bool>, Error> {
        unimplemented!()
    }

    /// The length of a chunk's contents.
    pub async fn length(&self, _address: ChunkAddress, _request: Request) -> Result<Option<u64>, Error> {
        unimplemented!()
    }

    /// A dictionary by the name a stored chunk gave.
    pub async fn dictionary(&self, _id: &DictionaryId, _request: Request) -> Result<Option<Bytes>, Error> {
        unimplemented!()
    }

    /// Brings everything to local disk.
    pub async fn warm(&self, _report: &mut (dyn FnMut(Progress) + Send)) -> Result<Progress, Error> {
        unimplemented!()
    }

    /// Reads and checks every chunk of the current version against its address, from the object store where need be. The function gets the progress, and
    /// each address with what is wrong with it.
    pub async fn verify(
        &self,
        _report: &mut (dyn FnMut(Progress, Option<(ChunkAddress, Error)>) + Send),
    ) -> Result<Progress, Error> {
        unimplemented!()
    }

    /// The cache, for looking at it and dropping from it.
    pub fn cache(&self) -> &Arc<Cache> {
        unimplemented!()
    }

    /// Figures.
    pub fn stats(&self) -> StoreStats {
        unimplemented!()
    }

    /// Ends it: what waits is answered with [`Error::Closed`].
    pub async fn close(&self) {
        unimplemented!()
    }
}
