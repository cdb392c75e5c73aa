//! Waiters of entries, and their deadlines.

use std::time::Duration;

use super::arena::{Arena, Id};
use super::deadlines::{Deadline, Deadlines};
use super::entry::EntryId;
use super::list::Link;
use crate::request::{Answered, RequestId};

/// Marker of waiter ids.
pub(super) enum WaiterMark {}

pub(super) type WaiterId = Id<WaiterMark>;

/// Arena of the waiters of all entries.
pub(super) struct Waiters<W, R> {
    pub arena: Arena<Waiter<W, R>, WaiterMark>,
    deadlines: Deadlines,
    serial: u64,
}

/// The caller of one request.
pub(super) struct Waiter<W, R> {
    pub answered: Answered<W, R>,
    pub entry: EntryId,
    pub counted: Counted,
    pub of_entry: Link<WaiterMark>,
    serial: u64,
    deadline: Option<Duration>,
}

/// Says how long a request counts as pending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counted {
    UntilDispatch,
    /// The request joined an entry in flight, or the dispatch policy is immediate.
    UntilAnswer,
}

/// Arguments for a new waiter.
pub(super) struct NewWaiter<W, R> {
    pub waiter: W,
    pub receipt: Option<R>,
    pub entry: EntryId,
    pub counted: Counted,
    pub deadline: Option<Duration>,
}

impl<W, R> Waiters<W, R> {
    pub fn new() -> Self {
        Self { arena: Arena::new(), deadlines: Deadlines::default(), serial: 0 }
    }

    #[inline]
    pub fn insert(&mut self, new: NewWaiter<W, R>) -> WaiterId {
        let NewWaiter { waiter, receipt, entry, counted, deadline } = new;
        self.serial += 1;
        let serial = self.serial;
        let answered = Answered { waiter, receipt };
        let of_entry = Link::NONE;
        let id = self.arena.insert(Waiter { answered, entry, counted, of_entry, serial, deadline });
        if let Some(at) = deadline {
            self.deadlines.push(Deadline { at, serial, slot: id.slot() });
        }
        id
    }

    /// Removes a waiter that is in no list any more.
    #[inline]
    pub fn remove(&mut self, id: WaiterId) -> Waiter<W, R> {
        let waiter = self.arena.remove(id);
        if waiter.deadline.is_some() {
            let Self { arena, deadlines, .. } = self;
            deadlines.forget(|deadline| holds(arena, deadline.waiter(), deadline.serial));
        }
        waiter
    }

    /// Returns the public id of a waiter's request.
    pub fn request(&self, id: WaiterId) -> RequestId {
        RequestId { slot: id.slot(), serial: self.arena[id].serial }
    }

    /// Finds the waiter of a request that has not been answered.
    pub fn find(&self, request: RequestId) -> Option<WaiterId> {
        let id = Id::at(request.slot);
        holds(&self.arena, id, request.serial).then_some(id)
    }

    /// Returns all waiters, in order of arrival.
    pub fn in_order(&self) -> Vec<WaiterId> {
        let mut all: Vec<_> = self.arena.iter().map(|(id, waiter)| (waiter.serial, id)).collect();
        all.sort_unstable_by_key(|(serial, _)| *serial);
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the nearest deadline.
    pub fn first_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|deadline| deadline.at)
    }

    /// Returns a waiter whose deadline has passed at `now`, the most overdue first.
    pub fn first_late(&self, now: Duration) -> Option<WaiterId> {
        let first = self.deadlines.first()?;
        (first.at <= now).then(|| first.waiter())
    }
}

fn holds<W, R>(arena: &Arena<Waiter<W, R>, WaiterMark>, id: WaiterId, serial: u64) -> bool {
    arena.get(id).is_some_and(|waiter| waiter.serial == serial)
}
