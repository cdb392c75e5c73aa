//! Chunk stores by pattern, and how a request finds its store by name.
//!
//! ```text
//!  name --> a table of this name? -------> ServedStore::Table
//!            | no
//!            +-> the first pattern that -> ServedStore::OfSet: opened if nobody has, and open
//!                matches                   as long as somebody has this value
//! ```

use std::{fmt, sync::Arc};

use busload_calls::CallTimes;
use busload_dolt::{DynamoTables, Error, OpenStore, Store, StoreSet};
use tokio::runtime::Handle;

use crate::{
    chunk_stores::ChunkTable,
    config::{ChunksSettings, StoresSettings},
    failure::Failure,
};

/// Stores of one pattern.
pub struct ChunkSet {
    pub settings: StoresSettings,
    pub set: StoreSet,
    /// Times of gRPC calls and downloads, of all stores together.
    pub times: Arc<CallTimes>,
}

/// Store that a request reached by its name.
#[derive(Clone, Debug)]
pub enum ServedStore {
    /// Store of a table.
    Table(Arc<ChunkTable>),
    /// Store of a pattern.
    OfSet(Arc<ChunkSet>, Arc<OpenStore>),
}

/// Reason why a name leads to no store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotServed {
    /// No table has the name, and no pattern matches it.
    Unknown,
    /// The store of a pattern cannot be used.
    Failed(Error),
}

impl ChunkSet {
    /// Makes a set of which no store is open.
    pub fn start(
        settings: &StoresSettings,
        runtime: &Handle,
        dynamo: DynamoTables,
        peers: Option<Arc<dyn busload_dolt::Peers>>,
    ) -> Result<Self, Failure> {
        let pattern = settings.pattern.text();
        log::info!("stores {pattern}: {}", settings.describe());
        let checked = settings.check_url(runtime.clone());
        checked.map_err(|error| Failure::usage(format!("stores {pattern}: {error}")))?;
        let mut of_set = settings.of_set(runtime.clone(), dynamo);
        of_set.store.peers = peers;
        let set = StoreSet::start(of_set);
        let set =
            set.map_err(|error| Failure::run(format!("cannot start stores {pattern}: {error}")))?;
        Ok(Self { settings: settings.clone(), set, times: Arc::default() })
    }

    /// Makes stores that are served by other settings: the same ones, open or not, with the limits
    /// of these settings.
    pub fn with_settings(&self, settings: &StoresSettings) -> Self {
        self.set.set_limits(settings.limits());
        self.set.set_store_share(settings.store_share);
        Self { settings: settings.clone(), set: self.set.clone(), times: Arc::clone(&self.times) }
    }

    /// Returns the pattern as it was configured.
    pub fn pattern(&self) -> &str {
        self.settings.pattern.text()
    }
}

impl ServedStore {
    /// Returns the name under which the store is served.
    pub fn name(&self) -> &str {
        self.store().name()
    }

    /// Returns the settings of the table; of a pattern those of each of its stores.
    pub fn settings(&self) -> &ChunksSettings {
        match self {
            Self::Table(table) => &table.settings,
            Self::OfSet(set, _) => &set.settings.chunks,
        }
    }

    pub fn store(&self) -> &Store {
        match self {
            Self::Table(table) => &table.store,
            Self::OfSet(_, open) => open,
        }
    }

    /// Returns the times of the table's calls; of a pattern those of all of its stores.
    pub fn times(&self) -> &Arc<CallTimes> {
        match self {
            Self::Table(table) => &table.times,
            Self::OfSet(set, _) => &set.times,
        }
    }

    /// Returns the number that no other table or store of the process has had.
    pub fn number(&self) -> usize {
        match self {
            Self::Table(table) => table.number,
            Self::OfSet(_, open) => open.number(),
        }
    }
}

impl fmt::Debug for ChunkSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChunkSet").field(&self.pattern()).finish()
    }
}
