//! Gates: the log positions that must be reached before a reply may be sent.
//!
//! A reply that shows data carries a [`Gate`]: the LSNs that must be written, and durable, before
//! net may send it. The gate of a write is its own LSN; the gate of a read is that of the last
//! change to the data it read. Whether that is "written" or "durable" depends on the transaction
//! that wrote the data. [`GateFilter`] finds the last change by key hash: collisions only delay.

use busload_log::Lsn;
use busload_tables::{KeyHash, TableId};

use crate::limits::GATE_FILTER_SLOTS;

/// LSNs that the log must have reached before a reply may be sent. Zero waits for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Highest LSN that must be written.
    pub written: Lsn,
    /// Highest LSN that must be durable.
    pub durable: Lsn,
}

/// LSNs that the log has reached.
pub type Watermarks = Gate;

/// Progress of the log that a transaction waits for: the strictest level of its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The reply follows the write call.
    Written,
    /// The reply follows the sync.
    Durable,
}

impl Gate {
    /// Gate that waits for nothing.
    pub const OPEN: Gate = Gate { written: Lsn(0), durable: Lsn(0) };

    /// Returns a gate that waits until `lsn` has reached `level`.
    pub fn at(lsn: Lsn, level: Level) -> Self {
        match level {
            Level::Written => Gate { written: lsn, durable: Lsn(0) },
            Level::Durable => Gate { written: Lsn(0), durable: lsn },
        }
    }

    /// Returns a gate that waits for both.
    #[inline]
    pub fn join(self, other: Gate) -> Gate {
        Gate { written: self.written.max(other.written), durable: self.durable.max(other.durable) }
    }

    /// Returns whether the log has reached everything this gate waits for.
    #[inline]
    pub fn is_open(self, progress: Watermarks) -> bool {
        self.written <= progress.written && self.durable <= progress.durable
    }
}

/// Gate of the last change to each key (by hash) and to each table.
#[derive(Debug)]
pub struct GateFilter {
    slots: Box<[Gate]>,
    tables: Vec<TableGates>,
    /// Join of all gates ever set: while it is open, every gate is.
    newest: Gate,
    progress: Watermarks,
    clean: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct TableGates {
    /// Gate of the last change to any key: SCAN, DBSIZE and the like wait for it.
    last_change: Gate,
    /// Gate of the last flush: a reader of any key waits for it.
    floor: Gate,
}

impl GateFilter {
    /// Creates a filter in which nothing waits.
    pub fn new() -> Self {
        Self {
            slots: vec![Gate::OPEN; GATE_FILTER_SLOTS].into_boxed_slice(),
            tables: Vec::new(),
            newest: Gate::OPEN,
            progress: Gate::OPEN,
            clean: true,
        }
    }

    /// Takes over the log's watermarks; tx calls it once per batch.
    pub fn advance(&mut self, progress: Watermarks) {
        self.progress = progress;
        self.clean = self.newest.is_open(progress);
    }

    /// Returns the watermarks as of the last [`GateFilter::advance`].
    pub fn progress(&self) -> Watermarks {
        self.progress
    }

    /// Returns the gate of a reply that shows this key (or its absence).
    #[inline]
    pub fn of_key(&self, table: TableId, hash: KeyHash) -> Gate {
        if self.clean {
            return Gate::OPEN;
        }
        let mut gate = self.slots[slot(hash)];
        if let Some(of_table) = self.tables.get(usize::from(table.0)) {
            gate = gate.join(of_table.floor);
        }
        self.still_closed(gate)
    }

    /// Returns the gate of a reply that shows the table as a whole.
    pub fn of_table(&self, table: TableId) -> Gate {
        match self.tables.get(usize::from(table.0)) {
            Some(gates) => self.still_closed(gates.last_change.join(gates.floor)),
            None => Gate::OPEN,
        }
    }

    /// Records that the key changed in the transaction that waits for `gate`.
    #[inline]
    pub fn key_changed(&mut self, table: TableId, hash: KeyHash, gate: Gate) {
        let progress = self.progress;
        let slot = &mut self.slots[slot(hash)];
        *slot = if slot.is_open(progress) { gate } else { slot.join(gate) };
        let of_table = self.table_mut(table);
        of_table.last_change = of_table.last_change.join(gate);
        self.newest = self.newest.join(gate);
        self.clean = false;
    }

    /// Records that the table was flushed in the transaction that waits for `gate`.
    pub fn table_flushed(&mut self, table: TableId, gate: Gate) {
        let of_table = self.table_mut(table);
        of_table.floor = of_table.floor.join(gate);
        self.newest = self.newest.join(gate);
        self.clean = false;
    }

    fn table_mut(&mut self, table: TableId) -> &mut TableGates {
        let index = usize::from(table.0);
        if self.tables.len() <= index {
            self.tables.resize(index + 1, TableGates::default());
        }
        &mut self.tables[index]
    }

    #[inline]
    fn still_closed(&self, gate: Gate) -> Gate {
        if gate.is_open(self.progress) { Gate::OPEN } else { gate }
    }
}

impl Default for GateFilter {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn slot(hash: KeyHash) -> usize {
    // Use the low bits: the high ones choose the index segment, so neighbours there would collide
    // here.
    usize::try_from(hash.0 & (GATE_FILTER_SLOTS as u64 - 1)).expect("masked to a small number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_waits_for_the_last_writer_until_the_log_has_passed_it() {
        let mut filter = GateFilter::new();
        let (table, hash) = (TableId(0), KeyHash(7));
        assert_eq!(filter.of_key(table, hash), Gate::OPEN);
        filter.key_changed(table, hash, Gate::at(Lsn(5), Level::Durable));
        assert_eq!(filter.of_key(table, hash), Gate::at(Lsn(5), Level::Durable));
        assert_eq!(filter.of_key(table, KeyHash(8)), Gate::OPEN);
        assert_eq!(filter.of_table(table), Gate::at(Lsn(5), Level::Durable));
        filter.advance(Gate { written: Lsn(9), durable: Lsn(4) });
        assert_eq!(filter.of_key(table, hash), Gate::at(Lsn(5), Level::Durable));
        filter.advance(Gate { written: Lsn(9), durable: Lsn(5) });
        assert_eq!(filter.of_key(table, hash), Gate::OPEN);
    }

    #[test]
    fn levels_of_two_writers_are_both_waited_for() {
        let mut filter = GateFilter::new();
        let (table, hash) = (TableId(0), KeyHash(7));
        filter.key_changed(table, hash, Gate::at(Lsn(5), Level::Durable));
        filter.key_changed(table, hash, Gate::at(Lsn(6), Level::Written));
        assert_eq!(filter.of_key(table, hash), Gate { written: Lsn(6), durable: Lsn(5) });
    }

    #[test]
    fn a_flush_gates_every_key_of_its_table_only() {
        let mut filter = GateFilter::new();
        filter.table_flushed(TableId(3), Gate::at(Lsn(2), Level::Written));
        assert_eq!(filter.of_key(TableId(3), KeyHash(1)), Gate::at(Lsn(2), Level::Written));
        assert_eq!(filter.of_key(TableId(0), KeyHash(1)), Gate::OPEN);
    }
}
