//! What the handles, the driver and the trips of a batcher share: the line under its lock, and the
//! driver's bell.
//!
//! User code runs under the lock only as the line must call it: `Hash`, `Eq`, `Ord` and `Clone` of
//! keys, and the methods of `Write`. Replies are called and dropped outside.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::batcher::BatcherSettings;
use crate::clock::Clock;
use crate::service::{Receipt, Reply, Service};
use crate::{
    Answered, Ask, BatchId, Content, Line, LineStats, Operation, Refusal, Refused, RequestId,
    SettingsError,
};

pub(crate) struct Shared<S: Service, R: Reply<S>> {
    pub(crate) service: Arc<S>,
    pub(crate) clock: Clock,
    /// Rings for the driver, which answers all rings before its look at the line with that look.
    pub(crate) wake: Arc<Notify>,
    /// Rings once, for all, when the driver has ended.
    pub(crate) ended: Notify,
    timeout: Option<Duration>,
    state: Mutex<State<S, R>>,
    /// Something was submitted and no flush came behind it.
    unflushed: AtomicBool,
}

pub(crate) struct State<S: Service, R: Reply<S>> {
    pub(crate) line: Line<S::Key, S::Write, R>,
    pub(crate) phase: Phase,
    /// Requests taken whose replies have not been called yet.
    pub(crate) owed: usize,
    /// The trip that ended last answered several callers. They run now or soon, and ask again.
    answered: Company,
    /// Emptied by the trip that ended last, for the next. Holds no more than the line may.
    spare: Vec<EndedWaiter<S, R>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    Alone,
    Several,
}

/// A waiter of a batch that ended, with the index of its entry.
pub(crate) type EndedWaiter<S, R> = (usize, Answered<R, Receipt<S>>);

/// Only ever advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Open,
    /// Takes nothing more and serves what it has.
    Closing,
    /// No handle is left: what waits is given back unserved.
    Abandoned,
    /// There is no driver.
    Ended,
}

impl<S: Service, R: Reply<S>> Shared<S, R> {
    pub(crate) fn new(
        service: S,
        settings: BatcherSettings,
        clock: Clock,
    ) -> Result<Self, SettingsError> {
        let line = Line::new(settings.line)?;
        Ok(Self {
            service: Arc::new(service),
            clock,
            wake: Arc::default(),
            ended: Notify::new(),
            timeout: settings.timeout,
            state: Mutex::new(State::new(line)),
            unflushed: AtomicBool::new(false),
        })
    }

    /// The line. A panic under the lock is one of the user's key or write, which the caller whose
    /// it is gets to see; the others go on.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<S, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn submit_load(
        &self,
        key: S::Key,
        reply: R,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused<R>> {
        let now = self.clock.now();
        let ask = self.ask(now, &key, deadline);
        self.submit(reply, |line, reply| line.read(now, key, reply, ask))
    }

    pub(crate) fn submit_store(
        &self,
        key: S::Key,
        write: S::Write,
        reply: R,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused<R>> {
        let now = self.clock.now();
        let ask = self.ask(now, &key, deadline);
        self.submit(reply, |line, reply| line.write(now, key, write, reply, ask))
    }

    fn ask(&self, now: Duration, key: &S::Key, deadline: Option<Instant>) -> Ask {
        let by_default = || self.timeout.map(|timeout| now.saturating_add(timeout));
        let deadline = deadline.map(|deadline| self.clock.of(deadline)).or_else(by_default);
        Ask { bytes: self.service.key_bytes(key), deadline }
    }

    fn submit(
        &self,
        reply: R,
        join: impl FnOnce(&mut Line<S::Key, S::Write, R>, R) -> Result<RequestId, Refused<R>>,
    ) -> Result<RequestId, Refused<R>> {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(Refused { waiter: reply, reason: Refusal::Closed });
        }
        let request = join(&mut state.line, reply)?;
        state.owed += 1;
        self.unflushed.store(true, Ordering::Release);
        Ok(request)
    }

    pub(crate) fn flush(&self) {
        if self.unflushed.load(Ordering::Acquire) && self.unflushed.swap(false, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// Whether the driver, before it lets a batch leave, lets the tasks run that can: others may be
    /// about to ask. Only a lone request with nothing else going on has nobody to wait for, not
    /// even for that.
    pub(crate) fn expects_company(&self) -> bool {
        let state = self.lock();
        state.answered == Company::Several || 1 < state.line.waiting() || 0 < state.line.in_flight()
    }

    /// The trip of `batch` is over: frees its place and takes who still waits for it.
    /// [`settle`](Self::settle) must follow.
    pub(crate) fn end_batch(&self, batch: BatchId) -> Vec<EndedWaiter<S, R>> {
        let mut state = self.lock();
        let mut waiters = std::mem::take(&mut state.spare);
        state.line.end(self.clock.now(), batch, &mut waiters);
        state.answered = if waiters.len() < 2 { Company::Alone } else { Company::Several };
        waiters
    }

    /// The waiters of a batch have been answered, `given` of them: lets the next batches leave.
    pub(crate) fn settle(&self, emptied: Vec<EndedWaiter<S, R>>, given: usize) {
        let mut state = self.lock();
        state.owed -= given;
        state.spare = emptied;
        let idle = state.phase == Phase::Open && state.line.waiting() == 0;
        drop(state);
        if !idle {
            self.wake.notify_one();
        }
    }

    pub(crate) fn cancel(&self, request: RequestId) {
        let mut state = self.lock();
        let left = state.line.leave(request);
        if left.is_some() {
            state.owed -= 1;
        }
        // Others may have waited for this one, and so may the end of the driver.
        let look = 0 < state.line.waiting() || state.phase != Phase::Open;
        drop(state);
        drop(left);
        if look {
            self.wake.notify_one();
        }
    }

    /// Advances to `phase`, and lets the driver see to it.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = state.phase.max(phase);
        drop(state);
        self.wake.notify_one();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock().phase == Phase::Ended
    }

    pub(crate) fn stats(&self) -> LineStats {
        *self.lock().line.stats()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lock().line.waiting()
    }
}

impl<S: Service, R: Reply<S>> State<S, R> {
    fn new(line: Line<S::Key, S::Write, R>) -> Self {
        Self { line, phase: Phase::Open, owed: 0, answered: Company::Alone, spare: Vec::new() }
    }
}

pub(crate) fn operation<K, T>(content: &Content<K, T>) -> Operation {
    match content {
        Content::Read(_) => Operation::Read,
        Content::Write { .. } => Operation::Write,
    }
}
