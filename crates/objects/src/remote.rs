//! One object store, with retries, a window of parallel requests that adapts, and figures.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::runtime::Handle;

use crate::Error;

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

/// Figures since the start.
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
pub struct Remote {}

impl Remote {
    /// `file:///dir`, `s3://bucket/prefix?endpoint=..&region=..&path-style=true&anonymous=true`, `gs://..`, `az://..`. Connects to nothing.
    pub fn new(_url: &str, _options: RemoteOptions) -> Result<Arc<Self>, Error> {
        unimplemented!()
    }

    /// The URL without anything secret, for people; also what cached objects are filed under.
    pub fn url(&self) -> &str {
        unimplemented!()
    }

    /// Objects directly below a folder of the store (empty: its top), which is empty if it does not exist.
    pub async fn list(&self, _folder: &str) -> Result<Vec<ObjectMeta>, Error> {
        unimplemented!()
    }

    /// One object's size and version, or none if there is no such object.
    pub async fn head(&self, _name: &str) -> Result<Option<ObjectMeta>, Error> {
        unimplemented!()
    }

    /// A small object, whole, unless it still has this ETag.
    pub async fn fetch(&self, _name: &str, _unless: Option<&str>, _bytes_max: u64) -> Result<Fetched, Error> {
        unimplemented!()
    }

    /// A range of one version of an object, from the store whatever is on disk; nothing is kept and no fill starts. For what is read once and kept elsewhere (indexes).
    pub async fn read(&self, _meta: &ObjectMeta, _range: std::ops::Range<u64>) -> Result<Bytes, Error> {
        unimplemented!()
    }

    /// Figures.
    pub fn stats(&self) -> RemoteStats {
        unimplemented!()
    }
}
