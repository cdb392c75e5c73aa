//! Memory budget for the indexes in transit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Error;

/// Bytes that one permit stands for: a semaphore counts permits with 32 bits.
const UNIT_BYTES: u64 = 1 << 10;

/// Bytes that may be in transit at once. Reservations are served in order, so a large one is never
/// starved by small ones.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    units: Semaphore,
    units_max: u32,
    /// Most bytes that the indexes of one store may take.
    store_bytes_max: AtomicU64,
}

impl MemoryBudget {
    pub fn new(bytes_max: u64) -> Self {
        let units_max = u32::try_from(bytes_max / UNIT_BYTES).expect("limits say so");
        let units =
            Semaphore::new(usize::try_from(units_max).expect("a usize has 32 bits at least"));
        Self { units, units_max, store_bytes_max: AtomicU64::new(u64::MAX) }
    }

    /// Sets the most bytes that the indexes of a store may take that is opened from now on.
    pub fn set_store_bytes_max(&self, bytes_max: u64) {
        self.store_bytes_max.store(bytes_max, Relaxed);
    }

    /// Refuses a store whose indexes take this many bytes, as its manifest says, if that is more
    /// than there may be: before any of them is read.
    pub fn check_store(&self, bytes: u64) -> Result<(), Error> {
        let bytes_max = self.store_bytes_max.load(Relaxed);
        if bytes <= bytes_max {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "the indexes of its table files take {bytes} bytes; expected at most {bytes_max}, the \
             limit for those of all open stores"
        )))
    }

    /// Waits until this many bytes are free, or all if the budget is smaller, and reserves them.
    pub async fn reserve(&self, bytes: u64) -> SemaphorePermit<'_> {
        let units =
            u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.units_max);
        self.units.acquire_many(units).await.expect("the semaphore is never closed")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn small_reservations_share_the_budget_and_a_large_one_has_it_alone() {
        let budget = MemoryBudget::new(10 << 10);
        let reserve = |bytes| budget.reserve(bytes).now_or_never();
        let small = reserve(4 << 10).unwrap();
        let other = reserve((5 << 10) + 1).unwrap();
        assert!(reserve(1).is_none());
        drop(small);
        assert!(reserve(u64::MAX).is_none());
        drop(other);
        let all = reserve(u64::MAX).unwrap();
        assert!(reserve(1).is_none());
        drop(all);
        assert!(reserve(10 << 10).is_some());
    }
}
