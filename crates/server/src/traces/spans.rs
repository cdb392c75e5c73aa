//! Spans of requests, batches and gRPC calls.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use busload_batch::{BatchEnd, BatchTrace, Operation as Class, SentBatch};
use busload_io::{Clock, RealClock};
use busload_pipeline::source::Operation;
use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, TextMapPropagator},
    trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, TracerProvider as _},
};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler as SdkSampler, SdkTracer, SdkTracerProvider, Span, SpanExporter as _},
};
use tonic::metadata::MetadataMap;

use super::{Outcome, SpanCounters, Traced, exporter::SpanQueue};
use crate::{config::TraceSettings, failure::Failure};

/// Path of traces below a collector's address.
const TRACES_PATH: &str = "/v1/traces";
/// Share that a sampler counts in.
const MILLION: u64 = 1_000_000;

/// Tracer of the server; the default one traces nothing.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<Started>>);

#[derive(Debug)]
struct Started {
    tracer: SdkTracer,
    queue: SpanQueue,
    sampler: Sampler,
    clock: RealClock,
    /// Ends when the tracer does: the SDK drops the spans of a provider that is gone.
    _provider: SdkTracerProvider,
}

/// Tracer of one table.
#[derive(Clone, Debug, Default)]
pub struct TableTracer(Option<Arc<TracedTable>>);

#[derive(Debug)]
struct TracedTable {
    started: Arc<Started>,
    name: Arc<str>,
    kind: &'static str,
}

/// Span of a request that waits for a batch, if the request is sampled. It ends when it is dropped.
#[derive(Debug, Default)]
pub struct RequestSpan(Option<Box<SampledRequest>>);

#[derive(Debug)]
struct SampledRequest {
    span: Span,
    table: Arc<TracedTable>,
    began: Duration,
    outcome: Outcome,
}

/// Span of a batch.
struct BatchSpan {
    span: Span,
    clock: RealClock,
}

/// Span of a gRPC call, if it is sampled.
#[derive(Debug)]
pub struct CallSpan(Option<Span>);

impl Tracer {
    /// Starts to trace, if the settings say so.
    pub fn start(
        settings: Option<&TraceSettings>,
        counters: &Arc<SpanCounters>,
    ) -> Result<Self, Failure> {
        let Some(settings) = settings else { return Ok(Self::default()) };
        let resource = resource(settings);
        let mut exporter = exporter(&settings.endpoint)?;
        exporter.set_resource(&resource);
        let queue = SpanQueue::start(exporter, counters)?;
        let provider = SdkTracerProvider::builder()
            // What has a span was sampled before.
            .with_sampler(SdkSampler::AlwaysOn)
            .with_resource(resource)
            .with_span_processor(queue.clone())
            .build();
        log::info!("traces: {} of requests to {}", settings.sample, settings.endpoint);
        Ok(Self(Some(Arc::new(Started {
            tracer: provider.tracer("busload"),
            queue,
            sampler: Sampler::new(settings.sample.per_million),
            clock: RealClock::new(),
            _provider: provider,
        }))))
    }

    /// Returns the tracer of a table.
    pub fn of_table(&self, name: &str, kind: &'static str) -> TableTracer {
        TableTracer(self.0.as_ref().map(|started| {
            Arc::new(TracedTable { started: Arc::clone(started), name: name.into(), kind })
        }))
    }

    /// Begins the span of a gRPC call, if its caller has sampled it or, where the caller does not
    /// say, if we do.
    pub fn call(&self, method: &'static str, table: &str, headers: &MetadataMap) -> CallSpan {
        CallSpan(self.0.as_ref().and_then(|started| started.call(method, table, headers)))
    }

    /// Lets the collector take the last spans, within a bound.
    pub fn stop(&self) {
        if let Some(started) = &self.0 {
            started.queue.stop();
        }
    }
}

/// Returns what names this service in spans: the setting wins over the environment, and that over
/// our name.
fn resource(settings: &TraceSettings) -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let of_environment = Resource::builder().build();
    let named = of_environment
        .get(&"service.name".into())
        .is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let builder = Resource::builder().with_attribute(version);
    match &settings.service {
        Some(name) => builder.with_service_name(name.clone()).build(),
        None if named => builder.build(),
        None => builder.with_service_name("busload").build(),
    }
}

fn exporter(endpoint: &str) -> Result<SpanExporter, Failure> {
    // The client takes the TLS of the process; a store's may have installed it before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let base = endpoint.trim_end_matches('/');
    let base = base.strip_suffix(TRACES_PATH).unwrap_or(base);
    SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{base}{TRACES_PATH}"))
        .build()
        .map_err(|error| Failure::usage(format!("otel_endpoint: {error}")))
}

impl Started {
    fn call(&self, method: &'static str, table: &str, headers: &MetadataMap) -> Option<Span> {
        let parent =
            TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
        let of_caller = parent.span().span_context().clone();
        let is_sampled = match of_caller.is_valid() {
            true => of_caller.is_sampled(),
            false => self.sampler.takes(),
        };
        is_sampled.then(|| {
            SpanBuilder::from_name(method)
                .with_kind(SpanKind::Server)
                .with_attributes([
                    KeyValue::new("rpc.system", "grpc"),
                    KeyValue::new("rpc.service", "busload.v1.Chunks"),
                    KeyValue::new("rpc.method", method),
                    KeyValue::new("busload.table", table.to_owned()),
                ])
                .start_with_context(&self.tracer, &parent)
        })
    }
}

impl TableTracer {
    /// Begins the span of a request, if the request is sampled.
    #[inline]
    pub fn sample(&self, operation: Operation) -> RequestSpan {
        match &self.0 {
            Some(table) if table.started.sampler.takes() => table.begin(operation),
            _ => RequestSpan(None),
        }
    }
}

impl TracedTable {
    fn begin(self: &Arc<Self>, operation: Operation) -> RequestSpan {
        let command = command(operation);
        let span = SpanBuilder::from_name(format!("{command} {}", self.name))
            .with_kind(SpanKind::Server)
            .with_attributes(
                self.attributes().into_iter().chain([KeyValue::new("busload.command", command)]),
            )
            .start_with_context(&self.started.tracer, &Context::new());
        let began = self.started.clock.now();
        let table = Arc::clone(self);
        RequestSpan(Some(Box::new(SampledRequest {
            span,
            table,
            began,
            outcome: Outcome::Cancelled,
        })))
    }

    fn attributes(&self) -> [KeyValue; 2] {
        let table = KeyValue::new("busload.table", Arc::clone(&self.name));
        [table, KeyValue::new("busload.kind", self.kind)]
    }
}

impl RequestSpan {
    /// Returns whether the request is sampled.
    #[inline]
    pub fn is_sampled(&self) -> bool {
        self.0.is_some()
    }

    /// Begins the span of the batch that carries the request.
    pub fn begin_batch<R: Traced>(&self, batch: &SentBatch) -> Option<Box<dyn BatchTrace<R>>> {
        let table = &self.0.as_ref()?.table;
        let operation = match batch.operation {
            Class::Read => "read",
            Class::Write => "write",
        };
        let numbers =
            [("busload.entries", batch.entries as u64), ("busload.requests", batch.requests)].map(
                |(name, number)| KeyValue::new(name, i64::try_from(number).unwrap_or(i64::MAX)),
            );
        let now = opentelemetry::time::now();
        let span = SpanBuilder::from_name(format!("batch {operation} {}", table.name))
            .with_kind(SpanKind::Internal)
            .with_start_time(now.checked_sub(batch.age).unwrap_or(now))
            .with_attributes(
                table
                    .attributes()
                    .into_iter()
                    .chain([KeyValue::new("busload.operation", operation)])
                    .chain(numbers),
            )
            .start_with_context(&table.started.tracer, &Context::new());
        Some(Box::new(BatchSpan { span, clock: table.started.clock }))
    }

    /// Ends the span. One that is dropped instead was cancelled.
    pub fn end(mut self, outcome: Outcome) {
        if let Some(sampled) = &mut self.0 {
            sampled.outcome = outcome;
        }
    }
}

impl Drop for SampledRequest {
    fn drop(&mut self) {
        let (name, is_error) = match self.outcome {
            Outcome::Answered => ("ok", false),
            Outcome::Failed => ("error", true),
            Outcome::DeadlineExceeded => ("deadline_exceeded", true),
            Outcome::Refused => ("refused", true),
            Outcome::Cancelled => ("cancelled", false),
        };
        finish(&mut self.span, name, is_error);
    }
}

impl<R: Traced> BatchTrace<R> for BatchSpan {
    fn carry(&mut self, request: &mut R) {
        let Some(sampled) = &mut request.span().0 else { return };
        let queued = self.clock.now().saturating_sub(sampled.began);
        let queued = i64::try_from(queued.as_micros()).unwrap_or(i64::MAX);
        sampled.span.set_attribute(KeyValue::new("busload.queue_us", queued));
        sampled.span.add_link(self.span.span_context().clone(), Vec::new());
        // The SDK bounds the links of a span (OTEL_SPAN_LINK_COUNT_LIMIT) and counts the others.
        self.span.add_link(sampled.span.span_context().clone(), Vec::new());
    }

    fn end(mut self: Box<Self>, end: BatchEnd) {
        let (name, is_error) = match end {
            BatchEnd::Served | BatchEnd::Unsettled => ("served", false),
            BatchEnd::Failed => ("failed", true),
            BatchEnd::Overloaded => ("overloaded", true),
        };
        finish(&mut self.span, name, is_error);
    }
}

impl CallSpan {
    /// Ends the span. One that is dropped instead says nothing about the outcome.
    pub fn end<T, E>(mut self, result: &Result<T, E>) {
        if let Some(span) = &mut self.0 {
            let (name, is_error) = if result.is_ok() { ("ok", false) } else { ("error", true) };
            finish(span, name, is_error);
        }
    }
}

fn finish(span: &mut Span, outcome: &'static str, is_error: bool) {
    span.set_attribute(KeyValue::new("busload.outcome", outcome));
    if is_error {
        // Without the text of the error, which may show what a client sent.
        span.set_status(Status::error(outcome));
    }
    span.end();
}

/// Returns the command that an operation is, or a part of.
fn command(operation: Operation) -> &'static str {
    match operation {
        Operation::Get => "GET",
        Operation::Exists => "EXISTS",
        Operation::Strlen => "STRLEN",
        Operation::Type => "TYPE",
        Operation::HashGet => "HGET",
        Operation::HashGetMany => "HMGET",
        Operation::HashGetAll => "HGETALL",
        Operation::HashExists => "HEXISTS",
        Operation::HashKeys => "HKEYS",
        Operation::HashLen => "HLEN",
        Operation::Set => "SET",
        Operation::Delete => "DEL",
        Operation::HashSet => "HSET",
        Operation::HashDelete => "HDEL",
    }
}

/// Headers of a gRPC call.
struct Headers<'a>(&'a MetadataMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// Takes a share of requests, which one of them cannot be foreseen.
#[derive(Debug)]
struct Sampler {
    per_million: u64,
    state: AtomicU64,
}

impl Sampler {
    fn new(per_million: u32) -> Self {
        let seed = RandomState::new().hash_one(0_u64);
        Self { per_million: per_million.into(), state: AtomicU64::new(seed) }
    }

    /// Decides about one request: SplitMix64 over a counter.
    #[inline]
    fn takes(&self) -> bool {
        let mut z = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % MILLION < self.per_million
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampler_takes_its_share() {
        let taken = |per_million| {
            let sampler = Sampler::new(per_million);
            (0..100_000).filter(|_| sampler.takes()).count()
        };
        assert_eq!((taken(0), taken(1_000_000)), (0, 100_000));
        // 1 % of 100,000 is 1000, and eight standard deviations are 252.
        assert!((748..=1252).contains(&taken(10_000)));
    }
}
