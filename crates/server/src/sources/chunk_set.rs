//! The adapter that makes the stores of a pattern one source of the pipeline.
//!
//! ```text
//!  submit org/db:ADDRESS --> store org/db --> ready? ---yes---> answered in this turn
//!                                               |no
//!                                               v
//!              request queue of this store --flush--> one batch of the turn --> FinishedAnswers
//! ```
//!
//! A store has a request queue as long as requests for it wait, so that the chunks of one store
//! share reads; it stays open as long. **Overload.** `queue_requests` bounds the requests that wait
//! for all stores together; more are refused at once. A name of which there is no store is answered
//! at once while the set remembers it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use busload_batch::{QueueStats, Refusal, RequestId};
use busload_dolt::{Attempt, ChunkAddress, Error, Form, OpenStore, SetStats};
use busload_pipeline::{
    source::{
        Full, Operation, Source, SourceEvent, SourceInfo, SourceRequest, SourceValue, Ticket,
        Unsupported,
    },
    tx::Signals,
};
use tokio::runtime::Handle;

use super::{
    chunks::{
        ChunkCommand, ChunkQuery, ChunkQueue, ChunkWaiter, QueueSpace, TurnBudget, command_of,
        form_of, not_an_address, saved_fields, start_queue, supports,
    },
    finished::{FinishedAnswers, NotifyTask},
    requests::source_info,
};
use crate::{
    chunk_sets::ChunkSet,
    config::CHUNKS,
    traces::{Outcome, TableTracer},
};

/// Stores of a pattern as a source of the pipeline.
#[derive(Debug)]
pub struct ChunkSetSource {
    set: Arc<ChunkSet>,
    form: Form,
    runtime: Handle,
    finished: Arc<FinishedAnswers>,
    _notify_task: NotifyTask,
    /// Signals that tell whether the pipeline is stopping.
    signals: Arc<Signals>,
    tracer: TableTracer,
    /// Set once the stores have begun to close.
    is_closing: bool,
    /// Answers that were given at once.
    ready: Vec<SourceEvent>,
    turn: TurnBudget,
    /// Stores for which requests wait, by their numbers.
    queues: HashMap<usize, StoreQueue>,
    /// Requests that wait, by ticket.
    waiting: HashMap<Ticket, (usize, RequestId)>,
    /// Stores that got requests in this turn.
    dispatched: Vec<usize>,
}

/// Request queue of a store, which stays open meanwhile.
#[derive(Debug)]
struct StoreQueue {
    _open: Arc<OpenStore>,
    queue: ChunkQueue,
    waiting: usize,
}

impl ChunkSetSource {
    /// Creates the adapter, whose later answers arrive through `finished`.
    pub fn new(
        set: Arc<ChunkSet>,
        runtime: Handle,
        (finished, notify_task): (Arc<FinishedAnswers>, NotifyTask),
        signals: Arc<Signals>,
        tracer: TableTracer,
    ) -> Self {
        Self {
            form: form_of(&set.settings.chunks),
            set,
            runtime,
            finished,
            _notify_task: notify_task,
            signals,
            tracer,
            is_closing: false,
            ready: Vec::new(),
            turn: TurnBudget::default(),
            queues: HashMap::new(),
            waiting: HashMap::new(),
            dispatched: Vec::new(),
        }
    }

    /// Answers a request at once, or puts it into the queue of its store; none: it waits.
    fn answer(
        &mut self,
        request: &SourceRequest<'_>,
    ) -> Result<Option<Result<SourceValue, String>>, Full> {
        let (name, key) = parts(request.key);
        let command = command_of(request.operation);
        let address = match ChunkAddress::from_key(key) {
            Ok(address) => address,
            Err(error) => return Ok(Some(Err(not_an_address(key, &error)))),
        };
        let open = match self.set.set.get(name) {
            Ok(open) => open,
            Err(error) => return Ok(Some(Err(error.to_string()))),
        };
        let query = ChunkQuery { fact: command.fact(self.form), address };
        let max = self.set.settings.chunks.queue_requests;
        let space = QueueSpace::of(self.waiting.len(), max);
        match self.turn.attempt(&open, self.form, (command, &query), space) {
            Attempt::Ready(outcome) => Ok(Some(outcome.map_err(|error| error.to_string()))),
            Attempt::Wait if space == QueueSpace::Full => Err(Full),
            Attempt::Wait => self.enqueue(request, open, (command, query)),
        }
    }

    fn enqueue(
        &mut self,
        request: &SourceRequest<'_>,
        open: Arc<OpenStore>,
        (command, query): (ChunkCommand, ChunkQuery),
    ) -> Result<Option<Result<SourceValue, String>>, Full> {
        let ticket = request.ticket;
        let number = open.number();
        let span = self.tracer.sample(request.operation);
        let (finished, usage) = (Arc::clone(&self.finished), Arc::clone(open.usage()));
        let waiter = ChunkWaiter { ticket, command, finished, span, usage };
        let store_queue = match self.queue_of(open) {
            Ok(queue) => queue,
            Err(error) => return Ok(Some(Err(error))),
        };
        match store_queue.queue.submit_load(query, waiter, None) {
            Ok(id) => {
                store_queue.waiting += 1;
                self.waiting.insert(ticket, (number, id));
                self.dispatched.push(number);
                Ok(None)
            }
            Err(refused) => {
                refused.waiter.span.end(Outcome::Refused);
                if store_queue.waiting == 0 {
                    self.queues.remove(&number);
                }
                match refused.reason {
                    Refusal::Full { .. } => Err(Full),
                    Refusal::Closed => Ok(Some(Err(Error::Closed.to_string()))),
                    reason @ Refusal::TooLarge { .. } => Ok(Some(Err(reason.to_string()))),
                }
            }
        }
    }

    fn queue_of(&mut self, open: Arc<OpenStore>) -> Result<&mut StoreQueue, String> {
        let number = open.number();
        if !self.queues.contains_key(&number) {
            let _entered = self.runtime.enter();
            let chunks = &self.set.settings.chunks;
            let store = (*open).clone();
            let queue = start_queue(store, self.form, chunks.timeout, chunks.queue_requests);
            let queue = queue.map_err(|error| error.to_string())?;
            self.queues.insert(number, StoreQueue { _open: open, queue, waiting: 0 });
        }
        Ok(self.queues.get_mut(&number).expect("it is there now"))
    }

    /// Forgets a request that has been answered, and the queue of its store if it was the last.
    fn end(&mut self, ticket: Ticket) {
        let Some((number, _)) = self.waiting.remove(&ticket) else { return };
        if let Some(store_queue) = self.queues.get_mut(&number) {
            store_queue.waiting -= 1;
            if store_queue.waiting == 0 {
                self.queues.remove(&number);
            }
        }
    }
}

impl Source for ChunkSetSource {
    fn submit(&mut self, request: SourceRequest<'_>) -> Result<(), Full> {
        if let Some(outcome) = self.answer(&request)? {
            self.ready.push(self.finished.event(request.ticket, outcome));
        }
        Ok(())
    }

    fn flush(&mut self) {
        self.turn = TurnBudget::default();
        for number in self.dispatched.drain(..) {
            if let Some(store_queue) = self.queues.get(&number) {
                store_queue.queue.flush();
            }
        }
    }

    fn cancel(&mut self, ticket: Ticket) {
        if let Some((number, id)) = self.waiting.get(&ticket)
            && let Some(store_queue) = self.queues.get(number)
        {
            store_queue.queue.cancel(*id);
            // A request that is cancelled before it is dispatched is never answered.
            self.end(ticket);
        }
    }

    fn poll(&mut self, stream: &mut Vec<SourceEvent>) {
        if !self.is_closing && self.signals.stopping() {
            // The stores answer waiting requests with errors while the pipeline still runs.
            self.is_closing = true;
            self.set.set.begin_close();
        }
        stream.append(&mut self.ready);
        let before = stream.len();
        self.finished.take(stream);
        for event in &stream[before..] {
            if let SourceEvent::Answer { ticket, .. } = event {
                self.end(*ticket);
            }
        }
    }

    fn kind(&self) -> &'static str {
        CHUNKS
    }

    fn supports(&self, operation: Operation) -> Result<(), Unsupported> {
        supports(operation)
    }

    fn timeout(&self) -> Duration {
        self.set.settings.chunks.timeout
    }

    fn info(&self) -> SourceInfo {
        let stats = self.set.set.stats();
        let savings = saved_fields(&stats.usage, &stats.store);
        let SetStats { open, opening, opened, closed, absent, refused, index_bytes, store, .. } =
            stats;
        let cache = self.set.set.cache().stats();
        let mut fields = vec![
            ("open", open.to_string()),
            ("opening", opening.to_string()),
            ("opened", opened.to_string()),
            ("closed", closed.to_string()),
            ("absent", absent.to_string()),
            ("refused_stores", refused.to_string()),
            ("index_bytes", index_bytes.to_string()),
            ("disk_bytes", cache.bytes.to_string()),
            ("disk_bytes_max", cache.bytes_max.to_string()),
            ("store_requests", store.requests.to_string()),
            ("store_bytes", store.bytes.to_string()),
        ];
        fields.extend(savings);
        source_info(fields, &QueueStats::default(), self.waiting.len())
    }
}

/// Splits a key into the name of its store and the rest. The pipeline sends only keys whose names
/// match the pattern, so they are ASCII.
fn parts(key: &[u8]) -> (&str, &[u8]) {
    let colon = key.iter().position(|&byte| byte == b':').unwrap_or(key.len());
    let name = std::str::from_utf8(&key[..colon]).unwrap_or_default();
    (name, key.get(colon + 1..).unwrap_or_default())
}
