//! The async front of the request queue: callers ask for single keys and await, and a [`Service`]
//! carries out the batches.
//!
//! ```text
//!  load, store --> queue ----> driver ----> one task per batch ---> Service::load, Service::store
//!  (any task)     (a mutex)   (one task)           |
//!       ^                         ^ timer          |
//!       +------- answers, outside the lock --------+
//! ```
//!
//! A caller puts its request in the queue under a short lock and wakes the driver. The driver runs
//! after the tasks that are runnable now, so their requests are dispatched together. When a batch
//! ends, its waiters are answered first; the driver runs after them, so their next requests go into
//! the next batch. [`RequestQueue`](crate::RequestQueue) has all rules of order, limits and
//! dispatch.
//!
//! * Overload: a full queue refuses at once ([`BatchError::Full`]); nothing else is unbounded.
//! * Cancellation: dropping a future removes its request from the queue. Other requests are not
//!   affected, and a batch in flight goes on without it.
//! * Deadlines: a request whose deadline passes gets [`BatchError::TooLate`]. If its batch is in
//!   flight, the batch goes on and keeps its place in the order of its keys.
//! * Shutdown: [`close`](Batcher::close) serves the requests it has taken and takes no more. When
//!   the last handle is dropped, queued requests get [`BatchError::Closed`], and batches in flight
//!   still answer. A runtime that shuts down leaves no caller without an answer either. The driver
//!   and the timer's thread end with the last request.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot::Receiver;

use crate::clock::Clock;
use crate::core::{BatcherCore, Phase};
use crate::driver::Driver;
use crate::oneshot::Oneshot;
use crate::service::{BatchError, Loaded, Reply, Service, Stored};
use crate::{QueueLatencies, QueueSettings, QueueStats, Refused, RequestId, SettingsError};

/// Limits, dispatch policy and default timeout of a [`Batcher`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatcherSettings {
    /// Settings of the request queue.
    pub queue: QueueSettings,
    /// Time from request to answer after which a request without a deadline of its own fails.
    /// `None`: no timeout.
    pub timeout: Option<Duration>,
}

/// Turns single-key requests of many callers into few batches for a [`Service`].
///
/// Clones are handles of the same queue and may be used on any thread; the batches run on the
/// runtime that the batcher was started on. A lone request is sent at once. Requests that tasks
/// make at the same time share a batch, and so do requests that come while batches are in flight,
/// as [`QueueSettings::dispatch`] says. [`RequestQueue`](crate::RequestQueue) has all rules of
/// order and sharing: a read that was made after a write was acknowledged sees that write.
///
/// * Overload: a full queue refuses at once with [`BatchError::Full`].
/// * Cancellation: a caller that gives up drops its future. Other requests are not affected, and a
///   batch in flight goes on.
/// * Deadlines: a request whose deadline passes gets [`BatchError::TooLate`]. A batch in flight
///   goes on and keeps its place in the order of its keys.
/// * Shutdown: [`close`](Self::close) serves the requests it has taken. When the last handle is
///   dropped, queued requests get [`BatchError::Closed`], and batches in flight still answer. When
///   its runtime shuts down, queued requests get [`BatchError::Closed`] and requests in flight get
///   [`BatchError::Stopped`].
///
/// ```
/// use busload_batch::{Batcher, BatcherSettings};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// /// Serves one batch; one key costs as much as many.
/// async fn squares(numbers: Vec<u64>) -> Vec<Option<u64>> {
///     numbers.into_iter().map(|number| number.checked_mul(number)).collect()
/// }
///
/// let batcher = Batcher::from_load(squares, BatcherSettings::default())?;
/// let three = tokio::join!(batcher.load(3), batcher.load(7), batcher.load(u64::MAX));
/// assert_eq!(three, (Ok(Some(9)), Ok(Some(49)), Ok(None)));
/// assert_eq!(batcher.stats().reads.batches, 1);
/// # Ok(())
/// # }
/// ```
pub struct Batcher<S: Service, R: Reply<S> = Oneshot<S>> {
    handle: Arc<Handle<S, R>>,
}

/// State that all clones share; dropping the last clone ends the driver.
struct Handle<S: Service, R: Reply<S>> {
    core: Arc<BatcherCore<S, R>>,
}

impl<S: Service, R: Reply<S>> Drop for Handle<S, R> {
    fn drop(&mut self) {
        self.core.enter(Phase::Abandoned);
    }
}

impl<S: Service, R: Reply<S>> Batcher<S, R> {
    /// Starts a batcher on the current tokio runtime, with the kind of replies that its type names.
    /// [`from_service`](Batcher::from_service) does the same for callers that await.
    ///
    /// # Errors
    /// Returns the first setting that makes no sense.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn start(service: S, settings: BatcherSettings) -> Result<Self, SettingsError> {
        Self::start_by(Clock::start(), service, settings)
    }

    fn start_by(
        clock: Clock,
        service: S,
        settings: BatcherSettings,
    ) -> Result<Self, SettingsError> {
        let core = Arc::new(BatcherCore::new(service, settings, clock)?);
        tokio::spawn(Driver::new(Arc::clone(&core)).run());
        Ok(Self { handle: Arc::new(Handle { core }) })
    }

    /// Returns the service that carries out the batches.
    pub fn service(&self) -> &Arc<S> {
        &self.core().service
    }

    /// Puts a read in the queue; `reply` gets its answer. `deadline` replaces the settings'
    /// `timeout`.
    ///
    /// This does not wake the driver, so that a loop over many requests wakes it once: call
    /// [`flush`](Self::flush) after the loop.
    ///
    /// # Errors
    /// Returns the reply, uncalled, if the queue is full or closed.
    pub fn submit_load(
        &self,
        key: S::Key,
        reply: R,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused<R>> {
        self.core().submit_load(key, reply, deadline)
    }

    /// Puts a write in the queue; otherwise like [`submit_load`](Self::submit_load).
    ///
    /// # Errors
    /// Returns the reply, uncalled, if the queue is full or closed. The write is dropped.
    pub fn submit_store(
        &self,
        key: S::Key,
        write: S::Write,
        reply: R,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused<R>> {
        self.core().submit_store(key, write, reply, deadline)
    }

    /// Wakes the driver to send the submitted requests. Costs almost nothing if there are none.
    pub fn flush(&self) {
        self.core().flush();
    }

    /// Cancels a request: its reply is dropped, uncalled. Does nothing if the request has been
    /// answered.
    pub fn cancel(&self, request: RequestId) {
        self.core().cancel(request);
    }

    /// Returns the counters of the queue.
    pub fn stats(&self) -> QueueStats {
        self.core().stats()
    }

    /// Returns how long requests waited in the queue and batches took.
    pub fn latencies(&self) -> Arc<QueueLatencies> {
        self.core().latencies()
    }

    /// Returns the number of requests that count against
    /// [`requests_max`](QueueSettings::requests_max): those in the queue, and with
    /// [`DispatchPolicy::Immediate`](crate::DispatchPolicy::Immediate) those in flight.
    pub fn waiting(&self) -> usize {
        self.core().waiting()
    }

    /// Takes no more requests, and returns when all requests it has taken are answered.
    ///
    /// Further requests get [`BatchError::Closed`]; queued requests are still sent. With a
    /// `timeout` this takes no longer than that; without one it takes as long as the service needs.
    /// It does not wait for a batch whose waiters have all gone. Dropping the future does not open
    /// the batcher again.
    pub async fn close(&self) {
        self.core().enter(Phase::Closing);
        loop {
            // Registered before the check, so that a notification between both is not missed.
            let ended = self.core().ended.notified();
            if self.core().has_ended() {
                return;
            }
            ended.await;
        }
    }

    fn core(&self) -> &BatcherCore<S, R> {
        &self.handle.core
    }
}

impl<S: Service> Batcher<S> {
    /// Starts a batcher for callers that await, on the current tokio runtime.
    ///
    /// # Errors
    /// Returns the first setting that makes no sense.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn from_service(service: S, settings: BatcherSettings) -> Result<Self, SettingsError> {
        Self::start(service, settings)
    }

    /// Reads one key; `None` if the key has no value. The request is made when the future is first
    /// polled, and cancelled when the future is dropped.
    ///
    /// # Errors
    /// Returns a [`BatchError`] if the request was refused, late, or failed.
    pub async fn load(&self, key: S::Key) -> Loaded<S> {
        let asked = self.ask_load(key)?;
        self.flush();
        asked.answer().await
    }

    /// Reads many keys, each as [`load`](Self::load) does, and returns their answers in the order
    /// of `keys`. They may go into one batch or several, together with requests of others.
    pub async fn load_many(&self, keys: impl IntoIterator<Item = S::Key>) -> Vec<Loaded<S>> {
        let asked: Vec<_> = keys.into_iter().map(|key| self.ask_load(key)).collect();
        self.flush();
        let mut answers = Vec::with_capacity(asked.len());
        for one in asked {
            answers.push(match one {
                Ok(asked) => asked.answer().await,
                Err(error) => Err(error),
            });
        }
        answers
    }

    /// Writes one key. The request is made when the future is first polled. Dropping the future
    /// cancels it, except that a write whose batch is in flight, or that another write was merged
    /// with, is still made.
    ///
    /// # Errors
    /// Returns a [`BatchError`]; [`BatchError::outcome_unknown`] tells whether the write may have
    /// been made.
    pub async fn store(&self, key: S::Key, write: impl Into<S::Write>) -> Stored<S> {
        let (reply, receiver) = Oneshot::store();
        let request =
            self.submit_store(key, write.into(), reply, None).map_err(|refused| refused.reason)?;
        let asked = Asked { batcher: self, request: Some(request), receiver };
        self.flush();
        asked.answer().await
    }

    fn ask_load(&self, key: S::Key) -> Result<Asked<'_, S, Loaded<S>>, BatchError<S::Error>> {
        let (reply, receiver) = Oneshot::load();
        let request = self.submit_load(key, reply, None).map_err(|refused| refused.reason)?;
        Ok(Asked { batcher: self, request: Some(request), receiver })
    }
}

/// A request whose caller awaits the answer; dropping it before that cancels the request.
struct Asked<'a, S: Service, A> {
    batcher: &'a Batcher<S>,
    /// Request to cancel on drop; `None` once answered.
    request: Option<RequestId>,
    receiver: Receiver<A>,
}

impl<S: Service, T> Asked<'_, S, Result<T, BatchError<S::Error>>> {
    async fn answer(mut self) -> Result<T, BatchError<S::Error>> {
        let answer = (&mut self.receiver).await;
        self.request = None;
        // Every reply is called; one is dropped instead only when a panic has taken the batcher
        // down.
        answer.unwrap_or(Err(BatchError::Stopped))
    }
}

impl<S: Service, A> Drop for Asked<'_, S, A> {
    fn drop(&mut self) {
        if let Some(request) = self.request {
            self.batcher.cancel(request);
        }
    }
}

impl<S: Service, R: Reply<S>> Clone for Batcher<S, R> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<S: Service, R: Reply<S>> fmt::Debug for Batcher<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
