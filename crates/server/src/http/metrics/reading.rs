//! Values of all counters at one moment, from which the rows of the table take theirs.

use std::sync::Arc;

use busload_batch::QueueStats;
use busload_calls::TimedCall;
use busload_dolt::{BusyStore, DynamoStats, SetStats, StoreStats, StoreStatus, UsageStats};
use busload_histogram::Reading as Times;
use busload_log::{Progress, Stats as LogStats};
use busload_objects::CacheStats;
use busload_peers::PeerCounts;
use busload_pipeline::stats::{BatchReading, Stats};
use busload_postgres::TableStats;
use busload_snapshot::{Control, Status as SnapshotStatus};

use crate::{
    chunk_sets::ChunkSet,
    chunk_stores::{ChunkStores, ChunkTable},
    config::Prices,
    http::front_metrics::FrontMetrics,
    latencies::{self, Latencies},
    peers::{PeerOutcome, Peers},
    savings::Savings,
    status::{ServerState, Status},
};

/// Values of all counters, each table's read once.
#[derive(Debug)]
pub struct Reading<'a> {
    pub status: &'a Status,
    pub state: ServerState,
    pub front: &'a FrontMetrics,
    /// Batches of the pipeline's stages, by name.
    pub stages: [(&'static str, BatchReading); 4],
    /// Tables in Postgres, by name.
    pub postgres: Vec<(String, TableStats)>,
    /// Tables of kind chunks.
    pub chunks: Vec<ChunksReading>,
    /// Stores of the configured patterns.
    pub sets: Vec<SetReading>,
    /// Tables of DynamoDB with manifests of these.
    pub dynamo: Vec<DynamoStats>,
    /// Request queues of all these tables.
    pub queues: Vec<QueueReading>,
    /// Times of requests, of each table and family that had any.
    pub latencies: Vec<Latencies>,
    /// Peers by state; none if this server is alone.
    pub peers: Option<PeersReading>,
    /// Counters of the log; none until it is recovered.
    pub log: Option<LogReading>,
}

/// Counters of one table of kind chunks.
#[derive(Debug)]
pub struct ChunksReading {
    pub name: String,
    pub stats: StoreStats,
    pub status: StoreStatus,
    pub savings: Savings,
    /// Times of gRPC calls and downloads, of those that were made.
    pub calls: Vec<(TimedCall, Times)>,
}

/// Counters of the stores of one pattern.
#[derive(Debug)]
pub struct SetReading {
    pub pattern: String,
    pub stats: SetStats,
    pub savings: Savings,
    /// Cache on disk of all these stores.
    pub cache: CacheStats,
    /// Stores with most requests lately, the busiest first.
    pub busiest: Vec<BusyReading>,
}

/// Counters of one of the busiest stores of a pattern.
#[derive(Clone, Debug, Default)]
pub struct BusyReading {
    pub store: String,
    pub usage: UsageStats,
    /// Bytes received from the object store.
    pub store_bytes: u64,
}

/// Counters of the request queue of one table, in Postgres or of kind chunks.
#[derive(Debug)]
pub struct QueueReading {
    pub table: String,
    pub stats: QueueStats,
    pub waiting: usize,
}

/// Other peers, and chunks between them and this server.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeersReading {
    pub counts: PeerCounts,
    /// Chunks that were to come from peers, in the order of [`PeerOutcome::ALL`].
    pub chunks: [u64; PeerOutcome::ALL.len()],
    /// Chunks that peers asked for.
    pub asked_by_peers: u64,
}

/// Counters of the log.
#[derive(Debug, Default)]
pub struct LogReading {
    pub written_lsn: u64,
    pub durable_lsn: u64,
    pub stats: LogStats,
    pub snapshots: SnapshotStatus,
}

impl PeersReading {
    fn new(peers: &Peers) -> Self {
        let metrics = peers.metrics();
        Self {
            counts: peers.view().counts(),
            chunks: PeerOutcome::ALL.map(|(outcome, _)| metrics.chunks(outcome)),
            asked_by_peers: metrics.asked_by_peers(),
        }
    }

    /// Returns how many chunks had each outcome, with its name.
    pub fn outcomes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        PeerOutcome::ALL.into_iter().zip(self.chunks).map(|((_, name), count)| (name, count))
    }
}

impl<'a> Reading<'a> {
    pub fn new(status: &'a Status, front: &'a FrontMetrics) -> Self {
        let postgres = status.postgres();
        let postgres = postgres.into_iter().map(|table| (table.stats(), table.name));
        let postgres: Vec<_> = postgres.map(|(stats, name)| (name, stats)).collect();
        let chunks = status.chunk_tables();
        let of_chunks = chunks.iter().map(|table| QueueReading::of_chunks(table));
        let queues = postgres.iter().map(QueueReading::of_postgres).chain(of_chunks).collect();
        Self {
            status,
            state: status.state(),
            front,
            stages: stages(&status.stats),
            postgres,
            chunks: chunks.iter().map(|table| ChunksReading::new(table, status.prices)).collect(),
            sets: status.chunk_stores().map_or_else(Vec::new, |stores| sets(stores, status.prices)),
            dynamo: status.chunk_stores().map_or_else(Vec::new, |stores| stores.dynamo_stats()),
            queues,
            latencies: latencies::read(status),
            peers: status.peers().map(|peers| PeersReading::new(peers)),
            log: status.progress().map(|progress| LogReading::new(progress, status.snapshots())),
        }
    }
}

fn sets(stores: &ChunkStores, prices: Prices) -> Vec<SetReading> {
    let reading = |set: &Arc<ChunkSet>| {
        let stats = set.set.stats();
        let prices = prices.of_store(&set.settings.chunks.url);
        SetReading {
            pattern: set.pattern().to_owned(),
            savings: Savings::new(&stats.usage, &stats.store, prices),
            stats,
            cache: set.set.cache().stats(),
            busiest: set.set.busiest().iter().map(BusyReading::new).collect(),
        }
    };
    stores.sets().iter().map(reading).collect()
}

fn stages(stats: &Stats) -> [(&'static str, BatchReading); 4] {
    [
        ("net", stats.net_batches.read()),
        ("tx", stats.tx_batches.read()),
        ("commit", stats.commit_batches.read()),
        ("reply", stats.reply_batches.read()),
    ]
}

impl ChunksReading {
    fn new(table: &ChunkTable, prices: Prices) -> Self {
        let stats = table.store.stats();
        let prices = prices.of_store(&table.settings.url);
        let calls = TimedCall::ALL.map(|call| (call, table.times.read(call)));
        Self {
            calls: calls.into_iter().filter(|(_, times)| times.count() != 0).collect(),
            name: table.settings.name.clone(),
            savings: Savings::new(&stats.usage, &stats.store, prices),
            stats,
            status: table.store.status(),
        }
    }
}

impl BusyReading {
    fn new(BusyStore { usage, .. }: &BusyStore) -> Self {
        Self {
            store: usage.name().to_owned(),
            usage: usage.stats(),
            store_bytes: usage.traffic().bytes(),
        }
    }
}

impl QueueReading {
    fn of_postgres((table, stats): &(String, TableStats)) -> Self {
        Self { table: table.clone(), stats: stats.queue, waiting: stats.waiting }
    }

    fn of_chunks(table: &ChunkTable) -> Self {
        let ChunkTable { settings, queue, .. } = table;
        Self { table: settings.name.clone(), stats: queue.stats(), waiting: queue.waiting() }
    }
}

impl LogReading {
    fn new(progress: &Progress, snapshots: Option<&Arc<Control>>) -> Self {
        Self {
            snapshots: snapshots.map(|control| control.status()).unwrap_or_default(),
            written_lsn: progress.written().0,
            durable_lsn: progress.durable().0,
            stats: progress.stats(),
        }
    }
}
