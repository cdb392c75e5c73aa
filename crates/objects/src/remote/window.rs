//! The window of requests under way at once: additive increase, multiplicative decrease.
//!
//! * The limit halves when the store asks to slow down, once per round: requests sent before the
//!   last halving say nothing about the new limit. It grows by one per window of successes, up to
//!   the configured number.
//! * Foreground requests go before fills. Fills take at most a part of the window, and one
//!   foreground request may always go, so that a window of one is not blocked by a long fill.
//! * The more foreground requests there are, the fewer fills start: a fill brings megabytes where a
//!   foreground request brings kilobytes, and takes processor, disk and link from it. One fill may
//!   be under way however many wait: a store that is asked all the time has to come to disk, too.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use super::limits::{WINDOW_FILL_PER_READ, WINDOW_FILL_SHARE, WINDOW_MIN, WINDOW_WITH_FILL_MIN};

/// Urgency of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// A request for whose answer somebody waits.
    Foreground,
    /// A fill, or a read ahead of a stream.
    Fill,
}

/// The window of one store.
#[derive(Debug)]
pub(super) struct Window {
    state: Mutex<WindowState>,
    limit_max: f64,
}

#[derive(Debug)]
struct WindowState {
    limit: f64,
    foreground: usize,
    fill: usize,
    /// Number of halvings so far.
    round: u64,
    foreground_waiting: VecDeque<oneshot::Sender<Slot>>,
    fill_waiting: VecDeque<oneshot::Sender<Slot>>,
}

/// Right to have one request under way.
#[derive(Debug)]
pub(super) struct Slot {
    window: Arc<Window>,
    urgency: Urgency,
    round: u64,
}

impl Window {
    pub(super) fn new(requests_max: usize) -> Arc<Self> {
        let limit_max = requests_max.max(1) as f64;
        let state = WindowState {
            limit: limit_max,
            foreground: 0,
            fill: 0,
            round: 0,
            foreground_waiting: VecDeque::new(),
            fill_waiting: VecDeque::new(),
        };
        Arc::new(Self { state: Mutex::new(state), limit_max })
    }

    /// Waits for a slot.
    pub(super) async fn acquire(self: &Arc<Self>, urgency: Urgency) -> Slot {
        let turn = {
            let mut state = self.lock();
            if state.queue(urgency).is_empty() && state.may_go(urgency) {
                return self.slot(&mut state, urgency);
            }
            let (sender, turn) = oneshot::channel();
            let queue = state.queue(urgency);
            if queue.len() == queue.capacity() {
                // Those who gave up are not counted until their turn comes, so they go before the
                // queue grows.
                queue.retain(|waiting| !waiting.is_closed());
            }
            queue.push_back(sender);
            turn
        };
        turn.await.expect("the window outlives those that wait at it")
    }

    /// Returns a slot for a foreground request that nobody needs, if there is one that nobody waits
    /// for; none while the store has asked to slow down and the limit has not recovered.
    pub(super) fn spare(self: &Arc<Self>) -> Option<Slot> {
        let mut state = self.lock();
        let is_free = self.limit_max <= state.limit
            && state.foreground_waiting.is_empty()
            && (state.foreground + state.fill + 1) as f64 <= state.limit;
        is_free.then(|| self.slot(&mut state, Urgency::Foreground))
    }

    /// Returns the limit and the number of requests under way.
    pub(super) fn metrics(&self) -> (u64, u64) {
        let state = self.lock();
        (state.limit as u64, (state.foreground + state.fill) as u64)
    }

    /// Returns whether a foreground request is under way or waits for a slot.
    pub(super) fn has_foreground(&self) -> bool {
        let state = self.lock();
        let is_there = |waiting: &oneshot::Sender<Slot>| !waiting.is_closed();
        0 < state.foreground || state.foreground_waiting.iter().any(is_there)
    }

    fn slot(self: &Arc<Self>, state: &mut WindowState, urgency: Urgency) -> Slot {
        *state.count(urgency) += 1;
        Slot { window: Arc::clone(self), urgency, round: state.round }
    }

    /// Gives slots to the waiters for which there are free ones now. Works outside of the lock,
    /// because a slot that nobody takes comes back here.
    fn admit(self: &Arc<Self>) {
        while let Some((sender, slot)) = self.next() {
            // The waiter has gone: the slot that comes back is dropped, which gives it to the
            // next.
            drop(sender.send(slot));
        }
    }

    fn next(self: &Arc<Self>) -> Option<(oneshot::Sender<Slot>, Slot)> {
        let mut state = self.lock();
        for urgency in state.order() {
            while state.may_go(urgency)
                && let Some(sender) = state.queue(urgency).pop_front()
            {
                if !sender.is_closed() {
                    let slot = self.slot(&mut state, urgency);
                    return Some((sender, slot));
                }
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, WindowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WindowState {
    fn may_go(&self, urgency: Urgency) -> bool {
        let in_flight = (self.foreground + self.fill) as f64;
        match urgency {
            Urgency::Foreground => in_flight + 1.0 <= self.limit || self.foreground == 0,
            Urgency::Fill if self.fill_is_due() => in_flight + 1.0 <= self.limit,
            Urgency::Fill => {
                let share = (self.limit * WINDOW_FILL_SHARE).max(WINDOW_MIN);
                let left = share - self.foreground as f64 * WINDOW_FILL_PER_READ;
                let is_left = self.foreground == 0 || (self.fill + 1) as f64 <= left;
                self.foreground_waiting.is_empty() && is_left && in_flight + 1.0 <= share
            }
        }
    }

    /// Returns whether a fill may start although foreground requests wait: no other fill is in
    /// flight. Without this, a store that is read all the time would never come to disk.
    fn fill_is_due(&self) -> bool {
        self.fill == 0 && WINDOW_WITH_FILL_MIN <= self.limit
    }

    /// Order in which waiters get slots now.
    fn order(&self) -> [Urgency; 2] {
        if self.fill_is_due() {
            [Urgency::Fill, Urgency::Foreground]
        } else {
            [Urgency::Foreground, Urgency::Fill]
        }
    }

    fn queue(&mut self, urgency: Urgency) -> &mut VecDeque<oneshot::Sender<Slot>> {
        match urgency {
            Urgency::Foreground => &mut self.foreground_waiting,
            Urgency::Fill => &mut self.fill_waiting,
        }
    }

    fn count(&mut self, urgency: Urgency) -> &mut usize {
        match urgency {
            Urgency::Foreground => &mut self.foreground,
            Urgency::Fill => &mut self.fill,
        }
    }
}

impl Slot {
    /// Grows the limit: the store answered as it should.
    pub(super) fn succeeded(&self) {
        let mut state = self.window.lock();
        state.limit = (state.limit + 1.0 / state.limit).min(self.window.limit_max);
    }

    /// Halves the limit: the store asked to slow down.
    pub(super) fn slowed_down(&self) {
        let mut state = self.window.lock();
        if state.round == self.round {
            state.round += 1;
            state.limit = (state.limit / 2.0).max(WINDOW_MIN);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.window.lock().count(self.urgency) -= 1;
        self.window.admit();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, future::join_all};
    use tokio::task::yield_now;

    use super::*;

    fn limit(window: &Window) -> u64 {
        window.metrics().0
    }

    fn take(window: &Arc<Window>, urgency: Urgency) -> Option<Slot> {
        window.acquire(urgency).now_or_never()
    }

    #[test]
    fn halves_once_per_round_and_recovers_by_one_per_window() {
        let window = Window::new(64);
        let slots: Vec<_> = (0..48).filter_map(|_| take(&window, Urgency::Foreground)).collect();
        for slot in &slots {
            slot.slowed_down();
        }
        assert_eq!(limit(&window), 32, "48 answers of one round are one sign");
        drop(slots);
        take(&window, Urgency::Foreground).unwrap().slowed_down();
        assert_eq!(limit(&window), 16);
        let slot = take(&window, Urgency::Foreground).unwrap();
        for _ in 0..17 {
            slot.succeeded();
        }
        assert_eq!(limit(&window), 17);
        for _ in 0..10_000 {
            slot.succeeded();
        }
        assert_eq!(limit(&window), 64, "never beyond what is configured");
    }

    #[test]
    fn never_closes() {
        let window = Window::new(2);
        for _ in 0..10 {
            take(&window, Urgency::Foreground).unwrap().slowed_down();
        }
        assert_eq!(limit(&window), 1);
    }

    #[tokio::test]
    async fn foreground_goes_before_fills_that_came_earlier() {
        let window = Window::new(1);
        let first = take(&window, Urgency::Foreground).unwrap();
        let mut fill = std::pin::pin!(window.acquire(Urgency::Fill));
        let mut foreground = std::pin::pin!(window.acquire(Urgency::Foreground));
        assert!(fill.as_mut().now_or_never().is_none());
        assert!(foreground.as_mut().now_or_never().is_none());
        drop(first);
        assert!(fill.as_mut().now_or_never().is_none());
        let slot = foreground.await;
        drop(slot);
        fill.await;
    }

    #[test]
    fn a_long_fill_does_not_block_the_only_slot() {
        let window = Window::new(1);
        let _fill = take(&window, Urgency::Fill).unwrap();
        assert!(take(&window, Urgency::Foreground).is_some());
    }

    #[test]
    fn fills_leave_room() {
        let window = Window::new(8);
        let fills: Vec<_> = (0..8).filter_map(|_| take(&window, Urgency::Fill)).collect();
        assert_eq!(fills.len(), 6);
        assert!(take(&window, Urgency::Foreground).is_some());
    }

    /// Readers that never paused kept a store from ever coming to disk.
    #[tokio::test]
    async fn fills_get_their_share_while_foreground_requests_wait() {
        let window = Window::new(8);
        let mut reads: VecDeque<_> =
            (0..8).filter_map(|_| take(&window, Urgency::Foreground)).collect();
        let spawn = |urgency| {
            let window = Arc::clone(&window);
            tokio::spawn(async move { window.acquire(urgency).await })
        };
        let mut waiting: VecDeque<_> = (0..20).map(|_| spawn(Urgency::Foreground)).collect();
        yield_now().await;
        let fills: Vec<_> = (0..4).map(|_| spawn(Urgency::Fill)).collect();
        yield_now().await;
        for _ in 0..10 {
            drop(reads.pop_front());
            yield_now().await;
            while waiting.front().is_some_and(tokio::task::JoinHandle::is_finished) {
                reads.push_back(waiting.pop_front().expect("it is there").await.unwrap());
            }
        }
        assert_eq!(fills.iter().filter(|fill| fill.is_finished()).count(), 1, "one, and no more");
    }

    /// The fills that cold reads of 64 callers started took the processor from the reads
    /// themselves.
    #[tokio::test]
    async fn fills_give_way_to_foreground_requests_under_way() {
        let window = Window::new(64);
        let fills_beside = |reads: usize| {
            let reads: Vec<_> =
                (0..reads).filter_map(|_| take(&window, Urgency::Foreground)).collect();
            let fills: Vec<_> = (0..64).map_while(|_| take(&window, Urgency::Fill)).collect();
            drop(reads);
            fills.len()
        };
        assert_eq!([0, 1, 8, 16, 40, 63].map(fills_beside), [48, 45, 24, 1, 1, 1]);
        // What waits comes when they have ended.
        let reads: Vec<_> = (0..40).filter_map(|_| take(&window, Urgency::Foreground)).collect();
        let mut fills: Vec<_> = (0..10).map(|_| Box::pin(window.acquire(Urgency::Fill))).collect();
        let slots: Vec<_> =
            fills.iter_mut().filter_map(|fill| fill.as_mut().now_or_never()).collect();
        assert_eq!(slots.len(), 1);
        drop(reads);
        assert_eq!(
            fills.iter_mut().skip(1).filter_map(|fill| fill.as_mut().now_or_never()).count(),
            9
        );
    }

    #[tokio::test]
    async fn a_waiter_that_gave_up_takes_no_slot() {
        let window = Window::new(1);
        let held = take(&window, Urgency::Foreground).unwrap();
        for _ in 0..3 {
            let mut waiting = std::pin::pin!(window.acquire(Urgency::Foreground));
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        let last = tokio::spawn({
            let window = Arc::clone(&window);
            async move { window.acquire(Urgency::Foreground).await }
        });
        yield_now().await;
        drop(held);
        drop(last.await.unwrap());
        assert_eq!(window.metrics(), (1, 0));
    }

    #[tokio::test]
    async fn all_waiters_get_a_slot() {
        let window = Window::new(3);
        let work = (0..200).map(|index| {
            let window = Arc::clone(&window);
            let urgency = if index % 3 == 0 { Urgency::Fill } else { Urgency::Foreground };
            tokio::spawn(async move {
                let slot = window.acquire(urgency).await;
                assert!(window.metrics().1 <= 3);
                yield_now().await;
                drop(slot);
            })
        });
        for done in join_all(work).await {
            done.unwrap();
        }
        assert_eq!(window.metrics(), (3, 0));
    }
}
