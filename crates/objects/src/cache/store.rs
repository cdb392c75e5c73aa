//! Handles that keep a store open.

use std::sync::Arc;

use crate::disk::{Disk, StoreKey};

/// Keeps a store open: its sidecars are not evicted and its floor counts. Dropping the last handle
/// of a store closes it; reads of its objects go on.
#[derive(Debug)]
pub struct StoreHandle {
    disk: Option<Arc<Disk>>,
    key: StoreKey,
}

impl StoreHandle {
    pub(super) fn open(disk: Option<Arc<Disk>>, url: &str) -> Self {
        let key = StoreKey::of(url);
        if let Some(disk) = &disk {
            disk.open_store(key);
        }
        Self { disk, key }
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.close_store(self.key);
        }
    }
}
