//! Open loop: requests leave when they are due.
//!
//! Request `n` belongs to connection `n mod connections` and is due at a fixed time. It is sent
//! then (or as soon as this thread gets to it: how late is measured and reported) even when earlier
//! ones are unanswered, and its latency counts from when it was due. A server that stalls is
//! charged for every request it kept waiting.
//!
//! Waiting: `epoll_pwait2` sleeps until [`SPIN`] before the next request, then polls without
//! sleeping.

use std::{collections::VecDeque, sync::atomic::AtomicBool, time::Duration};

use anyhow::{Result, bail};

use super::{Group, is_set};
use crate::{
    clock::{Window, duration_ns, now_ns},
    counters::Counters,
    limits::{OPEN_LOOP_BACKLOG, OPEN_LOOP_DRAIN, SPIN},
    requests::Pools,
    schedule::Schedule,
    stats::record,
};

/// Requests that are sent at a fixed rate; those before the window are the warm-up.
pub struct OpenLoop<'a> {
    pub pools: Pools<'a>,
    /// Position in the pools.
    pub next: usize,
    /// Requests per second over all connections, from the first on.
    pub schedule: Schedule,
    pub window: Window,
    /// Ends the window early when set.
    pub stop: Option<&'a AtomicBool>,
}

/// Unsent bytes and unanswered requests of one connection.
#[derive(Default)]
struct Queue {
    unsent: Vec<u8>,
    due_ns: VecDeque<u64>,
    is_dirty: bool,
}

struct Run<'a> {
    plan: OpenLoop<'a>,
    queues: Vec<Queue>,
    /// Connections with something to send.
    dirty: Vec<usize>,
    unanswered: usize,
    counters: Counters,
}

impl Group {
    /// Sends at a fixed rate until the window's end, then waits for the last replies. `at` is
    /// called when the window begins and when it ends. Returns the window as it was: its end may
    /// come early.
    pub fn run_open(
        &mut self,
        plan: OpenLoop<'_>,
        mut at: impl FnMut(),
    ) -> Result<(Counters, Window)> {
        let Window { from_ns, mut until_ns } = plan.window;
        let mut run = Run {
            plan,
            queues: self.connections.iter().map(|_| Queue::default()).collect(),
            dirty: Vec::with_capacity(self.connections.len()),
            unanswered: 0,
            counters: Counters::new()?,
        };
        let (mut in_window, mut past_window) = (false, false);
        loop {
            let now_ns = now_ns();
            run.enqueue_due(now_ns);
            if !in_window && from_ns <= now_ns {
                in_window = true;
                at();
            }
            if in_window && now_ns < until_ns && is_set(run.plan.stop) {
                until_ns = now_ns.max(from_ns + 1);
                run.plan.window.until_ns = until_ns;
            }
            if !past_window && (until_ns <= now_ns || run.counters.overloaded) {
                past_window = true;
                at();
            }
            let is_given_up = until_ns + duration_ns(OPEN_LOOP_DRAIN) <= now_ns;
            if past_window && (run.unanswered == 0 || is_given_up) {
                return Ok((run.finish(), Window { from_ns, until_ns }));
            }
            self.flush(&mut run)?;
            let timeout = match past_window {
                true => OPEN_LOOP_DRAIN / 10,
                false => wait_for(run.plan.schedule.next_due_ns().min(until_ns)),
            };
            self.wait(timeout)?;
            for position in 0..self.events.len() {
                let index = self.ready(position);
                let replies = self.connections[index].receive(&mut self.received)?;
                run.answer(index, replies)?;
            }
        }
    }

    fn flush(&mut self, run: &mut Run<'_>) -> Result<()> {
        for index in run.dirty.drain(..) {
            let queue = &mut run.queues[index];
            queue.is_dirty = false;
            let sent = self.connections[index].send(&self.epoll, &queue.unsent)?;
            queue.unsent.drain(..sent);
        }
        Ok(())
    }
}

impl Run<'_> {
    fn enqueue_due(&mut self, now_ns: u64) {
        let OpenLoop { pools, next, schedule, window, .. } = &mut self.plan;
        // What was due before the end is sent even when the loop comes to it after the end.
        while let Some((number, due_ns)) = schedule.poll(now_ns.min(window.until_ns - 1)) {
            if self.counters.overloaded || OPEN_LOOP_BACKLOG <= self.unanswered {
                self.counters.overloaded = true;
                return;
            }
            let connections = u64::try_from(self.queues.len()).expect("a count fits in 64 bits");
            let index = usize::try_from(number % connections).expect("below a count");
            let queue = &mut self.queues[index];
            let pool = pools.of(index);
            queue.unsent.extend_from_slice(pool.slice(pool.take(next, 1), 1));
            queue.due_ns.push_back(due_ns);
            self.unanswered += 1;
            if window.contains(due_ns) {
                record(&mut self.counters.late_ns, now_ns - due_ns);
            }
            mark(&mut self.dirty, queue, index);
        }
    }

    fn answer(&mut self, index: usize, replies: u32) -> Result<()> {
        let (queue, now_ns) = (&mut self.queues[index], now_ns());
        for _ in 0..replies {
            let Some(due_ns) = queue.due_ns.pop_front() else {
                bail!("more replies than requests");
            };
            self.unanswered -= 1;
            self.counters.answer_due(self.plan.window, due_ns, now_ns);
        }
        if !queue.unsent.is_empty() {
            mark(&mut self.dirty, queue, index);
        }
        Ok(())
    }

    /// Requests that were never answered enter with the time they have waited so far: leaving them
    /// out would flatter the server.
    fn finish(mut self) -> Counters {
        let now_ns = now_ns();
        for due_ns in self.queues.iter().flat_map(|queue| queue.due_ns.iter().copied()) {
            self.counters.give_up(self.plan.window, due_ns, now_ns);
        }
        self.counters
    }
}

fn mark(dirty: &mut Vec<usize>, queue: &mut Queue, index: usize) {
    if !queue.is_dirty {
        queue.is_dirty = true;
        dirty.push(index);
    }
}

fn wait_for(due_ns: u64) -> Duration {
    Duration::from_nanos(due_ns.saturating_sub(now_ns())).saturating_sub(SPIN)
}
