//! Simulated time, which moves when the test says so.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use crate::Clock;

/// Clock that a test controls. Clones show the same time.
#[derive(Clone, Debug)]
pub struct SimClock {
    time: Arc<Mutex<Time>>,
}

#[derive(Debug)]
struct Time {
    now: Duration,
    wall_ms: i64,
    /// Fraction of a millisecond that the wall clock is behind.
    wall_rest: Duration,
}

impl SimClock {
    /// Creates a clock that shows `wall_ms`.
    pub fn new(wall_ms: i64) -> Self {
        Self {
            time: Arc::new(Mutex::new(Time {
                now: Duration::ZERO,
                wall_ms,
                wall_rest: Duration::ZERO,
            })),
        }
    }

    /// Advances both clocks by this time.
    pub fn advance(&self, by: Duration) {
        let mut time = self.time();
        time.now += by;
        let passed = time.wall_rest + by;
        let passed_ms = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        time.wall_ms = time.wall_ms.saturating_add(passed_ms);
        time.wall_rest = Duration::from_nanos(u64::from(passed.subsec_nanos()) % 1_000_000);
    }

    /// Steps the wall clock, in either direction.
    pub fn set_wall_ms(&self, wall_ms: i64) {
        let mut time = self.time();
        time.wall_ms = wall_ms;
        time.wall_rest = Duration::ZERO;
    }

    fn time(&self) -> MutexGuard<'_, Time> {
        self.time.lock().expect("no code that holds the lock panics")
    }
}

impl Clock for SimClock {
    fn now(&self) -> Duration {
        self.time().now
    }

    fn wall_ms(&self) -> i64 {
        self.time().wall_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_on_both_clocks_and_small_steps_add_up() {
        let clock = SimClock::new(1_000);
        let shown = clock.clone();
        for _ in 0..10 {
            clock.advance(Duration::from_micros(300));
        }
        assert_eq!((shown.now(), shown.wall_ms()), (Duration::from_millis(3), 1_003));
    }

    #[test]
    fn a_step_of_the_wall_clock_leaves_the_steady_one_alone() {
        let clock = SimClock::new(1_000);
        clock.advance(Duration::from_secs(1));
        clock.set_wall_ms(-5);
        clock.advance(Duration::from_millis(2));
        assert_eq!((clock.now(), clock.wall_ms()), (Duration::from_millis(1_002), -3));
    }
}
