//! Bounds how much of a processor the making of a snapshot takes.

use std::time::Duration;

use busload_io::Clock;

use crate::limits::PAUSE_MAX_MS;

/// Error of work that was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("asked to stop")]
pub struct Stopped;

/// Called between two pieces of work of about a millisecond.
pub trait Pace {
    /// Returns when the next piece may be done.
    fn pace(&mut self) -> Result<(), Stopped>;

    /// Learns which share of all work is done, from 0 to 1. Not everybody shows it.
    fn progress(&mut self, _done: f64) {}
}

/// Pauses so long after each piece of work that the work takes its share of the time.
pub struct Pacer<'a, C> {
    clock: &'a C,
    /// Waits for this long, or less and fails if the work must stop.
    pause: &'a mut dyn FnMut(Duration) -> Result<(), Stopped>,
    /// Share of the time, as a number above 0 and up to 1.
    share: &'a dyn Fn() -> f64,
    progress: &'a mut dyn FnMut(f64),
    resumed: Duration,
}

impl<'a, C: Clock> Pacer<'a, C> {
    /// Creates a pacer for work that begins now; `progress` is told how much of it is done.
    pub fn new(
        clock: &'a C,
        share: &'a dyn Fn() -> f64,
        pause: &'a mut dyn FnMut(Duration) -> Result<(), Stopped>,
        progress: &'a mut dyn FnMut(f64),
    ) -> Self {
        let resumed = clock.now();
        Self { clock, pause, share, progress, resumed }
    }
}

impl<C: Clock> Pace for Pacer<'_, C> {
    fn pace(&mut self) -> Result<(), Stopped> {
        let worked = self.clock.now().saturating_sub(self.resumed);
        let share = (self.share)().clamp(0.01, 1.0);
        let pause = worked.mul_f64(1.0 / share - 1.0).min(Duration::from_millis(PAUSE_MAX_MS));
        (self.pause)(pause)?;
        self.resumed = self.clock.now();
        Ok(())
    }

    fn progress(&mut self, done: f64) {
        (self.progress)(done);
    }
}
