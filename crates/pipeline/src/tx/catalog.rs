//! Which table a key belongs to, and what is promised for it.
//!
//! To a client there is one key space: `name:rest` belongs to the table `name` if there is one,
//! every other key to `default`, whose 16 spaces SELECT chooses among. Named tables are reachable
//! from all spaces.

use std::{collections::HashMap, hash::BuildHasherDefault};

use busload_log::SyncPolicy;
use busload_tables::TableId;
use rapidhash::fast::RapidHasher;

use crate::{
    limits::SPACE_COUNT,
    settings::{SyncMode, TableSettings},
};

/// Where keys with a certain prefix go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A memory table.
    Memory(TableId),
    /// A source, by ordinal.
    Source(usize),
}

/// Whether changes of a table are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logging {
    /// With this policy.
    On(SyncPolicy),
    /// No.
    Off,
}

/// A memory table as it is configured.
#[derive(Clone, Debug)]
pub struct MemoryTable {
    /// Its settings.
    pub settings: TableSettings,
    logging: Logging,
}

/// All tables.
#[derive(Debug)]
pub struct Catalog {
    /// By [`TableId`]; all spaces share the settings of `default`. Ids of dropped tables have none.
    memory: Vec<Option<MemoryTable>>,
    /// Clients choose what is looked up here, not what is in it: the hash need not resist them.
    routes: HashMap<Box<[u8]>, Route, BuildHasherDefault<RapidHasher<'static>>>,
    logged: bool,
    memory_max: bool,
}

impl Catalog {
    /// Only `default`, in all its spaces.
    pub fn new(default: TableSettings) -> Self {
        let table = MemoryTable { logging: logging_of(default.sync), settings: default };
        let logged = table.logging != Logging::Off;
        let memory_max = table.settings.memory_max.is_some();
        let memory = vec![Some(table); usize::from(SPACE_COUNT)];
        Self { memory, routes: HashMap::default(), logged, memory_max }
    }

    /// Adds a named memory table.
    pub fn add_memory(&mut self, id: TableId, settings: TableSettings) {
        let index = usize::from(id.0);
        if self.memory.len() <= index {
            self.memory.resize(index + 1, None);
        }
        self.routes.insert(settings.name.as_bytes().into(), Route::Memory(id));
        let logging = logging_of(settings.sync);
        self.logged |= logging != Logging::Off;
        self.memory_max |= settings.memory_max.is_some();
        self.memory[index] = Some(MemoryTable { settings, logging });
    }

    /// Adds a table that a source answers for.
    pub fn add_source(&mut self, name: &str, ordinal: usize) {
        self.routes.insert(name.as_bytes().into(), Route::Source(ordinal));
    }

    /// Where the key goes.
    #[inline]
    pub fn route(&self, space: u16, key: &[u8]) -> Route {
        if !self.routes.is_empty()
            && let Some(colon) = memchr::memchr(b':', key)
            && let Some(&route) = self.routes.get(&key[..colon])
        {
            return route;
        }
        Route::Memory(TableId(space))
    }

    /// The memory table of a key that is known not to belong to a source.
    #[inline]
    pub fn memory_table(&self, space: u16, key: &[u8]) -> TableId {
        match self.route(space, key) {
            Route::Memory(table) => table,
            // Commands reach handlers only with keys of memory tables; whatever this is, it is
            // nowhere.
            Route::Source(_) => TableId(space),
        }
    }

    /// Whether there are tables besides memory.
    pub fn has_named(&self) -> bool {
        !self.routes.is_empty()
    }

    /// Whether any memory table is logged.
    pub fn any_logged(&self) -> bool {
        self.logged
    }

    /// Whether any table has a memory limit of its own.
    pub fn any_memory_max(&self) -> bool {
        self.memory_max
    }

    /// Whether and how the table's changes are logged.
    #[inline]
    pub fn logging(&self, table: TableId) -> Logging {
        self.memory
            .get(usize::from(table.0))
            .and_then(Option::as_ref)
            .map_or(Logging::Off, |table| table.logging)
    }

    /// A memory table's settings.
    pub fn memory(&self, table: TableId) -> Option<&MemoryTable> {
        self.memory.get(usize::from(table.0)).and_then(Option::as_ref)
    }

    /// All memory tables that a client in this space sees when it lists keys: the space, in space 0
    /// also the named.
    pub fn listed(&self, space: u16) -> Vec<TableId> {
        let mut tables = vec![TableId(space)];
        if space == 0 {
            tables.extend(self.named_memory());
        }
        tables
    }

    /// All memory tables, spaces first.
    pub fn all_memory(&self) -> Vec<TableId> {
        (0..SPACE_COUNT).map(TableId).chain(self.named_memory()).collect()
    }

    fn named_memory(&self) -> impl Iterator<Item = TableId> + '_ {
        (SPACE_COUNT..)
            .map(TableId)
            .zip(self.memory.iter().skip(usize::from(SPACE_COUNT)))
            .filter(|(_, table)| table.is_some())
            .map(|(id, _)| id)
    }
}

fn logging_of(sync: SyncMode) -> Logging {
    match sync {
        SyncMode::Always => Logging::On(SyncPolicy::Always),
        SyncMode::Interval(every) => Logging::On(SyncPolicy::Interval(every)),
        SyncMode::Os => Logging::On(SyncPolicy::Os),
        SyncMode::Off => Logging::Off,
    }
}
