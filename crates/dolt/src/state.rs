//! Whether the store is served.

use crate::Error;

/// Whether the store is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreStatus {
    /// It was never reached yet.
    Opening,
    /// Served.
    Open,
    /// It is not served, and why; tried again at the pace of `poll`. If it was open before, the
    /// last version is served on, and this is why there is no newer one.
    Failed(Error),
}
