//! The service behind the request queue of a chunk store: it looks up a batch of chunks and answers
//! the waiter of each.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use busload_batch::{
    BatchError, BatchTrace, Batcher, BatcherSettings, DispatchPolicy, EarlyAnswers, Loaded,
    LoadedAll, LoadedOne, NoWrites, QueueSettings, Receipt, Reply, SentBatch, Service,
    SettingsError, Sharing, Stored, StoredAll,
};
use busload_dolt::{Chunk, ChunkAddress, Error, Form, Request, Requester, Store, StoreUsage};
use busload_pipeline::source::{SourceValue, Ticket};
use bytes::Bytes;
use futures_util::{StreamExt, future::join3, stream::FuturesUnordered};

use crate::{
    sources::{finished::FinishedAnswers, requests::count},
    traces::{Outcome, RequestSpan, Traced},
};

/// The request queue of a chunk store.
pub type ChunkQueue = Batcher<ChunkService, ChunkWaiter>;

/// Longest time by which the store's deadline is earlier than the pipeline's, because its error
/// says more.
const DEADLINE_MARGIN_MAX: Duration = Duration::from_millis(20);

/// A chunk store whose lookups go in batches.
#[derive(Debug)]
pub struct ChunkService {
    store: Store,
    form: Form,
    /// Time from the start of a batch to the failure of its lookups.
    timeout: Duration,
}

/// Key of the queue: a chunk and the requested fact about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkQuery {
    pub fact: Fact,
    pub address: ChunkAddress,
}

/// Fact about a chunk. Each is another call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    Bytes,
    Length,
    Existence,
}

/// Value of a [`Fact`] about a chunk that exists.
#[derive(Clone, Debug)]
pub enum Finding {
    Chunk(Chunk),
    Length(u64),
    Exists,
}

/// The command, as far as its reply depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkCommand {
    Get,
    Strlen,
    Exists,
    Type,
}

/// A request in the queue: the ticket and the command that its answer is for.
#[derive(Debug)]
pub struct ChunkWaiter {
    pub ticket: Ticket,
    pub command: ChunkCommand,
    pub finished: Arc<FinishedAnswers>,
    pub span: RequestSpan,
    pub usage: Arc<StoreUsage>,
}

/// Starts the request queue of a store on the current tokio runtime. `requests_max` bounds the
/// requests that wait or are in flight.
///
/// # Errors
/// Returns the setting that the queue refuses.
pub fn start_queue(
    store: Store,
    form: Form,
    timeout: Duration,
    requests_max: usize,
) -> Result<ChunkQueue, SettingsError> {
    let margin = DEADLINE_MARGIN_MAX.min(timeout / 4);
    let queue = QueueSettings {
        requests_max,
        // Requests are small and of one size, so their number bounds their bytes.
        bytes_max: usize::MAX,
        batch_entries_max: requests_max,
        batch_bytes_max: usize::MAX,
        // The store has its own bounds: reads of disks, and a window of parallel remote reads.
        batches_in_flight_max: requests_max,
        dispatch: DispatchPolicy::Immediate,
        // An earlier lookup may have found that there is no such chunk before there was one.
        sharing: Sharing::Waiting,
    };
    let service = ChunkService { store, form, timeout: timeout - margin };
    // The pipeline cancels late requests, so the queue needs no timer.
    Batcher::start(service, BatcherSettings { queue, timeout: None })
}

impl Service for ChunkService {
    type Key = ChunkQuery;
    type Value = Finding;
    type Write = NoWrites;
    type Outcome = ();
    type Error = Error;

    async fn load(&self, queries: Vec<ChunkQuery>) -> LoadedAll<Self> {
        let all = Mutex::new(queries.iter().map(|_| Ok(None)).collect::<Vec<_>>());
        let give = |some: &mut Answers| {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            some.drain(..).for_each(|(index, answer)| all[index] = answer);
        };
        self.look_up(&queries, &give).await;
        Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers each request as soon as its chunk is there.
    async fn load_each(
        &self,
        queries: Vec<ChunkQuery>,
        early: EarlyAnswers<'_, Self>,
    ) -> LoadedAll<Self> {
        self.look_up(&queries, &|some: &mut Answers| early.give(some)).await;
        Ok(Vec::new())
    }

    async fn store(&self, _entries: Vec<(ChunkQuery, NoWrites)>) -> StoredAll<Self> {
        Ok(Vec::new())
    }

    /// Bytes that a dropped batch requested from the object store still reach the disk cache.
    fn drops_abandoned_loads(&self) -> bool {
        true
    }
}

/// Answers to some lookups of a batch, by their index.
type Answers = Vec<(usize, LoadedOne<ChunkService>)>;

impl ChunkService {
    /// Looks up the chunks of all queries, which are sorted by fact, and gives each answer once.
    async fn look_up(&self, queries: &[ChunkQuery], give: &(impl Fn(&mut Answers) + Sync)) {
        let lengths_start = queries.partition_point(|query| query.fact < Fact::Length);
        let existence_start = queries.partition_point(|query| query.fact < Fact::Existence);
        let part = |range: Range<usize>| Part {
            first: range.start,
            addresses: queries[range].iter().map(|query| query.address).collect(),
        };
        let deadline = tokio::time::Instant::now().into_std() + self.timeout;
        let request =
            Request { form: self.form, local_only: false, requester: Requester::Client, deadline };
        join3(
            self.read(part(0..lengths_start), request, give),
            self.measure(part(lengths_start..existence_start), request, give),
            self.find(part(existence_start..queries.len()), request, give),
        )
        .await;
    }

    async fn read(&self, part: Part, request: Request, give: &impl Fn(&mut Answers)) {
        let first = part.first;
        let mut reads = self.store.get_many(part.addresses, request);
        let (mut completed, mut answers) = (Vec::new(), Vec::new());
        while reads.next(&mut completed).await {
            answers.extend(completed.drain(..).map(|(index, chunk)| {
                (first + index as usize, chunk.map(|chunk| chunk.map(Finding::Chunk)))
            }));
            give(&mut answers);
        }
    }

    async fn measure(&self, part: Part, request: Request, give: &impl Fn(&mut Answers)) {
        let mut lengths: FuturesUnordered<_> = part
            .addresses
            .into_iter()
            .enumerate()
            .map(async |(index, address)| (index, self.store.length(address, request).await))
            .collect();
        while let Some((index, length)) = lengths.next().await {
            let answer = length.map(|length| length.map(Finding::Length));
            give(&mut vec![(part.first + index, answer)]);
        }
    }

    /// Looks up all chunks of a part together: one check of the manifest serves all.
    async fn find(&self, part: Part, request: Request, give: &impl Fn(&mut Answers)) {
        if part.addresses.is_empty() {
            return;
        }
        let found = self.store.has_many(&part.addresses, request).await;
        let answer = |index: usize| match &found {
            Ok(found) => Ok(found[index].then_some(Finding::Exists)),
            Err(error) => Err(error.clone()),
        };
        let answers = (0..part.addresses.len()).map(|index| (part.first + index, answer(index)));
        give(&mut answers.collect());
    }
}

/// Lookups of one fact in a batch.
struct Part {
    /// Index of the first of them in the batch.
    first: usize,
    addresses: Vec<ChunkAddress>,
}

impl ChunkCommand {
    /// Returns whether the command counts as a read of a chunk.
    fn reads(self) -> bool {
        matches!(self, Self::Get | Self::Strlen)
    }

    /// Returns the fact that the reply tells. The length of a stored record is that of its bytes.
    pub fn fact(self, form: Form) -> Fact {
        match self {
            Self::Strlen if form == Form::Contents => Fact::Length,
            Self::Get | Self::Strlen => Fact::Bytes,
            Self::Exists | Self::Type => Fact::Existence,
        }
    }

    /// Converts a finding, `None` for a chunk that does not exist, to the command's reply.
    pub fn reply(self, finding: Option<Finding>) -> SourceValue {
        match (self, finding) {
            (Self::Get, Some(Finding::Chunk(chunk))) => SourceValue::Bulk(bytes_of(chunk)),
            (Self::Get, _) => SourceValue::Nil,
            (Self::Strlen, Some(Finding::Chunk(chunk))) => {
                SourceValue::Integer(count(bytes_of(chunk).len()))
            }
            (Self::Strlen, Some(Finding::Length(length))) => {
                SourceValue::Integer(i64::try_from(length).unwrap_or(i64::MAX))
            }
            (Self::Strlen, _) => SourceValue::Integer(0),
            (Self::Exists, finding) => SourceValue::Integer(i64::from(finding.is_some())),
            (Self::Type, finding) => {
                SourceValue::Status(if finding.is_some() { "string" } else { "none" })
            }
        }
    }
}

/// Returns the bytes of a chunk. Neither of the forms that this module requests has a dictionary.
fn bytes_of(chunk: Chunk) -> Bytes {
    match chunk {
        Chunk::Contents(bytes) | Chunk::Snappy(bytes) | Chunk::Zstd(bytes, _) => bytes,
    }
}

impl Reply<ChunkService> for ChunkWaiter {
    fn loaded(self, outcome: Loaded<ChunkService>) {
        let Self { ticket, command, finished, span, .. } = self;
        span.end(Outcome::of(&outcome));
        let outcome = outcome.map(|finding| command.reply(finding));
        finished.push(ticket, outcome.map_err(error_text));
    }

    /// The store has counted the first read only.
    fn loaded_shared(self, outcome: Loaded<ChunkService>) {
        match &outcome {
            Ok(Some(Finding::Chunk(_) | Finding::Length(_))) => self.usage.count_shared(),
            Ok(None) if self.command.reads() => {
                self.usage.count_other(Requester::Client, None);
            }
            Err(BatchError::Failed(error)) if self.command.reads() => {
                self.usage.count_other(Requester::Client, Some(error));
            }
            _ => {}
        }
        self.loaded(outcome);
    }

    fn stored(self, _outcome: Stored<ChunkService>, _receipt: Option<Receipt<ChunkService>>) {
        // The queue takes no writes.
    }

    fn is_traced(&self) -> bool {
        self.span.is_sampled()
    }

    fn trace_batch(&self, batch: &SentBatch) -> Option<Box<dyn BatchTrace<Self>>> {
        self.span.begin_batch(batch)
    }
}

impl Traced for ChunkWaiter {
    fn span(&mut self) -> &mut RequestSpan {
        &mut self.span
    }
}

fn error_text(error: BatchError<Error>) -> String {
    match error {
        BatchError::Failed(error) => error.to_string(),
        BatchError::Panicked => "the lookup failed; see the log".to_owned(),
        // The runtime of chunk stores has ended, or ends.
        BatchError::Closed | BatchError::Stopped => Error::Closed.to_string(),
        error => error.to_string(),
    }
}
