//! Traces of a build without the feature `otel`: there are none.

use std::sync::Arc;

use busload_batch::{BatchTrace, SentBatch};
use busload_pipeline::source::Operation;
use tonic::metadata::MetadataMap;

use super::{Outcome, SpanCounters, Traced};
use crate::{config::TraceSettings, failure::Failure};

/// Tracer of the server.
#[derive(Clone, Debug, Default)]
pub struct Tracer;

/// Tracer of one table.
#[derive(Clone, Debug, Default)]
pub struct TableTracer;

/// Span of a request.
#[derive(Debug, Default)]
pub struct RequestSpan;

/// Span of a gRPC call.
#[derive(Debug)]
pub struct CallSpan;

impl Tracer {
    /// Starts nothing: the configuration has refused an endpoint.
    pub fn start(
        _settings: Option<&TraceSettings>,
        _counters: &Arc<SpanCounters>,
    ) -> Result<Self, Failure> {
        Ok(Self)
    }

    pub fn of_table(&self, _name: &str, _kind: &'static str) -> TableTracer {
        TableTracer
    }

    pub fn call(&self, _method: &'static str, _table: &str, _headers: &MetadataMap) -> CallSpan {
        CallSpan
    }

    pub fn stop(&self) {}
}

impl TableTracer {
    pub fn sample(&self, _operation: Operation) -> RequestSpan {
        RequestSpan
    }
}

impl RequestSpan {
    pub fn is_sampled(&self) -> bool {
        false
    }

    pub fn begin_batch<R: Traced>(&self, _batch: &SentBatch) -> Option<Box<dyn BatchTrace<R>>> {
        None
    }

    pub fn end(self, _outcome: Outcome) {}
}

impl CallSpan {
    pub fn end<T, E>(self, _result: &Result<T, E>) {}
}
