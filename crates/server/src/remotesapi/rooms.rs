//! Room in memory for each table's work: what waits for a store that hangs takes none of another's.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout_at,
};

/// What is counted: about what the smallest work takes.
const UNIT_BYTES: u64 = 4 << 10;

/// Of all tables.
#[derive(Debug)]
pub struct Rooms {
    bytes_max: u64,
    /// By the names of the tables, which are as many as the configuration has.
    rooms: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Rooms {
    /// Of so many bytes for each.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, rooms: Mutex::default() }
    }

    /// Waits for so much room in its turn, or for all of it if that is less; none if there is none in time.
    pub async fn take(&self, table: &str, bytes: u64, until: Instant) -> Option<OwnedSemaphorePermit> {
        let taken = self.room(table).acquire_many_owned(units(bytes.min(self.bytes_max).max(1)));
        let taken = timeout_at(until.into(), taken).await.ok()?;
        Some(taken.expect("the semaphore is never closed"))
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
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
    }

    #[test]
    fn a_full_room_is_waited_for_and_others_are_not() {
        paused().block_on(async {
            let rooms = Rooms::new(10 * UNIT_BYTES);
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
}
