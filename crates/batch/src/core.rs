//! Core of a batcher, which its handles, its driver and its batches share: the queue under its
//! lock, and the driver's notifier.
//!
//! User code runs under the lock only where the queue must call it: `Hash`, `Eq`, `Ord` and `Clone`
//! of keys, and the methods of `Write`. Replies are called and dropped outside.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::batcher::BatcherSettings;
use crate::clock::Clock;
use crate::in_flight::{AbandonSignal, Abandoned};
use crate::service::{LoadedOne, Receipt, Reply, Service};
use crate::trace::BatchTraces;
use crate::{
    Answered, BatchEnd, BatchId, Content, EntryBatch, Operation, QueueLatencies, QueueStats,
    Refusal, Refused, RequestId, RequestOptions, RequestQueue, SettingsError, Sharing,
};

pub(crate) struct BatcherCore<S: Service, R: Reply<S>> {
    pub(crate) service: Arc<S>,
    pub(crate) clock: Clock,
    /// Wakes the driver, which handles all earlier notifications in one turn.
    pub(crate) wake: Arc<Notify>,
    /// Notified once, for all waiters, when the driver has ended.
    pub(crate) ended: Notify,
    timeout: Option<Duration>,
    /// Set if batches of reads that nobody waits for are dropped.
    drops_abandoned: bool,
    state: Mutex<QueueState<S, R>>,
    /// Set when something was submitted that no flush has followed yet.
    unflushed: AtomicBool,
}

pub(crate) struct QueueState<S: Service, R: Reply<S>> {
    pub(crate) queue: RequestQueue<S::Key, S::Write, R>,
    pub(crate) phase: Phase,
    /// Number of accepted requests whose replies have not been called yet.
    pub(crate) owed: usize,
    /// Number of callers that the batch which ended last answered. They run now or soon, and send
    /// further requests.
    answered: Company,
    /// Reused buffer of the batch that ended last. Holds no more than the queue may.
    spare: Vec<EndedWaiter<S, R>>,
    /// Senders that end the batches of reads in flight, if the service wants abandoned ones ended.
    abandon: HashMap<BatchId, oneshot::Sender<Abandoned>>,
    traces: BatchTraces<R>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    Alone,
    Several,
}

/// Request queue of a service.
type Queue<S, R> = RequestQueue<<S as Service>::Key, <S as Service>::Write, R>;

/// A waiter of a batch that ended, with the index of its entry.
pub(crate) type EndedWaiter<S, R> = (usize, Answered<R, Receipt<S>>);

/// Phase of a batcher's life; only ever advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Open,
    /// Takes no more requests and serves those it has.
    Closing,
    /// No handle is left: queued requests are returned unserved.
    Abandoned,
    /// The driver has ended.
    Ended,
}

impl<S: Service, R: Reply<S>> BatcherCore<S, R> {
    pub(crate) fn new(
        service: S,
        settings: BatcherSettings,
        clock: Clock,
    ) -> Result<Self, SettingsError> {
        let drops_abandoned =
            service.drops_abandoned_loads() && settings.queue.sharing == Sharing::Waiting;
        let queue = RequestQueue::new(settings.queue)?;
        Ok(Self {
            drops_abandoned,
            service: Arc::new(service),
            clock,
            wake: Arc::default(),
            ended: Notify::new(),
            timeout: settings.timeout,
            state: Mutex::new(QueueState::new(queue)),
            unflushed: AtomicBool::new(false),
        })
    }

    /// Locks the queue. A panic under the lock comes from the user's key or write; the caller that
    /// passed it gets the panic, and the other callers go on.
    pub(crate) fn lock(&self) -> MutexGuard<'_, QueueState<S, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn submit_load(
        &self,
        key: S::Key,
        reply: R,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused<R>> {
        let now = self.clock.now();
        let options = self.options(now, &key, deadline);
        self.submit(reply, |queue, reply| queue.submit_load(now, key, reply, options))
    }

    pub(crate) fn submit_store(
        &self,
        key: S::Key,
        write: S::Write,
        reply: R,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused<R>> {
        let now = self.clock.now();
        let options = self.options(now, &key, deadline);
        self.submit(reply, |queue, reply| queue.submit_store(now, key, write, reply, options))
    }

    fn options(&self, now: Duration, key: &S::Key, deadline: Option<Instant>) -> RequestOptions {
        let by_default = || self.timeout.map(|timeout| now.saturating_add(timeout));
        let deadline = deadline.map(|deadline| self.clock.of(deadline)).or_else(by_default);
        RequestOptions { bytes: self.service.key_bytes(key), deadline }
    }

    fn submit(
        &self,
        reply: R,
        join: impl FnOnce(&mut Queue<S, R>, R) -> Result<RequestId, Refused<R>>,
    ) -> Result<RequestId, Refused<R>> {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(Refused { waiter: reply, reason: Refusal::Closed });
        }
        let is_traced = reply.is_traced();
        let request = join(&mut state.queue, reply)?;
        if is_traced {
            state.follow(request);
        }
        state.owed += 1;
        self.unflushed.store(true, Ordering::Release);
        Ok(request)
    }

    pub(crate) fn flush(&self) {
        if self.unflushed.load(Ordering::Acquire) && self.unflushed.swap(false, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// Returns whether the driver, before it sends a batch, runs the tasks that are runnable,
    /// because they may be about to add requests. A lone request, while nothing else is going on,
    /// does not wait even for them.
    pub(crate) fn expects_more(&self) -> bool {
        let state = self.lock();
        state.answered == Company::Several
            || 1 < state.queue.waiting()
            || 0 < state.queue.in_flight()
    }

    /// Returns the signal that ends a batch of reads early, if the service wants such an end.
    pub(crate) fn expect_abandonment(
        &self,
        state: &mut QueueState<S, R>,
        batch: &EntryBatch<S::Key, S::Write>,
    ) -> AbandonSignal {
        if !self.drops_abandoned || operation(&batch.content) == Operation::Write {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        state.abandon.insert(batch.id, sender);
        Some(receiver)
    }

    /// Ends `batch`: frees its slot and takes the waiters that have no answer yet. The caller must
    /// then call [`settle`](Self::settle).
    pub(crate) fn end_batch(&self, batch: BatchId, end: BatchEnd) -> Vec<EndedWaiter<S, R>> {
        let mut state = self.lock();
        let mut waiters = std::mem::take(&mut state.spare);
        state.queue.end_as(self.clock.now(), batch, end, &mut waiters);
        state.abandon.remove(&batch);
        if !waiters.is_empty() {
            state.answered = Company::of(waiters.len());
        }
        let trace = state.traces.take(batch);
        drop(state);
        if let Some(trace) = trace {
            trace.end(end);
        }
        waiters
    }

    /// Takes the waiters of single entries of a batch in flight, with the entries' results in the
    /// same order. The caller must then call [`settle`](Self::settle).
    pub(crate) fn answer_entries(
        &self,
        batch: BatchId,
        answers: &mut Vec<(usize, LoadedOne<S>)>,
    ) -> (Vec<EndedWaiter<S, R>>, Vec<LoadedOne<S>>) {
        let mut results = Vec::with_capacity(answers.len());
        let mut state = self.lock();
        let mut waiters = std::mem::take(&mut state.spare);
        let mut of_entry = Vec::new();
        for (position, (entry, result)) in answers.drain(..).enumerate() {
            state.queue.answer(batch, entry, &mut of_entry);
            waiters.extend(of_entry.drain(..).map(|answered| (position, answered)));
            results.push(result);
        }
        state.answered = Company::of(waiters.len());
        (waiters, results)
    }

    /// Called when `given` waiters of a batch have been answered: lets the driver send next
    /// batches.
    pub(crate) fn settle(&self, emptied: Vec<EndedWaiter<S, R>>, given: usize) {
        let mut state = self.lock();
        state.owed -= given;
        state.spare = emptied;
        let idle = state.phase == Phase::Open && !state.queue.has_queued();
        drop(state);
        if !idle {
            self.wake.notify_one();
        }
    }

    pub(crate) fn cancel(&self, request: RequestId) {
        let mut state = self.lock();
        let batch = state.queue.batch_of(request).filter(|_| self.drops_abandoned);
        let cancelled = state.queue.cancel(request);
        if let Some(batch) = batch {
            state.end_if_abandoned(batch);
        }
        if cancelled.is_some() {
            state.owed -= 1;
        }
        // Other entries may have waited for this batch, and so may the end of the driver.
        let look = 0 < state.queue.waiting() || state.phase != Phase::Open;
        drop(state);
        drop(cancelled);
        if look {
            self.wake.notify_one();
        }
    }

    /// Advances to `phase`, and wakes the driver to act on it.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = state.phase.max(phase);
        drop(state);
        self.wake.notify_one();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock().phase == Phase::Ended
    }

    pub(crate) fn stats(&self) -> QueueStats {
        self.lock().queue.stats()
    }

    pub(crate) fn latencies(&self) -> Arc<QueueLatencies> {
        Arc::clone(self.lock().queue.latencies())
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lock().queue.waiting()
    }
}

impl Company {
    fn of(answered: usize) -> Self {
        if answered < 2 { Self::Alone } else { Self::Several }
    }
}

impl<S: Service, R: Reply<S>> QueueState<S, R> {
    fn new(queue: Queue<S, R>) -> Self {
        Self {
            queue,
            phase: Phase::Open,
            owed: 0,
            answered: Company::Alone,
            spare: Vec::new(),
            abandon: HashMap::new(),
            traces: BatchTraces::default(),
        }
    }

    /// Follows a request that was just accepted into the batch that will carry it, or that does if
    /// the request joined an entry in flight.
    fn follow(&mut self, request: RequestId) {
        self.queue.mark(request);
        let Some(batch) = self.queue.batch_of(request) else { return };
        if let Some(sent) = self.queue.sent_batch(batch)
            && let Some(reply) = self.queue.waiter_mut(request)
        {
            self.traces.carry(batch, &sent, reply);
        }
    }

    /// Traces a batch that is about to be sent, if it carries traced requests.
    pub(crate) fn trace(&mut self, batch: BatchId) {
        if !self.queue.is_marked(batch) {
            return;
        }
        let Self { queue, traces, .. } = self;
        let Some(sent) = queue.sent_batch(batch) else { return };
        queue.visit_waiters(batch, |reply| {
            if reply.is_traced() {
                traces.carry(batch, &sent, reply);
            }
        });
    }

    /// Ends a batch of reads in flight early if nobody waits for it.
    fn end_if_abandoned(&mut self, batch: BatchId) {
        if !self.queue.is_awaited(batch)
            && let Some(abandon) = self.abandon.remove(&batch)
        {
            // A batch that has ended meanwhile needs no end.
            let _ = abandon.send(Abandoned);
        }
    }

    /// Ends all batches of reads in flight that nobody waits for, after requests have expired.
    pub(crate) fn end_abandoned(&mut self) {
        let Self { queue, abandon, .. } = self;
        for (_, abandon) in abandon.extract_if(|batch, _| !queue.is_awaited(*batch)) {
            let _ = abandon.send(Abandoned);
        }
    }
}

pub(crate) fn operation<K, T>(content: &Content<K, T>) -> Operation {
    match content {
        Content::Read(_) => Operation::Read,
        Content::Write(_) => Operation::Write,
    }
}
