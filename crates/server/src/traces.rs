//! Traces of requests that wait for a batch, for OpenTelemetry: the cargo feature `otel`.
//!
//! ```text
//!  source: TableTracer::sample --> RequestSpan, in the waiter <--link--> BatchSpan
//!                                      |  answered                          |  ended
//!                                      +--------------> SpanQueue <---------+
//!                                                          |  thread `traces`
//!                                                          v
//!                                             OTLP over HTTP --> collector
//! ```
//!
//! A span tells the command and the table, never a key, a value or an argument. What is read from
//! memory has no span. Without the feature, or without `otel_endpoint`, no request is sampled: each
//! type here is then empty or `None`.
//!
//! **Overload.** The queue of spans is bounded; further spans are dropped and counted, and no
//! request waits. **Shutdown.** The collector has two seconds to take what is
//! queued.

#[cfg(feature = "otel")]
mod exporter;
#[cfg(feature = "otel")]
mod limits;
#[cfg(not(feature = "otel"))]
mod off;
#[cfg(feature = "otel")]
mod spans;

use std::sync::atomic::AtomicU64;

use busload_batch::BatchError;

#[cfg(not(feature = "otel"))]
pub use off::{CallSpan, RequestSpan, TableTracer, Tracer};
#[cfg(feature = "otel")]
pub use spans::{CallSpan, RequestSpan, TableTracer, Tracer};

/// Counters of spans that ended.
#[derive(Debug, Default)]
pub struct SpanCounters {
    /// Spans that the collector has taken.
    pub sent: AtomicU64,
    /// Spans that were dropped: the queue was full, or the collector did not take them.
    pub dropped: AtomicU64,
}

/// A waiter that may have the span of its request.
pub trait Traced: Send + 'static {
    /// Returns the span of the request.
    #[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "no batch has a span"))]
    fn span(&mut self) -> &mut RequestSpan;
}

/// Ways in which a request ends, as its span names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "no span names them"))]
pub enum Outcome {
    Answered,
    Failed,
    DeadlineExceeded,
    /// The queue had no space.
    Refused,
    /// The client left, or the pipeline's own deadline passed.
    Cancelled,
}

impl Outcome {
    /// Returns the outcome that a result is.
    pub fn of<T, E>(result: &Result<T, BatchError<E>>) -> Self {
        match result {
            Ok(_) => Self::Answered,
            Err(BatchError::Full | BatchError::TooLarge { .. }) => Self::Refused,
            Err(BatchError::TooLate { .. }) => Self::DeadlineExceeded,
            Err(_) => Self::Failed,
        }
    }
}
