//! Objects of an object store on local disk.

#![forbid(unsafe_code)]

mod cache;
mod disk;
mod error;
mod limits;
mod object;
mod remote;

pub use cache::{Cache, CacheOptions, CacheStats, CachedObject, Progress};
pub use error::Error;
pub use object::{Object, ReadOptions, Reading};
pub use remote::{Environment, Fetched, ObjectMeta, Remote, RemoteOptions, RemoteStats};
