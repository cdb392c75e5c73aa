//! Memory for the ends of files that are on their way.

use tokio::sync::{Semaphore, SemaphorePermit};

/// A permit stands for so many bytes: the count of a semaphore has 32 bits.
const UNIT_BYTES: u64 = 1 << 10;

/// Bytes that may be on their way at once. Whoever comes first has them first, however few are
/// wanted by who comes later.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    units: Semaphore,
    units_max: u32,
}

impl MemoryBudget {
    pub fn new(bytes_max: u64) -> Self {
        let units_max = u32::try_from(bytes_max / UNIT_BYTES).expect("limits say so");
        let units =
            Semaphore::new(usize::try_from(units_max).expect("a usize has 32 bits at least"));
        Self { units, units_max }
    }

    /// Waits for so many bytes, or for all if there are fewer.
    pub async fn take(&self, bytes: u64) -> SemaphorePermit<'_> {
        let units =
            u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.units_max);
        self.units.acquire_many(units).await.expect("it is never closed")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn what_fits_is_under_way_together_and_what_is_too_large_alone() {
        let room = MemoryBudget::new(10 << 10);
        let take = |bytes| room.take(bytes).now_or_never();
        let small = take(4 << 10).unwrap();
        let other = take((5 << 10) + 1).unwrap();
        assert!(take(1).is_none());
        drop(small);
        assert!(take(u64::MAX).is_none());
        drop(other);
        let all = take(u64::MAX).unwrap();
        assert!(take(1).is_none());
        drop(all);
        assert!(take(10 << 10).is_some());
    }
}
