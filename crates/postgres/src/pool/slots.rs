//! States of a pool's slots, and the choice of the next session. No IO, no waiting.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::{LogLine, PoolState, Session, health::Health};
use crate::{
    Error,
    limits::{CONNECTION_IDLE_MAX, GROWING_MAX, GROWTH_PAUSE, GROWTH_USUAL_MAX},
};

/// A session that was opened.
pub(super) struct Opened<S> {
    pub(super) session: S,
    leases: AtomicUsize,
    /// Leases for statements that may wait for locks of other transactions.
    writes: AtomicUsize,
    /// True if it was leased since the last look.
    used: AtomicBool,
    retired: AtomicBool,
    retire: Notify,
}

/// Purpose of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For a statement that reads.
    Read,
    /// For a statement that writes, and may wait for locks of other transactions.
    Write,
}

/// Cause of a session's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The session ended by itself, for this reason.
    Lost(Arc<str>),
    /// The pool's user gave it up.
    Retired,
}

impl<S: Session> Opened<S> {
    pub(super) fn new(session: S) -> Self {
        Self {
            session,
            leases: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            used: AtomicBool::new(true),
            retired: AtomicBool::new(false),
            retire: Notify::new(),
        }
    }

    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.retire.notify_one();
    }

    pub(super) fn give_back(&self, purpose: Purpose) {
        self.leases.fetch_sub(1, Ordering::Relaxed);
        if purpose == Purpose::Write {
            self.writes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn lease(&self, purpose: Purpose) {
        self.leases.fetch_add(1, Ordering::Relaxed);
        if purpose == Purpose::Write {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        self.used.store(true, Ordering::Relaxed);
    }

    /// Returns how little the session suits: reads avoid those with writes, behind which they might
    /// wait for a lock.
    fn load(&self, purpose: Purpose) -> (usize, usize) {
        let leases = self.leases.load(Ordering::Relaxed);
        match purpose {
            Purpose::Read => (self.writes.load(Ordering::Relaxed), leases),
            Purpose::Write => (0, leases),
        }
    }

    pub(super) async fn end(&self) -> End {
        tokio::select! {
            reason = self.session.ended() => End::Lost(reason),
            () = self.retire.notified() => End::Retired,
        }
    }

    /// Resolves when nobody has leased the session for [`CONNECTION_IDLE_MAX`].
    pub(super) async fn idle(&self) {
        loop {
            sleep(CONNECTION_IDLE_MAX).await;
            let leased = self.leases.load(Ordering::Relaxed) != 0;
            if !self.used.swap(false, Ordering::Relaxed) && !leased {
                return;
            }
        }
    }

    fn is_usable(&self) -> bool {
        !self.retired.load(Ordering::Acquire) && !self.session.is_over()
    }
}

/// State of one slot.
enum Slot<S> {
    /// An attempt is under way that is worth waiting for.
    Opening,
    /// A session is open.
    Open(Arc<Opened<S>>),
    /// The last attempt failed, or the last session ended early; callers do not wait for the next
    /// attempt.
    Failing,
    /// A further session is being opened since this time, which nobody waits for.
    Growing(Instant),
    /// No session is wanted.
    Parked,
}

/// The slot that `choose` found.
pub(super) enum Choice<S> {
    /// A session; its lease is already counted.
    Session(Arc<Opened<S>>),
    /// No session yet, but there may soon be one.
    Wait,
    /// No session but the excluded one.
    NoOther(Error),
    /// No session, and none to wait for.
    Error(Error),
}

/// All slots of a pool. The first ones always want a session, the others when those are in use.
pub(super) struct Slots<S> {
    slots: Vec<Slot<S>>,
    /// Number of slots that always want a session.
    kept: usize,
    /// Time before which no further session is opened.
    growth_pause_until: Option<Instant>,
    closed: bool,
    last_error: Option<Error>,
    opened: u64,
    lost: u64,
    failed: u64,
    health: Health,
}

impl<S: Session> Slots<S> {
    pub(super) fn new(table: String, kept: usize, max: usize) -> Self {
        let slot = |number| if number < kept { Slot::Opening } else { Slot::Parked };
        Self {
            slots: (0..max).map(slot).collect(),
            kept,
            growth_pause_until: None,
            closed: false,
            last_error: None,
            opened: 0,
            lost: 0,
            failed: 0,
            health: Health::new(table, kept),
        }
    }

    /// Chooses the usable session with the fewest leases, other than `than`; for a read one without
    /// writes, if there is one.
    pub(super) fn choose(&self, purpose: Purpose, than: Option<&Arc<Opened<S>>>) -> Choice<S> {
        if self.closed {
            return Choice::Error(Error::Closed);
        }
        let other = |opened: &&Arc<Opened<S>>| than.is_none_or(|than| !Arc::ptr_eq(than, opened));
        let usable = self.open().filter(|opened| opened.is_usable()).filter(other);
        if let Some(opened) = usable.min_by_key(|opened| opened.load(purpose)) {
            opened.lease(purpose);
            return Choice::Session(opened.clone());
        }
        // A session that has ended is about to be reopened, even if its slot does not know yet.
        let soon = |slot: &Slot<S>| match slot {
            Slot::Opening => true,
            Slot::Open(opened) => !opened.is_usable(),
            Slot::Failing | Slot::Growing(_) | Slot::Parked => false,
        };
        if self.slots.iter().any(soon) {
            return Choice::Wait;
        }
        let error = self.last_error.clone().unwrap_or_else(no_other);
        // Only the excluded session can be open here.
        match self.open().next() {
            Some(_) => Choice::NoOther(error),
            None => Choice::Error(error),
        }
    }

    /// Returns the slot of a further session to open, if the open ones have more leases than there
    /// are sessions, those included that are being opened.
    pub(super) fn grow(&mut self, now: Instant) -> Option<usize> {
        let leases = |opened: &Arc<Opened<S>>| opened.leases.load(Ordering::Relaxed);
        let is_down = |slot: &Slot<S>| matches!(slot, Slot::Opening | Slot::Failing);
        let growing = self.growing_since().count();
        if self.closed
            || self.slots.iter().any(is_down)
            || GROWING_MAX <= growing
            || self.open().map(leases).sum::<usize>() <= self.open().count() + growing
            || self.growth_pause_until.is_some_and(|until| now < until)
        {
            return None;
        }
        let slot = self.slots.iter().position(|slot| matches!(slot, Slot::Parked))?;
        self.slots[slot] = Slot::Growing(now);
        Some(slot)
    }

    /// Returns whether further sessions are being opened, and may soon be open.
    pub(super) fn is_growing(&self, now: Instant) -> bool {
        self.growing_since().any(|since| now < since + GROWTH_USUAL_MAX)
    }

    fn growing_since(&self) -> impl Iterator<Item = Instant> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Growing(since) => Some(*since),
            Slot::Opening | Slot::Open(_) | Slot::Failing | Slot::Parked => None,
        })
    }

    pub(super) fn opened(&mut self, slot: usize, opened: Arc<Opened<S>>) -> Option<LogLine> {
        if self.closed {
            return None;
        }
        self.slots[slot] = Slot::Open(opened);
        self.opened += 1;
        if self.kept <= slot {
            self.health.grown();
        }
        let kept_up = self.kept_up();
        if kept_up == self.kept {
            self.last_error = None;
        }
        self.health.opened(kept_up)
    }

    pub(super) fn failed(&mut self, slot: usize, error: Error) -> Option<LogLine> {
        self.failed += 1;
        if self.kept <= slot && !self.closed {
            self.park(slot);
            self.growth_pause_until = Some(Instant::now() + GROWTH_PAUSE);
            return self.health.not_grown(self.open().count(), &error);
        }
        self.down(slot, Slot::Failing, error)
    }

    /// Wants no session in this slot any more, until all others are in use.
    pub(super) fn park(&mut self, slot: usize) {
        if !self.closed {
            self.slots[slot] = Slot::Parked;
        }
    }

    /// Accounts for a session's end; a new attempt follows at once, or after a pause.
    pub(super) fn ended(
        &mut self,
        slot: usize,
        end: End,
        pause: Option<Duration>,
    ) -> Option<LogLine> {
        let next = if pause.is_none() { Slot::Opening } else { Slot::Failing };
        match end {
            End::Lost(reason) => {
                self.lost += 1;
                self.down(slot, next, Error::ConnectionLost(reason))
            }
            End::Retired => {
                // The user that gave it up knows why; the next attempt's result is logged.
                self.slots[slot] = next;
                self.last_error.get_or_insert_with(no_other);
                None
            }
        }
    }

    /// Accounts for the end of a further session, which is opened anew when it is needed.
    pub(super) fn ended_further(&mut self, slot: usize, end: End) {
        if let End::Lost(_) = end {
            self.lost += 1;
        }
        self.park(slot);
    }

    pub(super) fn close(&mut self) -> Option<LogLine> {
        self.closed = true;
        self.slots.fill_with(|| Slot::Failing);
        None
    }

    pub(super) fn state(&self) -> PoolState {
        PoolState {
            up: self.open().filter(|opened| opened.is_usable()).count(),
            wanted: self.slots.iter().filter(|slot| !matches!(slot, Slot::Parked)).count(),
            opened: self.opened,
            lost: self.lost,
            failed: self.failed,
            last_error: self.last_error.clone(),
        }
    }

    fn down(&mut self, slot: usize, next: Slot<S>, error: Error) -> Option<LogLine> {
        if self.closed {
            return None;
        }
        self.slots[slot] = next;
        let line = self.health.down(self.kept_up(), &error, Instant::now());
        self.last_error = Some(error);
        line
    }

    /// Returns the number of open sessions among those that are always wanted.
    fn kept_up(&self) -> usize {
        let is_open = |slot: &&Slot<S>| matches!(slot, Slot::Open(_));
        self.slots.iter().take(self.kept).filter(is_open).count()
    }

    fn open(&self) -> impl Iterator<Item = &Arc<Opened<S>>> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Open(opened) => Some(opened),
            Slot::Opening | Slot::Failing | Slot::Growing(_) | Slot::Parked => None,
        })
    }
}

fn no_other() -> Error {
    Error::ConnectionLost("no connection to postgres is open just now".into())
}
