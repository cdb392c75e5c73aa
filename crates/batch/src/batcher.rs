//! The async front of the line: callers ask for single keys and await, a [`Service`] makes the
//! trips.
//!
//! ```text
//!  load, store ---> line ----> driver ----> one task per trip ----> Service::load, Service::store
//!  (any task)     (a mutex)   (one task)           |
//!       ^                         ^ timer          |
//!       +------- answers, outside the lock --------+
//! ```
//!
//! A request is put in the line under a short lock and the driver is woken, which runs after the
//! tasks that can run now: what they ask for leaves together. When a trip ends its waiters are
//! answered first and the driver looks again behind them, so what they ask for next leaves in the
//! next batch. All rules of order, limits and departure are those of [`Line`](crate::Line).
//!
//! * Overload: a full line refuses at once ([`BatchError::Full`]); nothing else is unbounded.
//! * Giving up: a dropped future leaves the line. It harms nobody else, and a batch under way goes
//!   on without it.
//! * Deadlines: a request that is late gets [`BatchError::TooLate`]. Its batch, if under way, goes
//!   on and keeps its place in the order of its keys.
//! * Shutdown: [`close`](Batcher::close) serves what has been taken and takes nothing more. When
//!   the last handle is dropped the waiting get [`BatchError::Closed`], and batches under way still
//!   answer. A runtime that shuts down leaves nobody hanging either. The driver and the timer's
//!   thread end with the last request.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot::Receiver;

use crate::clock::Clock;
use crate::driver::Driver;
use crate::oneshot::Oneshot;
use crate::service::{BatchError, Loaded, Reply, Service, Stored};
use crate::shared::{Phase, Shared};
use crate::{LineSettings, LineStats, Refused, RequestId, SettingsError};

/// What a [`Batcher`] may hold, when its batches leave, and how long its callers wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatcherSettings {
    /// The waiting line.
    pub line: LineSettings,
    /// How long a request may take, from when it is asked to its answer, unless it says otherwise.
    /// `None`: forever.
    pub timeout: Option<Duration>,
}

/// Makes single-key requests of many callers into few trips of a [`Service`].
///
/// Clones are handles of the same line. They may be used on any thread; the trips run on the
/// runtime it was started on. A lone request leaves at once. Those that tasks ask for at the same
/// time share trips, and so do those that come while trips are under way, as
/// [`LineSettings::departure`] says. All rules of order and sharing are those of
/// [`Line`](crate::Line): a read asked after a write was acknowledged sees it.
///
/// * Overload: a full line refuses at once with [`BatchError::Full`].
/// * A caller that gives up drops its future. That harms nobody else, and a trip under way goes on.
/// * Deadlines: who is late gets [`BatchError::TooLate`]. A trip under way goes on and keeps its
///   place in the order of its keys.
/// * Shutdown: [`close`](Self::close) serves what was taken. When the last handle is dropped, the
///   waiting get [`BatchError::Closed`], and trips under way still answer. When its runtime shuts
///   down, the waiting get [`BatchError::Closed`] and those of trips under way
///   [`BatchError::Stopped`].
///
/// ```
/// use busload_batch::{Batcher, BatcherSettings};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// /// One trip, at the same price for one key or for many.
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

/// What all clones share; the last of them ends the driver.
struct Handle<S: Service, R: Reply<S>> {
    shared: Arc<Shared<S, R>>,
}

impl<S: Service, R: Reply<S>> Drop for Handle<S, R> {
    fn drop(&mut self) {
        self.shared.enter(Phase::Abandoned);
    }
}

impl<S: Service, R: Reply<S>> Batcher<S, R> {
    /// Starts a batcher on the current tokio runtime, with the kind of replies that its type says.
    /// [`from_service`](Batcher::from_service) is this for callers that await.
    ///
    /// # Errors
    /// The first setting that makes no sense.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(service: S, settings: BatcherSettings) -> Result<Self, SettingsError> {
        Self::start_by(Clock::start(), service, settings)
    }

    fn start_by(
        clock: Clock,
        service: S,
        settings: BatcherSettings,
    ) -> Result<Self, SettingsError> {
        let shared = Arc::new(Shared::new(service, settings, clock)?);
        tokio::spawn(Driver::new(Arc::clone(&shared)).run());
        Ok(Self { handle: Arc::new(Handle { shared }) })
    }

    /// The service that makes the trips.
    pub fn service(&self) -> &Arc<S> {
        &self.shared().service
    }

    /// Puts a read in the line; `reply` gets its answer. `deadline` takes the place of the
    /// settings' `timeout`.
    ///
    /// This does not wake the driver, so that a loop over many requests wakes it once: call
    /// [`flush`](Self::flush) behind it.
    ///
    /// # Errors
    /// Gives the reply back, uncalled, if the line is full or closed.
    pub fn submit_load(
        &self,
        key: S::Key,
        reply: R,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused<R>> {
        self.shared().submit_load(key, reply, deadline)
    }

    /// Puts a write in the line; otherwise as [`submit_load`](Self::submit_load).
    ///
    /// # Errors
    /// Gives the reply back, uncalled, if the line is full or closed. The write is dropped.
    pub fn submit_store(
        &self,
        key: S::Key,
        write: S::Write,
        reply: R,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused<R>> {
        self.shared().submit_store(key, write, reply, deadline)
    }

    /// Lets what was submitted leave. Costs next to nothing if nothing was.
    pub fn flush(&self) {
        self.shared().flush();
    }

    /// The caller of a request gave up: its reply is dropped, uncalled. Nothing happens if it has
    /// been answered.
    pub fn cancel(&self, request: RequestId) {
        self.shared().cancel(request);
    }

    /// What the line has done so far.
    pub fn stats(&self) -> LineStats {
        self.shared().stats()
    }

    /// Requests that wait in the line now; those of batches under way are not counted.
    pub fn waiting(&self) -> usize {
        self.shared().waiting()
    }

    /// Takes nothing more, and returns when all that was taken has been answered.
    ///
    /// Further requests get [`BatchError::Closed`]. What waits is still sent. With a `timeout` this
    /// takes no longer than that; without one as long as the service needs. A trip for which nobody
    /// waits any more is not waited for. Dropping the future does not open the batcher again.
    pub async fn close(&self) {
        self.shared().enter(Phase::Closing);
        loop {
            // Made before the look, so that an end between both is not missed.
            let ended = self.shared().ended.notified();
            if self.shared().has_ended() {
                return;
            }
            ended.await;
        }
    }

    fn shared(&self) -> &Shared<S, R> {
        &self.handle.shared
    }
}

impl<S: Service> Batcher<S> {
    /// Starts a batcher for callers that await, on the current tokio runtime.
    ///
    /// # Errors
    /// The first setting that makes no sense.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn from_service(service: S, settings: BatcherSettings) -> Result<Self, SettingsError> {
        Self::start(service, settings)
    }

    /// Reads one key; `None` if there is nothing under it. Asks when first polled; dropping the
    /// future leaves the line.
    ///
    /// # Errors
    /// See [`BatchError`].
    pub async fn load(&self, key: S::Key) -> Loaded<S> {
        let asked = self.ask_load(key)?;
        self.flush();
        asked.answer().await
    }

    /// Reads many keys, each as [`load`](Self::load) does, and gives their answers in the order of
    /// `keys`. They may leave in one batch or in several, together with those of others.
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

    /// Writes one key. Asks when first polled. Dropping the future leaves the line, but a write
    /// whose batch is under way, or that another one was merged with, is made all the same.
    ///
    /// # Errors
    /// See [`BatchError`]; [`BatchError::outcome_unknown`] tells whether it may have been made.
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

/// A request whose answer is awaited; dropped before that, it leaves the line.
struct Asked<'a, S: Service, A> {
    batcher: &'a Batcher<S>,
    /// `None` once answered.
    request: Option<RequestId>,
    receiver: Receiver<A>,
}

impl<S: Service, T> Asked<'_, S, Result<T, BatchError<S::Error>>> {
    async fn answer(mut self) -> Result<T, BatchError<S::Error>> {
        let answer = (&mut self.receiver).await;
        self.request = None;
        // Every reply is called; one that was dropped instead is that of a line that went down in a
        // panic.
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
