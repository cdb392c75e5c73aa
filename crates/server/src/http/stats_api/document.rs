//! The document of `/api/stats`.

use std::time::Duration;

use busload_calls::TimedCall;
use busload_histogram::{PARTS_PER_OCTAVE, Reading as Times};
use busload_pipeline::{slow_log::SlowCommand, stats::BatchReading};
use serde_json::{Map, Value, json};

use super::{
    SlowArguments, health,
    history::History,
    tables::{TableReading, tables},
};
use crate::{
    config::Prices,
    http::{
        limits::SLOW_COMMAND_COUNT_LIMIT,
        metrics::{BusyReading, LogReading, Reading, SetReading, resident_bytes},
    },
    savings::Savings,
    shown::Shown,
    status::ServerState,
};

/// Text in place of the arguments of a slow command.
const ARGUMENTS_LEFT_OUT: &str = "(arguments need the password: SLOWLOG GET)";

/// Makes the document: everything but the history is of this moment.
pub fn document(
    reading: &Reading<'_>,
    history: &History,
    since_ms: Option<u64>,
    arguments: SlowArguments,
) -> Value {
    let tables = tables(reading);
    let reasons = health::reasons(reading, &tables, history);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started_ms": reading.status.started_ms,
        "uptime_ms": history.uptime_ms(),
        "state": reading.state.to_string(),
        "ready": reading.state == ServerState::Ready,
        "health": health::to_json(&reasons),
        "connections": connections(reading),
        "commands": commands(reading),
        "calls": calls(reading),
        "memory": memory(reading),
        "stages": stages(reading),
        "tables": tables.iter().map(TableReading::to_json).collect::<Vec<_>>(),
        "peers": peers(reading),
        "saved": saved(reading, &tables),
        "prices": prices(reading.status.prices),
        "savings": savings(reading),
        "busiest": busiest(reading),
        "log": reading.log.as_ref().map(log),
        "snapshots": reading.log.as_ref().map(snapshots),
        "latency": latency(reading),
        "slow": slow(reading, arguments),
        "history": history.to_json(since_ms, &tables),
    })
}

fn connections(reading: &Reading<'_>) -> Value {
    let stats = &reading.status.stats;
    json!({
        "open": stats.connections.get(),
        "blocked": stats.connections_blocked.get(),
        "memory_bytes": stats.connection_bytes.get(),
        "accepted": stats.connections_total.get(),
        "rejected": stats.connections_rejected_total.get(),
        "evicted": stats.connections_evicted_total.get(),
        "http_open": reading.front.connections.load(std::sync::atomic::Ordering::Relaxed),
    })
}

fn commands(reading: &Reading<'_>) -> Value {
    let stats = &reading.status.stats;
    json!({
        "executed": stats.commands_total.get(),
        "errors": stats.errors_total.get(),
        "deferred": stats.deferred_total.get(),
        "auth_denied": stats.auth_denied_total.get() + stats.auth_refused_total.get(),
        "hits": stats.keyspace_hits_total.get(),
        "misses": stats.keyspace_misses_total.get(),
        "at_sources": stats.source_tickets.get(),
        "turn_max_us": stats.turn_us_max.get(),
    })
}

fn calls(reading: &Reading<'_>) -> Value {
    let stats = &reading.status.stats;
    json!({
        "polls": stats.net_polls_total.get(),
        "receives": stats.net_receives_total.get(),
        "sends": stats.net_sends_total.get(),
        "received_bytes": stats.net_received_bytes_total.get(),
        "sent_bytes": stats.net_sent_bytes_total.get(),
    })
}

fn memory(reading: &Reading<'_>) -> Value {
    let stats = &reading.status.stats;
    json!({
        "resident_bytes": resident_bytes().map(|bytes| bytes as u64),
        "used_bytes": stats.memory_used_bytes.get(),
        "max_bytes": stats.memory_max_bytes.get(),
        "peak_bytes": stats.memory_peak_bytes.get(),
        "garbage_bytes": stats.memory_garbage_bytes.get(),
        "keys": stats.keys.get(),
        "keys_expiring": stats.keys_expiring.get(),
        "expired": stats.expired_keys_total.get(),
        "evicted": stats.evicted_keys_total.get(),
    })
}

/// Lists the stages of the pipeline, and the log as one.
fn stages(reading: &Reading<'_>) -> Vec<Value> {
    let of_log = reading.log.as_ref().map_or_else(BatchReading::default, |log| BatchReading {
        batches: log.stats.frames,
        items: log.stats.records,
        max: log.stats.frame_records_max,
    });
    let stages = reading.stages.iter().copied().chain([("log", of_log)]);
    let stage = |(name, batches): (&str, BatchReading)| {
        json!({
            "name": name,
            "batches": batches.batches,
            "items": batches.items,
            "items_max": batches.max,
        })
    };
    stages.map(stage).collect()
}

/// Peers by state, URLs that named one, and chunks between them.
fn peers(reading: &Reading<'_>) -> Value {
    let peers = reading.peers.unwrap_or_default();
    let chunks = peers.outcomes().map(|(outcome, count)| (outcome.to_owned(), count.into()));
    let (counts, chunks) = (peers.counts, chunks.collect::<Map<String, Value>>());
    json!({
        "alive": counts.alive,
        "suspect": counts.suspect,
        "urls": reading.status.remotesapi.peer_urls(),
        "chunks": chunks,
    })
}

/// Lists what was asked for one by one, and the round trips that carried it.
fn saved(reading: &Reading<'_>, tables: &[TableReading<'_>]) -> Vec<Value> {
    let of_kind = |kind: &str, value: fn(&TableReading<'_>) -> u64| {
        tables.iter().filter(|table| table.kind == kind).map(value).sum::<u64>()
    };
    let log = reading.log.as_ref().map(|log| &log.stats);
    let (records, syncs) = log.map_or((0, 0), |stats| (stats.records, stats.syncs));
    let rows = [
        (
            "statements",
            of_kind("postgres", |table| table.requests),
            of_kind("postgres", |table| table.round_trips),
        ),
        (
            "reads",
            of_kind("chunks", |table| table.requests),
            of_kind("chunks", |table| table.round_trips),
        ),
        ("syncs", records, syncs),
    ];
    let row = |(name, requests, carried): (&str, u64, u64)| {
        json!({
            "name": name,
            "requests": requests,
            "round_trips": carried,
        })
    };
    rows.into_iter().map(row).collect()
}

/// Prices in USD, by which `savings` are money.
fn prices(Prices { get, list, egress, dynamodb }: Prices) -> Value {
    json!({
        "get": get.usd(),
        "list": list.usd(),
        "egress": egress.usd(),
        "dynamodb": dynamodb.usd(),
    })
}

/// Lists what tables of chunks and patterns of stores saved, each with both sides.
fn savings(reading: &Reading<'_>) -> Vec<Value> {
    let row = |kind: &str, name: &str, savings: &Savings| {
        json!({
            "name": name,
            "kind": kind,
            "direct_requests": savings.direct_requests,
            "direct_bytes": savings.direct_bytes,
            "store_requests": savings.store_requests,
            "store_lists": savings.store_lists,
            "store_bytes": savings.store_bytes,
            "item_units": savings.item_units,
            "saved_requests": savings.requests(),
            "saved_bytes": savings.bytes(),
            "saved_usd": savings.usd(),
        })
    };
    let tables = reading.chunks.iter().map(|table| row("table", &table.name, &table.savings));
    let patterns = reading.sets.iter().map(|set| row("pattern", &set.pattern, &set.savings));
    tables.chain(patterns).collect()
}

/// Lists the busiest stores of each pattern.
fn busiest(reading: &Reading<'_>) -> Vec<Value> {
    let row = |pattern: &str, BusyReading { store, usage, store_bytes }: &BusyReading| {
        json!({
            "name": store,
            "pattern": pattern,
            "reads": usage.reads(),
            "hits": usage.hits,
            "errors": usage.errors,
            "downloads": usage.downloads,
            "direct_bytes": usage.bytes,
            "store_bytes": store_bytes,
        })
    };
    let of_set = |set: &'_ SetReading| -> Vec<Value> {
        set.busiest.iter().map(|store| row(&set.pattern, store)).collect()
    };
    reading.sets.iter().flat_map(of_set).collect()
}

fn log(log: &LogReading) -> Value {
    json!({
        "written_lsn": log.written_lsn,
        "durable_lsn": log.durable_lsn,
        "frames": log.stats.frames,
        "records": log.stats.records,
        "written_bytes": log.stats.bytes,
        "syncs": log.stats.syncs,
        "sync_total_us": us_of(log.stats.sync_times.sum()),
        "sync_max_us": us_of(log.stats.sync_times.max()),
        "size_bytes": log.stats.log_bytes,
        "segments": log.stats.segments,
    })
}

fn snapshots(log: &LogReading) -> Value {
    let snapshots = &log.snapshots;
    json!({
        "running": snapshots.running,
        "progress_percent": f64::from(snapshots.done_permille) / 10.0,
        "made": snapshots.made,
        "failed": snapshots.failed,
        "lsn": snapshots.lsn.0,
        "finished_ms": snapshots.finished_ms,
        "took_ms": snapshots.took.map(|took| took.as_secs_f64() * 1e3),
        "entries": snapshots.entries,
        "file_bytes": snapshots.file_bytes,
        "error": snapshots.error.as_deref(),
    })
}

/// Lists the histograms that count anything: of each table and family of commands, of calls for the
/// chunks of each table, and of the log.
fn latency(reading: &Reading<'_>) -> Vec<Value> {
    let tables = reading.latencies.iter().flat_map(|of| {
        let measured = [("request", &of.requests), ("queue", &of.queue), ("service", &of.service)];
        measured.map(|(what, times)| histogram(what, &of.table, Some(of.family.name()), times))
    });
    let syncs = reading.log.iter().map(|log| histogram("sync", "log", None, &log.stats.sync_times));
    let calls = reading.chunks.iter().flat_map(|table| {
        let of = |(call, times): &(TimedCall, Times)| {
            histogram("call", &table.name, Some(call.name()), times)
        };
        table.calls.iter().map(of)
    });
    tables.chain(calls).chain(syncs).filter(|histogram| histogram["count"] != 0).collect()
}

fn histogram(what: &str, subject: &str, family: Option<&str>, times: &Times) -> Value {
    let us = |time: Duration| time.as_nanos() as f64 / 1e3;
    let buckets = times.buckets().map(|(bound, count)| json!([bound.map(us), count]));
    json!({
        "what": what,
        "subject": subject,
        "family": family,
        "count": times.count(),
        "sum_us": us(times.sum()),
        "max_us": us(times.max()),
        "parts_per_octave": PARTS_PER_OCTAVE,
        "buckets": buckets.collect::<Vec<_>>(),
    })
}

fn us_of(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Lists the newest commands of the slow log, with as much of their arguments as fits a line, or
/// with none.
fn slow(reading: &Reading<'_>, arguments: SlowArguments) -> Vec<Value> {
    let newest = reading.status.stats.slow_log.newest(SLOW_COMMAND_COUNT_LIMIT);
    let command = |slow: &SlowCommand| {
        let shown = match arguments {
            SlowArguments::Shown => &slow.args[..],
            SlowArguments::LeftOut => &slow.args[..slow.args.len().min(1)],
        };
        let words = shown.iter().map(|word| String::from_utf8_lossy(word));
        let left_out = (shown.len() < slow.args.len()).then(|| ARGUMENTS_LEFT_OUT.into());
        json!({
            "id": slow.id,
            "at_s": slow.unix_s,
            "took_us": us_of(slow.took),
            "command": Shown(&words.chain(left_out).collect::<Vec<_>>().join(" ")).to_string(),
            "client": slow.client,
        })
    };
    newest.iter().map(command).collect()
}
