//! Open loop: requests leave when they are due.
//!
//! Request `n` belongs to connection `n mod connections` and is due at a fixed time. It is sent
//! then (or as soon as this thread gets to it: how late is measured and reported) even when earlier
//! ones are unanswered, and its latency counts from when it was due. A server that stalls is
//! charged for every request it kept waiting.
//!
//! Waiting: `epoll_pwait2` sleeps until [`SPIN`] before the next request, then polls without
//! sleeping.

use std::{collections::VecDeque, time::Duration};

use anyhow::{Result, bail};
use hdrhistogram::Histogram;

use super::Group;
use crate::{
    clock::{duration_ns, now_ns},
    limits::{OPEN_LOOP_BACKLOG, OPEN_LOOP_DRAIN, SPIN},
    requests::{Cursor, Pool},
    schedule::Schedule,
    stats::{new_histogram, record},
};

#[derive(Debug)]
pub struct OpenLoop<'a> {
    pub pool: &'a Pool,
    pub cursor: Cursor,
    /// Requests per second over all connections.
    pub rate: u64,
    /// Sent but not counted, at the start.
    pub warm_up: Duration,
    pub window: Duration,
}

/// Result of an open loop.
#[derive(Debug)]
pub struct OpenResult {
    /// Nanoseconds from when a request was due until its reply.
    pub latency_ns: Histogram<u64>,
    /// Nanoseconds from when a request was due until it was sent.
    pub late_ns: Histogram<u64>,
    /// Replies to requests due in the window, that came in the window.
    pub answered: u64,
    /// Requests due in the window that were never answered.
    pub unanswered: u64,
    /// The server fell so far behind that the schedule was given up.
    pub overloaded: bool,
}

/// Unsent bytes and unanswered requests of one connection.
#[derive(Debug, Default)]
struct Queue {
    unsent: Vec<u8>,
    due_ns: VecDeque<u64>,
    is_dirty: bool,
}

/// The state of a run.
struct Run {
    queues: Vec<Queue>,
    dirty: Vec<usize>,
    unanswered: usize,
    start_ns: u64,
    counted_from_ns: u64,
    end_ns: u64,
    result: OpenResult,
}

impl Group {
    /// Sends at a fixed rate for warm-up and window, then waits for the last replies. `at` is
    /// called when the window begins and when it ends.
    pub fn run_open(&mut self, mut plan: OpenLoop<'_>, mut at: impl FnMut()) -> Result<OpenResult> {
        let mut run = Run::new(self.connections.len(), &plan)?;
        let mut schedule = Schedule::new(run.start_ns, plan.rate);
        let (mut in_window, mut past_window) = (false, false);
        loop {
            let now_ns = now_ns();
            run.enqueue_due(&mut schedule, &mut plan, now_ns);
            if !in_window && run.counted_from_ns <= now_ns {
                in_window = true;
                at();
            }
            if !past_window && (run.end_ns <= now_ns || run.result.overloaded) {
                past_window = true;
                at();
            }
            if past_window
                && (run.unanswered == 0 || run.end_ns + duration_ns(OPEN_LOOP_DRAIN) <= now_ns)
            {
                break;
            }
            self.flush_dirty(&mut run)?;
            let timeout = match past_window {
                true => OPEN_LOOP_DRAIN / 10,
                false => wait_for(schedule.next_due_ns().min(run.end_ns)),
            };
            self.poll.wait(timeout)?;
            self.take_replies(&mut run)?;
        }
        Ok(run.finish())
    }

    fn flush_dirty(&mut self, run: &mut Run) -> Result<()> {
        for index in run.dirty.drain(..) {
            let queue = &mut run.queues[index];
            queue.is_dirty = false;
            let sent = self.connections[index].send(&self.poll, &queue.unsent)?;
            queue.unsent.drain(..sent);
        }
        Ok(())
    }

    fn take_replies(&mut self, run: &mut Run) -> Result<()> {
        for position in 0..self.poll.ready_count() {
            let index = self.poll.ready(position);
            let replies = self.connections[index].receive(&mut self.received)?;
            run.answer(index, replies, now_ns())?;
            if !run.queues[index].unsent.is_empty() {
                run.mark(index);
            }
        }
        Ok(())
    }
}

impl Run {
    fn new(connections: usize, plan: &OpenLoop<'_>) -> Result<Self> {
        let start_ns = now_ns();
        let counted_from_ns = start_ns + duration_ns(plan.warm_up);
        Ok(Self {
            queues: (0..connections).map(|_| Queue::default()).collect(),
            dirty: Vec::with_capacity(connections),
            unanswered: 0,
            start_ns,
            counted_from_ns,
            end_ns: counted_from_ns + duration_ns(plan.window),
            result: OpenResult {
                latency_ns: new_histogram()?,
                late_ns: new_histogram()?,
                answered: 0,
                unanswered: 0,
                overloaded: false,
            },
        })
    }

    fn enqueue_due(&mut self, schedule: &mut Schedule, plan: &mut OpenLoop<'_>, now_ns: u64) {
        // What was due before the end is sent even when the loop comes to it after the end.
        while let Some((number, due_ns)) = schedule.poll(now_ns.min(self.end_ns - 1)) {
            if self.result.overloaded || OPEN_LOOP_BACKLOG <= self.unanswered {
                self.result.overloaded = true;
                return;
            }
            let connections = u64::try_from(self.queues.len()).expect("a count fits in 64 bits");
            let index =
                usize::try_from(number % connections).expect("below the count of connections");
            let queue = &mut self.queues[index];
            queue.unsent.extend_from_slice(plan.pool.slice(plan.cursor.take(1), 1));
            queue.due_ns.push_back(due_ns);
            self.unanswered += 1;
            if self.counts(due_ns) {
                record(&mut self.result.late_ns, now_ns - due_ns);
            }
            self.mark(index);
        }
    }

    fn mark(&mut self, index: usize) {
        if !self.queues[index].is_dirty {
            self.queues[index].is_dirty = true;
            self.dirty.push(index);
        }
    }

    fn answer(&mut self, index: usize, replies: u32, now_ns: u64) -> Result<()> {
        for _ in 0..replies {
            let Some(due_ns) = self.queues[index].due_ns.pop_front() else {
                bail!("more replies than requests");
            };
            self.unanswered -= 1;
            if self.counts(due_ns) {
                record(&mut self.result.latency_ns, now_ns.saturating_sub(due_ns));
                self.result.answered += u64::from(now_ns < self.end_ns);
            }
        }
        Ok(())
    }

    fn counts(&self, due_ns: u64) -> bool {
        (self.counted_from_ns..self.end_ns).contains(&due_ns)
    }

    /// Requests that were never answered enter with the time they have waited so far: leaving them
    /// out would flatter the server.
    fn finish(mut self) -> OpenResult {
        let now_ns = now_ns();
        let queues = std::mem::take(&mut self.queues);
        for due_ns in queues.iter().flat_map(|queue| queue.due_ns.iter().copied()) {
            if self.counts(due_ns) {
                record(&mut self.result.latency_ns, now_ns.saturating_sub(due_ns));
                self.result.unanswered += 1;
            }
        }
        self.result
    }
}

fn wait_for(due_ns: u64) -> Duration {
    Duration::from_nanos(due_ns.saturating_sub(now_ns())).saturating_sub(SPIN)
}
