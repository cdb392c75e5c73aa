//! Objects of an object store on local disk: filled, verified, evicted, there after a restart.
//!
//! ```text
//!   Cache::object --> Object (one version of one object)
//!                       |
//!    try_read / read    |  on disk?          +-----------------------------+
//!   <-------------------+--- yes ----------->| disk: cache file per object,|
//!                       |                    | checksum per 4 KiB block,   |
//!                       |  no                | journal, S3-FIFO            |
//!                       v                    +-----------------------------+
//!                    fetch: one read per           ^
//!                    missing range, however        | whole extents
//!                    many wait                     |
//!                       |                    fill: in the background,
//!                       v                    within a budget of bytes
//!                    Remote: window, retries, If-Match ---> object store
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `cache`, `object` | the directory and the objects in use; the handle of one object |
//! | `read` | a read of a range: in memory, on disk, under way, from the store |
//! | `fetch` | single-flight reads of the object store and their waiters |
//! | `fill` | background reads of whole extents to disk; warming |
//! | `stream` | the bytes of a range in order, with readahead |
//! | `readahead` | the policy of all of these as pure functions |
//! | `disk` | cache files, journal, sidecars; space accounting and S3-FIFO eviction |
//! | `remote` | the object store: window, retries, checks of its answers; [`AwsApi`] |
//!
//! * **Right or not at all**: every byte from disk has passed a checksum that belongs to this
//!   position of this version of this object, and every byte from the store came with the ETag and
//!   range that were asked for. The cache fetches corrupt blocks again and counts them.
//! * **The disk is optional**: full, read-only, corrupt, vanished or slow, it fails no read
//!   ([`CacheStats::bypassed`] says why it is bypassed). The cache syncs nothing, because it
//!   believes no block without its checksum.
//! * **The store decides** what exists: [`Error::Gone`] is the store's answer,
//!   [`Error::Unreachable`] the lack of one.
//! * **Limits**: bytes on disk ([`CacheOptions::bytes_max`], never exceeded), bytes of fills in
//!   memory, requests at once; the others are in `limits` of the crate, of `disk` and of `remote`.
//! * **Shutdown**: [`Cache::close`] aborts fills and writes the journal. A process that is killed
//!   instead loses the last moments of the journal, no more.

#![forbid(unsafe_code)]

mod cache;
mod disk;
mod error;
mod fetch;
mod fill;
mod limits;
mod object;
mod read;
mod readahead;
mod remote;
mod stream;

pub use cache::{
    Cache, CacheOptions, CacheStats, CachedObject, CachedStore, FillFilter, Progress, StoreHandle,
    StoreShare,
};
pub use error::Error;
pub use object::Object;
pub use read::{AccessHint, ReadOptions, Reading};
pub use remote::{
    ApiAnswer, ApiError, AwsApi, Environment, Fetched, ItemAddress, ObjectMeta, PathTraffic,
    Remote, RemoteOptions, RemoteStats,
};
pub use stream::{ObjectStream, StreamOptions};
