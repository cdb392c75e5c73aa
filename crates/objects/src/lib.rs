//! Objects of an object store on local disk: filled, verified, evicted, there after a restart.
//!
//! ```text
//!   Cache::object --> Object (one version of one object)
//!                       |
//!    try_read / read    |  on disk?          +-----------------------------+
//!   <-------------------+--- yes ----------->| disk: data file per object, |
//!                       |                    | checksum per 4 KiB block,   |
//!                       |  no                | journal, S3-FIFO            |
//!                       v                    +-----------------------------+
//!                    fetches: one read per         ^
//!                    missing range, however        | whole extents
//!                    many wait                     |
//!                       |                    fills, in the background,
//!                       v                    within a budget of bytes
//!                    Remote: window, retries, If-Match ---> object store
//! ```
//!
//! * **Right or not at all**: every byte from disk has passed a checksum that belongs to this place
//!   of this version of this object, and every byte from the store came with the ETag and range
//!   that were asked for. What is wrong is fetched again and counted.
//! * **The disk is a convenience**: full, read-only, corrupt, vanished or slow, it fails no read
//!   ([`CacheStats::bypassed`] says why it is left alone). Nothing is synced, for nothing is
//!   believed.
//! * **The store decides** what there is: [`Error::Gone`] is the store's word,
//!   [`Error::Unreachable`] is not knowing.
//! * **Limits**: bytes on disk ([`CacheOptions::bytes_max`], never passed), bytes of fills in
//!   memory, requests at once; the others are named in `limits` of each part.
//! * **Shutdown**: [`Cache::close`] gives up fills and writes the journal. A process that is killed
//!   instead loses the last moments of what the journal would have said, no more.

#![forbid(unsafe_code)]

mod cache;
mod disk;
mod error;
mod limits;
mod object;
mod remote;

pub use cache::{Cache, CacheOptions, CacheStats, CachedObject, Progress};
pub use error::Error;
pub use object::{Object, ObjectStream, ReadOptions, Reading, StreamOptions, Use};
pub use remote::{Environment, Fetched, ObjectMeta, Remote, RemoteOptions, RemoteStats};
