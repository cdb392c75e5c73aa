//! The thread that tells the service manager that the pipeline turns, and what the server's state
//! is.
//!
//! The threads of the pipeline sleep while nobody asks for anything. So the thread wakes each of
//! them and looks whether it has turned since: one that hangs does not, WATCHDOG is not sent, and
//! the manager ends the process and starts it again.

use std::{sync::Arc, task::Waker, thread, time::Duration};

use super::ServiceManager;
use crate::{failure::Failure, status::Status};

/// Time between two looks at the state where the manager sets no watchdog.
const STATE_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest time between two looks, for a watchdog that is set to a few milliseconds.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Number of looks within the time of the watchdog, so that one late look is not too late.
const LOOKS: u32 = 4;

/// One thread of the pipeline, as seen from outside.
pub struct Pulse {
    /// Name of the thread for the log.
    pub thread: &'static str,
    /// Wakes the thread for a turn.
    pub waker: Waker,
    /// Reads how many turns it has made.
    pub turns: Box<dyn Fn() -> u64 + Send>,
}

/// Threads of the pipeline, and the turns that each had made when it was woken last.
pub struct Heartbeat {
    pulses: Vec<(Pulse, u64)>,
}

impl Heartbeat {
    /// Heartbeat of these threads, each of which has been woken.
    pub fn new(pulses: impl IntoIterator<Item = Pulse>) -> Self {
        let pulses = pulses.into_iter().map(|pulse| {
            let turns = (pulse.turns)();
            pulse.waker.wake_by_ref();
            (pulse, turns)
        });
        Self { pulses: pulses.collect() }
    }

    /// Returns the first thread that has made no turn since it was woken, and wakes the others
    /// again.
    fn beat(&mut self) -> Option<&'static str> {
        let mut hangs = None;
        for (pulse, before) in &mut self.pulses {
            let turns = (pulse.turns)();
            if turns == *before {
                hangs = hangs.or(Some(pulse.thread));
            }
            *before = turns;
            pulse.waker.wake_by_ref();
        }
        hangs
    }
}

impl ServiceManager {
    /// Starts the thread, if there is a manager. It runs until the process ends.
    pub fn watch(&self, mut heartbeat: Heartbeat, status: Arc<Status>) -> Result<(), Failure> {
        if self.socket.is_none() {
            return Ok(());
        }
        let manager = self.clone();
        let interval = match self.watchdog {
            Some(watchdog) => (watchdog / LOOKS).max(INTERVAL_MIN),
            None => STATE_INTERVAL,
        };
        let mut shown = status.state();
        let watch = move || {
            loop {
                thread::park_timeout(interval);
                if manager.watchdog.is_some() {
                    match heartbeat.beat() {
                        None => manager.send("WATCHDOG=1\n"),
                        Some(thread) => log::warn!(
                            "the thread {thread} has made no turn for {interval:?}; the service \
                             manager is not told that the server is well"
                        ),
                    }
                }
                let state = status.state();
                if state != shown {
                    manager.status(&state);
                    shown = state;
                }
            }
        };
        let spawned = thread::Builder::new().name("watchdog".into()).spawn(watch);
        spawned
            .map(drop)
            .map_err(|error| Failure::run(format!("cannot start the thread watchdog: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicU64, Ordering},
        task::Wake,
    };

    use super::*;

    /// A thread that turns when it is woken, until it hangs.
    #[derive(Default)]
    struct Turning {
        turns: AtomicU64,
        hangs: AtomicBool,
    }

    impl Wake for Turning {
        fn wake(self: Arc<Self>) {
            if !self.hangs.load(Ordering::Relaxed) {
                self.turns.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn pulse(thread: &'static str, turning: &Arc<Turning>) -> Pulse {
        let turns = Arc::clone(turning);
        Pulse {
            thread,
            waker: Arc::clone(turning).into(),
            turns: Box::new(move || turns.turns.load(Ordering::Relaxed)),
        }
    }

    #[test]
    fn a_thread_that_makes_no_turn_after_it_was_woken_hangs() {
        let (net, tx) = (Arc::<Turning>::default(), Arc::<Turning>::default());
        let mut heartbeat = Heartbeat::new([pulse("net", &net), pulse("tx", &tx)]);
        assert_eq!(heartbeat.beat(), None);
        assert_eq!(heartbeat.beat(), None);
        tx.hangs.store(true, Ordering::Relaxed);
        // Its last turn was the answer to the last look.
        assert_eq!(heartbeat.beat(), None);
        assert_eq!(heartbeat.beat(), Some("tx"));
        assert_eq!(heartbeat.beat(), Some("tx"));
        tx.hangs.store(false, Ordering::Relaxed);
        assert_eq!(heartbeat.beat(), Some("tx"));
        assert_eq!(heartbeat.beat(), None);
        // A counter that was set back is one that has moved.
        net.turns.store(0, Ordering::Relaxed);
        assert_eq!(heartbeat.beat(), None);
    }
}
