//! MEMORY: what takes memory, and what to do about it.

use busload_tables::TableId;

use super::{Call, info::Human};
use crate::{error::CommandResult, limits::SPACE_COUNT, reply::Reply, tx::Tx};

/// Part of a limit, in percent, from which on MEMORY DOCTOR warns.
const FULL_PERCENT: u64 = 90;

/// Memory below which MEMORY DOCTOR has nothing to say, as in Redis.
const LITTLE_BYTES: u64 = 5 * 1024 * 1024;

/// Memory of the tables and the connections, in the fields of Redis that mean something here.
struct Memory {
    keys: usize,
    live: u64,
    garbage: u64,
    peak: u64,
    connections: u64,
}

impl Memory {
    fn of(tx: &Tx) -> Self {
        let (live, garbage) = tx.memory_and_garbage();
        let tables = tx.catalog.all_memory();
        Self {
            keys: tables.iter().map(|&table| tx.key_count(table)).sum(),
            live,
            garbage,
            peak: tx.stats.memory_peak_bytes.get().max(live + garbage),
            connections: tx.stats.connection_bytes.get(),
        }
    }

    fn total(&self) -> u64 {
        self.live + self.garbage + self.connections
    }
}

/// Answers with a map. It shows no data but counts, so like INFO it waits for nothing.
pub(super) fn stats(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let memory = Memory::of(tx);
    let spaces: Vec<(u16, usize, u64)> = (0..SPACE_COUNT)
        .map(|space| {
            let tables = tx.catalog.listed(space);
            let keys = tables.iter().map(|&table| tx.key_count(table)).sum();
            (space, keys, tables.iter().map(|&table| tx.table_bytes(table)).sum())
        })
        .filter(|(_, keys, _)| *keys != 0)
        .collect();
    let total = memory.total();
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let reply = &mut call.reply;
    reply.map(13 + spaces.len());
    field(reply, "peak.allocated", memory.peak + memory.connections);
    field(reply, "total.allocated", total);
    field(reply, "startup.allocated", 0);
    field(reply, "replication.backlog", 0);
    field(reply, "clients.slaves", 0);
    field(reply, "clients.normal", memory.connections);
    field(reply, "aof.buffer", 0);
    for (space, keys, bytes) in spaces {
        reply.bulk(format!("db.{space}").as_bytes());
        reply.map(2);
        field(reply, "keys.count", keys as u64);
        field(reply, "memory.bytes", bytes);
    }
    field(reply, "overhead.total", memory.connections + memory.garbage);
    field(reply, "keys.count", memory.keys as u64);
    field(reply, "keys.bytes-per-key", memory.live / memory.keys.max(1) as u64);
    field(reply, "dataset.bytes", memory.live);
    reply.bulk(b"dataset.percentage");
    reply.double(percent(memory.live, total));
    reply.bulk(b"peak.percentage");
    reply.double(percent(total, (memory.peak + memory.connections).max(total)));
    Ok(())
}

fn field(reply: &mut Reply<'_>, name: &str, value: u64) {
    reply.bulk(name.as_bytes());
    reply.integer(i64::try_from(value).unwrap_or(i64::MAX));
}

/// Explains to a person what takes memory.
pub(super) fn doctor(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    let memory = Memory::of(tx);
    let mut found: Vec<String> = Vec::new();
    let max = tx.settings.memory_max;
    let is_full = |used: u64, max: u64| max != 0 && max / 100 * FULL_PERCENT <= used;
    let shown = |bytes: u64| Human(bytes).to_string();
    if is_full(memory.live + memory.garbage, max) {
        let used = shown(memory.live + memory.garbage);
        found.push(format!(
            "The tables take {used} of maxmemory = {}. Above it tables without evict refuse writes \
             with -OOM and caches evict. CONFIG SET maxmemory changes it until the next start, \
             memory_max in the configuration for good.",
            shown(max)
        ));
    }
    for table in tx.catalog.all_memory() {
        let Some(memory) = tx.catalog.memory(table) else { continue };
        // The spaces of `default` are one table to an operator.
        let parts = match table.0 {
            0 => 0..SPACE_COUNT,
            number if number < SPACE_COUNT => continue,
            number => number..number + 1,
        };
        let used = parts.map(|part| tx.table_bytes(TableId(part))).sum();
        let max = memory.settings.memory_max.unwrap_or(0);
        if is_full(used, max) {
            let name = &memory.settings.name;
            let (used, max) = (shown(used), shown(max));
            found.push(format!("Table {name} takes {used} of its memory_max = {max}."));
        }
    }
    if memory.live / 4 < memory.connections {
        found.push(format!(
            "Connections take {}, much beside {} of data: large half-read requests, MULTI queues, \
             or replies that clients do not read. CLIENT LIST shows tot-mem and omem of each; \
             reply_bytes_total bounds them.",
            shown(memory.connections),
            shown(memory.live)
        ));
    }
    if memory.live / 4 < memory.garbage {
        found.push(format!(
            "{} of deleted values are still to be freed, which happens in small steps. MEMORY \
             PURGE frees some at once.",
            shown(memory.garbage)
        ));
    }
    if memory.live + memory.garbage < memory.peak / 2 {
        found.push(format!(
            "The tables take {}, {} at most since the start. The system gets memory back only \
             where whole pages are free, so the process may stay as large as it was.",
            shown(memory.live + memory.garbage),
            shown(memory.peak)
        ));
    }
    let text = if !found.is_empty() {
        let numbered = (1..).zip(&found).map(|(number, text)| format!("{number}. {text}\n"));
        numbered.collect()
    } else if memory.total() < LITTLE_BYTES {
        format!("The tables and connections take only {}: nothing to find.", shown(memory.total()))
    } else {
        format!("{} in use, and no problem found.", shown(memory.total()))
    };
    call.reply.verbatim(text.as_bytes());
    Ok(())
}

/// Frees some of what was deleted, no more than a turn may take.
pub(super) fn purge(tx: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    tx.free_garbage();
    call.reply.ok();
    Ok(())
}

/// Says what Redis says without jemalloc.
pub(super) fn malloc_stats(_: &mut Tx, call: &mut Call<'_>) -> CommandResult {
    call.reply.verbatim(b"Stats not supported for the current allocator");
    Ok(())
}
