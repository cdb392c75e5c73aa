//! What callers saw: how many chunks came, how long requests took, and what was wrong.

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::{
    clock::Window,
    failures::Failed,
    stats::{new_histogram, record},
};

/// What a load saw.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Times of the requests that count.
    pub latency_ns: Histogram<u64>,
    /// Chunks that came within the window.
    pub chunks: u64,
    /// When the last of them came.
    pub last_ns: u64,
    /// Refusals and wrong answers, the warm-up included.
    pub failed: Failed,
}

impl Counters {
    /// Nothing seen so far.
    pub fn new() -> Result<Self> {
        Ok(Self { latency_ns: new_histogram()?, chunks: 0, last_ns: 0, failed: Failed::default() })
    }

    /// An answer with so many chunks: it counts when it came within the window.
    pub fn answer(&mut self, window: Window, chunks: u64, asked_ns: u64, now_ns: u64) {
        if window.contains(now_ns) {
            self.chunks += chunks;
            self.last_ns = self.last_ns.max(now_ns);
            record(&mut self.latency_ns, now_ns.saturating_sub(asked_ns));
        }
    }
}
