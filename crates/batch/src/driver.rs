//! The one task that dispatches batches. It sleeps until a flush, the end of a batch or the timer
//! notifies it.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::Late;
use crate::core::{BatcherCore, Phase};
use crate::in_flight::{AbandonSignal, BatchTask, ServiceBatch};
use crate::reply;
use crate::service::{BatchError, Reply, Service};
use crate::timer::Timer;

/// Resolves after every task that is runnable now has run.
///
/// A task woken by another task may run right after it, ahead of the run queue; a task that wakes
/// itself goes to the back of it. (tokio's `yield_now` would take longer: it also lets the runtime
/// poll for new events.)
#[derive(Default)]
struct StepBack {
    stepped: bool,
}

impl Future for StepBack {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.stepped {
            return Poll::Ready(());
        }
        self.stepped = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Flow {
    Continue,
    End,
}

/// State of the driver task; its buffers are reused from turn to turn.
pub(crate) struct Driver<S: Service, R: Reply<S>> {
    core: Arc<BatcherCore<S, R>>,
    timer: Timer,
    /// Batches to start, with the signal that ends each of them early.
    batches: Vec<(ServiceBatch<S>, AbandonSignal)>,
    late: Vec<Late<R>>,
    unserved: Vec<Late<R>>,
}

impl<S: Service, R: Reply<S>> Driver<S, R> {
    pub(crate) fn new(core: Arc<BatcherCore<S, R>>) -> Self {
        let wake = Arc::clone(&core.wake);
        let timer = Timer::new(core.clock, Arc::new(move || wake.notify_one()));
        Self { core, timer, batches: Vec::new(), late: Vec::new(), unserved: Vec::new() }
    }

    /// Dispatches batches until the batcher has been closed and owes nobody an answer.
    ///
    /// This is a method, so that a runtime that drops the future before its first poll drops a
    /// driver.
    pub(crate) async fn run(mut self) {
        loop {
            self.core.wake.notified().await;
            if self.core.expects_more() {
                StepBack::default().await;
            }
            if self.turn() == Flow::End {
                return;
            }
        }
    }

    fn turn(&mut self) -> Flow {
        // This turn sees every notification sent before this queue. One left over for the next turn
        // would make the driver dispatch ahead of the callers answered meanwhile.
        pin!(self.core.wake.notified()).as_mut().enable();
        let next_wake = self.take_due();
        for (batch, abandoned) in self.batches.drain(..) {
            tokio::spawn(BatchTask::new(&self.core, &batch).run(batch.content, abandoned));
        }
        if self.give_unserved() == Phase::Ended {
            return Flow::End;
        }
        if self.timer.want(next_wake).is_err() {
            // The system cannot start a thread: try again, behind the other tasks, until it can.
            self.core.wake.notify_one();
        }
        Flow::Continue
    }

    /// Takes the batches that are due out of the queue; returns when there may be more.
    fn take_due(&mut self) -> Option<Duration> {
        let mut state = self.core.lock();
        let now = self.core.clock.now();
        state.queue.expire(now, &mut self.late);
        if !self.late.is_empty() {
            state.end_abandoned();
        }
        if state.phase == Phase::Abandoned {
            state.queue.take_waiting(&mut self.unserved);
        }
        while let Some(batch) = state.queue.next_batch(now) {
            state.trace(batch.id);
            let abandoned = self.core.expect_abandonment(&mut state, &batch);
            self.batches.push((batch, abandoned));
        }
        state.queue.next_wake(now)
    }

    /// Answers requests that the queue returns unserved. Ends the batcher if it was closed and owes
    /// no answers.
    fn give_unserved(&mut self) -> Phase {
        let given = self.late.len() + self.unserved.len();
        for late in self.late.drain(..) {
            reply::give_late::<S, R>(late);
        }
        for unserved in self.unserved.drain(..) {
            reply::give_error::<S, R>(unserved.operation, unserved.waiter, BatchError::Closed);
        }
        let mut state = self.core.lock();
        state.owed -= given;
        if state.phase != Phase::Open && state.owed == 0 {
            state.phase = Phase::Ended;
        }
        state.phase
    }
}

/// Runs when the driver or its runtime ends, or it panics: no batch will be dispatched any more.
impl<S: Service, R: Reply<S>> Drop for Driver<S, R> {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        state.phase = Phase::Ended;
        state.queue.take_waiting(&mut self.unserved);
        drop(state);
        for (batch, _) in self.batches.drain(..) {
            drop(BatchTask::new(&self.core, &batch));
        }
        self.give_unserved();
        self.core.ended.notify_waiters();
    }
}
