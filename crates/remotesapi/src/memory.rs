//! Memory budgets, one per table: work for a store that hangs takes nothing from the budget of
//! another table.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout_at,
};

use crate::limits::{BUDGETS_KEPT, SENDING_QUOTA_BYTES_MAX};

/// Bytes of one permit, about what the smallest piece of work takes.
const UNIT_BYTES: u64 = 4 << 10;

/// Quota of one connection in each table's budget for bytes being sent, so that a client that does
/// not read blocks nobody else. The HTTP front puts one, in an `Arc`, into the extensions of every
/// request of a connection.
#[derive(Debug)]
pub struct ConnectionQuota(TableBudgets);

impl Default for ConnectionQuota {
    fn default() -> Self {
        Self(TableBudgets::new(SENDING_QUOTA_BYTES_MAX))
    }
}

/// Reservation in a table's budget and in the quota of a connection.
#[derive(Debug)]
pub struct QuotaReservation {
    _of_table: OwnedSemaphorePermit,
    _of_connection: Option<OwnedSemaphorePermit>,
}

/// One memory budget per table.
#[derive(Debug)]
pub struct TableBudgets {
    bytes_max: u64,
    /// Budgets by table name. Those that nobody uses go when there are many.
    budgets: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl TableBudgets {
    /// Creates budgets of `bytes_max` for each table.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, budgets: Mutex::default() }
    }

    /// Reserves `bytes`, or the whole budget if that is less, in the order of arrival. Returns none
    /// if the budget is still taken at `until`.
    pub async fn reserve(
        &self,
        table: &str,
        bytes: u64,
        until: Instant,
    ) -> Option<OwnedSemaphorePermit> {
        let permits = units(bytes.min(self.bytes_max).max(1));
        let reserved = timeout_at(until.into(), self.budget(table).acquire_many_owned(permits));
        Some(reserved.await.ok()?.expect("the semaphore is never closed"))
    }

    /// Reserves the connection's quota first, then the table's budget. A caller that waits for its
    /// quota blocks nobody else.
    pub async fn reserve_with_quota(
        &self,
        quota: Option<&ConnectionQuota>,
        (table, bytes): (&str, u64),
        until: Instant,
    ) -> Option<QuotaReservation> {
        let of_connection = match quota {
            Some(ConnectionQuota(quota)) => Some(quota.reserve(table, bytes, until).await?),
            None => None,
        };
        let of_table = self.reserve(table, bytes, until).await?;
        Some(QuotaReservation { _of_table: of_table, _of_connection: of_connection })
    }

    fn budget(&self, table: &str) -> Arc<Semaphore> {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(budget) = budgets.get(table) {
            return Arc::clone(budget);
        }
        if BUDGETS_KEPT <= budgets.len() {
            // Permits hold the budgets that they are of.
            budgets.retain(|_, budget| 1 < Arc::strong_count(budget));
        }
        let budget = Arc::new(Semaphore::new(units(self.bytes_max) as usize));
        budgets.insert(table.to_owned(), Arc::clone(&budget));
        budget
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).expect("the limits are less than 16 TiB")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    fn paused() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    }

    #[test]
    fn a_full_budget_is_waited_for_and_those_of_other_tables_are_not() {
        paused().block_on(async {
            let budgets = TableBudgets::new(10 * UNIT_BYTES);
            let until = || (Instant::now() + Duration::from_secs(1)).into_std();
            let all = budgets.reserve("a", u64::MAX, until()).await.unwrap();
            assert!(budgets.reserve("a", 1, until()).await.is_none());
            assert!(budgets.reserve("b", 1, until()).await.is_some());
            drop(all);
            let small = budgets.reserve("a", 0, until()).await.unwrap();
            assert_eq!(small.num_permits(), 1);
            let more = budgets.reserve("a", UNIT_BYTES + 1, until()).await.unwrap();
            assert_eq!(more.num_permits(), 2);
        });
    }

    #[test]
    fn one_connection_has_a_quota_and_leaves_the_rest_to_others() {
        paused().block_on(async {
            let budgets = TableBudgets::new(10 * UNIT_BYTES);
            let quota = || ConnectionQuota(TableBudgets::new(4 * UNIT_BYTES));
            let (greedy, other) = (quota(), quota());
            let reserve = |quota, table| {
                let until = (Instant::now() + Duration::from_secs(1)).into_std();
                budgets.reserve_with_quota(Some(quota), (table, UNIT_BYTES), until)
            };
            let mut reserved = Vec::new();
            while let Some(reservation) = reserve(&greedy, "a").await {
                reserved.push(reservation);
            }
            assert_eq!(reserved.len(), 4);
            let mut waits = Box::pin(reserve(&greedy, "a"));
            assert!(futures_util::poll!(&mut waits).is_pending());
            assert!(
                reserve(&other, "a").await.is_some(),
                "a client that waits for its quota blocks nobody"
            );
            assert!(reserve(&greedy, "b").await.is_some(), "tables have their own");
            reserved.pop();
            assert!(waits.await.is_some());
        });
    }
}
