//! The long-lived connections of a table: some that it keeps, and further ones while it needs them.
//!
//! ```text
//!            +-- slot 0: task opens, waits for the end, opens again --+
//!  start --> +-- slot 1: ...                                          +--> state (one short lock)
//!            +-- slot 4: parked, or opens once; parked when lost, idle+      ^
//!            +-- slot K-1 ...                              acquire, leases --+
//! ```
//!
//! * **Acquire** looks at all slots and takes the first open session without leases, else the one
//!   with the fewest (statements on one connection are pipelined); a read prefers one without
//!   writes, which may wait for locks. It never leases a session that has ended or was given up.
//! * **Growth.** The first slots always want a session. When leases share sessions, one more is
//!   opened in the background, up to the table's maximum; nobody waits for it. It is
//!   closed after a minute without use. If the server refuses it, there is a pause of 5 s.
//! * **Waiting.** The attempts that follow the start, or the loss of a session that had worked, are
//!   worth waiting for: a killed backend delays its clients a moment instead of failing them. When
//!   one of these attempts has failed, every caller gets the error at once, until an attempt
//!   succeeds. A caller that waits brings a deadline of its own.
//! * **Backoff** per slot: 100 ms, doubled up to 5 s, less up to half of it by chance, so that many
//!   tables do not return to a restarted server in step. A session that was open for longer than
//!   the next pause resets it.
//! * **Logging**: one line when the first connection is lost or fails, one when all are open
//!   (again).
//! * **Shutdown**: `close` ends the tasks; a session ends when its last lease is gone. Dropping the
//!   pool does the same.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    Error, Settings,
    limits::{CONNECTIONS_KEPT, LOSS_NOTICED_MAX},
    pool::{
        backoff::Backoff,
        slots::{Choice, Opened, Slots},
    },
};

pub use slots::Purpose;

mod backoff;
mod health;
mod slots;

/// A connection as the pool sees it: the pool keeps K of them open.
pub trait Session: Sized + Send + Sync + 'static {
    /// State that all sessions of a pool share.
    type Context: Send + Sync + 'static;
    /// Opens a session: connects, checks, prepares. The pool limits its time.
    fn open(
        settings: &Arc<Settings>,
        context: &Arc<Self::Context>,
    ) -> impl Future<Output = Result<Self, Error>> + Send;
    /// Resolves when the session can no longer be used, with the reason as a text for people
    /// ([`Ended::wait`](crate::connect::Ended::wait)).
    fn ended(&self) -> impl Future<Output = Arc<str>> + Send;
    /// Returns whether the session has ended already. An ended session is never leased.
    fn is_over(&self) -> bool;
}

/// Slots for sessions, each with a task while a session is wanted.
pub struct Pool<S: Session> {
    shared: Arc<PoolInner<S>>,
    settings: Arc<Settings>,
    context: Arc<S::Context>,
    tasks: Mutex<JoinSet<()>>,
}

/// State and counters of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Number of open sessions.
    pub up: usize,
    /// Number of sessions that should be open.
    pub wanted: usize,
    /// Number of sessions opened since the start.
    pub opened: u64,
    /// Number of sessions that ended by themselves since the start.
    pub lost: u64,
    /// Number of attempts that failed since the start.
    pub failed: u64,
    /// Error of the last attempt or of the last session's end; `None` when all are open.
    pub last_error: Option<Error>,
}

impl<S: Session> Pool<S> {
    /// Starts opening the sessions that are always wanted, on the current tokio runtime.
    pub fn start(settings: Arc<Settings>, context: Arc<S::Context>) -> Self {
        let kept = settings.connections.min(CONNECTIONS_KEPT);
        let slots = Slots::new(settings.name.clone(), kept, settings.connections);
        let shared =
            Arc::new(PoolInner { slots: Mutex::new(slots), changed: watch::Sender::new(()) });
        let mut tasks = JoinSet::new();
        for slot in 0..kept {
            let maintainer = Maintainer { shared: shared.clone(), slot };
            tasks.spawn(maintainer.keep_open(settings.clone(), context.clone()));
        }
        Self { shared, settings, context, tasks: Mutex::new(tasks) }
    }

    /// Leases, for a read, an idle session, else the one with the fewest leases among those with
    /// the fewest writes. When none is open, it waits for the first attempts since the start or
    /// since a connection was lost; after those it returns the last error at once.
    pub async fn acquire(&self) -> Result<Lease<S>, Error> {
        self.acquire_for(Purpose::Read).await
    }

    /// Leases a session like `acquire`; for a write the one with the fewest leases.
    pub async fn acquire_for(&self, purpose: Purpose) -> Result<Lease<S>, Error> {
        let lease = self.shared.acquire(purpose, None).await?;
        self.grow();
        Ok(lease)
    }

    /// Leases a session like `acquire`, but never that of `than`: for the one retry of a read whose
    /// session was lost. The pool may hear of a session's end a moment later than the session's
    /// user; it waits that long for a replacement of an only session.
    pub async fn acquire_other(&self, than: &Lease<S>) -> Result<Lease<S>, Error> {
        self.shared.acquire(than.purpose, Some(&than.opened)).await
    }

    /// Gives up a session that is useless (the schema changed, it hangs, its connection is lost):
    /// it is never leased again, closed when its last lease is gone, and opened anew. Repeated
    /// calls for one session count once.
    pub fn reopen(&self, lease: &Lease<S>) {
        lease.opened.retire();
    }

    /// Waits until it is known whether the server can be reached; returns `Ok` when a session is
    /// open, else the last error.
    pub async fn first_attempt(&self) -> Result<(), Error> {
        self.acquire().await.map(drop)
    }

    /// Opens no more sessions, gives up those it has and ends its tasks. Existing leases stay
    /// usable; new ones are refused.
    pub async fn close(&self) {
        self.shared.change(Slots::close);
        let mut tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        tasks.shutdown().await;
    }

    /// Returns the state and the counters.
    pub fn state(&self) -> PoolState {
        self.shared.slots().state()
    }

    /// Returns whether further sessions are being opened, and may soon be open.
    pub fn is_growing(&self) -> bool {
        self.shared.slots().is_growing(Instant::now())
    }

    /// Opens a further session in the background if leases share sessions.
    fn grow(&self) {
        // Closing takes the tasks after it has closed the slots, so it misses no task.
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = self.shared.slots().grow(Instant::now()) else { return };
        let maintainer = Maintainer { shared: self.shared.clone(), slot };
        while tasks.try_join_next().is_some() {}
        tasks.spawn(maintainer.open_once(self.settings.clone(), self.context.clone()));
    }
}

impl<S: Session> fmt::Debug for Pool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("state", &self.state()).finish_non_exhaustive()
    }
}

/// The right to use a session; counts as load until it is dropped.
pub struct Lease<S: Session> {
    opened: Arc<Opened<S>>,
    purpose: Purpose,
}

impl<S: Session> Deref for Lease<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.opened.session
    }
}

impl<S: Session> Drop for Lease<S> {
    fn drop(&mut self) {
        self.opened.give_back(self.purpose);
    }
}

impl<S: Session> fmt::Debug for Lease<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

struct PoolInner<S: Session> {
    slots: Mutex<Slots<S>>,
    /// Notified after every change of the slots.
    changed: watch::Sender<()>,
}

impl<S: Session> PoolInner<S> {
    async fn acquire(
        &self,
        purpose: Purpose,
        than: Option<&Arc<Opened<S>>>,
    ) -> Result<Lease<S>, Error> {
        let mut changed = None;
        loop {
            let choice = self.slots().choose(purpose, than);
            // A caller that must wait checks again once it is registered and can miss no change.
            match (choice, &mut changed) {
                (Choice::Session(opened), _) => return Ok(Lease { opened, purpose }),
                (Choice::Error(error), _) => return Err(error),
                (_, None) => changed = Some(self.changed.subscribe()),
                (Choice::Wait, Some(changed)) => {
                    changed.changed().await.map_err(|_| Error::Closed)?
                }
                (Choice::NoOther(error), Some(changed)) => {
                    timeout(LOSS_NOTICED_MAX, changed.changed())
                        .await
                        .map_err(|_| error)?
                        .map_err(|_| Error::Closed)?;
                }
            }
        }
    }

    /// Changes the slots, wakes the waiters, and logs noteworthy changes.
    fn change(&self, change: impl FnOnce(&mut Slots<S>) -> Option<LogLine>) {
        let line = change(&mut self.slots());
        self.changed.send_replace(());
        match line {
            Some(LogLine::Trouble(text)) => log::warn!("{text}"),
            Some(LogLine::Recovery(text)) => log::info!("{text}"),
            None => {}
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots<S>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LogLine {
    Trouble(String),
    Recovery(String),
}

/// Task that keeps one slot's session open.
struct Maintainer<S: Session> {
    shared: Arc<PoolInner<S>>,
    slot: usize,
}

impl<S: Session> Maintainer<S> {
    /// Opens a further session and keeps it until it ends or is idle.
    async fn open_once(self, settings: Arc<Settings>, context: Arc<S::Context>) {
        match open::<S>(&settings, &context).await {
            Ok(session) => {
                let opened = Arc::new(Opened::new(session));
                self.change(|slots, slot| slots.opened(slot, opened.clone()));
                tokio::select! {
                    end = opened.end() => self.update(|slots, slot| slots.ended_further(slot, end)),
                    () = opened.idle() => self.update(Slots::park),
                }
            }
            Err(error) => self.change(|slots, slot| slots.failed(slot, error)),
        }
    }

    /// Keeps a session open.
    async fn keep_open(self, settings: Arc<Settings>, context: Arc<S::Context>) {
        let mut backoff = Backoff::default();
        loop {
            let pause = match open::<S>(&settings, &context).await {
                Ok(session) => self.stay_open(session, &mut backoff).await,
                Err(error) => {
                    self.change(|slots, slot| slots.failed(slot, error));
                    Some(backoff.after_failure())
                }
            };
            if let Some(pause) = pause {
                sleep(pause).await;
            }
        }
    }

    /// Waits until the session ends or is given up; returns the pause before the next attempt.
    async fn stay_open(&self, session: S, backoff: &mut Backoff) -> Option<Duration> {
        let opened = Arc::new(Opened::new(session));
        let since = Instant::now();
        self.change(|slots, slot| slots.opened(slot, opened.clone()));
        let end = opened.end().await;
        let pause = backoff.after_session(since.elapsed());
        self.change(|slots, slot| slots.ended(slot, end, pause));
        pause
    }

    fn update(&self, change: impl FnOnce(&mut Slots<S>, usize)) {
        self.change(|slots, slot| {
            change(slots, slot);
            None
        });
    }

    fn change(&self, change: impl FnOnce(&mut Slots<S>, usize) -> Option<LogLine>) {
        self.shared.change(|slots| change(slots, self.slot));
    }
}

/// A panic in a session's opening must not leave callers waiting for it.
impl<S: Session> Drop for Maintainer<S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.change(|slots, slot| slots.failed(slot, Error::Panicked));
        }
    }
}

/// Opens a session in bounded time: connecting has its own timeout, the steps after it have none.
async fn open<S: Session>(settings: &Arc<Settings>, context: &Arc<S::Context>) -> Result<S, Error> {
    let server = &settings.server;
    let attempts = u32::try_from(2 * server.hosts.len() + 2).unwrap_or(u32::MAX);
    let limit = server.connect_timeout.saturating_mul(attempts);
    match timeout(limit, S::open(settings, context)).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let text =
                format!("cannot connect to postgres at {server}: no session within {limit:?}");
            Err(Error::CannotConnect(text.into()))
        }
    }
}

#[cfg(test)]
mod tests;
