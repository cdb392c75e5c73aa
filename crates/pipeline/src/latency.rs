//! Times of requests, per table and family of commands, and per command.
//!
//! ```text
//!  tx:  RequestCounts: counts of a batch by class --flush--> Timing: class, count, received, gate
//!  net: Timings: those whose gates are closed --turn ends--> Histogram per table and command
//! ```
//!
//! No request reads a clock: all requests of a batch that were received together, have the same
//! class and wait for the same level of the log are one [`Timing`], and recorded at once.
//!
//! * The time of a **request** is from when it was received whole until its reply could be sent:
//!   it was executed and its gate was open. It does not include a wait for the replies before it
//!   on its connection, nor for a client that does not read.
//! * A request's time in the **queue** is from when it was received until tx took it.
//! * Its time in **service** is that of the batch that carried it.
//!
//! The queue of a source ([`crate::source`]) measures the last two itself; the time of a request
//! to a source is measured here. tx writes the queue, the service and the counts of commands; net
//! writes the requests. So every histogram has one writer.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use busload_histogram::Histogram;

use crate::{
    command::{COMMANDS, Command, CommandId, Flags, Group, lookup},
    gate::Gate,
    stats::Counter,
};

/// Table to which requests belong that name no key, or were refused before they reached a source.
pub const NO_TABLE: &str = "*";

/// Family that a command belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// Commands that only read data.
    Read,
    /// Commands that may change data.
    Write,
    /// Commands for operators and about the server.
    Admin,
    /// All others: those about connections and transactions, and what is no command.
    Other,
}

impl Family {
    /// All families, in the order of their numbers.
    pub const ALL: [Family; 4] = [Family::Read, Family::Write, Family::Admin, Family::Other];

    /// Returns the name that metrics show.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Read => "read",
            Family::Write => "write",
            Family::Admin => "admin",
            Family::Other => "other",
        }
    }

    /// Returns the family of a command.
    pub const fn of(command: &Command) -> Family {
        let flags = command.flags;
        if flags.has(Flags::WRITE) {
            Family::Write
        } else if flags.has(Flags::READONLY) {
            Family::Read
        } else if flags.has(Flags::ADMIN) || matches!(command.group, Group::Server) {
            Family::Admin
        } else {
            Family::Other
        }
    }
}

/// Number of commands that a [`Class`] tells apart; the last two are no commands.
const CLASS_COMMANDS: usize = 1 << Class::COMMAND_BITS;

const _: () = assert!(COMMANDS.len() <= CLASS_COMMANDS - 2, "a class has a number for each");

/// Class of requests that are counted together: a table, and a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class(u32);

impl Class {
    const COMMAND_BITS: u32 = 8;

    /// Returns the class of requests with this command for the table in this slot.
    #[inline]
    pub(crate) fn new(slot: TableSlot, command: CommandId) -> Self {
        // Unknown commands and protocol errors have the highest numbers, also when cut off.
        let command = u32::from(command.0) & (CLASS_COMMANDS as u32 - 1);
        Class(u32::from(slot.0) << Self::COMMAND_BITS | command)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn from_index(index: usize) -> Self {
        Class(u32::try_from(index).expect("an index that a class gave"))
    }

    pub(crate) fn slot(self) -> TableSlot {
        TableSlot(u16::try_from(self.0 >> Self::COMMAND_BITS).expect("a class has 24 bits"))
    }

    /// Returns the command; one that does not exist for what is none.
    pub(crate) fn command(self) -> CommandId {
        CommandId((self.0 % CLASS_COMMANDS as u32) as u16)
    }

    pub(crate) fn family(self) -> Family {
        self.command().command().map_or(Family::Other, Family::of)
    }
}

/// Number of a table among those with latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSlot(u16);

impl TableSlot {
    /// Slot of the requests of [`NO_TABLE`].
    pub(crate) const NONE: TableSlot = TableSlot(0);

    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the number of classes of all tables up to this.
    pub(crate) fn class_count(self) -> usize {
        (usize::from(self.0) + 1) * CLASS_COMMANDS
    }
}

/// Requests of one class that were received at the same time and wait for the same gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    pub(crate) class: Class,
    pub(crate) count: u32,
    pub(crate) received: Duration,
    pub(crate) gate: Gate,
}

/// Latencies of the requests of one family for one table.
#[derive(Debug, Default)]
pub struct FamilyLatencies {
    /// Time from when a request was received until its reply could be sent.
    pub requests: Histogram,
    /// Time until tx took it; not for tables of sources.
    pub queue: Histogram,
    /// Time that the batch took which carried it; not for tables of sources.
    pub service: Histogram,
}

/// Latencies of the requests for one table.
#[derive(Debug)]
pub struct TableLatencies {
    /// Name of the table, or [`NO_TABLE`].
    pub name: String,
    /// Kind of the table; `server` for [`NO_TABLE`].
    pub kind: &'static str,
    families: [FamilyLatencies; Family::ALL.len()],
    /// Says that there is no such table any more.
    is_gone: AtomicBool,
}

impl TableLatencies {
    /// Returns the latencies of one family.
    pub fn family(&self, family: Family) -> &FamilyLatencies {
        &self.families[family as usize]
    }
}

/// Counts and latencies of one command, over all tables.
#[derive(Debug, Default)]
pub struct CommandLatencies {
    /// Requests executed, submitted to a source, queued by MULTI or refused.
    pub calls: Counter,
    /// Those of them that ended with an error, in EXEC, too.
    pub failed: Counter,
    /// Those of them that were refused before they were executed.
    pub rejected: Counter,
    /// Nanoseconds that tx spent on them: their shares of the batches that carried them.
    pub busy_ns: Counter,
    /// Time from when a request was received until its reply could be sent.
    pub requests: Histogram,
}

/// All latencies. Metrics read them; only tx and net write.
#[derive(Debug)]
pub struct Latencies {
    tables: Mutex<Vec<Arc<TableLatencies>>>,
    /// By index of the command; there once a command was called.
    commands: Box<[OnceLock<Box<CommandLatencies>>]>,
}

impl Default for Latencies {
    fn default() -> Self {
        let latencies = Self {
            tables: Mutex::default(),
            commands: COMMANDS.iter().map(|_| OnceLock::new()).collect(),
        };
        latencies.add_table(NO_TABLE, "server");
        latencies
    }
}

impl Latencies {
    /// Adds a table, unless it is there; returns its slot.
    pub(crate) fn add_table(&self, name: &str, kind: &'static str) -> TableSlot {
        let mut tables = self.lock();
        let found = tables.iter().position(|table| (&*table.name, table.kind) == (name, kind));
        let slot = found.unwrap_or_else(|| {
            let (name, families, is_gone) = (name.to_owned(), Default::default(), false.into());
            tables.push(Arc::new(TableLatencies { name, kind, families, is_gone }));
            tables.len() - 1
        });
        tables[slot].is_gone.store(false, Ordering::Relaxed);
        TableSlot(u16::try_from(slot).expect("there are fewer tables than ids of tables"))
    }

    /// Notes that there is no table of this name any more. It keeps its slot.
    pub(crate) fn remove_table(&self, name: &str) {
        for table in self.lock().iter().filter(|table| table.name == name) {
            table.is_gone.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the latencies of all tables that there are: that of requests without a key, memory
    /// tables, sources.
    pub fn tables(&self) -> Vec<Arc<TableLatencies>> {
        let is_there = |table: &&Arc<TableLatencies>| !table.is_gone.load(Ordering::Relaxed);
        self.lock().iter().filter(is_there).cloned().collect()
    }

    /// Returns the latencies of all tables that there were, by slot.
    pub(crate) fn tables_by_slot(&self) -> Vec<Arc<TableLatencies>> {
        self.lock().clone()
    }

    /// Iterates over the commands that were called.
    pub fn commands(&self) -> impl Iterator<Item = (&'static Command, &CommandLatencies)> {
        let used = COMMANDS.iter().zip(&self.commands);
        used.filter_map(|(command, latencies)| Some((command, &**latencies.get()?)))
    }

    /// Returns the latencies of a command; none for what is no command.
    pub fn command(&self, id: CommandId) -> Option<&CommandLatencies> {
        Some(self.commands.get(usize::from(id.0))?.get_or_init(Box::default))
    }

    /// Counts a call that ended with an error. Those of a subcommand are its command's.
    pub(crate) fn count_failed(&self, command: &Command) {
        let name = command.name.split('|').next().unwrap_or_default();
        if let Some(command) = self.command(lookup(name.as_bytes())) {
            command.failed.add(1);
        }
    }

    /// Counts a request that was refused.
    pub(crate) fn count_rejected(&self, id: CommandId) {
        if let Some(command) = self.command(id) {
            command.rejected.add(1);
        }
    }

    /// Resets all latencies, as CONFIG RESETSTAT asks.
    pub(crate) fn reset(&self) {
        for table in self.lock().iter() {
            for FamilyLatencies { requests, queue, service } in &table.families {
                [requests, queue, service].into_iter().for_each(Histogram::reset);
            }
        }
        for command in self.commands.iter().filter_map(OnceLock::get) {
            let CommandLatencies { calls, failed, rejected, busy_ns, requests } = &**command;
            [calls, failed, rejected, busy_ns].into_iter().for_each(|counter| counter.set(0));
            requests.reset();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<TableLatencies>>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_names_its_table_and_command_whatever_they_are() {
        let ids = (0..COMMANDS.len() as u16).map(CommandId);
        let others = [CommandId::UNKNOWN, CommandId::PROTOCOL_ERROR];
        for slot in [0, 1, 15, u16::MAX] {
            for id in ids.clone().chain(others) {
                let class = Class::new(TableSlot(slot), id);
                assert_eq!(class.slot(), TableSlot(slot));
                let name = |command: Option<&Command>| command.map(|command| command.name);
                assert_eq!(name(class.command().command()), name(id.command()));
                assert_eq!(Class::from_index(class.index()), class);
                assert!(class.index() < TableSlot(slot).class_count());
            }
        }
    }

    #[test]
    fn commands_belong_to_the_family_that_people_expect() {
        for (name, family) in [
            ("get", Family::Read),
            ("scan", Family::Read),
            ("hset", Family::Write),
            ("flushall", Family::Write),
            ("config", Family::Admin),
            ("info", Family::Admin),
            ("ping", Family::Other),
            ("exec", Family::Other),
            ("nonsense", Family::Other),
        ] {
            let class = Class::new(TableSlot::NONE, lookup(name.as_bytes()));
            assert_eq!(class.family(), family, "{name}");
        }
    }

    #[test]
    fn a_table_is_there_once() {
        let latencies = Latencies::default();
        let slot = latencies.add_table("default", "memory");
        assert_eq!(latencies.add_table("default", "memory"), slot);
        let tables = latencies.tables();
        assert_eq!((tables.len(), &*tables[slot.index()].name), (2, "default"));
        latencies.remove_table("default");
        assert_eq!((latencies.tables().len(), latencies.tables_by_slot().len()), (1, 2));
        assert_ne!(latencies.add_table("default", "postgres"), slot);
        latencies.remove_table("default");
        assert_eq!(latencies.add_table("default", "memory"), slot);
        assert_eq!(latencies.tables().len(), 2);
    }
}
