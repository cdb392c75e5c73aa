//! Counters of chunks that this server asks of its peers, and of those that they ask of it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Outcome of a chunk that was to come from the peer that owns its file. Unless it was sent, this
/// server reads it from the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerOutcome {
    /// The peer sent it.
    Answered,
    /// The peer does not have it, could not read it, or could not be reached.
    Missed,
    /// The peer did not send it in time.
    TimedOut,
    /// The peer was not asked: too many questions wait for it, or it failed a moment ago.
    Skipped,
}

impl PeerOutcome {
    /// All outcomes, each with its name in metrics.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Answered, "answered"),
        (Self::Missed, "missed"),
        (Self::TimedOut, "timed_out"),
        (Self::Skipped, "skipped"),
    ];
}

/// Counters of chunks between peers since the start.
#[derive(Debug, Default)]
pub struct PeerMetrics {
    outcomes: [AtomicU64; PeerOutcome::ALL.len()],
    /// Chunks that peers asked for.
    asked_by_peers: AtomicU64,
}

impl PeerMetrics {
    /// Counts chunks with the same outcome.
    pub fn count(&self, outcome: PeerOutcome, chunks: usize) {
        self.outcomes[outcome as usize].fetch_add(chunks as u64, Relaxed);
    }

    /// Returns how many chunks had an outcome.
    pub fn chunks(&self, outcome: PeerOutcome) -> u64 {
        self.outcomes[outcome as usize].load(Relaxed)
    }

    /// Counts chunks that a peer asks for.
    pub fn count_asked_by_peer(&self, chunks: usize) {
        self.asked_by_peers.fetch_add(chunks as u64, Relaxed);
    }

    /// Returns how many chunks peers asked for.
    pub fn asked_by_peers(&self) -> u64 {
        self.asked_by_peers.load(Relaxed)
    }
}
