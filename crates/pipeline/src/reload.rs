//! Requests to read the configuration again, and orders by which another thread changes tx.
//!
//! ```text
//!  CONFIG RELOAD, SIGHUP --request--> Reloads --wait--> thread of the server: reads, compares
//!        ^                                                | Order, one at a time
//!        +------ outcome <-------- Reloads <--answer------+--> tx runs it in its turns, to its end
//! ```
//!
//! tx never waits for a reload: CONFIG RELOAD is a sliced command that looks whether it has ended.

use std::{
    fmt,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::tx::Tx;

/// Outcome of a reload: what was done if all of the configuration holds now, else what was done and
/// what was not.
pub type ReloadOutcome = Result<String, String>;

/// Requests for reloads and their outcomes.
#[derive(Debug, Default)]
pub struct Reloads {
    state: Mutex<ReloadState>,
    requested: Condvar,
}

#[derive(Debug)]
struct ReloadState {
    /// Says whether a thread serves requests.
    is_served: bool,
    /// Number of the last request.
    requested: u64,
    /// Last request that was served.
    answered: u64,
    outcome: ReloadOutcome,
}

impl Default for ReloadState {
    fn default() -> Self {
        Self { is_served: false, requested: 0, answered: 0, outcome: Ok(String::new()) }
    }
}

impl Reloads {
    /// Lets requests be made from now on: the calling thread, or one that it starts, serves them.
    pub fn serve(&self) {
        self.state().is_served = true;
    }

    /// Asks for a reload that begins after this call. Returns the request's number, or `None` where
    /// nobody serves requests.
    pub fn request(&self) -> Option<u64> {
        let mut state = self.state();
        if !state.is_served {
            return None;
        }
        state.requested += 1;
        self.requested.notify_one();
        Some(state.requested)
    }

    /// Waits for a request. Returns the number of the last one: one reload serves all that wait.
    pub fn wait(&self) -> u64 {
        let waiting = |state: &mut ReloadState| state.requested == state.answered;
        let state = self.requested.wait_while(self.state(), waiting);
        state.unwrap_or_else(PoisonError::into_inner).requested
    }

    /// Notes the outcome of the reload that serves all requests up to this one.
    pub fn answer(&self, request: u64, outcome: ReloadOutcome) {
        let mut state = self.state();
        state.answered = request;
        state.outcome = outcome;
    }

    /// Returns the outcome of the reload that serves this request, once it has ended.
    pub fn outcome(&self, request: u64) -> Option<ReloadOutcome> {
        let state = self.state();
        (request <= state.answered).then(|| state.outcome.clone())
    }

    fn state(&self) -> MutexGuard<'_, ReloadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Change of tx by another thread, which tx calls once per turn until it is done.
pub type Order = Box<dyn FnMut(&mut Tx) -> OrderStep + Send>;

/// Result of a turn of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderStep {
    /// The order is done.
    Done,
    /// There is more to do, in the next turn.
    NextTurn,
    /// Something else must end first: the order is called again after a moment.
    Later,
}

/// Place for one order, which tx takes between two turns.
#[derive(Default)]
pub struct OrderSlot {
    order: Mutex<Option<Order>>,
    is_full: AtomicBool,
}

impl OrderSlot {
    /// Leaves an order; the caller must wake the thread of tx afterwards. Gives it back if another
    /// one is still there.
    pub fn put(&self, order: Order) -> Result<(), Order> {
        let mut slot = self.slot();
        if slot.is_some() {
            return Err(order);
        }
        *slot = Some(order);
        self.is_full.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes the order, if there is one.
    pub fn take(&self) -> Option<Order> {
        if !self.is_full.load(Ordering::Acquire) {
            return None;
        }
        self.is_full.store(false, Ordering::Relaxed);
        self.slot().take()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Order>> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for OrderSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderSlot").field("is_full", &self.is_full).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reload_serves_all_requests_that_wait_and_none_that_come_later() {
        let reloads = Reloads::default();
        assert_eq!(reloads.request(), None, "nobody would answer");
        reloads.serve();
        assert_eq!((reloads.request(), reloads.request()), (Some(1), Some(2)));
        let served = reloads.wait();
        assert_eq!(served, 2);
        assert_eq!(reloads.request(), Some(3));
        assert_eq!(reloads.outcome(1), None);
        reloads.answer(served, Err("half".into()));
        assert_eq!(reloads.outcome(1), Some(Err("half".into())));
        assert_eq!(reloads.outcome(2), Some(Err("half".into())));
        assert_eq!(reloads.outcome(3), None);
        assert_eq!(reloads.wait(), 3);
    }

    #[test]
    fn there_is_place_for_one_order() {
        let slot = OrderSlot::default();
        assert!(slot.take().is_none());
        let order = || Box::new(|_: &mut Tx| OrderStep::Done);
        assert!(slot.put(order()).is_ok());
        assert!(slot.put(order()).is_err());
        assert!(slot.take().is_some() && slot.take().is_none());
        assert!(slot.put(order()).is_ok());
    }
}
