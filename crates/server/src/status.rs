//! State of the server, for readers outside the pipeline: HTTP, gRPC, metrics.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use busload_log::Progress;
use busload_pipeline::{stats::Stats, tx::Signals};
use busload_remotesapi::RemotesapiStats;

use crate::{
    chunk_stores::{ChunkStores, Tables},
    config::Prices,
    peers::Peers,
    sources::{PostgresTableMetrics, PostgresTables},
    traces::{SpanCounters, Tracer},
};

/// State that all threads of the server share.
#[derive(Debug, Default)]
pub struct Status {
    /// Counters of the pipeline's stages.
    pub stats: Arc<Stats>,
    /// Signals that ask the pipeline to stop.
    pub signals: Arc<Signals>,
    /// Start of the process, in milliseconds since 1970.
    pub started_ms: i64,
    /// Progress of the log; set when the log is recovered.
    progress: OnceLock<Progress>,
    /// Requests for snapshots and their state; set together with the progress.
    snapshots: OnceLock<Arc<busload_snapshot::Control>>,
    /// Postgres tables; set when their sources have started.
    postgres: OnceLock<Arc<PostgresTables>>,
    /// Chunk stores; set when they have started to open.
    chunk_stores: OnceLock<Arc<ChunkStores>>,
    /// Peers that cache the same stores; set at the start if there are any.
    peers: OnceLock<Arc<Peers>>,
    /// Prices of what object stores bill.
    pub prices: Prices,
    /// Counters of Dolt's clients.
    pub remotesapi: Arc<RemotesapiStats>,
    /// Counters of spans for OpenTelemetry.
    pub spans: Arc<SpanCounters>,
    /// Tracer of calls; set before the stores are served.
    tracer: OnceLock<Tracer>,
    serving: AtomicBool,
}

/// Conditions that the server can be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// The log is being read.
    Recovering,
    /// Requests are served and writes accepted.
    Ready,
    /// The disk is full: reads are served, writes refused.
    NoSpace(Arc<str>),
    /// The log failed: nothing is answered any more.
    LogFailed(Arc<str>),
    /// A shutdown is under way.
    Stopping,
}

impl Status {
    /// Status of a server that starts at this time.
    pub fn new(started_ms: i64, prices: Prices) -> Self {
        Self { started_ms, prices, ..Self::default() }
    }

    /// Notes that the log is recovered.
    pub fn recovered(&self, progress: Progress, snapshots: Arc<busload_snapshot::Control>) {
        // Once per process.
        let _ = self.progress.set(progress);
        let _ = self.snapshots.set(snapshots);
    }

    /// Notes the peers, before anything is served.
    pub fn set_peers(&self, peers: Arc<Peers>) {
        // Once per process.
        let _ = self.peers.set(peers);
    }

    /// Returns the peers, if there are any.
    pub fn peers(&self) -> Option<&Arc<Peers>> {
        self.peers.get()
    }

    /// Returns the state of the snapshots, once the log is recovered.
    pub fn snapshots(&self) -> Option<&Arc<busload_snapshot::Control>> {
        self.snapshots.get()
    }

    /// Adds the Postgres tables, for their metrics.
    pub fn add_postgres(&self, tables: Arc<PostgresTables>) {
        // Once per process.
        let _ = self.postgres.set(tables);
    }

    /// Returns access to the metrics of the Postgres tables that are served now.
    pub fn postgres(&self) -> Vec<PostgresTableMetrics> {
        self.postgres.get().map(|tables| tables.metrics()).unwrap_or_default()
    }

    /// Adds the chunk stores, which HTTP and gRPC serve from now on.
    pub fn serve_stores(&self, stores: Arc<ChunkStores>) {
        // Once per process.
        let _ = self.chunk_stores.set(stores);
    }

    /// Returns the chunk stores, once they have started to open.
    pub fn chunk_stores(&self) -> Option<&Arc<ChunkStores>> {
        self.chunk_stores.get()
    }

    /// Returns the chunk tables that are served now.
    pub fn chunk_tables(&self) -> Tables {
        self.chunk_stores().map(|stores| stores.tables()).unwrap_or_default()
    }

    /// Traces calls from now on.
    pub fn trace(&self, tracer: Tracer) {
        // Once per process.
        let _ = self.tracer.set(tracer);
    }

    /// Returns the tracer of calls; one that traces nothing before the start.
    pub fn tracer(&self) -> Tracer {
        self.tracer.get().cloned().unwrap_or_default()
    }

    /// Notes that requests are served from now on.
    pub fn serve(&self) {
        self.serving.store(true, Ordering::Release);
    }

    /// Returns the progress of the log, once it is recovered.
    pub fn progress(&self) -> Option<&Progress> {
        self.progress.get()
    }

    /// Returns the current state.
    pub fn state(&self) -> ServerState {
        let progress = self.progress();
        if let Some(failure) = progress.and_then(Progress::failure) {
            ServerState::LogFailed(failure)
        } else if self.signals.stopping() {
            ServerState::Stopping
        } else if !self.serving.load(Ordering::Acquire) {
            ServerState::Recovering
        } else if let Some(message) = progress.and_then(Progress::no_space) {
            ServerState::NoSpace(message)
        } else {
            ServerState::Ready
        }
    }
}

impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerState::Recovering => f.write_str("recovering the log"),
            ServerState::Ready => f.write_str("ready"),
            ServerState::NoSpace(message) => write!(f, "writes are refused: {message}"),
            ServerState::LogFailed(message) => write!(f, "the log failed: {message}"),
            ServerState::Stopping => f.write_str("stopping"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_recovers_then_serves_then_stops() {
        let status = Status::default();
        assert_eq!(status.state(), ServerState::Recovering);
        status.serve();
        assert_eq!(status.state(), ServerState::Ready);
        status.signals.stop();
        assert_eq!(status.state(), ServerState::Stopping);
    }
}
