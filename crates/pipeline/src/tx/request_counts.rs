//! Counts the requests that tx executes, by class, for the latencies. See [`crate::latency`].

use std::{sync::Arc, time::Duration};

use busload_tables::TableId;

use super::Tx;
use crate::{
    command::CommandId,
    gate::Gate,
    latency::{Class, Latencies, TableLatencies, TableSlot, Timing},
};

/// Levels of the log that replies wait for: none, written, durable.
const LEVELS: usize = 3;

/// Kind of a request that is told apart while tx executes, in one word: its table (that of its
/// first key, or no table's id), its command, and whether its reply waits for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestKind(u64);

impl RequestKind {
    #[inline]
    fn new(table: TableId, command: CommandId, gate: Gate) -> Self {
        let waits = u64::from(gate != Gate::OPEN);
        Self(u64::from(table.0) << 32 | u64::from(command.0) << 16 | waits)
    }

    fn table(self) -> TableId {
        TableId((self.0 >> 32) as u16)
    }

    fn command(self) -> CommandId {
        CommandId((self.0 >> 16) as u16)
    }
}

/// Requests in a row that are of one kind. With them the loop over requests spends next to nothing
/// on latencies.
#[derive(Debug)]
pub(super) struct SameRequests {
    kind: RequestKind,
    gate: Gate,
    count: u32,
}

impl Default for SameRequests {
    fn default() -> Self {
        let kind = RequestKind::new(TableId(u16::MAX), CommandId::UNKNOWN, Gate::OPEN);
        Self { kind, gate: Gate::OPEN, count: 0 }
    }
}

/// Requests executed since the last flush, and those of this turn.
#[derive(Debug)]
pub(super) struct RequestCounts {
    latencies: Arc<Latencies>,
    /// Slots of memory tables by [`TableId`].
    memory: Vec<TableSlot>,
    /// Slots of sources by ordinal.
    sources: Vec<TableSlot>,
    /// Latencies of all tables, by slot.
    tables: Vec<Arc<TableLatencies>>,
    /// Count of the requests of each class and level since the last flush.
    counts: Vec<u32>,
    /// Indexes of the counts that are not zero.
    counted: Vec<usize>,
    /// Join of the gates of each level since the last flush.
    gates: [Gate; LEVELS],
    /// Requests that were executed in this turn, by class.
    executed: Vec<(Class, u64)>,
    /// Time at which the requests that are being executed were received.
    pub received: Duration,
}

impl RequestCounts {
    pub fn new(latencies: Arc<Latencies>) -> Self {
        let mut request_counts = Self {
            latencies,
            memory: Vec::new(),
            sources: Vec::new(),
            tables: Vec::new(),
            counts: Vec::new(),
            counted: Vec::new(),
            gates: [Gate::OPEN; LEVELS],
            executed: Vec::new(),
            received: Duration::ZERO,
        };
        request_counts.prepare(TableSlot::NONE);
        request_counts
    }

    /// Adds a memory table.
    pub fn add_memory(&mut self, id: TableId, name: &str) {
        let slot = self.latencies.add_table(name, "memory");
        let index = usize::from(id.0);
        if self.memory.len() <= index {
            self.memory.resize(index + 1, TableSlot::NONE);
        }
        self.memory[index] = slot;
        self.prepare(slot);
    }

    /// Adds a table of a source, in place of an earlier one with this ordinal.
    pub fn add_source(&mut self, ordinal: usize, name: &str, kind: &'static str) {
        let slot = self.latencies.add_table(name, kind);
        if self.sources.len() <= ordinal {
            self.sources.resize(ordinal + 1, TableSlot::NONE);
        }
        self.sources[ordinal] = slot;
        self.prepare(slot);
    }

    /// Notes that a table is gone. What was counted of it is kept.
    pub fn remove(&self, name: &str) {
        self.latencies.remove_table(name);
    }

    /// Makes space for the counts of a slot and all before it.
    fn prepare(&mut self, slot: TableSlot) {
        self.tables = self.latencies.tables_by_slot();
        let count = slot.class_count() * LEVELS;
        self.counts.resize(count.max(self.counts.len()), 0);
    }

    /// Returns the class of a command for a memory table, or for none.
    pub fn class_of(&self, table: TableId, command: CommandId) -> Class {
        let slot = self.memory.get(usize::from(table.0)).copied();
        Class::new(slot.unwrap_or(TableSlot::NONE), command)
    }

    /// Returns the class of a command for a table of a source.
    pub fn class_of_source(&self, ordinal: usize, command: CommandId) -> Class {
        Class::new(self.sources.get(ordinal).copied().unwrap_or_default(), command)
    }

    /// Counts a request that was answered, together with those before it in `same` if it is of
    /// their kind.
    #[inline]
    pub fn add(&mut self, same: &mut SameRequests, table: TableId, command: CommandId, gate: Gate) {
        let kind = RequestKind::new(table, command, gate);
        if same.kind != kind {
            self.add_all(same);
            same.kind = kind;
        }
        if gate != Gate::OPEN {
            same.gate = same.gate.join(gate);
        }
        same.count += 1;
    }

    /// Counts the requests in `same`, which is empty then.
    #[cold]
    pub fn add_all(&mut self, same: &mut SameRequests) {
        let SameRequests { kind, gate, count: more } = std::mem::take(same);
        if more == 0 {
            return;
        }
        let level = match gate.durable.0 {
            0 => usize::from(gate.written.0 != 0),
            _ => 2,
        };
        self.gates[level] = self.gates[level].join(gate);
        let index = self.class_of(kind.table(), kind.command()).index() * LEVELS + level;
        let count = &mut self.counts[index];
        if *count == 0 {
            self.counted.push(index);
        }
        *count += more;
    }

    /// Counts a request that a source or a job will answer.
    pub fn add_pending(&mut self, class: Class) {
        count_in(&mut self.executed, class, 1);
    }

    /// Moves the counts into a batch, as those of requests that tx took at `now`.
    pub fn flush(&mut self, now: Duration, timings: &mut Vec<Timing>) {
        let received = self.received;
        let queued = now.saturating_sub(received);
        for index in self.counted.drain(..) {
            let (class, level) = (Class::from_index(index / LEVELS), index % LEVELS);
            let count = std::mem::take(&mut self.counts[index]);
            timings.push(Timing { class, count, received, gate: self.gates[level] });
            let table = &self.tables[class.slot().index()];
            table.family(class.family()).queue.record(queued, u64::from(count));
            count_in(&mut self.executed, class, u64::from(count));
        }
        self.gates = [Gate::OPEN; LEVELS];
    }

    /// Records that the batches of this turn took `time`.
    fn record_service(&mut self, time: Duration) {
        let total: u64 = self.executed.iter().map(|(_, count)| count).sum();
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for (class, count) in self.executed.drain(..) {
            let table = &self.tables[class.slot().index()];
            if self.sources.iter().all(|slot| *slot != class.slot()) {
                table.family(class.family()).service.record(time, count);
            }
            if let Some(command) = self.latencies.command(class.command()) {
                command.calls.add(count);
                command.busy_ns.add((ns / total).saturating_mul(count));
            }
        }
    }
}

impl Tx {
    /// Records that the requests which were executed since the last call took from `start` to
    /// `end`. The caller of [`Tx::execute`] calls it once per turn.
    pub fn note_executed(&mut self, start: Duration, end: Duration) {
        self.request_counts.record_service(end.saturating_sub(start));
    }
}

/// Adds to the count of a class. There are few of them in a turn.
fn count_in(counts: &mut Vec<(Class, u64)>, class: Class, more: u64) {
    match counts.iter_mut().find(|(counted, _)| *counted == class) {
        Some((_, count)) => *count += more,
        None => counts.push((class, more)),
    }
}

/// Adds a request to timings whose last ones are often of the same class and time.
pub(super) fn add_timing(timings: &mut Vec<Timing>, class: Class, received: Duration, gate: Gate) {
    match timings.last_mut() {
        Some(last) if (last.class, last.received, last.gate) == (class, received, gate) => {
            last.count += 1;
        }
        _ => timings.push(Timing { class, count: 1, received, gate }),
    }
}
