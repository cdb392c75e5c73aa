//! Settings of a store, and options of requests.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use busload_dynamo::Tables;
use busload_objects::Environment;
use tokio::runtime::Handle;

use crate::{Error, Form, Peers};

/// Settings of one served store.
#[derive(Clone)]
pub struct Settings {
    /// Name of the table.
    pub name: String,
    /// URL of the object store: `s3://..`, `aws://..`, `file:///..`.
    pub url: String,
    /// Directory of the cache, which only this store uses.
    pub directory: PathBuf,
    /// Disk space for the cache; 0: no cache on disk.
    pub disk_bytes_max: u64,
    /// Bytes of the file system that the cache leaves free.
    pub disk_free_bytes_min: u64,
    /// Largest object that comes to disk whole; 0: only ranges that are read.
    pub fill_whole_max: u64,
    /// Largest number of bytes that fills hold in memory.
    pub fill_bytes_max: u64,
    /// Time between two reads of the manifest.
    pub poll: Duration,
    /// Bytes of memory for decoded chunks; 0: no cache in memory.
    pub memory_bytes_max: u64,
    /// Largest number of concurrent requests to the object store.
    pub requests_max: usize,
    /// True to send the slowest percent of the reads that somebody waits for a second time.
    pub hedge: bool,
    /// Time for which a file that the manifest dropped stays readable.
    pub grace_period: Duration,
    /// Tables of DynamoDB with manifests, which stores of one process share.
    pub tables: Tables,
    /// Environment variables that credentials come from.
    pub environment: Environment,
    /// Occasion for which the store is open.
    pub occasion: Occasion,
    /// Caches of the same stores beside this one; without any this process owns every file.
    pub peers: Option<Arc<dyn Peers>>,
    /// Runtime for everything that waits.
    pub runtime: Handle,
}

/// Occasion for which a store is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// It is configured by its own name. Without a manifest it is an empty store, and its manifest
    /// is read every `poll`.
    Configured,
    /// A request named it. Without a manifest there is no such store, and its manifest is read
    /// every `poll` only while there are requests.
    Request,
    /// As [`Occasion::Request`], but many names have led nowhere of late: one request has to find
    /// out whether the store exists, even if opening it then takes longer.
    Guess,
}

impl Occasion {
    /// Returns whether the store is open for requests only, and may not exist.
    pub(crate) fn is_request(self) -> bool {
        self != Self::Configured
    }
}

/// Form, sources and deadline of a read of chunks.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Encoding of the chunks.
    pub form: Form,
    /// True to read from local disk only.
    pub local_only: bool,
    /// Sender of the request.
    pub requester: Requester,
    /// Time at which the request fails.
    pub deadline: Instant,
}

/// Sender of a request. A peer's request is answered here and never passed on, so that requests go
/// in no circle even if peers disagree about who owns a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A client, for whom peers may be asked.
    Client,
    /// Another cache, which takes this one for the owner of the file.
    Peer,
    /// A bundle that is encoded for Dolt's clients, whose downloads count instead of its chunks.
    /// Peers may be asked.
    Bundle,
}

/// Outcome of an attempt without waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt<T> {
    /// Outcome that took no waiting.
    Ready(Result<T, Error>),
    /// The answer needs a wait, for a disk or the store.
    Wait,
}
