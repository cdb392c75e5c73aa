//! Times of requests, put together from those who measure it: the pipeline times every request
//! and what it does for memory tables, the queues of sources what those do, the log its syncs.

use std::{collections::HashMap, sync::Arc};

use busload_batch::QueueLatencies;
use busload_histogram::Reading;
use busload_pipeline::latency::Family;
use serde_json::{Value, json};

use crate::status::Status;

/// Quantiles that summaries show, with their names.
const QUANTILES: [(&str, f64); 4] =
    [("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p99_9_us", 0.999)];

/// Latencies of the requests of one family for one table.
#[derive(Debug)]
pub struct Latencies {
    pub table: String,
    pub kind: &'static str,
    pub family: Family,
    /// From when a request was received until its reply could be sent.
    pub requests: Reading,
    /// Until its batch began.
    pub queue: Reading,
    /// Time that this batch took.
    pub service: Reading,
}

/// Reads the latencies of all tables and families that have had requests.
pub fn read(status: &Status) -> Vec<Latencies> {
    let sources = of_sources(status);
    let mut all = Vec::new();
    for table in status.stats.latencies.tables() {
        for family in Family::ALL {
            let measured = table.family(family);
            let (queue, service) = match sources.get(&*table.name) {
                None => (measured.queue.read(), measured.service.read()),
                Some(source) => of_family(source, family),
            };
            let requests = measured.requests.read();
            if requests.count() != 0 || queue.count() != 0 {
                let (table, kind) = (table.name.clone(), table.kind);
                all.push(Latencies { table, kind, family, requests, queue, service });
            }
        }
    }
    all
}

fn of_sources(status: &Status) -> HashMap<&str, Arc<QueueLatencies>> {
    let postgres = status.postgres().iter().map(|table| (&*table.name, table.latencies()));
    let stores = status.chunk_stores().map_or(&[][..], |stores| stores.tables());
    let chunks = stores.iter().map(|table| (&*table.settings.name, table.queue.latencies()));
    postgres.chain(chunks).collect()
}

fn of_family(source: &QueueLatencies, family: Family) -> (Reading, Reading) {
    let class = match family {
        Family::Read => &source.reads,
        Family::Write => &source.writes,
        Family::Admin | Family::Other => return Default::default(),
    };
    (class.queued.read(), class.served.read())
}

/// Builds the latencies of tables, of commands and of the log's syncs, for programs.
#[allow(dead_code, reason = "for /api/stats")]
pub fn json(status: &Status) -> Value {
    let tables = read(status).into_iter().map(|latencies| {
        json!({
            "table": latencies.table,
            "kind": latencies.kind,
            "family": latencies.family.name(),
            "requests": summary(&latencies.requests),
            "queue": summary(&latencies.queue),
            "service": summary(&latencies.service),
        })
    });
    let commands = status.stats.latencies.commands().map(|(command, latencies)| {
        json!({
            "command": command.name,
            "calls": latencies.calls.get(),
            "failed": latencies.failed.get(),
            "rejected": latencies.rejected.get(),
            "busy_us": latencies.busy_ns.get() / 1000,
            "requests": summary(&latencies.requests.read()),
        })
    });
    json!({
        "tables": tables.collect::<Vec<_>>(),
        "commands": commands.collect::<Vec<_>>(),
        "log_sync": status.progress().map(|progress| summary(&progress.stats().sync_times)),
    })
}

/// Builds count, mean, quantiles and maximum of a histogram, and its buckets that count anything:
/// upper bound (`null` for the last bucket) and count. All times are in microseconds.
pub fn summary(reading: &Reading) -> Value {
    let us = |time: std::time::Duration| time.as_nanos() as f64 / 1e3;
    let mut summary = json!({
        "count": reading.count(),
        "mean_us": us(reading.mean()),
        "max_us": us(reading.max()),
    });
    for (name, quantile) in QUANTILES {
        summary[name] = us(reading.quantile(quantile)).into();
    }
    let buckets = reading.buckets().map(|(bound, count)| json!([bound.map(us), count]));
    summary["buckets"] = buckets.collect();
    summary
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_summary_has_all_that_a_person_asks_for() {
        let histogram = busload_histogram::Histogram::default();
        histogram.record(Duration::from_micros(10), 98);
        histogram.record(Duration::from_secs(100), 2);
        let summary = summary(&histogram.read());
        assert_eq!(summary["count"], 100);
        assert_eq!(summary["max_us"], 1e8);
        assert_eq!(summary["p99_us"], 8.3554432e7);
        assert_eq!(summary["buckets"], json!([[12.0, 98], [null, 2]]));
        let p50 = summary["p50_us"].as_f64().unwrap();
        assert!((10.0..12.0).contains(&p50), "{p50}");
    }

    #[test]
    fn a_server_without_requests_has_no_latencies() {
        let status = Status::default();
        assert!(read(&status).is_empty());
        let all = json!({ "tables": [], "commands": [], "log_sync": null });
        assert_eq!(json(&status), all);
    }
}
