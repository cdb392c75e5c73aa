//! The tables of a process, each with one queue, and readers of single items.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use busload_batch::{
    BatchError, Batcher, BatcherSettings, DispatchPolicy, QueueSettings, SettingsError, Sharing,
};
use busload_objects::ItemAddress;
use tokio::runtime::Handle;

use crate::{
    Error,
    limits::{BATCH_KEYS_MAX, BATCHES_IN_FLIGHT_MAX, QUEUED_KEYS_MAX},
    service::{ItemRead, Items},
    stats::TableStats,
};

/// Tables whose items are read. Clones share the queues; a table goes with its last reader.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    tables: Arc<Mutex<HashMap<String, Weak<Table>>>>,
}

/// Table with its queue.
struct Table {
    batcher: Batcher<Items>,
}

/// Reader of one item.
#[derive(Clone, Debug)]
pub struct ItemReader {
    table: Arc<Table>,
    key: String,
}

impl Tables {
    /// Makes a reader of an item, on a queue that it shares with the table's other readers; the
    /// requests run on the runtime of the first.
    pub fn reader(&self, address: &ItemAddress, runtime: &Handle) -> ItemReader {
        let identity = format!("{} {}", address.table, address.api.identity());
        let mut tables = self.lock();
        tables.retain(|_, table| table.strong_count() != 0);
        let table = tables.get(&identity).and_then(Weak::upgrade).unwrap_or_else(|| {
            let table = Arc::new(Table::start(address, runtime));
            tables.insert(identity, Arc::downgrade(&table));
            table
        });
        ItemReader { table, key: address.key.clone() }
    }

    /// Collects the metrics of all tables, sorted by name. What several accounts read of one table
    /// is added up.
    pub fn stats(&self) -> Vec<TableStats> {
        let tables: Vec<_> = self.lock().values().filter_map(Weak::upgrade).collect();
        let mut stats: Vec<_> = tables.iter().map(|table| table.stats()).collect();
        stats.sort_by(|a, b| (&a.table, &a.endpoint).cmp(&(&b.table, &b.endpoint)));
        stats.dedup_by(|next, first| {
            let is_same = (&next.table, &next.endpoint) == (&first.table, &first.endpoint);
            if is_same {
                first.add(next);
            }
            is_same
        });
        stats
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Weak<Table>>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn start(address: &ItemAddress, runtime: &Handle) -> Self {
        let items = Items::new(address.api.clone(), address.table.clone());
        let _entered = runtime.enter();
        let batcher: Result<_, SettingsError> = Batcher::from_service(items, settings());
        Self { batcher: batcher.expect("the limits make sense, as a test shows") }
    }

    fn stats(&self) -> TableStats {
        let items = self.batcher.service();
        let waiting = self.batcher.waiting();
        TableStats {
            table: items.table().to_owned(),
            endpoint: items.api().endpoint().to_owned(),
            waiting: u64::try_from(waiting).expect("a count has at most 64 bits"),
            ..items.counters.stats()
        }
    }
}

/// A batch that may be sent takes all that wait: with two in flight, the share of one is all.
fn settings() -> BatcherSettings {
    let queue = QueueSettings {
        requests_max: QUEUED_KEYS_MAX,
        batch_entries_max: BATCH_KEYS_MAX,
        batches_in_flight_max: BATCHES_IN_FLIGHT_MAX,
        dispatch: DispatchPolicy::Eager,
        sharing: Sharing::Waiting,
        ..QueueSettings::default()
    };
    // The caller's deadline holds: a read that is dropped is cancelled.
    BatcherSettings { queue, timeout: None }
}

impl ItemReader {
    /// Reads the item in a request that is sent after this call.
    ///
    /// # Errors
    /// What DynamoDB has is not known. An item that makes no sense is no error here.
    pub async fn read(&self) -> Result<ItemRead, Error> {
        let unknown = |why: &str| Error::Unreachable(format!("cannot read {}: {why}", self.name()));
        match self.table.batcher.load(self.key.clone()).await {
            Ok(Some(read)) => Ok(read),
            Ok(None) => Err(unknown("no answer")),
            Err(BatchError::Failed(error)) => Err(error),
            Err(error) => Err(unknown(&error.to_string())),
        }
    }

    /// Names the item, its table and the service, for people.
    pub fn name(&self) -> String {
        format!("item {:?} of {}", self.key, self.table.batcher.service().described())
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("batcher", &self.batcher).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_make_a_queue() {
        assert_eq!(settings().queue.check(), Ok(()));
    }
}
