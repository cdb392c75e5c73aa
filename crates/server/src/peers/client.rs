//! Client of one peer: asks it for chunks in its files, by `GetChunks` over a connection that stays
//! open.
//!
//! ```text
//!  ask --> request queue --batch--> PeerCalls --> GetChunks(from_peer) --> peer
//!   ^                                  |
//!   +------ each chunk as it comes ----+
//! ```
//!
//! * **Batches.** A call takes all chunks that wait, up to [`PEER_CALL_CHUNKS_MAX`], and is sent at
//!   once if fewer than [`PEER_CALLS_MAX`] are under way. Equal questions share an answer.
//! * **Deadlines.** A chunk has [`PEER_CHUNK_TIMEOUT`], and at most half of the time that its
//!   request has left, so that the bucket has the other half.
//! * **Overload and failure.** What the queue does not take is not asked. After a call that failed,
//!   or brought nothing within its deadline, or [`PEER_LATE_CALLS_MAX`] that brought little, the
//!   peer is asked nothing for [`PEER_PAUSE`].
//! * **No circles.** The peer hears that a peer asks, and then asks nobody else.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use axum::http::Uri;
use busload_batch::{
    BatchError, Batcher, BatcherSettings, DispatchPolicy, EarlyAnswers, Loaded, LoadedAll,
    LoadedOne, NoWrites, QueueSettings, Receipt, Reply, RequestId, Service, Sharing, Stored,
    StoredAll,
};
use busload_dolt::{Chunk, ChunkAddress, DictionaryId, Form, PeerAnswer, PeerQuestion};
use busload_io::{Clock, RealClock};
use busload_proto::v1::{
    self, Encoding, FoundChunk, GetChunksRequest, GetChunksResponse, chunks_client::ChunksClient,
};
use busload_tls::ClientConfig;
use futures_util::{
    FutureExt, TryFutureExt,
    future::{join_all, ready},
};
use hyper_util::rt::TokioIo;
use tokio::{sync::oneshot, time::timeout};
use tonic::{
    Code, Request, Status,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};
use tower::service_fn;

use super::{
    connector::PeerConnector,
    limits::{
        PEER_ANSWER_BYTES_MAX, PEER_CALL_CHUNKS_MAX, PEER_CALLS_MAX, PEER_CHUNK_TIMEOUT,
        PEER_CONNECT_TIMEOUT, PEER_CONNECTION_WINDOW_BYTES, PEER_KEEP_ALIVE, PEER_LATE_CALLS_MAX,
        PEER_PAUSE, PEER_QUEUE_CHUNKS_MAX, PEER_STREAM_WINDOW_BYTES,
    },
    metrics::{PeerMetrics, PeerOutcome},
};
use crate::{access::Access, shown::shown_error};

/// Protocol of gRPC, as TLS names it.
const PROTOCOL: &[u8] = b"h2";

/// Client of one peer.
#[derive(Debug)]
pub struct PeerClient {
    queue: Batcher<PeerCalls, Waiter>,
    metrics: Arc<PeerMetrics>,
}

/// The calls of a peer, each of which carries a batch.
pub struct PeerCalls {
    url: String,
    client: ChunksClient<Channel>,
    access: Access,
    clock: RealClock,
    /// Time of the clock, in milliseconds, until which the peer is asked nothing.
    paused_until_ms: AtomicU64,
    late: LateCalls,
    /// Set from a failure to the next call that brings all of its chunks.
    is_failing: AtomicBool,
}

/// Calls in a row that brought less than half of their chunks within the deadline.
#[derive(Debug, Default)]
struct LateCalls(AtomicU32);

/// A chunk that is asked for. In this order, those of one store and form are side by side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkKey {
    store: Arc<str>,
    form: v1::Form,
    address: ChunkAddress,
}

/// Reason why a peer did not send a chunk that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerError {
    /// The call failed, or the peer could not read the chunk.
    Failed,
    /// The call took too long.
    TimedOut,
}

/// Waiter for one chunk.
#[derive(Debug)]
pub struct Waiter {
    sender: oneshot::Sender<Option<Chunk>>,
    metrics: Arc<PeerMetrics>,
}

/// A question that somebody waits for; dropping it takes it back.
struct Asked {
    queue: Batcher<PeerCalls, Waiter>,
    request: Option<RequestId>,
}

impl PeerClient {
    /// Makes a client that connects when it is asked first, on the current tokio runtime.
    ///
    /// # Errors
    /// The URL is none that this client can use; the text says why.
    pub fn start(
        url: &str,
        tls: Option<&ClientConfig>,
        access: Access,
        metrics: Arc<PeerMetrics>,
    ) -> Result<Self, String> {
        let origin: Uri = url.parse().map_err(|error| format!("{error}"))?;
        let connector = match (origin.scheme_str(), tls) {
            (Some("https"), Some(config)) => Some(PeerConnector::new(&origin, config, PROTOCOL)?),
            (Some("http"), _) => None,
            _ => return Err("expected http://, or https:// with settings of TLS".to_owned()),
        };
        let endpoint = Endpoint::from(origin.clone())
            .connect_timeout(PEER_CONNECT_TIMEOUT)
            .initial_stream_window_size(PEER_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(PEER_CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(PEER_KEEP_ALIVE)
            .keep_alive_timeout(PEER_KEEP_ALIVE)
            .tcp_nodelay(true);
        let channel = match connector {
            None => endpoint.connect_lazy(),
            Some(connector) => endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| {
                connector.clone().connect().map_ok(TokioIo::new)
            })),
        };
        let client = ChunksClient::with_origin(channel, origin)
            .max_decoding_message_size(PEER_ANSWER_BYTES_MAX);
        let calls = PeerCalls {
            url: url.to_owned(),
            client,
            access,
            clock: RealClock::new(),
            paused_until_ms: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
            late: LateCalls::default(),
        };
        let queue = QueueSettings {
            requests_max: PEER_QUEUE_CHUNKS_MAX,
            // Requests are small and of one size, so their number bounds their bytes.
            bytes_max: usize::MAX,
            batch_entries_max: PEER_CALL_CHUNKS_MAX,
            batch_bytes_max: usize::MAX,
            batches_in_flight_max: PEER_CALLS_MAX,
            dispatch: DispatchPolicy::Eager,
            // A chunk never changes.
            sharing: Sharing::InFlight,
        };
        let queue = Batcher::start(calls, BatcherSettings { queue, timeout: None });
        Ok(Self { queue: queue.map_err(|error| error.to_string())?, metrics })
    }

    /// Asks for chunks; none if the peer is to be asked nothing now.
    pub fn ask(&self, question: &PeerQuestion<'_>) -> Option<Vec<PeerAnswer>> {
        if self.queue.service().is_paused() {
            self.metrics.count(PeerOutcome::Skipped, question.chunks.len());
            return None;
        }
        let store: Arc<str> = question.store.into();
        let deadline = deadline(tokio::time::Instant::now().into_std(), question.deadline);
        let ask = |(address, form): &(ChunkAddress, Form)| {
            let form = match form {
                Form::Stored => v1::Form::Stored,
                Form::Contents | Form::Record => v1::Form::Contents,
            };
            self.submit(ChunkKey { store: Arc::clone(&store), form, address: *address }, deadline)
        };
        let answers = question.chunks.iter().map(ask).collect();
        self.queue.flush();
        Some(answers)
    }

    fn submit(&self, key: ChunkKey, deadline: Instant) -> PeerAnswer {
        let (sender, receiver) = oneshot::channel();
        let waiter = Waiter { sender, metrics: Arc::clone(&self.metrics) };
        match self.queue.submit_load(key, waiter, Some(deadline)) {
            Ok(request) => {
                let asked = Asked { queue: self.queue.clone(), request: Some(request) };
                asked.answer(receiver).boxed()
            }
            Err(_) => {
                self.metrics.count(PeerOutcome::Skipped, 1);
                ready(None).boxed()
            }
        }
    }
}

impl Asked {
    async fn answer(mut self, receiver: oneshot::Receiver<Option<Chunk>>) -> Option<Chunk> {
        let answer = receiver.await;
        self.request = None;
        answer.ok().flatten()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(request) = self.request {
            self.queue.cancel(request);
        }
    }
}

/// Returns when a peer's answer is late, for a request with this deadline.
fn deadline(now: Instant, request: Instant) -> Instant {
    now + PEER_CHUNK_TIMEOUT.min(request.saturating_duration_since(now) / 2)
}

impl Service for PeerCalls {
    type Key = ChunkKey;
    type Value = Chunk;
    type Write = NoWrites;
    type Outcome = ();
    type Error = PeerError;

    async fn load(&self, keys: Vec<ChunkKey>) -> LoadedAll<Self> {
        let all = Mutex::new(vec![Err(PeerError::Failed); keys.len()]);
        let give = |some: &mut Answers| {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            some.drain(..).for_each(|(entry, answer)| all[entry] = answer);
        };
        self.call_all(&keys, &give).await?;
        Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers each question as soon as its chunk is there.
    async fn load_each(
        &self,
        keys: Vec<ChunkKey>,
        early: EarlyAnswers<'_, Self>,
    ) -> LoadedAll<Self> {
        self.call_all(&keys, &|some: &mut Answers| early.give(some)).await?;
        Ok(Vec::new())
    }

    async fn store(&self, _entries: Vec<(ChunkKey, NoWrites)>) -> StoredAll<Self> {
        Ok(Vec::new())
    }
}

/// Answers to some entries of a batch, by their index.
type Answers = Vec<(usize, LoadedOne<PeerCalls>)>;

impl PeerCalls {
    /// Makes the calls of a batch, each about chunks of one store in one form.
    async fn call_all(
        &self,
        keys: &[ChunkKey],
        give: &(impl Fn(&mut Answers) + Sync),
    ) -> Result<(), PeerError> {
        let mut first = 0;
        let calls = keys
            .chunk_by(|one, next| one.store == next.store && one.form == next.form)
            .map(|keys| {
                let call = self.call(first, keys, give);
                first += keys.len();
                call
            })
            .collect::<Vec<_>>();
        join_all(calls).await.into_iter().collect()
    }

    /// Makes one call, whose chunks begin at the entry `first` of the batch.
    async fn call(
        &self,
        first: usize,
        keys: &[ChunkKey],
        give: &(impl Fn(&mut Answers) + Sync),
    ) -> Result<(), PeerError> {
        let (mut answered, mut is_answered) = (0, vec![false; keys.len()]);
        let received = self.receive(keys, |message| {
            let mut answers = answers(message, keys.len());
            answers.retain(|(index, _)| !std::mem::replace(&mut is_answered[*index], true));
            answered += answers.len();
            answers.iter_mut().for_each(|(entry, _)| *entry += first);
            give(&mut answers);
        });
        let ended = match timeout(PEER_CHUNK_TIMEOUT, received).await {
            Ok(Err(status)) if is_late(&status) => None,
            ended => ended.ok(),
        };
        match ended {
            Some(Ok(())) if keys.len() <= answered => {
                self.late.note_complete();
                self.is_failing.store(false, Relaxed);
                Ok(())
            }
            Some(Ok(())) => Err(PeerError::Failed),
            Some(Err(status)) => {
                let why = format!("{:?}: {:?}", status.code(), shown_error(&cause(&status)));
                match status.code() {
                    // These are about one store, not about the peer, and may come with each call.
                    Code::NotFound | Code::FailedPrecondition => {
                        log::debug!("peer {}: {why}", self.url);
                    }
                    _ => self.note_failure(&why),
                }
                Err(PeerError::Failed)
            }
            None => {
                if self.late.note_late(answered, keys.len()) {
                    let asked = keys.len();
                    let time = PEER_CHUNK_TIMEOUT;
                    self.note_failure(&format!("{answered} of {asked} chunks within {time:?}"));
                }
                Err(PeerError::TimedOut)
            }
        }
    }

    async fn receive(
        &self,
        keys: &[ChunkKey],
        mut take: impl FnMut(GetChunksResponse),
    ) -> Result<(), Status> {
        let Some(ChunkKey { store, form, .. }) = keys.first() else { return Ok(()) };
        let addresses: Vec<u8> = keys.iter().flat_map(|key| key.address.0).collect();
        let mut request = Request::new(GetChunksRequest {
            store: store.to_string(),
            addresses: addresses.into(),
            only_if_local: false,
            form: (*form).into(),
            from_peer: true,
        });
        request.set_timeout(PEER_CHUNK_TIMEOUT);
        if let Some(key) = self.access.peer_authorization(self.clock.wall_ms()) {
            let value = MetadataValue::try_from(key).expect("a key is ASCII");
            request.metadata_mut().insert("authorization", value);
        }
        let mut stream = self.client.clone().get_chunks(request).await?.into_inner();
        while let Some(message) = stream.message().await? {
            take(message);
        }
        Ok(())
    }

    /// Notes why a call failed, and asks the peer nothing for a while.
    fn note_failure(&self, why: &str) {
        // Once, until it answers again: a peer that is away is asked once a second.
        let is_known = self.is_failing.swap(true, Relaxed);
        let level = if is_known { log::Level::Debug } else { log::Level::Warn };
        log::log!(level, "peer {}: {why}; its chunks come from the bucket", self.url);
        let until = milliseconds(self.clock.now() + PEER_PAUSE);
        self.paused_until_ms.fetch_max(until, Relaxed);
    }

    fn is_paused(&self) -> bool {
        milliseconds(self.clock.now()) < self.paused_until_ms.load(Relaxed)
    }
}

impl LateCalls {
    fn note_complete(&self) {
        self.0.store(0, Relaxed);
    }

    /// Notes a call that was over before all chunks had come. Returns whether the peer is to be
    /// asked nothing for a while.
    fn note_late(&self, answered: usize, asked: usize) -> bool {
        if asked <= 2 * answered {
            self.note_complete();
            return false;
        }
        let is_over = answered == 0 || PEER_LATE_CALLS_MAX <= 1 + self.0.fetch_add(1, Relaxed);
        if is_over {
            self.0.store(0, Relaxed);
        }
        is_over
    }
}

/// Returns why a call failed, with the causes behind it: that of a connection says little alone.
fn cause(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut next = std::error::Error::source(status);
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text += ": ";
            text += &more;
        }
        next = error.source();
    }
    text
}

/// Returns whether a call failed because its time is over, as the peer or the connection noticed
/// first.
fn is_late(status: &Status) -> bool {
    matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the answers of a message, by their index in a call of `count` chunks.
fn answers(message: GetChunksResponse, count: usize) -> Answers {
    let GetChunksResponse { chunks, missing, not_local, failed } = message;
    let found = chunks.into_iter().map(|found| (found.index, chunk(found).map(Some)));
    let missing = missing.into_iter().map(|index| (index, Ok(None)));
    let unread = not_local.into_iter().chain(failed.into_iter().map(|failed| failed.index));
    let unread = unread.map(|index| (index, Err(PeerError::Failed)));
    let all = found.chain(missing).chain(unread);
    all.map(|(index, answer)| (index as usize, answer))
        .filter(|(index, _)| *index < count)
        .collect()
}

fn chunk(found: FoundChunk) -> Result<Chunk, PeerError> {
    let FoundChunk { contents, encoding, dictionary_id, .. } = found;
    match Encoding::try_from(encoding) {
        Ok(Encoding::Contents) => Ok(Chunk::Contents(contents)),
        Ok(Encoding::Snappy) => Ok(Chunk::Snappy(contents)),
        Ok(Encoding::Zstd) => {
            let id = <[u8; 32]>::try_from(&*dictionary_id).map_err(|_| PeerError::Failed)?;
            Ok(Chunk::Zstd(contents, DictionaryId(id)))
        }
        Err(_) => Err(PeerError::Failed),
    }
}

impl Reply<PeerCalls> for Waiter {
    fn loaded(self, outcome: Loaded<PeerCalls>) {
        let counted = match &outcome {
            Ok(Some(_)) => PeerOutcome::Answered,
            Err(BatchError::TooLate { .. } | BatchError::Failed(PeerError::TimedOut)) => {
                PeerOutcome::TimedOut
            }
            Ok(None) | Err(_) => PeerOutcome::Missed,
        };
        self.metrics.count(counted, 1);
        // Fails if nobody waits any more.
        let _ = self.sender.send(outcome.ok().flatten());
    }

    fn stored(self, _outcome: Stored<PeerCalls>, _receipt: Option<Receipt<PeerCalls>>) {
        // The queue takes no writes.
    }
}

impl fmt::Debug for PeerCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerCalls").field(&self.url).finish()
    }
}

#[cfg(test)]
#[path = "client/tests.rs"]
mod tests;
