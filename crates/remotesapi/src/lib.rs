//! Dolt's remote protocol: serves chunk stores as read-only remotes to `dolt clone`, `dolt fetch`
//! and `dolt pull`.
//!
//! A client asks over gRPC (`dolt.services.remotesapi.v1alpha1.ChunkStoreService`) for the root of
//! a repository, for its table files, or where its chunks are. The answers advertise URLs, and the
//! client downloads whole files or ranges of them over plain HTTP.
//!
//! ```text
//!  client --gRPC--> service --> target: repository, deadline
//!                      |
//!                      +--> table_files ------------------> url: path of a file or a bundle
//!                      |                                     ^                :
//!                      +--> answer_stream --> advertised ----+                :
//!                               | batches                                     :
//!                               v                                             :
//!                            locate --+--> files: offsets in table files,     :
//!                                     |           whose reads start at once   :
//!                                     +--> records: bundles, encoded once     :
//!                                                    |                        :
//!                                                    v                        :
//!                                           busload_dolt::Store               :
//!                                                    ^                        :
//!                                                    |                        :
//!  client --GET, HEAD--> download: conditions, range, memory <................:
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `host` | what the protocol asks of the server around it: stores, base URL, keys |
//! | `service` | the methods of the gRPC service |
//! | `target` | the repository and the deadline of a call; the URLs of its answer |
//! | `table_files` | lists of table files |
//! | `question`, `advertised` | the addresses of a request; its answer as the client gets it |
//! | `answer_stream` | streams: requests that wait become a batch, answers keep their order |
//! | `locate` | chunk locations, in table files or in bundles |
//! | `bundles` | encoded chunk bundles: single-flight encoding, an LRU cache |
//! | `url`, `download` | paths of resources; GET and HEAD for them |
//! | `memory`, `task` | memory budgets; work on the threads of the stores |
//! | `stats`, `rate_limited_log` | counters and warnings |
//!
//! A server implements [`Host`] and mounts [`service()`] and [`routes`]. Its HTTP front puts an
//! `Arc<`[`ConnectionQuota`]`>` of the connection and a [`CallMemory`](busload_calls::CallMemory)
//! into the extensions of every request; without them nothing bounds what one connection takes.
//!
//! * **URLs** hold all that the server needs to answer them. It keeps no state for them, and they
//!   work as long as the store has the bytes, in other processes, too.
//! * **Consistency.** Each request is answered from one version of the store.
//! * **Ordering.** A stream gets one answer per request, in the order of the requests.
//! * **Limits** are in [`limits`].
//! * **Overload.** Encoding and downloads wait for memory, per table and per connection, until
//!   their deadline; then they fail with `UNAVAILABLE`, or 503 with `Retry-After`. A call on a
//!   connection that holds too much memory fails with `RESOURCE_EXHAUSTED`.
//! * **Failure.** The server never sends fewer or other bytes than it announced: it cuts off an
//!   answer that it cannot complete, and clients retry.
//! * **Shutdown.** Calls fail with `UNAVAILABLE`, downloads in progress are cut off.

#![forbid(unsafe_code)]

// What the protocol asks of the server, and what bounds it.
mod host;
pub mod limits;

// gRPC: a call, the repository that it names, lists of files.
mod service;
mod table_files;
mod target;

// Streams of requests for chunk locations.
mod advertised;
mod answer_stream;
mod question;

// Where chunks are.
mod bundles;
mod locate;

// HTTP.
mod download;
mod url;

// Means of all of these.
mod memory;
mod rate_limited_log;
mod stats;
mod task;
#[cfg(test)]
mod testing;

use std::sync::Arc;

pub use download::routes;
pub use host::{DoltLayout, Host, KeyCheck, Repositories, Repository, StoreReader, TableRights};
pub use memory::ConnectionQuota;
pub use service::{Service, service};
pub use stats::{Download, Location, Method, RecordsOrigin, RemotesapiStats};
pub use url::PREFIX as DOWNLOADS;

use self::{bundles::BundleCache, rate_limited_log::RateLimitedLog};

/// Everything that the gRPC service and the downloads share.
#[derive(Debug)]
pub struct Remotesapi {
    host: Arc<dyn Host>,
    stats: Arc<RemotesapiStats>,
    bundles: BundleCache,
    rate_limited_log: RateLimitedLog,
}

impl Remotesapi {
    /// Serves the repositories that `host` has once their stores have started, and counts in
    /// `stats`.
    pub fn new(host: Arc<dyn Host>, stats: Arc<RemotesapiStats>) -> Arc<Self> {
        let bundles = BundleCache::new(Arc::clone(&host), Arc::clone(&stats));
        Arc::new(Self { host, stats, bundles, rate_limited_log: RateLimitedLog::default() })
    }
}
