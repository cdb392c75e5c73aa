//! Tables that appear, change and go by a reload.
//!
//! ```text
//!  gone:    tx takes it out of service --> its last request ends --> connections, store closed
//!  new:     connects, opens --> tx finds no key that it would hide --> served
//!  changed: the new one connects --> tx holds requests back --> the last of the old one ends
//!             --> the old one is closed --> tx submits what it held back to the new one
//! ```
//!
//! No request of a Redis client is dropped. gRPC calls and downloads of a chunk table that goes end
//! with the error of a closed store. Stores by pattern come, change and go as a table does, but
//! wait a while for calls and downloads under way.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use busload_pipeline::{
    reload::OrderStep,
    settings::{SourceTable, SyncMode, TableSettings},
    source::Source,
    tx::{Search, TableRefusal, Tx},
};

use super::{Reloader, Report, Running};
use crate::{
    chunk_sets::ChunkSet,
    chunk_stores::ChunkTable,
    config::{
        CHUNKS, ChunksSettings, Config, POSTGRES, StoresSettings, TableChange, TableDifference,
        TableSettingsRef, table_of,
    },
    failure::Failure,
    open_files,
    sources::{chunk_set_source, chunks_source},
};

/// Settings of a chunk table that concern how it is served, not its store.
const SERVED_BY: [&str; 5] = ["contents", "dolt_layout", "dolt_paths", "queue_requests", "timeout"];
/// Settings of stores by pattern that bound the open ones.
const LIMITS: [&str; 3] = ["stores_max", "index_memory", "idle"];
/// Settings of stores by pattern that divide the disk among them.
const SHARES: [&str; 2] = ["store_disk_min", "store_disk_max"];
/// Longest time that a reload waits until no command is executed in slices.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// Table that is to be added to tx.
enum NewTable {
    Memory(TableSettings),
    Source(String, Box<dyn Source>),
}

impl Reloader {
    /// Applies what can be applied of the tables' changes; returns what needs a restart.
    pub(super) fn apply_tables(
        &mut self,
        found: &[TableChange],
        new: &Config,
        server: &Running,
        report: &mut Report,
    ) -> Vec<String> {
        let mut fixed = Vec::new();
        // What goes makes room, for example a directory, for what comes.
        let goes = |change: &&TableChange| change.difference == TableDifference::Removed;
        let (going, others): (Vec<_>, Vec<_>) = found.iter().partition(goes);
        for change in going.into_iter().chain(others) {
            let TableChange { name, difference } = change;
            let (done, outcome) = match difference {
                TableDifference::Removed => ("removed", self.remove(name, server)),
                TableDifference::Added => ("added", self.add(name, new, server)),
                TableDifference::Changed(settings) => {
                    fixed.extend(self.change(change, settings, new, server, report));
                    continue;
                }
            };
            match outcome {
                Ok(()) => report.done.push(format!("{done} {}", change.what())),
                Err(why) => report.refused.push(format!("{}: {why}", change.not_done(done))),
            }
        }
        fixed
    }

    fn remove(&mut self, name: &str, server: &Running) -> Result<(), String> {
        match table_of(&self.running, name) {
            None => return Ok(()),
            Some(TableSettingsRef::Memory(_)) => {
                let name = name.to_owned();
                server.retry(move |tx| tx.drop_memory_table(&name))?;
            }
            Some(TableSettingsRef::Postgres(_)) => {
                server.drop_source(name)?;
                if let Some(table) = server.postgres.remove(name) {
                    table.stop();
                }
            }
            Some(TableSettingsRef::Chunks(_)) => {
                server.drop_source(name)?;
                if let Some(table) = server.chunk_stores.remove(name) {
                    server.chunk_stores.close(&table);
                }
            }
            Some(TableSettingsRef::Stores(_)) => {
                server.drop_source(name)?;
                if let Some(set) = server.chunk_stores.remove_set(name) {
                    server.chunk_stores.close_set(set);
                }
            }
        }
        self.running.settings.tables.retain(|table| table.name != name);
        self.running.settings.sources.retain(|table| table.name != name);
        self.running.postgres.retain(|table| table.name != name);
        self.running.chunks.retain(|table| table.name != name);
        self.running.stores.retain(|stores| stores.pattern.text() != name);
        Ok(())
    }

    fn add(&mut self, name: &str, new: &Config, server: &Running) -> Result<(), String> {
        let failed = |failure: Failure| failure.to_string();
        let kind = match table_of(new, name) {
            None => return Ok(()),
            Some(TableSettingsRef::Memory(settings)) => {
                server.add_to_tx(NewTable::Memory(settings.clone()))?;
                self.running.settings.tables.push(settings.clone());
                return Ok(());
            }
            Some(TableSettingsRef::Postgres(settings)) => {
                let table = server.postgres.begin(settings).map_err(failed)?;
                table.wait_for_first_attempt();
                let source = server.postgres.source(&table);
                if let Err(why) = server.add_to_tx(NewTable::Source(name.to_owned(), source)) {
                    table.stop();
                    return Err(why);
                }
                server.postgres.add(table);
                self.running.postgres.push(settings.clone());
                POSTGRES
            }
            Some(TableSettingsRef::Chunks(settings)) => {
                server.check_open_files(new)?;
                let table = server.chunk_stores.open_table(settings).map_err(failed)?;
                if let Err(why) = server.serve_chunks(name, &table) {
                    server.chunk_stores.close(&table);
                    return Err(why);
                }
                server.chunk_stores.add(table);
                self.running.chunks.push(settings.clone());
                CHUNKS
            }
            Some(TableSettingsRef::Stores(settings)) => {
                server.check_open_files(new)?;
                let set = server.chunk_stores.start_set(settings).map_err(failed)?;
                if let Err(why) = server.serve_stores(&set) {
                    server.chunk_stores.close_set(set);
                    return Err(why);
                }
                server.chunk_stores.add_set(set);
                self.running.stores.push(settings.clone());
                CHUNKS
            }
        };
        self.running.settings.sources.push(SourceTable { name: name.to_owned(), kind });
        Ok(())
    }

    /// Applies what can be applied of a table that has changed; returns the rest.
    fn change(
        &mut self,
        change: &TableChange,
        changed: &[&'static str],
        new: &Config,
        server: &Running,
        report: &mut Report,
    ) -> Option<String> {
        let (name, what) = (&*change.name, change.what());
        let (applied, rest): (Vec<&str>, Vec<&str>) =
            match (table_of(&self.running, name), table_of(new, name)) {
                (Some(TableSettingsRef::Memory(running)), Some(TableSettingsRef::Memory(new))) => {
                    // A table that is logged only from now on, or no more, needs other contents of
                    // the log.
                    let same_log = (running.sync == SyncMode::Off) == (new.sync == SyncMode::Off);
                    let applies =
                        |name: &&str| *name == "memory_max" || *name == "sync" && same_log;
                    changed.iter().copied().partition(applies)
                }
                (Some(TableSettingsRef::Postgres(_)), Some(TableSettingsRef::Postgres(_))) => {
                    (changed.to_vec(), Vec::new())
                }
                (Some(TableSettingsRef::Chunks(_)), Some(TableSettingsRef::Chunks(_))) => {
                    changed.iter().copied().partition(|name| SERVED_BY.contains(name))
                }
                (Some(TableSettingsRef::Stores(_)), Some(TableSettingsRef::Stores(_))) => {
                    // The share of a store was checked against the disk of the new settings.
                    let has_other_disk = changed.contains(&"disk");
                    changed.iter().copied().partition(|name| {
                        SERVED_BY.contains(name)
                            || LIMITS.contains(name)
                            || SHARES.contains(name) && !has_other_disk
                    })
                }
                _ => (Vec::new(), changed.to_vec()),
            };
        if !applied.is_empty() {
            match self.apply(name, &applied, new, server) {
                Ok(()) => {
                    report.done.push(format!("changed {what} ({})", applied.join(", ")));
                }
                Err(why) => report.refused.push(format!("{}: {why}", change.not_done("changed"))),
            }
        }
        (!rest.is_empty()).then(|| format!("{what} ({})", rest.join(", ")))
    }

    /// Applies these changes of a table, and notes them as those of the running server.
    fn apply(
        &mut self,
        name: &str,
        applied: &[&str],
        new: &Config,
        server: &Running,
    ) -> Result<(), String> {
        match table_of(new, name) {
            None => {}
            Some(TableSettingsRef::Memory(new)) => {
                let mut tables = self.running.settings.tables.iter_mut();
                let Some(running) = tables.find(|table| table.name == name) else { return Ok(()) };
                if applied.contains(&"sync") {
                    running.sync = new.sync;
                }
                running.memory_max = new.memory_max;
                let (name, sync, memory_max) = (name.to_owned(), running.sync, running.memory_max);
                server.change(move |tx| tx.change_table(&name, sync, memory_max));
            }
            Some(TableSettingsRef::Postgres(new)) => {
                let begun = server.postgres.begin(new);
                let table = begun.map_err(|failure| failure.to_string())?;
                table.wait_for_first_attempt();
                let source = server.postgres.source(&table);
                let replaced = server.replace_source(name, source, || {
                    if let Some(old) = server.postgres.remove(name) {
                        old.stop();
                    }
                });
                if let Err(why) = replaced {
                    table.stop();
                    return Err(why);
                }
                server.postgres.add(table);
                let mut tables = self.running.postgres.iter_mut();
                if let Some(running) = tables.find(|table| table.name == name) {
                    *running = new.clone();
                }
            }
            Some(TableSettingsRef::Chunks(new)) => {
                let mut tables = self.running.chunks.iter_mut();
                let Some(running) = tables.find(|table| table.name == name) else { return Ok(()) };
                let settings = served_by(running, new);
                server.change_chunks(&settings)?;
                *running = settings;
            }
            Some(TableSettingsRef::Stores(new)) => {
                let mut all = self.running.stores.iter_mut();
                let Some(running) = all.find(|stores| stores.pattern == new.pattern) else {
                    return Ok(());
                };
                let mut settings = running.clone();
                settings.chunks = served_by(&running.chunks, &new.chunks);
                settings.set_limits(new.limits());
                if SHARES.iter().any(|share| applied.contains(share)) {
                    settings.store_share = new.store_share;
                }
                server.change_stores(&settings)?;
                *running = settings;
            }
        }
        Ok(())
    }
}

/// Settings of a store that is served as the new settings say, and otherwise as it was.
fn served_by(running: &ChunksSettings, new: &ChunksSettings) -> ChunksSettings {
    ChunksSettings {
        contents: new.contents,
        dolt_layout: new.dolt_layout,
        dolt_paths: new.dolt_paths.clone(),
        queue_requests: new.queue_requests,
        timeout: new.timeout,
        ..running.clone()
    }
}

impl Running {
    /// Has tx make a change of the tables, as soon as no command is executed in slices.
    fn retry(
        &self,
        mut change: impl FnMut(&mut Tx) -> Result<(), TableRefusal> + Send + 'static,
    ) -> Result<(), String> {
        let mut since = None;
        let outcome = self.ask(move |tx| match change(tx) {
            Err(TableRefusal::Busy) => later(tx, &mut since).map(Err),
            Err(TableRefusal::Impossible(why)) => Ok(Err(why)),
            Ok(()) => Ok(Ok(())),
        });
        outcome.unwrap_or_else(|| Err(stopping()))
    }

    /// Has tx look for keys that a table would hide, and add the table if there are none.
    fn add_to_tx(&self, table: NewTable) -> Result<(), String> {
        let (mut table, mut since) = (Some(table), None);
        let mut searching = false;
        let outcome = self.ask(move |tx| {
            let Some(new) = table.take() else { return Ok(Err(stopping())) };
            let name = new.name().to_owned();
            if !searching {
                match tx.begin_table(&name) {
                    Ok(()) => searching = true,
                    Err(TableRefusal::Impossible(why)) => return Ok(Err(why)),
                    Err(TableRefusal::Busy) => {
                        table = Some(new);
                        return later(tx, &mut since).map(Err);
                    }
                }
            }
            match tx.search_hidden() {
                Search::More => {
                    table = Some(new);
                    return Err(OrderStep::NextTurn);
                }
                Search::Found(count) => return Ok(Err(new.hides(count))),
                Search::None => searching = false,
            }
            let refused = match new {
                NewTable::Memory(settings) => tx
                    .add_memory_table(settings.clone())
                    .map_err(|refusal| (refusal, NewTable::Memory(settings))),
                NewTable::Source(name, source) => tx
                    .add_source_table(&name, source)
                    .map_err(|(refusal, source)| (refusal, NewTable::Source(name, source))),
            };
            match refused {
                Ok(()) => Ok(Ok(())),
                Err((TableRefusal::Impossible(why), _)) => Ok(Err(why)),
                Err((TableRefusal::Busy, new)) => {
                    table = Some(new);
                    later(tx, &mut since).map(Err)
                }
            }
        });
        outcome.unwrap_or_else(|| Err(stopping()))
    }

    /// Takes the source of a table out of service, and waits until its last request has ended.
    fn drop_source(&self, name: &str) -> Result<(), String> {
        let (leave, left) = mpsc::channel();
        let name = name.to_owned();
        self.retry(move |tx| tx.drop_source(&name, leave.clone()))?;
        left.recv().map(drop).map_err(|_| stopping())
    }

    /// Lets another source serve a table. Requests wait from when the last of those before them is
    /// submitted until the last of them has ended and `between` was called.
    fn replace_source(
        &self,
        name: &str,
        source: Box<dyn Source>,
        between: impl FnOnce(),
    ) -> Result<(), String> {
        let (leave, left) = mpsc::channel();
        let name = name.to_owned();
        let held = name.clone();
        self.retry(move |tx| tx.hold_source(&held, leave.clone()))?;
        drop(left.recv().map_err(|_| stopping())?);
        between();
        self.change(move |tx| tx.release_source(&name, source));
        Ok(())
    }

    /// Checks that the system allows enough open files for the caches and the connections.
    fn check_open_files(&self, new: &Config) -> Result<(), String> {
        if open_files::fit(new).clients < self.clients_max_at_start {
            let why = "its cache and the connections need more open files than the system allows \
                       (ulimit -n)";
            return Err(why.to_owned());
        }
        Ok(())
    }

    /// Lets tx serve the stores of a new pattern.
    fn serve_stores(&self, set: &Arc<ChunkSet>) -> Result<(), String> {
        let runtime = self.chunk_stores.handle().ok_or_else(stopping)?;
        let source = chunk_set_source(set, &runtime, &self.pipeline);
        self.add_to_tx(NewTable::Source(set.pattern().to_owned(), source))
    }

    /// Serves the stores of a pattern by other settings.
    fn change_stores(&self, settings: &StoresSettings) -> Result<(), String> {
        let pattern = settings.pattern.text();
        let runtime = self.chunk_stores.handle().ok_or_else(stopping)?;
        let running = self.chunk_stores.set(pattern).ok_or_else(stopping)?;
        let set = Arc::new(running.with_settings(settings));
        let source = chunk_set_source(&set, &runtime, &self.pipeline);
        self.replace_source(pattern, source, || ())?;
        self.chunk_stores.add_set(set);
        Ok(())
    }

    /// Waits for the store of a new chunk table, and lets tx serve it.
    fn serve_chunks(&self, name: &str, table: &Arc<ChunkTable>) -> Result<(), String> {
        let runtime = self.chunk_stores.handle().ok_or_else(stopping)?;
        runtime.block_on(table.wait_for_first_attempt());
        let source = chunks_source(table, &runtime, &self.pipeline);
        self.add_to_tx(NewTable::Source(name.to_owned(), source))
    }

    /// Serves the store of a chunk table by other settings.
    fn change_chunks(&self, settings: &ChunksSettings) -> Result<(), String> {
        let name = &settings.name;
        let runtime = self.chunk_stores.handle().ok_or_else(stopping)?;
        let running = self.chunk_stores.get(name).ok_or_else(stopping)?;
        let table = running.with_settings(settings, &runtime);
        let table = Arc::new(table.map_err(|failure| failure.to_string())?);
        let source = chunks_source(&table, &runtime, &self.pipeline);
        self.replace_source(name, source, || ())?;
        self.chunk_stores.add(table);
        Ok(())
    }
}

impl NewTable {
    fn name(&self) -> &str {
        match self {
            NewTable::Memory(settings) => &settings.name,
            NewTable::Source(name, _) => name,
        }
    }

    /// Says that the table would hide keys, and what to do about it.
    fn hides(&self, count: usize) -> String {
        let name = self.name();
        let adopt = match self {
            NewTable::Memory(_) => ", or move them by a restart with --adopt-tables",
            NewTable::Source(..) => "",
        };
        format!(
            "{count} keys that begin with `{name}:` are in table default, or being written there, \
             and would be hidden; rename or delete them first{adopt}"
        )
    }
}

/// Has an order called again later, or answers it if it has waited for [`BUSY_MAX`].
fn later(tx: &Tx, since: &mut Option<Duration>) -> Result<String, OrderStep> {
    let now = tx.monotonic();
    if now.saturating_sub(*since.get_or_insert(now)) < BUSY_MAX {
        return Err(OrderStep::Later);
    }
    Ok("commands that take long are being executed all the time, try again later".to_owned())
}

fn stopping() -> String {
    "the server is stopping".to_owned()
}
