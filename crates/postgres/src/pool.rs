//! The K long-lived connections of a table.

use std::{ops::Deref, sync::Arc};

use crate::{Error, Settings};

/// What the pool keeps K of.
pub trait Session: Sized + Send + Sync + 'static {
    /// What all sessions of a pool share.
    type Context: Send + Sync + 'static;
    /// Opens one: connects, checks, prepares. Bounded by the pool in time.
    fn open(
        settings: &Arc<Settings>,
        context: &Arc<Self::Context>,
    ) -> impl Future<Output = Result<Self, Error>> + Send;
    /// Resolves when the session can no longer be used, with the reason as a text for people
    /// ([`Ended::wait`](crate::connect::Ended::wait)).
    fn ended(&self) -> impl Future<Output = Arc<str>> + Send;
    /// Whether it has ended already. A session that has is never leased.
    fn is_over(&self) -> bool;
}

/// K slots, each with a task that keeps a session open.
#[derive(Debug)]
pub struct Pool<S: Session> {
    shared: Arc<S>,
}

impl<S: Session> Pool<S> {
    /// Starts to open `settings.connections` sessions, on the current tokio runtime.
    pub fn start(settings: Arc<Settings>, context: Arc<S::Context>) -> Self {
        let _ = (settings, context);
        unreachable!("not yet")
    }

    /// An idle session, else the one with the fewest leases. When none is open, waits for attempts that are the
    /// first since the start or since a connection was lost; behind that, the last error at once.
    pub async fn acquire(&self) -> Result<Lease<S>, Error> {
        Err(Error::Closed)
    }

    /// Like `acquire`, but never the session of `than`: for the one retry of a read.
    pub async fn acquire_other(&self, than: &Lease<S>) -> Result<Lease<S>, Error> {
        let _ = than;
        Err(Error::Closed)
    }

    /// This session is useless (the schema changed, it hangs): never leased again, closed when the last lease is
    /// gone, opened anew.
    pub fn reopen(&self, lease: &Lease<S>) {
        let _ = lease;
    }

    /// Waits until it is known whether the server can be reached: then `Ok` when a session is open, else the last
    /// error.
    pub async fn first_attempt(&self) -> Result<(), Error> {
        Err(Error::Closed)
    }

    /// Opens nothing any more, gives up its sessions and ends its tasks. Leases stay usable.
    pub async fn close(&self) {}

    /// For statistics.
    pub fn state(&self) -> PoolState {
        PoolState::default()
    }
}

/// What a pool is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Sessions that are open.
    pub up: usize,
    /// Sessions that should be.
    pub wanted: usize,
    /// Sessions opened since the start.
    pub opened: u64,
    /// Sessions that ended by themselves since the start.
    pub lost: u64,
    /// Attempts that failed since the start.
    pub failed: u64,
    /// Why the last attempt failed or the last session ended; `None` when all are open.
    pub last_error: Option<Error>,
}

/// The right to use a session; counts as load until it is dropped.
#[derive(Debug)]
pub struct Lease<S: Session> {
    opened: Arc<S>,
}

impl<S: Session> Deref for Lease<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.opened
    }
}
