//! A timer finer than a millisecond, which is tokio's unit: a thread that sleeps until the nearest
//! wanted time.
//!
//! After each turn the driver sets the time at which it wants to be woken. It does so often, and
//! mostly in vain because a batch ends first. So setting a time is cheap: it wakes the thread only
//! if the time is before the one that the thread sleeps for. If the time was moved back, the thread
//! finds out when the old one has come. [`TimerState`] decides, without a clock; [`Timer`] is the
//! thread.
//!
//! The first wanted time starts the thread, and dropping the [`Timer`] ends it. It notifies late by
//! what the system takes to wake a thread (about 0.06 ms on Linux), never early.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// Time that the thread sleeps for, and time to notify at, on the batcher's clock.
#[derive(Debug, Default)]
struct TimerState {
    wanted: Option<Duration>,
    sleeping_until: Sleep,
    ended: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// The thread is not asleep: it checks the alarm before it sleeps, so nobody needs to wake
    /// it.
    #[default]
    Awake,
    Until(Duration),
    Forever,
}

/// Next step of the thread.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Callback,
    Sleep(Duration),
    SleepForever,
    End,
}

#[derive(Debug, PartialEq, Eq)]
enum Disturb {
    Yes,
    No,
}

impl TimerState {
    /// Replaces the wanted time. Returns whether the thread must be woken for it.
    fn want(&mut self, wanted: Option<Duration>) -> Disturb {
        self.wanted = wanted;
        match (wanted, self.sleeping_until) {
            (Some(wanted), Sleep::Until(until)) if wanted < until => Disturb::Yes,
            (Some(_), Sleep::Forever) => Disturb::Yes,
            _ => Disturb::No,
        }
    }

    /// Returns what the thread, which is awake, does now. Each wanted time notifies once.
    fn step(&mut self, now: Duration) -> Step {
        self.sleeping_until = Sleep::Awake;
        if self.ended {
            return Step::End;
        }
        match self.wanted {
            Some(wanted) if wanted <= now => {
                self.wanted = None;
                Step::Callback
            }
            Some(wanted) => {
                self.sleeping_until = Sleep::Until(wanted);
                Step::Sleep(wanted - now)
            }
            None => {
                self.sleeping_until = Sleep::Forever;
                Step::SleepForever
            }
        }
    }
}

#[derive(Debug, Default)]
struct SharedTimer {
    alarm: Mutex<TimerState>,
    changed: Condvar,
}

impl SharedTimer {
    fn alarm(&self) -> MutexGuard<'_, TimerState> {
        self.alarm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Callback for a wanted time that has come.
pub(crate) type Callback = Arc<dyn Fn() + Send + Sync>;

/// Timer that calls back when a wanted time has come.
pub(crate) struct Timer {
    shared: Arc<SharedTimer>,
    clock: Clock,
    ring: Callback,
    thread: Thread,
}

#[derive(Debug, PartialEq, Eq)]
enum Thread {
    NotStarted,
    Started,
}

impl Timer {
    pub(crate) fn new(clock: Clock, ring: Callback) -> Self {
        Self { shared: Arc::default(), clock, ring, thread: Thread::NotStarted }
    }

    /// Calls back at `wanted`, in place of the time wanted before; `None`: not at all. A time in
    /// the past calls back at once.
    ///
    /// # Errors
    /// Fails if the system has no thread to give; no callback will happen. The next call tries
    /// again.
    pub(crate) fn want(&mut self, wanted: Option<Duration>) -> io::Result<()> {
        if wanted.is_some() && self.thread == Thread::NotStarted && self.clock.runs() {
            self.start()?;
        }
        if self.shared.alarm().want(wanted) == Disturb::Yes {
            self.shared.changed.notify_one();
        }
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        let (shared, clock, ring) = (Arc::clone(&self.shared), self.clock, Arc::clone(&self.ring));
        std::thread::Builder::new()
            .name("batch-timer".into())
            .spawn(move || run(&shared, clock, &*ring))?;
        self.thread = Thread::Started;
        Ok(())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.alarm().ended = true;
        self.shared.changed.notify_one();
    }
}

fn run(shared: &SharedTimer, clock: Clock, ring: &dyn Fn()) {
    let mut alarm = shared.alarm();
    loop {
        match alarm.step(clock.now()) {
            Step::End => return,
            Step::Callback => {
                drop(alarm);
                ring();
                alarm = shared.alarm();
            }
            Step::Sleep(time) => {
                alarm = shared
                    .changed
                    .wait_timeout(alarm, time)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
            Step::SleepForever => {
                alarm = shared.changed.wait(alarm).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[cfg(test)]
mod tests;
