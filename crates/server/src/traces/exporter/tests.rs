//! The queue of spans, with a collector that the test holds.

use std::sync::mpsc::{Receiver, Sender, channel};

use opentelemetry::{
    Context,
    trace::{SpanBuilder, TracerProvider},
};
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

use super::*;

/// Collector that tells of each request, and answers it when the test says so.
#[derive(Debug)]
struct Held {
    arrived: Mutex<Sender<usize>>,
    answers: Mutex<Receiver<OTelSdkResult>>,
}

impl SpanExporter for Held {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.arrived.lock().unwrap().send(batch.len()).unwrap();
        // The test that has ended waits for nothing.
        self.answers.lock().unwrap().recv().unwrap_or(Ok(()))
    }
}

struct World {
    queue: SpanQueue,
    counters: Arc<SpanCounters>,
    tracer: SdkTracer,
    arrived: Receiver<usize>,
    answer: Sender<OTelSdkResult>,
}

impl World {
    fn start() -> Self {
        let (arrived_sender, arrived) = channel();
        let (answer, answers) = channel();
        let held = Held { arrived: Mutex::new(arrived_sender), answers: Mutex::new(answers) };
        let counters = Arc::default();
        let queue = SpanQueue::start(held, &counters).unwrap();
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::AlwaysOn)
            .with_span_processor(queue.clone())
            .build();
        let tracer = provider.tracer("test");
        Self { queue, counters, tracer, arrived, answer }
    }

    fn spans(&self, count: usize) {
        for _ in 0..count {
            drop(SpanBuilder::from_name("x").start_with_context(&self.tracer, &Context::new()));
        }
    }

    fn counted(&self) -> (u64, u64) {
        (self.counters.sent.load(Relaxed), self.counters.dropped.load(Relaxed))
    }
}

#[test]
fn a_full_queue_drops_and_counts_and_a_shutdown_sends_the_rest() {
    let world = World::start();
    world.spans(SPANS_PER_EXPORT_MAX);
    assert_eq!(world.arrived.recv().unwrap(), SPANS_PER_EXPORT_MAX);
    // The collector does not answer: the queue fills, and then spans are dropped.
    world.spans(SPANS_QUEUED_MAX + 3);
    assert_eq!(world.counted(), (0, 3));
    let requests = 1 + SPANS_QUEUED_MAX / SPANS_PER_EXPORT_MAX;
    for _ in 0..requests {
        world.answer.send(Ok(())).unwrap();
    }
    world.queue.stop();
    assert_eq!(world.counted(), ((SPANS_PER_EXPORT_MAX + SPANS_QUEUED_MAX) as u64, 3));
    // Nobody takes what comes later.
    world.spans(2);
    assert_eq!(world.counted().1, 5);
}

#[test]
fn spans_that_the_collector_refuses_are_counted_as_dropped() {
    let world = World::start();
    world.spans(SPANS_PER_EXPORT_MAX);
    let error = opentelemetry_sdk::error::OTelSdkError::InternalFailure("503".to_owned());
    world.answer.send(Err(error)).unwrap();
    world.queue.stop();
    assert_eq!(world.counted(), (0, SPANS_PER_EXPORT_MAX as u64));
}

#[test]
fn a_shutdown_does_not_wait_for_a_collector_that_does_not_answer() {
    let world = World::start();
    world.spans(1);
    // Returns, though `answer` is kept and says nothing.
    world.queue.stop();
    assert_eq!(world.arrived.recv().unwrap(), 1);
    assert_eq!(world.counted(), (0, 0));
    drop(world.answer);
}
