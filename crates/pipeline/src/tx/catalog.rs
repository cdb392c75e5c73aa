//! Tables by name: which table a key belongs to, and how durable its writes are.
//!
//! A client sees one key space: `name:rest` belongs to the table `name` if there is one, every
//! other key to `default`, among whose 16 spaces SELECT chooses. Named tables are reachable from
//! all spaces. The name of a source's table may be a pattern: the source then serves all tables
//! whose names match and that no other table has.

use std::{collections::HashMap, hash::BuildHasherDefault};

use busload_log::SyncPolicy;
use busload_tables::TableId;
use rapidhash::fast::RapidHasher;

use crate::{
    limits::SPACE_COUNT,
    name_pattern::NamePattern,
    settings::{Eviction, SyncMode, TableSettings},
};

/// Destination of the keys with a certain prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Id of a memory table.
    Memory(TableId),
    /// Ordinal of a source.
    Source(usize),
}

/// Logging of a table's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logging {
    /// Logged with this policy.
    On(SyncPolicy),
    /// Not logged at all.
    Off,
}

/// Memory table and how it is configured.
#[derive(Clone, Debug)]
pub struct MemoryTable {
    /// Settings of the table.
    pub settings: TableSettings,
    logging: Logging,
}

/// All memory tables, and the prefixes of all tables.
#[derive(Debug)]
pub struct Catalog {
    /// Memory tables by [`TableId`]; all spaces share the settings of `default`. Ids of dropped
    /// tables are `None`.
    memory: Vec<Option<MemoryTable>>,
    /// Route of each prefix. Clients choose the lookups but not the contents, so the hash need not
    /// resist attacks.
    routes: HashMap<Box<[u8]>, Route, BuildHasherDefault<RapidHasher<'static>>>,
    /// Sources of patterns, the most specific pattern first.
    patterns: Vec<(NamePattern, Route)>,
    logged: bool,
    memory_max: bool,
    /// Tables that are caches; of `default`, every space.
    evicting: Vec<TableId>,
    /// Named memory tables in the order in which SCAN visits them. A table keeps its place as long
    /// as it exists; the place of one that is gone is `None` until another takes it.
    scanned: Vec<Option<TableId>>,
    /// Tables of sources that the log knows, and their ids, under which nothing is stored.
    sources: HashMap<String, TableId>,
    /// Id of the next table.
    next_id: u16,
}

impl Catalog {
    /// Creates a catalog of `default` alone, with all its spaces.
    pub fn new(default: TableSettings) -> Self {
        let table = MemoryTable { logging: logging_of(default.sync), settings: default };
        let logged = table.logging != Logging::Off;
        let memory_max = table.settings.memory_max.is_some();
        let evicting = match table.settings.evict {
            Eviction::None => Vec::new(),
            Eviction::S3Fifo => (0..SPACE_COUNT).map(TableId).collect(),
        };
        let memory = vec![Some(table); usize::from(SPACE_COUNT)];
        Self {
            memory,
            routes: HashMap::default(),
            patterns: Vec::new(),
            logged,
            memory_max,
            evicting,
            scanned: Vec::new(),
            sources: HashMap::new(),
            next_id: SPACE_COUNT,
        }
    }

    /// Notes the tables of sources that the log knows, and the id of the next table.
    pub fn note_known(&mut self, sources: HashMap<String, TableId>, next_id: u16) {
        (self.sources, self.next_id) = (sources, next_id);
    }

    /// Takes the id of the next table; none when there are no more.
    pub fn take_id(&mut self) -> Option<TableId> {
        let id = TableId(self.next_id);
        self.next_id = self.next_id.checked_add(1)?;
        Some(id)
    }

    /// Notes that the log knows a table of a source.
    pub fn note_source(&mut self, name: &str, id: TableId) {
        self.sources.insert(name.to_owned(), id);
    }

    /// Returns the id that the table of a source has in the log.
    pub fn source_id(&self, name: &str) -> Option<TableId> {
        self.sources.get(name).copied()
    }

    /// Returns the number of named tables.
    pub fn named_count(&self) -> usize {
        self.routes.len() + self.patterns.len()
    }

    /// Returns the route of a prefix, if a table has that name.
    pub fn route_of(&self, name: &str) -> Option<Route> {
        let pattern = || self.patterns.iter().find(|(pattern, _)| pattern.text() == name);
        self.routes.get(name.as_bytes()).copied().or_else(|| pattern().map(|(_, route)| *route))
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
        if settings.evict == Eviction::S3Fifo {
            self.evicting.push(id);
        }
        self.memory[index] = Some(MemoryTable { settings, logging });
        match self.scanned.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(id),
            None => self.scanned.push(Some(id)),
        }
    }

    /// Removes a named memory table.
    pub fn remove_memory(&mut self, id: TableId) {
        let Some(table) = self.memory.get_mut(usize::from(id.0)).and_then(Option::take) else {
            return;
        };
        self.routes.remove(table.settings.name.as_bytes());
        self.evicting.retain(|table| *table != id);
        self.scanned.iter_mut().filter(|place| **place == Some(id)).for_each(|place| *place = None);
        let tables = || self.memory.iter().flatten();
        let is_logged = tables().any(|table| table.logging != Logging::Off);
        let is_limited = tables().any(|table| table.settings.memory_max.is_some());
        (self.logged, self.memory_max) = (is_logged, is_limited);
    }

    /// Changes durability and memory limit of the memory table with this name, for writes from now
    /// on. Whether it is logged at all stays as it is: that changes what the log holds of it.
    pub fn change_memory(&mut self, name: &str, sync: SyncMode, memory_max: Option<u64>) {
        let tables = self.memory.iter_mut().flatten();
        for table in tables.filter(|table| table.settings.name == name) {
            assert_eq!(table.settings.sync == SyncMode::Off, sync == SyncMode::Off, "{name}");
            table.settings.sync = sync;
            table.settings.memory_max = memory_max;
            table.logging = logging_of(sync);
        }
        let mut tables = self.memory.iter().flatten();
        self.memory_max = tables.any(|table| table.settings.memory_max.is_some());
    }

    /// Adds a table that a source serves, or all tables whose names match a pattern.
    pub fn add_source(&mut self, name: &str, ordinal: usize) {
        let route = Route::Source(ordinal);
        let Ok(pattern) = NamePattern::parse(name) else {
            self.routes.insert(name.as_bytes().into(), route);
            return;
        };
        self.patterns.retain(|(other, _)| *other != pattern);
        self.patterns.push((pattern, route));
        self.patterns.sort_by(|(one, _), (other, _)| one.rank().cmp(&other.rank()));
    }

    /// Removes a table of a source: its keys belong to `default` from now on.
    pub fn remove_source(&mut self, name: &str) {
        self.routes.remove(name.as_bytes());
        self.patterns.retain(|(pattern, _)| pattern.text() != name);
        self.sources.remove(name);
    }

    /// Returns the table or source that the key belongs to.
    #[inline(always)]
    pub fn route(&self, space: u16, key: &[u8]) -> Route {
        let named = if self.has_named() { self.route_by_prefix(key) } else { None };
        named.unwrap_or(Route::Memory(TableId(space)))
    }

    /// Out of line: many servers have no table but `default`.
    #[inline(never)]
    fn route_by_prefix(&self, key: &[u8]) -> Option<Route> {
        let colon = memchr::memchr(b':', key)?;
        self.named(&key[..colon])
    }

    #[inline]
    fn named(&self, name: &[u8]) -> Option<Route> {
        let matching = || self.patterns.iter().find(|(pattern, _)| pattern.matches(name));
        self.routes.get(name).copied().or_else(|| matching().map(|(_, route)| *route))
    }

    /// Returns the memory table of a key that is known not to belong to a source.
    #[inline]
    pub fn memory_table(&self, space: u16, key: &[u8]) -> TableId {
        match self.route(space, key) {
            Route::Memory(table) => table,
            // Commands reach handlers only with keys of memory tables; no table has a key of a
            // source.
            Route::Source(_) => TableId(space),
        }
    }

    /// Returns whether there are named tables, in memory or at sources.
    #[inline]
    pub fn has_named(&self) -> bool {
        !self.routes.is_empty() || !self.patterns.is_empty()
    }

    /// Returns whether any memory table is logged.
    pub fn any_logged(&self) -> bool {
        self.logged
    }

    /// Returns whether any table has a memory limit of its own.
    pub fn any_memory_max(&self) -> bool {
        self.memory_max
    }

    /// Returns the tables that are caches; of `default`, every space.
    pub fn evicting(&self) -> &[TableId] {
        &self.evicting
    }

    /// Returns whether and how the table's changes are logged.
    #[inline]
    pub fn logging(&self, table: TableId) -> Logging {
        self.memory
            .get(usize::from(table.0))
            .and_then(Option::as_ref)
            .map_or(Logging::Off, |table| table.logging)
    }

    /// Returns the settings of a memory table.
    pub fn memory(&self, table: TableId) -> Option<&MemoryTable> {
        self.memory.get(usize::from(table.0)).and_then(Option::as_ref)
    }

    /// Returns the memory tables whose keys a client in this space sees when it lists keys: the
    /// space, and in space 0 also the named tables.
    pub fn listed(&self, space: u16) -> Vec<TableId> {
        let mut tables = vec![TableId(space)];
        if space == 0 {
            tables.extend(self.named_memory());
        }
        tables
    }

    /// Returns the tables of [`Catalog::listed`] in a stable order: a table keeps its place while
    /// others come and go.
    pub fn scanned(&self, space: u16) -> Vec<Option<TableId>> {
        let mut tables = vec![Some(TableId(space))];
        if space == 0 {
            tables.extend(&self.scanned);
        }
        tables
    }

    /// Returns all memory tables, spaces first.
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
