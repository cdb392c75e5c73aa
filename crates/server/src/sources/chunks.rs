//! The adapter that makes a Dolt store a source of the pipeline.
//!
//! ```text
//!  submit --> at hand? --yes--> answered in this turn, on the pipeline's thread
//!                |no
//!                v
//!  flush ---> a batch of the turn's requests --> runtime `chunks` --> Finished --> poll
//! ```
//!
//! The pipeline's thread itself reads, verifies and answers a chunk that is on local disk and in
//! the page cache: handing it to another thread would cost more than the read. All other requests
//! of a turn go to the runtime together, one batch per kind, so that nearby chunks share reads of
//! the object store.
//!
//! **Overload.** The request queue is bounded (`queue_requests`); more requests are refused at
//! once. **Cancellation.** A batch is aborted when nobody waits for it any more. Bytes that it
//! requested from the object store still reach the disk cache.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use busload_dolt::{
    Attempt, Chunk, ChunkAddress, Error, Form, Request, Store, StoreStats, StoreStatus,
};
use busload_pipeline::{
    source::{
        Full, Operation, Source, SourceEvent, SourceInfo, SourceRequest, SourceValue, Ticket,
        Unsupported,
    },
    stats::BatchCounter,
    tx::Signals,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{runtime::Handle, task::AbortHandle};

use super::{answer::count, finished::Finished};
use crate::{
    config::{CHUNKS, ChunksSettings, Contents},
    shown::shown_error,
};

/// The store's deadline is this much earlier than the pipeline's, because its error says more.
const DEADLINE_MARGIN_MAX: Duration = Duration::from_millis(20);
/// Contents that the pipeline's thread answers in one turn, with [`CHUNK_COST_BYTES`] added for
/// each chunk. Further requests become a batch even if their chunks are at hand. Decoding and
/// verifying this much takes about a millisecond, during which memory tables wait.
const TURN_BYTES_MAX: usize = 1 << 20;
/// Cost of a lookup, as the number of content bytes whose decoding takes as long.
const CHUNK_COST_BYTES: usize = 1024;
/// Bytes of an invalid key that an error shows.
const SHOWN_BYTES_MAX: usize = 64;

/// Counters of the requests of RESP clients that wait for a store, and of their batches. The
/// metrics share them.
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// Requests that wait at present.
    pub waiting: AtomicUsize,
    /// Requests refused because too many waited.
    pub refused: AtomicU64,
    /// Batches, and requests in them.
    pub batches: BatchCounter,
}

/// A chunk store as a source of the pipeline.
#[derive(Debug)]
pub struct ChunksSource {
    store: Store,
    shared: Arc<Shared>,
    signals: Arc<Signals>,
    /// Set once the store has been told to close.
    is_closing: bool,
    runtime: Handle,
    /// Answers that were given at once.
    ready: Vec<SourceEvent>,
    /// Bytes that may still be answered on this thread in this turn.
    turn_bytes: usize,
    /// Pending requests that are not in a batch yet.
    pending: Vec<PendingRequest>,
    /// Batch in flight of each open ticket, by the ticket's index.
    batches: Vec<Option<(Ticket, Arc<Batch>)>>,
    /// Buffer for completed answers on their way to the stream.
    completed: Vec<SourceEvent>,
    /// Instant at which the pipeline's clock was zero.
    origin: Instant,
    timeout: Duration,
    deadline_margin: Duration,
    waiting_max: usize,
}

/// State that the adapter shares with its batches.
#[derive(Debug)]
struct Shared {
    name: String,
    form: Form,
    finished: Arc<Finished>,
    queue: Arc<QueueCounters>,
}

/// The command, as far as its reply depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Value,
    Length,
    Exists,
    Type,
}

/// A request that has to wait.
#[derive(Debug)]
struct PendingRequest {
    ticket: Ticket,
    asked: Asked,
    address: ChunkAddress,
    deadline: Instant,
}

/// Handle of a batch in flight, which is aborted when the last ticket that waits for it is gone.
#[derive(Debug)]
struct Batch(AbortHandle);

impl Drop for Batch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Share of a batch's requests in the count of waiting requests. Each answer takes one off, and the
/// end of the batch the rest.
#[derive(Debug)]
struct WaitingShare {
    queue: Arc<QueueCounters>,
    count: usize,
}

impl WaitingShare {
    fn give_back(&mut self, count: usize) {
        let count = count.min(self.count);
        self.count -= count;
        self.queue.waiting.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Drop for WaitingShare {
    fn drop(&mut self) {
        self.give_back(self.count);
    }
}

/// Everything that an adapter needs to know about its table.
#[derive(Debug)]
pub struct About<'a> {
    pub settings: &'a ChunksSettings,
    /// Counters of the table's waiting requests.
    pub queue: &'a Arc<QueueCounters>,
    /// Signals that tell whether the pipeline is stopping.
    pub signals: &'a Arc<Signals>,
    /// Instant at which the pipeline's clock was zero.
    pub origin: Instant,
    /// Runtime that batches run on.
    pub runtime: Handle,
}

impl ChunksSource {
    /// Creates the adapter of a started store, whose later answers arrive through `finished`.
    pub fn new(about: About<'_>, store: Store, finished: Arc<Finished>) -> Self {
        let About { settings, queue, signals, origin, runtime } = about;
        let form = match settings.contents {
            Contents::Decoded => Form::Contents,
            Contents::Stored => Form::Record,
        };
        let shared =
            Shared { name: settings.name.clone(), form, finished, queue: Arc::clone(queue) };
        Self {
            store,
            shared: Arc::new(shared),
            signals: Arc::clone(signals),
            is_closing: false,
            runtime,
            ready: Vec::new(),
            turn_bytes: TURN_BYTES_MAX,
            pending: Vec::new(),
            batches: Vec::new(),
            completed: Vec::new(),
            origin,
            timeout: settings.timeout,
            deadline_margin: DEADLINE_MARGIN_MAX.min(settings.timeout / 4),
            waiting_max: settings.queue_requests,
        }
    }

    /// Returns the answer if the chunk is at hand and the turn's budget allows it.
    fn attempt(&mut self, asked: Asked, address: &ChunkAddress) -> Attempt<SourceValue> {
        if self.turn_bytes == 0 {
            return Attempt::Wait;
        }
        let attempt = self.look(asked, address);
        let bytes = match &attempt {
            Attempt::Ready(Ok(SourceValue::Bulk(bytes))) => bytes.len(),
            Attempt::Ready(Ok(SourceValue::Integer(length))) if asked == Asked::Length => {
                usize::try_from(*length).unwrap_or_default()
            }
            _ => 0,
        };
        self.turn_bytes = self.turn_bytes.saturating_sub(bytes + CHUNK_COST_BYTES);
        attempt
    }

    fn look(&self, asked: Asked, address: &ChunkAddress) -> Attempt<SourceValue> {
        match asked {
            Asked::Value | Asked::Length => match self.store.try_get(address, self.shared.form) {
                Attempt::Ready(found) => Attempt::Ready(found.map(|chunk| of_chunk(asked, chunk))),
                Attempt::Wait => Attempt::Wait,
            },
            Asked::Exists | Asked::Type => match self.store.try_has(address) {
                Attempt::Ready(found) => {
                    Attempt::Ready(found.map(|exists| of_existence(asked, exists)))
                }
                Attempt::Wait => Attempt::Wait,
            },
        }
    }

    fn enqueue(&mut self, request: PendingRequest) -> Result<(), Full> {
        let queue = &self.shared.queue;
        // Only this thread increments the counter.
        if self.waiting_max <= queue.waiting.load(Ordering::Relaxed) {
            return Err(Full);
        }
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        self.pending.push(request);
        Ok(())
    }

    /// Dispatches all pending requests of one kind as one batch.
    fn dispatch(&mut self, requests: Vec<PendingRequest>, kind: Kind) {
        let Some(deadline) = requests.iter().map(|request| request.deadline).min() else {
            return;
        };
        let queue = &self.shared.queue;
        queue.batches.record(requests.len());
        let places = WaitingShare { queue: Arc::clone(queue), count: requests.len() };
        let tickets: Vec<Ticket> = requests.iter().map(|request| request.ticket).collect();
        let request = Request { form: self.shared.form, local_only: false, deadline };
        let task = BatchTask {
            store: self.store.clone(),
            shared: Arc::clone(&self.shared),
            requests,
            places,
            request,
        };
        let task = match kind {
            Kind::Chunks => self.runtime.spawn(task.read()),
            Kind::Lengths => self.runtime.spawn(task.measure()),
            Kind::Existence => self.runtime.spawn(task.look()),
        };
        let batch = Arc::new(Batch(task.abort_handle()));
        for ticket in tickets {
            let index = ticket.index();
            if self.batches.len() <= index {
                self.batches.resize_with(index + 1, || None);
            }
            self.batches[index] = Some((ticket, Arc::clone(&batch)));
        }
    }

    /// Releases the ticket's hold on its batch, if it has one.
    fn leave(&mut self, ticket: Ticket) -> bool {
        let batch = self.batches.get_mut(ticket.index());
        batch.and_then(|batch| batch.take_if(|(known, _)| *known == ticket)).is_some()
    }
}

/// Kind of a batch: each kind is another call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chunks,
    Lengths,
    Existence,
}

/// State of a batch's task.
#[derive(Debug)]
struct BatchTask {
    store: Store,
    shared: Arc<Shared>,
    requests: Vec<PendingRequest>,
    places: WaitingShare,
    request: Request,
}

impl BatchTask {
    /// Reads the chunks, and answers each request as soon as its chunk is there.
    async fn read(mut self) {
        let mut reads = self.store.get_many(self.addresses(), self.request);
        let mut completed = Vec::new();
        loop {
            let more = reads.next(&mut completed).await;
            for (index, outcome) in completed.drain(..) {
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                let asked = self.requests.get(index).map_or(Asked::Value, |request| request.asked);
                self.answer(index, outcome.map(|chunk| of_chunk(asked, chunk)));
            }
            if !more {
                return;
            }
        }
    }

    /// Finds the lengths, and answers each request as soon as its length is known.
    async fn measure(mut self) {
        let (store, request) = (self.store.clone(), self.request);
        let measured = self.addresses().into_iter().enumerate();
        let mut lengths: FuturesUnordered<_> = measured
            .map(|(index, address)| {
                let store = store.clone();
                async move { (index, store.length(address, request).await) }
            })
            .collect();
        while let Some((index, outcome)) = lengths.next().await {
            let value = outcome.map(|length| match length {
                Some(length) => SourceValue::Integer(i64::try_from(length).unwrap_or(i64::MAX)),
                None => SourceValue::Integer(0),
            });
            self.answer(index, value);
        }
    }

    /// Looks up all chunks and answers all requests together: one check of the manifest serves all.
    async fn look(mut self) {
        let found = self.store.has_many(&self.addresses(), self.request).await;
        for index in 0..self.requests.len() {
            let asked = self.requests[index].asked;
            let outcome = match &found {
                Ok(found) => Ok(of_existence(asked, found.get(index).copied().unwrap_or(false))),
                Err(error) => Err(error.clone()),
            };
            self.answer(index, outcome);
        }
    }

    fn addresses(&self) -> Vec<ChunkAddress> {
        self.requests.iter().map(|request| request.address).collect()
    }

    fn answer(&mut self, index: usize, outcome: Result<SourceValue, Error>) {
        let Some(request) = self.requests.get(index) else { return };
        self.places.give_back(1);
        let outcome = outcome.map_err(|error| self.shared.error(&error.to_string()));
        self.shared.finished.push(request.ticket, outcome);
    }
}

impl Shared {
    /// Formats an error for clients.
    fn error(&self, text: &str) -> String {
        format!("ERR table {}: {}", self.name, shown_error(text))
    }
}

fn of_chunk(asked: Asked, chunk: Option<Chunk>) -> SourceValue {
    let bytes = chunk.map(bytes_of);
    match (asked, bytes) {
        (Asked::Length, bytes) => SourceValue::Integer(count(bytes.map_or(0, |bytes| bytes.len()))),
        (_, Some(bytes)) => SourceValue::Bulk(bytes),
        (_, None) => SourceValue::Nil,
    }
}

/// Returns the bytes of a chunk. Neither of the forms that this module requests has a dictionary.
fn bytes_of(chunk: Chunk) -> Bytes {
    match chunk {
        Chunk::Contents(bytes) | Chunk::Snappy(bytes) | Chunk::Zstd(bytes, _) => bytes,
    }
}

fn of_existence(asked: Asked, exists: bool) -> SourceValue {
    match asked {
        Asked::Type => SourceValue::Status(if exists { "string" } else { "none" }),
        _ => SourceValue::Integer(i64::from(exists)),
    }
}

fn no_address(key: &[u8], error: &impl std::fmt::Display) -> String {
    let shown = &key[..key.len().min(SHOWN_BYTES_MAX)];
    format!("`{}` is no address of a chunk; {error}", shown.escape_ascii())
}

impl Source for ChunksSource {
    fn submit(&mut self, request: SourceRequest<'_>) -> Result<(), Full> {
        let ticket = request.ticket;
        let asked = match request.operation {
            Operation::Exists => Asked::Exists,
            Operation::Type => Asked::Type,
            Operation::Strlen => Asked::Length,
            // `supports` refuses every other operation.
            _ => Asked::Value,
        };
        let outcome = match ChunkAddress::from_key(request.key) {
            Err(error) => Err(no_address(request.key, &error)),
            Ok(address) => match self.attempt(asked, &address) {
                Attempt::Ready(outcome) => outcome.map_err(|error| error.to_string()),
                Attempt::Wait => {
                    let deadline = self.origin + request.deadline;
                    let deadline = deadline.checked_sub(self.deadline_margin).unwrap_or(deadline);
                    let Err(full) =
                        self.enqueue(PendingRequest { ticket, asked, address, deadline })
                    else {
                        return Ok(());
                    };
                    // The queue is full: exceeding the turn's budget beats refusing.
                    match self.look(asked, &address) {
                        Attempt::Ready(outcome) => outcome.map_err(|error| error.to_string()),
                        Attempt::Wait => {
                            self.shared.queue.refused.fetch_add(1, Ordering::Relaxed);
                            return Err(full);
                        }
                    }
                }
            },
        };
        let outcome = outcome.map_err(|error| self.shared.error(&error));
        self.ready.push(SourceEvent::Answer { ticket, outcome, cacheable_for: None });
        Ok(())
    }

    fn flush(&mut self) {
        self.turn_bytes = TURN_BYTES_MAX;
        if self.pending.is_empty() {
            return;
        }
        let is_decoded = self.shared.form == Form::Contents;
        let (mut chunks, mut lengths, mut existence) = (Vec::new(), Vec::new(), Vec::new());
        for request in self.pending.drain(..) {
            match request.asked {
                // Only the record itself tells its length.
                Asked::Length if is_decoded => lengths.push(request),
                Asked::Value | Asked::Length => chunks.push(request),
                Asked::Exists | Asked::Type => existence.push(request),
            }
        }
        self.dispatch(chunks, Kind::Chunks);
        self.dispatch(lengths, Kind::Lengths);
        self.dispatch(existence, Kind::Existence);
    }

    fn cancel(&mut self, ticket: Ticket) {
        if self.leave(ticket) {
            return;
        }
        // Rare: the request is not in a batch yet, or was answered at once.
        if let Some(index) = self.pending.iter().position(|request| request.ticket == ticket) {
            self.pending.swap_remove(index);
            self.shared.queue.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn poll(&mut self, stream: &mut Vec<SourceEvent>) {
        if !self.is_closing && self.signals.stopping() {
            // The store answers waiting requests with errors while the pipeline still runs.
            self.is_closing = true;
            self.store.begin_close();
        }
        stream.append(&mut self.ready);
        let mut completed = std::mem::take(&mut self.completed);
        self.shared.finished.take(&mut completed);
        for event in &completed {
            if let SourceEvent::Answer { ticket, .. } = event {
                self.leave(*ticket);
            }
        }
        stream.append(&mut completed);
        self.completed = completed;
    }

    fn kind(&self) -> &'static str {
        CHUNKS
    }

    fn supports(&self, operation: Operation) -> Result<(), Unsupported> {
        match operation {
            Operation::Get | Operation::Exists | Operation::Strlen | Operation::Type => Ok(()),
            _ => Err(Unsupported::Kind),
        }
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn info(&self) -> SourceInfo {
        info(&self.store, &self.shared.queue)
    }
}

/// Returns the state of a store as one word.
pub fn state_of(state: &StoreStatus) -> &'static str {
    match state {
        StoreStatus::Opening => "opening",
        StoreStatus::Open => "open",
        StoreStatus::Failed(_) => "failed",
    }
}

/// Builds the fields of INFO.
fn info(store: &Store, queue: &QueueCounters) -> SourceInfo {
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
        ("absent", stats.absent.to_string()),
        ("errors", stats.errors.to_string()),
        ("corrupt", (stats.corrupt + cache.corrupt).to_string()),
        ("waiting", queue.waiting.load(Ordering::Relaxed).to_string()),
        ("refused", queue.refused.load(Ordering::Relaxed).to_string()),
        ("disk_bytes", cache.bytes.to_string()),
        ("disk_bytes_max", cache.bytes_max.to_string()),
        ("disk_bypassed", u8::from(cache.bypassed.is_some()).to_string()),
        ("evicted", cache.evicted.to_string()),
        ("store_requests", remote.requests.to_string()),
        ("store_bytes", remote.bytes.to_string()),
        ("store_retries", remote.retries.to_string()),
    ];
    if let StoreStatus::Failed(error) = &state {
        fields.push(("last_error", error.to_string()));
    } else if let Some(error) = &remote.last_error {
        fields.push(("last_error", error.clone()));
    }
    SourceInfo { batches: vec![("read", queue.batches.read())], fields }
}
