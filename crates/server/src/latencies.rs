//! Times of requests, put together from those who measure it: the pipeline times every request
//! and what it does for memory tables, the queues of sources what those do, the log its syncs.

use std::{collections::HashMap, sync::Arc};

use busload_batch::QueueLatencies;
use busload_histogram::Reading;
use busload_pipeline::latency::Family;

use crate::status::Status;

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

fn of_sources(status: &Status) -> HashMap<String, Arc<QueueLatencies>> {
    let (postgres, chunks) = (status.postgres(), status.chunk_tables());
    let postgres = postgres.iter().map(|table| (table.name.clone(), table.latencies()));
    let chunks = chunks.iter().map(|table| (table.settings.name.clone(), table.queue.latencies()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_requests_has_no_latencies() {
        assert!(read(&Status::default()).is_empty());
    }
}
