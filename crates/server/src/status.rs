//! How the server is, for whoever asks from outside the pipeline.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use busload_log::Progress;
use busload_pipeline::{stats::Stats, tx::Signals};

use crate::{
    chunk_stores::ChunkStores, rate_limited_log::RateLimitedLog, remotesapi::RemotesapiStats,
    sources::Watched,
};

/// Shared by all threads of the server.
#[derive(Debug, Default)]
pub struct Status {
    /// What the stages count.
    pub stats: Arc<Stats>,
    /// The pipeline is asked to stop through these.
    pub signals: Arc<Signals>,
    /// When the process started, milliseconds since 1970.
    pub started_ms: i64,
    /// How far the log is; set when it is recovered.
    progress: OnceLock<Progress>,
    /// Tables in Postgres; set when they run.
    tables: OnceLock<Vec<Watched>>,
    /// Set when they have started.
    chunk_stores: OnceLock<Arc<ChunkStores>>,
    /// What Dolt's clients asked for.
    pub remotesapi: RemotesapiStats,
    /// What the log was told lately.
    pub rate_limited_log: RateLimitedLog,
    serving: AtomicBool,
}

/// What it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The log is being read.
    Recovering,
    /// All is well.
    Ready,
    /// Writes are refused.
    NoSpace(Arc<str>),
    /// Nothing is answered any more.
    LogFailed(Arc<str>),
    /// It was told to stop.
    Stopping,
}

impl Status {
    /// For a server that starts at this time.
    pub fn new(started_ms: i64) -> Self {
        Self { started_ms, ..Self::default() }
    }

    /// The log is recovered.
    pub fn recovered(&self, progress: Progress) {
        // Once per process.
        let _ = self.progress.set(progress);
    }

    /// These tables have metrics, too.
    pub fn watch(&self, tables: Vec<Watched>) {
        // Once per process.
        let _ = self.tables.set(tables);
    }

    /// Tables in Postgres.
    pub fn tables(&self) -> &[Watched] {
        self.tables.get().map_or(&[], Vec::as_slice)
    }

    /// These are served, too.
    pub fn serve_stores(&self, stores: Arc<ChunkStores>) {
        // Once per process.
        let _ = self.chunk_stores.set(stores);
    }

    /// The chunk stores, once they have started.
    pub fn chunk_stores(&self) -> Option<&Arc<ChunkStores>> {
        self.chunk_stores.get()
    }

    /// Requests are answered from now on.
    pub fn serve(&self) {
        self.serving.store(true, Ordering::Release);
    }

    /// How far the log is, once it is recovered.
    pub fn progress(&self) -> Option<&Progress> {
        self.progress.get()
    }

    /// How it is now.
    pub fn state(&self) -> State {
        let progress = self.progress();
        if let Some(failure) = progress.and_then(Progress::failure) {
            State::LogFailed(failure)
        } else if self.signals.stopping() {
            State::Stopping
        } else if !self.serving.load(Ordering::Acquire) {
            State::Recovering
        } else if let Some(message) = progress.and_then(Progress::no_space) {
            State::NoSpace(message)
        } else {
            State::Ready
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Recovering => f.write_str("recovering the log"),
            State::Ready => f.write_str("ready"),
            State::NoSpace(message) => write!(f, "writes are refused: {message}"),
            State::LogFailed(message) => write!(f, "the log failed: {message}"),
            State::Stopping => f.write_str("stopping"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_recovers_then_serves_then_stops() {
        let status = Status::default();
        assert_eq!(status.state(), State::Recovering);
        status.serve();
        assert_eq!(status.state(), State::Ready);
        status.signals.stop();
        assert_eq!(status.state(), State::Stopping);
    }
}
