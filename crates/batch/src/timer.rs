//! A timer finer than a millisecond, which is tokio's unit: a thread that sleeps until the nearest
//! wanted time.
//!
//! The driver says after each look at the line when it next wants to be woken. That is often and
//! mostly for nothing, because a trip ends first; so saying it is cheap: the thread is disturbed
//! only by a time nearer than the one it sleeps for, and a time that moved away is noticed when the
//! old one has come. [`Alarm`] decides, without a clock; [`Timer`] is the thread.
//!
//! The thread is started by the first wanted time and ends when the [`Timer`] is dropped. It rings
//! late by what the system takes to wake a thread (about 0.06 ms on Linux), never early.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// What the thread sleeps for, and what it should ring for. Times are those of the batcher's clock.
#[derive(Debug, Default)]
struct Alarm {
    wanted: Option<Duration>,
    sleeping_until: Sleep,
    ended: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// Not asleep: the thread looks at the alarm before it sleeps, so there is no need to disturb
    /// it.
    #[default]
    Awake,
    Until(Duration),
    Forever,
}

/// What the thread does next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Ring,
    Sleep(Duration),
    SleepForever,
    End,
}

#[derive(Debug, PartialEq, Eq)]
enum Disturb {
    Yes,
    No,
}

impl Alarm {
    /// Sets the wanted time, in place of the last one. Says whether the thread must be disturbed
    /// for it.
    fn want(&mut self, wanted: Option<Duration>) -> Disturb {
        self.wanted = wanted;
        match (wanted, self.sleeping_until) {
            (Some(wanted), Sleep::Until(until)) if wanted < until => Disturb::Yes,
            (Some(_), Sleep::Forever) => Disturb::Yes,
            _ => Disturb::No,
        }
    }

    /// The thread is awake: what it does now. Each wanted time rings once.
    fn step(&mut self, now: Duration) -> Step {
        self.sleeping_until = Sleep::Awake;
        if self.ended {
            return Step::End;
        }
        match self.wanted {
            Some(wanted) if wanted <= now => {
                self.wanted = None;
                Step::Ring
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
struct Shared {
    alarm: Mutex<Alarm>,
    changed: Condvar,
}

impl Shared {
    fn alarm(&self) -> MutexGuard<'_, Alarm> {
        self.alarm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is called when a wanted time has come.
pub(crate) type Ring = Arc<dyn Fn() + Send + Sync>;

/// Rings when a wanted time has come.
pub(crate) struct Timer {
    shared: Arc<Shared>,
    clock: Clock,
    ring: Ring,
    thread: Thread,
}

#[derive(Debug, PartialEq, Eq)]
enum Thread {
    NotStarted,
    Started,
}

impl Timer {
    pub(crate) fn new(clock: Clock, ring: Ring) -> Self {
        Self { shared: Arc::default(), clock, ring, thread: Thread::NotStarted }
    }

    /// Wants to ring at `wanted`, in place of what was wanted before; `None`: not at all. A time
    /// that has come rings at once.
    ///
    /// # Errors
    /// The system has no thread to give; nothing will ring. The next call tries again.
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

fn run(shared: &Shared, clock: Clock, ring: &dyn Fn()) {
    let mut alarm = shared.alarm();
    loop {
        match alarm.step(clock.now()) {
            Step::End => return,
            Step::Ring => {
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
