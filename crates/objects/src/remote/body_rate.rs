//! The rate of a body, measured while its bytes come.

use std::sync::atomic::Ordering::Relaxed;

use tokio::time::Instant;

use super::{limits::BANDWIDTH_SAMPLE_TIME, metrics::Metrics};

/// Measures one body: once a second, and at its end.
#[derive(Debug)]
pub(super) struct BodyRate<'a> {
    metrics: &'a Metrics,
    /// Time at which the sample began, and its bytes.
    began: Instant,
    bytes: u64,
}

impl<'a> BodyRate<'a> {
    pub(super) fn begin(metrics: &'a Metrics) -> Self {
        Self { metrics, began: Instant::now(), bytes: 0 }
    }

    /// Adds bytes that have come.
    pub(super) fn add(&mut self, bytes: u64) {
        self.metrics.bytes.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
        let took = self.began.elapsed();
        if BANDWIDTH_SAMPLE_TIME <= took {
            self.metrics.body_took(self.bytes, took);
            self.begin_anew();
        }
    }

    /// Forgets the sample: nobody has read the body for a while.
    pub(super) fn begin_anew(&mut self) {
        (self.began, self.bytes) = (Instant::now(), 0);
    }

    /// Measures the rest of a body that has come to its end.
    pub(super) fn end(self) {
        self.metrics.body_took(self.bytes, self.began.elapsed());
    }
}
