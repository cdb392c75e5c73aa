//! Tables as the dashboard shows them: the same counters for every kind, where a kind has them.

use std::borrow::Cow;

use busload_batch::QueueStats;
use busload_dolt::StoreStatus;
use busload_postgres::TableStats;
use serde_json::{Value, json};

use crate::{
    http::{
        limits::HISTORY_TABLE_COUNT_LIMIT,
        metrics::{ChunksReading, QueueReading, Reading},
    },
    shown::shown_error,
    sources::{postgres_state, store_state},
};

/// Counters of one table.
#[derive(Debug)]
pub struct TableReading<'a> {
    pub name: Cow<'a, str>,
    pub kind: &'static str,
    /// State as one word.
    pub state: &'static str,
    /// Reason why the table is not served, or not in full.
    pub error: Option<String>,
    /// Requests of all clients.
    pub requests: u64,
    /// Round trips to what is behind the table: statements, reads of the object store for which a
    /// request waited.
    pub round_trips: u64,
    /// Counters of the request queue; zero where the table has none.
    pub queue: QueueStats,
    /// Requests in the queue now.
    pub waiting: u64,
    /// Writes with an unknown outcome.
    pub outcomes_unknown: u64,
    /// Connections open, and connections that should be.
    pub connections: Option<(usize, usize)>,
    /// Requests by where their answer came from.
    pub tiers: Vec<(&'static str, u64)>,
}

/// A column of the history of a table: its name, and its value.
pub type TableColumn = (&'static str, fn(&TableReading<'_>) -> u64);

/// Values of a table that the history keeps.
pub const TABLE_COLUMNS: [TableColumn; 9] = [
    ("requests", |table| table.requests),
    ("round_trips", |table| table.round_trips),
    ("batches", |table| table.queue.reads.batches + table.queue.writes.batches),
    ("entries", |table| table.queue.reads.entries + table.queue.writes.entries),
    ("waiting", |table| table.waiting),
    ("in_flight", |table| table.queue.batches_in_flight()),
    ("refused", |table| table.queue.refused),
    ("expired", |table| table.queue.expired),
    ("outcomes_unknown", |table| table.outcomes_unknown),
];

/// Returns all tables: memory tables first, then Postgres, then chunks.
pub fn tables<'a>(reading: &'a Reading<'a>) -> Vec<TableReading<'a>> {
    let queue = |name: &str| reading.queues.iter().find(|queue| queue.table == name);
    let mut tables = memory_tables(reading).collect::<Vec<_>>();
    tables.extend(reading.postgres.iter().map(|(name, stats)| postgres_table(name, stats)));
    tables.extend(reading.chunks.iter().map(|chunks| chunks_table(chunks, queue(&chunks.name))));
    tables
}

/// Returns the tables that the history has room for, in its order: the first one, which shows the
/// syncs of the log, then those of sources, whose health depends on it, then the others.
pub fn of_history<'t, 'a>(tables: &'t [TableReading<'a>]) -> Vec<&'t TableReading<'a>> {
    let mut kept: Vec<&TableReading<'_>> = tables.iter().collect();
    let (_, others) = kept.split_at_mut(tables.len().min(1));
    others.sort_by_key(|table| table.kind == "memory");
    kept.truncate(HISTORY_TABLE_COUNT_LIMIT);
    kept
}

fn memory_tables<'a>(reading: &'a Reading<'a>) -> impl Iterator<Item = TableReading<'a>> {
    let tables = reading.status.stats.latencies.tables().into_iter();
    tables.filter(|table| table.kind == "memory").map(|table| {
        let families = reading.latencies.iter().filter(|of| of.table == table.name);
        TableReading {
            requests: families.map(|of| of.requests.count()).sum(),
            name: table.name.clone().into(),
            kind: "memory",
            state: "up",
            error: None,
            round_trips: 0,
            queue: QueueStats::default(),
            waiting: 0,
            outcomes_unknown: 0,
            connections: None,
            tiers: Vec::new(),
        }
    })
}

fn postgres_table<'a>(name: &'a str, stats: &TableStats) -> TableReading<'a> {
    let joined = stats.queue.reads.joined + stats.queue.writes.joined;
    TableReading {
        name: name.into(),
        kind: "postgres",
        state: postgres_state(stats),
        error: stats.last_error().map(|error| shown_error(&error.to_string()).into_owned()),
        requests: requests(&stats.queue),
        round_trips: stats.statements,
        queue: stats.queue,
        waiting: stats.waiting as u64,
        outcomes_unknown: stats.outcomes_unknown,
        connections: Some((stats.pool.up, stats.pool.wanted)),
        tiers: vec![
            ("joined another", joined),
            ("statement", requests(&stats.queue).saturating_sub(joined)),
        ],
    }
}

fn chunks_table<'a>(chunks: &'a ChunksReading, queue: Option<&QueueReading>) -> TableReading<'a> {
    let ChunksReading { name, stats, status, .. } = chunks;
    let error = match status {
        StoreStatus::Failed(error) => Some(shown_error(&error.to_string()).into_owned()),
        StoreStatus::Opening | StoreStatus::Open => None,
    };
    TableReading {
        name: name.into(),
        kind: "chunks",
        state: store_state(status),
        error,
        requests: stats.requests,
        round_trips: stats.store.foreground_reads,
        queue: queue.map(|queue| queue.stats).unwrap_or_default(),
        waiting: queue.map_or(0, |queue| queue.waiting as u64),
        outcomes_unknown: 0,
        connections: None,
        tiers: vec![
            ("memory", stats.memory_hits),
            ("disk", stats.local),
            ("store", stats.remote),
            ("peer", stats.peers),
            ("not found", stats.absent),
            ("error", stats.errors),
        ],
    }
}

fn requests(queue: &QueueStats) -> u64 {
    queue.reads.requests + queue.writes.requests
}

impl TableReading<'_> {
    /// Makes the object of `tables`.
    pub fn to_json(&self) -> Value {
        let QueueStats { reads, writes, .. } = &self.queue;
        let tier = |(name, requests): &(&str, u64)| json!({"name": name, "requests": requests});
        json!({
            "name": self.name,
            "kind": self.kind,
            "state": self.state,
            "error": self.error,
            "requests": self.requests,
            "round_trips": self.round_trips,
            "joined": reads.joined + writes.joined,
            "batches": reads.batches + writes.batches,
            "entries": reads.entries + writes.entries,
            "batch_entries_max": reads.batch_entries_max.max(writes.batch_entries_max),
            "waiting": self.waiting,
            "in_flight": self.queue.batches_in_flight(),
            "in_flight_limit": reads.batches_in_flight_limit + writes.batches_in_flight_limit,
            "refused": self.queue.refused,
            "expired": self.queue.expired,
            "cancelled": self.queue.cancelled,
            "outcomes_unknown": self.outcomes_unknown,
            "connections": self.connections.map(|(open, _)| open),
            "connections_wanted": self.connections.map(|(_, wanted)| wanted),
            "tiers": self.tiers.iter().map(tier).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With more memory tables than the history has room for, nobody heard of a source that
    /// refused requests.
    #[test]
    fn sources_are_in_the_history_however_many_memory_tables_there_are() {
        let objects = postgres_table("objects", &TableStats::default());
        let memory = |index: usize| TableReading {
            name: format!("m{index}").into(),
            kind: "memory",
            tiers: Vec::new(),
            ..postgres_table("", &TableStats::default())
        };
        let mut tables: Vec<_> = (0..2 * HISTORY_TABLE_COUNT_LIMIT).map(memory).collect();
        tables.push(objects);
        let kept = of_history(&tables);
        let names: Vec<&str> = kept.iter().map(|table| &*table.name).take(4).collect();
        assert_eq!(names, ["m0", "objects", "m1", "m2"]);
        assert_eq!(kept.len(), HISTORY_TABLE_COUNT_LIMIT);
        assert!(of_history(&[]).is_empty());
    }
}
