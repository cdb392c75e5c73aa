//! Files of segments that snapshots cover, kept to be segments again: writing zeros over a new file
//! costs as much as the frames that follow.
//!
//! A spare has a name of its own, durably, before it may be overwritten. A start removes the spares
//! that it finds.

use std::sync::{Mutex, MutexGuard, PoisonError};

use busload_io::{Disk, DiskError};

use crate::last_segment::remove_if_there;

/// File that was a segment.
#[derive(Debug)]
pub(crate) struct Spare {
    pub name: String,
    pub bytes: u64,
}

/// Spares that wait to be used.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    list: Mutex<Vec<Spare>>,
}

impl Spares {
    /// Adds spares whose names are durable.
    pub fn add(&self, spares: Vec<Spare>) {
        self.lock().extend(spares);
    }

    /// Returns the sum of their lengths.
    pub fn bytes(&self) -> u64 {
        self.lock().iter().map(|spare| spare.bytes).sum()
    }

    /// Takes a spare of exactly this length.
    pub fn take(&self, bytes: u64) -> Option<Spare> {
        let mut list = self.lock();
        let index = list.iter().position(|spare| spare.bytes == bytes)?;
        Some(list.swap_remove(index))
    }

    /// Removes all spares from the disk. Returns whether there were any.
    pub fn remove_all<D: Disk>(&self, disk: &D) -> Result<bool, DiskError> {
        let list = std::mem::take(&mut *self.lock());
        for spare in &list {
            remove_if_there(disk, &spare.name)?;
        }
        Ok(!list.is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
