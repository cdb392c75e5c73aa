//! Tables that appear, change and go while the server runs, by orders of the thread that reloads.
//!
//! ```text
//!  appear:  begin_table --> search_hidden, a slice per turn --> add_memory_table, add_source_table
//!  change:  hold_source --> requests in flight end: `Leave` gets it --> release_source
//!  go:      drop_memory_table
//!           drop_source --> requests in flight end: `Leave` gets it
//! ```
//!
//! As at a start, no table hides keys: one whose prefix has keys in `default` does not appear, and
//! a memory table with keys does not go. Writes that come while keys are looked for count as keys.
//!
//! **Order.** Requests to a table whose source is replaced wait until those before them have ended.
//! **Transactions.** MULTI and WATCH of keys that now belong to another table end with EXECABORT
//! and nil.

use std::{cell::Cell, sync::mpsc};

use busload_log::{Reservation, SyncPolicy};
use busload_tables::{KeyHash, TableId, effect};

use super::{
    Catalog, Route, Tx,
    open::{settings_text, source_created},
    tickets::HeldRequests,
};
use crate::{
    args::Args,
    command::Command,
    limits::{SLICE_STEPS, SPACE_COUNT, TABLE_COUNT_MAX},
    name_pattern::TableKeys,
    session::Queue,
    settings::TableSettings,
    source::Source,
};

/// Reason for which the tables stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableRefusal {
    /// A command that takes long, or the log, must advance first: try again.
    Busy,
    /// The change is not possible; the text says why.
    Impossible(String),
}

/// Progress of a search for keys that a new table would hide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// There is more to search.
    More,
    /// There are none, and clients write none: the table may be added at once, before tx executes
    /// anything else.
    None,
    /// Table `default` has so many, or clients write some at this moment.
    Found(usize),
}

/// Gets a source when the last request at it has ended.
pub type Leave = mpsc::Sender<Box<dyn Source>>;

/// Source for which no new requests come: its ordinal, and who gets it.
pub(super) type Leaving = (usize, Leave);

/// Search for keys that a new table would hide.
#[derive(Debug)]
pub(super) struct NewTable {
    keys: TableKeys,
    /// Space that is being searched, and the position in it.
    space: u16,
    from: KeyHash,
    found: usize,
    /// Number of write commands that named such a key since the search began.
    written: usize,
}

impl Tx {
    /// Begins to look for keys that a table with this name would hide.
    pub fn begin_table(&mut self, name: &str) -> Result<(), TableRefusal> {
        self.new_table = None;
        // A command that runs in slices was admitted before.
        self.refuse_while_busy()?;
        if TABLE_COUNT_MAX <= self.catalog.named_count() {
            return impossible(format!("there can be at most {TABLE_COUNT_MAX} tables"));
        }
        let keys = TableKeys::of(name);
        self.abort_transactions(&keys);
        let from = KeyHash(0);
        self.new_table = Some(NewTable { keys, space: 0, from, found: 0, written: 0 });
        Ok(())
    }

    /// Searches a slice of `default`. After [`Search::None`] or [`Search::Found`] the search is
    /// over.
    pub fn search_hidden(&mut self) -> Search {
        let Some(mut search) = self.new_table.take() else { return Search::Found(0) };
        let steps = Cell::new(0);
        while search.space < SPACE_COUNT && steps.get() < SLICE_STEPS {
            let (table, from) = (TableId(search.space), search.from);
            let NewTable { keys, found, .. } = &mut search;
            let mut count = |key: &[u8]| {
                *found += usize::from(keys.contain(key));
                steps.set(steps.get() + 1);
            };
            let mut go_on = || {
                steps.set(steps.get() + 1);
                steps.get() < SLICE_STEPS
            };
            // Expired keys belong to `default`, too, until they are swept.
            let next = self.tables.scan_once(table, from, i64::MIN, &mut count, &mut go_on);
            match next {
                Some(next) => search.from = next,
                None => (search.space, search.from) = (search.space + 1, KeyHash(0)),
            }
        }
        if search.space < SPACE_COUNT {
            self.new_table = Some(search);
            return Search::More;
        }
        match search.found + search.written {
            0 => Search::None,
            found => Search::Found(found),
        }
    }

    /// Notes a write command that names keys of a table that is about to appear.
    pub(super) fn note_written(&mut self, command: &Command, args: &Args<'_>) {
        let Some(NewTable { keys, written, .. }) = &mut self.new_table else { return };
        let mut named = command.keys.indexes(args.len()).map(|index| args.at(index));
        let catalog = &self.catalog;
        *written += usize::from(named.any(|key| keys.contain(key) && is_in_default(catalog, key)));
    }

    /// Adds a memory table. The caller has just searched for hidden keys.
    pub fn add_memory_table(&mut self, settings: TableSettings) -> Result<(), TableRefusal> {
        let id = self.next_id()?;
        let mut record = Vec::new();
        let (name, text) = (settings.name.clone(), settings_text(&settings));
        effect::catalogue_created(&mut record, id, name.as_bytes(), text.as_bytes());
        self.log_catalogue(&record)?;
        self.tables.create(id);
        self.catalog.add_memory(id, settings);
        if self.catalog.evicting().contains(&id) {
            self.tables.start_eviction(id);
        }
        self.request_counts.add_memory(id, &name);
        Ok(())
    }

    /// Adds a table that a source serves. The caller has just searched for hidden keys. On an error
    /// it gets the source back.
    pub fn add_source_table(
        &mut self,
        name: &str,
        source: Box<dyn Source>,
    ) -> Result<(), (TableRefusal, Box<dyn Source>)> {
        let logged = self.next_id().and_then(|id| {
            let mut record = Vec::new();
            source_created(&mut record, id, name, source.kind());
            self.log_catalogue(&record)?;
            Ok(id)
        });
        let id = match logged {
            Ok(id) => id,
            Err(refusal) => return Err((refusal, source)),
        };
        self.tables.create(id);
        self.catalog.note_source(name, id);
        self.add_source(name, source);
        Ok(())
    }

    /// Removes a memory table that has no keys.
    pub fn drop_memory_table(&mut self, name: &str) -> Result<(), TableRefusal> {
        self.refuse_while_busy()?;
        let Some(Route::Memory(id)) = self.catalog.route_of(name) else {
            return impossible("there is no such table".to_owned());
        };
        let count = self.tables.len(id);
        if count != 0 {
            return impossible(format!(
                "it holds {count} keys; delete them, or drop it with its keys by a restart with \
                 --drop-table {name}"
            ));
        }
        self.log_dropped(id)?;
        self.abort_transactions(&TableKeys::of(name));
        self.catalog.remove_memory(id);
        self.request_counts.remove(name);
        self.tables.remove(id);
        Ok(())
    }

    /// Takes a source out of service: its keys belong to `default` from now on.
    pub fn drop_source(&mut self, name: &str, leave: Leave) -> Result<(), TableRefusal> {
        let Some(Route::Source(ordinal)) = self.catalog.route_of(name) else {
            return impossible("there is no such table".to_owned());
        };
        if let Some(id) = self.catalog.source_id(name) {
            self.log_dropped(id)?;
            self.tables.remove(id);
        }
        self.catalog.remove_source(name);
        self.request_counts.remove(name);
        self.leaving.push((ordinal, leave));
        Ok(())
    }

    /// Holds back the requests to a table until [`Tx::release_source`].
    pub fn hold_source(&mut self, name: &str, leave: Leave) -> Result<(), TableRefusal> {
        let Some(Route::Source(ordinal)) = self.catalog.route_of(name) else {
            return impossible("there is no such table".to_owned());
        };
        let (kind, timeout) = (self.source_kind(ordinal), self.tickets.timeout_of(ordinal));
        self.add_source(name, Box::new(HeldRequests::new(kind, timeout)));
        self.leaving.push((ordinal, leave));
        Ok(())
    }

    /// Hands over the sources that are leaving and at which no request is open.
    pub(super) fn hand_over_idle(&mut self) {
        let tickets = &mut self.tickets;
        for (ordinal, leave) in std::mem::take(&mut self.leaving) {
            match tickets.take_idle(ordinal) {
                // Who asked may have stopped to wait.
                Some(source) => _ = leave.send(source),
                None => self.leaving.push((ordinal, leave)),
            }
        }
    }

    /// Lets a source serve a table whose requests were held back, those first.
    pub fn release_source(&mut self, name: &str, source: Box<dyn Source>) {
        debug_assert!(self.leaving.is_empty(), "requests at the source before it come first");
        if let Some(Route::Source(ordinal)) = self.catalog.route_of(name) {
            self.tickets.release(ordinal, source);
        }
    }

    fn next_id(&mut self) -> Result<TableId, TableRefusal> {
        self.refuse_while_busy()?;
        let none = || TableRefusal::Impossible("all ids of tables are used up".to_owned());
        self.catalog.take_id().ok_or_else(none)
    }

    /// Refuses while commands run in slices: they know tables by id, and log in parts.
    fn refuse_while_busy(&self) -> Result<(), TableRefusal> {
        if self.jobs.any_knows_tables() { Err(TableRefusal::Busy) } else { Ok(()) }
    }

    fn log_dropped(&mut self, id: TableId) -> Result<(), TableRefusal> {
        let mut record = Vec::new();
        effect::catalogue_dropped(&mut record, id);
        self.log_catalogue(&record)
    }

    /// Logs a change of the catalogue, before anything that depends on it.
    fn log_catalogue(&mut self, record: &[u8]) -> Result<(), TableRefusal> {
        match self.log.reserve(record.len() as u64) {
            Reservation::Granted => {}
            Reservation::Behind => return Err(TableRefusal::Busy),
            Reservation::NoSpace { message } | Reservation::Failed { message } => {
                return impossible(message.to_string());
            }
        }
        self.log.begin();
        self.log.record().extend_from_slice(record);
        self.log.commit(SyncPolicy::Always);
        self.records_open += 1;
        self.end_turn();
        Ok(())
    }

    /// Ends transactions over keys that belong to another table from now on.
    fn abort_transactions(&mut self, moved: &TableKeys) {
        // Other tables may have names that a pattern matches; they keep their keys.
        let is_pattern = matches!(moved, TableKeys::Pattern(_));
        self.watches
            .keys_moved(|table, key| moved.contain(key) && (!is_pattern || table.0 < SPACE_COUNT));
        let catalog = &self.catalog;
        let is_moved =
            |key: &[u8]| moved.contain(key) && (!is_pattern || is_in_default(catalog, key));
        let names = |queue: &Queue| {
            queue.iter().any(|(id, args)| {
                let command = id.command().and_then(|command| command.resolve(&args).ok());
                let mut keys = command.into_iter().flat_map(|command| {
                    command.keys.indexes(args.len()).map(|index| args.at(index))
                });
                keys.any(&is_moved)
            })
        };
        for session in self.sessions.iter_mut().flatten() {
            if let Some(queue) = session.multi.as_mut().filter(|queue| names(queue)) {
                queue.refused = true;
            }
        }
    }
}

/// Returns whether a key belongs to no table with a name.
fn is_in_default(catalog: &Catalog, key: &[u8]) -> bool {
    matches!(catalog.route(0, key), Route::Memory(table) if table.0 < SPACE_COUNT)
}

fn impossible<T>(why: String) -> Result<T, TableRefusal> {
    Err(TableRefusal::Impossible(why))
}
