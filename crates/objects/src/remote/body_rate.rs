//! The rate of a body, measured while its bytes come.

use std::sync::atomic::Ordering::Relaxed;

use tokio::time::Instant;

use super::{
    Urgency,
    limits::BANDWIDTH_SAMPLE_TIME,
    metrics::{Metrics, PathTraffic},
};

/// Measures one body: once a second, and at its end. Those of fills and readahead, which are long,
/// are also measured together.
#[derive(Debug)]
pub(super) struct BodyRate<'a> {
    metrics: &'a Metrics,
    traffic: &'a PathTraffic,
    urgency: Urgency,
    /// Time at which the sample began, and its bytes.
    began: Instant,
    bytes: u64,
}

impl<'a> BodyRate<'a> {
    pub(super) fn begin(
        (metrics, traffic): (&'a Metrics, &'a PathTraffic),
        urgency: Urgency,
    ) -> Self {
        let began = Instant::now();
        if urgency == Urgency::Fill {
            metrics.side_by_side().handle_begun(began);
        }
        Self { metrics, traffic, urgency, began, bytes: 0 }
    }

    /// Adds bytes that have come.
    pub(super) fn add(&mut self, bytes: u64) {
        let now = Instant::now();
        self.metrics.bytes.fetch_add(bytes, Relaxed);
        self.traffic.count_bytes(bytes);
        if self.urgency == Urgency::Fill {
            self.metrics.side_by_side().handle_bytes(bytes, now);
        }
        self.bytes += bytes;
        let took = now - self.began;
        if BANDWIDTH_SAMPLE_TIME <= took {
            self.metrics.body_took(self.bytes, took);
            (self.began, self.bytes) = (now, 0);
        }
    }

    /// Forgets the sample: nobody has read the body for a while.
    pub(super) fn handle_paused(&mut self) {
        let now = Instant::now();
        self.metrics.side_by_side().handle_paused(now);
        (self.began, self.bytes) = (now, 0);
    }

    /// Measures the rest of a body that has come to its end.
    pub(super) fn end(self) {
        self.metrics.body_took(self.bytes, self.began.elapsed());
    }
}

impl Drop for BodyRate<'_> {
    fn drop(&mut self) {
        if self.urgency == Urgency::Fill {
            self.metrics.side_by_side().handle_ended(Instant::now());
        }
    }
}
