//! The adapter that makes a Dolt store a source of the pipeline.
//!
//! ```text
//!  submit --> ready? ---yes---> answered in this turn, on the pipeline's thread
//!                |no
//!                v
//!          request queue --flush--> one batch of the turn's requests --> FinishedAnswers --> poll
//! ```
//!
//! The pipeline's thread itself reads, verifies and answers a chunk that is on local disk and in
//! the page cache: handing it to another thread would cost more than the read. All other requests
//! of a turn go to the runtime of chunk stores in one batch, so that nearby chunks share reads of
//! the object store.
//!
//! **Overload.** The request queue is bounded (`queue_requests`, which counts requests until they
//! are answered); more requests are refused at once. **Cancellation.** A batch is dropped when
//! nobody waits for it any more.

mod service;

use std::{sync::Arc, time::Duration};

use busload_batch::Refusal;
use busload_dolt::{Attempt, ChunkAddress, Form, Store, StoreStats, StoreStatus, UsageStats};
use busload_objects::RemoteStats;
use busload_pipeline::{
    source::{
        Full, Operation, Source, SourceEvent, SourceInfo, SourceRequest, SourceValue, Ticket,
        Unsupported,
    },
    tx::Signals,
};

use super::{
    finished::{FinishedAnswers, NotifyTask},
    requests::{OpenRequests, source_info},
};
use crate::{
    config::{CHUNKS, ChunksSettings, Contents, Prices},
    savings::Savings,
    traces::{Outcome, TableTracer},
};
pub use service::{ChunkCommand, ChunkQuery, ChunkQueue, ChunkWaiter, start_queue};
use service::{Fact, Finding};

/// Contents that the pipeline's thread answers in one turn, with [`CHUNK_COST_BYTES`] added for
/// each chunk. Further requests become a batch even if their chunks are in the page cache. Decoding
/// and verifying this much takes about a millisecond, during which memory tables wait.
const TURN_BYTES_MAX: usize = 1 << 20;
/// Cost of a lookup, as the number of content bytes whose decoding takes as long.
const CHUNK_COST_BYTES: usize = 1024;
/// Bytes of an invalid key that an error shows.
const SHOWN_BYTES_MAX: usize = 64;

/// A chunk store as a source of the pipeline.
#[derive(Debug)]
pub struct ChunksSource {
    store: Store,
    queue: ChunkQueue,
    form: Form,
    finished: Arc<FinishedAnswers>,
    _notify_task: NotifyTask,
    /// Signals that tell whether the pipeline is stopping.
    signals: Arc<Signals>,
    tracer: TableTracer,
    /// Set once the store has been told to close.
    is_closing: bool,
    /// Answers that were given at once.
    ready: Vec<SourceEvent>,
    turn: TurnBudget,
    requests: OpenRequests,
    timeout: Duration,
    requests_max: usize,
}

/// Returns the form in which a table serves its chunks.
pub fn form_of(settings: &ChunksSettings) -> Form {
    match settings.contents {
        Contents::Decoded => Form::Contents,
        Contents::Stored => Form::Record,
    }
}

impl ChunksSource {
    /// Creates the adapter of a started store, whose later answers arrive through `finished`.
    pub fn new(
        settings: &ChunksSettings,
        store: Store,
        queue: ChunkQueue,
        (finished, notify_task): (Arc<FinishedAnswers>, NotifyTask),
        signals: Arc<Signals>,
        tracer: TableTracer,
    ) -> Self {
        Self {
            _notify_task: notify_task,
            store,
            queue,
            form: form_of(settings),
            finished,
            signals,
            tracer,
            is_closing: false,
            ready: Vec::new(),
            turn: TurnBudget::default(),
            requests: OpenRequests::default(),
            timeout: settings.timeout,
            requests_max: settings.queue_requests,
        }
    }
}

/// Bytes that may still be answered on the pipeline's thread in this turn.
#[derive(Debug)]
pub struct TurnBudget(usize);

impl Default for TurnBudget {
    fn default() -> Self {
        Self(TURN_BYTES_MAX)
    }
}

impl TurnBudget {
    /// Returns the answer if the chunk can be read without waiting and the turn's budget allows it.
    /// With a full queue the read may exceed the budget: that is better than to refuse the request.
    pub fn attempt(
        &mut self,
        store: &Store,
        form: Form,
        (command, query): (ChunkCommand, &ChunkQuery),
        queue: QueueSpace,
    ) -> Attempt<SourceValue> {
        if self.0 == 0 && queue == QueueSpace::Left {
            return Attempt::Wait;
        }
        let attempt = match query.fact {
            Fact::Bytes | Fact::Length => match store.try_get(&query.address, form) {
                Attempt::Ready(found) => {
                    Attempt::Ready(found.map(|chunk| command.reply(chunk.map(Finding::Chunk))))
                }
                Attempt::Wait => Attempt::Wait,
            },
            Fact::Existence => match store.try_has(&query.address) {
                Attempt::Ready(found) => Attempt::Ready(
                    found.map(|exists| command.reply(exists.then_some(Finding::Exists))),
                ),
                Attempt::Wait => Attempt::Wait,
            },
        };
        let bytes = match &attempt {
            Attempt::Ready(Ok(SourceValue::Bulk(bytes))) => bytes.len(),
            Attempt::Ready(Ok(SourceValue::Integer(length))) if query.fact != Fact::Existence => {
                usize::try_from(*length).unwrap_or_default()
            }
            _ => 0,
        };
        self.0 = self.0.saturating_sub(bytes + CHUNK_COST_BYTES);
        attempt
    }
}

/// Space for requests that are not answered at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSpace {
    Left,
    Full,
}

impl QueueSpace {
    /// Space of a queue of `max` in which `waiting` wait.
    pub fn of(waiting: usize, max: usize) -> Self {
        if waiting < max { Self::Left } else { Self::Full }
    }
}

/// Returns the command of an operation that tables of this kind support.
pub fn command_of(operation: Operation) -> ChunkCommand {
    match operation {
        Operation::Exists => ChunkCommand::Exists,
        Operation::Type => ChunkCommand::Type,
        Operation::Strlen => ChunkCommand::Strlen,
        // `supports` refuses every other operation.
        _ => ChunkCommand::Get,
    }
}

/// Returns whether tables of this kind support an operation.
pub fn supports(operation: Operation) -> Result<(), Unsupported> {
    match operation {
        Operation::Get | Operation::Exists | Operation::Strlen | Operation::Type => Ok(()),
        _ => Err(Unsupported::Kind),
    }
}

impl Source for ChunksSource {
    fn submit(&mut self, request: SourceRequest<'_>) -> Result<(), Full> {
        let ticket = request.ticket;
        let command = command_of(request.operation);
        let outcome = match ChunkAddress::from_key(request.key) {
            Err(error) => Err(not_an_address(request.key, &error)),
            Ok(address) => {
                let query = ChunkQuery { fact: command.fact(self.form), address };
                let space = QueueSpace::of(self.queue.waiting(), self.requests_max);
                match self.turn.attempt(&self.store, self.form, (command, &query), space) {
                    Attempt::Ready(outcome) => outcome.map_err(|error| error.to_string()),
                    Attempt::Wait => {
                        let finished = Arc::clone(&self.finished);
                        let span = self.tracer.sample(request.operation);
                        let usage = Arc::clone(self.store.usage());
                        let waiter = ChunkWaiter { ticket, command, finished, span, usage };
                        match self.queue.submit_load(query, waiter, None) {
                            Ok(id) => {
                                self.requests.insert(ticket, id);
                                return Ok(());
                            }
                            Err(refused) => {
                                refused.waiter.span.end(Outcome::Refused);
                                match refused.reason {
                                    Refusal::Full { .. } => return Err(Full),
                                    Refusal::Closed => Err(busload_dolt::Error::Closed.to_string()),
                                    reason @ Refusal::TooLarge { .. } => Err(reason.to_string()),
                                }
                            }
                        }
                    }
                }
            }
        };
        self.ready.push(self.finished.event(ticket, outcome));
        Ok(())
    }

    fn flush(&mut self) {
        self.turn = TurnBudget::default();
        self.queue.flush();
    }

    fn cancel(&mut self, ticket: Ticket) {
        if let Some(id) = self.requests.take(ticket) {
            self.queue.cancel(id);
        }
    }

    fn poll(&mut self, stream: &mut Vec<SourceEvent>) {
        if !self.is_closing && self.signals.stopping() {
            // The store answers waiting requests with errors while the pipeline still runs.
            self.is_closing = true;
            self.store.begin_close();
        }
        stream.append(&mut self.ready);
        self.finished.take(stream);
    }

    fn kind(&self) -> &'static str {
        CHUNKS
    }

    fn supports(&self, operation: Operation) -> Result<(), Unsupported> {
        supports(operation)
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn info(&self) -> SourceInfo {
        info(&self.store, &self.queue)
    }
}

pub fn not_an_address(key: &[u8], error: &impl std::fmt::Display) -> String {
    let shown = &key[..key.len().min(SHOWN_BYTES_MAX)];
    format!("`{}` is no address of a chunk; {error}", shown.escape_ascii())
}

/// Returns the state of a store as one word.
pub fn state_of(state: &StoreStatus) -> &'static str {
    match state {
        StoreStatus::Opening => "opening",
        StoreStatus::Open => "open",
        StoreStatus::Failed(_) => "failed",
    }
}

/// Builds the fields of INFO about what was saved. They have no prices, so no money.
pub fn saved_fields(usage: &UsageStats, store: &RemoteStats) -> [(&'static str, String); 4] {
    let savings = Savings::new(usage, store, Prices::NONE);
    [
        ("direct_requests", savings.direct_requests.to_string()),
        ("direct_bytes", savings.direct_bytes.to_string()),
        ("saved_requests", savings.requests().to_string()),
        ("saved_bytes", savings.bytes().to_string()),
    ]
}

/// Builds the fields of INFO.
fn info(store: &Store, queue: &ChunkQueue) -> SourceInfo {
    let (stats, state) = (store.stats(), store.status());
    let StoreStats { cache, store: remote, .. } = &stats;
    let root = stats.root.map_or_else(|| "none".to_owned(), |root| root.to_string());
    let mut fields = vec![
        ("state", state_of(&state).to_owned()),
        ("root", root),
        ("files", stats.files.to_string()),
        ("chunks", stats.chunks.to_string()),
        ("requests", stats.requests.to_string()),
        ("memory_hits", stats.memory_hits.to_string()),
        ("local", stats.local.to_string()),
        ("remote", stats.remote.to_string()),
        ("peers", stats.peers.to_string()),
        ("absent", stats.absent.to_string()),
        ("errors", stats.errors.to_string()),
        ("corrupt", (stats.corrupt + cache.corrupt).to_string()),
        ("disk_bytes", cache.bytes.to_string()),
        ("disk_bytes_max", cache.bytes_max.to_string()),
        ("disk_bypassed", u8::from(cache.bypassed.is_some()).to_string()),
        ("evicted", cache.evicted.to_string()),
        ("store_requests", remote.requests.to_string()),
        ("store_bytes", remote.bytes.to_string()),
        ("store_retries", remote.retries.to_string()),
    ];
    fields.extend(saved_fields(&stats.usage, remote));
    if let StoreStatus::Failed(error) = &state {
        fields.push(("last_error", error.to_string()));
    } else if let Some(error) = &remote.last_error {
        fields.push(("last_error", error.clone()));
    }
    source_info(fields, &queue.stats(), queue.waiting())
}
