//! Sources of metrics: each takes values from a reading and writes them as samples.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::UNIX_EPOCH,
};

use busload_batch::ClassStats;
use busload_dolt::{DynamoStats, StoreStatus};
use busload_histogram::Reading as Times;
use busload_pipeline::stats::{BatchReading, Counter, Stats};
use busload_postgres::TableStats;
use busload_remotesapi::{Download, Location, Method, RecordsOrigin, RemotesapiStats};
use busload_tls::Counters;

use super::{
    exposition::Samples,
    reading::{
        BusyReading, ChunksReading, LogReading, PeersReading, QueueReading, Reading, SetReading,
    },
};
use crate::{
    http::front_metrics::FrontMetrics,
    latencies::Latencies,
    sources::{postgres_state, store_state},
};

/// Origin of the samples of a metric, which also decides their labels.
#[derive(Clone, Copy, Debug)]
pub enum MetricSource {
    /// One value of the process; none where the system does not tell it.
    Process(fn(&Reading<'_>) -> Option<f64>),
    /// A counter of the pipeline, over all memory tables and connections.
    Pipeline(fn(&Stats) -> &Counter),
    /// A value for each stage of the pipeline.
    Stage(fn(&BatchReading) -> u64),
    /// A counter of the HTTP front.
    Http(fn(&FrontMetrics) -> u64),
    /// A value for each table in Postgres.
    Postgres(fn(&TableStats) -> u64),
    /// A value for each request queue.
    Queue(fn(&QueueReading) -> u64),
    /// Two values for each request queue: of reads and of writes.
    QueueOperation(fn(&ClassStats) -> u64),
    /// A value for each table of kind chunks.
    Chunks(fn(&ChunksReading) -> u64),
    /// A value for each table of kind chunks that is no whole number, or may be negative.
    ChunksNumber(fn(&ChunksReading) -> f64),
    /// A value for each table of DynamoDB with manifests of stores.
    Dynamo(fn(&DynamoStats) -> u64),
    /// A value for each pattern of stores.
    Set(fn(&SetReading) -> u64),
    /// A value for each pattern of stores that is no whole number, or may be negative.
    SetNumber(fn(&SetReading) -> f64),
    /// A value for each of the busiest stores.
    BusyStore(fn(&BusyReading) -> u64),
    /// Counts of Dolt's clients by one label, over all tables of kind chunks.
    Dolt(Labels, fn(&RemotesapiStats) -> Vec<(&'static str, u64)>),
    /// A value of the log.
    Log(fn(&LogReading) -> u64),
    /// Times of the requests of a table and family.
    Latency(fn(&Latencies) -> &Times),
    /// Samples with labels of their own.
    Labelled(Labels, fn(&Reading<'_>, &mut Samples<'_>)),
}

/// Names of the labels that each sample of a metric has.
pub type Labels = &'static [&'static str];

use MetricSource::{
    BusyStore, Chunks, ChunksNumber, Dolt, Dynamo, Http, Labelled, Latency, Log, Pipeline,
    Postgres, Process, Queue, QueueOperation, Set, SetNumber, Stage,
};

impl MetricSource {
    /// Returns the names of the labels that each sample has.
    pub fn labels(self) -> Labels {
        match self {
            Process(_) | Pipeline(_) | Http(_) | Log(_) => &[],
            Stage(_) => &["stage"],
            Postgres(_) | Queue(_) | Chunks(_) | ChunksNumber(_) => &["table"],
            QueueOperation(_) => &["table", "operation"],
            Dynamo(_) => &["dynamodb_table", "endpoint"],
            Set(_) | SetNumber(_) => &["pattern"],
            BusyStore(_) => &["pattern", "store"],
            Latency(_) => &["table", "kind", "family", "le"],
            Dolt(labels, _) | Labelled(labels, _) => labels,
        }
    }

    /// Writes the samples at this moment.
    pub fn write(self, reading: &Reading<'_>, samples: &mut Samples<'_>) {
        match self {
            Process(of) => of(reading).into_iter().for_each(|value| samples.put(&[], value)),
            Pipeline(of) => samples.put(&[], of(&reading.status.stats).get()),
            Stage(of) => {
                for (stage, batches) in &reading.stages {
                    samples.put(&[stage], of(batches));
                }
            }
            Http(of) => samples.put(&[], of(reading.front)),
            Postgres(of) => {
                for (table, stats) in &reading.postgres {
                    samples.put(&[table], of(stats));
                }
            }
            Queue(of) => {
                for queue in &reading.queues {
                    samples.put(&[&queue.table], of(queue));
                }
            }
            QueueOperation(of) => {
                for QueueReading { table, stats, .. } in &reading.queues {
                    for (operation, class) in [("read", &stats.reads), ("write", &stats.writes)] {
                        samples.put(&[table, operation], of(class));
                    }
                }
            }
            Chunks(of) => {
                for table in &reading.chunks {
                    samples.put(&[&table.name], of(table));
                }
            }
            ChunksNumber(of) => {
                for table in &reading.chunks {
                    samples.put(&[&table.name], of(table));
                }
            }
            Dynamo(of) => {
                for stats in &reading.dynamo {
                    samples.put(&[&stats.table, &stats.endpoint], of(stats));
                }
            }
            Set(of) => {
                for set in &reading.sets {
                    samples.put(&[&set.pattern], of(set));
                }
            }
            SetNumber(of) => {
                for set in &reading.sets {
                    samples.put(&[&set.pattern], of(set));
                }
            }
            BusyStore(of) => {
                for SetReading { pattern, busiest, .. } in &reading.sets {
                    for busy in busiest {
                        samples.put(&[pattern, &busy.store], of(busy));
                    }
                }
            }
            // All tables of kind chunks together, if there are any.
            Dolt(_, of) if !reading.chunks.is_empty() || !reading.sets.is_empty() => {
                for (label, count) in of(&reading.status.remotesapi) {
                    samples.put(&[label], count);
                }
            }
            Dolt(..) => {}
            Log(of) => reading.log.iter().for_each(|log| samples.put(&[], of(log))),
            Latency(of) => {
                for all in &reading.latencies {
                    let times = of(all);
                    // Those of sources have no queue of commands that they answer at once.
                    if times.count() != 0 {
                        histogram(samples, &[&all.table, all.kind, all.family.name()], times);
                    }
                }
            }
            Labelled(_, write) => write(reading, samples),
        }
    }
}

/// Writes the numbers of peers by state, if there are any.
pub fn peers(reading: &Reading<'_>, samples: &mut Samples<'_>) {
    if let Some(PeersReading { counts, .. }) = reading.peers {
        samples.put(&["alive"], counts.alive);
        samples.put(&["suspect"], counts.suspect);
    }
}

/// Writes how many URLs named a peer, if there are any.
pub fn peer_urls(reading: &Reading<'_>, samples: &mut Samples<'_>) {
    if reading.peers.is_some() {
        samples.put(&[], reading.status.remotesapi.peer_urls());
    }
}

/// Writes how many chunks were asked of peers by outcome, if there are any peers.
pub fn peer_chunks(reading: &Reading<'_>, samples: &mut Samples<'_>) {
    for (outcome, count) in reading.peers.iter().flat_map(PeersReading::outcomes) {
        samples.put(&[outcome], count);
    }
}

/// Writes how many chunks peers asked for, if there are any peers.
pub fn chunks_asked_by_peers(reading: &Reading<'_>, samples: &mut Samples<'_>) {
    if let Some(peers) = reading.peers {
        samples.put(&[], peers.asked_by_peers);
    }
}

/// Returns 1 if the condition holds, else 0.
pub fn flag(is_set: bool) -> Option<f64> {
    Some(f64::from(u8::from(is_set)))
}

/// Reads the resident memory; none where there is no `/proc`.
pub fn resident_bytes() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some((pages * rustix::param::page_size() as u64) as f64)
}

pub fn build_info(_: &Reading<'_>, samples: &mut Samples<'_>) {
    samples.put(&[env!("CARGO_PKG_VERSION")], 1);
}

pub fn postgres_info(reading: &Reading<'_>, samples: &mut Samples<'_>) {
    for (table, stats) in &reading.postgres {
        let error = stats.last_error().map_or(String::new(), ToString::to_string);
        samples.put(&[table, postgres_state(stats), &error], 1);
    }
}

pub fn chunks_answers(reading: &Reading<'_>, samples: &mut Samples<'_>) {
    for ChunksReading { name, stats, .. } in &reading.chunks {
        for (outcome, count) in [
            ("memory", stats.memory_hits),
            ("local", stats.local),
            ("remote", stats.remote),
            ("peer", stats.peers),
            ("absent", stats.absent),
            ("error", stats.errors),
        ] {
            samples.put(&[name, outcome], count);
        }
    }
}

pub fn chunks_info(reading: &Reading<'_>, samples: &mut Samples<'_>) {
    for ChunksReading { name, stats, status, .. } in &reading.chunks {
        let state = store_state(status);
        let root = stats.root.map_or_else(String::new, |root| root.to_string());
        let error = match status {
            StoreStatus::Failed(error) => error.to_string(),
            StoreStatus::Opening | StoreStatus::Open => String::new(),
        };
        samples.put(&[name, state, &root, &error], 1);
    }
}

pub fn by_method(of: impl Fn(Method) -> u64) -> Vec<(&'static str, u64)> {
    Method::ALL.map(|method| (method.name(), of(method))).into()
}

pub fn by_download(of: impl Fn(Download) -> u64) -> Vec<(&'static str, u64)> {
    Download::ALL.map(|download| (download.name(), of(download))).into()
}

pub fn by_location(of: impl Fn(Location) -> u64) -> Vec<(&'static str, u64)> {
    Location::ALL.map(|location| (location.name(), of(location))).into()
}

pub fn by_origin(of: impl Fn(RecordsOrigin) -> u64) -> Vec<(&'static str, u64)> {
    RecordsOrigin::ALL.map(|origin| (origin.name(), of(origin))).into()
}

pub fn command_calls(reading: &Reading<'_>, samples: &mut Samples<'_>) {
    for (command, latencies) in reading.status.stats.latencies.commands() {
        samples.put(&[command.name], latencies.calls.get());
    }
}

pub fn command_failures(reading: &Reading<'_>, samples: &mut Samples<'_>) {
    for (command, latencies) in reading.status.stats.latencies.commands() {
        samples.put(&[command.name], latencies.failed.get() + latencies.rejected.get());
    }
}

pub fn sync_durations(reading: &Reading<'_>, samples: &mut Samples<'_>) {
    if let Some(log) = &reading.log {
        histogram(samples, &[], &log.stats.sync_times);
    }
}

pub fn call_durations(reading: &Reading<'_>, samples: &mut Samples<'_>) {
    for ChunksReading { name, calls, .. } in &reading.chunks {
        for (call, times) in calls {
            histogram(samples, &[name, call.name()], times);
        }
    }
}

/// Writes a histogram with its labels other than `le`. All series have all bounds: a sum of series
/// by `le` counts right only if each of them has a sample for each bound.
fn histogram(samples: &mut Samples<'_>, labels: &[&str], times: &Times) {
    let bounds = times.cumulative().map(|(bound, below)| (bound.as_secs_f64().to_string(), below));
    for (bound, below) in bounds.chain([("+Inf".to_owned(), times.count())]) {
        samples.put_as("_bucket", &[labels, &[&bound]].concat(), below);
    }
    samples.put_as("_sum", labels, times.sum().as_secs_f64());
    samples.put_as("_count", labels, times.count());
}

/// Returns a counter of TLS, if the server uses it.
pub fn tls(reading: &Reading<'_>, of: fn(&Counters) -> &AtomicU64) -> Option<f64> {
    let identity = reading.front.tls.get()?;
    Some(of(identity.counters()).load(Relaxed) as f64)
}

/// Returns the time at which the server's certificate expires, if the server uses TLS.
pub fn certificate_expiry(reading: &Reading<'_>) -> Option<f64> {
    let expires = reading.front.tls.get()?.expires()?;
    Some(expires.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}
