//! What is served and how it is read.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use busload_objects::Environment;
use tokio::runtime::Handle;

use crate::{Error, Form};

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
    /// MemoryCache for decoded chunks; 0: none.
    pub memory_bytes_max: u64,
    /// Requests to the object store at once.
    pub requests_max: usize,
    /// A file dropped from the manifest stays readable for so long.
    pub grace_period: Duration,
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
