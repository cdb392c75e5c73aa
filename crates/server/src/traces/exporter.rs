//! Sends spans to the collector: a bounded queue, and a thread that empties it.
//!
//! The thread may wait for a collector that does not answer as long as the exporter's timeout
//! (`OTEL_EXPORTER_OTLP_TIMEOUT`); nobody waits for the thread, a shutdown only
//! [`FLUSH_TIMEOUT`].

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use futures_executor::block_on;
use opentelemetry::Context;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Span, SpanData, SpanExporter, SpanProcessor},
};

use super::{
    SpanCounters,
    limits::{EXPORT_PAUSE, FLUSH_TIMEOUT, SPANS_PER_EXPORT_MAX, SPANS_QUEUED_MAX},
};
use crate::failure::Failure;

/// Queue of the spans that have ended.
#[derive(Clone, Debug)]
pub struct SpanQueue {
    shared: Arc<SharedSpans>,
}

#[derive(Debug)]
struct SharedSpans {
    state: Mutex<QueuedSpans>,
    changed: Condvar,
    counters: Arc<SpanCounters>,
}

#[derive(Debug, Default)]
struct QueuedSpans {
    spans: Vec<SpanData>,
    /// Spans that found the queue full since the last line about them.
    dropped: u64,
    stopping: bool,
    /// Set when the thread has sent or dropped everything and takes no more.
    ended: bool,
}

impl SpanQueue {
    /// Starts the thread that sends the spans.
    pub fn start(
        exporter: impl SpanExporter + 'static,
        counters: &Arc<SpanCounters>,
    ) -> Result<Self, Failure> {
        let counters = Arc::clone(counters);
        let shared =
            Arc::new(SharedSpans { state: Mutex::default(), changed: Condvar::new(), counters });
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("traces".to_owned())
            .spawn(move || of_thread.run(&exporter))
            .map_err(|error| Failure::run(format!("cannot start a thread for traces: {error}")))?;
        Ok(Self { shared })
    }

    /// Lets the collector take what is queued, within a bound.
    pub fn stop(&self) {
        let mut state = self.shared.lock();
        state.stopping = true;
        self.shared.changed.notify_all();
        let waited =
            self.shared.changed.wait_timeout_while(state, FLUSH_TIMEOUT, |state| !state.ended);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !state.ended {
            log::warn!(
                "the collector of traces did not answer within {FLUSH_TIMEOUT:?}; the last spans \
                 are lost"
            );
        }
    }
}

impl SharedSpans {
    fn run(&self, exporter: &impl SpanExporter) {
        while let Some((spans, dropped)) = self.next() {
            if 0 < dropped {
                log::warn!(
                    "{dropped} spans were dropped: {SPANS_QUEUED_MAX} waited for the collector"
                );
            }
            let count = spans.len();
            match block_on(exporter.export(spans)) {
                Ok(()) => self.counters.sent.fetch_add(count as u64, Relaxed),
                Err(error) => {
                    log::warn!("{count} spans were dropped: the collector took none: {error}");
                    self.counters.dropped.fetch_add(count as u64, Relaxed)
                }
            };
        }
    }

    /// Waits for spans and takes them, with the number of those dropped before; `None` after the
    /// last ones.
    fn next(&self) -> Option<(Vec<SpanData>, u64)> {
        let mut state = self.lock();
        while state.spans.is_empty() {
            if state.stopping {
                state.ended = true;
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let waited = self.changed.wait_timeout_while(state, EXPORT_PAUSE, |state| {
            state.spans.len() < SPANS_PER_EXPORT_MAX && !state.stopping
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let count = state.spans.len().min(SPANS_PER_EXPORT_MAX);
        let spans = state.spans.drain(..count).collect();
        Some((spans, std::mem::take(&mut state.dropped)))
    }

    fn lock(&self) -> MutexGuard<'_, QueuedSpans> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        let mut state = self.shared.lock();
        if state.ended || SPANS_QUEUED_MAX <= state.spans.len() {
            state.dropped += 1;
            self.shared.counters.dropped.fetch_add(1, Relaxed);
            return;
        }
        state.spans.push(span);
        // The thread waits for the first, and then for enough of them.
        if matches!(state.spans.len(), 1 | SPANS_PER_EXPORT_MAX) {
            self.shared.changed.notify_all();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// Does nothing: [`SpanQueue::stop`] is what the server calls.
    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[cfg(test)]
#[path = "exporter/tests.rs"]
mod tests;
