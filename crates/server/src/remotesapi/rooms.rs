//! Memory budgets, one per table: work that waits for a store that hangs takes nothing from the
//! budget of another table.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout_at,
};

use super::limits::SENDING_QUOTA_BYTES_MAX;

/// Bytes of one permit, about what the smallest piece of work takes.
const UNIT_BYTES: u64 = 4 << 10;

/// Quota of one connection in each table's budget for bytes being sent, so that a client that does
/// not read blocks nobody else. The HTTP server puts it into the extensions of every request.
#[derive(Debug)]
pub struct Share(pub Budgets);

/// Reservation in a table's budget and in the quota of a connection.
#[derive(Debug)]
pub struct Room {
    _of_table: OwnedSemaphorePermit,
    _of_share: Option<OwnedSemaphorePermit>,
}

impl Default for Share {
    fn default() -> Self {
        Self(Budgets::new(SENDING_QUOTA_BYTES_MAX))
    }
}

/// One memory budget per table.
#[derive(Debug)]
pub struct Budgets {
    bytes_max: u64,
    /// Budgets by table name; the configuration bounds their number.
    rooms: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Budgets {
    /// Creates budgets of `bytes_max` for each table.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, rooms: Mutex::default() }
    }

    /// Reserves `bytes`, or the whole budget if that is less, in the order of arrival. Returns none
    /// if the budget is still taken at `until`.
    pub async fn take(
        &self,
        table: &str,
        bytes: u64,
        until: Instant,
    ) -> Option<OwnedSemaphorePermit> {
        let taken = self.room(table).acquire_many_owned(units(bytes.min(self.bytes_max).max(1)));
        let taken = timeout_at(until.into(), taken).await.ok()?;
        Some(taken.expect("the semaphore is never closed"))
    }

    /// Reserves the connection's quota first, then the table's budget. A caller that waits for its
    /// quota blocks nobody else.
    pub async fn take_shared(
        &self,
        share: Option<&Share>,
        (table, bytes): (&str, u64),
        until: Instant,
    ) -> Option<Room> {
        let of_share = match share {
            Some(Share(share)) => Some(share.take(table, bytes, until).await?),
            None => None,
        };
        Some(Room { _of_table: self.take(table, bytes, until).await?, _of_share: of_share })
    }

    fn room(&self, table: &str) -> Arc<Semaphore> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get(table) {
            return Arc::clone(room);
        }
        let room = Arc::new(Semaphore::new(units(self.bytes_max) as usize));
        rooms.insert(table.to_owned(), Arc::clone(&room));
        room
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
    fn a_full_room_is_waited_for_and_others_are_not() {
        paused().block_on(async {
            let rooms = Budgets::new(10 * UNIT_BYTES);
            let until = || (Instant::now() + Duration::from_secs(1)).into_std();
            let all = rooms.take("a", u64::MAX, until()).await.unwrap();
            assert!(rooms.take("a", 1, until()).await.is_none());
            assert!(rooms.take("b", 1, until()).await.is_some());
            drop(all);
            let small = rooms.take("a", 0, until()).await.unwrap();
            assert_eq!(small.num_permits(), 1);
            assert_eq!(rooms.take("a", UNIT_BYTES + 1, until()).await.unwrap().num_permits(), 2);
        });
    }

    #[test]
    fn one_connection_has_a_share_and_leaves_the_rest_to_others() {
        paused().block_on(async {
            let rooms = Budgets::new(10 * UNIT_BYTES);
            let (greedy, other) =
                (Share(Budgets::new(4 * UNIT_BYTES)), Share(Budgets::new(4 * UNIT_BYTES)));
            let take = |share, table| {
                let until = (Instant::now() + Duration::from_secs(1)).into_std();
                rooms.take_shared(Some(share), (table, UNIT_BYTES), until)
            };
            let mut taken = Vec::new();
            while let Some(room) = take(&greedy, "a").await {
                taken.push(room);
            }
            assert_eq!(taken.len(), 4);
            let mut waits = Box::pin(take(&greedy, "a"));
            assert!(futures_util::poll!(&mut waits).is_pending());
            assert!(
                take(&other, "a").await.is_some(),
                "a client that waits for its quota blocks nobody"
            );
            assert!(take(&greedy, "b").await.is_some(), "tables have their own");
            taken.pop();
            assert!(waits.await.is_some());
        });
    }
}
