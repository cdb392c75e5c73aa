//! Limits of memory: makes room for a command before it runs, by evicting from tables that are
//! caches, or refuses it.
//!
//! ```text
//!  request --> above a limit? --no--> run
//!                   |yes
//!                   v
//!              free garbage --> evict: choose, reserve, log a delete --> fits? --no--> -OOM
//!                                ^________________________________________|
//!                                        at most so many keys
//! ```
//!
//! Which table gives way: at a table's own limit that table; at the limit of all tables the caches,
//! the one that holds the most memory first, whatever table is written. So data that nobody may
//! drop takes memory from caches, and is refused only when they are empty.
//!
//! An evicted key is deleted like any other: its delete is in the log, WATCH and gates see it, and
//! a snapshot does not hold it. Each is a record of its own, reserved before the key is removed.
//! All of it happens before the command has looked at anything; keys that the command names, or any
//! command of an EXEC, are not evicted for it, nor are keys that a sliced command has locked.
//!
//! A turn evicts a bounded number of keys, and one more for each key that is written. If that is
//! not enough (a value as large as many others), the write may bring the cache a little above its
//! limit, and the requests behind it and housekeeping evict more. A write that needs still more
//! room is refused; housekeeping makes the room for the next attempt. If a cache holds nothing but
//! keys that the command names, these are evicted, too: as if that had happened before the command
//! came. Housekeeping also evicts what is above a limit for another reason: a limit was lowered, or
//! an index grew.

use std::{collections::HashMap, time::Duration};

use busload_log::Reservation;
use busload_tables::{KeyHash, TableId, effect};

use super::{
    Access, Key, Logging, Tx,
    dispatch::{Refusal, no_space},
};
use crate::{
    args::Args,
    batch::DeferReason,
    command::{Command, Flags},
    error::CommandError,
    limits::{
        EVICTED_BYTES_PER_REQUEST, EVICTED_KEYS_PER_TURN, EVICTION_SLACK_BYTES,
        EVICTION_SLACK_SHARE, GARBAGE_STEPS_UNDER_PRESSURE, HOUSEKEEPING_INTERVAL, SLICED_ARGS_MIN,
        SPACE_COUNT,
    },
    session::{Queue, Session},
};

/// Memory that a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scope {
    /// The memory of all tables together.
    All,
    /// One table; 0 stands for all spaces of `default`.
    Table(TableId),
}

/// State of the eviction; the buffers are reused.
#[derive(Debug, Default)]
pub(super) struct EvictionState {
    /// Key of the victim.
    key: Vec<u8>,
    /// Hashes of the keys that the command names, sorted.
    protected: Vec<KeyHash>,
    /// Tables from which keys are evicted.
    tables: Vec<TableId>,
    /// Room that the last refused write would have needed.
    wanted: Option<(Scope, u64)>,
    /// Number of keys that this turn may still evict, beside one for each key that is written.
    budget: usize,
}

/// Result of evicting some keys.
#[derive(Clone, Copy, Debug)]
struct Evicted {
    /// Says whether there is enough room now.
    fits: bool,
    /// Number of keys that were evicted.
    keys: usize,
}

impl Tx {
    /// Makes room for a command that may need memory, or refuses it.
    #[inline]
    pub(super) fn make_room(
        &mut self,
        session: &Session,
        command: &Command,
        args: &Args<'_>,
    ) -> Result<(), Refusal> {
        let queue = session.multi.as_deref().filter(|_| command.name == "exec");
        let request_bytes = args.request_bytes() as u64;
        let more = match queue {
            // The commands were checked when they were queued; what no cache can give way to is not
            // refused now.
            Some(queue) if !self.catalog.evicting().is_empty() => {
                needing(queue).map(|(_, args)| args.request_bytes() as u64).sum()
            }
            _ => request_bytes,
        };
        let more = self.with_rounding(Scope::All, more);
        if !self.is_held_within_limit(more) {
            self.make_room_in(Scope::All, more, session, command, args)?;
        }
        if !self.catalog.any_memory_max() {
            return Ok(());
        }
        if let Some(queue) = queue {
            for (scope, more) in self.needs_of_queue(session, queue) {
                let more = self.with_rounding(scope, more);
                self.make_room_in(scope, more, session, command, args)?;
            }
            return Ok(());
        }
        let mut last = None;
        for index in command.keys.indexes(args.len()) {
            let scope = scope_of(self.catalog.memory_table(session.space, args.at(index)));
            if last.replace(scope) != Some(scope) {
                let more = self.with_rounding(scope, request_bytes);
                self.make_room_in(scope, more, session, command, args)?;
            }
        }
        Ok(())
    }

    /// Begins a turn, which evicts a bounded number of keys.
    #[inline]
    pub(super) fn start_turn_of_eviction(&mut self) {
        self.eviction.budget = EVICTED_KEYS_PER_TURN;
    }

    /// Evicts some of what is above the limits. Returns the time after which it has to be called
    /// again, if it has to.
    pub(super) fn evict_excess(&mut self) -> Option<Duration> {
        if self.catalog.evicting().is_empty() {
            return None;
        }
        self.eviction.protected.clear();
        let wanted = self.eviction.wanted.take();
        let mut scopes: Vec<Scope> =
            self.catalog.evicting().iter().map(|table| Scope::Table(owner_of(*table))).collect();
        scopes.push(Scope::All);
        scopes.dedup();
        let mut again: Option<Duration> = None;
        for scope in scopes {
            let wanted = wanted.filter(|(of, _)| *of == scope);
            let more = wanted.map_or(0, |(_, more)| more);
            let evicted = self.evict_until_fits(scope, more, self.eviction.budget);
            let keys = evicted.as_ref().map_or(0, |evicted| evicted.keys);
            self.eviction.budget -= keys.min(self.eviction.budget);
            let wait = match evicted {
                Ok(Evicted { fits: true, .. } | Evicted { keys: 0, .. }) => continue,
                Ok(_) => Duration::ZERO,
                // The log is behind or has no space: later.
                Err(_) => HOUSEKEEPING_INTERVAL,
            };
            self.eviction.wanted = wanted.or(self.eviction.wanted);
            again = Some(again.map_or(wait, |earlier| earlier.min(wait)));
        }
        again
    }

    /// Returns the memory that so many bytes of requests may take. Allocators round by up to a
    /// quarter; a cache, which is always at its limit, has to count that.
    fn with_rounding(&self, scope: Scope, bytes: u64) -> u64 {
        if self.caches(scope).next().is_none() { bytes } else { bytes + bytes / 4 }
    }

    /// Returns the memory of a named table, or of all spaces of `default`.
    pub(crate) fn memory_used(&self, table: TableId) -> u64 {
        if SPACE_COUNT <= table.0 {
            return self.tables.memory_used(table);
        }
        (0..SPACE_COUNT).map(|space| self.tables.memory_used(TableId(space))).sum()
    }

    /// Makes room within one limit, or refuses the command.
    fn make_room_in(
        &mut self,
        scope: Scope,
        more: u64,
        session: &Session,
        command: &Command,
        args: &Args<'_>,
    ) -> Result<(), Refusal> {
        if scope == Scope::All {
            self.free_garbage();
        }
        let mut slack = 0;
        if !self.fits(scope, more) {
            if !self.can_fit(scope, more) {
                return Err(self.out_of_memory());
            }
            self.protect_keys(session, command, args);
            let own = keys_written(session, command, args);
            let keys_max = own + self.eviction.budget;
            let mut evicted = self.evict_until_fits(scope, more, keys_max)?;
            if !evicted.fits && evicted.keys == 0 {
                self.eviction.protected.clear();
                evicted = self.evict_until_fits(scope, more, keys_max)?;
            }
            self.eviction.budget = keys_max - evicted.keys.clamp(own, keys_max);
            if evicted.keys != 0 {
                slack = self.slack(scope);
            }
            if !evicted.fits && !self.fits(scope, more.saturating_sub(slack)) {
                if evicted.keys != 0 {
                    self.eviction.wanted = Some((scope, more));
                }
                return Err(self.out_of_memory());
            }
        }
        let held = more.saturating_sub(slack);
        if scope == Scope::All && !self.is_held_within_limit(held) {
            // What was evicted has to be free, too.
            self.free_garbage();
            if !self.is_held_within_limit(held) {
                return Err(self.out_of_memory());
            }
        }
        Ok(())
    }

    /// Returns how far above its limit memory may be while keys are being evicted.
    fn slack(&self, scope: Scope) -> u64 {
        self.limit(scope).map_or(0, |max| (max / EVICTION_SLACK_SHARE).min(EVICTION_SLACK_BYTES))
    }

    /// Evicts until so many bytes more fit, at most `keys_max` keys.
    fn evict_until_fits(
        &mut self,
        scope: Scope,
        more: u64,
        keys_max: usize,
    ) -> Result<Evicted, Refusal> {
        let mut keys = 0;
        if self.fits(scope, more) {
            return Ok(Evicted { fits: true, keys });
        }
        let enough = self.used(scope).saturating_sub(EVICTED_BYTES_PER_REQUEST);
        let mut tables = std::mem::take(&mut self.eviction.tables);
        tables.clear();
        tables.extend(self.caches(scope).filter(|table| !self.tables.is_empty(*table)));
        tables.sort_by_cached_key(|table| std::cmp::Reverse(self.tables.memory_used(*table)));
        let mut outcome = Ok(());
        'tables: for &table in &tables {
            while !self.fits(scope, more) {
                if keys == keys_max || (keys != 0 && self.used(scope) <= enough) {
                    break 'tables;
                }
                match self.evict_one(table) {
                    Ok(true) => keys += 1,
                    Ok(false) => continue 'tables,
                    // Another cache may not need the log.
                    Err(refusal) => {
                        outcome = Err(refusal);
                        continue 'tables;
                    }
                }
            }
        }
        self.eviction.tables = tables;
        let fits = self.fits(scope, more);
        match outcome {
            Err(refusal) if !fits => Err(refusal),
            _ => Ok(Evicted { fits, keys }),
        }
    }

    /// Evicts one key, as a transaction of its own. Returns false when it found none.
    fn evict_one(&mut self, table: TableId) -> Result<bool, Refusal> {
        let mut bytes = std::mem::take(&mut self.eviction.key);
        let (jobs, protected) = (&self.jobs, &self.eviction.protected);
        let mut may_evict = |hash: KeyHash| {
            protected.binary_search(&hash).is_err()
                && (jobs.is_empty() || !jobs.conflict(table, hash, Access::Write))
        };
        let victim = self.tables.choose_victim(table, self.now_ms, &mut may_evict, &mut bytes);
        let outcome = match victim {
            None => Ok(false),
            Some(victim) => self.reserve_delete(table, &bytes).map(|()| {
                self.delete_victim(&Key { table, hash: victim.hash, bytes: &bytes });
                match victim.is_expired {
                    true => self.stats.expired_keys_total.add(1),
                    false => self.stats.evicted_keys_total.add(1),
                }
                true
            }),
        };
        self.eviction.key = bytes;
        outcome
    }

    /// Reserves space in the log for the delete of a key.
    fn reserve_delete(&mut self, table: TableId, key: &[u8]) -> Result<(), Refusal> {
        if self.catalog.logging(table) == Logging::Off {
            return Ok(());
        }
        let bytes = (key.len() + effect::OVERHEAD_BYTES_MAX) as u64;
        match self.log.reserve(bytes) {
            Reservation::Granted => {
                self.reservation_granted = bytes;
                Ok(())
            }
            Reservation::Behind | Reservation::Failed { .. } => {
                Err(Refusal::Defer(DeferReason::LogBehind))
            }
            Reservation::NoSpace { message } => Err(no_space(&message).into()),
        }
    }

    /// Deletes a key and commits. The reply of the command that needs the room does not depend on
    /// it.
    fn delete_victim(&mut self, key: &Key<'_>) {
        let gate = self.gate.take();
        self.delete(key);
        self.commit();
        self.gate.set(gate);
    }

    /// Notes which keys the command names, or the commands of an EXEC.
    fn protect_keys(&mut self, session: &Session, command: &Command, args: &Args<'_>) {
        let mut protected = std::mem::take(&mut self.eviction.protected);
        protected.clear();
        let mut add = |command: &Command, args: &Args<'_>| {
            let keys = command.keys.indexes(args.len());
            protected.extend(keys.map(|index| self.tables.hash(args.at(index))));
        };
        match &session.multi {
            Some(queue) if command.name == "exec" => {
                for (id, args) in queue.iter() {
                    id.command().into_iter().for_each(|command| add(command, &args));
                }
            }
            // A command over more keys is executed in slices: it looks at its keys later, when it
            // has locked them.
            _ if SLICED_ARGS_MIN <= args.len() => {}
            _ => add(command, args),
        }
        protected.sort_unstable();
        self.eviction.protected = protected;
    }

    /// Returns how much memory each cache needs for a transaction.
    fn needs_of_queue(&self, session: &Session, queue: &Queue) -> HashMap<Scope, u64> {
        let mut needs = HashMap::new();
        for (command, args) in needing(queue) {
            let mut last = None;
            for index in command.keys.indexes(args.len()) {
                let scope = scope_of(self.catalog.memory_table(session.space, args.at(index)));
                if self.caches(scope).next().is_none() {
                    continue;
                }
                if last.replace(scope) != Some(scope) {
                    *needs.entry(scope).or_default() += args.request_bytes() as u64;
                }
            }
        }
        needs
    }

    /// Frees garbage for a fraction of a millisecond.
    pub(crate) fn free_garbage(&mut self) {
        self.tables.collect_garbage(GARBAGE_STEPS_UNDER_PRESSURE);
        while let Some(huge) = self.tables.take_huge() {
            crate::reaper::drop_elsewhere(huge);
        }
    }

    fn limit(&self, scope: Scope) -> Option<u64> {
        match scope {
            Scope::All => Some(self.settings.memory_max).filter(|max| *max != 0),
            Scope::Table(table) => self.catalog.memory(table).and_then(|of| of.settings.memory_max),
        }
    }

    fn used(&self, scope: Scope) -> u64 {
        match scope {
            Scope::All => self.tables.memory_used_total(),
            Scope::Table(table) => self.memory_used(table),
        }
    }

    /// Returns whether live data and so many bytes more are within a limit.
    fn fits(&self, scope: Scope, more: u64) -> bool {
        self.limit(scope).is_none_or(|max| self.used(scope) + more <= max)
    }

    /// Returns whether so many bytes more would fit if the caches were empty: what can never fit
    /// shall not empty them.
    fn can_fit(&self, scope: Scope, more: u64) -> bool {
        let of_caches: u64 = self.caches(scope).map(|table| self.tables.memory_used(table)).sum();
        self.limit(scope).is_none_or(|max| self.used(scope) - of_caches + more <= max)
    }

    /// Iterates over the tables that evict at a limit.
    fn caches(&self, scope: Scope) -> impl Iterator<Item = TableId> {
        let evicting = self.catalog.evicting().iter().copied();
        evicting.filter(move |table| scope == Scope::All || scope == scope_of(*table))
    }

    /// Returns whether live data, garbage and so many bytes more are within the limit of all
    /// tables.
    #[inline]
    fn is_held_within_limit(&self, more: u64) -> bool {
        let max = self.settings.memory_max;
        let held = self.tables.memory_used_total() + self.tables.garbage_bytes();
        max == 0 || held + more <= max
    }

    fn out_of_memory(&self) -> Refusal {
        self.stats.memory_refused_total.add(1);
        CommandError::text("OOM command not allowed when used memory > 'maxmemory'.").into()
    }
}

/// Returns how many keys a request writes, at least one: it evicts as many beside the turn's
/// budget.
fn keys_written(session: &Session, command: &Command, args: &Args<'_>) -> usize {
    let count = match session.multi.as_deref() {
        Some(queue) if command.name == "exec" => needing(queue).count(),
        _ => command.keys.indexes(args.len()).count(),
    };
    count.max(1)
}

/// Returns the table whose settings a table or space has.
fn owner_of(table: TableId) -> TableId {
    if table.0 < SPACE_COUNT { TableId(0) } else { table }
}

fn scope_of(table: TableId) -> Scope {
    Scope::Table(owner_of(table))
}

/// Iterates over the queued commands that may need memory.
fn needing(queue: &Queue) -> impl Iterator<Item = (&'static Command, Args<'_>)> {
    queue.iter().filter_map(|(id, args)| {
        let command = id.command().filter(|command| command.flags.has(Flags::DENYOOM))?;
        Some((command, args))
    })
}
