//! Serves chunk stores as read-only remotes to `dolt clone`, `dolt fetch` and `dolt pull`.
//!
//! ```text
//!  gRPC --> service --> target: the table --------------------------+
//!             |                                                     v
//!             +--> locations: answers in order --> layout --> busload_dolt::Store
//!             |                                      |  files:   offsets in table files,
//!             |                                      |           whose reads start at once
//!             |                                      |  records: bundles of encoded chunks,
//!             +--> lists: table files                v           without dictionaries
//!                    URLs ............... url: table, file and version, or chunks of a bundle
//!                      :                             ^
//!  HTTP GET, HEAD -----+--> download: ranges, whole files --> FileBytes, or Records
//! ```
//!
//! **URLs** hold all that the server needs to answer them. It keeps no state for them, and they
//! work as long as the store has the bytes. **Consistency.** Each request is answered from one
//! version of the store. **Ordering.** A stream gets one answer per request, in the order of the
//! requests. **Limits** are in [`limits`]. **Failure.** The server never sends fewer or other bytes
//! than it announced: it cuts off an answer that it cannot complete, and clients retry.

mod download;
mod layout;
pub mod limits;
mod lists;
mod locations;
mod records;
mod rooms;
mod service;
mod stats;
mod target;
#[cfg(test)]
mod testing;
mod url;
mod work;

use std::sync::Arc;

pub use download::routes;
pub use rooms::Share;
pub use service::service;
pub use stats::{Download, Location, Method, RecordsOrigin, RemotesapiStats};
pub use url::PREFIX as DOWNLOADS;

use self::records::RecordsCache;
use crate::{http::Front, status::Status};

/// State that the gRPC service and the downloads share.
#[derive(Debug)]
pub struct Remotesapi {
    /// Gives access to the stores and the metrics.
    status: Arc<Status>,
    front: Arc<Front>,
    records: RecordsCache,
}

impl Remotesapi {
    /// Serves the stores that `status` holds once they have started.
    pub fn new(status: Arc<Status>, front: Arc<Front>) -> Arc<Self> {
        let records = RecordsCache::new(Arc::clone(&status));
        Arc::new(Self { status, front, records })
    }
}
