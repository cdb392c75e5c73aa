//! Limits of a set that can change while it serves.

use std::time::Duration;

use busload_objects::StoreShare;

use super::{SetSettings, StoreSet};
use crate::limits::{IDLE_SWEEP_MAX, IDLE_SWEEP_MIN};

/// Limits of the open stores of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetLimits {
    /// Largest number of stores that are open at once.
    pub stores_max: usize,
    /// Memory for the indexes of open stores, in bytes.
    pub index_bytes_max: u64,
    /// Time without requests after which a store is closed.
    pub idle: Duration,
}

impl SetLimits {
    /// Returns the limits among the settings of a set.
    pub fn of(settings: &SetSettings) -> Self {
        let SetSettings { stores_max, index_bytes_max, idle, .. } = *settings;
        Self { stores_max, index_bytes_max, idle }
    }

    /// Returns the time between two searches for idle stores.
    pub(super) fn sweep_every(&self) -> Duration {
        (self.idle / 4).clamp(IDLE_SWEEP_MIN, IDLE_SWEEP_MAX)
    }
}

impl StoreSet {
    /// Changes the limits: closes idle stores until they hold, and no store in use.
    pub fn set_limits(&self, limits: SetLimits) {
        let mut stores = self.shared.stores();
        stores.limits = limits;
        self.shared.parts.opening.set_store_bytes_max(limits.index_bytes_max);
        self.shared
            .close_least_recent(&mut stores, |stores| stores.open.len() <= limits.stores_max);
        self.shared.keep_index_bytes(&mut stores);
    }

    /// Changes the share of each store in the disk cache.
    pub fn set_store_share(&self, share: StoreShare) {
        self.cache().set_store_share(share);
    }
}
