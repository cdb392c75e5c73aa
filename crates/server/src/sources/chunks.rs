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
//! **Overload.** The request queue is bounded (`line_requests`); more requests are refused at once.
//! **Cancellation.** A batch is aborted when nobody waits for it any more. Bytes that it requested
//! from the object store still reach the disk cache.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use busload_dolt::{Attempt, Chunk, ChunkAddress, Error, Form, Request, State, Store, StoreStats};
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
pub struct Line {
    /// Requests that wait at present.
    pub waiting: AtomicUsize,
    /// Requests refused because too many waited.
    pub refused: AtomicU64,
    /// Batches, and requests in them.
    pub trips: BatchCounter,
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
    boarding: Vec<Passenger>,
    /// Batch in flight of each open ticket, by the ticket's index.
    trips: Vec<Option<(Ticket, Arc<Trip>)>>,
    /// Buffer for completed answers on their way to the stream.
    landed: Vec<SourceEvent>,
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
    line: Arc<Line>,
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
struct Passenger {
    ticket: Ticket,
    asked: Asked,
    address: ChunkAddress,
    deadline: Instant,
}

/// Handle of a batch in flight, which is aborted when the last ticket that waits for it is gone.
#[derive(Debug)]
struct Trip(AbortHandle);

impl Drop for Trip {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Share of a batch's requests in the count of waiting requests. Each answer takes one off, and the
/// end of the batch the rest.
#[derive(Debug)]
struct Places {
    line: Arc<Line>,
    count: usize,
}

impl Places {
    fn give_back(&mut self, count: usize) {
        let count = count.min(self.count);
        self.count -= count;
        self.line.waiting.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.give_back(self.count);
    }
}

/// Everything that an adapter needs to know about its table.
#[derive(Debug)]
pub struct About<'a> {
    pub settings: &'a ChunksSettings,
    /// Counters of the table's waiting requests.
    pub line: &'a Arc<Line>,
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
        let About { settings, line, signals, origin, runtime } = about;
        let form = match settings.contents {
            Contents::Decoded => Form::Contents,
            Contents::Stored => Form::Record,
        };
        let shared = Shared { name: settings.name.clone(), form, finished, line: Arc::clone(line) };
        Self {
            store,
            shared: Arc::new(shared),
            signals: Arc::clone(signals),
            is_closing: false,
            runtime,
            ready: Vec::new(),
            turn_bytes: TURN_BYTES_MAX,
            boarding: Vec::new(),
            trips: Vec::new(),
            landed: Vec::new(),
            origin,
            timeout: settings.timeout,
            deadline_margin: DEADLINE_MARGIN_MAX.min(settings.timeout / 4),
            waiting_max: settings.line_requests,
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

    fn board(&mut self, passenger: Passenger) -> Result<(), Full> {
        let line = &self.shared.line;
        // Only this thread increments the counter.
        if self.waiting_max <= line.waiting.load(Ordering::Relaxed) {
            return Err(Full);
        }
        line.waiting.fetch_add(1, Ordering::Relaxed);
        self.boarding.push(passenger);
        Ok(())
    }

    /// Dispatches all pending requests of one kind as one batch.
    fn depart(&mut self, passengers: Vec<Passenger>, kind: Kind) {
        let Some(deadline) = passengers.iter().map(|passenger| passenger.deadline).min() else {
            return;
        };
        let line = &self.shared.line;
        line.trips.record(passengers.len());
        let places = Places { line: Arc::clone(line), count: passengers.len() };
        let tickets: Vec<Ticket> = passengers.iter().map(|passenger| passenger.ticket).collect();
        let request = Request { form: self.shared.form, local_only: false, deadline };
        let journey = Journey {
            store: self.store.clone(),
            shared: Arc::clone(&self.shared),
            passengers,
            places,
            request,
        };
        let task = match kind {
            Kind::Chunks => self.runtime.spawn(journey.read()),
            Kind::Lengths => self.runtime.spawn(journey.measure()),
            Kind::Existence => self.runtime.spawn(journey.look()),
        };
        let trip = Arc::new(Trip(task.abort_handle()));
        for ticket in tickets {
            let index = ticket.index();
            if self.trips.len() <= index {
                self.trips.resize_with(index + 1, || None);
            }
            self.trips[index] = Some((ticket, Arc::clone(&trip)));
        }
    }

    /// Releases the ticket's hold on its batch, if it has one.
    fn leave(&mut self, ticket: Ticket) -> bool {
        let trip = self.trips.get_mut(ticket.index());
        trip.and_then(|trip| trip.take_if(|(known, _)| *known == ticket)).is_some()
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
struct Journey {
    store: Store,
    shared: Arc<Shared>,
    passengers: Vec<Passenger>,
    places: Places,
    request: Request,
}

impl Journey {
    /// Reads the chunks, and answers each request as soon as its chunk is there.
    async fn read(mut self) {
        let mut reads = self.store.get_many(self.addresses(), self.request);
        let mut landed = Vec::new();
        loop {
            let more = reads.next(&mut landed).await;
            for (index, outcome) in landed.drain(..) {
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                let asked =
                    self.passengers.get(index).map_or(Asked::Value, |passenger| passenger.asked);
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
        for index in 0..self.passengers.len() {
            let asked = self.passengers[index].asked;
            let outcome = match &found {
                Ok(found) => Ok(of_existence(asked, found.get(index).copied().unwrap_or(false))),
                Err(error) => Err(error.clone()),
            };
            self.answer(index, outcome);
        }
    }

    fn addresses(&self) -> Vec<ChunkAddress> {
        self.passengers.iter().map(|passenger| passenger.address).collect()
    }

    fn answer(&mut self, index: usize, outcome: Result<SourceValue, Error>) {
        let Some(passenger) = self.passengers.get(index) else { return };
        self.places.give_back(1);
        let outcome = outcome.map_err(|error| self.shared.error(&error.to_string()));
        self.shared.finished.push(passenger.ticket, outcome);
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
                    let Err(full) = self.board(Passenger { ticket, asked, address, deadline })
                    else {
                        return Ok(());
                    };
                    // The queue is full: exceeding the turn's budget beats refusing.
                    match self.look(asked, &address) {
                        Attempt::Ready(outcome) => outcome.map_err(|error| error.to_string()),
                        Attempt::Wait => {
                            self.shared.line.refused.fetch_add(1, Ordering::Relaxed);
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
        if self.boarding.is_empty() {
            return;
        }
        let is_decoded = self.shared.form == Form::Contents;
        let (mut chunks, mut lengths, mut existence) = (Vec::new(), Vec::new(), Vec::new());
        for passenger in self.boarding.drain(..) {
            match passenger.asked {
                // Only the record itself tells its length.
                Asked::Length if is_decoded => lengths.push(passenger),
                Asked::Value | Asked::Length => chunks.push(passenger),
                Asked::Exists | Asked::Type => existence.push(passenger),
            }
        }
        self.depart(chunks, Kind::Chunks);
        self.depart(lengths, Kind::Lengths);
        self.depart(existence, Kind::Existence);
    }

    fn cancel(&mut self, ticket: Ticket) {
        if self.leave(ticket) {
            return;
        }
        // Rare: the request is not in a batch yet, or was answered at once.
        if let Some(index) = self.boarding.iter().position(|passenger| passenger.ticket == ticket) {
            self.boarding.swap_remove(index);
            self.shared.line.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn poll(&mut self, stream: &mut Vec<SourceEvent>) {
        if !self.is_closing && self.signals.stopping() {
            // The store answers waiting requests with errors while the pipeline still runs.
            self.is_closing = true;
            self.store.begin_close();
        }
        stream.append(&mut self.ready);
        let mut landed = std::mem::take(&mut self.landed);
        self.shared.finished.take(&mut landed);
        for event in &landed {
            if let SourceEvent::Answer { ticket, .. } = event {
                self.leave(*ticket);
            }
        }
        stream.append(&mut landed);
        self.landed = landed;
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
        info(&self.store, &self.shared.line)
    }
}

/// Returns the state of a store as one word.
pub fn state_of(state: &State) -> &'static str {
    match state {
        State::Opening => "opening",
        State::Open => "open",
        State::Failed(_) => "failed",
    }
}

/// Builds the fields of INFO.
fn info(store: &Store, line: &Line) -> SourceInfo {
    let (stats, state) = (store.stats(), store.state());
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
        ("waiting", line.waiting.load(Ordering::Relaxed).to_string()),
        ("refused", line.refused.load(Ordering::Relaxed).to_string()),
        ("disk_bytes", cache.bytes.to_string()),
        ("disk_bytes_max", cache.bytes_max.to_string()),
        ("disk_bypassed", u8::from(cache.bypassed.is_some()).to_string()),
        ("evicted", cache.evicted.to_string()),
        ("store_requests", remote.requests.to_string()),
        ("store_bytes", remote.bytes.to_string()),
        ("store_retries", remote.retries.to_string()),
    ];
    if let State::Failed(error) = &state {
        fields.push(("last_error", error.to_string()));
    } else if let Some(error) = &remote.last_error {
        fields.push(("last_error", error.clone()));
    }
    SourceInfo { batches: vec![("read", line.trips.read())], fields }
}
