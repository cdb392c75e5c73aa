//! Chunk stores as remotes of Dolt: what `dolt clone`, `fetch` and `pull` ask for, for reading
//! only.
//!
//! ```text
//!  gRPC --> service --> target: which table ----------------------------+
//!             |                                                         v
//!             +--> locations: requests in order --> layout ------> busload_dolt::Store
//!             |                                     |  files: where chunks are in their table files; reads start at once
//!             |                                     |  records: chunks laid out anew, without dictionaries
//!             +--> lists of files                   v
//!                    URLs ............... url: table, file and version, or the chunks of a layout
//!                      :                            ^
//!  HTTP GET, HEAD -----+--> download: ranges, whole files --> FileBytes, or Records
//! ```
//!
//! **URLs** say all that is needed to answer them: nothing is remembered for them, and they are
//! good as long as the store has the bytes. **Consistency.** Each request is answered from one
//! version of the store. **Ordering.** A stream has one answer for each request, in their order.
//! **Limits** are in [`limits`]. **Failure.** Nothing is sent that is not as announced: an answer
//! that cannot be completed is cut off, which clients see and try again.

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

/// What the service and the downloads share.
#[derive(Debug)]
pub struct Remotesapi {
    /// Has the stores, and the metrics.
    status: Arc<Status>,
    front: Arc<Front>,
    records: RecordsCache,
}

impl Remotesapi {
    /// Of the stores that the status will have.
    pub fn new(status: Arc<Status>, front: Arc<Front>) -> Arc<Self> {
        let records = RecordsCache::new(Arc::clone(&status));
        Arc::new(Self { status, front, records })
    }
}
