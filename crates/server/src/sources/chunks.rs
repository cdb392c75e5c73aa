//! A Dolt store as the pipeline sees it.
//!
//! ```text
//!  submit --> at hand? --yes--> answered in this turn, on the pipeline's thread
//!                |no
//!                v
//!  flush ---> one trip for all of the turn --> runtime `chunks` --> Finished --> poll
//! ```
//!
//! What is on local disk and in the system's memory is read, checked and answered where it was
//! asked: a hand-over would cost more than the read. Everything else waits elsewhere, as one batch
//! per turn, so that nearby chunks share reads of the object store.
//!
//! **Overload.** So many requests may wait (`line_requests`); more are refused at once.
//! **Cancellation.** A trip nobody waits for any more is given up; what it asked of the object
//! store still comes to disk.

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

/// The store ends a request so much before the pipeline does: its error says more.
const DEADLINE_MARGIN_MAX: Duration = Duration::from_millis(20);
/// Contents answered on the pipeline's thread in one turn, each counted with [`CHUNK_COST_BYTES`];
/// what is beyond leaves as a trip, however near it is. Decoding and checking so much takes about a
/// millisecond, for which memory tables wait.
const TURN_BYTES_MAX: usize = 1 << 20;
/// What looking for a chunk costs, in bytes of contents that take as long.
const CHUNK_COST_BYTES: usize = 1024;
/// Bytes of a key that is no address that an error shows.
const SHOWN_BYTES_MAX: usize = 64;

/// Requests of RESP clients that wait for a store, and trips that left for them. Shared with
/// whoever shows metrics.
#[derive(Debug, Default)]
pub struct Line {
    /// Requests that wait now.
    pub waiting: AtomicUsize,
    /// Requests refused because too many waited.
    pub refused: AtomicU64,
    /// Trips, and requests in them.
    pub trips: BatchCounter,
}

/// The adapter.
#[derive(Debug)]
pub struct ChunksSource {
    store: Store,
    shared: Arc<Shared>,
    signals: Arc<Signals>,
    /// Whether the store knows that it is over.
    is_closing: bool,
    runtime: Handle,
    /// Answers that did not have to wait.
    ready: Vec<SourceEvent>,
    /// What may still be answered here in this turn.
    turn_bytes: usize,
    /// What has to wait and has not left yet.
    boarding: Vec<Passenger>,
    /// The trip of each open ticket that has left, by its index.
    trips: Vec<Option<(Ticket, Arc<Trip>)>>,
    /// Answers of trips on their way to the stream.
    landed: Vec<SourceEvent>,
    /// When the pipeline's clock began.
    origin: Instant,
    timeout: Duration,
    deadline_margin: Duration,
    waiting_max: usize,
}

/// What the adapter and its trips share.
#[derive(Debug)]
struct Shared {
    name: String,
    form: Form,
    finished: Arc<Finished>,
    line: Arc<Line>,
}

/// Command, as far as its answer is concerned.
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

/// A batch under way. Given up when the last ticket that waits for it is gone.
#[derive(Debug)]
struct Trip(AbortHandle);

impl Drop for Trip {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The places of a trip's requests in the line, given back one by one and all at the trip's end.
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

/// What an adapter needs to know about its table.
#[derive(Debug)]
pub struct About<'a> {
    /// As it was configured.
    pub settings: &'a ChunksSettings,
    /// Its metrics.
    pub line: &'a Arc<Line>,
    /// Whether the pipeline is to end.
    pub signals: &'a Arc<Signals>,
    /// When the pipeline's clock began.
    pub origin: Instant,
    /// Where what waits runs.
    pub runtime: Handle,
}

impl ChunksSource {
    /// For a store that has started; its answers come by way of `finished`.
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

    /// The answer, if it is at hand and there is time for it in this turn.
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
        // Only this thread adds to it.
        if self.waiting_max <= line.waiting.load(Ordering::Relaxed) {
            return Err(Full);
        }
        line.waiting.fetch_add(1, Ordering::Relaxed);
        self.boarding.push(passenger);
        Ok(())
    }

    /// All passengers of one kind leave together.
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

    /// Nobody holds the ticket's trip for it any more.
    fn leave(&mut self, ticket: Ticket) -> bool {
        let trip = self.trips.get_mut(ticket.index());
        trip.and_then(|trip| trip.take_if(|(known, _)| *known == ticket)).is_some()
    }
}

/// What a trip is about: each kind of question is another call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chunks,
    Lengths,
    Existence,
}

/// A trip's task.
#[derive(Debug)]
struct Journey {
    store: Store,
    shared: Arc<Shared>,
    passengers: Vec<Passenger>,
    places: Places,
    request: Request,
}

impl Journey {
    /// Each gets its chunk as soon as it is there.
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

    /// Each gets its length as soon as it is known.
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

    /// All are told at once: one look at the manifest answers them.
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
    /// As clients get it.
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

/// Neither of the forms asked for has a dictionary.
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
            // `supports` lets no other one in.
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
                    // Late in this turn is better than not at all.
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
                // The length of a record is not known before it is there.
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
        // Rare: it has not left yet, or was answered at once.
        if let Some(index) = self.boarding.iter().position(|passenger| passenger.ticket == ticket) {
            self.boarding.swap_remove(index);
            self.shared.line.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn poll(&mut self, stream: &mut Vec<SourceEvent>) {
        if !self.is_closing && self.signals.stopping() {
            // What waits is answered with an error while the pipeline still can.
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

/// Whether a store is served, in a word.
pub fn state_of(state: &StoreStatus) -> &'static str {
    match state {
        StoreStatus::Opening => "opening",
        StoreStatus::Open => "open",
        StoreStatus::Failed(_) => "failed",
    }
}

/// The metrics for INFO.
fn info(store: &Store, line: &Line) -> SourceInfo {
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
    if let StoreStatus::Failed(error) = &state {
        fields.push(("last_error", error.to_string()));
    } else if let Some(error) = &remote.last_error {
        fields.push(("last_error", error.clone()));
    }
    SourceInfo { batches: vec![("read", line.trips.read())], fields }
}
